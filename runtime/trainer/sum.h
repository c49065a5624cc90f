/* A number that stands for the bytes of a file: it finds out damage, not intent. */
#ifndef FG_RUNTIME_TRAINER_SUM_H
#define FG_RUNTIME_TRAINER_SUM_H

#include "runtime/trainer/fail.h"

/* 16 hexadecimal digits. The caller frees; NULL: the file cannot be read. */
char *fg_file_sum(const char *path, FgFail *fail);
char *fg_bytes_sum(const void *data, size_t bytes);

#endif
