/*
 * fake_engine.h: the engine around the kernel part, for tests without guest or translator. The test process
 * is its own guest: calls are made for real, effects are collected, notes are kept.
 */
#ifndef CLIO_TEST_FAKE_ENGINE_H
#define CLIO_TEST_FAKE_ENGINE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/event/event.h"
#include "engine/event/session.h"
#include "engine/guest/access.h"
#include "engine/host/raw.h"
#include "engine/kernel/files.h"
#include "engine/kernel/table.h"
#include "engine/kernel/vfork.h"
#include "engine/memory/space.h"
#include "pipe_copy.h"

/* The real one asks the store where the limits of files are in the way. */
int session_make_memory(const void *bytes, uint32_t size)
{
    int fd = memfd_create("proc", MFD_CLOEXEC);
    assert_int_equal(write(fd, bytes, size), size);
    return fd;
}

#define FAKE(name)                                                                                           \
    int64_t name(struct task *t, struct sys_call *c)                                                         \
    {                                                                                                        \
        return c->result = -ENOSYS;                                                                          \
    }
/* Calls of families that these tests do not link. */
FAKE(rec_memory_write)
FAKE(rec_personality)
FAKE(rec_process_madvise)
FAKE(rec_mmap)
FAKE(rec_munmap)
FAKE(rec_mprotect)
FAKE(rec_pkey_mprotect)
FAKE(rec_mremap)
FAKE(rec_brk)
FAKE(rec_madvise)
FAKE(rec_msync)
FAKE(rec_mlock)
FAKE(rec_mlock2)
FAKE(rec_munlock)
FAKE(rec_mlockall)
FAKE(rec_munlockall)
FAKE(rec_mincore)
FAKE(rec_shmget)
FAKE(rec_shmat)
FAKE(rec_shmctl)
FAKE(rec_shmdt)
FAKE(rec_remap_file_pages)
FAKE(rec_mseal)
FAKE(both_fork)
FAKE(both_vfork)
FAKE(both_clone)
FAKE(both_clone3)
FAKE(both_execve)
FAKE(both_execveat)
FAKE(both_exit)
FAKE(both_exit_group)
FAKE(rec_set_tid_address)
FAKE(rec_wait)
FAKE(rec_set_robust_list)
FAKE(rec_rt_sigaction)
FAKE(rec_rt_sigprocmask)
FAKE(both_rt_sigreturn)
FAKE(rec_sigaltstack)
FAKE(rec_rt_sigsuspend)

void signals_sets(uint64_t *ignored, uint64_t *caught)
{
    *ignored = *caught = 0;
}

int vfork_keeper;
bool slow_wait4(const struct sys_call *c)
{
    return false;
}
bool slow_waitid(const struct sys_call *c)
{
    return false;
}

int64_t selfmem_opened(int fd)
{
    return fd;
}

struct engine engine = {.trace_dir = -1, .store = -1};
struct space guest_space;
static struct task fake_task;
static char fake_notes[4096];

void effect_add(struct task *t, uint64_t addr, uint64_t len)
{
    if (!len)
        return;
    if (t->effects.count == t->effects.capacity) {
        t->effects.capacity = t->effects.capacity ? 2 * t->effects.capacity : 64;
        t->effects.v = realloc(t->effects.v, t->effects.capacity * sizeof *t->effects.v);
    }
    t->effects.v[t->effects.count++] = (struct trace_effect){addr, (uint32_t)len, 0};
}

void effect_add_file(struct task *t, uint64_t addr, uint64_t end)
{
    if (addr >= end)
        return;
    effect_add(t, addr, end - addr);
    t->effects.v[t->effects.count - 1].flags = EFF_FILE;
}

static uint64_t fake_resized; /* the last size */

void event_resize(struct task *t, uint16_t object, uint64_t size)
{
    fake_resized = size;
}

void event_note(const char *format, ...)
{
    size_t used = strlen(fake_notes);
    va_list args;
    va_start(args, format);
    vsnprintf(fake_notes + used, sizeof fake_notes - used, format, args);
    va_end(args);
}

/* The kernel copies, so that no fault reaches us. */
size_t safe_copy(void *to, const void *from, size_t n)
{
    return n - pipe_copy(to, from, n);
}

int64_t guest_string(char *to, size_t size, uint64_t addr)
{
    for (size_t i = 0; i < size; i++) {
        if (safe_copy(to + i, (const void *)(addr + i), 1))
            return -EFAULT;
        if (!to[i])
            return (int64_t)i;
    }
    return -ENAMETOOLONG;
}

int64_t task_syscall(struct task *t, struct sys_call *c)
{
    c->restart = false;
    return c->result = raw6(c->nr, c->args[0], c->args[1], c->args[2], c->args[3], c->args[4], c->args[5]);
}

void event_unsupported(const char *format, ...)
{
    fail_msg("%s", format);
    abort();
}

void signals_note_temp_mask(struct task *t, const struct sys_call *c)
{
}

struct vma *space_at_or_above(const struct space *s, uint64_t addr)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->vmas[i].end > addr)
            return &s->vmas[i];
    return NULL;
}

bool space_allows(const struct space *s, uint64_t addr, uint64_t len, uint32_t prot)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->vmas[i].start <= addr && addr + len <= s->vmas[i].end)
            return (s->vmas[i].prot & prot) == prot;
    return false;
}

/* Performs a call as the engine would while recording. Effects start anew. */
__attribute__((unused)) static int64_t fake_call6(uint32_t nr, const uint64_t args[6])
{
    struct sys_call c = {.nr = nr};
    memcpy(c.args, args, sizeof c.args);
    fake_task.effects.count = 0;
    if (!sys_record_fast(&fake_task, &c))
        sys_record(&fake_task, &c);
    return c.result;
}
#define A(x)            ((uint64_t)(x))
#define CALL(name, ...) fake_call6(SYS_##name, (uint64_t[6]){__VA_ARGS__})

/* Adds a mapping to the fake guest's space; keep ascending. */
__attribute__((unused)) static struct vma *fake_map(void *start, uint64_t len, uint32_t prot, bool shared)
{
    struct space *s = &guest_space;
    s->vmas = realloc(s->vmas, (s->count + 1) * sizeof *s->vmas);
    uint32_t at = s->count++;
    while (at && s->vmas[at - 1].start > A(start)) {
        s->vmas[at] = s->vmas[at - 1];
        at--;
    }
    s->vmas[at] = (struct vma){.start = A(start), .end = A(start) + len, .prot = prot, .shared = shared};
    return &s->vmas[at];
}

#endif
