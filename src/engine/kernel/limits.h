/*
 * limits.h: resource limits; see limits.c.
 */
#ifndef CLIO_ENGINE_KERNEL_LIMITS_H
#define CLIO_ENGINE_KERNEL_LIMITS_H

#include <sys/resource.h>

#include "engine/kernel/table.h"

sys_record_fn rec_getrlimit, rec_setrlimit, rec_prlimit64;
/* getrlimit of a limit that is kept here. FAST. */
bool slow_getrlimit(const struct sys_call *c);

/* A limit as the guest has it: RLIMIT_AS, RLIMIT_DATA or RLIMIT_NOFILE. 0 or -errno. */
int limits_current(uint32_t resource, struct rlimit *value);

#endif
