/* Source files of custom functions, from the model to the compiler that builds them. */
#include "base/file.h"
#include "base/map.h"
#include "ir/op_table.h"
#include "tools/command/session.h"

#include <string.h>

/* A model names its sources relative to its own folder. */
static const char *path_of(const FgSession *s, const char *name)
{
    const char *slash = strrchr(s->source, '/');
    int n = slash ? (int)(slash - s->source) + 1 : 0;
    return fg_arena_printf(s->arena, "%.*s%s", n, s->source, name);
}

/* What was checked is what is built. */
static bool unchanged(FgSession *s, const FgNode *node, const char *path, int64_t digest)
{
    char *text;
    size_t len;
    const char *error = "it changed while the model was compiled";
    if (fg_file_read(s->arena, path, &text, &len, &error)) {
        if ((int64_t)fg_hash_bytes(text, len, 0) == digest)
            return true;
        error = "it changed while the model was compiled";
    }
    fg_diag(s->diags, node->loc, FG_D_IO, "%s: %s", path, error);
    return false;
}

static bool add_source(FgSession *s, const FgNode *node, bool cuda, FgStrVec *out)
{
    const char *name = fg_node_attr(node, cuda ? "cuda" : "source")->word;
    if (!*name) {
        fg_diag(s->diags, node->loc, FG_D_SIGNATURE,
                "the custom function '%s' has no source for GPUs",
                fg_node_attr(node, "function")->word);
        fg_diag_note(s->diags, FG_NOWHERE,
                     "--target cuda takes \"cuda\": the .cu file with its twin, extern \"C\"");
        return false;
    }
    const char *path = path_of(s, name);
    for (uint32_t i = 0; i < out->len; i++)
        if (!strcmp(out->data[i], path))
            return true;
    fg_vec_push(s->arena, out, path);
    return unchanged(s, node, path, fg_node_attr(node, cuda ? "cuda_digest" : "digest")->i);
}

bool fg_custom_sources(FgSession *s, bool cuda, FgStrVec *out)
{
    for (uint32_t i = 0; i < s->graph->nodes.len; i++) {
        const FgNode *node = &s->graph->nodes.data[i];
        if (node->op == FG_OP_custom && node->n_results && !add_source(s, node, cuda, out))
            return false;
    }
    return true;
}
