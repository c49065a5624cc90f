/* Tables of items to place, as comma-separated text.
 *
 * The first line names the columns: `id` (or buffer, buffer_id), `lower` (begin, start), `upper`
 * (the first time at which the item is gone) or `end` (the last at which it is there), `size`; and
 * where wanted `alignment` (offsets are multiples of it), `hint` (checked, not used), `gaps`:
 * "from-to" or "from-to@low:high", several apart by spaces, times as in the lifetime's columns: in
 * between the item uses nothing, or only its bytes [low, high). Any order of columns. Others, and
 * `offset`, are not used. */
#ifndef FG_TOOLS_COMMAND_PLACE_H
#define FG_TOOLS_COMMAND_PLACE_H

#include "base/diag.h"
#include "passes/pack.h"

#include "base/vec.h"

typedef struct FgPlaceText {
    const char *at;
    size_t len;
} FgPlaceText;

#define FG_PLACE_NO_FIELD UINT32_MAX

typedef struct FgPlaceTable {
    FgPlaceText header;
    uint32_t unprinted;       /* the column of earlier offsets, or FG_PLACE_NO_FIELD */
    FG_VEC(FgPlaceText) rows; /* as they stand in the text, item by item */
    FgPackProblem problem;
} FgPlaceTable;

/* Reads a table; `text` must outlive it. False after errors in `diags`. */
bool fg_place_parse(FgArena *arena, FgDiags *diags, const char *name, const char *text, size_t len,
                    FgPlaceTable *out);

#endif
