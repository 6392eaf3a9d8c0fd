/* Code that changes under the translator's feet: by permissions, by the kernel, through other views, over the border of a
 * page, after fork. Each piece runs before and after. */
// VARIANTS: o2 static
#include "guest.h"
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    P = 4096,
    RWX = PROT_READ | PROT_WRITE | PROT_EXEC,
    RW = PROT_READ | PROT_WRITE,
    RX = PROT_READ | PROT_EXEC
};
enum { ANON = MAP_PRIVATE | MAP_ANONYMOUS };

static uint8_t *room(int pages, int prot)
{
    uint8_t *r = mmap(NULL, (size_t)(pages + 32) * P, PROT_NONE, ANON, -1, 0);
    return mmap(r + 16 * P, (size_t)pages * P, prot, ANON | MAP_FIXED, -1, 0);
}

static void put_return(uint8_t *p, int value)
{
    p[0] = 0xb8; /* mov eax, imm32; ret */
    memcpy(p + 1, &value, 4);
    p[5] = 0xc3;
}

static int run(const void *p)
{
    return ((int (*)(void))p)();
}

/* ---- permissions ---- */

static void protect_as_it_is(void)
{
    uint8_t *m = room(4, RWX);
    int bad = 0;
    for (int i = 0; i < 40; i++) {
        put_return(m + (i % 4) * P, i);
        bad += run(m + (i % 4) * P) != i;
        mprotect(m, (size_t)(i % 4 + 1) * P, RWX);
        put_return(m + (i % 4) * P, i + 1000);
        bad += run(m + (i % 4) * P) != i + 1000;
    }
    is(bad, 0, "mprotect that asks for what the pages have");
    bad = 0;
    for (int i = 0; i < 30; i++) {
        put_return(m, i);
        bad += run(m) != i;
        mprotect(m + P, P, i & 1 ? PROT_READ : RWX); /* several mappings, one of them changes */
        mprotect(m, 4 * P, RWX);
        put_return(m, -i);
        bad += run(m) != -i;
    }
    is(bad, 0, "mprotect over several mappings of which one changes");
    munmap(m + 2 * P, P);
    bad = 0;
    for (int i = 0; i < 10; i++) {
        put_return(m, i);
        bad += run(m) != i;
        bad += mprotect(m, 4 * P, RWX) != -1 || errno != ENOMEM; /* up to the hole */
        put_return(m, i + 7);
        bad += run(m) != i + 7;
    }
    is(bad, 0, "mprotect that fails half the way");
}

static void protect_otherwise(void)
{
    static const int ways[][3] = {
        {RW, RX, 0}, {PROT_NONE, RX, 0}, {RW, PROT_EXEC, 0}, {PROT_WRITE, RWX, 0}, {RW, PROT_READ, RX}};
    uint8_t *m = room(1, RWX);
    int bad = 0;
    for (int i = 0; i < 100; i++) {
        const int *w = ways[i % 5];
        mprotect(m, P, RWX);
        put_return(m, i);
        bad += run(m) != i;
        mprotect(m, P, w[0]);
        if (w[0] & PROT_WRITE)
            put_return(m, ++i);
        mprotect(m, P, w[1]);
        if (w[2])
            mprotect(m, P, w[2]);
        bad += run(m) != i;
    }
    is(bad, 0, "mprotect of other kinds");
    syscall(SYS_pkey_mprotect, m, P, RWX, -1);
    put_return(m, 5);
    is(run(m), 5, "pkey_mprotect");
}

/* ---- the kernel writes ---- */

static void by_the_kernel(void)
{
    uint8_t *m = room(2, RWX), code[6];
    int p[2], s[2], bad[6] = {0};
    pipe(p);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
    for (int i = 0; i < 20; i++) {
        struct iovec here = {code, 6}, there = {m, 6}, split[2] = {{m, 2}, {m + 2, 4}};
        struct msghdr h = {.msg_iov = split, .msg_iovlen = 2};
        struct mmsghdr mm = {.msg_hdr = h};
        put_return(code, 100 + i), send(s[1], code, 6, 0), recvmsg(s[0], &h, 0);
        bad[0] += run(m) != 100 + i;
        put_return(code, 200 + i), send(s[1], code, 6, 0), recv(s[0], m, 6, 0);
        bad[1] += run(m) != 200 + i;
        put_return(code, 300 + i);
        bad[2] += process_vm_writev(getpid(), &here, 1, &there, 1, 0) != 6 || run(m) != 300 + i;
        put_return(code, 400 + i);
        bad[3] += process_vm_readv(getpid(), &there, 1, &here, 1, 0) != 6 || run(m) != 400 + i;
        put_return(code, 500 + i), send(s[1], code, 6, 0), recvmmsg(s[0], &mm, 1, 0, NULL);
        bad[4] += run(m) != 500 + i;
        put_return(code, 600 + i), write(p[1], code, 6), readv(p[0], split, 2);
        bad[5] += run(m) != 600 + i;
        mprotect(m, P, RWX);
    }
    is(bad[0], 0, "recvmsg");
    is(bad[1], 0, "recv");
    is(bad[2], 0, "process_vm_writev to oneself");
    is(bad[3], 0, "process_vm_readv from oneself");
    is(bad[4], 0, "recvmmsg");
    is(bad[5], 0, "readv");
    close(p[0]), close(p[1]), close(s[0]), close(s[1]);
}

/* ---- other views ---- */

static void views(void)
{
    int fd = memfd_create("code", 0), bad = 0;
    ftruncate(fd, 4 * P);
    uint8_t *x = mmap(NULL, 4 * P, RX, MAP_SHARED, fd, 0), *w = mmap(NULL, 4 * P, RW, MAP_SHARED, fd, 0);
    put_return(w, 1), put_return(w + P, 2);
    bad = run(x) != 1 || run(x + P) != 2;
    mprotect(w, 4 * P, RW);
    put_return(w, 3);
    ok(!bad && run(x) == 3, "a view that mprotect leaves as it is");
    mprotect(w, 4 * P, PROT_NONE);
    run(x);
    mprotect(w, 4 * P, RW);
    put_return(w, 4);
    is(run(x), 4, "a view made none and writable again");
    uint8_t *late = mmap(NULL, P, RW, MAP_SHARED, fd, P);
    put_return(late, 5);
    is(run(x + P), 5, "a view that appears later");
    uint8_t *alias = mremap(w, 0, 4 * P, MREMAP_MAYMOVE);
    put_return(alias + P, 6);
    is(run(x + P), 6, "a view made by mremap with length 0");
    uint8_t *moved = mremap(w, 4 * P, 4 * P, MREMAP_MAYMOVE | MREMAP_FIXED, room(4, PROT_NONE));
    put_return(moved, 7);
    bad = run(x) != 7;
    put_return(moved, 8);
    ok(!bad && run(x) == 8, "a view that was moved");
    munmap(moved, 4 * P);
    bad = run(x) != 8;
    moved = mmap(moved, 4 * P, RW, MAP_SHARED | MAP_FIXED, fd, 0);
    put_return(moved, 9);
    bad |= run(x) != 9;
    put_return(moved, 10);
    ok(!bad && run(x) == 10, "a view unmapped and mapped again");
    put_return(moved + 2 * P, 1);
    run(x + 2 * P);
    madvise(moved + 2 * P, P, MADV_REMOVE);
    put_return(moved + 2 * P + 16, 11);
    ok(x[2 * P] == 0 && run(x + 2 * P + 16) == 11, "MADV_REMOVE through another view");
    put_return(moved + 3 * P, 1);
    run(x + 3 * P);
    fallocate(fd, 3 /* punch hole, keep size */, 3 * P, P);
    bad = x[3 * P] != 0;
    put_return(moved + 3 * P, 12);
    ok(!bad && run(x + 3 * P) == 12, "a hole punched");
    uint8_t code[6];
    put_return(code, 13);
    pwrite(fd, code, 6, 0);
    is(run(x), 13, "pwrite to the memory's file");
    uint8_t *xw = mmap(NULL, P, RWX, MAP_SHARED, fd, 0);
    bad = run(xw) != 13;
    put_return(xw, 14);
    bad |= run(xw) != 14 || run(x) != 14;
    put_return(moved, 15);
    ok(!bad && run(xw) == 15 && run(x) == 15, "two executable views, one of them writable");
    close(fd);
}

static void system_v(void)
{
    int id = shmget(IPC_PRIVATE, 2 * P, IPC_CREAT | 0600), bad = 0;
    uint8_t *x = shmat(id, NULL, SHM_EXEC), *w;
    put_return(x, 1);
    bad = run(x) != 1;
    w = shmat(id, NULL, 0);
    put_return(w, 2);
    bad |= run(x) != 2;
    put_return(w, 3);
    ok(!bad && run(x) == 3, "System V shared memory attached twice");
    uint8_t *over = room(2, RWX);
    put_return(over, 4);
    bad = run(over) != 4;
    put_return(w, 5);
    bad |= shmat(id, over, SHM_REMAP | SHM_EXEC) != over || run(over) != 5;
    put_return(w, 6);
    ok(!bad && run(over) == 6 && run(x) == 6, "attached over code");
    bad = shmdt(w) || run(x) != 6;
    put_return(x, 7);
    ok(!bad && run(over) == 7, "one view detached");
    shmctl(id, IPC_RMID, NULL);
}

/* ---- mappings ---- */

static void mappings(void)
{
    uint8_t *m = room(8, RWX);
    int bad = 0;
    put_return(m, 1), run(m);
    uint8_t *other = room(1, RWX);
    put_return(other, 2), run(other);
    mremap(other, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, m);
    is(run(m), 2, "mremap over code");
    put_return(m, 3);
    is(run(m), 3, "... and stores there");
    put_return(m + P, 4), run(m + P);
    mmap(m + P, P, RWX, ANON | MAP_FIXED, -1, 0);
    put_return(m + P, 5);
    is(run(m + P), 5, "MAP_FIXED over code");
    uint8_t *grown = room(1, RWX);
    put_return(grown, 6), bad = run(grown) != 6;
    munmap(grown + P, 4 * P);
    bad |= mremap(grown, P, 4 * P, 0) != grown || run(grown) != 6;
    put_return(grown, 7), put_return(grown + 3 * P, 8);
    ok(!bad && run(grown) == 7 && run(grown + 3 * P) == 8, "a mapping with code that grows in place");
    uint8_t *away = mremap(grown, 4 * P, 6 * P, MREMAP_MAYMOVE);
    put_return(away + P, 9);
    ok(run(away) == 7 && run(away + 3 * P) == 8 && run(away + P) == 9, "... and that moves");
    put_return(away + 2 * P, 10), run(away + 2 * P);
    madvise(away + 2 * P, P, MADV_DONTNEED);
    bad = away[2 * P] != 0;
    put_return(away + 2 * P, 11);
    ok(!bad && run(away + 2 * P) == 11, "MADV_DONTNEED");
}

static void files(void)
{
    int fd = open("code", O_RDWR | O_CREAT | O_TRUNC, 0700), bad = 0;
    uint8_t code[2 * P];
    memset(code, 0xc3, sizeof code);
    put_return(code, 1);
    pwrite(fd, code, sizeof code, 0);
    uint8_t *x = mmap(NULL, 2 * P, RX, MAP_PRIVATE, fd, 0);
    bad = run(x) != 1;
    put_return(code, 2);
    pwrite(fd, code, 6, 0);
    ok(!bad && run(x) == 2, "a private mapping whose file is written");
    uint8_t *w = mmap(NULL, 2 * P, RW, MAP_SHARED, fd, 0);
    put_return(w, 3);
    bad = run(x) != 3;
    put_return(w, 4);
    ok(!bad && run(x) == 4, "... through a shared mapping");
    put_return(w + P, 5);
    bad = run(x + P) != 5;
    ftruncate(fd, P);
    ftruncate(fd, 2 * P);
    put_return(w + P, 6);
    ok(!bad && run(x + P) == 6, "... and cut");
    mprotect(x, P, RWX);
    put_return(x, 7);
    bad = run(x) != 7;
    put_return(w, 8);
    ok(!bad && run(x) == 7, "a page of its own is left alone by the file");
    madvise(x, P, MADV_DONTNEED);
    is(run(x), 8, "... until it is dropped");
    close(fd);
}

/* ---- the border of a page ---- */

static void border(void)
{
    uint8_t *m = room(2, RWX), *at = m + P - 3; /* the imm32 crosses */
    int bad = 0;
    for (int i = 0; i < 20; i++) {
        put_return(at, i * 0x01010101);
        bad += run(at) != i * 0x01010101;
        m[P] = (uint8_t)(i + 1);
        bad += (run(at) >> 16 & 0xff) != i + 1;
        mprotect(m + P, P, RWX);
        m[P + 1] = 0;
        bad += run(at) >> 24;
        mprotect(m, P, RX); /* the page before changes, not this one */
        m[P + 1] = 1;
        bad += run(at) >> 24 != 1;
        mprotect(m, P, RWX);
    }
    is(bad, 0, "an instruction that crosses into a page that changes");
    put_return(at, 5), run(at);
    mmap(m + P, P, RWX, ANON | MAP_FIXED, -1, 0);
    put_return(at, 6);
    is(run(at), 6, "... that is mapped anew");
}

static volatile sig_atomic_t faults;
static void *fault_at;
static uint8_t *fault_page;
static void on_fault(int signo, siginfo_t *info, void *context)
{
    faults++;
    fault_at = info->si_addr;
    if (mprotect(fault_page, P, RWX))
        mmap(fault_page, P, RWX, ANON | MAP_FIXED, -1, 0);
    fault_page[2] = 0xc3; /* the end of what put_return had put there */
}

static void border_gone(void)
{
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &a, NULL);
    uint8_t *m = room(2, RWX), *at = m + P - 3;
    fault_page = m + P;
    put_return(at, 0x1234), run(at);
    mprotect(m + P, P, RW);
    is(run(at), 0x1234, "an instruction whose end may not be executed");
    ok(faults == 1 && fault_at == m + P, "... faults at the page");
    munmap(m + P, P);
    is(run(at), 0x1234, "an instruction whose end is unmapped");
    ok(faults == 2 && fault_at == m + P, "... faults at the page");
    signal(SIGSEGV, SIG_DFL);
}

/* ---- patching ---- */

/* Jumps and calls replaced by one store while a loop runs through them. */
static void patching(void)
{
    uint8_t *m = room(2, RWX);
    put_return(m + 100, 1), put_return(m + 200, 2), put_return(m + P + 100, 3);
    static const int targets[] = {100, 200, P + 100};
    int bad = 0;
    for (int i = 0; i < 300; i++) {
        int32_t to = targets[i % 3];
        uint8_t jump[8] = {0xe9};
        uint64_t word;
        to -= 16 + 5;
        memcpy(jump + 1, &to, 4);
        memcpy(&word, jump, 8);
        __atomic_store_n((uint64_t *)(m + 16), word, __ATOMIC_SEQ_CST);
        bad += run(m + 16) != i % 3 + 1;
        if (i % 50 == 0)
            mprotect(m, P, RWX);
    }
    is(bad, 0, "a jump patched again and again");
    /* call rel32 at 8 of a loop: each callee makes the caller call the next one */
    bad = 0;
    uint8_t *f = m + 512;
    static const uint8_t loop[] = {0x31, 0xc0,                    /* xor eax, eax */
                                   0xb9, 50,   0,    0,    0,     /* mov ecx, 50 */
                                   0xe8, 0,    0,    0,    0,     /* 7: call */
                                   0xff, 0xc9, 0x75, 0xf7, 0xc3}; /* dec ecx; jnz 7; ret */
    static const uint8_t one[] = {0x83, 0xc0, 1, 0x80, 0x35, 0,
                                  0,    0,    0, 0,    0xc3}; /* add eax,1; xor byte [rel], imm */
    memcpy(f, loop, sizeof loop);
    memcpy(f + 64, one, sizeof one);
    memcpy(f + 96, one, sizeof one);
    f[98] = 100; /* the other adds 100 */
    f[8] = 64 - 12;
    f[73] = f[105] = (64 - 12) ^ (96 - 12);
    int32_t d = 8 - 64 - 10;
    memcpy(f + 69, &d, 4);
    d = 8 - 96 - 10;
    memcpy(f + 101, &d, 4);
    for (int i = 0; i < 5; i++)
        bad += run(f) != 25 * 101;
    is(bad, 0, "a call that its callee patches");
}

/* A page with code and data, both of them busy. */
static void busy_page(void)
{
    uint8_t *m = room(1, RWX);
    /* add dword [rip+d], 1 (of the same page); mov eax, [rip+d]; ret */
    static const uint8_t code[] = {0x83, 0x05, 0, 0, 0, 0, 1, 0x8b, 0x05, 0, 0, 0, 0, 0xc3};
    memcpy(m, code, sizeof code);
    int32_t d = 2048 - 7;
    memcpy(m + 2, &d, 4);
    d = 2048 - 13;
    memcpy(m + 9, &d, 4);
    int bad = 0;
    for (int i = 1; i <= 5000; i++)
        bad += run(m) != i;
    is(bad, 0, "code that counts in its own page");
    bad = 0;
    for (int i = 0; i < 300; i++) { /* by now the page is known for its stores */
        put_return(m + 100, i);
        bad += run(m + 100) != i;
        m[101]++;
        bad += (run(m + 100) & 0xff) != ((i + 1) & 0xff);
        put_return(m + P - 6, i);
        bad += run(m + P - 6) != i || run(m) != 5001 + i;
    }
    is(bad, 0, "... and changes");
    /* xor eax, eax; mov ecx, 100; L: add eax, imm32; inc dword [its imm32]; dec ecx; jnz L; ret */
    static const uint8_t loop[] = {0x31, 0xc0, 0xb9, 100,  0,    0,    0,    0x05, 0,    0,    0,   0,
                                   0xff, 0x05, 0xf6, 0xff, 0xff, 0xff, 0xff, 0xc9, 0x75, 0xf1, 0xc3};
    memcpy(m + 512, loop, sizeof loop);
    is(run(m + 512), 99 * 100 / 2, "... in a loop that patches itself");
    /* carry must live through it: stc; jmp +0; setc al; movzx eax, al; ret */
    static const uint8_t carry[] = {0xf9, 0xeb, 0, 0x0f, 0x92, 0xc0, 0x0f, 0xb6, 0xc0, 0xc3};
    memcpy(m + 600, carry, sizeof carry);
    is(run(m + 600), 1, "... with flags kept");
    mprotect(m, P, RW | PROT_EXEC);
    uint8_t code6[6];
    int p[2];
    pipe(p);
    put_return(code6, 77), write(p[1], code6, 6), read(p[0], m + 100, 6);
    is(run(m + 100), 77, "... by the kernel");
    close(p[0]), close(p[1]);
}

__attribute__((noinline)) static int on_stack(int value)
{
    uint8_t code[64];
    uintptr_t page = (uintptr_t)code & ~(uintptr_t)(P - 1);
    mprotect((void *)page, 2 * P, RWX);
    put_return(code, value);
    int a = run(code);
    put_return(code, value + 1);
    int b = run(code);
    return a == value && b == value + 1;
}

static void stack(void)
{
    int bad = 0;
    for (int i = 0; i < 200; i++)
        bad += !on_stack(i);
    is(bad, 0, "code in the stack");
}

/* ---- fork ---- */

static void forked(void)
{
    uint8_t *m = room(1, RWX);
    int status;
    put_return(m, 1), run(m);
    pid_t pid = fork();
    if (!pid) {
        int a = run(m);
        put_return(m, 2);
        int b = run(m);
        mprotect(m, P, RWX);
        put_return(m, 3);
        _exit(a == 1 && b == 2 && run(m) == 3 ? 0 : 1);
    }
    put_return(m, 4);
    int mine = run(m);
    waitpid(pid, &status, 0);
    ok(!status && mine == 4 && run(m) == 4, "changed on both sides of a fork");
}

int main(void)
{
    protect_as_it_is();
    protect_otherwise();
    by_the_kernel();
    views();
    system_v();
    mappings();
    files();
    border();
    border_gone();
    patching();
    busy_page();
    stack();
    forked();
    return finish();
}
