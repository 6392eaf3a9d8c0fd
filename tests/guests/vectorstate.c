/*
 * Vector registers live through everything that is not theirs: calls, signals and their frames, faults, forks. Frames have the
 * layout and the size that CPUID tells, and what a handler changes in them comes back.
 */
// CPU: v1 v2 v3 v4
// VARIANTS: o2 static
#include "guest.h"
#include <cpuid.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <ucontext.h>

/* x87, SSE, AVX, opmask, upper halves of zmm0-15, zmm16-31 */
enum { SSE = 1, AVX = 2, MASKS = 5, UPPER = 6, SIXTEEN = 7 };

static struct {
    uint64_t xcr0;
    uint32_t size, offset[8];
} cpu;

static void ask(void)
{
    uint32_t a, b, c, d;
    cpu.size = 512;
    __cpuid(1, a, b, c, d);
    if (!(c & bit_OSXSAVE))
        return;
    asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    cpu.xcr0 = a & 0xe7;
    cpu.size = 576;
    for (uint32_t i = 2; i < 8; i++)
        if (cpu.xcr0 >> i & 1) {
            __cpuid_count(0xd, i, a, b, c, d);
            cpu.offset[i] = b;
            if (a + b > cpu.size)
                cpu.size = a + b;
        }
}

static bool has(int component)
{
    return component == SSE || (cpu.xcr0 >> component & 1);
}

struct state {
    _Alignas(64) uint8_t zmm[32][64];
    uint64_t k[8];
    uint32_t mxcsr, control;
};

static struct state want, got;

#define EACH16(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define HIGH16(X)                                                                                            \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define EACH8(X)  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define LOAD_X(n) "movdqu " #n "*64(%%rdi), %%xmm" #n "\n"
#define KEEP_X(n) "movdqu %%xmm" #n ", " #n "*64(%%rdi)\n"
#define LOAD_Y(n) "vmovdqu " #n "*64(%%rdi), %%ymm" #n "\n"
#define KEEP_Y(n) "vmovdqu %%ymm" #n ", " #n "*64(%%rdi)\n"
#define LOAD_Z(n) "vmovdqu64 " #n "*64(%%rdi), %%zmm" #n "\n"
#define KEEP_Z(n) "vmovdqu64 %%zmm" #n ", " #n "*64(%%rdi)\n"
#define LOAD_K(n) "kmovq 2048+8*" #n "(%%rdi), %%k" #n "\n"
#define KEEP_K(n) "kmovq %%k" #n ", 2048+8*" #n "(%%rdi)\n"
#define REST_IN   "ldmxcsr 2112(%%rdi)\n fldcw 2116(%%rdi)\n"
#define REST_OUT  "stmxcsr 2112(%%rdi)\n fnstcw 2116(%%rdi)\n"
/* Loads `want`, does something with rax, rsi, rdx, stores into `got`. */
#define THROUGH(load, what, keep)                                                                            \
    asm volatile(load REST_IN what "mov %[got], %%rdi\n" keep REST_OUT                                       \
                 : "+a"(rax), "+D"(rdi), "+S"(rsi), "+d"(rdx), "+c"(rcx)                                     \
                 : [got] "r"(to)                                                                             \
                 : "r11", "memory", "cc")

static uint64_t rax, rsi, rdx, rcx;

#define WAYS(what)                                                                                           \
    if (has(SIXTEEN))                                                                                        \
        THROUGH(EACH16(LOAD_Z) HIGH16(LOAD_Z) EACH8(LOAD_K), what,                                           \
                EACH16(KEEP_Z) HIGH16(KEEP_Z) EACH8(KEEP_K));                                                \
    else if (has(AVX))                                                                                       \
        THROUGH(EACH16(LOAD_Y), what, EACH16(KEEP_Y));                                                       \
    else                                                                                                     \
        THROUGH(EACH16(LOAD_X), what, EACH16(KEEP_X))

static void prepare(unsigned seed)
{
    memset(&want, 0, sizeof want);
    unsigned width = has(UPPER) ? 64 : has(AVX) ? 32 : 16;
    for (unsigned r = 0; r < (has(SIXTEEN) ? 32u : 16u); r++)
        for (unsigned i = 0; i < width; i++)
            want.zmm[r][i] = (uint8_t)(seed + r * 67 + i * 13);
    for (unsigned r = 0; has(MASKS) && r < 8; r++)
        want.k[r] = 0x0123456789abcdefull * (r + seed);
    want.mxcsr = 0x1f80 | (seed & 3) << 13;
    want.control = 0x37f | (seed & 3) << 10;
    memset(&got, 0, sizeof got);
}

static bool kept(void)
{
    return !memcmp(&want, &got, sizeof got);
}

static uint64_t clobber(void)
{
    if (has(SIXTEEN))
        asm volatile(
            "vpxord %zmm0, %zmm0, %zmm0\n vpternlogd $255, %zmm31, %zmm31, %zmm31\n kxnorq %k1, %k1, %k1\n"
            "vpternlogd $255, %zmm5, %zmm5, %zmm5\n");
    else if (has(AVX))
        asm volatile("vxorps %ymm0, %ymm0, %ymm0\n vcmptrueps %ymm5, %ymm5, %ymm5\n");
    asm volatile("pcmpeqd %xmm7, %xmm7\n");
    asm volatile("fninit\n fldpi\n");
    return 0;
}

static void through_calls(void)
{
    prepare(1);
    rax = SYS_getpid;
    struct state *to = &got;
    uint64_t rdi = (uint64_t)&want;
    WAYS("syscall\n");
    ok(kept(), "over a system call");
    prepare(2);
    rdi = (uint64_t)&want;
    rax = SYS_nanosleep;
    WAYS("xor %%edi, %%edi\n syscall\n");
    ok(kept(), "over a call that fails");
}

/* ---- signals ---- */

static int signals;
static uint64_t seen_size, seen_bv, seen_features, seen_flags;
static bool frame_right, initial, change;

static uint8_t *component(uint8_t *frame, int i)
{
    return i == SSE ? frame + 160 : frame + cpu.offset[i];
}

/* The frame shows `want`. */
static bool shows(uint8_t *frame)
{
    bool good = true;
    for (int r = 0; r < 16; r++) {
        good = good && !memcmp(component(frame, SSE) + 16 * r, want.zmm[r], 16);
        good = good && (!has(AVX) || !memcmp(component(frame, AVX) + 16 * r, want.zmm[r] + 16, 16));
        good = good && (!has(UPPER) || !memcmp(component(frame, UPPER) + 32 * r, want.zmm[r] + 32, 32));
        good = good && (!has(SIXTEEN) || !memcmp(component(frame, SIXTEEN) + 64 * r, want.zmm[16 + r], 64));
    }
    good = good && (!has(MASKS) || !memcmp(component(frame, MASKS), want.k, 64));
    return good && !memcmp(frame + 24, &want.mxcsr, 4) && !memcmp(frame, &want.control, 2);
}

static void alter(uint8_t *frame)
{
    memset(component(frame, SSE) + 16 * 3, 0x33, 16);
    memset(want.zmm[3], 0x33, 16);
    if (has(AVX)) {
        memset(component(frame, AVX) + 16 * 4, 0x44, 16);
        memset(want.zmm[4] + 16, 0x44, 16);
    }
    if (has(UPPER)) {
        memset(component(frame, UPPER) + 32 * 5, 0x55, 32);
        memset(want.zmm[5] + 32, 0x55, 32);
        memset(component(frame, SIXTEEN) + 64 * 6, 0x66, 64);
        memset(want.zmm[22], 0x66, 64);
        memset(component(frame, MASKS) + 8 * 7, 0x77, 8);
        memset(&want.k[7], 0x77, 8);
    }
    want.mxcsr ^= 0x6000;
    memcpy(frame + 24, &want.mxcsr, 4);
}

static void handler(int signo, siginfo_t *info, void *context)
{
    uint16_t control;
    uint32_t mxcsr, magic, end;
    asm volatile("fnstcw %0\n stmxcsr %1\n" : "=m"(control), "=m"(mxcsr));
    initial = control == 0x37f && mxcsr == 0x1f80;
    ucontext_t *u = context;
    uint8_t *frame = (uint8_t *)u->uc_mcontext.fpregs;
    memcpy(&magic, frame + 464, 4);
    seen_flags = u->uc_flags;
    if (magic == 0x46505853) {
        uint32_t size;
        memcpy(&seen_features, frame + 464 + 8, 8);
        memcpy(&size, frame + 464 + 16, 4);
        memcpy(&end, frame + size, 4);
        seen_size = end == 0x46505845 ? size : 1;
        memcpy(&seen_bv, frame + 512, 8);
    }
    frame_right = shows(frame);
    if (change)
        alter(frame);
    signals++;
    clobber();
    if (signo == SIGILL)
        u->uc_mcontext.gregs[REG_RIP] += 2;
}

static void through_signals(void)
{
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &a, NULL);
    sigaction(SIGILL, &a, NULL);
    struct state *to = &got;
    for (int n = 0; n < 4; n++) {
        prepare(10u + (unsigned)n);
        change = n & 1;
        uint64_t rdi = (uint64_t)&want;
        signals = 0;
        if (n < 2) {
            rax = SYS_tgkill;
            rsi = (uint64_t)gettid();
            rdx = SIGUSR1;
            rcx = (uint64_t)getpid();
            WAYS("mov %%rcx, %%rdi\n syscall\n");
        } else {
            WAYS("ud2\n");
        }
        ok(signals == 1 && frame_right, "%s: the frame shows the registers", n < 2 ? "a signal" : "a fault");
        ok(initial, "the handler starts with a fresh unit");
        ok(kept(), "%s", change ? "what the handler has changed comes back" : "all comes back");
    }
    bool with = cpu.xcr0; /* without XSAVE there is no magic number, no header and no flag */
    ok(with ? seen_size >= cpu.size : !seen_size, "the frame has the size that CPUID tells");
    ok((seen_features & 0xe7) == cpu.xcr0 && !(seen_bv & ~seen_features), "and its components");
    ok((seen_flags & 1) == with, "and says so in its flags");
    ok(getauxval(AT_MINSIGSTKSZ) >= cpu.size + 440, "the smallest stack holds a frame");
}

static void through_fork(void)
{
    prepare(30);
    struct state *to = &got;
    uint64_t rdi = (uint64_t)&want;
    rax = SYS_fork;
    WAYS("syscall\n");
    if (rax == 0)
        _exit(kept() ? 7 : 8);
    int status;
    waitpid((pid_t)rax, &status, 0);
    ok(kept(), "over fork, in the parent");
    is(WEXITSTATUS(status), 7, "and in the child");
}

static void through_loops(void)
{
    struct itimerval every = {{0, 300}, {0, 300}}, off = {{0, 0}, {0, 0}};
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    bool all = true;
    change = false;
    sigaction(SIGALRM, &a, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    struct state *to = &got;
    for (unsigned n = 0; n < 20; n++) {
        prepare(n);
        uint64_t rdi = (uint64_t)&want;
        rdx = 200000;
        WAYS("1: dec %%rdx\n jnz 1b\n");
        all = all && kept();
    }
    setitimer(ITIMER_REAL, &off, NULL);
    ok(all, "over signals of a timer");
}

int main(void)
{
    ask();
    through_calls();
    through_signals();
    through_fork();
    through_loops();
    return finish();
}
