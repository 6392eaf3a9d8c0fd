/*
 * Instructions that belong to the kernel or show something of it: what a program may do with them, and how they fail.
 */
// CPU: v1 v3
#include "guest.h"
#include <sched.h>
#include <setjmp.h>
#include <ucontext.h>

static sigjmp_buf back;
static int signo, code;
static uint64_t where, trap, error, at;

static void caught(int s, siginfo_t *info, void *context)
{
    const greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    signo = s;
    code = info->si_code;
    where = (uint64_t)info->si_addr;
    trap = (uint64_t)g[REG_TRAPNO];
    error = (uint64_t)g[REG_ERR];
    at = (uint64_t)g[REG_RIP];
    siglongjmp(back, 1);
}

static bool protection(uint64_t wanted_error)
{
    return signo == SIGSEGV && code == SI_KERNEL && !where && trap == 13 && error == wanted_error;
}

#define TRY(...)                                                                                             \
    do {                                                                                                     \
        signo = 0;                                                                                           \
        if (!sigsetjmp(back, 1))                                                                             \
            asm volatile(__VA_ARGS__);                                                                       \
    } while (0)

/* ---- segments ---- */

static void selectors(void)
{
    uint64_t r = 0x1122334455667788, before = r;
    uint8_t zero;
    static const uint16_t cpu = 0x7b, none = 0x3fff;
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    unsigned here = 0;
    while (!CPU_ISSET(here, &set))
        here++;
    CPU_ZERO(&set);
    CPU_SET(here, &set);
    sched_setaffinity(0, sizeof set, &set);
    asm volatile("lsl %2, %k0\n setz %1" : "+r"(r), "=q"(zero) : "r"((uint32_t)cpu) : "cc");
    ok(zero && (r & 0xfff) == here && !(r >> 32), "lsl of the processor's number, from a register");
    r = before;
    asm volatile("lslw %2, %w0\n setz %1" : "+r"(r), "=q"(zero) : "m"(cpu) : "cc");
    ok(zero && (r & 0xfff) == here && r >> 16 == before >> 16, "from memory, into 16 bits");
    asm volatile("lsl %2, %q0\n setz %1" : "+r"(r), "=q"(zero) : "r"((uint64_t)cpu) : "cc");
    ok(zero && (r & 0xfff) == here, "into 64 bits");
    register uint64_t high asm("r13") = before;
    asm volatile("lsl %2, %k0\n setz %1" : "+r"(high), "=q"(zero) : "m"(none) : "cc");
    ok(!zero && high == before, "lsl of no segment leaves the register");
    asm volatile("lar %2, %k0\n setz %1" : "+r"(high), "=q"(zero) : "r"(0x33) : "cc");
    ok(zero && (high & 0xff00) == 0xfb00, "lar of the code segment");
    asm volatile("stc\n lar %2, %k0\n setc %1" : "+r"(high), "=q"(zero) : "r"(0) : "cc");
    ok(zero, "lar leaves other flags");
    asm volatile("verr %w1\n setz %0" : "=q"(zero) : "r"(0x2b) : "cc");
    ok(zero, "verr of the stack's segment");
    asm volatile("verw %1\n setz %0" : "=q"(zero) : "m"(*(const uint16_t *)"\x33") : "cc");
    ok(!zero, "verw of the code segment");
    TRY("lsl (%0), %%eax" : : "r"(16) : "rax", "cc");
    ok(signo == SIGSEGV && code == SEGV_MAPERR && where == 16 && trap == 14,
       "lsl of a word that cannot be read");
}

/* ---- the kernel's tables ---- */

static void tables(void)
{
    struct {
        uint8_t bytes[16];
    } table;
    memset(&table, 0x5a, sizeof table);
    asm volatile("sgdt %0" : "+m"(table));
    ok(table.bytes[10] == 0x5a && table.bytes[9] == 0xff, "sgdt stores ten bytes, the kernel's address");
    memset(&table, 0x5a, sizeof table);
    asm volatile("sidt %0" : "+m"(table));
    ok(table.bytes[10] == 0x5a && table.bytes[9] == 0xff, "sidt");
    uint64_t r = 0x5a5a5a5a5a5a5a5a;
    asm volatile("smsw %k0" : "+r"(r));
    ok((r & 0xffff) == 0x33, "smsw: protected mode");
    uint16_t words[2] = {0x5a5a, 0x5a5a};
    asm volatile("smsw %0" : "=m"(words[0]) : : "memory");
    ok(words[0] == 0x33 && words[1] == 0x5a5a, "into memory");
    asm volatile("str %w0" : "=r"(r));
    ok((r & 0xffff) == 0x40, "str");
    asm volatile("sldt %0" : "=m"(words[0]) : : "memory");
    ok(words[0] == 0 && words[1] == 0x5a5a, "sldt");
    TRY("sgdt (%0)" : : "r"(16) : "memory");
    ok(signo == SIGSEGV && code == SEGV_MAPERR && where == 16, "sgdt into nowhere");
}

/* ---- transfers ---- */

enum { KEPT = 0x40cd7 }; /* AC, OF, DF, SF, ZF, AF, PF, CF */

static void returns(void)
{
    uint64_t flags, sp, before, cs, ss;
    asm volatile("mov %%cs, %0\n mov %%ss, %1" : "=r"(cs), "=r"(ss));
    uint16_t code_segment = (uint16_t)cs, stack_segment = (uint16_t)ss;
#define IRETQ(what, flags_in)                                                                                \
    asm volatile("mov %%rsp, %2\n push %q3\n lea -512(%2), %%rax\n push %%rax\n push %4\n push %q5\n"        \
                 "lea 1f(%%rip), %%rax\n push %%rax\n " what "\n ud2\n"                                      \
                 "1: mov %%rsp, %1\n pushfq\n pop %0\n cld\n push $0x202\n popfq\n mov %2, %%rsp\n"          \
                 : "=&r"(flags), "=&r"(sp), "=&r"(before)                                                    \
                 : "r"((uint64_t)stack_segment), "r"((uint64_t)(flags_in)), "r"((uint64_t)code_segment)      \
                 : "rax", "memory", "cc")
    IRETQ("iretq", 0xad7);
    ok(sp == before - 512 && (flags & 0xfd5) == 0xad5 - 0x200 + (flags & 0x200), "iretq: stack and flags");
    IRETQ("iretq", 0x646);
    ok((flags & KEPT & 0xfff) == (0x646 & KEPT), "iretq with the direction flag");
    IRETQ("iretq", 0x40202);
    ok(flags & 0x40000, "iretq with the alignment flag");
    IRETQ("iretq", 0x3002);
    ok((flags & 0x3200) == 0x200, "iretq changes neither privilege nor interrupts");
    bool all = true;
    for (int i = 0; i < 1000; i++) {
        IRETQ("iretq", 2 + (i & 1));
        all = all && (flags & 1) == (uint64_t)(i & 1);
    }
    ok(all, "a thousand times");
    /* iretd: 32-bit words, on a stack in the lower 4 GiB */
    uint32_t *low = mmap((void *)0x20000000, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    uint8_t *target = (uint8_t *)low + 4096;
    target[0] = 0xff; /* jmp *%rbx */
    target[1] = 0xe3;
    low[0] = (uint32_t)(uintptr_t)target;
    low[1] = code_segment;
    low[2] = 0x247;
    low[3] = (uint32_t)(uintptr_t)low + 2048;
    low[4] = stack_segment;
    asm volatile("mov %%rsp, %%r12\n lea 1f(%%rip), %%rbx\n mov %2, %%rsp\n .byte 0xcf\n"
                 "1: mov %%rsp, %1\n mov %%r12, %%rsp\n pushfq\n pop %0\n"
                 : "=&r"(flags), "=&r"(sp)
                 : "r"(low)
                 : "rbx", "r12", "memory", "cc");
    ok(sp == (uint64_t)(uintptr_t)low + 2048 && (flags & 0xd5) == 0x45, "iretd");
    munmap(low, 8192);

    asm volatile(
        "mov %%rsp, %0\n push %q2\n lea 1f(%%rip), %%rax\n push %%rax\n lretq\n ud2\n 1: mov %%rsp, %1\n"
        : "=&r"(before), "=&r"(sp)
        : "r"((uint64_t)code_segment)
        : "rax", "memory");
    ok(sp == before, "lretq");
    asm volatile("mov %%rsp, %0\n sub $16, %%rsp\n push %q2\n lea 1f(%%rip), %%rax\n push %%rax\n lretq "
                 "$16\n ud2\n 1: mov %%rsp, %1\n"
                 : "=&r"(before), "=&r"(sp)
                 : "r"((uint64_t)code_segment)
                 : "rax", "memory");
    ok(sp == before, "lretq that pops more");
    struct {
        uint32_t offset;
        uint16_t selector;
    } __attribute__((packed)) pointer = {0, code_segment};
    uint8_t *page = mmap((void *)0x20000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    memcpy(page, "\xff\xe3", 2);               /* jmp *%rbx */
    memcpy(page + 128, "\x48\x89\xe0\xcb", 4); /* mov %rsp, %rax; lret */
    pointer.offset = (uint32_t)(uintptr_t)page;
    asm volatile("lea 1f(%%rip), %%rbx\n ljmp *%0\n ud2\n 1:" : : "m"(pointer) : "rbx");
    ok(true, "ljmp through memory");
    pointer.offset = (uint32_t)(uintptr_t)page + 128;
    memcpy(page + 256, "\xff\x1f\xc3",
           3); /* lcall *(%rdi); ret: in the lower 4 GiB, for its words have 32 bits */
    asm volatile(
        "sub $128, %%rsp\n mov %%rsp, %0\n call *%4\n mov %%rsp, %1\n add $128, %%rsp\n mov %%rax, %2"
        : "=&r"(before), "=&r"(sp), "=&r"(flags)
        : "D"(&pointer), "r"(page + 256)
        : "rax", "memory");
    ok(sp == before && flags == before - 16, "lcall and lret");

    /* what cannot be */
    TRY("push $0x2b\n push %%rsp\n push $2\n push $0x10\n push $0\n iretq" : : : "memory");
    ok(protection(0x10), "iretq to the kernel's segment");
    TRY("push $0\n push %%rsp\n push $2\n push $0x33\n push $0\n iretq" : : : "memory");
    ok(protection(0), "iretq without a stack's segment");
    TRY("push $0x2b\n push %%rsp\n push $2\n push $0x33\n mov $0x8000000000000000, %%rax\n push %%rax\n iretq"
        :
        :
        : "rax", "memory");
    ok(signo == SIGSEGV && code == SI_KERNEL && trap == 13, "iretq to no address");
    TRY("mov $0x1000, %%rsp\n iretq" : : : "memory");
    ok(signo == SIGSEGV && code == SEGV_MAPERR && where >= 0x1000 && where < 0x1028 && trap == 14,
       "iretq without a stack");
    munmap(page, 4096);
}

/* The stack of the faulting iretq is not there, so its handler runs on another. */
static void on_a_bad_stack(void)
{
    static char stack[65536];
    stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&ss, NULL);
}

/* ---- privileged ---- */

static void privileged(void)
{
    static const struct {
        const char *name, *bytes;
        size_t n;
    } insns[] = {
#define I(name, bytes) {name, bytes, sizeof(bytes) - 1}
        I("in al, dx", "\xec"),
        I("in eax, 64", "\xe5\x40"),
        I("out dx, eax", "\xef"),
        I("insb", "\x6c"),
        I("outsd", "\x6f"),
        I("cli", "\xfa"),
        I("sti", "\xfb"),
        I("hlt", "\xf4"),
        I("rdpmc", "\x0f\x33"),
        I("rdmsr", "\x0f\x32"),
        I("wrmsr", "\x0f\x30"),
        I("mov from cr0", "\x0f\x20\xc0"),
        I("mov to cr3", "\x0f\x22\xd8"),
        I("mov from dr7", "\x0f\x21\xf8"),
        I("clts", "\x0f\x06"),
        I("invd", "\x0f\x08"),
        I("wbinvd", "\x0f\x09"),
        I("wbnoinvd", "\xf3\x0f\x09"),
        I("lgdt", "\x0f\x01\x17"),
        I("lidt", "\x0f\x01\x1f"),
        I("lldt", "\x0f\x00\xd0"),
        I("ltr", "\x0f\x00\xd8"),
        I("lmsw", "\x0f\x01\xf0"),
        I("invlpg", "\x0f\x01\x3f"),
        I("swapgs", "\x0f\x01\xf8"),
        I("sysret", "\x48\x0f\x07"),
    };
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (volatile size_t i = 0; i < sizeof insns / sizeof *insns; i++) {
        memcpy(page, insns[i].bytes, insns[i].n);
        page[insns[i].n] = (char)0xc3;
        TRY("xor %%eax, %%eax\n xor %%edx, %%edx\n xor %%ecx, %%ecx\n call *%0"
            :
            : "r"(page), "D"(page), "S"(page)
            : "rax", "rcx", "rdx", "memory");
        ok(protection(0) && at == (uint64_t)page, "%s", insns[i].name);
    }
    static const struct {
        const char *name, *bytes;
        size_t n;
    } undefined[] = {
        I("ud2", "\x0f\x0b"),      I("vmcall", "\x0f\x01\xc2"), I("mwait", "\x0f\x01\xc9"),
        I("clac", "\x0f\x01\xca"), I("rsm", "\x0f\xaa"),        I("push es", "\x06"),
        I("into", "\xce"),         I("aam", "\xd4\x0a"),
    };
    for (volatile size_t i = 0; i < sizeof undefined / sizeof *undefined; i++) {
        memcpy(page, undefined[i].bytes, undefined[i].n);
        page[undefined[i].n] = (char)0xc3;
        TRY("xor %%eax, %%eax\n xor %%edx, %%edx\n xor %%ecx, %%ecx\n call *%0"
            :
            : "r"(page)
            : "rax", "rcx", "rdx", "memory");
        ok(signo == SIGILL && code == ILL_ILLOPN && where == (uint64_t)page && trap == 6, "%s",
           undefined[i].name);
    }
    TRY("int $0x21");
    ok(protection(0x21 * 8 + 2), "int 0x21");
    munmap(page, 4096);
}

int main(void)
{
    struct sigaction a = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    on_a_bad_stack();
    sigaction(SIGILL, &a, NULL);
    sigaction(SIGSEGV, &a, NULL);
    sigaction(SIGBUS, &a, NULL);
    selectors();
    tables();
    returns();
    privileged();
    return finish();
}
