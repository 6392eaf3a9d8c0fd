/*
 * Stores of every kind x86-64 offers, at random places of one area, which is then written to stdout. A
 * chronicle of the run must know each byte as it was then. Prints "address length" to stderr.
 */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 32768, REACH = 2200, TURNS = 400 };

static char area[SIZE];
static uint64_t seed = 88172645463325252ull;

static unsigned below(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed % n);
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, 4);
}

static void library(char *p, unsigned n)
{
    memset(p, (int)below(256), n);
    memcpy(p + 5, area + below(SIZE - REACH), below(60));
    memmove(p + 100, p + 107, n);
    qsort(p, 40, 4, compare);
    snprintf(p + 300, 64, "%u %f %s", n, n / 3.0, "text");
}

static void strings(char *p, unsigned n)
{
    void *to = p, *from = area;
    unsigned long count = n;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(n) : "memory");
    to = p + 60, count = n / 8;
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    to = p + 400, from = p + 900, count = 40;
    __asm__ volatile("std; rep movsb; cld" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    to = p + 700, count = 0;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(n) : "memory");
    to = p + 800;
    __asm__ volatile("stosq; stosb; stosw; stosl" : "+D"(to) : "a"(seed) : "memory");
}

__attribute__((target("avx2"))) static void vectors(char *p, unsigned n)
{
    __m256i mask = _mm256_set_epi32(0, -1, 0, -1, -1, 0, 0, -1);
    _mm256_maskstore_epi32((int *)p, mask, _mm256_set1_epi32(0x11223344));
    _mm256_storeu_si256((void *)(p + 33), _mm256_set1_epi8((char)n));
    _mm_maskmoveu_si128(_mm_set1_epi8(7), _mm_set_epi8(-1, 0, -1, 0, 0, 0, -1, -1, 0, 0, 0, -1, -1, 0, -1, 0),
                        p + 70);
    _mm_stream_si64((void *)(p + 88), n);
    _mm_storel_epi64((void *)(p + 100), _mm_set1_epi8(8));
    *(long double *)(p + 120) = n * 1.5L;
    *(double *)(p + 140) = sqrt(n);
    *(float *)(p + 149) = (float)n;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(*(int *)(p + 160)), "=m"(*(short *)(p + 164)));
    __asm__ volatile("fldz; fistpll %0" : "=m"(*(long *)(p + 170)));
    __asm__ volatile("fxsave64 %0" : "=m"(*(char(*)[512])(((uintptr_t)p + 600 + 15) & ~15ul)));
}

static void atomics(char *p, unsigned n)
{
    uint64_t *q = (void *)p;
    __sync_fetch_and_add(q, 3);
    __sync_bool_compare_and_swap(q + 1, 0x5555555555555555, 9);
    __sync_lock_test_and_set(q + 3, n);
    uint64_t *pair = (void *)(((uintptr_t)p + 100 + 15) & ~15ul), low = pair[0], high = pair[1];
    __asm__ volatile("lock cmpxchg16b %0"
                     : "+m"(*(__int128 *)pair), "+a"(low), "+d"(high)
                     : "b"(1ul), "c"(2ul)
                     : "cc");
    __asm__ volatile("xchgq %1, %0; xaddl %%ecx, %2"
                     : "+m"(q[20]), "+r"(seed), "+m"(*(int *)(p + 211))::"rcx", "cc");
}

static void small(char *p, unsigned n)
{
    __asm__ volatile("sete %0; setc %1; negl %2; notq %3; incw %4; shlq $3,%5"
                     : "+m"(p[0]), "+m"(p[1]), "+m"(*(int *)(p + 2)), "+m"(*(long *)(p + 8)),
                       "+m"(*(short *)(p + 20)), "+m"(*(long *)(p + 24))::"cc");
    __asm__ volatile("btsq %1,%0" : "+m"(*(char(*)[64])(p + 40)) : "r"((long)below(500)) : "cc");
    __asm__ volatile("btcl $3,%0" : "+m"(*(int *)(p + 110))::"cc");
    __asm__ volatile("movbe %1,%0" : "=m"(*(long *)(p + 120)) : "r"(seed));
    __asm__ volatile("movntiq %1, %0" : "=m"(*(long *)(p + 136)) : "r"((long)n));
    __asm__ volatile("pushq %1; popq %0" : "=m"(*(long *)(p + 150)) : "r"(seed));
}

int main(void)
{
    static void (*const kinds[])(char *, unsigned) = {library, strings, vectors, atomics, small};
    memset(area, 0x55, sizeof area);
    for (int i = 0; i < TURNS; i++)
        kinds[below(5)](area + below(SIZE - REACH), below(1000));
    fprintf(stderr, "%p %d\n", (void *)area, SIZE);
    return write(1, area, SIZE) != SIZE;
}
