/* Calls, returns and indirect jumps of every shape. */
// VARIANTS: o0 o2 nopie static staticpie
#include "guest.h"

__attribute__((noinline)) static uint64_t deep(uint64_t n, uint64_t x)
{
    volatile uint64_t local = x;
    if (n == 0)
        return local;
    uint64_t r = deep(n - 1, x * 3 + n);
    return r + local;
}

static uint64_t deep_again(uint64_t n)
{
    return n == 0 ? 0 : 1 + deep_again(n - 1);
}

static uint64_t even(uint64_t n);
__attribute__((noinline)) static uint64_t odd(uint64_t n)
{
    return n == 0 ? 0 : even(n - 1);
}
__attribute__((noinline)) static uint64_t even(uint64_t n)
{
    return n == 0 ? 1 : odd(n - 1);
}

static uint64_t ackermann(uint64_t m, uint64_t n)
{
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

/* Function-like code in assembly. */
asm(".text\n"
    "ret_imm: mov 8(%rsp), %rax\n add 16(%rsp), %rax\n ret $16\n"
    "double_return: add $8, %rsp\n ret\n" /* returns to its caller's caller */
    "calls_double: call double_return\n mov $-1, %rax\n ret\n"
    "retpoline: call 1f\n2: pause\n lfence\n jmp 2b\n1: mov %rdi, (%rsp)\n ret\n"
    "add7: lea 7(%rsi), %rax\n ret\n"
    "call_pop: call 1f\n1: pop %rax\n lea 1b(%rip), %rdx\n sub %rdx, %rax\n ret\n"
    "push_ret: lea 1f(%rip), %rax\n push %rax\n ret\n ud2\n1: mov $77, %eax\n ret\n"
    "jmp_mem: lea 1f(%rip), %rax\n push %rax\n jmp *(%rsp)\n ud2\n1: pop %rax\n mov $78, %eax\n ret\n"
    "call_mem: lea add7(%rip), %rax\n push %rax\n push %rax\n call *8(%rsp)\n add $16, %rsp\n ret\n"
    "call_rsp: push %rbx\n mov %rsp, %rbx\n lea add7(%rip), %rax\n push %rax\n call *(%rsp)\n mov %rbx, "
    "%rsp\n pop %rbx\n ret\n"
    "ret_changed: lea 1f(%rip), %rax\n xchg %rax, (%rsp)\n mov %rax, %rdx\n ret\n ud2\n1: push %rdx\n mov "
    "$79, %eax\n ret\n"
    "rep_ret: mov %rdi, %rax\n rep ret\n"
    "bnd_ret: mov %rdi, %rax\n bnd ret\n"
    "pop_odd: push %rsp\n pop %rax\n sub %rsp, %rax\n push (%rsp)\n pop %rdx\n cmp %rdx, (%rsp)\n setne "
    "%dl\n movzx %dl, %edx\n add %rdx, %rax\n ret\n");
uint64_t calls_double(void), retpoline(void *, uint64_t), call_pop(void), push_ret(void), jmp_mem(void);
uint64_t call_mem(uint64_t, uint64_t), call_rsp(uint64_t, uint64_t), ret_changed(void), rep_ret(uint64_t),
    bnd_ret(uint64_t), pop_odd(void);
uint64_t add7(uint64_t, uint64_t);

static void shapes(void)
{
    uint64_t r, sp1, sp2;
    asm volatile("mov %%rsp, %[a]\n sub $128, %%rsp\n push $30\n push $12\n call ret_imm\n add $128, %%rsp\n "
                 "mov %%rsp, %[b]\n"
                 : "=a"(r), [a] "=&r"(sp1), [b] "=&r"(sp2)::"memory", "cc");
    ok(r == 42 && sp1 == sp2, "ret imm16");
    /* double_return skips the rest of calls_double */
    asm volatile("mov $5, %%eax\n sub $128, %%rsp\n call calls_double\n add $128, %%rsp"
                 : "=a"(r)::"memory", "cc");
    is(r, 5, "a return to the caller's caller");
    is(retpoline((void *)add7, 35), 42, "retpoline");
    is(call_pop(), 0, "call and pop sees the guest's own address");
    is(push_ret(), 77, "push and ret");
    is(jmp_mem(), 78, "jmp through the stack");
    is(call_mem(0, 35), 42, "call through the stack");
    is(call_rsp(0, 1), 8, "call *(%rsp)");
    is(ret_changed(), 79, "changed return address");
    is(rep_ret(3), 3, "rep ret");
    is(bnd_ret(4), 4, "bnd ret");
    is(pop_odd(), 0, "push and pop of rsp and (rsp)");
}

/* A byte-code machine with computed goto. */
static uint64_t machine(const uint8_t *code, uint64_t n)
{
    static void *const labels[] = {&&add, &&mul, &&rot, &&dec, &&end};
    uint64_t acc = 1;
    const uint8_t *pc = code;
    goto *labels[*pc++];
add:
    acc += n;
    goto *labels[*pc++];
mul:
    acc *= 0x9e3779b97f4a7c15ull;
    goto *labels[*pc++];
rot:
    acc = acc << 13 | acc >> 51;
    goto *labels[*pc++];
dec:
    if (--n) {
        pc = code;
        goto *labels[*pc++];
    }
    goto *labels[*pc++];
end:
    return acc;
}

static uint64_t machine_reference(uint64_t n)
{
    uint64_t acc = 1;
    for (; n; n--) {
        acc += n;
        acc *= 0x9e3779b97f4a7c15ull;
        acc = acc << 13 | acc >> 51;
    }
    return acc;
}

__attribute__((noinline)) static int dense(int x)
{
    switch (x) {
    case 0:
        return 11;
    case 1:
        return 7;
    case 2:
        return 5;
    case 3:
        return 3;
    case 4:
        return 2;
    case 5:
        return 13;
    case 6:
        return 17;
    case 7:
        return 19;
    case 9:
        return 23;
    case 12:
        return 29;
    default:
        return -1;
    }
}

#define FUNCTION(n)                                                                                          \
    __attribute__((noinline)) static uint64_t f##n(uint64_t x)                                               \
    {                                                                                                        \
        return x * (2 * n + 1) + n;                                                                          \
    }
#define EIGHT(X, a) X(a##0) X(a##1) X(a##2) X(a##3) X(a##4) X(a##5) X(a##6) X(a##7)
EIGHT(FUNCTION, 1)
EIGHT(FUNCTION, 2)
EIGHT(FUNCTION, 3)
EIGHT(FUNCTION, 4)
#define NAME(n) f##n,
static uint64_t (*const table[])(uint64_t) = {EIGHT(NAME, 1) EIGHT(NAME, 2) EIGHT(NAME, 3) EIGHT(NAME, 4)};

static uint64_t polymorphic(int rounds, int step)
{
    uint64_t x = 1;
    for (int i = 0; i < rounds; i++)
        x = table[(unsigned)(i * step + (int)(x & 3)) % 32](x);
    return x;
}

static int compare(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return x < y ? -1 : x > y;
}

int main(void)
{
    is(deep(100000, 1) != 0, 1, "recursion 100000 deep");
    is(deep_again(50000), 50000, "recursion that the compiler may flatten");
    is(even(100000), 1, "mutual recursion");
    is(ackermann(2, 300), 603, "ackermann");
    shapes();
    static const uint8_t code[] = {0, 1, 2, 3, 4};
    ok(machine(code, 200000) == machine_reference(200000), "computed goto");
    int sum = 0;
    for (int i = -5; i < 2000; i++)
        sum += dense(i % 17);
    is(sum, 14367, "switch table");
    say("polymorphic %llu %llu %llu\n", (unsigned long long)polymorphic(100000, 0),
        (unsigned long long)polymorphic(100000, 1), (unsigned long long)polymorphic(100000, 7));
    static unsigned v[5000];
    unsigned x = 12345;
    for (int i = 0; i < 5000; i++)
        v[i] = x = x * 1103515245 + 12345;
    qsort(v, 5000, sizeof *v, compare);
    bool sorted = true;
    for (int i = 1; i < 5000; i++)
        sorted = sorted && v[i - 1] <= v[i];
    ok(sorted && bsearch(&v[321], v, 5000, sizeof *v, compare) != NULL, "callbacks from a library");
    return finish();
}
