/* The main function of an emitted program. */
#include "runtime/driver.h"
#include "runtime/trainer/trainer.h"

#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int status = fg_trainer_main(fg_program(), argc, argv);
    if (status != 0 && fg_rt_kind()->process_a_rank) {
        /* A device may still wait for a peer that is gone; libraries would wait with it at exit. */
        fflush(NULL);
        _exit(status);
    }
    return status;
}
