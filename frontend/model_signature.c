/* Source files of custom functions: which files a model may name, and whether the functions there
 * take what the model hands them.
 *
 * A file is named relative to the model file and lies beside or below it: a model from elsewhere
 * must not make the compiler build other files of this machine. */
#include "frontend/model_custom.h"

#include "base/file.h"

#include <dirent.h>
#include <string.h>

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyz"
                                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n > m && strcmp(text + n - m, tail) == 0;
}

/* What is wrong with a file's name, or NULL. */
static const char *bad_name(const char *name, bool cuda)
{
    if (name[0] == '/')
        return "is an absolute path";
    for (const char *p = name; *p; p += strcspn(p, "/"), p += *p == '/') {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && *p == '.') || (n == 2 && strncmp(p, "..", 2) == 0) || *p == '-')
            return "has a part that is empty, '.', '..', or begins with '-'";
    }
    if (name[strspn(name, name_letters)])
        return "has a sign that is no letter, digit, '_', '-', '.' or '/'";
    if (cuda ? !ends_with(name, ".cu") : !ends_with(name, ".c"))
        return cuda ? "does not end in .cu" : "does not end in .c";
    return NULL;
}

/* "models/" for models/a.json, "" where there is no folder. */
static const char *folder_of(FgArena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? fg_arena_strndup(arena, path, (size_t)(slash - path) + 1) : "";
}

static void suggest_file(ModelCx *cx, const char *path, const char *name)
{
    FgStrVec names = {0};
    const char *folder = folder_of(cx->arena, path), *inside = folder_of(cx->arena, name);
    DIR *dir = opendir(*folder ? folder : ".");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (ends_with(entry->d_name, ".c") || ends_with(entry->d_name, ".cu"))
            fg_vec_push(cx->arena, &names,
                        fg_arena_printf(cx->arena, "%s%s", inside, entry->d_name));
    }
    if (dir)
        closedir(dir);
    fg_json_suggest(cx->json, name, names.data, names.len);
}

static bool check_file_name(ModelCx *cx, const FgJson *name, bool cuda)
{
    const char *wrong = bad_name(name->text, cuda);
    if (wrong && fg_json_report(cx->json, name->loc, FG_D_BAD_VALUE, "the file name '%s' %s",
                                name->text, wrong))
        fg_diag_note(cx->json->diags, FG_NOWHERE,
                     "a source lies beside or below the model file, and is named from there");
    return !wrong;
}

/* Text and path live as long as the diagnostics, which may point at them. */
static void read_source(ModelCx *cx, const FgJson *name, CustomSource *out)
{
    FgArena *arena = cx->module->arena;
    const char *error;
    char *text;
    *out = (CustomSource){.name = fg_arena_strdup(arena, name->text)};
    out->path = fg_arena_printf(arena, "%s%s", folder_of(cx->arena, cx->path), out->name);
    if (!fg_file_read(arena, out->path, &text, &out->len, &error)) {
        if (fg_json_report(cx->json, name->loc, FG_D_IO, "%s", error)) {
            fg_diag_note(cx->json->diags, FG_NOWHERE,
                         "file names are relative to the folder of the model file");
            suggest_file(cx, out->path, name->text);
        }
        return;
    }
    out->text = text;
    out->file = fg_diags_source(cx->json->diags, out->path, text, out->len);
    out->digest = (int64_t)fg_hash_bytes(text, out->len, 0);
    out->ok = true;
}

const CustomSource *fg_model_source(ModelCx *cx, const FgJson *name, bool cuda)
{
    uint32_t index;
    if (!check_file_name(cx, name, cuda))
        return NULL;
    if (!fg_map_get(&cx->source_index, name->text, &index)) {
        CustomSource *source = FG_NEW(cx->arena, CustomSource);
        read_source(cx, name, source);
        index = cx->sources.len;
        fg_map_add(&cx->source_index, source->name, index);
        fg_vec_push(cx->arena, &cx->sources, source);
    }
    const CustomSource *source = cx->sources.data[index];
    if (!source->ok)
        cx->json->failed = true;
    return source->ok ? source : NULL;
}

/* ---- signatures ---- */

typedef struct Check {
    ModelCx *cx;
    const FgJson *value; /* where the model names the function */
    const char *function;
    const CustomSource *source;
    const CustomParams *params;
} Check;

static const char *c_type(FgDtype dtype)
{
    static const char *const types[FG_N_DTYPES] = {
        [FG_F32] = "float",  [FG_BF16] = "FgBf16", [FG_F16] = "FgF16",
        [FG_F64] = "double", [FG_I32] = "int32_t", [FG_I64] = "int64_t",
    };
    return types[dtype];
}

/* The declaration that would do. */
static const char *wanted(const Check *check)
{
    FgBuf out;
    fg_buf_init(&out, check->cx->arena);
    fg_buf_printf(&out, "void %s(", check->function);
    for (uint32_t i = 0; i < check->params->len; i++) {
        const CustomParam *param = &check->params->data[i];
        fg_buf_printf(&out, "%s%s *, ", param->result ? "" : "const ", c_type(param->dtype));
    }
    fg_buf_puts(&out, "const FgCustom *)");
    return fg_buf_text(&out);
}

/* The message at the node, a note at the source, and what is wanted. Returns false. */
static bool report(const Check *check, FgLoc loc, const char *what)
{
    FgDiags *diags = check->cx->json->diags;
    if (fg_json_report(check->cx->json, check->value->loc, FG_D_SIGNATURE, "'%s' in %s %s",
                       check->function, check->source->name, what)) {
        if (loc.file)
            fg_diag_note(diags, loc, "it stands here");
        fg_diag_note(diags, FG_NOWHERE, "what this node needs: %s", wanted(check));
    }
    return false;
}

/* What is wrong with a parameter, or NULL. */
static const char *bad_param(const Check *check, const FgSignatureParam *has, uint32_t i)
{
    FgArena *arena = check->cx->arena;
    if (i == check->params->len)
        return has->call ? NULL
                         : fg_arena_printf(arena,
                                           "has '%s' for its last parameter, not the call, "
                                           "'const FgCustom *'",
                                           has->type);
    const CustomParam *want = &check->params->data[i];
    const char *what =
        fg_arena_printf(arena, "parameter %u, %s '%s' of %s,", i + 1,
                        want->result ? "result" : "input", want->name, fg_dtype_name(want->dtype));
    if (!has->pointer || !has->known || has->dtype != want->dtype)
        return fg_arena_printf(arena, "has '%s' for %s not '%s%s *'", has->type, what,
                               want->result ? "" : "const ", c_type(want->dtype));
    if (has->constant && want->result)
        return fg_arena_printf(arena, "has '%s' for %s which it must write: no const", has->type,
                               what);
    if (!has->constant && !want->result)
        return fg_arena_printf(arena, "has '%s' for %s which it must not write: const", has->type,
                               what);
    return NULL;
}

static bool check_params(const Check *check, const FgSignature *signature)
{
    uint32_t n = check->params->len;
    if (signature->n_params != n + 1)
        return report(check, signature->loc,
                      fg_arena_printf(check->cx->arena,
                                      "takes %u parameters, not %u: one for each input, one for "
                                      "each result, and the call",
                                      signature->n_params, n + 1));
    for (uint32_t i = 0; i <= n; i++) {
        const char *wrong = bad_param(check, &signature->params[i], i);
        if (wrong)
            return report(check, signature->params[i].loc, wrong);
    }
    return true;
}

static bool not_found(const Check *check, const FgSignature *signature)
{
    FgJsonCx *json = check->cx->json;
    if (fg_json_report(json, check->value->loc, FG_D_SIGNATURE, "%s defines no function '%s'",
                       check->source->name, check->function)) {
        fg_json_suggest(json, check->function, signature->functions, signature->n_functions);
        fg_diag_note(json->diags, FG_NOWHERE, "what this node needs: %s", wanted(check));
    }
    return false;
}

static bool check_source(const Check *check, bool cuda)
{
    ModelCx *cx = check->cx;
    const CustomSource *source = check->source;
    const FgSignatureRequest request = {source->path, source->text, source->len,
                                        source->file, cuda,         check->function};
    FgSignature signature = {0};
    const char *error = "custom functions cannot be read here";
    FgLoc loc = FG_NOWHERE;
    FgSignatureReader *read = cx->options->read_signature;
    if (!read ||
        !read(cx->options->signature_user, cx->arena, &request, &signature, &error, &loc)) {
        if (fg_json_report(cx->json, check->value->loc, FG_D_SIGNATURE,
                           "the signature of '%s' in %s cannot be read", check->function,
                           source->name))
            fg_diag_note(cx->json->diags, loc, "%s", error);
        return false;
    }
    if (!signature.found)
        return not_found(check, &signature);
    if (!signature.external)
        return report(check, signature.loc,
                      cuda
                          ? "cannot be called from outside: it must be extern \"C\", and not static"
                          : "cannot be called from outside: it is static or inline");
    if (!signature.plain)
        return report(check, signature.loc, "must return nothing (void) and take no '...'");
    return check_params(check, &signature);
}

/* A name that C and the emitted program can have. */
static bool check_name(ModelCx *cx, const FgJson *value, const char *function)
{
    size_t n = strspn(function, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (strncmp(function, "custom_", 7) == 0 && !function[n])
        return true;
    if (fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE,
                       "'%s' is no name for a custom function: letters, digits and '_', beginning "
                       "with custom_",
                       function))
        fg_diag_note(
            cx->json->diags, FG_NOWHERE,
            "an emitted program has names of its own; {dtype} stands for the compute dtype");
    return false;
}

/* All programs of one link: a name belongs to one file. */
static bool check_owner(ModelCx *cx, const FgJson *value, const char *function,
                        const CustomSource *host)
{
    uint32_t owner;
    if (!fg_map_get(&cx->function_owner, function, &owner)) {
        fg_map_add(&cx->function_owner, function, host->file);
        return true;
    }
    if (owner == host->file)
        return true;
    fg_json_report(cx->json, value->loc, FG_D_DUPLICATE_NAME,
                   "the function '%s' comes from %s elsewhere in this model; one program cannot "
                   "have both",
                   function, fg_diags_source_name(cx->json->diags, owner));
    return false;
}

/* The function and the parameters asked for, as a key: layers of a repeat ask alike. */
static const char *question(ModelCx *cx, const FgJson *value, const Check *check)
{
    return fg_arena_printf(cx->arena, "%u %s", value->id, wanted(check));
}

bool fg_model_signature(ModelCx *cx, const FgJson *value, const char *function,
                        const CustomSource *host, const CustomSource *cuda,
                        const CustomParams *params)
{
    Check check = {cx, value, function, host, params};
    if (!check_name(cx, value, function) || !check_owner(cx, value, function, host))
        return false;
    const char *key = question(cx, value, &check);
    uint32_t answer;
    if (!fg_map_get(&cx->signature_answers, key, &answer)) {
        answer = check_source(&check, false);
        check.source = cuda;
        if (answer && cuda)
            answer = check_source(&check, true);
        fg_map_add(&cx->signature_answers, key, answer);
    }
    if (!answer)
        cx->json->failed = true;
    return answer;
}
