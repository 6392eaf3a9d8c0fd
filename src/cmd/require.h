/*
 * require.h: what `clio record` cannot do without. Asked before anything is made, so that a place where it
 * cannot work says so at once and by name.
 *
 * Each function looks at one thing and returns NULL, or what is missing: a static string that ends the sentence
 * "cannot record here: ". They leave nothing behind.
 */
#ifndef CLIO_CMD_REQUIRE_H
#define CLIO_CMD_REQUIRE_H

#include <stdint.h>

/* AT_HWCAP2, and what the kernel has enabled of XSAVE (struct cpu_host). */
const char *require_processor(uint64_t hwcap2, uint64_t xcr0);
/* /proc, mounted below `proc`, with what is read of it. */
const char *require_proc(const char *proc);
const char *require_memfd(void);
const char *require_sockets(void);
const char *require_signalfd(void);
const char *require_subreaper(void);
/* Memory that is writable and executable: the code cache. */
const char *require_code_memory(void);
/* Limits: how many descriptors and how many bytes of address space a process may have. */
const char *require_descriptors(uint64_t limit);
const char *require_address_space(uint64_t limit);

/* All of them, of this machine: NULL or what the first one says. */
const char *require_all(void);

#endif
