/*
 * raw.h: system calls without libc, and memory helpers that use general registers only.
 *
 * Safe anywhere in the engine: before TLS is right, in signal handlers, in code compiled with
 * -mgeneral-regs-only. Results are the kernel's: -errno on failure.
 */
#ifndef CLIO_ENGINE_RAW_H
#define CLIO_ENGINE_RAW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

static inline int64_t raw6(uint64_t nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                           uint64_t f)
{
    register uint64_t r10 __asm__("r10") = d;
    register uint64_t r8 __asm__("r8") = e;
    register uint64_t r9 __asm__("r9") = f;
    int64_t result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#define RAW_ARG(x)             ((uint64_t)(x))
#define raw0(n)                raw6((n), 0, 0, 0, 0, 0, 0)
#define raw1(n, a)             raw6((n), RAW_ARG(a), 0, 0, 0, 0, 0)
#define raw2(n, a, b)          raw6((n), RAW_ARG(a), RAW_ARG(b), 0, 0, 0, 0)
#define raw3(n, a, b, c)       raw6((n), RAW_ARG(a), RAW_ARG(b), RAW_ARG(c), 0, 0, 0)
#define raw4(n, a, b, c, d)    raw6((n), RAW_ARG(a), RAW_ARG(b), RAW_ARG(c), RAW_ARG(d), 0, 0)
#define raw5(n, a, b, c, d, e) raw6((n), RAW_ARG(a), RAW_ARG(b), RAW_ARG(c), RAW_ARG(d), RAW_ARG(e), 0)

static inline void copy_bytes(void *to, const void *from, size_t n)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static inline void zero_bytes(void *to, size_t n)
{
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(0) : "memory");
}

#endif
