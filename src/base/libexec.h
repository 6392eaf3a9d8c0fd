/*
 * libexec.h: where the programs that `clio` starts (clio-store, clio-engine) are.
 */
#ifndef CLIO_BASE_LIBEXEC_H
#define CLIO_BASE_LIBEXEC_H

#include <stddef.h>

/*
 * Puts the path of the executable file `name` into out[size]. Looks in $CLIO_LIBEXEC alone when that is set;
 * else, with DIR the directory of the running program, in DIR/build, DIR and DIR/../libexec/clio.
 * Returns 0, -ENOENT when none of them has it, -ENAMETOOLONG, or the error of reading /proc/self/exe;
 * on an error out holds the last path tried, for the message (empty when there was none).
 */
int libexec_path(char *out, size_t size, const char *name);

#endif
