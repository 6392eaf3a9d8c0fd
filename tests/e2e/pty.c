/*
 * pty.c: pty COMMAND ARG...: runs a command on a terminal of its own and types at it what stdin says, line by
 * line.
 *
 * A line of stdin is `expect TEXT` (wait up to 20 seconds for TEXT in the output), `send TEXT` (types TEXT
 * and a newline; \\xNN is a byte), `key TEXT` (without newline), or `pause MS`. What the terminal shows goes
 * to stdout. Status: the command's, or 99 when an expectation was not met.
 */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int terminal;
static char seen[1 << 20];
static size_t nseen, looked; /* bytes of output; how far expectations have looked */

/* Takes what the terminal has to say within ms. False: it is closed. */
static bool listen_for(int ms)
{
    struct pollfd p = {terminal, POLLIN, 0};
    if (poll(&p, 1, ms) <= 0)
        return true;
    char buffer[4096];
    ssize_t n = read(terminal, buffer, sizeof buffer);
    if (n <= 0)
        return false;
    if (write(1, buffer, (size_t)n) < 0)
        return false;
    if (nseen + (size_t)n < sizeof seen) {
        memcpy(seen + nseen, buffer, (size_t)n);
        nseen += (size_t)n;
    }
    return true;
}

static bool expect(const char *text)
{
    for (int i = 0; i < 400; i++) {
        char *at = memmem(seen + looked, nseen - looked, text, strlen(text));
        if (at) {
            looked = (size_t)(at - seen) + strlen(text);
            return true;
        }
        if (!listen_for(50))
            break;
    }
    fprintf(stderr, "pty: no \"%s\"\n", text);
    return false;
}

static void type(const char *text)
{
    for (; *text; text++) {
        unsigned byte = (unsigned char)*text;
        if (text[0] == '\\' && sscanf(text, "\\x%2x", &byte) == 1)
            text += 3;
        char c = (char)byte;
        if (write(terminal, &c, 1) != 1)
            return;
    }
}

static bool obey(char *line)
{
    line[strcspn(line, "\n")] = 0;
    if (!strncmp(line, "expect ", 7))
        return expect(line + 7);
    if (!strncmp(line, "send ", 5)) {
        type(line + 5);
        type("\n");
    } else if (!strncmp(line, "key ", 4)) {
        type(line + 4);
    } else if (!strncmp(line, "pause ", 6)) {
        struct timespec end, now;
        clock_gettime(CLOCK_MONOTONIC, &end);
        long until = end.tv_sec * 1000 + end.tv_nsec / 1000000 + atol(line + 6);
        do {
            if (!listen_for(10))
                break;
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < until);
    }
    return true;
}

static bool has_ended(pid_t child)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid == child;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    pid_t child = forkpty(&terminal, NULL, NULL, &size);
    if (child == 0) {
        execvp(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    char line[4096];
    bool good = true;
    while (good && fgets(line, sizeof line, stdin))
        good = obey(line);
    if (!good)
        kill(child, SIGHUP);
    while (!has_ended(child) && listen_for(30000))
        ;
    while (listen_for(100) && errno != EIO && poll(&(struct pollfd){terminal, POLLIN, 0}, 1, 100) > 0)
        ;
    close(terminal);
    int status = 0;
    waitpid(child, &status, 0);
    if (!good)
        return 99;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
