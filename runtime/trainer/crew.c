/* A task is a generation number: a thread that sees a new one does the task once and counts itself
 * off. */
#include "runtime/trainer/crew.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct Member {
    FgCrew *crew;
    uint32_t rank;
    pthread_t thread;
} Member;

struct FgCrew {
    pthread_mutex_t lock;
    pthread_cond_t called, done;
    uint64_t generation; /* tasks given so far */
    FgCrewTask *task;    /* NULL: go home */
    void *cx;
    uint32_t busy, n; /* members still at work; members */
    uint32_t first;   /* rank of the first */
    Member *members;
};

static void *member_main(void *argument)
{
    Member *member = argument;
    FgCrew *crew = member->crew;
    uint64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&crew->lock);
        while (crew->generation == seen)
            pthread_cond_wait(&crew->called, &crew->lock);
        seen = crew->generation;
        FgCrewTask *task = crew->task;
        void *cx = crew->cx;
        pthread_mutex_unlock(&crew->lock);
        if (!task)
            return NULL;
        task(cx, member->rank);
        pthread_mutex_lock(&crew->lock);
        if (--crew->busy == 0)
            pthread_cond_signal(&crew->done);
        pthread_mutex_unlock(&crew->lock);
    }
}

static void call(FgCrew *crew, FgCrewTask *task, void *cx)
{
    pthread_mutex_lock(&crew->lock);
    crew->task = task;
    crew->cx = cx;
    crew->busy = crew->n;
    crew->generation++;
    pthread_cond_broadcast(&crew->called);
    while (task && crew->busy)
        pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

FgCrew *fg_crew_new(uint32_t first, uint32_t n, FgFail *fail)
{
    FgCrew *crew = fg_new(1, sizeof *crew);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->called, NULL);
    pthread_cond_init(&crew->done, NULL);
    crew->first = first;
    crew->members = fg_new(n, sizeof *crew->members);
    for (; n > 1 && crew->n < n; crew->n++) {
        Member *member = &crew->members[crew->n];
        *member = (Member){.crew = crew, .rank = first + crew->n};
        int error = pthread_create(&member->thread, NULL, member_main, member);
        if (error) {
            fg_fail(fail, "cannot start a thread for rank %u: %s", member->rank, strerror(error));
            fg_crew_free(crew);
            return NULL;
        }
    }
    return crew;
}

void fg_crew_run(FgCrew *crew, FgCrewTask *task, void *cx)
{
    if (crew->n == 0)
        task(cx, crew->first);
    else
        call(crew, task, cx);
}

void fg_crew_free(FgCrew *crew)
{
    if (!crew)
        return;
    call(crew, NULL, NULL);
    for (uint32_t i = 0; i < crew->n; i++)
        pthread_join(crew->members[i].thread, NULL);
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->called);
    pthread_mutex_destroy(&crew->lock);
    free(crew->members);
    free(crew);
}
