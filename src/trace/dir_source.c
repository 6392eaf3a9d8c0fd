/* dir_source.c: a trace directory as a source; see clio/trace.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clio/trace.h"
#include "trace/fault.h"
#include "trace/lifeline.h"
#include "trace/locate.h"
#include "trace/source.h"

struct clio_source *clio_source_open(const char *trace, struct clio_error *error)
{
    struct clio_source *source = calloc(1, sizeof *source);
    if (!source) {
        fault_system(error, ENOMEM, "opening a trace");
        return NULL;
    }
    source->dir = -1;
    source->path = trace_resolve(trace, error);
    if (!source->path) {
        free(source);
        return NULL;
    }
    source->dir = open(source->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = source->dir >= 0;
    if (!good)
        fault_system(error, errno, "opening the trace %s", source->path);
    good = good && trace_header_read(&source->header, source->dir, source->path, error);
    tasks_open(&source->tasks, source->dir, source->header.identity);
    if (good)
        return source;
    clio_source_close(source);
    return NULL;
}

static void forget_spaces(struct clio_source *source)
{
    for (size_t i = 0; i < source->nspaces; i++)
        free(source->memory[i]);
    free(source->memory);
    free(source->spaces);
    source->spaces = NULL;
    source->memory = NULL;
    source->nspaces = 0;
}

void clio_source_close(struct clio_source *source)
{
    if (!source)
        return;
    forget_spaces(source);
    tasks_close(&source->tasks);
    trace_header_free(&source->header);
    if (source->dir >= 0)
        close(source->dir);
    free(source->path);
    free(source);
}

const struct clio_trace_info *clio_source_info(const struct clio_source *source)
{
    return &source->header.info;
}

const char *clio_source_path(const struct clio_source *source)
{
    return source->path;
}

bool clio_source_live(const struct clio_source *source)
{
    return trace_lifeline_held(source->dir);
}

static bool part_exists(const struct clio_source *source, const char *format, uint32_t space)
{
    char name[48];
    snprintf(name, sizeof name, format, space);
    return faccessat(source->dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool source_has_space(struct clio_source *source, uint32_t space)
{
    return space && (part_exists(source, "spaces/%u", space) || part_exists(source, "rings/%u", space) ||
                     tasks_find(&source->tasks, space));
}

/* ---- the list of spaces ---- */

/* Makes known the spaces that have a directory but whose birth is not in tasks: a trace that was cut short.
 */
static bool find_directories(struct clio_source *source, struct clio_error *error)
{
    int fd = openat(source->dir, "spaces", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return errno == ENOENT || fault_system(error, errno, "reading %s/spaces", source->path);
    }
    bool good = true;
    for (struct dirent *entry; good && (entry = readdir(dir));) {
        char *end;
        unsigned long space = strtoul(entry->d_name, &end, 10);
        if (*end == 0 && space > 0 && space <= UINT32_MAX)
            good = tasks_know(&source->tasks, (uint32_t)space, error);
    }
    closedir(dir);
    return good;
}

/* Events in the files, from the frame headers alone. */
static uint64_t count_events(const struct clio_source *source, uint32_t space)
{
    struct frame_file file;
    struct clio_error ignored;
    char name[48];
    uint64_t events = 0;
    snprintf(name, sizeof name, "spaces/%u/events", space);
    frame_file_open(&file, source->dir, name, STREAM_EVENTS, space, source->header.identity);
    while (frame_file_next(&file, &ignored) == FRAME_FOUND)
        events = file.header.first + file.header.records;
    frame_file_close(&file);
    return events;
}

static uint64_t space_events(const struct clio_source *source, const struct tasks_space *s)
{
    if (s->end)
        return s->end->events;
    uint64_t ring = 0;
    struct ring_view view = {.fd = -1};
    struct clio_error ignored;
    if (ring_view_open(&view, source->dir, s->space, &ignored) == RING_OPEN) {
        ring = __atomic_load_n(&view.header->events, __ATOMIC_RELAXED);
        ring_view_close(&view);
    }
    return ring ? ring : count_events(source, s->space);
}

/* Splits `size` bytes of strings joined by NUL; a NUL at the end does not begin another one. */
static int split_argv(const char *text, size_t size, const char **argv)
{
    int argc = 0;
    for (size_t at = 0; at < size; at += strlen(text + at) + 1) {
        if (argv)
            argv[argc] = text + at;
        argc++;
    }
    return argc;
}

/* Copies `size` bytes to *at, terminates them and moves *at behind. */
static const char *keep(char **at, const char *text, size_t size)
{
    char *to = *at;
    memcpy(to, text, size);
    to[size] = 0;
    *at += size + 1;
    return to;
}

/* Fills *info's strings; returns the memory they live in, NULL without. */
static char *fill_strings(struct clio_space_info *info, const struct trace_space *birth,
                          const struct trace_end *end)
{
    size_t exelen = birth ? birth->exelen : 0, cmdlen = birth ? birth->cmdlen : 0,
           textlen = end ? end->textlen : 0;
    size_t slots = cmdlen + 1; /* no argument is shorter than its NUL */
    char *memory = calloc(1, slots * sizeof(char *) + exelen + cmdlen + textlen + 3);
    if (!memory)
        return NULL;
    const char **argv = (const char **)memory;
    char *at = memory + slots * sizeof(char *);
    const char *exe = birth ? (const char *)(birth + 1) : "";
    info->exe = keep(&at, exe, exelen);
    const char *cmd = keep(&at, exe + exelen, cmdlen);
    info->argc = split_argv(cmd, cmdlen, argv);
    info->argv = argv;
    info->end_text = keep(&at, end ? (const char *)(end + 1) : "", textlen);
    return memory;
}

static char *fill_space(const struct clio_source *source, const struct tasks_space *s,
                        struct clio_space_info *info)
{
    *info = (struct clio_space_info){.space = s->space, .events = space_events(source, s)};
    if (s->birth) {
        const struct trace_space *birth = s->birth;
        info->parent = birth->parent;
        info->parent_event = birth->parent_event;
        info->origin = birth->origin <= SPACE_EXEC ? (enum clio_origin)birth->origin : CLIO_ORIGIN_UNKNOWN;
        info->pid = birth->pid;
        info->ppid = birth->ppid;
        info->cpu_level = birth->cpu_level;
        info->seq = birth->seq;
        info->time_ns = birth->time_ns;
    }
    if (s->end) {
        info->end = s->end->why <= END_INTERNAL ? (enum clio_end)s->end->why : CLIO_END_NONE;
        info->status = s->end->status;
        info->end_ns = s->end->time_ns;
    }
    return fill_strings(info, s->birth, s->end);
}

bool clio_source_spaces(struct clio_source *source, const struct clio_space_info **spaces, size_t *count,
                        struct clio_error *error)
{
    struct clio_error later;
    bool good = tasks_refresh(&source->tasks, error);
    if (!find_directories(source, good ? error : &later))
        good = false;
    forget_spaces(source);
    size_t n = source->tasks.nspaces;
    source->spaces = calloc(n + 1, sizeof *source->spaces);
    source->memory = calloc(n + 1, sizeof *source->memory);
    for (size_t i = 0; source->spaces && source->memory && i < n; i++) {
        const struct tasks_space *s = source->tasks.spaces[i];
        if (s->space == 0 || !source_has_space(source, s->space))
            continue;
        source->memory[source->nspaces] = fill_space(source, s, &source->spaces[source->nspaces]);
        if (!source->memory[source->nspaces])
            return fault_system(error, ENOMEM, "listing the spaces of %s", source->path);
        source->nspaces++;
    }
    *spaces = source->spaces;
    *count = source->nspaces;
    return good;
}
