/* x87, SSE and AVX state: through calls, system calls, signals, forks, and in signal frames. */
// VARIANTS: o2 static
// NEEDS: avx2 fma
// FLAGS: -mavx2 -mfma -frounding-math -lm
#include "guest.h"
#include <fenv.h>
#include <immintrin.h>
#include <math.h>
#include <sys/time.h>
#include <ucontext.h>

/* Fills ymm0..15 with a pattern from seed, runs `what`, and returns how many of the 64 words changed. */
#define LOAD(n)  "vmovdqu " #n "*32(%[in]), %%ymm" #n "\n"
#define STORE(n) "vmovdqu %%ymm" #n ", " #n "*32(%[out])\n"
#define ALL(X)   X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define CLOBBER                                                                                              \
    "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11",        \
        "ymm12", "ymm13", "ymm14", "ymm15"
static uint64_t in[64], out[64];

static int changed(void)
{
    int n = 0;
    for (int i = 0; i < 64; i++)
        n += in[i] != out[i];
    return n;
}

static void pattern(uint64_t seed)
{
    for (int i = 0; i < 64; i++)
        seed += 0x9e3779b97f4a7c15ull, in[i] = seed ^ seed >> 29;
}

static void over_syscall(void)
{
    int bad = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        pattern(i);
        long nr = i % 3 == 0 ? SYS_getppid : i % 3 == 1 ? SYS_sched_yield : 1000;
        asm volatile(ALL(LOAD) "syscall\n" ALL(STORE)
                     : "+a"(nr)
                     : [in] "r"(in), [out] "r"(out)
                     : "rcx", "r11", "memory", "cc", CLOBBER);
        bad += changed();
    }
    is(bad, 0, "ymm registers survive system calls");
    /* a slow call with memory effects: openat, fstat */
    char path[] = "/";
    struct {
        char bytes[256];
    } st;
    bad = 0;
    for (uint64_t i = 0; i < 100; i++) {
        pattern(i);
        long nr = SYS_stat;
        asm volatile(ALL(LOAD) "syscall\n" ALL(STORE)
                     : "+a"(nr)
                     : [in] "r"(in), [out] "r"(out), "D"(path), "S"(&st)
                     : "rcx", "r11", "memory", "cc", CLOBBER);
        bad += changed() + (nr != 0);
    }
    is(bad, 0, "and calls that write memory");
}

static volatile sig_atomic_t hits;
static void clobber(int sig)
{
    asm volatile("vpcmpeqd %%ymm0, %%ymm0, %%ymm0\n vmovdqa %%ymm0, %%ymm7\n vmovdqa %%ymm0, %%ymm15\n "
                 "fldpi\n fstp %%st(0)\n" ::
                     : CLOBBER);
    volatile double x = 1.0 + hits;
    x = sqrt(x);
    hits++;
}

static void over_signals(void)
{
    signal(SIGUSR2, clobber);
    int bad = 0;
    for (uint64_t i = 0; i < 200; i++) {
        pattern(i);
        long nr = SYS_kill;
        asm volatile(ALL(LOAD) "syscall\n" ALL(STORE)
                     : "+a"(nr)
                     : [in] "r"(in), [out] "r"(out), "D"((long)getpid()), "S"((long)SIGUSR2)
                     : "rcx", "r11", "memory", "cc", CLOBBER);
        bad += changed() + (nr != 0);
    }
    ok(bad == 0 && hits == 200, "ymm registers survive signal handlers");
    /* asynchronous: in a loop without calls */
    signal(SIGALRM, clobber);
    hits = 0;
    struct itimerval it = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &it, NULL);
    pattern(7);
    asm volatile(ALL(LOAD) "1: vpaddd %%ymm1, %%ymm2, %%ymm3\n vpsubd %%ymm1, %%ymm3, %%ymm4\n vpxor %%ymm4, "
                           "%%ymm2, %%ymm5\n"
                           "vptest %%ymm5, %%ymm5\n jnz 2f\n cmpl $20, %[hits]\n jl 1b\n 2:\n" ALL(STORE)
                 : [hits] "+m"(hits)
                 : [in] "r"(in), [out] "r"(out)
                 : "memory", "cc", CLOBBER);
    it = (struct itimerval){0};
    setitimer(ITIMER_REAL, &it, NULL);
    bool same = true;
    for (int r = 0; r < 16; r++)
        if (r < 3 || r > 5)
            same = same && !memcmp(&in[r * 4], &out[r * 4], 32);
    ok(same && hits >= 20, "and asynchronous ones");
}

static void from_context(int sig, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    struct _libc_fpstate *fp = uc->uc_mcontext.fpregs;
    uint32_t x[4];
    memcpy(x, &fp->_xmm[3], 16);
    hits = x[0] == 0x11111111 && x[3] == 0x44444444;
    x[1] = 0xdeadbeef;
    memcpy(&fp->_xmm[3], x, 16);
}

static void in_frames(void)
{
    struct sigaction sa = {.sa_sigaction = from_context, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &sa, NULL);
    uint32_t x[4] = {0x11111111, 0x22222222, 0x33333333, 0x44444444};
    hits = 0;
    long nr = SYS_kill;
    asm volatile("movdqu (%[x]), %%xmm3\n syscall\n movdqu %%xmm3, (%[x])\n"
                 : "+a"(nr)
                 : [x] "r"(x), "D"((long)getpid()), "S"((long)SIGUSR1)
                 : "rcx", "r11", "memory", "cc", "xmm3");
    ok(hits == 1, "the handler's context shows xmm3");
    ok(x[1] == 0xdeadbeef && x[0] == 0x11111111, "and changes it");
}

static void control(void)
{
    fesetround(FE_DOWNWARD);
    getppid();
    raise(SIGUSR2);
    volatile double one = 1, three = 3;
    volatile double down = one / three;
    ok(fegetround() == FE_DOWNWARD, "rounding mode survives calls and signals");
    fesetround(FE_UPWARD);
    volatile double up = one / three;
    fesetround(FE_TONEAREST);
    ok(up > down, "rounding mode counts");
    volatile long double ld = 1.0L / 3.0L;
    long double back = ld * 3.0L;
    say("long double %.20Lg %.20Lg\n", ld, back);
    asm volatile("fninit\n fldpi\n fld1\n fldl2e\n");
    syscall(SYS_getppid);
    double a, b, c;
    asm volatile("fstpl %0\n fstpl %1\n fstpl %2\n" : "=m"(a), "=m"(b), "=m"(c));
    ok(b == 1.0 && a > 1.44 && a < 1.45 && c > 3.14 && c < 3.15, "the x87 stack survives a call");
    uint16_t cw = 0x27f, got;
    asm volatile("fldcw %0" ::"m"(cw));
    if (fork() == 0) {
        asm volatile("fnstcw %0" : "=m"(got));
        _exit(got == 0x27f ? 7 : 8);
    }
    int status;
    wait(&status);
    is(WEXITSTATUS(status), 7, "x87 control word in a child");
    asm volatile("fninit");
    feclearexcept(FE_ALL_EXCEPT);
    volatile double zero = 0;
    volatile double inf = one / zero;
    ok(fetestexcept(FE_DIVBYZERO) && isinf(inf), "exception flags");
}

static void arithmetic(void)
{
    double s = 0;
    for (int i = 1; i < 20000; i++)
        s += sin(i) * exp(-i / 5000.0) + pow(i, 0.3) / log(i + 1.0) - fmod(i, 7.3);
    say("libm %.17g\n", s);
    __m256d acc = _mm256_setzero_pd();
    for (int i = 0; i < 1000; i++)
        acc = _mm256_fmadd_pd(_mm256_set1_pd(i * 0.5), _mm256_set_pd(1, 2, 3, 4), acc);
    double v[4];
    _mm256_storeu_pd(v, acc);
    say("fma %.17g %.17g %.17g %.17g\n", v[0], v[1], v[2], v[3]);
}

int main(void)
{
    over_syscall();
    over_signals();
    in_frames();
    control();
    arithmetic();
    return finish();
}
