/*
 * engine_fakes.h: the engine's surroundings for unit tests of src/engine/load and kernel/memory.c: one event
 * being recorded in memory, a store in a thread that keeps what it captures, and fault-tolerant copies by the
 * kernel.
 */
#ifndef CLIO_TESTS_UNIT_ENGINE_FAKES_H
#define CLIO_TESTS_UNIT_ENGINE_FAKES_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/memory/replica.h"
#include "engine/memory/space.h"
#include "protocol/store.h"
#include "pipe_copy.h"

struct engine engine;
static struct task fake_task;

/* ---- the event being recorded ---- */

struct fake_map {
    struct trace_map map;
    char *path;
};
static struct fake_map *fake_maps;
static uint32_t fake_nmaps;

struct fake_effect {
    uint64_t addr, len;
    uint8_t *bytes; /* after fake_commit */
    bool file;      /* EFF_FILE */
};
static struct fake_effect *fake_effects;
static uint32_t fake_neffects;

static char fake_note[512]; /* the last one */
static uint32_t fake_notes;

static uint64_t fake_invalidated[64][2];
static uint32_t fake_ninvalidated;

size_t safe_copy(void *to, const void *from, size_t n)
{
    return n - pipe_copy(to, from, n);
}

void effect_add(struct task *t, uint64_t addr, uint64_t len)
{
    assert_ptr_equal(t, &fake_task);
    if (!len)
        return;
    fake_effects = realloc(fake_effects, (fake_neffects + 1) * sizeof *fake_effects);
    fake_effects[fake_neffects++] = (struct fake_effect){addr, len, NULL, false};
}

void effect_add_file(struct task *t, uint64_t addr, uint64_t end)
{
    char byte;
    for (uint64_t next; addr < end; addr = next) {
        next = PAGE_DOWN(addr) + PAGE_SIZE < end ? PAGE_DOWN(addr) + PAGE_SIZE : end;
        if (safe_copy(&byte, (void *)addr, 1))
            continue;
        struct fake_effect *last = fake_neffects ? &fake_effects[fake_neffects - 1] : NULL;
        if (last && last->file && !last->bytes && last->addr + last->len == addr) {
            last->len += next - addr;
            continue;
        }
        effect_add(t, addr, next - addr);
        fake_effects[fake_neffects - 1].file = true;
    }
}

void event_map(struct task *t, const struct trace_map *map, const char *path)
{
    assert_ptr_equal(t, &fake_task);
    fake_maps = realloc(fake_maps, (fake_nmaps + 1) * sizeof *fake_maps);
    fake_maps[fake_nmaps++] = (struct fake_map){*map, path ? strdup(path) : NULL};
}

void event_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(fake_note, sizeof fake_note, format, args);
    va_end(args);
    fake_notes++;
}

_Noreturn void event_unsupported(const char *format, ...)
{
    fail_msg("unsupported: %s", format);
    abort();
}

void code_mapped(const struct vma *v)
{
}

bool watch_open(uint64_t start, uint64_t end)
{
    return false;
}

void watch_restore(uint64_t start, uint64_t end)
{
}

void code_invalidate(uint64_t start, uint64_t end)
{
    assert_true(start < end);
    if (fake_ninvalidated < 64) {
        fake_invalidated[fake_ninvalidated][0] = start;
        fake_invalidated[fake_ninvalidated][1] = end;
    }
    fake_ninvalidated++;
}

struct hostfd_table hostfd_table = {.fd = {[0 ... HOSTFD_MAX - 1] = -1}, .lowest = ~0ull};

int hostfd_keep(int fd)
{
    int handle = 0;
    while (handle < HOSTFD_MAX && hostfd_table.fd[handle] >= 0)
        handle++;
    assert_true(handle < HOSTFD_MAX);
    hostfd_table.fd[handle] = fd;
    return handle;
}

void hostfd_drop(int handle)
{
    if (hostfd(handle) >= 0)
        close(hostfd(handle));
    if (handle >= 0)
        hostfd_table.fd[handle] = -1;
}

static void fake_forget_event(void)
{
    for (uint32_t i = 0; i < fake_nmaps; i++)
        free(fake_maps[i].path);
    for (uint32_t i = 0; i < fake_neffects; i++)
        free(fake_effects[i].bytes);
    free(fake_maps);
    free(fake_effects);
    fake_maps = NULL;
    fake_effects = NULL;
    fake_nmaps = fake_neffects = fake_notes = fake_ninvalidated = 0;
    fake_note[0] = 0;
}

/* Copies the effects' bytes as event_commit does: after the call, in the final state. */
void fake_commit(void)
{
    for (uint32_t i = 0; i < fake_neffects; i++) {
        struct fake_effect *e = &fake_effects[i];
        e->bytes = malloc(e->len);
        assert_int_equal(guest_read(e->bytes, e->addr, e->len), 0);
    }
}

/* Does in replay what the effect says; false where it cannot be. */
__attribute__((unused)) static bool fake_apply_effect(const struct fake_effect *e)
{
    for (uint64_t done = 0, n; done < e->len; done += n) {
        uint64_t at = e->addr + done;
        const struct vma *v = space_find(&guest_space, at);
        n = PAGE_DOWN(at) + PAGE_SIZE - at < e->len - done ? PAGE_DOWN(at) + PAGE_SIZE - at : e->len - done;
        bool in_file = v && e->file && v->object && !replica_copied(v, at);
        if (in_file ? replica_store(&guest_space, v, at, e->bytes + done, n) != 0
                    : safe_copy((void *)at, e->bytes + done, n) != 0)
            return false;
    }
    return true;
}

/* ---- the store ---- */

struct fake_file {
    uint8_t hash[32];
    int fd; /* memfd with the content */
};
static struct fake_file fake_files[256];
static uint32_t fake_nfiles, fake_requests;
static int fake_store_error; /* answered instead of capturing */

static int fake_file(const uint8_t hash[32])
{
    for (uint32_t i = 0; i < fake_nfiles; i++)
        if (!memcmp(fake_files[i].hash, hash, 32))
            return fake_files[i].fd;
    return -1;
}

/* For replica_open. */
__attribute__((unused)) static int fake_open(const uint8_t hash[32])
{
    return dup(fake_file(hash));
}

void fake_forget_files(void)
{
    while (fake_nfiles)
        close(fake_files[--fake_nfiles].fd);
}

static void fake_capture(int fd, struct store_reply *reply)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, 32);
    static char buffer[1 << 16];
    int copy = memfd_create("captured", MFD_CLOEXEC);
    ssize_t n;
    for (uint64_t at = 0; (n = pread(fd, buffer, sizeof buffer, (off_t)at)) > 0; at += (uint64_t)n) {
        crypto_generichash_update(&state, (uint8_t *)buffer, (size_t)n);
        reply->size += (uint64_t)write(copy, buffer, (size_t)n);
    }
    crypto_generichash_final(&state, reply->hash, 32);
    if (fake_file(reply->hash) >= 0) {
        close(copy);
        return;
    }
    if (fake_nfiles == sizeof fake_files / sizeof *fake_files)
        abort();
    memcpy(fake_files[fake_nfiles].hash, reply->hash, 32);
    fake_files[fake_nfiles++].fd = copy;
}

static void *fake_store(void *arg)
{
    int connection = (int)(intptr_t)arg;
    char text[5000];
    for (;;) {
        struct store_request request;
        struct iovec iov[2] = {{&request, sizeof request}, {text, sizeof text}};
        union {
            struct cmsghdr header;
            char space[CMSG_SPACE(2 * sizeof(int))];
        } control;
        struct msghdr message = {
            .msg_iov = iov, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
        if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) <= 0)
            break;
        int fds[2];
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
        struct store_reply reply = {.error = fake_store_error};
        if (request.op == STORE_FILE && !reply.error)
            fake_capture(fds[1], &reply);
        fake_requests++;
        send(fds[0], &reply, sizeof reply, MSG_NOSIGNAL);
        close(fds[0]);
        close(fds[1]);
    }
    close(connection);
    return NULL;
}

static int fake_engine_begin(void **state)
{
    int pair[2];
    pthread_t thread;
    if (sodium_init() < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return -1;
    engine = (struct engine){
        .mode = ENGINE_RECORD, .task = &fake_task, .trace_dir = -1, .store = hostfd_keep(pair[0])};
    return pthread_create(&thread, NULL, fake_store, (void *)(intptr_t)pair[1]);
}

static int fake_event_begin(void **state)
{
    fake_forget_event();
    engine.mode = ENGINE_RECORD;
    replica_open = fake_open;
    return 0;
}

#endif
