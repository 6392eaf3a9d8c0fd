/* home.c: see home.h. */
#include "cmd/home.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cmd/trace_text.h"
#include "trace/locate.h"

static int by_start(const void *a, const void *b)
{
    const struct home_trace *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

static char *text_of(const char *a, const char *b, const char *c)
{
    char *text;
    if (asprintf(&text, "%s%s%s", a, b, c) < 0)
        die("out of memory");
    return text;
}

/* Fills *t when `name` below home is a trace. */
static bool look_at(const char *home, const char *name, struct home_trace *t)
{
    if (name[0] == '.' || strcmp(name, "latest") == 0)
        return false;
    t->path = text_of(home, "/", name);
    char *header = text_of(t->path, "/trace", "");
    bool found = access(header, F_OK) == 0;
    free(header);
    if (!found) {
        free(t->path);
        return false;
    }
    struct clio_error error;
    struct clio_source *source = clio_source_open(t->path, &error);
    t->start_ns = source ? clio_source_info(source)->start_ns : 0;
    clio_source_close(source);
    t->name = text_of(name, "", "");
    return true;
}

struct home_trace *home_traces(size_t *count)
{
    struct clio_error error;
    char *home = trace_home(&error);
    if (!home)
        trace_failed(&error);
    struct home_trace *traces = NULL;
    *count = 0;
    DIR *dir = opendir(home);
    if (!dir && errno != ENOENT)
        die("reading %s: %s", home, strerror(errno));
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        traces = reallocarray(traces, *count + 1, sizeof *traces);
        if (!traces)
            die("out of memory");
        *count += look_at(home, entry->d_name, &traces[*count]);
    }
    if (dir)
        closedir(dir);
    free(home);
    if (traces)
        qsort(traces, *count, sizeof *traces, by_start);
    return traces;
}

void home_traces_free(struct home_trace *traces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(traces[i].name);
        free(traces[i].path);
    }
    free(traces);
}
