/* C text: literals and comments that mean what they say, whatever a model's names hold. */
#ifndef FG_CODEGEN_CTEXT_H
#define FG_CODEGEN_CTEXT_H

#include "base/str.h"

/* A string literal, escaped (no trigraphs, no raw control or non-ASCII bytes); NULL becomes "". */
void fg_c_string(FgBuf *out, const char *text);
/* An unsigned 64-bit decimal literal; a suffix only where C needs one. */
void fg_c_u64(FgBuf *out, uint64_t u);
void fg_c_i64(FgBuf *out, int64_t i);
void fg_c_double(FgBuf *out, double f);
/* Text for the inside of a block comment: what could end it, or a line, is replaced. */
void fg_c_comment(FgBuf *out, const char *text);

#endif
