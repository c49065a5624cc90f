/* What printer, parser and verifier share and nobody else needs: details of the text form
 * (docs/ir.md). */
#ifndef FG_IR_TEXT_H
#define FG_IR_TEXT_H

#include "ir/op_table.h"

/* What the row says of an attribute that is not given; not set when it must be. */
FgAttr fg_attr_default(FgModule *module, const FgAttrSpec *spec);
/* True when `attr` holds the default of its row; such attributes are not printed. */
bool fg_attr_is_default(const FgAttrSpec *spec, const FgAttr *attr);
/* True when one of the space-separated `words` is `word`. */
bool fg_word_in(const char *words, const char *word);
/* "bf16[4, 64]" */
void fg_type_print(FgBuf *out, const FgType *type);
/* "#12 gather 'embed'": how messages name a node. */
const char *fg_node_title(FgArena *arena, const FgNode *node);

const char *fg_init_name(FgInit init);
const char *fg_input_role_name(FgInputRole role);
const char *fg_recompute_name(FgRecompute recompute);

#endif
