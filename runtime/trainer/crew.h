/* One thread a rank, and a way to have all of them do one thing.
 *
 * Between tasks the threads sleep, so the caller may touch what they work on. A crew of one is the
 * caller itself. */
#ifndef FG_RUNTIME_TRAINER_CREW_H
#define FG_RUNTIME_TRAINER_CREW_H

#include "runtime/trainer/fail.h"

typedef struct FgCrew FgCrew;
typedef void FgCrewTask(void *cx, uint32_t rank);

/* For ranks [first, first + n). NULL when the threads cannot be made. */
FgCrew *fg_crew_new(uint32_t first, uint32_t n, FgFail *fail);
/* Runs task(cx, rank) on every thread and returns when all have. */
void fg_crew_run(FgCrew *crew, FgCrewTask *task, void *cx);
void fg_crew_free(FgCrew *crew);

#endif
