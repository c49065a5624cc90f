/* The reference of all ops (docs/ops.md), generated from the op table. */
#ifndef FG_TOOLS_OPS_MARKDOWN_H
#define FG_TOOLS_OPS_MARKDOWN_H

#include "base/str.h"

void fg_ops_markdown(FgBuf *out);

#endif
