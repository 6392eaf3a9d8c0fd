/*
 * kinds.h: what can stand in a trace, each thing one line. Enumerations, substreams, names, sizes, checks,
 * the reader and `clio dump` follow from these lists; docs/trace-format.md says what each means. Numbers are
 * part of the format: they are never given to anything else.
 *
 * record.h includes this and has the structs; it is what others include.
 */
#ifndef CLIO_TRACE_KINDS_H
#define CLIO_TRACE_KINDS_H

// clang-format off

/*
 * Kinds of events. `own part` is the struct between the head and the effects; traits are enum trace_kind_trait. A new
 * one needs a pair of printers in cmd/dump.c, which does not compile without them.
 *
 *  constant     number  name     own part                traits
 */
#define TRACE_EVENT_KINDS(X) \
  X(EV_START,      1,    start,   struct trace_ev_start,  0)                      /* event 1 of a space: initial registers and memory */ \
  X(EV_SYSCALL,    2,    syscall, struct trace_ev_none,   KIND_CALL)              /* a system call that returned */ \
  X(EV_SIGNAL,     3,    signal,  struct trace_ev_signal, KIND_LAST_IF_FATAL)     /* a signal delivered to a handler, or killing the space */ \
  X(EV_INSN,       4,    insn,    struct trace_ev_insn,   KIND_INSN)              /* a nondeterministic instruction */ \
  X(EV_FORK,       5,    fork,    struct trace_ev_fork,   KIND_CALL)              /* fork, vfork or clone of a new space */ \
  X(EV_EXEC,       6,    exec,    struct trace_ev_exec,   KIND_CALL | KIND_LAST)  /* successful execve: names the next space */ \
  X(EV_EXIT,       7,    exit,    struct trace_ev_none,   KIND_CALL | KIND_LAST)  /* exit or exit_group */

/*
 * Kinds of other records. Those with the top bit (TRACE_OPTIONAL) are skipped by readers that do not know them.
 *
 *  constant     number  name     substream      struct
 */
#define TRACE_OTHER_KINDS(X) \
  X(REC_DATA,     32,    data,    STREAM_DATA,   struct trace_data)   /* bytes for the effects of the next event */ \
  X(REC_MAP,      33,    map,     STREAM_MAPS,   struct trace_map)    /* one change of the address space by the next event */ \
  X(REC_SPACE,    48,    space,   STREAM_TASKS,  struct trace_space)  /* a space begins */ \
  X(REC_END,      49,    end,     STREAM_TASKS,  struct trace_end)    /* why a space ended (by the engine, or by the store for one that was killed) */ \
  X(REC_NOTE, 0x8032,    note,    STREAM_TASKS,  struct trace_note)   /* a warning for people, text */

/* What an EV_INSN was: its nr. */
#define TRACE_INSNS(X) \
  X(INSN_RDTSC,    1, rdtsc) \
  X(INSN_RDTSCP,   2, rdtscp) \
  X(INSN_RDPID,    3, rdpid) \
  X(INSN_RDRAND,   4, rdrand) \
  X(INSN_RDSEED,   5, rdseed) \
  X(INSN_CPUID,    6, cpuid) \
  X(INSN_XGETBV,   7, xgetbv) \
  X(INSN_LSL,      8, lsl) \
  X(INSN_LAR,      9, lar) \
  X(INSN_VERR,    10, verr) \
  X(INSN_VERW,    11, verw) \
  X(INSN_X87_POINTERS, 12, x87_pointers) /* an instruction stores them and they are not 0 */

/* What a REC_MAP does: its op. */
#define TRACE_MAP_OPS(X) \
  X(MAP_OP_ANON,    1, anon) \
  X(MAP_OP_FILE,    2, file) \
  X(MAP_OP_UNMAP,   3, unmap) \
  X(MAP_OP_PROTECT, 4, protect) \
  X(MAP_OP_MOVE,    5, move) \
  X(MAP_OP_DISCARD, 6, discard) \
  X(MAP_OP_RESIZE,  7, resize)  /* an object's file became longer or shorter */ \
  X(MAP_OP_CHECK,   8, check)   /* no change: hashes of memory as it is after the event */ \
  X(MAP_OP_GROW,    9, grow)    /* the mapping above came down to here, before the event or by it */

// clang-format on

enum trace_kind_trait {
    KIND_CALL = 1,          /* trace_event.nr is the number of a system call */
    KIND_INSN = 2,          /* trace_event.nr is enum trace_insn */
    KIND_LAST = 4,          /* the space's last event */
    KIND_LAST_IF_FATAL = 8, /* the same, with EVF_FATAL */
};

#endif
