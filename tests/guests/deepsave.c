/*
 * Instructions that the engine performs reach stack that is not there yet: the stack grows for them as for any other. Lazy binding
 * does it whenever a program's stack is nearly used up.
 */
// CPU: v1 v3
#include "guest.h"
#include <cpuid.h>

static bool has_xsave(void)
{
    uint32_t a, b, c, d;
    __cpuid(1, a, b, c, d);
    return c & bit_OSXSAVE;
}

/* The instruction on a stack `depth` bytes further down. */
#define DEEP(insn, depth)                                                                                    \
    asm volatile("mov %%rsp, %%rbx\n sub %0, %%rsp\n and $-64, %%rsp\n " insn "\n mov %%rbx, %%rsp\n"        \
                 :                                                                                           \
                 : "r"((uint64_t)(depth)), "a"(7), "d"(0)                                                    \
                 : "rbx", "memory", "cc")

int main(void)
{
    bool xsave = has_xsave();
    DEEP("fxsave64 (%%rsp)", 200 << 10);
    ok(true, "fxsave");
    if (xsave)
        DEEP("xsave (%%rsp)", 400 << 10);
    ok(true, "xsave");
    if (xsave)
        DEEP("fld1\n xsave64 (%%rsp)\n fninit", 600 << 10);
    ok(true, "xsave with an address of an x87 instruction");
    DEEP("sidt (%%rsp)", 800 << 10);
    ok(true, "sidt");
    DEEP("smsw (%%rsp)", 1000 << 10);
    ok(true, "smsw");
    DEEP("fld1\n fnstenv (%%rsp)\n fninit", 1200 << 10);
    ok(true, "fnstenv");
    uint32_t limit = 7;
    asm volatile("mov %%rsp, %%rbx\n sub %1, %%rsp\n lsl (%%rsp), %0\n mov %%rbx, %%rsp\n"
                 : "+r"(limit)
                 : "r"(1400ul << 10)
                 : "rbx", "cc");
    is(limit, 7, "lsl of a null selector that is there at once");
    return finish();
}
