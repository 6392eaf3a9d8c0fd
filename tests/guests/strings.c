/* String instructions: rep and repne, both directions, zero counts, address-size prefixes, page boundaries.
 */
// VARIANTS: o0 o2
#include "guest.h"

static uint8_t a[20000], b[20000], want[20000];

static void fill(void)
{
    for (size_t i = 0; i < sizeof a; i++)
        a[i] = (uint8_t)(i * 7 + i / 251), b[i] = want[i] = 0xee;
}

static void moves(void)
{
    for (long n = 0; n < 9000; n = n * 3 + 1) {
        fill();
        void *d = b + 3;
        const void *s = a + 5;
        long c = n;
        asm volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(c)::"memory");
        memcpy(want + 3, a + 5, (size_t)n);
        ok(!memcmp(b, want, sizeof b) && d == b + 3 + n && s == a + 5 + n && c == 0, "rep movsb of %ld", n);
        fill();
        d = b + 10000, s = a + 10000, c = n;
        asm volatile("std\n rep movsb\n cld" : "+D"(d), "+S"(s), "+c"(c)::"memory");
        memcpy(want + 10001 - n, a + 10001 - n, (size_t)n);
        ok(!memcmp(b, want, sizeof b) && d == b + 10000 - n, "backward rep movsb of %ld", n);
    }
    fill();
    void *d = b;
    long c = 1000;
    asm volatile("rep stosq" : "+D"(d), "+c"(c) : "a"(0x0102030405060708ull) : "memory");
    ok(b[0] == 8 && b[7999] == 1 && b[8000] == 0xee, "rep stosq");
    d = b, c = 100;
    asm volatile("rep stosw" : "+D"(d), "+c"(c) : "a"(0xabcd) : "memory");
    ok(b[0] == 0xcd && b[199] == 0xab && b[200] == 8, "rep stosw");
    /* overlapping by one byte: a fill */
    fill();
    d = b + 1;
    const void *s = b;
    c = 5000;
    asm volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(c)::"memory");
    ok(b[5000] == 0xee, "overlapping rep movsb");
}

static void scans(void)
{
    memset(b, 'x', sizeof b);
    b[4321] = 0;
    void *d = b;
    long c = -1;
    uint8_t z;
    asm volatile("repne scasb\n setz %[z]" : "+D"(d), "+c"(c), [z] "=r"(z) : "a"(0) : "cc", "memory");
    ok((uint8_t *)d == b + 4322 && c == -1 - 4322 && z == 1, "repne scasb");
    d = b, c = 100;
    asm volatile("repe scasb\n setz %[z]" : "+D"(d), "+c"(c), [z] "=r"(z) : "a"('x') : "cc", "memory");
    ok((uint8_t *)d == b + 100 && c == 0 && z == 1, "repe scasb to its end");
    fill();
    memcpy(b, a, sizeof a);
    b[7777]++;
    d = b, c = sizeof b;
    const void *s = a;
    uint8_t above;
    asm volatile("repe cmpsb\n setz %[z]\n seta %[a]"
                 : "+D"(d), "+S"(s), "+c"(c), [z] "=&r"(z), [a] "=r"(above)::"cc", "memory");
    ok((uint8_t *)d == b + 7778 && z == 0 && above == (a[7777] > b[7777]), "repe cmpsb");
    /* a zero count leaves registers and flags alone */
    d = b, s = a, c = 0;
    asm volatile("cmp %%eax, %%eax\n repe cmpsb\n setz %[z]"
                 : "+D"(d), "+S"(s), "+c"(c), [z] "=r"(z)::"cc", "memory");
    ok(d == b && s == a && z == 1, "repe cmpsb of nothing keeps flags");
}

static void singles(void)
{
    fill();
    const void *s = a + 100;
    uint64_t x = 0, sum = 0;
    for (int i = 0; i < 10; i++) {
        asm volatile("lodsb" : "+a"(x), "+S"(s)::"memory");
        sum += x & 0xff;
    }
    uint64_t e = 0;
    for (int i = 0; i < 10; i++)
        e += a[100 + i];
    ok(sum == e && s == a + 110, "lodsb");
    void *d = b + 50;
    s = a;
    asm volatile("movsq\n movsw\n movsb\n movsl" : "+D"(d), "+S"(s)::"memory");
    ok(!memcmp(b + 50, a, 15) && d == b + 65, "movs of each size");
    d = b + 64;
    asm volatile("std\n stosl\n cld" : "+D"(d) : "a"(0x11223344) : "memory");
    ok(b[64] == 0x44 && b[67] == 0x11 && d == b + 60, "backward stosl");
}

/* A rep that faults in the middle must show how far it came. */
static void *guard;
static volatile uint64_t fault_rcx, fault_rdi, fault_address;

static void on_segv(int sig, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    fault_rcx = (uint64_t)uc->uc_mcontext.gregs[REG_RCX];
    fault_rdi = (uint64_t)uc->uc_mcontext.gregs[REG_RDI];
    fault_address = (uint64_t)info->si_addr;
    mprotect(guard, 4096, PROT_READ | PROT_WRITE);
}

static void faulting(void)
{
    uint8_t *p = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    guard = p + 8192;
    mprotect(guard, 4096, PROT_NONE);
    struct sigaction sa = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &sa, NULL);
    void *d = p;
    long c = 1200;
    asm volatile("rep stosq" : "+D"(d), "+c"(c) : "a"(-1L) : "memory");
    ok(fault_rdi == (uint64_t)guard && fault_rcx == 1200 - 1024 && fault_address == (uint64_t)guard,
       "rep stosq stops exactly at the fault");
    ok(c == 0 && d == p + 9600 && p[9599] == 0xff && p[9600] == 0, "and goes on after it");
}

int main(void)
{
    moves();
    scans();
    singles();
    faulting();
    return finish();
}
