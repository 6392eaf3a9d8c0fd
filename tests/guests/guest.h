/*
 * guest.h: what guest programs share. They print "ok N what" or "not ok N what (line)" through unbuffered
 * writes, so that output and its order survive forks and crashes, and end with finish().
 */
#ifndef CLIO_TESTS_GUEST_H
#define CLIO_TESTS_GUEST_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int guest_checks, guest_failures;

/* printf straight to stdout. */
__attribute__((format(printf, 1, 2), unused)) static void say(const char *format, ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (int done = 0; done < n;) {
        ssize_t w = write(1, text + done, (size_t)(n - done));
        if (w < 0 && errno != EINTR)
            _exit(99);
        done += w > 0 ? (int)w : 0;
    }
}

__attribute__((format(printf, 3, 4), unused)) static bool check_at(bool good, int line, const char *format,
                                                                   ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    guest_checks++;
    if (good) {
        say("ok %d %s\n", guest_checks, what);
    } else {
        guest_failures++;
        say("not ok %d %s (line %d)\n", guest_checks, what, line);
    }
    return good;
}
#define ok(cond, ...) check_at(cond, __LINE__, __VA_ARGS__)

/* A signed comparison that shows both values when it fails. */
#define is(got, want, what)                                                                                  \
    do {                                                                                                     \
        long long got_ = (long long)(got), want_ = (long long)(want);                                        \
        if (got_ == want_)                                                                                   \
            check_at(true, __LINE__, "%s", what);                                                            \
        else                                                                                                 \
            check_at(false, __LINE__, "%s: got %lld, want %lld", what, got_, want_);                         \
    } while (0)

__attribute__((unused)) static int finish(void)
{
    say("%d checks, %d failures\n", guest_checks, guest_failures);
    return guest_failures ? 1 : 0;
}

/* A short stable digest, for long results. */
__attribute__((unused)) static uint64_t digest(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}
#define DIGEST_START 0xcbf29ce484222325ull

#endif
