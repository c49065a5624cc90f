/* What the ranks read: the rows of each global micro-batch, dealt in order.
 *
 * A micro-batch has `rows` rows over all ranks, at most batch * ranks; rank r gets rows r * batch
 * and following. Rows that are missing have token 0 and an ignored label. Labels are counted here
 * for the whole step, so that the loss is the mean over all valid labels of all ranks and
 * micro-steps without any collective. */
#ifndef FG_RUNTIME_TRAINER_FEED_H
#define FG_RUNTIME_TRAINER_FEED_H

#include "runtime/trainer/options.h"
#include "runtime/trainer/safetensors.h"
#include "runtime/trainer/tokens.h"

typedef struct FgFeed {
    const FgRtProgram *program;
    FgTokens tokens;        /* with --data */
    FgSafetensors *fixed;   /* with --inputs, otherwise NULL */
    uint32_t n_micro;       /* micro-batches held: of one step, or 1 with a fixed batch */
    unsigned char **blocks; /* [micro * n_inputs + input]: the global input, all ranks' rows */
    uint64_t rows, seq;     /* of a micro-batch; tokens of a row (0 with a fixed batch) */
    uint64_t position;      /* tokens: where the next micro-batch starts */
    uint64_t rows_seen;     /* since the run's first step */
    uint64_t valid;         /* labels of the current step that count */
} FgFeed;

/* Opens what the options name and checks it against the program's inputs. Close it in either case.
 */
bool fg_feed_open(FgFeed *out_feed, const FgRtProgram *program, const FgOptions *options,
                  FgFail *fail);
void fg_feed_close(FgFeed *feed);
/* Reads the next step: all its micro-batches. */
bool fg_feed_next(FgFeed *feed, FgFail *fail);
/* The factor of every local loss in the current step. */
float fg_feed_seed(const FgFeed *feed);
/* Tokens (or rows, when the program has no tokens) that one step trains on. */
uint64_t fg_feed_step_tokens(const FgFeed *feed);
/* Where an input of the rank lies for a micro-step; *out_bytes of them. */
const void *fg_feed_input(const FgFeed *feed, uint32_t micro, uint32_t rank, uint32_t input,
                          size_t *out_bytes);

#endif
