/* Four lanes take the file's words of 8 bytes in turn; each step of a lane can be undone, for a
 * word as for what came before, so that a single word that changes always changes the sum. What is
 * missing of the last words is zero; the length goes in at the end. */
#include "runtime/trainer/sum.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LANES 4
#define BLOCK ((size_t)1 << 20)

typedef struct Sum {
    uint64_t lanes[LANES], bytes;
} Sum;

static uint64_t step(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * 0x9e3779b97f4a7c15u; /* odd: 2^64 divided by the golden ratio */
    return lane ^ lane >> 29;
}

static void begin(Sum *sum)
{
    *sum = (Sum){.lanes = {1, 2, 3, 4}};
}

/* All but the last call have whole rounds of lanes. */
static void add(Sum *sum, const unsigned char *data, size_t bytes)
{
    uint64_t words[LANES];
    for (size_t at = 0; at < bytes; at += sizeof words) {
        size_t left = bytes - at < sizeof words ? bytes - at : sizeof words;
        memset(words, 0, sizeof words);
        memcpy(words, data + at, left);
        for (int i = 0; i < LANES; i++)
            sum->lanes[i] = step(sum->lanes[i], words[i]);
    }
    sum->bytes += bytes;
}

static char *end(const Sum *sum)
{
    uint64_t all = sum->bytes;
    for (int i = 0; i < LANES; i++)
        all = step(all, sum->lanes[i]);
    return fg_text("%016llx", (unsigned long long)all);
}

char *fg_bytes_sum(const void *data, size_t bytes)
{
    Sum sum;
    begin(&sum);
    add(&sum, data, bytes);
    return end(&sum);
}

/* As much as there is, up to the block: reads may give less. */
static ssize_t read_block(int fd, unsigned char *to, FgFail *fail)
{
    size_t have = 0;
    while (have < BLOCK) {
        ssize_t n = fg_file_fault(fail, FG_FAULT_READ) ? -1 : read(fd, to + have, BLOCK - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -1 : (ssize_t)have;
        have += (size_t)n;
    }
    return (ssize_t)have;
}

char *fg_file_sum(const char *path, FgFail *fail)
{
    Sum sum;
    unsigned char *block = fg_new(BLOCK, 1);
    int fd = fg_file_fault(fail, FG_FAULT_READ) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    bool is = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    ssize_t n = is ? 1 : -1;
    begin(&sum);
    while (n > 0 && (n = read_block(fd, block, fail)) > 0)
        add(&sum, block, (size_t)n);
    if (n < 0)
        fg_fail(fail, "%s: cannot be read: %s", path,
                fd >= 0 && !is ? "it is no regular file" : strerror(errno));
    if (fd >= 0)
        close(fd);
    free(block);
    return n < 0 ? NULL : end(&sum);
}
