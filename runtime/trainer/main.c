/* The main function of an emitted program. */
#include "runtime/driver.h"
#include "runtime/trainer/trainer.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* A stream that the caller has closed must not become a file of ours, with messages in it: what is
 * opened in its place cannot be written either. */
static void keep_streams(void)
{
    int fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDONLY);
    if (fd > STDERR_FILENO)
        close(fd);
}

int main(int argc, char **argv)
{
    keep_streams();
    int status = fg_trainer_main(fg_program(), argc, argv);
    if (status != 0 && fg_rt_kind()->process_a_rank) {
        /* A device may still wait for a peer that is gone; libraries would wait with it at exit. */
        fflush(NULL);
        _exit(status);
    }
    return status;
}
