/* libexec.c: finds sibling programs, in a checkout as well as in an installation. */
#include "base/libexec.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const places[] = {"/build", "", "/../libexec/clio"};

static int try(char *out, size_t size, const char *dir, const char *place, const char *name)
{
    int n = snprintf(out, size, "%s%s/%s", dir, place, name);
    if (n < 0 || (size_t)n >= size)
        return -ENAMETOOLONG;
    return access(out, X_OK) == 0 ? 0 : -ENOENT;
}

int libexec_path(char *out, size_t size, const char *name)
{
    const char *set = getenv("CLIO_LIBEXEC");
    if (size)
        out[0] = 0;
    if (set && *set)
        return try(out, size, set, "", name);

    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return -errno;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (!slash)
        return -ENOENT;
    *slash = 0;

    int rc = -ENOENT;
    for (size_t i = 0; rc == -ENOENT && i < sizeof places / sizeof *places; i++)
        rc = try(out, size, self, places[i], name);
    return rc;
}
