/*
 * The XSAVE family: what is stored, how much of it, what is refused; the address of the last x87 instruction.
 */
// CPU: v2 v3 v4
#include "guest.h"
#include <cpuid.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

static sigjmp_buf back;
static int signo, code;
static uint64_t where, trap, error;

static void caught(int s, siginfo_t *info, void *context)
{
    signo = s;
    code = info->si_code;
    where = (uint64_t)info->si_addr;
    trap = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_TRAPNO];
    error = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR];
    siglongjmp(back, 1);
}

static uint64_t xcr0;
static uint32_t size, compact, more;

static void ask(void)
{
    uint32_t a, b, c, d;
    __cpuid(1, a, b, c, d);
    if (!(c & bit_OSXSAVE))
        return;
    asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    xcr0 = (uint64_t)d << 32 | a;
    __cpuid_count(0xd, 0, a, b, c, d);
    size = b;
    __cpuid_count(0xd, 1, more, compact, c, d);
}

enum form {
    XSAVE,
    XSAVEOPT,
    XSAVEC,
    XRSTOR,
    FXSAVE,
    FXRSTOR,
    XSAVES,
    XSAVE64,
    XSAVEC64,
    XRSTOR64,
    FXSAVE64,
    FXRSTOR64,
    FORMS
};
static const char *const names[] = {"xsave",  "xsaveopt", "xsavec",   "xrstor",   "fxsave",   "fxrstor",
                                    "xsaves", "xsave64",  "xsavec64", "xrstor64", "fxsave64", "fxrstor64"};

/* 0, or the signal */
static int run(enum form form, void *area, uint64_t mask)
{
    volatile uint32_t a = (uint32_t)mask, d = (uint32_t)(mask >> 32);
    signo = 0;
    if (sigsetjmp(back, 1))
        return signo;
#define DO(name)                                                                                             \
    asm volatile(name " (%0)" : : "r"(area), "a"(a), "d"(d) : "memory");                                     \
    break
    switch (form) {
    case XSAVE:
        DO("xsave");
    case XSAVEOPT:
        DO("xsaveopt");
    case XSAVEC:
        DO("xsavec");
    case XRSTOR:
        DO("xrstor");
    case FXSAVE:
        DO("fxsave");
    case FXRSTOR:
        DO("fxrstor");
    case XSAVES:
        DO("xsaves");
    case XSAVE64:
        DO("xsave64");
    case XSAVEC64:
        DO("xsavec64");
    case XRSTOR64:
        DO("xrstor64");
    case FXSAVE64:
        DO("fxsave64");
    default:
        DO("fxrstor64");
    }
    return 0;
}

static bool available(enum form form)
{
    if (form == FXSAVE || form == FXRSTOR || form == FXSAVE64 || form == FXRSTOR64)
        return true;
    if (form == XSAVEOPT)
        return more & 1;
    if (form == XSAVEC || form == XSAVEC64)
        return more & 2;
    return xcr0 && form != XSAVES;
}

/* `good`, or the form is not there and raises SIGILL. */
static void holds(enum form form, int got, bool good, const char *what)
{
    ok(available(form) ? good : got == SIGILL, "%s: %s", names[form], what);
}

static bool protection(int got)
{
    return got == SIGSEGV && code == SI_KERNEL && !where && trap == 13;
}

static _Alignas(64) uint8_t area[16384], other[16384];

static uint64_t word(const uint8_t *at)
{
    uint64_t w;
    memcpy(&w, at, 8);
    return w;
}

static uint32_t extent(const uint8_t *at)
{
    uint32_t n = sizeof area;
    while (n && at[n - 1] == 0x5a)
        n--;
    return n;
}

static void store(enum form form, bool compacted)
{
    static const uint64_t masks[] = {~0ull, 0, 1, 2, 3, 4, 6, 7, 0xe0, 0xee, 0xffffffff, 0x8000000000000000};
    bool inside = true, components = true, form_told = true;
    int got = 0;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        memset(area, 0x5a, sizeof area);
        memset(area + 512, 0, 64);
        got = run(form, area, masks[i]);
        inside = inside && extent(area) <= (compacted && compact > size ? compact : size);
        components = components && !(word(area + 512) & ~(masks[i] & xcr0));
        form_told = form_told && word(area + 520) == (compacted ? (masks[i] & xcr0) | 1ull << 63 : 0);
    }
    holds(form, got, inside, "stays inside what CPUID tells");
    holds(form, got, components, "says what it was asked for");
    holds(form, got, form_told, "in its form");
}

static void round_trip(enum form save, enum form restore)
{
    _Alignas(16) uint8_t before[16], after[16];
    uint32_t mxcsr = 0x3f80, initial = 0x1f80, now;
    uint16_t control = 0x77f, wanted = 0x37f, control_now;
    memset(before, 0xb5, 16);
    memset(area, 0, sizeof area);
    asm volatile("movdqu %0, %%xmm9\n ldmxcsr %1\n fldcw %2\n fld1\n fldpi\n" ::"m"(before), "m"(mxcsr),
                 "m"(control)
                 : "xmm9");
    int got = run(save, area, ~0ull);
    asm volatile("pxor %%xmm9, %%xmm9\n fninit\n ldmxcsr %0\n" ::"m"(initial) : "xmm9");
    run(restore, area, ~0ull);
    double pi = 0, one = 0;
    asm volatile("movdqu %%xmm9, %0\n stmxcsr %1\n fnstcw %2\n" : "=m"(after), "=m"(now), "=m"(control_now));
    if (!got)
        asm volatile("fstpl %0\n fstpl %1\n" : "=m"(pi), "=m"(one));
    asm volatile("fninit\n ldmxcsr %0\n fldcw %1\n" ::"m"(initial), "m"(wanted));
    holds(save, got,
          !memcmp(before, after, 16) && now == mxcsr && control_now == control && pi > 3.14 && one == 1,
          "and back");
    memset(area + 512, 0, 8); /* nothing is there: all becomes initial */
    asm volatile("movdqu %0, %%xmm9\n fldcw %1\n" ::"m"(before), "m"(control) : "xmm9");
    run(XRSTOR, area, ~0ull);
    asm volatile("movdqu %%xmm9, %0\n fnstcw %1\n" : "=m"(after), "=m"(control_now));
    memset(before, 0, 16);
    holds(XRSTOR, signo, !memcmp(before, after, 16) && control_now == 0x37f, "of nothing");
    asm volatile("fninit\n ldmxcsr %0\n" ::"m"(initial));
}

static void refusals(void)
{
    for (int form = 0; form < FORMS; form++) {
        if (form == XSAVES)
            continue;
        bool fx = form == FXSAVE || form == FXRSTOR || form == FXSAVE64 || form == FXRSTOR64;
        memset(area, 0, sizeof area);
        int got = run(form, area + (fx ? 8 : 32), 7);
        holds(form, got, protection(got), "wants its area aligned");
    }
    int got = run(XSAVES, area, 7);
    ok(more & 8 ? protection(got) : got == SIGILL, "xsaves is not for programs");
    static const struct {
        const char *what;
        int at;
        uint8_t byte;
        bool compacted, refused;
    } headers[] = {
        {"an unknown component", 512 + 7, 0x40, false, true},
        {"something in the header", 512 + 16, 1, false, true},
        {"a form without its bit", 512 + 8, 7, false, true},
        {"a reserved bit of mxcsr", 26, 0x80, false, true},
        {"all that is right", 512, 3, false, false},
        {"the end of the header, which does not matter", 512 + 63, 1, false, false},
        {"a compacted one with more than its form", 512, 4, true, true},
        {"a compacted one with an unknown form", 512 + 14, 0x40, true, true},
        {"a compacted one with something behind", 512 + 63, 1, true, true},
        {"a compacted one", 512, 3, true, false},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        memset(area, 0, sizeof area);
        area[25] = 0x1f;
        area[24] = 0x80;
        area[0] = 0x7f;
        area[1] = 0x03;
        if (headers[i].compacted) {
            area[520] = 3;
            area[527] = 0x80;
        }
        area[headers[i].at] |= headers[i].byte;
        got = run(XRSTOR, area, 7);
        bool refused = headers[i].refused || (headers[i].compacted && !(more & 2));
        holds(XRSTOR, got, refused ? protection(got) : !got, headers[i].what);
    }
    memset(area, 0, sizeof area);
    area[26] = 0x80;
    got = run(FXRSTOR, area, 7);
    holds(FXRSTOR, got, protection(got), "a reserved bit of mxcsr");
    asm volatile("fninit");
}

/* A fault in the page at `end` by a read (1) or write (3); which byte is the processor's choice. */
static bool behind(int got, const uint8_t *end, int how)
{
    return got == SIGSEGV && code == SEGV_ACCERR && where >= (uint64_t)end && where < (uint64_t)end + 4096 &&
           trap == 14 && !(error & 2) == !(how & 2);
}

/* Areas that end, or begin to be missing, at a page's end. */
static void edges(void)
{
    uint8_t *pages = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *end = pages + 4 * 4096;
    mprotect(end, 4096, PROT_NONE);
    uint32_t room = (size + 63) & ~63u;
    memset(pages, 0, 4 * 4096);
    int got = run(XSAVE, end - room, ~0ull);
    holds(XSAVE, got, !got, "up to the end of a page");
    got = run(XRSTOR, end - room, ~0ull);
    holds(XRSTOR, got, !got, "up to the end of a page");
    got = run(XSAVE, end - 576, 3);
    holds(XSAVE, got, !got, "only the components asked for need room");
    got = run(XRSTOR, end - 576, 3);
    holds(XRSTOR, got, !got, "reads no more than is there");
    memset(end - 576, 0x5a, 512);
    got = run(XSAVE, end - 576, 7);
    holds(XSAVE, got, behind(got, end, 3), "faults where the area ends");
    holds(XSAVE, got, end[-576] == 0x5a && end[-100] == 0x5a, "and has stored nothing");
    got = run(XSAVE, end - 128, 3);
    holds(XSAVE, got, behind(got, end, 3), "only with x87 and SSE");
    got = run(FXSAVE, end - 512, 0);
    holds(FXSAVE, got, !got, "512 bytes");
    got = run(FXSAVE, end - 256, 0);
    holds(FXSAVE, got, behind(got, end, 3), "faults where it ends");
    got = run(FXRSTOR, end - 256, 0);
    holds(FXRSTOR, got, behind(got, end, 1), "faults where it ends");
    got = run(XRSTOR, end - 128, 0);
    holds(XRSTOR, got, behind(got, end, 1), "reads its header");
    munmap(end, 4096);
    got = run(XSAVE, end - 64, 3);
    holds(XSAVE, got,
          got == SIGSEGV && code == SEGV_MAPERR && where >= (uint64_t)end && where < (uint64_t)end + 4096,
          "an unmapped page");
    mprotect(pages, 4096, PROT_READ);
    got = run(FXSAVE64, pages, 0);
    holds(FXSAVE64, got,
          got == SIGSEGV && code == SEGV_ACCERR && where >= (uint64_t)pages && where < (uint64_t)pages + 512,
          "a page to read");
    got = run(FXSAVE64, (void *)0x8000000000000000, 0);
    holds(FXSAVE64, got, protection(got), "an address that is none");
    munmap(pages, 4 * 4096);
}

static void xgetbv(void)
{
    volatile uint32_t a = 0, d = 0;
    signo = 0;
    if (!sigsetjmp(back, 1) && (more & 4))
        asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
    ok(!signo && !(((uint64_t)d << 32 | a) & ~xcr0), "xgetbv of what is in use");
    if (!sigsetjmp(back, 1))
        asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(77));
    holds(XSAVE, signo, protection(signo), "xgetbv of nothing");
}

/* Processors keep the address of the last x87 instruction always or (AMD) while an exception waits: it is what it is
 * natively, or 0. */
static bool last_is(uint64_t got, uint64_t label, bool certain)
{
    return got == label || (!certain && !got);
}

static uint64_t frame_pointer, frame_status;

static void on_fpe(int s, siginfo_t *info, void *context)
{
    fpregset_t f = ((ucontext_t *)context)->uc_mcontext.fpregs;
    frame_pointer = f->rip;
    frame_status = f->swd;
    f->swd = 0;
    f->cwd = 0x37f;
}

/* A signal's frame has it, too. */
static void frames(void)
{
    struct sigaction a = {.sa_sigaction = on_fpe, .sa_flags = SA_SIGINFO};
    uint16_t control = 0x37b;
    uint64_t label;
    sigaction(SIGFPE, &a, NULL);
    asm volatile("fninit\n fldcw %1\n lea 1f(%%rip), %0\n fld1\n fldz\n 1: fdivrp\n fwait\n fninit\n"
                 : "=&r"(label)
                 : "m"(control));
    ok(last_is(frame_pointer, label, false) && (frame_status & 4),
       "the frame of an x87 exception names its instruction");
    say("or nothing, on an emulated processor: %d\n", !frame_pointer); /* natively as recorded */
}

int main(void);

static void pointers(void)
{
    uint64_t label;
    struct {
        uint32_t words[27];
    } env;
    asm volatile("fninit\n lea 1f(%%rip), %1\n 1: fld1\n fnstenv %0\n fninit\n" : "=m"(env), "=&r"(label));
    ok(last_is(env.words[3], (uint32_t)label, false), "fnstenv");
    asm volatile("fninit\n lea 1f(%%rip), %1\n fldz\n 1: fldl2e\n fnsave %0\n" : "=m"(env), "=&r"(label));
    ok(last_is(env.words[3], (uint32_t)label, false), "fnsave");
    asm volatile("fninit\n lea 1f(%%rip), %1\n 1: fldpi\n fxsave64 %0\n fninit\n" : "=m"(area), "=&r"(label));
    ok(last_is(word(area + 8), label, false), "fxsave64");
    if (xcr0)
        asm volatile("fninit\n lea 1f(%%rip), %1\n 1: fldpi\n xsave64 %0\n fninit\n"
                     : "=m"(area), "=&r"(label)
                     : "a"(3), "d"(0));
    ok(last_is(word(area + 8), label, false) || !xcr0, "xsave64");
    /* changed code is translated again: the address stays */
    void *text = (void *)((uint64_t)main & ~4095ull);
    asm volatile("fninit\n lea 1f(%%rip), %0\n 1: fldpi\n" : "=&r"(label));
    mprotect(text, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    mprotect(text, 4096, PROT_READ | PROT_EXEC);
    asm volatile("fnstenv %0\n fninit\n" : "=m"(env));
    ok(last_is(env.words[3], (uint32_t)label, false), "code that was changed since");
    /* while an exception waits, every processor has it */
    uint16_t control = 0x37b;
    asm volatile(
        "fninit\n fldcw %2\n lea 1f(%%rip), %1\n fld1\n fldz\n 1: fdivrp\n fnstenv %0\n fnclex\n fninit\n"
        : "=m"(env), "=&r"(label)
        : "m"(control));
    ok(last_is(env.words[3], (uint32_t)label, true), "an exception that waits");
    ok(env.words[1] & 4, "is that of a division by zero");
    asm volatile("fninit\n .byte 0x66\n fnstenv %0\n fninit\n" : "=m"(env));
    is(env.words[0] & 0xffff, 0x37f, "16-bit environment");
    asm volatile("fninit\n fld1\n fxsave64 %0\n fninit\n fxrstor64 %0\n fxsave64 %1\n fninit\n"
                 : "=m"(area), "=m"(other)::"memory");
    ok(word(area + 8) == word(other + 8), "fxrstor64 brings it back");
}

int main(void)
{
    struct sigaction a = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &a, NULL);
    sigaction(SIGSEGV, &a, NULL);
    sigaction(SIGBUS, &a, NULL);
    ask();
    store(XSAVE, false);
    store(XSAVE64, false);
    store(XSAVEOPT, false);
    store(XSAVEC, true);
    store(XSAVEC64, true);
    round_trip(XSAVE, XRSTOR);
    round_trip(XSAVEC, XRSTOR);
    round_trip(XSAVE64, XRSTOR64);
    round_trip(FXSAVE, FXRSTOR);
    round_trip(FXSAVE64, FXRSTOR64);
    refusals();
    edges();
    xgetbv();
    pointers();
    frames();
    return finish();
}
