/* Every condition code as jcc, setcc and cmov, and flags that live across blocks and backward branches. */
// VARIANTS: o0 o2 nopie static
#include "guest.h"

#define CONDITIONS(X) X(o) X(no) X(b) X(ae) X(e) X(ne) X(be) X(a) X(s) X(ns) X(p) X(np) X(l) X(ge) X(le) X(g)

/* Bit 0 by a jump, bit 1 by setcc, bit 2 by cmov; all must agree. */
#define X(cc)                                                                                                \
    static unsigned cond_##cc(uint64_t flags)                                                                \
    {                                                                                                        \
        unsigned r = 0, one = 4;                                                                             \
        uint8_t s = 0;                                                                                       \
        asm volatile("push %[f]\n popfq\n"                                                                   \
                     "j" #cc " 1f\n jmp 2f\n"                                                                \
                     "1: mov $1, %[r]\n"                                                                     \
                     "2: push %[f]\n popfq\n"                                                                \
                     "set" #cc " %[s]\n cmov" #cc " %[one], %[one]\n"                                        \
                     "push %[f]\n popfq\n"                                                                   \
                     "mov $0, %%eax\n cmov" #cc " %[one], %%eax\n or %%eax, %[r]\n"                          \
                     : [r] "+&r"(r), [s] "+&r"(s)                                                            \
                     : [f] "r"(flags), [one] "r"(one)                                                        \
                     : "rax", "cc", "memory");                                                               \
        return r | (unsigned)s << 1;                                                                         \
    }
CONDITIONS(X)
#undef X

enum { CF = 1, PF = 4, AF = 16, ZF = 64, SF = 128, DF = 1024, OF = 2048 };

static bool expected(const char *cc, uint64_t f)
{
    bool c = f & CF, z = f & ZF, s = f & SF, o = f & OF, p = f & PF, no = cc[0] == 'n', r;
    const char *k = no && cc[1] ? cc + 1 : cc;
    if (!strcmp(cc, "ae"))
        return !c;
    if (!strcmp(cc, "be"))
        return c || z;
    if (!strcmp(cc, "a"))
        return !c && !z;
    if (!strcmp(cc, "ge"))
        return s == o;
    if (!strcmp(cc, "le"))
        return z || s != o;
    if (!strcmp(cc, "g"))
        return !z && s == o;
    if (!strcmp(cc, "l"))
        return s != o;
    r = k[0] == 'o' ? o : k[0] == 'b' ? c : k[0] == 'e' ? z : k[0] == 's' ? s : p;
    return no ? !r : r;
}

static void conditions(void)
{
#define X(cc) {#cc, cond_##cc},
    static const struct {
        const char *name;
        unsigned (*f)(uint64_t);
    } all[] = {CONDITIONS(X)};
#undef X
    static const uint64_t bits[] = {CF, PF, ZF, SF, OF, AF};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int wrong = 0;
        for (unsigned m = 0; m < 64; m++) {
            uint64_t f = 0x202;
            for (int b = 0; b < 6; b++)
                f |= m >> b & 1 ? bits[b] : 0;
            wrong += all[i].f(f) != (expected(all[i].name, f) ? 7u : 0u);
        }
        is(wrong, 0, all[i].name);
    }
}

/* Adds n-word numbers with adc in a loop whose counting (lea, jrcxz) leaves the carry alone. */
static uint64_t add_long(uint64_t *a, const uint64_t *b, long n)
{
    uint64_t carry;
    asm volatile("clc\n"
                 "1: jrcxz 2f\n"
                 "mov (%[b]), %%rax\n adc %%rax, (%[a])\n"
                 "lea 8(%[a]), %[a]\n lea 8(%[b]), %[b]\n lea -1(%%rcx), %%rcx\n"
                 "jmp 1b\n"
                 "2: setc %%al\n movzx %%al, %[c]\n"
                 : [a] "+&r"(a), [b] "+&r"(b), "+&c"(n), [c] "=&r"(carry)
                 :
                 : "rax", "cc", "memory");
    return carry;
}

/* The same with dec, which keeps CF and sets the rest, across a conditional backward branch. */
static uint64_t sub_long(uint64_t *a, const uint64_t *b, long n)
{
    uint64_t borrow;
    asm volatile("clc\n"
                 "1: mov (%[b]), %%rax\n sbb %%rax, (%[a])\n"
                 "lea 8(%[a]), %[a]\n lea 8(%[b]), %[b]\n"
                 "dec %%rcx\n jnz 1b\n"
                 "setc %%al\n movzx %%al, %[c]\n"
                 : [a] "+&r"(a), [b] "+&r"(b), "+&c"(n), [c] "=&r"(borrow)
                 :
                 : "rax", "cc", "memory");
    return borrow;
}

static void chains(void)
{
    enum { N = 1000 };
    static uint64_t a[N], b[N], saved[N];
    uint64_t x = 88172645463325252ull;
    for (int i = 0; i < N; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        a[i] = i % 3 ? ~0ull : x;
        b[i] = i == 0 ? 1 : x >> 1;
    }
    memcpy(saved, a, sizeof a);
    unsigned __int128 sum = 0;
    uint64_t want = DIGEST_START;
    for (int i = 0; i < N; i++) {
        sum += (unsigned __int128)a[i] + b[i];
        uint64_t w = (uint64_t)sum;
        want = digest(want, &w, 8);
        sum >>= 64;
    }
    uint64_t carry = add_long(a, b, N);
    ok(digest(DIGEST_START, a, sizeof a) == want && carry == (uint64_t)sum,
       "adc chain over a backward branch");
    uint64_t borrow = sub_long(a, b, N);
    ok(!memcmp(a, saved, sizeof a) && borrow == (uint64_t)sum, "sbb chain with dec and jnz undoes it");
}

static void loops(void)
{
    uint64_t n = 0, c = 1000;
    asm volatile("1: inc %[n]\n loop 1b\n" : [n] "+r"(n), "+c"(c)::"cc");
    ok(n == 1000 && c == 0, "loop");
    n = 0, c = 100;
    asm volatile("1: inc %[n]\n cmp $40, %[n]\n loopne 1b\n" : [n] "+r"(n), "+c"(c)::"cc");
    ok(n == 40 && c == 60, "loopne");
    n = 0, c = 100;
    asm volatile("1: inc %[n]\n test $16, %[n]\n loope 1b\n" : [n] "+r"(n), "+c"(c)::"cc");
    ok(n == 16 && c == 84, "loope");
    n = 0, c = 0x500000000ull;
    asm volatile("jecxz 1f\n mov $1, %[n]\n 1:\n" : [n] "+r"(n) : "c"(c));
    ok(n == 0, "jecxz looks at 32 bits");
    asm volatile("jrcxz 1f\n mov $2, %[n]\n 1:\n" : [n] "+r"(n) : "c"(c));
    ok(n == 2, "jrcxz looks at 64 bits");
    n = 0, c = 5;
    asm volatile("1: inc %[n]\n .byte 0x67\n loop 1b\n" : [n] "+r"(n), "+c"(c)::"cc");
    ok(n == 5, "loop with a 32-bit count");
    /* flags pass through loop: carry set before it is seen after it */
    uint8_t carry;
    c = 50;
    asm volatile("stc\n 1: loop 1b\n setc %0\n" : "=r"(carry), "+c"(c)::"cc");
    ok(carry == 1, "loop keeps flags");
}

/* Flags set in one block and used in several after calls and jumps that do not touch them. */
static void across_calls(void)
{
    uint64_t r = 0;
    asm volatile("sub $128, %%rsp\n"
                 "mov $5, %%eax\n cmp $7, %%eax\n" /* CF=1 ZF=0 SF=1 */
                 "call 1f\n"
                 "jmp 2f\n"
                 "1: jmp 3f\n"
                 "3: ret\n"
                 "2: jae 9f\n lea 1(%[r]), %[r]\n"
                 "lea 4f(%%rip), %%rdx\n jmp *%%rdx\n"
                 "4: jns 9f\n"
                 "stc\n lea 5f(%%rip), %%rdx\n push %%rdx\n ret\n"
                 "5: jnc 9f\n bts $1, %[r]\n"
                 "9: add $128, %%rsp\n"
                 : [r] "+r"(r)
                 :
                 : "rax", "rdx", "cc", "memory");
    ok(r == 3, "flags live across call, ret, jmp *reg");
    /* pushf sees all bits that were set, and popf sets them */
    uint64_t f;
    asm volatile(
        "sub $128, %%rsp\n push $0xed7\n popfq\n jmp 1f\n 1: pushfq\n pop %0\n cld\n add $128, %%rsp\n"
        : "=r"(f)::"cc", "memory");
    is(f & 0xcd5, 0xcd5, "pushf after popf and a jump");
    asm volatile("mov $0xd5, %%ah\n sahf\n jmp 1f\n1: lahf\n movzx %%ah, %%eax\n mov %%rax, %0"
                 : "=r"(f)::"rax", "cc");
    is(f, 0xd7, "lahf after sahf");
}

int main(void)
{
    conditions();
    chains();
    loops();
    across_calls();
    return finish();
}
