/* What the parts of the model loader share.
 *
 *   model_dims    named dims and every size computed from them
 *   model_names   scopes, definitions, and the lookup of a name (innermost first)
 *   model_tables  inputs and parameters
 *   model_nodes   the node list, repeats unrolled, into instances
 *   model_order   names to definitions, unused outputs, topological order
 *   model_build   instances to IR nodes
 *   model_custom, model_signature   custom nodes, and the source files of their functions
 *
 * An instance is one node of the file in one iteration of its repeats. Messages are deduplicated by
 * place (FgJsonCx), so the parts may check every instance alike. */
#ifndef FG_FRONTEND_MODEL_INTERNAL_H
#define FG_FRONTEND_MODEL_INTERNAL_H

#include "frontend/json.h"
#include "frontend/model.h"
#include "ir/op_table.h"

typedef struct Dim {
    const char *name;
    const FgJson *json;
    int64_t value;
    enum { DIM_NEW, DIM_BUSY, DIM_DONE, DIM_FAILED } state;
} Dim;

/* The names of one block: the root, or one iteration of a repeat. */
typedef struct Scope {
    const struct Scope *outer; /* NULL: the root */
    const char *prefix;        /* of names of parameters and nodes, all enclosing ones joined */
    const char *index;         /* name of the repeat's index; NULL at the root */
    int64_t iteration;
    int32_t layer; /* iteration of the outermost repeat; -1 at the root */
    FgMap names;   /* -> definition */
    FgStrVec list; /* the same names, for suggestions */
} Scope;

typedef enum DefKind {
    DEF_INPUT,  /* index: input */
    DEF_PARAM,  /* index: parameter */
    DEF_RESULT, /* index: instance, result: which */
    DEF_ALIAS,  /* another name in another scope: carried values */
    DEF_FAILED  /* already reported */
} DefKind;

typedef struct Def {
    DefKind kind;
    uint32_t index, result;
    const char *name; /* as written, without its prefix */
    FgLoc loc;
    const Scope *scope; /* ALIAS: where `target` is looked up */
    const FgJson *target;
    bool read;
} Def;

typedef struct Instance {
    const FgJson *json;
    const Scope *scope;
    FgOp op;
    const FgJson *in; /* `n_in` strings */
    uint32_t n_in;
    const FgJson *out;
    uint32_t n_out;
    uint32_t *operands; /* definitions, aliases resolved; FG_NO_ID: reported */
    uint32_t *values;   /* of the results, once built */
    bool known;         /* the op exists: its attributes can be read */
    bool failed;
    enum { INSTANCE_NEW, INSTANCE_OPEN, INSTANCE_DONE } mark; /* of the ordering */
} Instance;

typedef struct ModelCx {
    FgArena *arena;   /* gone after the load; the module has its own */
    const char *path; /* of the model file */
    FgJsonCx *json;
    const FgModelOptions *options;
    FgModule *module;
    FG_VEC(Dim) dims;
    FgMap dim_index;
    FG_VEC(Def) defs;
    FG_VEC(Instance) instances;
    FgIdVec order; /* of instances */
    Scope *root;
    FgMap param_names; /* full and tied names -> definition */
    FgStrVec param_list;
    bool *read;         /* by JSON id of a node: one of its instances is read */
    bool *on_cycle;     /* by JSON id of a node: it was named in a message about a circle */
    uint32_t loss_def;  /* FG_NO_ID: none */
    uint64_t bytes;     /* of all values so far */
    bool repeat_failed; /* one was not unrolled: what it would have read is not known */
    uint32_t expanded;  /* iterations, nodes and parameters so far */
    FG_VEC(const struct CustomSource *) sources; /* of custom functions, with their index by name */
    FgMap source_index;
    FgMap function_owner;    /* -> source id of the file that defines it */
    FgMap signature_answers; /* -> whether a function is what a node needs */
} ModelCx;

/* ---- model_dims.c ---- */
void fg_model_dims(ModelCx *cx, const FgJson *root);
/* An integer or an expression of dims and of the indices of enclosing repeats. False after a
 * report. */
bool fg_model_int(ModelCx *cx, const Scope *scope, const FgJson *value, const char *what,
                  int64_t *out);
/* A list of sizes, each >= 1. The type, or NULL after a report. */
const FgType *fg_model_type(ModelCx *cx, const Scope *scope, const FgJson *shape, FgDtype dtype);
/* Adds a type's bytes to the sum; false, reported, when its elements or the sum reach 2^62. */
bool fg_model_count_bytes(ModelCx *cx, FgLoc loc, const FgType *type);

/* ---- model_names.c ---- */
/* The text with each {index} replaced; NULL after a report (an unknown index, or letters that no
 * name may have). */
const char *fg_model_name(ModelCx *cx, const Scope *scope, const FgJson *text);
const char *fg_model_substitute(ModelCx *cx, const Scope *scope, FgLoc loc, const char *text);
bool fg_model_check_name(ModelCx *cx, FgLoc loc, const char *name);
/* Makes a definition; false, reported, when the scope has the name. */
bool fg_model_define(ModelCx *cx, Scope *scope, Def def);
/* Makes a definition for the full name of a parameter; `scope` is where it is declared. */
bool fg_model_define_param(ModelCx *cx, const Scope *scope, Def def);
/* The definition of a name read at `loc` (not an alias), or FG_NO_ID after a report. */
uint32_t fg_model_lookup(ModelCx *cx, const Scope *scope, FgLoc loc, const char *name);
/* Follows carried values to what defines them; FG_NO_ID after a report. */
uint32_t fg_model_resolve(ModelCx *cx, uint32_t def);

/* ---- model_tables.c ---- */
void fg_model_inputs(ModelCx *cx, const FgJson *root);
void fg_model_params(ModelCx *cx, Scope *scope, const FgJson *params);
/* Notes for parameters and inputs that nothing reads. */
void fg_model_unused_names(ModelCx *cx);

/* ---- model_nodes.c ---- */
void fg_model_nodes(ModelCx *cx, Scope *scope, const FgJson *nodes);
/* Counts one more iteration, node or parameter; false, reported, when the model unrolls without
 * bound. */
bool fg_model_expand(ModelCx *cx, FgLoc loc);

/* ---- model_order.c ---- */
void fg_model_order(ModelCx *cx, const FgJson *root);

/* ---- model_custom.c ---- */
void fg_model_custom_form(ModelCx *cx, const FgJson *node);
bool fg_model_custom_arity(ModelCx *cx, const Instance *it);
/* One entry an attribute of the op's row; NULL after reports. Without the inputs' values (NULL)
 * signatures are not looked at. */
const FgAttr *fg_model_custom(ModelCx *cx, const Instance *it, const uint32_t *values);

/* ---- model_build.c ---- */
void fg_model_build(ModelCx *cx);
/* Whether a model file may use the op. */
bool fg_model_op_allowed(FgOp op);

#endif
