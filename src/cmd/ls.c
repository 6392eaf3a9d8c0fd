/* ls.c: `clio ls`: the traces of the trace home, oldest first. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "cmd/cmd.h"
#include "cmd/home.h"
#include "cmd/trace_text.h"

static void show(const struct home_trace *trace)
{
    struct clio_error error;
    struct clio_source *source = clio_source_open(trace->path, &error);
    if (!source) {
        printf("%-24s unreadable: %s\n", trace->name, error.text);
        return;
    }
    const struct clio_trace_info *info = clio_source_info(source);
    const struct clio_space_info *spaces;
    size_t count;
    char start[32], size[32];
    bool good = clio_source_spaces(source, &spaces, &count, &error);
    char *command = command_text(info->argc, info->argv);
    printf("%-24s %s %6zu %9s  %-8s %s\n", trace->name, time_text(info->start_ns, start), count,
           size_text(disk_use(AT_FDCWD, trace->path).bytes, size),
           !good                      ? "damaged"
           : clio_source_live(source) ? "live"
                                      : "ended",
           command);
    free(command);
    clio_source_close(source);
}

int cmd_ls(int argc, char **argv)
{
    if (argc > 1)
        usage("ls: takes no arguments, not %s", argv[1]);
    size_t count;
    struct home_trace *traces = home_traces(&count);
    if (count)
        printf("%-24s %-19s %6s %9s  %-8s %s\n", "TRACE", "STARTED", "SPACES", "SIZE", "STATE", "COMMAND");
    for (size_t i = 0; i < count; i++)
        show(&traces[i]);
    home_traces_free(traces, count);
    return EXIT_DONE;
}
