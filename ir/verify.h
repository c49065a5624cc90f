/* The verifier's own state, shared by its files: verify.c (functions and nodes), verify_node.c
 * (what a node alone must satisfy), verify_types.c (the same, of types below graph level),
 * verify_tables.c (parameters, inputs, buckets, states, plan). */
#ifndef FG_IR_VERIFY_H
#define FG_IR_VERIFY_H

#include "base/map.h"
#include "ir/text.h"

typedef struct FgVerifier {
    const FgModule *m;
    FgArena *scratch;
    bool ok;
    bool unfit;        /* a node so far has operands or results that are not there */
    uint32_t *made_in; /* value id -> 1 + index of the function that makes it, as far as walked; 0:
                          not made */
    uint32_t *place;   /* node id -> 1 + its position in its function; 0: stands nowhere so far */
    uint32_t *func_of; /* node id -> index of the function it stands in */
    uint32_t func;     /* index of the function being walked */
} FgVerifier;

/* Reports one broken rule. */
void fg_verify_fail(FgVerifier *v, FgLoc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, with the node's title in front. */
void fg_verify_fail_node(FgVerifier *v, const FgNode *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "%name.12" for messages. */
const char *fg_verify_value_text(const FgVerifier *v, uint32_t id);
/* "bf16[4, 64]" for messages. */
const char *fg_verify_type_text(const FgVerifier *v, const FgType *type);
bool fg_verify_is_value(const FgVerifier *v, uint32_t id);

void fg_verify_tables(FgVerifier *v);
/* Attributes, number of operands and results, level, fields of the node. False: do not look further
 * at it. */
bool fg_verify_node_shape(FgVerifier *v, const FgNode *node);
/* Result types against inference; operands are known to be fit. */
void fg_verify_node_types(FgVerifier *v, const FgNode *node);
/* What ops on buckets read and write. */
void fg_verify_node_bucket(FgVerifier *v, const FgNode *node);
/* Types of what ops below graph level read and write; every node so far is fit. */
void fg_verify_node_low_types(FgVerifier *v, const FgNode *node);
/* Which ops may touch host memory. */
void fg_verify_node_host(FgVerifier *v, const FgNode *node);
/* A value's root, range and address. */
void fg_verify_value_place(FgVerifier *v, const FgNode *node, const FgValue *value);

#endif
