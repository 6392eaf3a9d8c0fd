/*
 * clio/chronicle.h: asking a chronicle, the database of every write in an interval of a recording. This is
 * the public C interface; docs/queries.md explains the answers, docs/chronicle-format.md has the bytes.
 *
 * Nothing is replayed to answer. A question reads a few blocks of the file, whatever the length of the
 * interval. Every function that can fail fills a struct clio_error (clio/trace.h) whose text names the file
 * and the reason. What a function returns belongs to the chronicle and stays valid until the next question or
 * until it is closed. A chronicle may be used by one thread at a time; separate ones are independent.
 *
 * Moments: the state at a moment is the one before the instruction at that moment is run, and after all
 * effects of the moment's event. So the last write "before 1523:0:0" can be an effect of event 1523 itself;
 * to ask for what was there before it, use `before` of the answer.
 */
#ifndef CLIO_CHRONICLE_API_H
#define CLIO_CHRONICLE_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clio/trace.h"

struct clio_chronicle;

struct clio_moment {
    uint64_t event, tick, step;
};

struct clio_chronicle_info {
    const char *trace; /* directory it was built from, at that time */
    uint32_t space;
    uint32_t version;
    struct clio_moment from, to;
    uint64_t instructions, blocks, writes, events; /* executed in the interval; blocks: executions of any */
    uint64_t file_size;
    size_t modules;
};

struct clio_module { /* a mapped part of a file */
    uint64_t start, end, offset;
    const char *path;
    char file[65]; /* content hash in hex: files/HASH of the trace */
};

struct clio_crash { /* the signal that killed the space */
    int signo, code;
    uint64_t address; /* si_addr */
    struct clio_moment moment;
    uint64_t gpr[16], rip, rflags, fs_base, gs_base; /* gpr: rax rcx rdx rbx rsp rbp rsi rdi r8..r15 */
};

enum clio_write_kind {
    CLIO_WRITE_NONE,  /* nothing in the interval wrote these bytes */
    CLIO_WRITE_STORE, /* an instruction */
    CLIO_WRITE_EVENT, /* an event set memory: a system call's result, a signal frame, initial memory */
    CLIO_WRITE_MAP,   /* an event mapped memory here */
    CLIO_WRITE_UNMAP, /* an event unmapped it */
};

enum { CLIO_VALUE_MAX = 64 };

struct clio_write {
    uint64_t address, length; /* the part of the asked range that this answers for */
    enum clio_write_kind kind;
    uint64_t ordinal;                     /* of the write in the interval, from 0 */
    struct clio_moment moment;            /* of the instruction; of an event, the moment right after it */
    struct clio_moment before;            /* the last moment at which the write had not yet happened */
    uint64_t pc;                          /* of the instruction, or where the event came */
    uint64_t write_address, write_length; /* all that was written at once */
    uint64_t event;                       /* kinds of events: its number, and its record's fields: */
    uint32_t event_kind, event_nr, event_flags; /* enum trace_kind; call number */
    int64_t result;                             /* result of a call; number of a signal */
    uint32_t value_length;         /* bytes known in value and old: length, or CLIO_VALUE_MAX of them */
    uint8_t value[CLIO_VALUE_MAX]; /* what memory held afterwards (MAP and UNMAP: none) */
    uint8_t old[CLIO_VALUE_MAX];   /* ... and before, where old_known has a bit for the byte */
    uint64_t old_known;
};

/* NULL with *error when the file is missing, no chronicle, of another version, cut or damaged. */
struct clio_chronicle *clio_chronicle_open(const char *path, struct clio_error *error);
void clio_chronicle_close(struct clio_chronicle *chronicle);

const struct clio_chronicle_info *clio_chronicle_info(const struct clio_chronicle *chronicle);
/* NULL when the interval does not end with the death of the space by a signal. */
const struct clio_crash *clio_chronicle_crash(const struct clio_chronicle *chronicle);
/* The module at the address when the write with this ordinal happened (UINT64_MAX: at the end), or NULL. */
const struct clio_module *clio_chronicle_module(const struct clio_chronicle *chronicle, uint64_t address,
                                                uint64_t ordinal);
/* Module number i of clio_chronicle_info's modules, in the order in which they were mapped. */
const struct clio_module *clio_chronicle_module_number(const struct clio_chronicle *chronicle, size_t i);

enum { CLIO_RANGE_MAX = 1 << 20 };

/*
 * Who last wrote each byte of [address, address + length) before a moment (NULL: the interval's end). The
 * answers are ordered by address, cover the range without gap, and are as few as possible: each is a maximal
 * run of bytes with one writer, or (CLIO_WRITE_NONE) with none. 1 <= length <= CLIO_RANGE_MAX.
 */
bool clio_chronicle_last_write(struct clio_chronicle *chronicle, uint64_t address, uint64_t length,
                               const struct clio_moment *before, const struct clio_write **answers,
                               size_t *count, struct clio_error *error);
/* Who first wrote each byte after a moment (NULL: the interval's start), in the same form. */
bool clio_chronicle_first_write(struct clio_chronicle *chronicle, uint64_t address, uint64_t length,
                                const struct clio_moment *after, const struct clio_write **answers,
                                size_t *count, struct clio_error *error);
/* Reads and checks every block of the file. */
bool clio_chronicle_verify(struct clio_chronicle *chronicle, struct clio_error *error);

#endif
