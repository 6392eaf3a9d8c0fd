/* info.c: `clio info [--json] [TRACE]`: what was recorded, when, where, and how large it is. */
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cmd/cmd.h"
#include "cmd/trace_text.h"

struct sizes {
    uint64_t tasks, events, data, maps, files, nfiles, rings;
};

static uint64_t size_of(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
}

static struct sizes measure(int dir, const struct clio_space_info *spaces, size_t count)
{
    struct sizes s = {.tasks = size_of(dir, "tasks")};
    for (size_t i = 0; i < count; i++) {
        char name[48];
        snprintf(name, sizeof name, "spaces/%u/events", spaces[i].space);
        s.events += size_of(dir, name);
        snprintf(name, sizeof name, "spaces/%u/data", spaces[i].space);
        s.data += size_of(dir, name);
        snprintf(name, sizeof name, "spaces/%u/maps", spaces[i].space);
        s.maps += size_of(dir, name);
    }
    struct disk_use files = disk_use(dir, "files");
    s.files = files.bytes;
    s.nfiles = files.files;
    s.rings = disk_use(dir, "rings").bytes;
    return s;
}

static void show_text(struct clio_source *source, const struct clio_space_info *spaces, size_t count,
                      const struct sizes *s)
{
    const struct clio_trace_info *info = clio_source_info(source);
    char text[32];
    uint64_t events = 0, last = 0;
    size_t alive = 0;
    char *command = command_text(info->argc, info->argv);
    for (size_t i = 0; i < count; i++) {
        events += spaces[i].events;
        alive += spaces[i].end == CLIO_END_NONE;
        last = spaces[i].end_ns > last ? spaces[i].end_ns : last;
    }
    bool live = clio_source_live(source);
    printf("trace       %s\n", clio_source_path(source));
    printf("identity    %s, format version %u\n", info->identity, info->version);
    printf("command     %s\n", command);
    printf("directory   %s\n", info->cwd);
    printf("host        %s, %s\n", info->host, info->kernel);
    printf("guest CPU   x86-64-v%u%s%s\n", info->cpu_level,
           info->cpu_features && *info->cpu_features ? " and " : "",
           info->cpu_features ? info->cpu_features : "");
    printf("started     %s\n", time_text(info->start_ns, text));
    if (live)
        printf("ended       not yet: %zu process%s being recorded\n", alive, alive == 1 ? " is" : "es are");
    else if (last > info->start_ns)
        printf("ended       %s, after %.3f s\n", time_text(last, text),
               (double)(last - info->start_ns) / 1e9);
    printf("spaces      %zu\n", count);
    printf("events      %" PRIu64 ", %s\n", events, size_text(s->events, text));
    printf("data        %s\n", size_text(s->data, text));
    printf("maps        %s\n", size_text(s->maps, text));
    printf("tasks       %s\n", size_text(s->tasks, text));
    printf("files       %" PRIu64 ", %s, shared with other traces where links allow\n", s->nfiles,
           size_text(s->files, text));
    printf("rings       %s\n", size_text(s->rings, text));
    free(command);
}

static json_t *space_json(const struct clio_space_info *s)
{
    json_t *argv = json_array();
    for (int i = 0; i < s->argc; i++)
        json_array_append_new(argv, text_json(s->argv[i]));
    return json_pack("{sI sI ss sI si si so so sI ss si so sI}", "space", (json_int_t)s->space, "parent",
                     (json_int_t)s->parent, "origin", origin_name(s->origin), "parent_event",
                     (json_int_t)s->parent_event, "pid", s->pid, "ppid", s->ppid, "exe", text_json(s->exe),
                     "argv", argv, "events", (json_int_t)s->events, "end", end_name(s->end), "status",
                     s->status, "end_text", text_json(s->end_text), "end_ns", (json_int_t)s->end_ns);
}

static void show_json(struct clio_source *source, const struct clio_space_info *spaces, size_t count,
                      const struct sizes *s)
{
    const struct clio_trace_info *info = clio_source_info(source);
    json_t *argv = json_array(), *list = json_array();
    for (int i = 0; i < info->argc; i++)
        json_array_append_new(argv, text_json(info->argv[i]));
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, space_json(&spaces[i]));
    json_t *all = json_pack(
        "{so ss sI sI sI so sI so so so so sb s{sI sI sI sI sI sI sI} so}", "path",
        text_json(clio_source_path(source)), "identity", info->identity, "version", (json_int_t)info->version,
        "features", (json_int_t)info->features, "cpu_level", (json_int_t)info->cpu_level, "cpu_features",
        info->cpu_features ? text_json(info->cpu_features) : json_null(), "start_ns",
        (json_int_t)info->start_ns, "host", text_json(info->host), "kernel", text_json(info->kernel), "cwd",
        text_json(info->cwd), "argv", argv, "live", clio_source_live(source), "bytes", "events",
        (json_int_t)s->events, "data", (json_int_t)s->data, "maps", (json_int_t)s->maps, "tasks",
        (json_int_t)s->tasks, "files", (json_int_t)s->files, "file_count", (json_int_t)s->nfiles, "rings",
        (json_int_t)s->rings, "spaces", list);
    if (!all)
        BUG("info as JSON");
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
}

int cmd_info(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    if (json)
        argv[1] = argv[0]; /* the rest begins with the command's name, too */
    struct clio_source *source = open_trace(only_trace(argc - json, argv + json));
    const struct clio_space_info *spaces;
    size_t count;
    struct clio_error error;
    bool good = clio_source_spaces(source, &spaces, &count, &error);
    int dir = open(clio_source_path(source), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct sizes sizes = measure(dir, spaces, count);
    close(dir);
    (json ? show_json : show_text)(source, spaces, count, &sizes);
    if (!good) {
        fflush(stdout);
        die("%s: %s; what precedes is counted", clio_source_path(source), error.text);
    }
    clio_source_close(source);
    return EXIT_DONE;
}
