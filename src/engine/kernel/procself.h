/*
 * procself.h: what the kernel tells of this process in /proc/self, as if the process held the guest alone.
 *
 * The kernel's own text is taken, and what speaks of the engine's memory, handlers, masks and limits is replaced
 * by what is the guest's. It is a picture of the moment at which the file is opened.
 */
#ifndef CLIO_ENGINE_KERNEL_PROCSELF_H
#define CLIO_ENGINE_KERNEL_PROCSELF_H

#include <stdio.h>

typedef void procself_fn(FILE *to);

procself_fn procself_status, procself_stat, procself_statm, procself_limits, procself_maps, procself_smaps,
    procself_smaps_rollup, procself_cpuinfo;

#endif
