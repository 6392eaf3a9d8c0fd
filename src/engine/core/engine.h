/*
 * engine.h: what the parts of the engine know of each other.
 *
 * One engine process hosts one guest process. Until threads arrive it has one task. All state hangs off the
 * global `engine`, the guest's address space off engine.space. While guest code runs, gs points to the task
 * and fs belongs to the guest; while host code runs gs still points to the task and fs is libc's, except in
 * the fast path (files compiled with -mgeneral-regs-only, see Makefile FAST), which runs with the guest's fs
 * and vector registers and so may not call libc, use TLS, floating point or any function outside the FAST
 * files.
 *
 * Address map (all constants; host mappings never fall inside):
 *
 *   0x0000_0001_0000 - 0x0000_1000_0000   non-PIE programs
 *   0x0000_1000_0000 - 0x0000_6000_0000   slots of ELF files (PIE, libraries)
 *   0x0000_6000_0000 - 0x0000_7000_0000   code cache                        (host)
 *   0x0000_7000_0000 - 0x0000_7100_0000   indirect branch table, task       (host)
 *   0x1100_0000_0000 - 0x1180_0000_0000   break of every program
 *   0x1180_0000_0000 - 0x2100_0000_0000   mmap area, allocated downwards; the stack lies at its top
 *   0x6000_0000_0000 - 0x6401_0000_0000   given only to who asks for it: AddressSanitizer's heap
 *
 * Everything below 2 GiB can reach the code cache by a 32-bit displacement, and its addresses fit `push
 * imm32`.
 */
#ifndef CLIO_ENGINE_ENGINE_H
#define CLIO_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/record.h"
#include "trace/ring.h"

enum {
    GPR_RAX,
    GPR_RCX,
    GPR_RDX,
    GPR_RBX,
    GPR_RSP,
    GPR_RBP,
    GPR_RSI,
    GPR_RDI,
    GPR_R8,
    GPR_R9,
    GPR_R10,
    GPR_R11,
    GPR_R12,
    GPR_R13,
    GPR_R14,
    GPR_R15
};

#define GUEST_LOW    0x10000ull
#define SLOTS_LOW    0x10000000ull
#define SLOTS_HIGH   0x60000000ull
#define CACHE_LOW    0x60000000ull
#define CACHE_HIGH   0x70000000ull
#define HOST_LOW     0x60000000ull /* [HOST_LOW, HOST_HIGH) is never the guest's */
#define HOST_HIGH    0x71000000ull
#define BRK_LOW      0x110000000000ull
#define BRK_HIGH     0x118000000000ull
#define MMAP_LOW     0x118000000000ull
#define GUEST_HIGH   0x210000000000ull
#define FAR_LOW      0x600000000000ull
#define FAR_HIGH     0x640100000000ull
#define PAGE_SIZE    4096ull
#define PAGE_UP(x)   (((uint64_t)(x) + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1))
#define PAGE_DOWN(x) ((uint64_t)(x) & ~(PAGE_SIZE - 1))

enum engine_mode { ENGINE_RECORD, ENGINE_REPLAY };

/* ---- guest address space (load/space.c) ---- */

struct file_ref { /* an open-ended identity of a mapped file; shared by vmas, never freed before exec */
    uint64_t dev, ino, size, mtime_ns, ctime_ns;
    uint8_t hash[32]; /* content as captured by the store */
    char path[];      /* as the guest would see it in /proc/self/maps */
};

enum vma_flag {
    VMA_WIPE = 1,   /* MADV_WIPEONFORK: zero in a forked child */
    VMA_DROP = 2,   /* MADV_DONTFORK: absent in a forked child */
    VMA_NOEXEC = 4, /* a file on a mount without exec: may never become executable */
    VMA_SHM = 8,    /* System V shared memory */
    VMA_DIRTY = 16, /* a private file mapping that was writable at some time: its content may differ from the
                       file's */
};

struct vma { /* sorted by start, never overlapping, page aligned */
    uint64_t start, end;
    uint32_t prot;
    bool shared;
    bool growsdown;              /* the stack */
    uint8_t flags;               /* enum vma_flag */
    uint16_t object;             /* what it shows, see load/objects.h; 0: memory of its own */
    uint64_t offset;             /* in file */
    const struct file_ref *file; /* NULL: anonymous */
};

struct space {
    struct vma *vmas; /* sorted array */
    uint32_t count, capacity;
    uint64_t brk_start, brk; /* current break, not rounded */
    uint64_t stack_low, stack_high;
    uint64_t arg_start, arg_end, env_start, env_end; /* as in /proc/self/cmdline and environ */
    uint8_t auxv[512];
    uint32_t auxv_size;
    char *exe;                     /* absolute path of the guest's executable, for /proc/self/exe */
    uint64_t mmap_top;             /* space_pick allocates downwards from here */
    uint64_t pick_from, pick_hole; /* every gap between pick_from and mmap_top is at most pick_hole bytes */
};

/* The vma holding addr, or the first one above it, or NULL. */
struct vma *space_at_or_above(const struct space *s, uint64_t addr);
/* The vma holding addr or NULL. */
struct vma *space_find(const struct space *s, uint64_t addr);
/* True when [addr, addr+len) is mapped with all of prot. */
bool space_allows(const struct space *s, uint64_t addr, uint64_t len, uint32_t prot);
/*
 * Applies one change to the host's mappings and to the vmas; used by record and by replay. fd is the file for
 * MAP_OP_FILE (the guest's own when recording, the captured copy or -1 when replaying). Calls code_invalidate
 * for executable ranges that go away or change. Returns 0 or -errno with nothing changed.
 */
int space_apply(struct space *s, const struct trace_map *map, const char *path, int fd);
/* Removes every guest mapping (exec, end). */
void space_clear(struct space *s);

/* ---- the task ---- */

enum { TASK_XSAVE_MAX = 4096 };

struct task;

struct effects { /* memory the kernel set during one event; grows; bytes are copied at event_commit */
    struct trace_effect *v;
    uint32_t count, capacity;
};

struct sys_call { /* one system call in flight */
    uint32_t nr;
    uint64_t args[6];
    int64_t result;
    bool restart; /* interrupted before it did anything, to be restarted after the signal's handler */
};

/* The start of struct task is known to generated code and entry.S by the offsets in core/task.h. */
#include "engine/core/task.h"

/* ---- events (core/event.c, FAST) ---- */

void effects_grow(struct effects *e);
/* Adds guest memory [addr, addr+len) to the event being built (t->effects). FAST. len 0 is ignored. */
void effect_add(struct task *t, uint64_t addr, uint64_t len);
/* The same for those pages of [addr, end) that can be read, as EFF_FILE: the file shown there has changed.
 * FAST. */
void effect_add_file(struct task *t, uint64_t addr, uint64_t end);
/* Adds MAP_OP_RESIZE: the file that is the object has `size` bytes. FAST. */
void event_resize(struct task *t, uint16_t object, uint64_t size);
/* Adds one change of the address space to the event being built. Not FAST. path may be NULL. */
void event_map(struct task *t, const struct trace_map *map, const char *path);
/* A warning for people: into the trace, printed by `clio record` at the end. Each distinct text once per
 * process. */
void event_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the space naming a missing feature: REC_END END_UNSUPPORTED, and the process with status 3. */
_Noreturn void event_unsupported(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- guest memory (core/entry.S) ---- */

/* Copies n bytes with faults tolerated; returns the number of bytes NOT copied. FAST. */
size_t safe_copy(void *to, const void *from, size_t n);
/* Fault-tolerant reads of guest memory: 0 or -EFAULT. FAST. */
static inline int guest_read(void *to, uint64_t addr, size_t n)
{
    return safe_copy(to, (const void *)addr, n) ? -14 : 0;
}
static inline int guest_write(uint64_t addr, const void *from, size_t n)
{
    return safe_copy((void *)addr, from, n) ? -14 : 0;
}
/* Copies a NUL-terminated string; returns its length, -EFAULT, or -ENAMETOOLONG when it does not fit. FAST.
 */
int64_t guest_string(char *to, size_t size, uint64_t addr);

/*
 * Performs a system call for the guest. Before entering the kernel and until it has returned, a signal that
 * the handler queued for the guest makes it return -EINTR, or (when the kernel would restart the call, or has
 * not yet begun it) sets c->restart. Sets c->result and returns it. FAST.
 */
int64_t task_syscall(struct task *t, struct sys_call *c);

/* ---- system calls (kernel/) ---- */

enum sys_flag {
    SYS_NOT_FAST =
        1, /* needs libc, so vector registers are saved first; set automatically for rows with `record` */
    SYS_BOTH = 2, /* `both` runs in record and in replay, instead of the call itself (process.c, signals.c) */
    SYS_SEEN = 4, /* has no memory effects at all: a row, but nothing to do */
    SYS_TEMPMASK = 8, /* installs a temporary signal mask (sigsuspend, ppoll, pselect6, epoll_pwait) */
    SYS_WRITES = 16,  /* writes to a descriptor: output flags, and mapped files may change */
};

/* Performs call c for record: the kernel call, its effects, guest bookkeeping. Returns the guest's rax. */
typedef int64_t sys_record_fn(struct task *t, struct sys_call *c);

/* code invalidation (translate/): guest code in [start, end) changed or went away */
void code_invalidate(uint64_t start, uint64_t end);
/* executable guest memory appeared; after it has */
void code_mapped(const struct vma *v);

/* ---- host descriptors (kernel/hostfd.c) ---- */

/* Moves a descriptor of ours to where the guest does not see it, close-on-exec. Returns the new number. */
int hostfd_hide(int fd);
void hostfd_close(int fd);
/* True when fd is one of ours. FAST. */
bool hostfd_is(int64_t fd);
/* The guest wants descriptor number fd (dup2, dup3, F_DUPFD): moves ours away if it is there. */
void hostfd_make_way(int fd);

/* ---- the whole ---- */

struct engine {
    enum engine_mode mode;
    struct space space;
    struct task *task;
    int trace_dir; /* hidden descriptor of the trace directory; re-read after hostfd_make_way */
    int store;     /* hidden descriptor of the connection to the store */
    struct ring_control *control;
    struct ring_header *ring;
    uint32_t space_number;
    int cpu_level;
    bool aslr;
    bool slow_calls; /* every system call goes through exit_syscall: replay, logging */
};
extern struct engine engine;

#endif
