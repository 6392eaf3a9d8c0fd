/* front.c: see front.h. */
#include "cmd/front.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

enum word {
    FRONT_STOP = 1, /* to the front: stop by this signal */
    FRONT_DISMISS,  /* to the front: return this status */
    FRONT_SIGNAL,   /* to the recorder: this signal came */
    FRONT_GOES_ON,  /* to the recorder: it was stopped and is not any longer */
};

struct message {
    uint32_t word;
    int32_t value;
};

static bool say(int channel, enum word word, int value, int flags)
{
    const struct message m = {word, value};
    return channel >= 0 && send(channel, &m, sizeof m, MSG_NOSIGNAL | flags) == sizeof m;
}

/* ---- the front ---- */

static int channel, signals;
static pid_t recorder;

/* Returns when somebody continues us. */
static void stop(int signal)
{
    sigset_t set;
    struct sigaction action;
    sigaction(signal, NULL, &action);
    if (signal == SIGSTOP || action.sa_handler != SIG_DFL) {
        raise(SIGSTOP);
    } else {
        sigemptyset(&set);
        sigaddset(&set, signal);
        raise(signal);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        sigprocmask(SIG_BLOCK, &set, NULL);
    }
    say(channel, FRONT_GOES_ON, 0, 0);
}

/*
 * What a terminal sends to its foreground group reaches the program by itself. A hangup that it sends to the
 * leader of its session, in whose place the program would be, does not.
 */
static void pass_on(const struct signalfd_siginfo *info)
{
    int signal = (int)info->ssi_signo;
    if (signal == SIGCHLD || signal == SIGPIPE)
        return;
    if (signal == SIGCONT && (pid_t)info->ssi_pid == recorder)
        return; /* it says that the program runs already */
    if (info->ssi_code == SI_KERNEL && (signal != SIGHUP || getsid(0) != getpid()))
        return;
    say(channel, FRONT_SIGNAL, signal, 0);
}

static void read_signals(void)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info)
        pass_on(&info);
}

/* The recorder has ended: by itself, with the status that is ours. */
static int status_of_recorder(void)
{
    int status;
    while (waitpid(recorder, &status, 0) < 0)
        if (errno != EINTR)
            die("cannot wait for the recorder, process %d: %s", (int)recorder, strerror(errno));
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    die("the recorder, process %d, was killed by signal %d (%s); the recording ends there", (int)recorder,
        WTERMSIG(status), strsignal(WTERMSIG(status)));
}

static int wait_for_recorder(void)
{
    for (;;) {
        struct pollfd polls[] = {{signals, POLLIN, 0}, {channel, POLLIN, 0}};
        struct message m;
        poll(polls, 2, -1);
        if (polls[0].revents)
            read_signals();
        if (!polls[1].revents)
            continue;
        if (recv(channel, &m, sizeof m, 0) != sizeof m)
            return status_of_recorder();
        if (m.word == FRONT_DISMISS)
            return m.value;
        stop(m.value);
    }
}

static int be_front(const sigset_t *blocked)
{
    signals = signalfd(-1, blocked, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0)
        die("cannot make a signalfd: %s", strerror(errno));
    return wait_for_recorder();
}

/* ---- the recorder ---- */

bool front_split(struct front *f, const sigset_t *blocked, int *status)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        die("cannot make an AF_UNIX socket: %s", strerror(errno));
    *f = (struct front){.channel = pair[1], .pid = getpid()};
    recorder = fork();
    if (recorder < 0)
        die("cannot fork: %s", strerror(errno));
    close(pair[recorder ? 1 : 0]);
    if (!recorder)
        return true;
    channel = pair[0];
    *status = be_front(blocked);
    return false;
}

void front_stop(struct front *f, int signal)
{
    /* One that has been stopped for a hundred such messages needs no more, and must not hold us up. */
    f->stopped |= say(f->channel, FRONT_STOP, signal, MSG_DONTWAIT);
}

bool front_continue(struct front *f)
{
    /* It may be on its way to the stop still, so it is woken until it says that it is awake. */
    if (f->stopped)
        kill(f->pid, SIGCONT);
    return f->stopped;
}

void front_dismiss(struct front *f, int status)
{
    say(f->channel, FRONT_DISMISS, status, 0);
    close(f->channel);
    f->channel = -1;
    f->stopped = false;
}

bool front_listen(struct front *f, void (*passed_on)(int signal))
{
    struct message m;
    ssize_t n;
    while ((n = recv(f->channel, &m, sizeof m, MSG_DONTWAIT)) == sizeof m) {
        if (m.word == FRONT_GOES_ON)
            f->stopped = false;
        else
            passed_on(m.value);
    }
    return n < 0 && errno == EAGAIN;
}
