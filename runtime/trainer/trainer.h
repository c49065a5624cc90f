/* The trained program's main function: everything between a command line and an exit status.
 *
 * runtime/trainer/main.c is the only caller outside tests; it lives in a library of its own
 * (fg_main), so that a test can link the trainer and be the main program. */
#ifndef FG_RUNTIME_TRAINER_TRAINER_H
#define FG_RUNTIME_TRAINER_TRAINER_H

#include "runtime/fg_rt.h"

/* 0 done, 1 bad input or a failure while running, 2 usage, 128 + signal when stopped without a
 * checkpoint. */
int fg_trainer_main(const FgRtProgram *program, int argc, char **argv);

#endif
