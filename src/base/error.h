/*
 * error.h: the three ways to end, each with one meaning, and the log.
 *
 * usage()  the user asked for something that makes no sense                    exit 2
 * die()    the environment refused: say what was attempted on what, and why      exit 3
 * BUG()    one of our invariants is broken: say where, with state              abort
 *
 * Only programs (src/cmd, the store's and the engine's main files) may call usage and die; libraries return
 * errors. All three write one line to stderr, or, in a process that must not touch the guest's descriptors,
 * to the hook.
 */
#ifndef CLIO_BASE_ERROR_H
#define CLIO_BASE_ERROR_H

#include <stdarg.h>

enum { EXIT_DONE = 0, EXIT_NOT_SO = 1, EXIT_USAGE = 2, EXIT_ENVIRONMENT = 3 };

#define PRINTF(a, b) __attribute__((format(printf, a, b)))

_Noreturn void usage(const char *format, ...) PRINTF(1, 2);
_Noreturn void die(const char *format, ...) PRINTF(1, 2);
void warning(const char *format, ...) PRINTF(1, 2);
_Noreturn void bug_at(const char *file, int line, const char *format, ...) PRINTF(3, 4);
#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)

/* Replaces writing "clio: ..." to stderr; text has no newline. For the engine, whose stderr is the guest's.
 */
void error_set_hook(void (*say)(const char *text));
/* Replaces exit(status) in usage and die. */
void error_set_exit(void (*leave)(int status));

/* VERIFY builds (make VERIFY=1) check invariants at every step; the condition costs nothing otherwise. */
#ifdef CLIO_VERIFY
#define VERIFY(cond, ...)                                                                                    \
    do {                                                                                                     \
        if (!(cond))                                                                                         \
            BUG(__VA_ARGS__);                                                                                \
    } while (0)
#else
#define VERIFY(cond, ...) ((void)0)
#endif

#endif
