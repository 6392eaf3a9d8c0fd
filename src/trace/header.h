/*
 * header.h: the `trace` file of a trace directory: what was recorded, where, in which format.
 *
 * Lines of text, `key: value`, so that any tool can show it; docs/trace-format.md lists the keys. The first
 * line names the format version and is all that is looked at in a file of another version. The last line is a
 * checksum of everything above it.
 */
#ifndef CLIO_TRACE_HEADER_H
#define CLIO_TRACE_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clio/trace.h"

/*
 * Bits of clio_trace_info.features. CPU: the guest's processor is the one that docs/cpu.md describes, with cpu_features; without
 * it instructions ran as the recording's host had them.
 */
enum trace_feature { TRACE_FEATURE_CPU = 0 };

struct trace_header {
    struct clio_trace_info info; /* strings point into memory owned by this */
    uint8_t identity[16];
    void *memory;
};

/* The file's text: allocated, *size bytes, or NULL without memory. */
char *trace_header_text(const struct clio_trace_info *info, size_t *size);
/* Reads and checks `trace` in directory `dir`; `path` is for messages. False with *error. */
bool trace_header_read(struct trace_header *header, int dir, const char *path, struct clio_error *error);
void trace_header_free(struct trace_header *header);

/* Identity as text and back; false when the text is no UUID. */
void trace_identity_text(const uint8_t identity[16], char text[37]);
bool trace_identity_parse(const char *text, uint8_t identity[16]);

#endif
