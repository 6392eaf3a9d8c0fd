/*
 * trace_text.h: what the commands that read traces share: opening one, and showing its parts.
 */
#ifndef CLIO_CMD_TRACE_TEXT_H
#define CLIO_CMD_TRACE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "clio/trace.h"

/* Opens the trace or ends the command, saying why (exit 2 or 3). */
struct clio_source *open_trace(const char *trace);
/* Ends the program when this machine's processor cannot stand in for the recorded one. */
void need_cpu(const struct clio_source *source);
/* The TRACE of a command that takes nothing else, NULL for the latest; misuse ends the command. */
const char *only_trace(int argc, char **argv);
/* Ends the command for an error of the trace: exit 2 for misuse, else 3. */
_Noreturn void trace_failed(const struct clio_error *error);

/* argv as a shell would take it; allocated. */
char *command_text(int argc, const char *const *argv);
/* "exited with status 1", "killed by SIGSEGV", "became space 3", "alive" etc. */
const char *end_text(const struct clio_space_info *space, bool live, char *text, size_t size);
const char *origin_name(enum clio_origin origin);
const char *end_name(enum clio_end end);
/* "2026-11-30 15:04:05", local time. */
const char *time_text(uint64_t ns, char text[32]);
/* "17 kB", "3.4 MB". */
const char *size_text(uint64_t bytes, char text[32]);

/* A JSON string; where the text is no UTF-8, what is not ASCII becomes U+FFFD. */
json_t *text_json(const char *text);

/* Disk space of what lies below directory `path` of descriptor `dir`. */
struct disk_use {
    uint64_t bytes, files;
};
struct disk_use disk_use(int dir, const char *path);

#endif
