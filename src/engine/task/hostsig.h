/*
 * hostsig.h: the host's signal handler: faults in guest code, signals for the guest, faults of our own.
 */
#ifndef CLIO_ENGINE_HOSTSIG_H
#define CLIO_ENGINE_HOSTSIG_H

/* Installs the handler for the synchronous signals on an alternate stack. */
void hostsig_init(void);

#endif
