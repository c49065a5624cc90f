/* Words of a list as it stands on a command line. */
#ifndef FG_RUNTIME_LAUNCH_LISTED_H
#define FG_RUNTIME_LAUNCH_LISTED_H

#include <stdbool.h>

/* Whether the word is one of a list's, which are separated by commas. */
bool fg_listed(const char *list, const char *word);

#endif
