/*
 * fault.h: filling a struct clio_error. Both return false, for `return fault(...)`.
 */
#ifndef CLIO_TRACE_FAULT_H
#define CLIO_TRACE_FAULT_H

#include <stdbool.h>

#include "clio/trace.h"

bool fault_set(struct clio_error *error, enum clio_fault fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* CLIO_FAULT_SYSTEM with errno `code` and ": " and its description at the end. */
bool fault_system(struct clio_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
