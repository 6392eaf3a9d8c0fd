/* Nondeterministic instructions and calls: recorded values must reappear. CPU level v3 must be consistent. */
// VARIANTS: o2 static
// NONDET
#include "guest.h"
#include <cpuid.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>

static void time_stamps(void)
{
    uint64_t last = 0;
    bool forward = true;
    for (int i = 0; i < 5; i++) {
        uint32_t lo, hi, aux;
        if (i & 1)
            asm volatile("rdtscp" : "=a"(lo), "=d"(hi), "=c"(aux));
        else
            asm volatile("rdtsc" : "=a"(lo), "=d"(hi));
        uint64_t t = (uint64_t)hi << 32 | lo;
        forward = forward && t > last;
        last = t;
        say("tsc %llu\n", (unsigned long long)t);
    }
    ok(forward, "time stamps grow");
}

static void randoms(void)
{
    uint32_t a, b, c, d;
    __cpuid(1, a, b, c, d);
    if (c & 1u << 30) {
        uint64_t r64;
        uint32_t r32;
        uint16_t r16 = 0;
        uint8_t good;
        asm volatile("1: rdrand %0\n jnc 1b\n setc %1" : "=r"(r64), "=r"(good)::"cc");
        ok(good == 1, "rdrand sets carry");
        asm volatile("mov $-1, %%rax\n 1: rdrand %%eax\n jnc 1b\n shr $32, %%rax\n mov %%eax, %0"
                     : "=r"(r32)::"rax", "cc");
        is(r32, 0, "a 32-bit rdrand clears the upper half");
        asm volatile("1: rdrand %0\n jnc 1b\n" : "+r"(r16)::"cc");
        say("rdrand %llx %x\n", (unsigned long long)r64, r16);
    }
    __cpuid_count(7, 0, a, b, c, d);
    if (b & 1u << 18) {
        uint64_t r;
        asm volatile("1: rdseed %0\n jnc 1b\n" : "=r"(r)::"cc");
        say("rdseed %llx\n", (unsigned long long)r);
    }
    if (c & 1u << 22) {
        uint64_t r;
        asm volatile("rdpid %0" : "=r"(r));
        say("rdpid %llu\n", (unsigned long long)r);
    }
    uint8_t bytes[24];
    is(getrandom(bytes, sizeof bytes, 0), 24, "getrandom");
    say("getrandom %llx\n", (unsigned long long)digest(DIGEST_START, bytes, 24));
    say("AT_RANDOM %llx\n", (unsigned long long)digest(DIGEST_START, (void *)getauxval(AT_RANDOM), 16));
    int fd = open("/dev/urandom", O_RDONLY);
    read(fd, bytes, 16);
    say("urandom %llx\n", (unsigned long long)digest(DIGEST_START, bytes, 16));
    close(fd);
}

static void cpu(void)
{
    uint32_t a, b, c, d;
    __cpuid(0, a, b, c, d);
    uint32_t top = a;
    say("vendor %.4s%.4s%.4s top %u\n", (char *)&b, (char *)&d, (char *)&c, top);
    __cpuid(1, a, b, c, d);
    say("leaf 1 %x %x %x %x\n", a, b, c, d);
    bool v3 = c & 1u << 28;
    uint32_t of_v3 = 1u << 12 | 1u << 22 | 1u << 26 | 1u << 27 | 1u << 29, lo = 0, hi = 0;
    ok((c & of_v3) == (v3 ? of_v3 : 0), "FMA, MOVBE, XSAVE, OSXSAVE, F16C go with AVX");
    ok(c & 1u << 9 && c & 1u << 20 && c & 1u << 23, "SSSE3, SSE4.2, POPCNT of level v2");
    if (v3)
        asm volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    say("xcr0 %x %x\n", lo, hi);
    ok(lo == (v3 ? 7 : 0) && !hi, "xcr0 has AVX or nothing, neither AVX-512 nor AMX");
    __cpuid_count(7, 0, a, b, c, d);
    say("leaf 7 %x %x %x %x\n", a, b, c, d);
    uint32_t more = 1u << 5 | 1u << 3 | 1u << 8;
    ok((b & more) == (v3 ? more : 0), "AVX2, BMI1, BMI2 go with AVX");
    ok(!(b & (1u << 4 | 1u << 11)), "no TSX");
    ok(!(b & (1u << 16 | 1u << 17 | 1u << 21 | 1u << 28 | 1u << 30 | 1u << 31)), "no AVX-512");
    ok(!(d & (1u << 24 | 1u << 25 | 1u << 22)), "no AMX");
    __cpuid_count(0xd, 0, a, b, c, d);
    ok(v3 ? a == 7 && b == 832 : a == 0, "leaf d agrees with xcr0 (%x, %u bytes)", a, b);
    say("hwcap %lx hwcap2 %lx platform %s\n", getauxval(AT_HWCAP), getauxval(AT_HWCAP2),
        (char *)getauxval(AT_PLATFORM));
    is(getauxval(AT_SYSINFO_EHDR), 0, "no vdso");
    __cpuid(0x80000001, a, b, c, d);
    say("leaf 80000001 %x %x\n", c, d);
}

static void calls(void)
{
    struct timespec ts;
    for (clockid_t c = 0; c < 12; c++)
        if (clock_gettime(c, &ts) == 0)
            say("clock %d %lld.%09ld\n", c, (long long)ts.tv_sec, ts.tv_nsec);
    struct timeval tv;
    gettimeofday(&tv, NULL);
    say("gettimeofday %ld.%06ld time %ld\n", tv.tv_sec, tv.tv_usec, time(NULL));
    struct tms tms;
    say("times %ld %ld\n", times(&tms), tms.tms_utime);
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    say("rusage %ld %ld %ld\n", ru.ru_utime.tv_usec, ru.ru_maxrss, ru.ru_minflt);
    struct sysinfo si;
    sysinfo(&si);
    say("sysinfo %ld %lu %u\n", si.uptime, si.freeram, si.procs);
    struct utsname un;
    uname(&un);
    say("uname %s %s %s\n", un.sysname, un.release, un.machine);
    unsigned cpu_number, node;
    syscall(SYS_getcpu, &cpu_number, &node, NULL);
    say("pid %d ppid %d tid %ld pgrp %d session %d cpu %u\n", getpid(), getppid(), syscall(SYS_gettid),
        getpgrp(), getsid(0), cpu_number);
    char stat[512];
    int fd = open("/proc/self/stat", O_RDONLY);
    ssize_t n = read(fd, stat, sizeof stat - 1);
    stat[n > 0 ? n : 0] = 0;
    say("stat %s", stat);
    close(fd);
    fd = open("/proc/uptime", O_RDONLY);
    n = read(fd, stat, sizeof stat - 1);
    stat[n > 0 ? n : 0] = 0;
    say("uptime %s", stat);
    void *p = malloc(100), *q = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("addresses %p %p %p %p %p\n", p, q, (void *)&ts, (void *)calls, sbrk(0));
}

int main(void)
{
    time_stamps();
    randoms();
    cpu();
    calls();
    return finish();
}
