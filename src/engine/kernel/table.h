/*
 * table.h: the system calls, one row each, and the words a row is written in.
 *
 * A row says which arguments are descriptors, what the kernel writes to guest memory and on which results,
 * and which function replaces the plain call where data does not suffice. Recording is derived from it
 * (effects_fast.c and generic.c); replay needs no row at all, for it only repeats effects, but runs `both`
 * instead where there is one.
 *
 * Effects may cover more than the kernel wrote, never less: the bytes are taken from guest memory after the
 * call, so a byte too many is repeated with the value it had anyway. How to add a call:
 * docs/adding-a-system-call.md.
 */
#ifndef CLIO_ENGINE_KERNEL_TABLE_H
#define CLIO_ENGINE_KERNEL_TABLE_H

#include "engine/event/event.h"
#include "engine/guest/access.h"

enum sys_flag {
    SYS_NOT_FAST =
        1, /* needs libc, so vector registers are saved first; set automatically for rows with `record` */
    SYS_BOTH = 2, /* `both` runs in record and in replay, instead of the call itself (process.c, signals.c) */
    SYS_SEEN = 4, /* has no memory effects at all: a row, but nothing to do */
    SYS_TEMPMASK = 8, /* installs a temporary signal mask (sigsuspend, ppoll, pselect6, epoll_pwait) */
    SYS_WRITES = 16,  /* writes to a descriptor: output flags, and mapped files may change */
};

/*
 * What a call acts on beside its outputs, which decides what recording and replaying it takes. Each row says it;
 * test_effects checks that the row is made accordingly.
 */
enum sys_acts {
    ACTS_UNSAID,
    ACTS_OUTSIDE, /* what the kernel keeps and replay has no use for: a row of outputs is enough */
    ACTS_OPENED, /* copies, takes or closes descriptors: files.h must know, so `after` or a function of its own */
    ACTS_MEMORY, /* the caller's mappings, or memory that is not an output: a function of its own, or refused */
    ACTS_SIGNALS, /* mask, handlers or stack of signals: a function of its own, or SYS_TEMPMASK */
    ACTS_TASKS,   /* births, deaths, programs, registers: a function of its own */
    ACTS_ENGINE, /* would act on the engine instead of the guest, or write later: refused, or a function that chooses */
};

/* Performs call c for record: the kernel call, its effects, guest bookkeeping. Returns the guest's rax. */
typedef int64_t sys_record_fn(struct task *t, struct sys_call *c);

/* How the length of an output is known. `arg` points to it; `len` and `size` mean what is said here. */
enum out_how {
    OUT_NONE,
    OUT_FIXED,  /* size bytes */
    OUT_RESULT, /* result x size bytes, at most argument `len` x size; more of it may be written before a
                   fault */
    OUT_ARG,    /* (uint32_t) argument `len` x size bytes */
    OUT_VALUE,  /* a socklen_t at argument `len`: its value before the call or after, whichever is less; and
                   itself */
    OUT_IOVEC,  /* argument `len` iovecs at `arg`, filled with result bytes */
    OUT_MSG,    /* a struct msghdr received into */
    OUT_MMSG,   /* argument `len` struct mmsghdr, result of them received into */
    OUT_STRING, /* NUL-terminated, at most size bytes */
    OUT_FDSETS, /* an fd_set for argument 0 descriptors */
    OUT_PAGES,  /* a byte for each page of argument `len` bytes */
    OUT_FN, /* fn decides; with `len` not NO_ARG it gets the uint32_t that was at argument `len` before the
               call */
};

enum out_when {
    ON_SUCCESS,  /* result >= 0 */
    ON_POSITIVE, /* result > 0 */
    ON_EINTR,    /* result >= 0 or -EINTR */
    ON_ONLY_EINTR,
    ON_ALWAYS, /* whatever the result; the range need not be mapped */
    ON_MAYBE,  /* result >= 0, but the kernel may have written less: the range need not be mapped */
};

enum { NO_ARG = 255 };

typedef void sys_out_fn(struct task *t, const struct sys_call *c, uint32_t before); /* FAST */

struct sys_out {
    uint8_t how, arg, len, when;
    uint32_t size;
    sys_out_fn *fn;
};

enum { SYS_OUTS = 4 };

/* Flags beside enum sys_flag. */
enum sys_row_flag {
    ROW_REFUSED = 0x100, /* answered with -errno `refusal`, never performed; a note names it */
    ROW_QUIET = 0x200,   /* refused without a note: programs expect that */
    ROW_NO_BYTES =
        0x400, /* moves bytes that never are in guest memory: refused with EINVAL towards stdout and stderr */
    ROW_VECTOR = 0x800, /* has OUT_IOVEC, OUT_MSG or OUT_MMSG */
};

struct sys_row {
    const char *name; /* NULL: no such row */
    uint16_t flags;   /* enum sys_flag, enum sys_row_flag */
    uint8_t acts;     /* enum sys_acts */
    uint8_t fds;      /* bit i: argument i is a descriptor; a hidden one is EBADF */
    uint8_t to_fd;    /* SYS_WRITES: the argument that is written to */
    int16_t refusal;  /* ROW_REFUSED: the errno */
    struct sys_out outs[SYS_OUTS];
    sys_record_fn *record, *both;
    bool (*slow)(const struct sys_call *c);            /* FAST: this one needs `record`, else none does */
    void (*after)(struct task *t, struct sys_call *c); /* FAST: bookkeeping after the kernel call */
};

extern const struct sys_row sys_table[];
extern const uint32_t sys_table_count;

/* Name of a call or NULL; "call 600" is the reader's business. */
const char *sys_name(uint32_t nr);

/* What an ioctl command writes at its third argument. Sorted by command. */
struct ioctl_row {
    uint32_t cmd;
    uint32_t size; /* bytes the kernel may write on success; 0: none */
    const char *name;
    sys_out_fn *fn; /* not NULL: replaces size */
};
extern const struct ioctl_row ioctl_table[];
extern const uint32_t ioctl_table_count;
/* The row or NULL. FAST. */
const struct ioctl_row *ioctl_find(uint32_t cmd);

/* ---- recording (effects_fast.c: FAST) ---- */

/* Records c if that can be done without libc and vector registers; false: nothing was done, call sys_record.
 * FAST. */
bool sys_record_fast(struct task *t, struct sys_call *c);
/* The kernel call of a row with its effects. FAST. c->restart: nothing was recorded. */
int64_t sys_generic(struct task *t, struct sys_call *c, const struct sys_row *row);
/* A descriptor of ours is among the call's arguments: the guest must see EBADF. FAST. */
bool sys_names_hidden(const struct sys_row *row, const struct sys_call *c);
/* EVF_OUTPUT or EVF_OUTERR when c wrote bytes of guest memory to what was stdout or stderr. FAST. */
unsigned sys_output_flags(const struct sys_call *c);

/* ---- recording with libc ---- */

/* Records any call: the row's function, else the row, else by finding what the kernel wrote (generic.c). */
int64_t sys_record(struct task *t, struct sys_call *c);
/* The call without a row (unknown.c). what names it in the warning. */
int64_t sys_record_unknown(struct task *t, struct sys_call *c, const char *what);

/* Adds all of a vector of iovecs, as far as the guest may write it. FAST. */
void effect_add_vector(struct task *t, uint64_t addr, uint64_t count);
/* Adds those parts of [addr, addr+len) that the guest may write. FAST. */
void effect_add_writable(struct task *t, uint64_t addr, uint64_t len);

#endif
