/* writer.c: see writer.h. */
#include "cmd/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/libexec.h"
#include "base/log.h"
#include "base/packet.h"

enum { START_MS = 20000, REPLY_MS = 20000, DEATHS_MS = 1000 };

uint64_t writer_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static bool failed(struct writer *w, const char *what, int error)
{
    snprintf(w->error, sizeof w->error, "%s: %s", what, strerror(error));
    return false;
}

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- reports ---- */

/* Takes one report if there is one: 1, 0 when there is none, -1 when the store's end is closed. */
static int take_report(struct writer *w, struct store_report *head)
{
    static struct packet p; /* 16 KiB */
    int got = packet_receive(w->report, head, sizeof *head, &p, MSG_DONTWAIT);
    if (got == -EAGAIN || got == -EBADMSG)
        return 0;
    if (got <= 0)
        return -1;
    packet_close(&p);
    if (head->op == REPORT_DONE) {
        w->done = true;
        w->incomplete = head->status != 0;
    }
    if (head->op == REPORT_FAILED)
        snprintf(w->error, sizeof w->error, "%.1000s", p.text);
    else if (head->op != REPORT_READY)
        w->heard(head, p.text);
    return 1;
}

void writer_listen(struct writer *w)
{
    struct store_report head;
    while (w->report >= 0) {
        int got = take_report(w, &head);
        if (got == 0)
            return;
        if (got < 0)
            drop(&w->report);
    }
}

/* ---- starting ---- */

static void run_store(const struct writer *w, const char *path, int report, const sigset_t *mask)
{
    char dir[16], pool[16], to[16], log[16];
    int keep[] = {w->dir, w->pool_dir, report, w->log_fd};
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++)
        if (keep[i] >= 0)
            fcntl(keep[i], F_SETFD, 0);
    snprintf(dir, sizeof dir, "%d", w->dir);
    snprintf(pool, sizeof pool, "%d", w->pool_dir);
    snprintf(to, sizeof to, "%d", report);
    snprintf(log, sizeof log, "%d", w->log_fd);
    char *argv[] = {"clio-store", "--dir-fd",        dir,        "--pool-fd", pool, "--report-fd", to,
                    "--log",      (char *)w->topics, "--log-fd", log,         NULL};
    if (!w->topics || w->log_fd < 0)
        argv[7] = NULL;
    char *empty[] = {NULL};
    sigprocmask(SIG_SETMASK, mask, NULL);
    execve(path, argv, empty);
    _exit(127);
}

static bool spawn(struct writer *w, const sigset_t *mask)
{
    char path[PATH_MAX];
    int pair[2];
    int error = libexec_path(path, sizeof path, "clio-store");
    if (error) {
        snprintf(w->error, sizeof w->error, "cannot find clio-store (%.1000s): %s", path, strerror(-error));
        return false;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return failed(w, "cannot make a socket for the store", errno);
    w->pid = fork();
    if (w->pid == 0)
        run_store(w, path, pair[1], mask);
    close(pair[1]);
    if (w->pid < 0) {
        close(pair[0]);
        w->pid = 0;
        return failed(w, "cannot fork for the store", errno);
    }
    w->report = pair[0];
    return true;
}

static bool wait_ready(struct writer *w)
{
    uint64_t end = writer_now_ms() + START_MS;
    for (;;) {
        struct pollfd p = {w->report, POLLIN, 0};
        struct store_report head;
        int n = poll(&p, 1, (int)(end - writer_now_ms()));
        if (n == 0 || writer_now_ms() >= end)
            return failed(w, "the store does not get ready", ETIMEDOUT);
        int got = n < 0 ? 0 : take_report(w, &head);
        if (got < 0 && !*w->error)
            snprintf(w->error, sizeof w->error, "the store ended at once");
        if (got < 0)
            return false;
        if (got > 0 && head.op == REPORT_READY)
            return true;
    }
}

int writer_ask(int connection, struct store_request *q, const char *text, int fd)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return errno;
    int fds[2] = {pair[1], fd};
    q->wants_reply = 1;
    q->textlen = (uint32_t)strlen(text);
    int error = -packet_send(connection, q, sizeof *q, text, q->textlen, fds, fd >= 0 ? 2 : 1, 0);
    close(pair[1]);
    struct store_reply reply;
    struct packet p;
    struct pollfd wait = {pair[0], POLLIN, 0};
    if (!error && poll(&wait, 1, REPLY_MS) == 0)
        error = ETIMEDOUT;
    int got = error ? 0 : packet_receive(pair[0], &reply, sizeof reply, &p, 0);
    close(pair[0]);
    if (error)
        return error;
    return got < 0 ? -got : got == 0 ? EPIPE : reply.error;
}

static bool ask(struct writer *w, struct store_request *q, const char *text, int fd)
{
    int error = writer_ask(w->connection, q, text, fd);
    return error ? failed(w, "the store does not answer", error) : true;
}

static bool say_hello(struct writer *w)
{
    w->connection = packet_connect(w->dir, "socket");
    if (w->connection < 0)
        return failed(w, "cannot connect to the store", -w->connection);
    int self = pidfd_open(getpid(), 0);
    struct store_request q = {.op = STORE_HELLO, .pid = getpid()};
    bool good = ask(w, &q, "", self);
    drop(&self);
    return good;
}

bool writer_start(struct writer *w, const sigset_t *mask)
{
    *w->error = 0;
    w->done = false;
    w->report = w->connection = -1;
    return spawn(w, mask) && wait_ready(w) && say_hello(w);
}

/* ---- dying ---- */

static bool dies_too_often(struct writer *w)
{
    enum { N = sizeof w->deaths_ms / sizeof *w->deaths_ms };
    uint64_t now = writer_now_ms();
    memmove(w->deaths_ms, w->deaths_ms + 1, (N - 1) * sizeof *w->deaths_ms);
    w->deaths_ms[N - 1] = now;
    return w->deaths_ms[0] && now - w->deaths_ms[0] <= DEATHS_MS;
}

static void how_it_died(struct writer *w, int status)
{
    if (*w->error)
        return; /* it said so itself */
    if (WIFSIGNALED(status))
        snprintf(w->error, sizeof w->error, "the store was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(w->error, sizeof w->error, "the store ended with status %d", WEXITSTATUS(status));
}

bool writer_died(struct writer *w, int status, const sigset_t *mask)
{
    writer_listen(w);
    w->pid = 0;
    drop(&w->report);
    drop(&w->connection);
    if (w->done)
        return true;
    for (;;) {
        how_it_died(w, status);
        LOG(store, "%s", w->error);
        if (dies_too_often(w))
            return false;
        if (writer_start(w, mask))
            return true;
        drop(&w->report);
        drop(&w->connection);
        if (w->pid <= 0) /* not even started: no sense in trying again */
            return false;
        kill(w->pid, SIGKILL);
        waitpid(w->pid, &status, 0);
        w->pid = 0;
    }
}

bool writer_goodbye(struct writer *w, int status, const char *reason)
{
    struct store_request q = {.op = STORE_GOODBYE, .status = status};
    return w->connection >= 0 && ask(w, &q, reason, -1);
}
