/* Temporary folders and whole files, for tests only. */
#include "tests/runtime/scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *joined(const char *folder, const char *name)
{
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

char *scratch_new(void)
{
    const char *base = getenv("TMPDIR");
    char *folder = joined(base && *base ? base : "/tmp", "foregather-test-XXXXXX");
    if (folder && !mkdtemp(folder)) {
        perror(folder);
        abort();
    }
    return folder;
}

char *scratch_path(const char *folder, const char *name)
{
    return joined(folder, name);
}

void scratch_remove(const char *folder)
{
    DIR *stream = opendir(folder);
    struct stat info;
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *path = joined(folder, entry->d_name);
        if (path && lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
            scratch_remove(path);
        else if (path)
            unlink(path);
        free(path);
    }
    closedir(stream);
    rmdir(folder);
}

bool scratch_write(const char *path, const void *data, size_t bytes)
{
    FILE *stream = fopen(path, "wb");
    bool ok = stream && fwrite(data, 1, bytes, stream) == bytes;
    return stream && fclose(stream) == 0 && ok;
}

char *scratch_read(const char *path, size_t *out_bytes)
{
    struct stat info;
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return NULL;
    char *data = fstat(fileno(stream), &info) == 0 ? calloc((size_t)info.st_size + 1, 1) : NULL;
    *out_bytes = data ? fread(data, 1, (size_t)info.st_size, stream) : 0;
    fclose(stream);
    return data;
}
