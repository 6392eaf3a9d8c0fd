/* crash.h: what is said when the engine itself is at fault. */
#ifndef CLIO_ENGINE_CRASH_H
#define CLIO_ENGINE_CRASH_H

#include <signal.h>
#include <ucontext.h>

/* A fault in host code, or in the code cache at no known instruction: says all that is known and ends the
 * process. */
_Noreturn void crash_host_fault(const siginfo_t *info, const ucontext_t *uc);
/* Ends the space with END_INTERNAL and the process: the hook behind BUG and die in an engine process. */
void crash_init(int log_fd);
_Noreturn void crash_end(const char *text);

#endif
