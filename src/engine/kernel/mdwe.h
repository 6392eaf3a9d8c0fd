/*
 * mdwe.h: prctl PR_SET_MDWE: no mapping of the guest's may be writable and executable, nor become executable. Kept here, for
 * in the kernel it would forbid the engine to translate.
 */
#ifndef CLIO_ENGINE_KERNEL_MDWE_H
#define CLIO_ENGINE_KERNEL_MDWE_H

#include <stdbool.h>
#include <stdint.h>

/* The prctl options PR_SET_MDWE and PR_GET_MDWE with their four arguments; results are the kernel's. */
int64_t mdwe_set(const uint64_t args[4]);
int64_t mdwe_get(const uint64_t args[4]);

/* A mapping of the protection `old`, or a new one (old the same), may not have the protection `prot`: EACCES. */
bool mdwe_denies(uint32_t old, uint32_t prot);

/* For a forked child or a new program. */
void mdwe_inherit(void);

#endif
