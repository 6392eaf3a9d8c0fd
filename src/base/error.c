/* error.c: see error.h. */
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*say_hook)(const char *text);
static void (*exit_hook)(int status);

void error_set_hook(void (*say)(const char *text))
{
    say_hook = say;
}

void error_set_exit(void (*leave)(int status))
{
    exit_hook = leave;
}

static void say(const char *prefix, const char *format, va_list args)
{
    char text[4096];
    size_t n = (size_t)snprintf(text, sizeof text, "%s", prefix);
    vsnprintf(text + n, sizeof text - n, format, args);
    if (say_hook)
        say_hook(text);
    else
        fprintf(stderr, "clio: %s\n", text);
}

static _Noreturn void leave(int status)
{
    if (exit_hook)
        exit_hook(status);
    exit(status);
}

void usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("", format, args);
    va_end(args);
    leave(EXIT_USAGE);
}

void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("", format, args);
    va_end(args);
    leave(EXIT_ENVIRONMENT);
}

void warning(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("warning: ", format, args);
    va_end(args);
}

void bug_at(const char *file, int line, const char *format, ...)
{
    char prefix[256];
    snprintf(prefix, sizeof prefix, "internal error at %s:%d: ", file, line);
    va_list args;
    va_start(args, format);
    say(prefix, format, args);
    va_end(args);
    abort();
}
