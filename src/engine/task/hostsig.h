/*
 * hostsig.h: host signal handlers: faults in guest code, signals for the guest, faults of our own.
 */
#ifndef CLIO_ENGINE_HOSTSIG_H
#define CLIO_ENGINE_HOSTSIG_H

#include "engine/guest/engine.h"

/* Signals that instructions raise; never blocked in the kernel, because write watching and fault mapping need
 * them. */
#define SYNC_SIGNALS                                                                                         \
    ((1ull << (11 - 1)) | (1ull << (7 - 1)) | (1ull << (8 - 1)) | (1ull << (4 - 1)) | (1ull << (5 - 1)))

/* Installs the handlers of the synchronous signals on an alternate stack. */
void hostsig_init(void);
/* After fork by clone: the alternate stack is still there; nothing else to do. Takes over signal `signo` for
 * the guest. */
void hostsig_catch(int signo, bool restart, uint64_t other_flags);
void hostsig_set_default(int signo);
void hostsig_ignore(int signo);
/* The kernel's mask := what the guest wants blocked, without the synchronous ones. */
void hostsig_set_mask(uint64_t blocked);

#endif
