/* selfmem.h: writing to /proc/self/mem. */
#ifndef CLIO_ENGINE_KERNEL_SELFMEM_H
#define CLIO_ENGINE_KERNEL_SELFMEM_H

#include "engine/kernel/files.h"

/* The guest has opened its memory for writing as fd: what the call returns. */
int64_t selfmem_opened(int fd);
/* write, pwrite64, writev, pwritev and pwritev2 on such a descriptor (slow_memory). */
sys_record_fn rec_memory_write;

#endif
