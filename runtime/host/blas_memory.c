/* Makes the serial OpenBLAS safe to call from several ranks at once.
 *
 * A product takes a buffer from a table that belongs to the library. Its serial build keeps that
 * table without a lock, so that two threads may be handed one buffer, and results change now and
 * then. The linker redirects the two functions that touch the table to these, which hold a lock;
 * the products themselves still run side by side. The lock is the one global of the runtime,
 * because what it guards is one. */
#include <pthread.h>

void *__real_blas_memory_alloc(int position);
void __real_blas_memory_free(void *buffer);
void *__wrap_blas_memory_alloc(int position);
void __wrap_blas_memory_free(void *buffer);

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

void *__wrap_blas_memory_alloc(int position)
{
    pthread_mutex_lock(&table_lock);
    void *buffer = __real_blas_memory_alloc(position);
    pthread_mutex_unlock(&table_lock);
    return buffer;
}

void __wrap_blas_memory_free(void *buffer)
{
    pthread_mutex_lock(&table_lock);
    __real_blas_memory_free(buffer);
    pthread_mutex_unlock(&table_lock);
}
