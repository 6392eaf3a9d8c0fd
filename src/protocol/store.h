/*
 * store.h: what the processes of a recording say to the store.
 *
 * The socket is AF_UNIX SOCK_SEQPACKET at TRACE/socket (mode 0600). `clio record` connects once; the
 * descriptor is inherited by every engine process, so that a guest that changed its root, user or namespace
 * can still speak. A request is one datagram: struct store_request, then text of `textlen` bytes, with
 * descriptors as SCM_RIGHTS. Since the connection is shared, an answer goes to a socket of the asker's own:
 * descriptor 0 of the request is one end of a socketpair(SOCK_SEQPACKET) where `wants_reply` is 1. The store
 * answers with one struct store_reply (and perhaps descriptors) and closes its end. When the store dies the
 * asker sees EOF or EPIPE, connects to the path again (through its descriptor of the trace directory) until a
 * new store listens, and repeats: every request can be repeated without harm.
 *
 * EOF on the shared connection tells the store that every guest and the recorder are gone: it drains the
 * rings, writes REC_END for spaces that did not, and exits.
 */
#ifndef CLIO_STORE_PROTOCOL_H
#define CLIO_STORE_PROTOCOL_H

#include <stdint.h>

enum store_op {
    STORE_HELLO = 1, /* from the recorder: fd = its pidfd; reply says the store is ready */
    STORE_SPACE,     /* a new space's ring exists: `space`, `pid` (the store opens a pidfd of it); no reply */
    STORE_MAKE_RING, /* engine lacks the permission to create rings/N itself; reply carries the descriptor */
    STORE_FILE,    /* capture a mapped file: fd = the file (readable); text = its path; reply has the hash */
    STORE_WAKE,    /* a ring is half full */
    STORE_GOODBYE, /* from the recorder: status, text = reason; no more spaces will come */
    STORE_STOP, /* from `clio stop`: the recorder shall end the recording; the reply says that it was told */
    STORE_MAKE_MEMORY /* engine may not make files of `status` bytes (RLIMIT_FSIZE); reply carries a memfd */
};

struct store_request {
    uint32_t op;
    uint32_t wants_reply;
    uint32_t space;
    int32_t pid;
    int32_t status;
    uint32_t textlen;
};

struct store_reply {
    int32_t error; /* 0 or an errno */
    uint32_t pad;
    uint64_t size;    /* STORE_FILE: bytes captured */
    uint8_t hash[32]; /* STORE_FILE: BLAKE2b-256 of the content */
};

/*
 * What the store says to `clio record`, on a socketpair(SOCK_SEQPACKET) it was started with (--report-fd):
 * one datagram each, struct store_report and then text. REPORT_READY or REPORT_FAILED is the first.
 */
enum store_report_op {
    REPORT_READY = 1, /* the socket listens */
    REPORT_FAILED,    /* the store ends: text says why */
    REPORT_NOTE,      /* a REC_NOTE went by: text */
    REPORT_END,       /* a REC_END went by: space, pid, why, status, text */
    REPORT_DISK_FULL, /* what the guests do is kept in their rings until there is room: text says where */
    REPORT_RESUMED,   /* there is room again */
    REPORT_STOP,      /* `clio stop` asks for the end of the recording */
    REPORT_DONE /* everything is in the trace and closed; status 1: some of it only in rings (disk full) */
};

struct store_report {
    uint32_t op;
    uint32_t space;
    int32_t pid;
    uint32_t why; /* enum trace_end_why */
    int32_t status;
    uint32_t pad;
};

#endif
