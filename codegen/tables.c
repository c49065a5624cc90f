/* The static const tables of the emitted file, one row a line, and the FgRtProgram that names them.
 * A table without rows is left out and its pointer is 0. */
#include "codegen/ctext.h"
#include "codegen/custom.h"
#include "codegen/parts.h"

#include <inttypes.h>
#include <string.h>

static const char *const rt_dtypes[FG_N_DTYPES] = {
    [FG_F32] = "FG_RT_F32", [FG_BF16] = "FG_RT_BF16", [FG_F16] = "FG_RT_F16",
    [FG_F64] = "FG_RT_F64", [FG_I32] = "FG_RT_I32",   [FG_I64] = "FG_RT_I64",
};
static const char *const rt_inits[] = {
    [FG_INIT_NORMAL] = "FG_RT_NORMAL",
    [FG_INIT_UNIFORM] = "FG_RT_UNIFORM",
    [FG_INIT_CONSTANT] = "FG_RT_CONSTANT",
};

static void put_offset(FgBuf *out, uint64_t offset)
{
    if (offset == UINT64_MAX)
        fg_buf_puts(out, "FG_RT_NONE");
    else if (offset >= FG_HOST_BASE)
        fg_buf_printf(out, "FG_RT_HOST + %" PRIu64, offset - FG_HOST_BASE);
    else
        fg_c_u64(out, offset);
}

static void put_dims(FgBuf *out, const FgType *type, const char *name)
{
    if (type->rank == 0)
        return;
    fg_buf_puts(out, "   ");
    for (uint32_t i = 0; i < type->rank; i++) {
        fg_buf_puts(out, " ");
        fg_c_i64(out, type->dims[i]);
        fg_buf_puts(out, ",");
    }
    fg_buf_puts(out, " /* ");
    fg_c_comment(out, name);
    fg_buf_puts(out, " */\n");
}

/* Shapes of parameters, then of inputs, then of operands of custom functions. */
static void put_shapes(FgEmit *emit, FgBuf *out)
{
    const FgModule *m = emit->module;
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->params.len; i++)
        n += m->params.data[i].type->rank;
    for (uint32_t i = 0; i < m->inputs.len; i++)
        n += m->inputs.data[i].type->rank;
    emit->dims_operands = n;
    n += emit->args.operand_dims.len;
    emit->has_dims = n > 0;
    if (n == 0)
        return;
    fg_buf_puts(out, "static const int64_t dims[] = {\n");
    for (uint32_t i = 0; i < m->params.len; i++)
        put_dims(out, m->params.data[i].type, m->params.data[i].name);
    for (uint32_t i = 0; i < m->inputs.len; i++)
        put_dims(out, m->inputs.data[i].type, m->inputs.data[i].name);
    fg_emit_operand_dims(emit, out);
    fg_buf_puts(out, "};\n\n");
}

static void put_tied(FgEmit *emit, FgBuf *out)
{
    for (uint32_t i = 0; i < emit->module->params.len; i++) {
        const FgParam *param = &emit->module->params.data[i];
        for (uint32_t k = 0; k < param->n_tied; k++) {
            if (!emit->has_tied)
                fg_buf_puts(out, "static const char *const tied[] = {\n");
            emit->has_tied = true;
            fg_buf_puts(out, "    ");
            fg_c_string(out, param->tied[k]);
            fg_buf_puts(out, ",\n");
        }
    }
    if (emit->has_tied)
        fg_buf_puts(out, "};\n\n");
}

static void put_param(FgBuf *out, const FgParam *param, uint32_t dims_first, uint32_t tied_first)
{
    fg_buf_puts(out, "    {");
    fg_c_string(out, param->name);
    if (param->bucket == FG_NO_ID)
        fg_buf_puts(out, ", UINT32_MAX, 0");
    else
        fg_buf_printf(out, ", %u, %" PRIu64, param->bucket, param->bucket_offset);
    fg_buf_printf(out, ", %" PRId64 ", %u, %u, %s, ", fg_type_elements(param->type), dims_first,
                  param->type->rank, rt_inits[param->init]);
    fg_c_double(out, param->init_scale);
    fg_buf_printf(out, ", %d, %d, %u, %u},\n", param->trainable, param->decay, tied_first,
                  param->n_tied);
}

static void put_params(FgEmit *emit, FgBuf *out)
{
    const FgModule *m = emit->module;
    if (m->params.len == 0)
        return;
    fg_buf_puts(out, "/* name, bucket, offset, elements, first dim, rank, initial values, "
                     "trainable, decay, first tied "
                     "name, their number */\nstatic const FgRtParam params[] = {\n");
    uint32_t dims_first = 0, tied_first = 0;
    for (uint32_t i = 0; i < m->params.len; i++) {
        put_param(out, &m->params.data[i], dims_first, tied_first);
        dims_first += m->params.data[i].type->rank;
        tied_first += m->params.data[i].n_tied;
    }
    fg_buf_puts(out, "};\n\n");
}

static void put_bucket_params(FgEmit *emit, FgBuf *out)
{
    const FgModule *m = emit->module;
    for (uint32_t i = 0; i < m->buckets.len; i++) {
        const FgBucket *bucket = &m->buckets.data[i];
        if (bucket->n_params == 0)
            continue;
        if (!emit->has_bucket_params)
            fg_buf_puts(out, "static const uint32_t bucket_params[] = {\n");
        emit->has_bucket_params = true;
        fg_buf_puts(out, "   ");
        for (uint32_t k = 0; k < bucket->n_params; k++)
            fg_buf_printf(out, " %u,", bucket->params[k]);
        fg_buf_puts(out, " /* ");
        fg_c_comment(out, bucket->name);
        fg_buf_puts(out, " */\n");
    }
    if (emit->has_bucket_params)
        fg_buf_puts(out, "};\n\n");
}

static void put_bucket(FgBuf *out, const FgModule *m, const FgBucket *bucket, uint32_t params_first)
{
    const uint32_t states[] = {bucket->shard, bucket->master, bucket->moment1, bucket->moment2,
                               bucket->grad_shard};
    fg_buf_puts(out, "    {");
    fg_c_string(out, bucket->name);
    fg_buf_printf(out, ", %s, %d, %" PRIu64 ", %u, %u", rt_dtypes[bucket->dtype], bucket->trainable,
                  bucket->elements, params_first, bucket->n_params);
    for (uint32_t i = 0; i < sizeof states / sizeof *states; i++) {
        fg_buf_puts(out, ", ");
        put_offset(out, fg_value_address(m, states[i]));
    }
    uint64_t grad_bytes =
        bucket->grad_shard == FG_NO_ID ? 0 : fg_type_bytes(m->values.data[bucket->grad_shard].type);
    fg_buf_printf(out, ", %" PRIu64 ", %u, %u},\n", grad_bytes, bucket->writes, bucket->lookups);
}

static void put_buckets(FgEmit *emit, FgBuf *out)
{
    const FgModule *m = emit->module;
    if (m->buckets.len == 0)
        return;
    fg_buf_puts(out, "/* name, dtype, trainable, elements, first parameter, their number; offsets "
                     "of shard, master, "
                     "moment1, moment2, grad_shard; its bytes, writes and lookups */\nstatic "
                     "const FgRtBucket buckets[] = {\n");
    uint32_t params_first = 0;
    for (uint32_t i = 0; i < m->buckets.len; i++) {
        put_bucket(out, m, &m->buckets.data[i], params_first);
        params_first += m->buckets.data[i].n_params;
    }
    fg_buf_puts(out, "};\n\n");
}

/* Value of the state with a role and index, or FG_NO_ID. */
static uint32_t find_state(const FgModule *m, FgRole role, uint32_t index)
{
    for (uint32_t i = 0; i < m->values.len; i++) {
        const FgValue *v = &m->values.data[i];
        if (v->kind == FG_VALUE_STATE && v->role == role && v->index == index)
            return i;
    }
    return FG_NO_ID;
}

static void put_inputs(FgEmit *emit, FgBuf *out)
{
    const FgModule *m = emit->module;
    uint32_t dims_first = 0;
    if (m->inputs.len == 0)
        return;
    for (uint32_t i = 0; i < m->params.len; i++)
        dims_first += m->params.data[i].type->rank;
    fg_buf_puts(
        out,
        "/* name, role (0 tokens, 1 labels, 2 other), dtype, offset, elements, first dim, rank */\n"
        "static const FgRtInput inputs[] = {\n");
    for (uint32_t i = 0; i < m->inputs.len; i++) {
        const FgInput *input = &m->inputs.data[i];
        fg_buf_puts(out, "    {");
        fg_c_string(out, input->name);
        fg_buf_printf(out, ", %d, %s, ", (int)input->role, rt_dtypes[input->type->dtype]);
        put_offset(out, fg_value_address(m, find_state(m, FG_ROLE_INPUT, i)));
        fg_buf_printf(out, ", %" PRId64 ", %u, %u},\n", fg_type_elements(input->type), dims_first,
                      input->type->rank);
        dims_first += input->type->rank;
    }
    fg_buf_puts(out, "};\n\n");
}

const char *fg_emit_file_name(const FgModule *module, FgLoc loc)
{
    const char *name = loc.file ? fg_diags_source_name(module->diags, loc.file) : "";
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static void put_nodes(FgEmit *emit, FgBuf *out)
{
    const FgModule *m = emit->module;
    if (emit->calls.len == 0)
        return;
    fg_buf_puts(out, "/* name, op, file, line, column */\nstatic const FgRtNode nodes[] = {\n");
    for (uint32_t i = 0; i < emit->calls.len; i++) {
        const FgNode *node = &m->nodes.data[emit->calls.data[i]];
        fg_buf_puts(out, "    {");
        fg_c_string(out, node->name);
        fg_buf_puts(out, ", ");
        fg_c_string(out, fg_op_info(node->op)->name);
        fg_buf_puts(out, ", ");
        fg_c_string(out, fg_emit_file_name(m, node->loc));
        fg_buf_printf(out, ", %u, %u},\n", node->loc.line, node->loc.col);
    }
    fg_buf_puts(out, "};\n\n");
}

static void put_ledger(FgEmit *emit, FgBuf *out)
{
    if (emit->info->n_ledger == 0)
        return;
    fg_buf_puts(out,
                "/* bytes on a rank at the peak */\nstatic const FgRtLedgerRow ledger[] = {\n");
    for (uint32_t i = 0; i < emit->info->n_ledger; i++) {
        fg_buf_puts(out, "    {");
        fg_c_string(out, emit->info->ledger[i].name);
        fg_buf_printf(out, ", %" PRIu64 "},\n", emit->info->ledger[i].bytes);
    }
    fg_buf_puts(out, "};\n\n");
}

/* Eight numbers a line: rows differ in length, and calls name a row by its first number's index. */
static void put_layouts(FgEmit *emit, FgBuf *out)
{
    const FgLayouts *layouts = &emit->args.layouts;
    if (layouts->len == 0)
        return;
    fg_buf_puts(out,
                "/* rank, dims, strides of each operand */\nstatic const int64_t layouts[] = {");
    for (uint32_t i = 0; i < layouts->len; i++) {
        fg_buf_puts(out, i % 8 == 0 ? "\n    " : " ");
        fg_c_i64(out, layouts->data[i]);
        fg_buf_puts(out, ",");
    }
    fg_buf_puts(out, "\n};\n\n");
}

void fg_emit_tables(FgEmit *emit, FgBuf *out)
{
    put_shapes(emit, out);
    put_tied(emit, out);
    put_params(emit, out);
    put_bucket_params(emit, out);
    put_buckets(emit, out);
    put_inputs(emit, out);
    put_nodes(emit, out);
    put_ledger(emit, out);
    put_layouts(emit, out);
    fg_emit_operands(emit, out);
}

/* ---- the program ---- */
/* The cross-entropy whose value it is, or, of a head in pieces, the last of those that add up to
 * it; NULL when it is something else. No other sum holds a cross-entropy: models are refused it. */
static const FgNode *cross_entropy_of(const FgModule *m, uint32_t value)
{
    for (;;) {
        const FgValue *v = &m->values.data[value];
        if (v->kind != FG_VALUE_RESULT)
            return NULL;
        const FgNode *def = &m->nodes.data[v->def];
        if (def->op == FG_OP_cross_entropy || def->op == FG_OP_vocab_loss)
            return def;
        if (def->op != FG_OP_reshape && def->op != FG_OP_add)
            return NULL;
        value = def->operands[def->n_operands - 1];
    }
}

static const FgNode *token_loss(const FgModule *m)
{
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        const FgNode *node = &m->nodes.data[i];
        if (node->op == FG_OP_loss_add)
            return cross_entropy_of(m, node->operands[0]);
    }
    return NULL;
}

/* Rows and row length of the batch: the tokens' shape, or the labels', or the first input's. */
static void batch_shape(const FgModule *m, int64_t *out_batch, int64_t *out_seq)
{
    const FgType *type = m->inputs.len ? m->inputs.data[0].type : NULL;
    for (uint32_t i = m->inputs.len; i-- > 0;) {
        if (m->inputs.data[i].role != FG_INPUT_OTHER)
            type = m->inputs.data[i].type;
    }
    *out_batch = type && type->rank > 0 ? type->dims[0] : 1;
    *out_seq = type && type->rank > 1 ? type->dims[1] : 1;
}

static const char *precision_name(FgDtype dtype)
{
    return dtype == FG_F32 ? "fp32" : dtype == FG_F16 ? "fp16" : fg_dtype_name(dtype);
}

static void put_field_text(FgBuf *out, const char *field, const char *text)
{
    fg_buf_printf(out, "    .%s = ", field);
    fg_c_string(out, text);
    fg_buf_puts(out, ",\n");
}

static void put_field_offset(FgBuf *out, const char *field, uint64_t offset)
{
    fg_buf_printf(out, "    .%s = ", field);
    put_offset(out, offset);
    fg_buf_puts(out, ",\n");
}

static void put_field_u64(FgBuf *out, const char *field, uint64_t u)
{
    fg_buf_printf(out, "    .%s = ", field);
    fg_c_u64(out, u);
    fg_buf_puts(out, ",\n");
}

static void put_field_double(FgBuf *out, const char *field, double f)
{
    fg_buf_printf(out, "    .%s = ", field);
    fg_c_double(out, f);
    fg_buf_puts(out, ",\n");
}

static void put_settings(FgEmit *emit, FgBuf *out)
{
    const FgModule *m = emit->module;
    const FgNode *loss = token_loss(m);
    int64_t batch, seq;
    batch_shape(m, &batch, &seq);
    fg_buf_printf(out, "    .abi = %d,\n", FG_CODEGEN_ABI);
    put_field_text(out, "model", m->name);
    put_field_text(out, "plan", m->plan ? m->plan->name : "");
    put_field_text(out, "precision", precision_name(m->numerics.compute));
    put_field_u64(out, "fingerprint", emit->info->fingerprint);
    fg_buf_printf(out,
                  "    .ranks = %u,\n    .batch = %" PRId64 ",\n    .seq = %" PRId64
                  ",\n    .accumulate = %" PRId64 ",\n",
                  m->ranks, batch, seq, m->numerics.accumulate);
    put_field_double(out, "clip", m->numerics.clip);
    fg_buf_printf(out, "    .loss_is_token_mean = %d,\n", loss != NULL);
    fg_buf_puts(out, "    .ignore_index = ");
    fg_c_i64(out, loss ? fg_node_attr(loss, "ignore_index")->i : -100);
    fg_buf_puts(out, ",\n");
    put_field_u64(out, "state_bytes", m->state_bytes);
    put_field_u64(out, "arena_bytes", m->arena_bytes);
    put_field_u64(out, "reserved_bytes", emit->info->reserved_bytes);
    put_field_u64(out, "memory_bytes", emit->info->memory_bytes);
    if (m->host_state_bytes || m->host_arena_bytes) {
        put_field_u64(out, "host_state_bytes", m->host_state_bytes);
        put_field_u64(out, "host_arena_bytes", m->host_arena_bytes);
        put_field_u64(out, "host_memory_bytes", emit->info->host_memory_bytes);
    }
    put_field_offset(out, "scalars", fg_value_address(m, find_state(m, FG_ROLE_SCALARS, 0)));
    put_field_offset(out, "loss", fg_value_address(m, find_state(m, FG_ROLE_LOSS, 0)));
    put_field_offset(out, "norm", fg_value_address(m, find_state(m, FG_ROLE_NORM, 0)));
    uint32_t scaler = find_state(m, FG_ROLE_SCALER, 0);
    if (scaler != FG_NO_ID) {
        fg_buf_puts(out, "    .scales_loss = 1,\n");
        put_field_offset(out, "scaler", fg_value_address(m, scaler));
    }
    put_field_double(out, "predicted_step_us", emit->info->step_us);
}

static void put_table(FgBuf *out, const char *name, bool there, uint32_t n)
{
    if (there)
        fg_buf_printf(out, "    .%s = %s,\n    .n_%s = %u,\n", name, name, name, n);
}

void fg_emit_program(FgEmit *emit, FgBuf *out)
{
    const FgModule *m = emit->module;
    fg_buf_puts(out, "static const FgRtProgram program = {\n");
    put_settings(emit, out);
    put_table(out, "params", m->params.len > 0, m->params.len);
    put_table(out, "buckets", m->buckets.len > 0, m->buckets.len);
    put_table(out, "inputs", m->inputs.len > 0, m->inputs.len);
    put_table(out, "nodes", emit->calls.len > 0, emit->calls.len);
    put_table(out, "ledger", emit->info->n_ledger > 0, emit->info->n_ledger);
    put_table(out, "layouts", emit->args.layouts.len > 0, emit->args.layouts.len);
    put_table(out, "customs", emit->args.customs.len > 0, emit->args.customs.len);
    put_table(out, "operands", emit->args.operands.len > 0, emit->args.operands.len);
    if (emit->has_bucket_params)
        fg_buf_puts(out, "    .bucket_params = bucket_params,\n");
    if (emit->has_dims)
        fg_buf_puts(out, "    .dims = dims,\n");
    if (emit->has_tied)
        fg_buf_puts(out, "    .tied = tied,\n");
    fg_buf_printf(out, "    .n_events = %u,\n", emit->n_events);
}
