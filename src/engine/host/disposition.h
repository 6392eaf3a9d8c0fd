/*
 * disposition.h: what the kernel does with signals to this process: the host's one handler (task/hostsig.c),
 * the default, or nothing.
 */
#ifndef CLIO_ENGINE_HOST_DISPOSITION_H
#define CLIO_ENGINE_HOST_DISPOSITION_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Signals that instructions raise: SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP. Always handled and never blocked
 * in the kernel, because write watching and fault mapping need them. */
#define SYNC_SIGNALS                                                                                         \
    ((1ull << (11 - 1)) | (1ull << (7 - 1)) | (1ull << (8 - 1)) | (1ull << (4 - 1)) | (1ull << (5 - 1)))

/* The handler; to be set before any of the others is called. */
extern void (*disposition_handler)(int signo, siginfo_t *info, void *context);

/* Signal `signo` goes to the handler; restart: SA_RESTART; of other_flags, those that tell of children count.
 */
void disposition_catch(int signo, bool restart, uint64_t other_flags);
void disposition_default(int signo, uint64_t other_flags);
void disposition_ignore(int signo, uint64_t other_flags);
/* The kernel's mask := what the guest wants blocked, without the synchronous ones. */
void disposition_mask(uint64_t blocked);

#endif
