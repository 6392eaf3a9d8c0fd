/*
 * limits.h: resource limits; see limits.c.
 */
#ifndef CLIO_ENGINE_KERNEL_LIMITS_H
#define CLIO_ENGINE_KERNEL_LIMITS_H

#include "engine/kernel/table.h"

sys_record_fn rec_getrlimit, rec_setrlimit, rec_prlimit64;
/* getrlimit of a limit that is kept here. FAST. */
bool slow_getrlimit(const struct sys_call *c);

#endif
