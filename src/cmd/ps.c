/*
 * ps.c: `clio ps [TRACE]`: the recorded processes.
 *
 * A process that execs is a new space with the same pid. A forked space has no command of its own; its
 * program is shown in brackets.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "cmd/cmd.h"
#include "cmd/trace_text.h"

static void show(const struct clio_space_info *space, bool live)
{
    char end[300], parent[16] = "-";
    const char *exe = *space->exe ? space->exe : "?";
    char *command = space->argc ? command_text(space->argc, space->argv) : command_text(1, &exe);
    if (space->parent)
        snprintf(parent, sizeof parent, "%u", space->parent);
    printf(space->argc ? "%5u %6s %-7s %8d %10" PRIu64 "  %-24s %s\n"
                       : "%5u %6s %-7s %8d %10" PRIu64 "  %-24s [%s]\n",
           space->space, parent, origin_name(space->origin), space->pid, space->events,
           end_text(space, live, end, sizeof end), command);
    free(command);
}

int cmd_ps(int argc, char **argv)
{
    const struct clio_space_info *spaces;
    size_t count;
    struct clio_error error;
    struct clio_source *source = open_trace(only_trace(argc, argv));
    bool live = clio_source_live(source);
    bool good = clio_source_spaces(source, &spaces, &count, &error);
    printf("%5s %6s %-7s %8s %10s  %-24s %s\n", "SPACE", "PARENT", "ORIGIN", "PID", "EVENTS", "END",
           "COMMAND");
    for (size_t i = 0; i < count; i++)
        show(&spaces[i], live);
    if (!good) {
        fflush(stdout);
        die("%s: %s; what precedes is listed", clio_source_path(source), error.text);
    }
    clio_source_close(source);
    return EXIT_DONE;
}
