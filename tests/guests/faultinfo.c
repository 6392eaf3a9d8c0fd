/*
 * What a program is told of its faults: signal, code, address, instruction, trap number, error code and cr2 for every kind
 * of instruction that raises one. Expectations are the processor's and the kernel's: what they may differ in is not printed.
 */
// VARIANTS: o2 nopie
// FLAGS: -fno-delete-null-pointer-checks
#include "guest.h"
#include <setjmp.h>
#include <ucontext.h>

static sigjmp_buf back;
static struct {
    int sig, code;
    uint64_t addr, rip, trap, err, cr2, rsp, flags;
} got;

static void handler(int s, siginfo_t *i, void *v)
{
    const greg_t *g = ((ucontext_t *)v)->uc_mcontext.gregs;
    got.sig = s;
    got.code = i->si_code;
    got.addr = (uint64_t)i->si_addr;
    got.rip = (uint64_t)g[REG_RIP];
    got.trap = (uint64_t)g[REG_TRAPNO];
    got.err = (uint64_t)g[REG_ERR];
    got.cr2 = (uint64_t)g[REG_CR2];
    got.rsp = (uint64_t)g[REG_RSP];
    got.flags = (uint64_t)g[REG_EFL];
    siglongjmp(back, 1);
}

/* An address below 4096 of code, or of data, is shown relative to it. */
static uint8_t *code, *data;

static void show(const char *name, uint64_t value, bool last)
{
    if (value - (uint64_t)code < 8192)
        say(" %s code+%ld", name, (long)(value - (uint64_t)code));
    else if (value - (uint64_t)data < 16384)
        say(" %s data+%ld", name, (long)(value - (uint64_t)data));
    else
        say(" %s %#lx", name, (long)value);
    if (last)
        say("\n");
}

static void report(const char *name)
{
    say("%s: signal %d code %d", name, got.sig, got.code);
    show("address", got.addr, false);
    show("rip", got.rip, false);
    show("trap", got.trap, false);
    show("error", got.err, false);
    show("cr2", got.trap == 14 ? got.cr2 : 0, true);
}

static void run_at(const char *name, void (*f)(uint64_t, uint64_t, uint64_t, uint64_t))
{
    memset(&got, 0, sizeof got);
    if (!sigsetjmp(back, 1))
        f((uint64_t)data, 0x8000000000000000, 0, 0x7ffffffffff0);
    if (got.sig)
        report(name);
    else
        say("%s: nothing\n", name);
}

/* rdi: data, rsi: no address, rdx: 0, rcx: just below the end of user space */
static const struct {
    const char *name;
    unsigned n;
    uint8_t b[24];
} table[] = {
    {"int3", 1, {0xcc}},
    {"int 3", 2, {0xcd, 3}},
    {"int1", 1, {0xf1}},
    {"int1 behind others", 4, {0x90, 0x48, 0x90, 0xf1}},
    {"int 0", 2, {0xcd, 0}},
    {"int 1", 2, {0xcd, 1}},
    {"int 4", 2, {0xcd, 4}},
    {"int 13", 2, {0xcd, 13}},
    {"int 255", 2, {0xcd, 255}},
    {"into", 1, {0xce}},
    {"bound or evex", 2, {0x62, 0x00}},
    {"ud0", 3, {0x0f, 0xff, 0xc0}},
    {"ud1", 3, {0x0f, 0xb9, 0xc0}},
    {"ud2", 2, {0x0f, 0x0b}},
    {"aaa", 1, {0x37}},
    {"lock nop", 2, {0xf0, 0x90}},
    {"lock mov", 4, {0xf0, 0x48, 0x89, 0x07}},
    {"mov to cs", 2, {0x8e, 0xc8}},
    {"mov cr8", 4, {0x44, 0x0f, 0x20, 0xc0}},
    {"mov dr7", 3, {0x0f, 0x21, 0xf8}},
    {"hlt", 1, {0xf4}},
    {"sti", 1, {0xfb}},
    {"out", 1, {0xee}},
    {"insb", 1, {0x6c}},
    {"rdmsr", 2, {0x0f, 0x32}},
    {"wrmsr", 2, {0x0f, 0x30}},
    {"rdpmc of nothing", 6, {0x83, 0xc9, 0xff, 0x0f, 0x33, 0x90}},
    {"invd", 2, {0x0f, 0x08}},
    {"wbinvd", 2, {0x0f, 0x09}},
    {"invlpg", 3, {0x0f, 0x01, 0x3f}},
    {"lgdt", 3, {0x0f, 0x01, 0x17}},
    {"lidt", 3, {0x0f, 0x01, 0x1f}},
    {"lldt", 3, {0x0f, 0x00, 0xd0}},
    {"ltr", 3, {0x0f, 0x00, 0xd8}},
    {"lmsw", 3, {0x0f, 0x01, 0xf0}},
    {"clts", 2, {0x0f, 0x06}},
    {"swapgs", 3, {0x0f, 0x01, 0xf8}},
    {"sysret", 3, {0x48, 0x0f, 0x07}},
    {"sysexit", 2, {0x0f, 0x35}},
    {"sixteen bytes",
     17,
     {0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x90}},
    {"mov ds, bad", 7, {0xb8, 0x57, 0, 0, 0, 0x8e, 0xd8}},
    {"mov ss, bad", 7, {0xb8, 0x57, 0, 0, 0, 0x8e, 0xd0}},
    {"mov ss, 0", 4, {0x31, 0xc0, 0x8e, 0xd0}},
    {"div by 0", 4, {0x31, 0xc9, 0xf7, 0xf1}},
    {"div by memory 0", 2, {0xf7, 0x37}},
    {"idiv overflow", 12, {0xb8, 0, 0, 0, 0x80, 0x99, 0x83, 0xc9, 0xff, 0xf7, 0xf9, 0x90}},
    {"movaps odd", 4, {0x0f, 0x28, 0x47, 0x01}},
    {"movaps odd, nowhere", 3, {0x0f, 0x28, 0x46}},
    {"load 0x20", 8, {0x48, 0x8b, 0x04, 0x25, 0x20, 0, 0, 0}},
    {"store 0x28", 8, {0x48, 0x89, 0x04, 0x25, 0x28, 0, 0, 0}},
    {"modify 0x30", 8, {0x48, 0xff, 0x04, 0x25, 0x30, 0, 0, 0}},
    {"prefetch 0", 3, {0x0f, 0x18, 0x0a}},
    {"load noncanonical", 3, {0x48, 0x8b, 0x06}},
    {"load across the end", 3, {0x48, 0x8b, 0x01}},
    {"load behind the end", 4, {0x48, 0x8b, 0x41, 0x10}},
    {"push noncanonical", 4, {0x48, 0x89, 0xf4, 0x50}},
    {"load by rbp noncanonical", 7, {0x48, 0x89, 0xf5, 0x48, 0x8b, 0x45, 0x08}},
    {"load by rsp noncanonical", 7, {0x48, 0x89, 0xf4, 0x48, 0x8b, 0x04, 0x24}},
    {"push, read-only", 8, {0x48, 0x8d, 0xa7, 0, 0x20, 0, 0, 0x50}},
    {"call, read-only stack", 12, {0x48, 0x8d, 0xa7, 0, 0x20, 0, 0, 0xe8, 0, 0, 0, 0}},
    {"call through memory, no stack", 10, {0x48, 0xc7, 0xc4, 0x10, 0, 0, 0, 0xff, 0xd7, 0x90}},
    {"ret, no stack", 8, {0x48, 0xc7, 0xc4, 0x10, 0, 0, 0, 0xc3}},
    {"pop rsp, no stack", 8, {0x48, 0xc7, 0xc4, 0x10, 0, 0, 0, 0x5c}},
    {"leave, no stack", 8, {0x48, 0xc7, 0xc5, 0x10, 0, 0, 0, 0xc9}},
    {"enter, no stack", 11, {0x48, 0xc7, 0xc4, 0x10, 0, 0, 0, 0xc8, 8, 0, 0}},
    {"call indirect through nowhere", 7, {0xff, 0x14, 0x25, 0x40, 0, 0, 0}},
    {"jump through nowhere", 7, {0xff, 0x24, 0x25, 0x48, 0, 0, 0}},
    {"rip-relative store to code", 7, {0x88, 0x05, 0xfa, 0xff, 0xff, 0xff, 0x90}},
    {"load, PROT_NONE", 7, {0x48, 0x8b, 0x87, 0, 0x20, 0, 0}},
    {"store, read-only", 7, {0x48, 0x89, 0x87, 0, 0x10, 0, 0}},
    {"store, read-only, second half", 7, {0x48, 0x89, 0x87, 0xfc, 0x0f, 0, 0}},
    {"rep movsb into read-only", 12, {0xb9, 0, 0x20, 0, 0, 0x48, 0x89, 0xfe, 0xf3, 0xa4, 0x90, 0x90}},
    {"cmpxchg16b odd", 5, {0x48, 0x0f, 0xc7, 0x4f, 0x01}},
    {"ldmxcsr reserved", 4, {0x0f, 0xae, 0x57, 0x40}},
    {"fxrstor odd", 4, {0x0f, 0xae, 0x4f, 0x08}},
    {"sse divide by 0",
     15,
     {0x0f, 0xae, 0x57, 0x44, 0x0f, 0x57, 0xc0, 0x0f, 0x28, 0x4f, 0x50, 0x0f, 0x5e, 0xc8, 0x90}},
    {"sse invalid", 11, {0x0f, 0xae, 0x57, 0x44, 0x0f, 0x57, 0xc0, 0x0f, 0x5e, 0xc0, 0x90}},
    {"x87 divide by 0", 12, {0xdb, 0xe3, 0xd9, 0x6f, 0x48, 0xd9, 0xe8, 0xd9, 0xee, 0xde, 0xf9, 0x9b}},
    {"x87 stack", 10, {0xdb, 0xe3, 0xd9, 0x6f, 0x48, 0xdd, 0xd8, 0x90, 0x90, 0x9b}},
    {"rsm", 2, {0x0f, 0xaa}},
};

static void instructions(void)
{
    for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++) {
        mprotect(code, 8192, PROT_READ | PROT_WRITE);
        memset(code, 0xc3, 4096);
        memcpy(code, table[i].b, table[i].n);
        mprotect(code, 8192, PROT_READ | PROT_EXEC);
        __asm__ volatile("fninit; ldmxcsr %0" : : "m"((uint32_t){0x1f80}));
        run_at(table[i].name, (void (*)(uint64_t, uint64_t, uint64_t, uint64_t))code);
        __asm__ volatile("fninit; ldmxcsr %0" : : "m"((uint32_t){0x1f80}));
    }
}

/* An instruction that begins on the last bytes of a page, with something else behind it. */
static void across_pages(void)
{
    static const uint8_t mov[10] = {0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8};
    mprotect(code, 8192, PROT_READ | PROT_WRITE);
    memcpy(code + 4096 - 5, mov, sizeof mov);
    code[4096 + 5] = 0xc3;
    mprotect(code, 8192, PROT_READ | PROT_EXEC);
    mprotect(code + 4096, 4096, PROT_READ);
    run_at("the second page may not run", (void *)(code + 4096 - 5));
    mprotect(code + 4096, 4096, PROT_NONE);
    run_at("the second page is forbidden", (void *)(code + 4096 - 5));
    munmap(code + 4096, 4096);
    run_at("there is no second page", (void *)(code + 4096 - 5));
    mmap(code + 4096, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void targets(void)
{
    run_at("jump to data", (void *)data);
    run_at("jump to read-only data", (void *)(data + 4096));
    run_at("jump to forbidden data", (void *)(data + 8192));
    run_at("jump to 0", NULL);
    run_at("jump to 0x1000", (void *)0x1000);
    run_at("jump to the kernel", (void *)0xffffffff80000000);
    munmap(data + 12288, 4096);
    run_at("jump to what was unmapped", (void *)(data + 12288));
    int fd = memfd_create("f", 0);
    ftruncate(fd, 4096);
    uint8_t *p = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    memset(&got, 0, sizeof got);
    if (!sigsetjmp(back, 1))
        ((void (*)(void))(p + 4096))();
    ok(got.sig == SIGBUS && got.code == BUS_ADRERR && got.addr == (uint64_t)p + 4096 && got.rip == got.addr &&
           got.trap == 14 && got.err == 0x14,
       "jump beyond the end of a file");
    memset(&got, 0, sizeof got);
    if (!sigsetjmp(back, 1))
        ok(p[4100] == 1, "read");
    ok(got.sig == SIGBUS && got.code == BUS_ADRERR && got.addr == (uint64_t)p + 4100 && got.trap == 14 &&
           got.err == 4,
       "load beyond the end of a file");
    munmap(p, 8192);
}

static void aligned(void)
{
    memset(&got, 0, sizeof got);
    if (!sigsetjmp(back, 1))
        __asm__ volatile("pushfq; orl $0x40000, (%%rsp); popfq\n movl 1(%0), %%eax\n pushfq; andl $~0x40000, "
                         "(%%rsp); popfq"
                         :
                         : "r"(data)
                         : "rax", "memory", "cc");
    __asm__ volatile("pushfq; andl $~0x40000, (%%rsp); popfq" : : : "memory", "cc");
    say("alignment check: signal %d code %d address %lx trap %ld error %ld flag %d\n", got.sig, got.code,
        (long)got.addr, (long)got.trap, (long)got.err, !!(got.flags & 0x40000));
}

int main(void)
{
    const int sigs[] = {SIGTRAP, SIGILL, SIGSEGV, SIGFPE, SIGBUS};
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    static char stack[65536];
    stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&ss, NULL);
    for (int i = 0; i < 5; i++)
        sigaction(sigs[i], &a, NULL);
    code = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(data, 0, 12288);
    uint32_t mxcsr[2] = {0xffff0000,
                         0x1f80 & ~0x280}; /* reserved bits; unmasked: invalid and divide by zero */
    memcpy(data + 0x40, mxcsr, sizeof mxcsr);
    uint16_t control = 0x37f & ~5;
    memcpy(data + 0x48, &control, 2);
    float ones[4] = {1, 1, 1, 1};
    memcpy(data + 0x50, ones, sizeof ones);
    data[4096] = 0xc3;
    data[8192] = 0xc3;
    mprotect(data + 4096, 4096, PROT_READ);
    mprotect(data + 8192, 4096, PROT_NONE);
    instructions();
    across_pages();
    targets();
    aligned();
    return finish();
}
