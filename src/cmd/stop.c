/*
 * stop.c: `clio stop [TRACE]`: ends a recording that is under way, with all its processes.
 *
 * The store is asked, who tells the recorder; that ends as it does by SIGTERM: every process gets SIGTERM,
 * and SIGKILL when it lives on. This command returns when the trace is closed, so that what reads it next
 * reads all of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/packet.h"
#include "cmd/cmd.h"
#include "cmd/trace_text.h"
#include "cmd/writer.h"
#include "trace/lifeline.h"

enum {
    ASK_MS = 30000,  /* for a store that is being replaced by another */
    END_MS = 120000, /* for processes to die and the store to write what they left */
    LOOK_US = 10000,
};

static bool passing(int error)
{
    return error == ECONNREFUSED || error == ENOENT || error == EPIPE || error == ECONNRESET ||
           error == EAGAIN || error == ETIMEDOUT;
}

static int ask_once(int dir)
{
    int connection = packet_connect(dir, "socket");
    if (connection < 0)
        return -connection;
    struct store_request q = {.op = STORE_STOP};
    int error = writer_ask(connection, &q, "", -1);
    close(connection);
    return error == ESRCH ? 0 : error; /* the recorder is gone, and the recording about to be */
}

/* Asks until it was heard or there is nobody left to ask. */
static void ask(int dir, const char *path)
{
    int error = 0;
    for (uint64_t end = writer_now_ms() + ASK_MS; trace_lifeline_held(dir); usleep(LOOK_US)) {
        error = ask_once(dir);
        if (!error)
            return;
        if (!passing(error) || writer_now_ms() > end)
            die("%s: cannot reach the process that writes it: %s", path, strerror(error));
    }
}

static void wait_for_end(int dir, const char *path)
{
    for (uint64_t end = writer_now_ms() + END_MS; trace_lifeline_held(dir); usleep(LOOK_US))
        if (writer_now_ms() > end)
            die("%s: is still being recorded, %d seconds after it was told to end", path, END_MS / 1000);
}

int cmd_stop(int argc, char **argv)
{
    struct clio_source *source = open_trace(only_trace(argc, argv));
    const char *path = clio_source_path(source);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        die("opening the trace %s: %s", path, strerror(errno));
    bool live = trace_lifeline_held(dir);
    if (live) {
        ask(dir, path);
        wait_for_end(dir, path);
    } else {
        warning("%s: is not being recorded", path);
    }
    close(dir);
    clio_source_close(source);
    return live ? EXIT_DONE : EXIT_NOT_SO;
}
