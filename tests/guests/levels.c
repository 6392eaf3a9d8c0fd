/*
 * The contract of CPUID: what it shows runs, what it does not show raises SIGILL at the instruction. Run natively and as a guest
 * of every level; the lines it prints are the same everywhere.
 */
// CPU: v1 v2 v3 v4 v3+sha v4-aes
#include "guest.h"
#include <cpuid.h>
#include <setjmp.h>
#include <ucontext.h>

static sigjmp_buf back;
static int signo, code;
static void *where;

static void caught(int s, siginfo_t *info, void *context)
{
    signo = s;
    code = info->si_code;
    where = info->si_addr;
    siglongjmp(back, 1);
}

static uint64_t xcr0(void)
{
    uint32_t a, b, c, d;
    __cpuid(1, a, b, c, d);
    if (!(c & bit_OSXSAVE))
        return 0;
    asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
}

/* leaf (8 bits) and subleaf, register (a b c d), bit */
struct bit {
    uint32_t leaf, sub;
    char reg;
    uint8_t bit;
    uint64_t state; /* of XCR0 */
};

static bool shown(struct bit b)
{
    uint32_t r[4] = {0}, max = __get_cpuid_max(b.leaf & 0x80000000, NULL);
    if (b.leaf > max)
        return false;
    __cpuid_count(b.leaf, b.sub, r[0], r[1], r[2], r[3]);
    return (r[b.reg - 'a'] >> b.bit & 1) && (xcr0() & b.state) == b.state;
}

#define CODE(text) (text), sizeof(text) - 1
#define ONE(r, n)                                                                                            \
    {                                                                                                        \
        1, 0, r, n, 0                                                                                        \
    }
#define ONEX(r, n)                                                                                           \
    {                                                                                                        \
        1, 0, r, n, 4                                                                                        \
    }
#define SEVEN(r, n)                                                                                          \
    {                                                                                                        \
        7, 0, r, n, 0                                                                                        \
    }
#define SEVENX(r, n)                                                                                         \
    {                                                                                                        \
        7, 0, r, n, 4                                                                                        \
    }
#define SEVENZ(r, n)                                                                                         \
    {                                                                                                        \
        7, 0, r, n, 0xe4                                                                                     \
    }
#define SEVEN1X(r, n)                                                                                        \
    {                                                                                                        \
        7, 1, r, n, 4                                                                                        \
    }
#define EXT(r, n)                                                                                            \
    {                                                                                                        \
        0x80000001, 0, r, n, 0                                                                               \
    }

/* rdi and rax point to 64 aligned bytes while these run; ret follows */
static const struct {
    const char *name, *bytes;
    size_t n;
    struct bit has;
} insns[] = {
    {"sse3 haddps", CODE("\xf2\x0f\x7c\xc1"), ONE('c', 0)},
    {"ssse3 pshufb", CODE("\x66\x0f\x38\x00\xc1"), ONE('c', 9)},
    {"sse4.1 pblendw", CODE("\x66\x0f\x3a\x0e\xc1\x11"), ONE('c', 19)},
    {"sse4.1 pextrd to memory", CODE("\x66\x0f\x3a\x16\x07\x01"), ONE('c', 19)},
    {"sse4.2 pcmpgtq", CODE("\x66\x0f\x38\x37\xc1"), ONE('c', 20)},
    {"sse4.2 crc32", CODE("\xf2\x0f\x38\xf1\xc1"), ONE('c', 20)},
    {"popcnt", CODE("\xf3\x0f\xb8\xc1"), ONE('c', 23)},
    {"cmpxchg16b", CODE("\x48\x0f\xc7\x0f"), ONE('c', 13)},
    {"lahf", CODE("\x9f"), EXT('c', 0)},
    {"avx vaddps xmm", CODE("\xc5\xf0\x58\xc2"), ONEX('c', 28)},
    {"avx vaddps ymm", CODE("\xc5\xf4\x58\xc2"), ONEX('c', 28)},
    {"avx vzeroupper", CODE("\xc5\xf8\x77"), ONEX('c', 28)},
    {"avx vmovdqu from memory", CODE("\xc5\xfe\x6f\x07"), ONEX('c', 28)},
    {"avx vldmxcsr", CODE("\xc5\xf8\xae\x57\x38"), ONEX('c', 28)},
    {"avx2 vpaddd ymm", CODE("\xc5\xf5\xfe\xc2"), SEVENX('b', 5)},
    {"fma", CODE("\xc4\xe2\x75\xb8\xc2"), ONEX('c', 12)},
    {"f16c", CODE("\xc4\xe2\x7d\x13\xc1"), ONEX('c', 29)},
    {"movbe", CODE("\x0f\x38\xf0\x07"), ONE('c', 22)},
    {"bmi1 andn", CODE("\xc4\xe2\x70\xf2\xc2"), SEVEN('b', 3)},
    {"bmi1 blsr", CODE("\xc4\xe2\x70\xf3\xc9"), SEVEN('b', 3)},
    {"bmi2 pdep", CODE("\xc4\xe2\x73\xf5\xc2"), SEVEN('b', 8)},
    {"bmi2 rorx", CODE("\xc4\xe3\x7b\xf0\xc1\x05"), SEVEN('b', 8)},
    {"bmi2 sarx", CODE("\xc4\xe2\x72\xf7\xc2"), SEVEN('b', 8)},
    {"avx512f vaddps zmm", CODE("\x62\xf1\x74\x48\x58\xc2"), SEVENZ('b', 16)},
    {"avx512f vmovdqu64 from memory", CODE("\x62\xf1\xfe\x48\x6f\x07"), SEVENZ('b', 16)},
    {"avx512f kmovw", CODE("\xc5\xf8\x92\xc8"), SEVENZ('b', 16)},
    {"avx512bw kmovq", CODE("\xc4\xe1\xfb\x92\xc8"), SEVENZ('b', 30)},
    {"avx512vl vpxord ymm16", CODE("\x62\xa1\x7d\x20\xef\xc0"), SEVENZ('b', 31)},
    {"avx512dq vpmullq", CODE("\x62\xf2\xf5\x48\x40\xc2"), SEVENZ('b', 17)},
    {"avx512cd vplzcntd", CODE("\x62\xf2\x7d\x48\x44\xc1"), SEVENZ('b', 28)},
    {"avx512_ifma vpmadd52luq", CODE("\x62\xf2\xf5\x48\xb4\xc2"), SEVENZ('b', 21)},
    {"avx512_vbmi vpermb", CODE("\x62\xf2\x75\x48\x8d\xc2"), SEVENZ('c', 1)},
    {"avx512_vbmi2 vpcompressb", CODE("\x62\xf2\x7d\x48\x63\xc8"), SEVENZ('c', 6)},
    {"avx512_vnni vpdpbusd", CODE("\x62\xf2\x75\x48\x50\xc2"), SEVENZ('c', 11)},
    {"avx512_bitalg vpopcntb", CODE("\x62\xf2\x7d\x48\x54\xc1"), SEVENZ('c', 12)},
    {"avx512_vpopcntdq", CODE("\x62\xf2\x7d\x48\x55\xc1"), SEVENZ('c', 14)},
    {"avx512_bf16", CODE("\x62\xf2\x76\x48\x52\xc2"), {7, 1, 'a', 5, 0xe4}},
    {"avx512_fp16 vaddph", CODE("\x62\xf5\x74\x48\x58\xc2"), SEVENZ('d', 23)},
    {"avx_vnni", CODE("\xc4\xe2\x75\x50\xc2"), SEVEN1X('a', 4)},
    {"aes aesenc", CODE("\x66\x0f\x38\xdc\xc1"), ONE('c', 25)},
    {"pclmulqdq", CODE("\x66\x0f\x3a\x44\xc1\x00"), ONE('c', 1)},
    {"vaes ymm", CODE("\xc4\xe2\x75\xdc\xc2"), SEVENX('c', 9)},
    {"vpclmulqdq ymm", CODE("\xc4\xe3\x75\x44\xc2\x00"), SEVENX('c', 10)},
    {"gfni", CODE("\x66\x0f\x38\xcf\xc1"), SEVEN('c', 8)},
    {"sha", CODE("\x0f\x38\xc8\xc1"), SEVEN('b', 29)},
    {"adcx", CODE("\x66\x0f\x38\xf6\xc1"), SEVEN('b', 19)},
    {"clflushopt", CODE("\x66\x0f\xae\x3f"), SEVEN('b', 23)},
    {"clwb", CODE("\x66\x0f\xae\x37"), SEVEN('b', 24)},
    {"movdiri", CODE("\x0f\x38\xf9\x0f"), SEVEN('c', 27)},
    {"movdir64b", CODE("\x66\x0f\x38\xf8\x07"), SEVEN('c', 28)},
    {"serialize", CODE("\x0f\x01\xe8"), SEVEN('d', 14)},
    {"rdrand", CODE("\x0f\xc7\xf0"), ONE('c', 30)},
    {"rdseed", CODE("\x0f\xc7\xf8"), SEVEN('b', 18)},
    {"rdpid", CODE("\xf3\x0f\xc7\xf8"), SEVEN('c', 22)},
    {"sse4a extrq", CODE("\x66\x0f\x79\xc1"), EXT('c', 6)},
    {"clzero", CODE("\x0f\x01\xfc"), {0x80000008, 0, 'b', 0, 0}},
    {"amx tilerelease", CODE("\xc4\xe2\x78\x49\xc0"), {7, 0, 'd', 24, 0x60000}},
    {"xgetbv", CODE("\x31\xc9\x0f\x01\xd0"), ONE('c', 27)},
    {"xsave", CODE("\x31\xc0\x31\xd2\x48\x89\xf7\x0f\xae\x27"), ONE('c', 27)},
    {"rdpkru", CODE("\x31\xc9\x0f\x01\xee"), SEVEN('c', 4)},
    {"3dnow femms", CODE("\x0f\x0e"), EXT('d', 31)},
    {"xop", CODE("\x8f\xe9\x78\x80\xc1"), EXT('c', 11)},
    {"fma4", CODE("\xc4\xe3\x71\x69\xc2\x30"), EXT('c', 16)},
};

/* What every x86-64 runs: nops on those that do not know them. */
static const struct {
    const char *name, *bytes;
    size_t n;
} always[] = {
    {"endbr64", CODE("\xf3\x0f\x1e\xfa")},
    {"rdssp, a nop", CODE("\xf3\x48\x0f\x1e\xc8")},
    {"cldemote", CODE("\x0f\x1c\x07")},
    {"prefetchw", CODE("\x0f\x0d\x0f")},
    {"prefetcht0", CODE("\x0f\x18\x0f")},
    {"bndmk", CODE("\xf3\x0f\x1b\x07")},
    {"long nop", CODE("\x66\x0f\x1f\x44\x00\x00")},
    {"clflush", CODE("\x0f\xae\x3f")},
    {"pause", CODE("\xf3\x90")},
    {"xacquire lock add", CODE("\xf2\xf0\x01\x0f")},
    {"fxsave", CODE("\x48\x89\xf7\x0f\xae\x07")},
    {"cmovz", CODE("\x0f\x44\xc1")},
};

static char *page;
static _Alignas(64) uint8_t area[64];
static _Alignas(64) uint8_t large[4096];

/* 0, or the signal that it raised. */
static int try(const char *bytes, size_t n)
{
    uint64_t rax = (uint64_t)area, rdi = rax, rsi = (uint64_t)large;
    memset(area, 0, sizeof area);
    area[0x38] = 0x80; /* an mxcsr */
    area[0x39] = 0x1f;
    memcpy(page, bytes, n);
    page[n] = (char)0xc3;
    signo = 0;
    if (!sigsetjmp(back, 1))
        asm volatile("xor %%ecx, %%ecx\n xor %%edx, %%edx\n xor %%ebx, %%ebx\n call *%3\n"
                     : "+D"(rdi), "+S"(rsi), "+a"(rax)
                     : "r"(page)
                     : "rcx", "rdx", "rbx", "xmm0", "xmm1", "xmm2", "memory", "cc");
    return signo;
}

static void scans(void)
{
    uint64_t value = 0x00f0, r;
    uint32_t narrow;
    asm volatile("rep bsf %1, %0" : "=r"(r) : "r"(value) : "cc");
    is(r, 4, "tzcnt and bsf agree");
    bool lzcnt = shown((struct bit)EXT('c', 5)), tzcnt = shown((struct bit)SEVEN('b', 3));
    asm volatile("rep bsr %1, %0" : "=r"(r) : "r"(value) : "cc");
    is(r, lzcnt ? 56 : 7, "lzcnt is bsr where CPUID does not show it");
    asm volatile("rep bsr %1, %0" : "=r"(narrow) : "m"(value) : "cc");
    is(narrow, lzcnt ? 24 : 7, "from memory");
    narrow = 77;
    uint8_t zero, carry;
    asm volatile("rep bsf %3, %0\n setz %1\n setc %2"
                 : "+r"(narrow), "=q"(zero), "=q"(carry)
                 : "r"(0)
                 : "cc");
    is(narrow, tzcnt ? 32 : 77, "of zero, bsf leaves the register");
    is(tzcnt ? carry : zero, 1, "and says so");
    asm volatile("mov %%fs:0, %%rax\n .byte 0xf3, 0x64, 0x48, 0x0f, 0xbd, 0x0c, 0x25, 0, 0, 0, 0\n"
                 " .byte 0xf3, 0x48, 0x0f, 0xbd, 0xc0\n sub %%rax, %%rcx\n mov %%rcx, %0"
                 : "=r"(r)::"rax", "rcx", "cc");
    is(r, 0, "through the fs segment");
}

int main(void)
{
    struct sigaction a = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &a, NULL);
    sigaction(SIGSEGV, &a, NULL);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof insns / sizeof *insns; i++) {
        bool has = shown(insns[i].has);
        int got = try(insns[i].bytes, insns[i].n);
        if (insns[i].has.leaf == 7 && insns[i].has.bit == 24 && has)
            got = 0; /* the kernel wants to be asked for AMX */
        ok(got == (has ? 0 : SIGILL) &&
               (has || (code == ILL_ILLOPN && (char *)where >= page && (char *)where < page + 8)),
           "%s", insns[i].name);
    }
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        is(try(always[i].bytes, always[i].n), 0, always[i].name);
    scans();
    return finish();
}
