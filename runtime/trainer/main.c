/* The main function of an emitted program. */
#include "runtime/trainer/trainer.h"

int main(int argc, char **argv)
{
    return fg_trainer_main(fg_program(), argc, argv);
}
