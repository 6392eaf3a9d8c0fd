/*
 * syscall_names.h: the names of x86-64 system calls, for people.
 */
#ifndef CLIO_BASE_SYSCALL_NAMES_H
#define CLIO_BASE_SYSCALL_NAMES_H

#include <stdint.h>

/* "read" etc., or NULL for a number that is not known. */
const char *syscall_name(uint32_t nr);

#endif
