/* Words of a list: whole ones, as far as commas go. */
#include "runtime/launch/listed.h"

#include <string.h>

bool fg_listed(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}
