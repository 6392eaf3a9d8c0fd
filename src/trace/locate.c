/* locate.c: see locate.h. */
#include "trace/locate.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/fault.h"

enum { NUMBERS = 1000000 }; /* traces of one program */

/* asprintf that gives NULL with *error when there is no memory. */
static char *join(struct clio_error *error, const char *a, const char *b, const char *c)
{
    char *text;
    if (asprintf(&text, "%s%s%s", a, b, c) >= 0)
        return text;
    fault_system(error, ENOMEM, "locating traces");
    return NULL;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

char *trace_home(struct clio_error *error)
{
    const char *value;
    if ((value = variable("CLIO_TRACE_DIR")))
        return join(error, value, "", "");
    if ((value = variable("XDG_DATA_HOME")))
        return join(error, value, "/clio", "");
    if ((value = variable("HOME")))
        return join(error, value, "/.local/share/clio", "");
    fault_set(error, CLIO_FAULT_ARGUMENT,
              "nowhere to keep traces: none of CLIO_TRACE_DIR, XDG_DATA_HOME and HOME is set");
    return NULL;
}

static bool make_directories(char *path, struct clio_error *error)
{
    for (char *slash = path + 1;; slash++) {
        if (*slash != '/' && *slash != 0)
            continue;
        char saved = *slash;
        *slash = 0;
        bool made = mkdir(path, 0700) == 0 || errno == EEXIST || access(path, X_OK) == 0;
        int code = errno;
        *slash = saved;
        if (!made)
            return fault_system(error, code, "creating the trace home %s", path);
        if (!saved)
            return true;
    }
}

/* The last part of a path, for a name: never empty, never hidden, never a path. */
static const char *program_name(const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *name = slash ? slash + 1 : program;
    while (*name == '.')
        name++;
    return *name ? name : "program";
}

char *trace_new_path(const char *program, struct clio_error *error)
{
    char *home = trace_home(error);
    char *path = NULL;
    if (home && make_directories(home, error)) {
        struct stat st;
        char number[16];
        const char *name = program_name(program);
        char *stem = join(error, home, "/", name);
        for (int n = 0; stem && !path && n < NUMBERS; n++) {
            snprintf(number, sizeof number, "-%d", n);
            path = join(error, stem, number, "");
            if (!path)
                break;
            if (lstat(path, &st) == 0) {
                free(path);
                path = NULL;
            }
        }
        if (stem && !path)
            fault_set(error, CLIO_FAULT_ARGUMENT, "%s holds too many traces of %s", home, name);
        free(stem);
    }
    free(home);
    return path;
}

bool trace_set_latest(const char *path, struct clio_error *error)
{
    char *home = trace_home(error);
    if (!home || !make_directories(home, error)) {
        free(home);
        return false;
    }
    char unique[32], absolute[PATH_MAX];
    snprintf(unique, sizeof unique, "/.latest-%d", (int)getpid());
    char *temporary = join(error, home, unique, ""), *link = join(error, home, "/latest", "");
    bool good = false;
    if (temporary && link) {
        unlink(temporary);
        good = realpath(path, absolute) && symlink(absolute, temporary) == 0 && rename(temporary, link) == 0;
        if (!good) {
            fault_system(error, errno, "making %s point to %s", link, path);
            unlink(temporary);
        }
    }
    free(temporary);
    free(link);
    free(home);
    return good;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The newest trace by its link. */
static char *resolve_latest(const char *home, struct clio_error *error)
{
    char *link = join(error, home, "/latest", "");
    char *path = link ? realpath(link, NULL) : NULL;
    if (link && !path && errno == ENOENT && readlink(link, (char[1]){0}, 1) >= 0)
        fault_set(error, CLIO_FAULT_MISSING, "the latest trace was removed; name one (clio ls shows them)");
    else if (link && !path && errno == ENOENT)
        fault_set(error, CLIO_FAULT_MISSING, "no trace yet in %s", home);
    else if (link && !path)
        fault_system(error, errno, "following %s", link);
    free(link);
    return path;
}

static char *resolve_name(const char *home, const char *name, struct clio_error *error)
{
    char *path = join(error, home, "/", name);
    if (path && !is_directory(path)) {
        fault_set(error, CLIO_FAULT_MISSING, "%s: no such trace, neither here nor in %s", name, home);
        free(path);
        path = NULL;
    }
    return path;
}

char *trace_resolve(const char *argument, struct clio_error *error)
{
    bool latest = !argument || strcmp(argument, "latest") == 0;
    if (argument && !*argument) {
        fault_set(error, CLIO_FAULT_ARGUMENT, "an empty name is no trace");
        return NULL;
    }
    if (!latest && (strchr(argument, '/') || is_directory(argument)))
        return join(error, argument, "", "");
    char *home = trace_home(error);
    if (!home)
        return NULL;
    char *path = latest ? resolve_latest(home, error) : resolve_name(home, argument, error);
    free(home);
    return path;
}
