/* fault.c: see fault.h. */
#include "trace/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool fault_set(struct clio_error *error, enum clio_fault fault, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error->fault = fault;
    error->code = 0;
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return false;
}

bool fault_system(struct clio_error *error, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error->fault = CLIO_FAULT_SYSTEM;
    error->code = code;
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    size_t n = strlen(error->text);
    snprintf(error->text + n, sizeof error->text - n, ": %s", strerror(code));
    return false;
}
