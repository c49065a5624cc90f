/* The whole ABI of an emitted program: what it includes, what it is, what it calls.
 *
 * An emitted file is plain C: static const tables, then straight-line functions of fg_rt_ calls in
 * schedule order. It exports fg_program(). Two runtimes implement the calls: runtime/host (ranks
 * are threads) and runtime/cuda.
 *
 * Buffers are byte offsets into the rank's one allocation, or its host memory. Errors are sticky:
 * after a failed call the rank's further calls do nothing, its peers are told, and fg_rt_status
 * says what failed where.
 */
#ifndef FG_RT_H
#define FG_RT_H

#include <stdint.h>

#include "fg_chain.h"
#include "fg_custom.h"

#define FG_RT_ABI 6
#define FG_RT_NONE UINT64_MAX /* an operand that is not there */
/* Offsets from here on lie in the rank's host memory, a second allocation: pinned where there is a
 * device. stash and fetch alone touch it. */
#define FG_RT_HOST ((uint64_t)1 << 62)

/* What a call reads and writes, on which communicator; grammar in docs/runtime.md. */
#if defined(__clang__)
#define FG_EFFECTS(text) __attribute__((annotate("fg_effects: " text)))
#else
#define FG_EFFECTS(text)
#endif

typedef struct FgRtCx FgRtCx; /* one rank of a running program */

typedef enum FgRtStream {
    FG_COMPUTE,
    FG_GATHER,
    FG_REDUCE,
    FG_COPY,
    FG_STASH, /* device to host */
    FG_FETCH, /* host to device */
    FG_RT_N_STREAMS
} FgRtStream;
typedef enum FgRtDtype {
    FG_RT_F32,
    FG_RT_BF16,
    FG_RT_F16,
    FG_RT_F64,
    FG_RT_I32,
    FG_RT_I64
} FgRtDtype;

typedef enum FgRtUnary {
    FG_RT_NEG,
    FG_RT_EXP,
    FG_RT_LOG,
    FG_RT_SQRT,
    FG_RT_RSQRT,
    FG_RT_TANH,
    FG_RT_SIGMOID,
    FG_RT_RELU,
    FG_RT_SILU,
    FG_RT_GELU,
    FG_RT_GELU_TANH,
    FG_RT_SCALE,
    FG_RT_ADD_SCALAR,
    FG_RT_POW
} FgRtUnary; /* the last three use the call's scalar a: a*x, x+a, x^a */

typedef enum FgRtBinary { FG_RT_ADD, FG_RT_SUB, FG_RT_MUL, FG_RT_DIV } FgRtBinary;

/* Per-step scalars, an array of float in device memory: two sets, `pending` (of the step whose
 * update is still to come, with clipping) and `current`. Index = set * FG_RT_SET + slot. */
typedef enum FgRtScalar {
    FG_RT_S_SEED, /* factor of every local loss: 1 / valid labels of the whole global batch */
    FG_RT_S_LR,
    FG_RT_S_BETA1,
    FG_RT_S_BETA2,
    FG_RT_S_EPS,
    FG_RT_S_DECAY,
    FG_RT_S_CORRECT1, /* 1 - beta1^t */
    FG_RT_S_CORRECT2, /* 1 - beta2^t */
    FG_RT_S_NORM,     /* global gradient norm before clipping; written by clip_factor */
    FG_RT_S_FACTOR,   /* min(1, clip / (norm + 1e-6)), or 1; written by clip_factor */
    FG_RT_S_VALID,    /* 0: the pending update is skipped (first step, after a flush or a resume; an
                         overflow: written by scale_step) */
    FG_RT_S_WINDOW, /* steps without overflow after which the loss scale doubles; 0: it is fixed */
    FG_RT_S_HYSTERESIS, /* overflows before the scale is halved; 1: at once */
    FG_RT_SET = 16      /* slots of a set */
} FgRtScalar;
#define FG_RT_CURRENT 0
#define FG_RT_PENDING 1
#define FG_RT_SCALARS (2 * FG_RT_SET)
/* Limbs (int64, 32 significant bits each) of the exact accumulator of squared gradients; the value
 * is sum limb[i] * 2^(32 i - 320). */
#define FG_RT_NORM_LIMBS 24

/* The loss scale of a program that computes in f16 and what moves it, an array of double in device
 * memory. The driver writes it before init; scale_step alone changes it. */
typedef enum FgRtScaler {
    FG_RT_L_SCALE,   /* of the next step: a power of two */
    FG_RT_L_GOOD,    /* steps without overflow since the scale last changed, or was to be halved */
    FG_RT_L_LEFT,    /* overflows up to and with the one that halves the scale */
    FG_RT_L_UPDATES, /* steps that were not skipped: AdamW's step */
    FG_RT_L_SKIPPED, /* steps that were */
    FG_RT_L_POWER1,  /* beta1^updates, beta2^updates: multiplied up one by one */
    FG_RT_L_POWER2,
    FG_RT_L_USED, /* scale of the last step */
    FG_RT_L_OVER, /* 1: the last step was skipped */
    FG_RT_SCALER = 16
} FgRtScaler;

typedef enum FgRtInit { FG_RT_NORMAL, FG_RT_UNIFORM, FG_RT_CONSTANT } FgRtInit;

typedef struct FgRtParam {
    const char *name;
    uint32_t bucket; /* UINT32_MAX: nothing reads it; it lives in weight files alone */
    uint64_t offset; /* elements from the bucket's start */
    uint64_t elements;
    uint32_t dims_first, rank; /* into FgRtProgram.dims */
    FgRtInit init;
    double init_scale;
    int trainable, decay;
    uint32_t tied_first, n_tied; /* into FgRtProgram.tied */
} FgRtParam;

typedef struct FgRtBucket {
    const char *name;
    FgRtDtype dtype;
    int trainable;
    uint64_t elements; /* padded; a rank owns elements / ranks from rank * (elements / ranks) */
    uint32_t params_first, n_params; /* into FgRtProgram.bucket_params, by offset */
    /* Offsets, from FG_RT_HOST on in host memory; master FG_RT_NONE when the shard is f32. */
    uint64_t shard, master, moment1, moment2;
    /* Offset (or FG_RT_NONE) and bytes of the reduced gradient slice, or of the parts that it is
     * the sum of, one of each rank (adamw_parts). With clipping it holds the
     * pending update's gradient from one step to the next; otherwise its memory is free between
     * steps. */
    uint64_t grad_shard, grad_bytes;
    /* What makes that slice, each micro-step: contributions to the gradient buffer, and lookup_dw
     * calls. */
    uint32_t writes, lookups;
} FgRtBucket;

typedef struct FgRtInput {
    const char *name;
    int role; /* 0 tokens, 1 labels, 2 other */
    FgRtDtype dtype;
    uint64_t offset, elements; /* per rank and micro-step */
    uint32_t dims_first, rank;
} FgRtInput;

typedef struct FgRtNode { /* for messages and profiles: what a call came from */
    const char *name, *op, *file;
    uint32_t line, col;
} FgRtNode;

typedef struct FgRtLedgerRow {
    const char *name;
    uint64_t bytes;
} FgRtLedgerRow;

/* A function of the user's, or one of the program's own, of a fused chain: `call` hands it its
 * operands. */
typedef struct FgRtCustom {
    const char *name;
    FgCustomFn *call;
    uint32_t n_inputs, n_outputs;
} FgRtCustom;

typedef void FgRtBody(FgRtCx *cx);

typedef struct FgRtProgram {
    uint32_t abi;
    const char *model, *plan, *precision;
    uint64_t fingerprint;
    uint32_t ranks, batch, seq, accumulate;
    double clip;
    int loss_is_token_mean; /* the seed is 1 / valid labels; otherwise 1 / (ranks * accumulate) */
    int64_t ignore_index;
    uint64_t state_bytes, arena_bytes, reserved_bytes, memory_bytes;
    /* Of host memory: states, what lives and dies above them, and what a rank was offered. */
    uint64_t host_state_bytes, host_arena_bytes, host_memory_bytes;
    uint64_t scalars, loss,
        norm; /* offsets of the state buffers; norm FG_RT_NONE without trainable parameters */
    double predicted_step_us;
    const FgRtParam *params;
    const FgRtBucket *buckets;
    const FgRtInput *inputs;
    const FgRtNode *nodes;
    const FgRtLedgerRow *ledger; /* at the peak */
    const uint32_t *bucket_params;
    const int64_t *dims;    /* shapes of parameters, inputs, operands of custom functions */
    const int64_t *layouts; /* of strided calls: see fg_rt_calls.def */
    const char *const *tied;
    uint32_t n_params, n_buckets, n_inputs, n_nodes, n_ledger, n_layouts, n_events;
    FgRtBody *init;                  /* once, after the weights are in place */
    FgRtBody *prologue;              /* before the first step, after a flush and after a resume */
    FgRtBody *first, *middle, *last; /* accumulate > 1: first, (accumulate - 2) times middle, last;
                                        otherwise `first` alone */
    FgRtBody *flush;                 /* the pending update; NULL without clipping */
    /* Read by fg_rt_custom and fg_rt_fused alone: programs that call neither need not have them. */
    const FgRtCustom *customs;
    const FgRtOperand *operands; /* of all their calls */
    uint32_t n_customs, n_operands;
    /* The program computes in f16 and trains: its loss is scaled, `scaler` is where FgRtScaler
     * lies, and updates wait for the next step as with clipping. */
    int scales_loss;
    uint64_t scaler;
} FgRtProgram;

/* What the emitted file defines. */
const FgRtProgram *fg_program(void);

/* ---- streams ----
 * record: the event fires when all that the stream was given before has completed. wait: what the
 * stream is given after starts no sooner than the event. join: every stream waits for every other.
 * Events count from 0 in each function. */
void fg_rt_record(FgRtCx *cx, FgRtStream stream, uint32_t event)
    FG_EFFECTS("record(stream, event)");
void fg_rt_wait(FgRtCx *cx, FgRtStream stream, uint32_t event) FG_EFFECTS("wait(stream, event)");
void fg_rt_join(FgRtCx *cx) FG_EFFECTS("join()");
/* release: from here on nothing reads the range before it is written again; no work on any device.
 */
void fg_rt_release(FgRtCx *cx, uint32_t node, FgRtStream stream, uint64_t buffer, uint64_t bytes)
    FG_EFFECTS("release(buffer, bytes)");

/* ---- work ----
 * One row a call: name, effects, integer arguments, their names[, float arguments, their names].
 * `node` indexes FgRtProgram.nodes. */
#define FG_RT_UNPAREN(...) __VA_ARGS__
#define FG_RT_CALL(name, effects, params, args)                                                    \
    void fg_rt_##name(FgRtCx *cx, uint32_t node, FgRtStream stream, FG_RT_UNPAREN params)          \
        FG_EFFECTS(effects);
#define FG_RT_CALL_F(name, effects, params, args, fparams, fargs)                                  \
    void fg_rt_##name(FgRtCx *cx, uint32_t node, FgRtStream stream, FG_RT_UNPAREN params,          \
                      FG_RT_UNPAREN fparams) FG_EFFECTS(effects);
#include "fg_rt_calls.def"
#undef FG_RT_CALL
#undef FG_RT_CALL_F

#endif
