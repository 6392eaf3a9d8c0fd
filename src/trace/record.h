/*
 * record.h: the records of a trace, exactly as they lie in a ring and in the substreams.
 *
 * Everything is little endian and 8-byte aligned. A record is a struct trace_record followed by its
 * body; `size` counts both and is a multiple of 8. The top bit of `kind` marks an optional kind: a reader
 * that does not know it skips it; an unknown kind without that bit is refused by name.
 *
 * A record's kind decides its substream (trace_stream_of):
 *
 *     tasks    one file for the trace      REC_SPACE REC_END REC_NOTE
 *     events   spaces/N/events             EV_*
 *     data     spaces/N/data               REC_DATA
 *     maps     spaces/N/maps               REC_MAP
 *
 * An event is one EV_ record together with the REC_DATA and REC_MAP records it consumes. The producer writes
 * those BEFORE the EV_ record and publishes them all with one store (or, when an event is larger than the
 * ring, data first); so a published EV_ record always finds what it refers to, and DATA or MAP records
 * without a following EV_ record are the unfinished rest of a cut trace, to be ignored.
 *
 * This header is shared by the engine (writer), the store (mover) and every reader; it has no code but inline
 * helpers and must stay includable from code compiled for general registers only.
 */
#ifndef CLIO_TRACE_RECORD_H
#define CLIO_TRACE_RECORD_H

#include <stdint.h>

#include "trace/kinds.h"

enum { TRACE_FORMAT_VERSION = 1 };
enum { TRACE_OPTIONAL = 0x8000 }; /* bit of `kind` */

struct trace_record {
    uint32_t size; /* bytes, header included, multiple of 8 */
    uint16_t kind;
    uint16_t flags; /* for EV_ kinds see enum trace_event_flag, for REC_MAP and REC_DATA there; else 0 */
};

enum trace_stream { STREAM_TASKS, STREAM_EVENTS, STREAM_DATA, STREAM_MAPS, STREAM_COUNT };

#define ENUMERATE(constant, number, ...) constant = number,
enum trace_kind {
    REC_PAD = 0, /* fills the end of a ring; never in a substream */
    TRACE_EVENT_KINDS(ENUMERATE) TRACE_OTHER_KINDS(ENUMERATE)
};
enum trace_insn { TRACE_INSNS(ENUMERATE) };
enum trace_map_op { TRACE_MAP_OPS(ENUMERATE) };
#undef ENUMERATE

/* flags of an EV_ record: low byte bits, high byte the number of REC_MAP records the event consumes */
enum trace_event_flag {
    EVF_INLINE = 1,  /* the effects' bytes follow the effects in the record; no REC_DATA */
    EVF_ENTRY = 2,   /* EV_SIGNAL: delivered at a `syscall` instruction, before the call */
    EVF_EXIT = 4,    /* EV_SIGNAL: delivered right after the previous event, before any instruction */
    EVF_SYNC = 8,    /* EV_SIGNAL: raised by the instruction at pc */
    EVF_FATAL = 16,  /* EV_SIGNAL: it kills the space; last event */
    EVF_OUTPUT = 32, /* EV_SYSCALL: wrote to what was stdout (see trace_event.nr and the arguments); */
    EVF_OUTERR = 64, /* ... or stderr of `clio record`; replay -a repeats it */
    EVF_NMAPS_SHIFT = 8,
};

/*
 * The head of every EV_ record. Then come, in this order:
 *   the kind's own part (struct trace_ev_*, see below; none for EV_SYSCALL)
 *   neffects x struct trace_effect
 *   if EVF_INLINE: the effects' bytes, concatenated, padded to 8
 * Without EVF_INLINE the effects' bytes are the next bytes of the data substream (REC_DATA bodies
 * concatenated; an event's bytes start at the beginning of a REC_DATA record and end at the end of one).
 */
struct trace_event {
    struct trace_record rec;
    uint64_t seq;   /* trace-wide order; unique */
    uint64_t ticks; /* ticks since the previous event of this space */
    uint64_t pc; /* guest pc: the syscall or other instruction; for a signal, the next instruction to run */
    int64_t result; /* EV_SYSCALL, EV_FORK: rax after. EV_EXIT: status argument. EV_SIGNAL: signal number */
    uint32_t hash;  /* of the guest's registers before the event (regs_hash) */
    uint16_t nr;    /* by the kind's traits: KIND_CALL: call number. KIND_INSN: enum trace_insn */
    uint16_t neffects; /* memory effects */
};

struct trace_effect {
    uint64_t addr; /* guest memory [addr, addr+len) was set by the event */
    uint32_t len;
    uint32_t flags; /* enum trace_effect_flag */
};
enum trace_effect_flag {
    EFF_ZERO = 1, /* all bytes are zero and none are stored */
    EFF_FILE =
        2, /* not the memory was set but the file that the mapping shows, and so other mappings show it */
};

/* All guest registers, in the order of the machine's encoding. */
struct trace_regs {
    uint64_t gpr[16]; /* rax rcx rdx rbx rsp rbp rsi rdi r8..r15 */
    uint64_t rip, rflags, fs_base, gs_base;
};

struct trace_ev_none {
};

struct trace_ev_start { /* EV_START; a forked space has regs as in the child after the call and no effects */
    struct trace_regs regs;
    uint64_t brk; /* initial program break, page aligned */
};

struct trace_ev_signal { /* EV_SIGNAL; effects hold the frame on the guest's stack; regs enter the handler */
    struct trace_regs regs;
    uint8_t siginfo[128]; /* siginfo_t as the kernel gave it */
    uint64_t blocked;     /* guest's signal mask in the handler */
};

struct trace_ev_insn {
    uint64_t rax, rbx, rcx, rdx; /* after; RDRAND, RDSEED, RDPID, LSL and LAR: rax holds the value for their
                                    operand; X87_POINTERS: instruction, operand, opcode, 0 */
    uint64_t rflags;             /* after */
};

struct trace_ev_fork {
    uint32_t child_space;
    uint32_t pad;
};

struct trace_ev_exec {
    uint32_t next_space; /* 0: the new program runs unrecorded (set-uid or 32-bit) */
    uint32_t pad;
};

struct trace_data {
    struct trace_record rec;
    /* (size - 8) bytes minus `flags` bytes of padding at the end: flags = 0..7 */
};

/*
 * One change of the guest's address space. Replay applies an event's maps in order, then its effects.
 *
 * rec.flags of ANON, FILE and RESIZE is the number of the object: the file or shared memory that the mapping
 * shows. Mappings of one space with the same number show the same object as long as at least one of them is
 * there; then the number may begin to mean another. 0: shared with no other mapping.
 */
struct trace_map {
    struct trace_record rec;
    uint8_t op;       /* enum trace_map_op */
    uint8_t shared;   /* 1: MAP_SHARED */
    uint16_t pathlen; /* bytes of the path after this struct, without terminator; padded to 8 */
    uint32_t prot;    /* ANON, FILE, PROTECT: PROT_ bits */
    uint64_t addr, len;
    uint64_t offset;  /* FILE, shared ANON: offset in the object. MOVE: old address */
    uint64_t aux;     /* MOVE: old length. FILE: size of the file at capture. RESIZE: its size */
    uint8_t file[32]; /* FILE: content hash, names files/<hex> in the trace; 0: the object as it is */
    /* char path[]; CHECK: struct trace_check[], pathlen counts their bytes */
};

/* The sum of XXH64(page, seed: its address) over the pages that can be read and are not all zero. */
struct trace_check {
    uint64_t start, end, hash;
};

enum trace_space_origin { SPACE_ROOT = 1, SPACE_FORK, SPACE_EXEC };

/* First record of a space's ring. */
struct trace_space {
    struct trace_record rec;
    uint32_t space;        /* this space's number, from 1 */
    uint32_t parent;       /* space that forked or exec'd it; 0 for the root */
    uint64_t parent_event; /* number of the parent's EV_FORK or EV_EXEC event */
    uint64_t seq;          /* trace-wide order */
    uint32_t origin;       /* enum trace_space_origin */
    int32_t pid, ppid;
    uint32_t cpu_level; /* 1..4: x86-64-v1.. */
    uint64_t time_ns;   /* CLOCK_REALTIME */
    uint32_t exelen,
        cmdlen; /* bytes of the program's path, then of argv joined by NUL; padded to 8 together */
    /* char exe[exelen]; char cmd[cmdlen] */
};

enum trace_end_why {
    END_EXIT = 1,    /* exit; status is the exit code */
    END_SIGNAL,      /* killed by a recorded signal; status is its number */
    END_EXEC,        /* replaced by another space; status is its number (0: unrecorded) */
    END_KILLED,      /* died without a last event (SIGKILL); written by the store */
    END_UNSUPPORTED, /* met a feature Clio lacks; the text names it */
    END_RECORDER,    /* the recorder was asked to end, or died */
    END_INTERNAL,    /* a fault of ours; the text says where */
};

struct trace_end {
    struct trace_record rec;
    uint32_t space;
    uint32_t why;
    int32_t status;
    uint32_t textlen; /* bytes of text, padded to 8 */
    uint64_t seq, time_ns;
    uint64_t events; /* number of events published by the space */
    /* char text[] */
};

struct trace_note {
    struct trace_record rec;
    uint32_t space;
    uint32_t textlen;
    uint64_t seq;
    /* char text[] */
};

/* ---- what follows from kinds.h ---- */

/* The substream of a kind, or -1 for REC_PAD and for unknown kinds. */
static inline int trace_stream_of(uint16_t kind)
{
    switch (kind) {
#define EVENT(constant, ...)                                                                                 \
    case constant:                                                                                           \
        return STREAM_EVENTS;
#define OTHER(constant, number, name, stream, ...)                                                           \
    case constant:                                                                                           \
        return stream;
        TRACE_EVENT_KINDS(EVENT)
        TRACE_OTHER_KINDS(OTHER)
#undef EVENT
#undef OTHER
    }
    return -1;
}

/* Bytes of the smallest record of a kind, without its own part where it is an event; 8 for unknown kinds. */
static inline uint32_t trace_head_size(uint16_t kind)
{
    switch (kind) {
#define OTHER(constant, number, name, stream, type)                                                          \
    case constant:                                                                                           \
        return sizeof(type);
        TRACE_OTHER_KINDS(OTHER)
#undef OTHER
    }
    return trace_stream_of(kind) == STREAM_EVENTS ? sizeof(struct trace_event) : sizeof(struct trace_record);
}

/* Bytes of an event's own part; 0 for kinds without. */
static inline uint32_t trace_part_size(uint16_t kind)
{
    switch (kind) {
#define EVENT(constant, number, name, part, ...)                                                             \
    case constant:                                                                                           \
        return sizeof(part);
        TRACE_EVENT_KINDS(EVENT)
#undef EVENT
    }
    return 0;
}

/* enum trace_kind_trait of an event's kind; 0 for others. */
static inline unsigned trace_kind_traits(uint16_t kind)
{
    switch (kind) {
#define EVENT(constant, number, name, part, traits)                                                          \
    case constant:                                                                                           \
        return traits;
        TRACE_EVENT_KINDS(EVENT)
#undef EVENT
    }
    return 0;
}

/* True for an event after which its space has no more. */
static inline int trace_event_is_last(const struct trace_record *record)
{
    unsigned traits = trace_kind_traits(record->kind);
    return traits & KIND_LAST || (traits & KIND_LAST_IF_FATAL && record->flags & EVF_FATAL);
}

/* The names of kinds.h: "rdtsc", "protect"; "?" for unknown numbers. Those of kinds: clio_kind_name. */
const char *trace_insn_name(uint16_t nr);
const char *trace_map_op_name(uint8_t op);

#endif
