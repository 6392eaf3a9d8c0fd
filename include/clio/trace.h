/*
 * clio/trace.h: reading traces. This is the public C interface; docs/trace-format.md has the bytes.
 *
 * A source is a trace to read from: a directory, complete, cut short or still growing. A stream delivers the
 * records of one space (a recorded process image) in the order in which they were published: for every event
 * first its data and map records, then the event. A record starts with an 8-byte head (struct
 * clio_record_head); most users treat the rest as opaque. Strings and records belong to the object that
 * returned them.
 *
 * Every function that can fail fills a struct clio_error, whose text names the file, the place in it and the
 * reason. A source and what was opened from it may be used by one thread at a time; separate sources are
 * independent.
 */
#ifndef CLIO_TRACE_API_H
#define CLIO_TRACE_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum clio_fault {
    CLIO_FAULT_NONE,
    CLIO_FAULT_MISSING,  /* no such trace, file or space */
    CLIO_FAULT_VERSION,  /* another format version, or a required feature this reader lacks */
    CLIO_FAULT_DAMAGED,  /* bytes that cannot be what was written */
    CLIO_FAULT_SYSTEM,   /* the operating system refused; `code` is errno */
    CLIO_FAULT_ARGUMENT, /* the caller asked for something that makes no sense */
};

struct clio_error {
    enum clio_fault fault;
    int code; /* errno, or 0 */
    char text[1000];
};

/* What asking for the next record gives. */
enum clio_next {
    CLIO_ERROR, /* see the error; everything delivered before it is good; asking again gives the same error */
    CLIO_RECORD,      /* a record */
    CLIO_NOTHING_YET, /* the recording is alive and has nothing more at the moment: ask again later */
    CLIO_CLEAN_END,   /* the space's last event was delivered: it exited, was killed by a recorded signal or
                         exec'd */
    CLIO_CUT_HERE,    /* the space's records end without a last event */
};

/* ---- sources ---- */

struct clio_source;

struct clio_trace_info {
    char identity[37];  /* UUID, as text */
    uint32_t version;   /* of the format */
    uint64_t features;  /* bits 0-31: required to understand the trace; 32-63: optional */
    uint32_t cpu_level; /* 1..4 for x86-64-v1..v4 */
    const char
        *cpu_features; /* names with commas, of what the guest had beyond the level; NULL: not recorded */
    uint64_t start_ns; /* CLOCK_REALTIME */
    const char *host, *kernel, *cwd;
    int argc; /* the recorded command */
    const char *const *argv;
};

/*
 * Opens a trace: a directory path, the name of a trace below the trace home, or "latest" or NULL for the
 * newest one. Returns NULL and fills *error on failure.
 */
struct clio_source *clio_source_open(const char *trace, struct clio_error *error);
void clio_source_close(struct clio_source *source);
const struct clio_trace_info *clio_source_info(const struct clio_source *source);
const char *clio_source_path(const struct clio_source *source);
/* Whether a process of the recording still lives, so that the trace may grow. */
bool clio_source_live(const struct clio_source *source);

/* ---- spaces ---- */

enum clio_origin { CLIO_ORIGIN_UNKNOWN, CLIO_ORIGIN_ROOT, CLIO_ORIGIN_FORK, CLIO_ORIGIN_EXEC };

enum clio_end {
    CLIO_END_NONE,        /* alive, or it died and nobody was left to write why */
    CLIO_END_EXIT,        /* status: the exit code */
    CLIO_END_SIGNAL,      /* killed by a recorded signal; status: its number */
    CLIO_END_EXEC,        /* replaced by another space; status: its number, 0 when that runs unrecorded */
    CLIO_END_KILLED,      /* died without a last event (SIGKILL) */
    CLIO_END_UNSUPPORTED, /* met a feature Clio lacks; the text names it */
    CLIO_END_RECORDER,    /* the recorder was asked to end, or died */
    CLIO_END_INTERNAL,    /* a fault of Clio; the text says where */
};

struct clio_space_info {
    uint32_t space, parent; /* numbers from 1; parent 0: none */
    enum clio_origin origin;
    uint64_t parent_event; /* the parent's fork or exec event */
    int pid, ppid;
    uint32_t cpu_level;
    uint64_t seq;     /* trace-wide order of birth */
    uint64_t time_ns; /* CLOCK_REALTIME of birth */
    const char *exe;  /* path of the program; "" when unknown */
    int argc;
    const char *const *argv;
    enum clio_end end;
    int status;
    const char *end_text; /* "" when there is none */
    uint64_t end_ns;
    uint64_t events; /* published so far */
};

/*
 * The spaces recorded so far, in order of their numbers. The array stays valid until the next call with this
 * source. Returns false and fills *error when the trace cannot be read.
 */
bool clio_source_spaces(struct clio_source *source, const struct clio_space_info **spaces, size_t *count,
                        struct clio_error *error);

/* ---- streams ---- */

struct clio_record_head {
    uint32_t size; /* bytes, this head included, multiple of 8 */
    uint16_t kind;
    uint16_t flags;
};

/* "syscall", "data", ... and back. NULL and -1 for what is not known. */
const char *clio_kind_name(uint16_t kind);
int clio_kind_number(const char *name);

struct clio_stream;

/*
 * Opens the records of one space; with space 0 those of the `tasks` substream: births, ends and notes of all
 * spaces. `kinds` has `count` kinds to deliver; NULL subscribes to all. Substreams that are not needed are
 * not read.
 */
struct clio_stream *clio_stream_open(struct clio_source *source, uint32_t space, const uint16_t *kinds,
                                     size_t count, struct clio_error *error);
void clio_stream_close(struct clio_stream *stream);
/* The next subscribed record; *record stays valid until the next call. On CLIO_ERROR and CLIO_CUT_HERE *error
 * says why. */
enum clio_next clio_stream_next(struct clio_stream *stream, const struct clio_record_head **record,
                                struct clio_error *error);
/*
 * The number of the event that the record last delivered is, or belongs to; for a note, of the event it
 * precedes. 0 where there is none.
 */
uint64_t clio_stream_event(const struct clio_stream *stream);

#endif
