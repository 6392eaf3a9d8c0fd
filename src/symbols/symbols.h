/*
 * symbols.h: names for addresses in mapped ELF files: function, source file, line, inlined calls; and back.
 *
 * ELF files are found by content, as files/HASH of a trace directory, so the original may be changed or gone.
 * Debug information comes from the file itself or from /usr/lib/debug/.build-id by build-id. A file that is
 * missing or is no ELF file has no symbols, which is no error. Strings belong to the symbols object. One
 * thread at a time.
 */
#ifndef CLIO_SYMBOLS_SYMBOLS_H
#define CLIO_SYMBOLS_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbols;

struct symbols_map { /* a mapped part of a file */
    uint64_t start, end, offset;
    const char *path; /* as the guest knew it; for display only */
    const char *file; /* name in the trace's files directory */
};

enum { SYMBOLS_FRAMES = 16 };

struct symbols_frame { /* NULL and 0: not known */
    const char *function;
    const char *file;
    int line;
};

struct symbols_place {
    const char *module;     /* last part of the path */
    uint64_t module_offset; /* address in the file as linked (ELF virtual address) */
    /* frames[0] holds the instruction; if frames[i + 1] exists, frames[i] is inlined into it at its line */
    struct symbols_frame frames[SYMBOLS_FRAMES];
    int count;                /* at least 1 */
    uint64_t function_offset; /* from the start of the last frame's function, when that is known */
};

/*
 * directory: the trace's, which has files/. maps: all that are known of the process; they stay the caller's
 * and must outlive the object. NULL without memory.
 */
struct symbols *symbols_open(const char *directory, const struct symbols_map *maps, size_t nmaps);
void symbols_close(struct symbols *s);

/* What is at an address of the map. Always fills in the module. */
void symbols_lookup(struct symbols *s, const struct symbols_map *map, uint64_t address,
                    struct symbols_place *place);

/* The address and size of a function or variable by its ELF name, when the map's file has it. */
bool symbols_find(struct symbols *s, const struct symbols_map *map, const char *name, uint64_t *address,
                  uint64_t *size);

/* Up to `size` bytes of the file as mapped at an address; returns how many. */
size_t symbols_bytes(struct symbols *s, const struct symbols_map *map, uint64_t address, void *to,
                     size_t size);

#endif
