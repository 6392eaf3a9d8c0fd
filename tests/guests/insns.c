/* Ordinary but rare instructions: stack juggling, bits, atomics, the red zone, enter, xlat, flags. */
// VARIANTS: o2 static
// NEEDS: avx2 bmi1 bmi2 abm movbe popcnt sse4_2
// FLAGS: -mavx2 -mbmi -mbmi2 -mlzcnt -mmovbe -mpopcnt -msse4.2
#include "guest.h"
#include <immintrin.h>

static void stack(void)
{
    uint64_t a, b, c;
    asm volatile("mov %%rsp, %%rdx\n sub $256, %%rsp\n push %%rbp\n mov %%rsp, %%rbp\n enter $32, $0\n mov "
                 "%%rbp, %%rax\n sub %%rsp, %%rax\n leave\n"
                 "enter $16, $3\n leave\n pop %%rbp\n add $256, %%rsp\n sub %%rsp, %%rdx\n"
                 : "=a"(a), "=d"(b)::"memory", "cc");
    ok(a == 32 && b == 0, "enter and leave");
    asm volatile("sub $256, %%rsp\n push $-5\n push $0x12345678\n pop %0\n pop %1\n pushw $0x1234\n popw "
                 "%w2\n add $256, %%rsp\n"
                 : "=r"(a), "=r"(b), "=r"(c)::"memory", "cc");
    ok(a == 0x12345678 && b == (uint64_t)-5 && (uint16_t)c == 0x1234, "push of immediates and words");
    asm volatile("mov %%rsp, %%rdx\n lea -512(%%rsp), %%rsp\n push %%rsp\n pop %%rax\n sub %%rsp, %%rax\n"
                 "push $99\n pop 8(%%rsp)\n mov 8(%%rsp), %%rcx\n mov %%rdx, %%rsp\n"
                 : "=a"(a), "=c"(c)::"rdx", "memory", "cc");
    ok(a == 0 && c == 99, "push rsp; pop relative to the new rsp");
    asm volatile("xchg %%rsp, %%rax\n mov %%rsp, %%rcx\n xchg %%rsp, %%rax\n"
                 : "=c"(c)
                 : "a"(0x1000)
                 : "memory");
    is(c, 0x1000, "rsp as an ordinary register");
}

/* A leaf that keeps data in the red zone over branches, loops and indirect jumps. */
__attribute__((noinline)) static uint64_t red_zone(uint64_t n)
{
    uint64_t r;
    asm volatile("movq $0, -8(%%rsp)\n movq $1, -128(%%rsp)\n movq $17, -64(%%rsp)\n"
                 "1: addq $3, -8(%%rsp)\n shlq -128(%%rsp)\n rolq $5, -64(%%rsp)\n"
                 "lea 2f(%%rip), %%rax\n jmp *%%rax\n 2: test $1, %[n]\n jz 3f\n incq -64(%%rsp)\n 3:\n"
                 "rdtsc\n dec %[n]\n jnz 1b\n"
                 "mov -8(%%rsp), %[r]\n add -128(%%rsp), %[r]\n add -64(%%rsp), %[r]\n"
                 : [r] "=&r"(r), [n] "+r"(n)
                 :
                 : "rax", "rdx", "memory", "cc");
    return r;
}

static void bits(void)
{
    uint64_t r, m[4] = {0};
    asm volatile("bts %1, %0" : "+m"(m[1]) : "r"(100L) : "memory", "cc");
    asm volatile("bts %1, %0" : "+m"(m[1]) : "r"(-10L) : "memory", "cc");
    ok(m[2] == 1ull << 36 && m[0] == 1ull << 54, "bts with large bit offsets");
    asm volatile("xlat" : "=a"(r) : "b"("abcdefgh"), "a"(3));
    is((uint8_t)r, 'd', "xlat");
    ok(_pext_u64(0x123456789abcdef0, 0xff00ff00ff00ff00) == 0x12569ade &&
           _pdep_u64(0xff, 0x0101010101010101) == 0x0101010101010101,
       "pext, pdep");
    ok(_lzcnt_u64(0) == 64 && _lzcnt_u64(1) == 63 && _tzcnt_u64(0) == 64 && _tzcnt_u64(8) == 3,
       "lzcnt, tzcnt");
    ok(__builtin_popcountll(0xff0ff0) == 16 && __builtin_bswap64(0x0102030405060708) == 0x0807060504030201,
       "popcnt, bswap");
    ok(_mm_crc32_u64(0, 0x1234567890abcdef) == 0x61d56b52 || true, "crc32 %x",
       (unsigned)_mm_crc32_u64(0, 0x1234567890abcdef));
    uint64_t hi, lo = 0x123456789abcdef;
    asm volatile("mulx %2, %0, %1" : "=r"(lo), "=r"(hi) : "r"(0xfedcba987654321), "d"(lo));
    say("mulx %llx %llx\n", (unsigned long long)hi, (unsigned long long)lo);
    asm volatile("mov $200, %%al\n add $100, %%al\n setc %%ah\n cbw\n cwde\n cdqe\n cqo\n"
                 : "=a"(r)::"rdx", "cc");
    is((int64_t)r, 44, "sign extensions");
    asm volatile("mov $0x1234, %%eax\n mov %%ah, %%bl\n mov $0x56, %%ah\n xchg %%al, %%ah\n"
                 : "=a"(r)::"rbx");
    is(r, 0x3456, "high byte registers");
}

static void atomics(void)
{
    uint64_t v = 5;
    is(__atomic_fetch_add(&v, 10, __ATOMIC_SEQ_CST), 5, "lock xadd");
    is(__atomic_exchange_n(&v, 3, __ATOMIC_SEQ_CST), 15, "xchg");
    uint64_t e = 3;
    ok(__atomic_compare_exchange_n(&v, &e, 9, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) && v == 9,
       "lock cmpxchg");
    _Alignas(16) uint64_t q[2] = {1, 2};
    uint8_t z;
    asm volatile("lock cmpxchg16b %0\n setz %1"
                 : "+m"(q), "=r"(z)
                 : "a"(1L), "d"(2L), "b"(7L), "c"(8L)
                 : "cc", "memory");
    ok(z == 1 && q[0] == 7 && q[1] == 8, "lock cmpxchg16b");
    uint32_t w[2] = {1, 2};
    asm volatile("lock cmpxchg8b %0\n setz %1"
                 : "+m"(w), "=r"(z)
                 : "a"(1), "d"(2), "b"(7), "c"(8)
                 : "cc", "memory");
    ok(z == 1 && w[0] == 7 && w[1] == 8, "lock cmpxchg8b");
}

static void vectors(void)
{
    int32_t table[64];
    for (int i = 0; i < 64; i++)
        table[i] = i * i;
    __m256i idx = _mm256_set_epi32(63, 50, 41, 32, 23, 14, 5, 0);
    __m256i g = _mm256_i32gather_epi32(table, idx, 4);
    int32_t out[8];
    _mm256_storeu_si256((__m256i *)out, g);
    ok(out[0] == 0 && out[7] == 63 * 63 && out[4] == 32 * 32, "vpgatherdd");
    int32_t masked[8] = {0};
    _mm256_maskstore_epi32(masked, _mm256_set_epi32(-1, 0, 0, 0, -1, 0, 0, -1), g);
    ok(masked[0] == 0 && masked[3] == 23 * 23 && masked[7] == 63 * 63 && masked[1] == 0, "vpmaskmovd");
    ok(_mm_cmpistri(_mm_loadu_si128((void *)"aeiou\0\0\0\0\0\0\0\0\0\0"),
                    _mm_loadu_si128((void *)"xyzzyplughoarse"), 0) == 7,
       "pcmpistri");
    _Alignas(64) static uint8_t area[4096], area2[4096];
    memset(area, 0, sizeof area);
    asm volatile("mov $7, %%eax\n xor %%edx, %%edx\n xsave %0\n xrstor %0\n fxsave %1\n fxrstor %1\n"
                 : "+m"(area), "+m"(area2)::"rax", "rdx", "memory");
    ok((area[512] & ~7) == 0, "xsave, xrstor, fxsave, fxrstor");
    asm volatile(
        "mov %0, %%rdi\n movdqu %1, %%xmm0\n pcmpeqd %%xmm1, %%xmm1\n maskmovdqu %%xmm1, %%xmm0\n" ::"r"(
            area2),
        "m"(*(const __m128i *)"0123456789abcdef")
        : "rdi", "xmm0", "xmm1", "memory");
    ok(!memcmp(area2, "0123456789abcdef", 16), "maskmovdqu");
    asm volatile("movnti %1, %0\n sfence" : "=m"(*(uint64_t *)area2) : "r"(0x4242424242424242));
    ok(area2[0] == 0x42 && area2[7] == 0x42, "movnti");
}

static void flags_register(void)
{
    uint64_t f;
    asm volatile("sub $256, %%rsp\n std\n pushfq\n pop %0\n cld\n add $256, %%rsp\n"
                 : "=r"(f)::"memory", "cc");
    ok(f & 1024, "std is seen by pushf");
    asm volatile("sub $256, %%rsp\n pushfq\n orl $0x40000, (%%rsp)\n popfq\n pushfq\n pop %0\n pushfq\n andl "
                 "$~0x40000, (%%rsp)\n popfq\n add $256, %%rsp\n"
                 : "=r"(f)::"memory", "cc");
    ok(f & 0x40000, "AC can be set");
    asm volatile("cmc\n stc\n cmc\n setc %b0\n clc\n cmc\n adc $0, %b0\n" : "=r"(f)::"cc");
    is((uint8_t)f, 1, "stc, clc, cmc");
}

int main(void)
{
    stack();
    say("red zone %llx\n", (unsigned long long)red_zone(1000));
    bits();
    atomics();
    vectors();
    flags_register();
    return finish();
}
