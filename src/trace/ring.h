/*
 * ring.h: the layout of a ring, the file through which one space's records reach the trace.
 *
 *   rings/N   [ struct ring_header, padded to 4096 bytes ][ capacity bytes of records ]
 *
 * One producer (the engine process of space N) and one consumer (the store). `head` counts bytes ever
 * published, `tail` bytes ever moved into substreams; both only grow; position p lies at data[p % capacity].
 * A record never wraps: a REC_PAD record (8 bytes at least) fills the rest. The producer fills records beyond
 * head and publishes with one release store of head. A reader that is not the consumer copies bytes of [tail,
 * head) and checks afterwards that tail has not passed what it copied (else the bytes are in the substreams
 * by then).
 *
 * The file lives in the page cache, so what was published survives the death of every process involved.
 * The file is allocated (fallocate) before it is mapped: a full disk is met at creation, never as SIGBUS.
 *
 *   rings/control   struct ring_control, one page, mapped by every process of the recording
 */
#ifndef CLIO_TRACE_RING_H
#define CLIO_TRACE_RING_H

#include <stdint.h>

#define RING_MAGIC    0x31474e49524f4c43ull /* "CLORING1" up to byte order */
#define CONTROL_MAGIC 0x314c5254434f4c43ull

enum { RING_HEADER_SIZE = 4096, RING_CAPACITY = 1 << 20, RING_RECORD_MAX = RING_CAPACITY / 4 };

enum ring_state { RING_RUNNING = 1, RING_ENDED = 2 /* the REC_END record is published */ };

/* What the space is doing inside the kernel; plain stores by the producer, read after its death. */
struct ring_call {
    uint32_t active; /* 1: entered and not returned */
    uint32_t nr;
    uint64_t pc, ticks; /* as in trace_event */
    uint64_t args[6];
    uint32_t hash;
    uint32_t pad;
};

struct ring_header {
    uint64_t magic;
    uint32_t version; /* TRACE_FORMAT_VERSION */
    uint32_t header_size;
    uint64_t capacity;
    uint32_t space;
    int32_t pid; /* the producer, in the pid namespace of its birth */
    _Alignas(64) uint64_t head;
    uint32_t producer_waits; /* 1: waiting for room; futex word, the store sets 0 and wakes */
    uint32_t state;          /* enum ring_state */
    uint64_t events;         /* EV_ records published */
    uint64_t reserved;
    _Alignas(64) uint64_t tail;
    _Alignas(64) struct ring_call call;
};
_Static_assert(sizeof(struct ring_header) <= RING_HEADER_SIZE, "ring header fits its page");

struct ring_control {
    uint64_t magic;
    uint32_t version;
    uint32_t store_pid;
    _Alignas(64) uint64_t seq; /* next trace-wide sequence number; fetch-and-add */
    uint32_t spaces;           /* last space number given out; fetch-and-add */
    uint32_t stop;             /* 1: recording ends; producers kill themselves at their next event */
    /* 1: the store is in poll; wake it by a datagram after filling half a ring */
    _Alignas(64) uint32_t store_sleeps;
    uint32_t disk_full;   /* 1: the store cannot write; producers will be paused by their full rings */
    uint32_t output_turn; /* pid of the producer that is writing to the recording's output, or 0 */
    /* pids, for getppid: the recorder, who adopts all orphans; who started it; the recorded program */
    int32_t recorder, caller, program;
};

#endif
