/*
 * The frame of a generated program (fuzz_translate.c): ROUNDS [async].
 *
 * It puts the generated blob where its seed wants it, runs gen_main ROUNDS times and prints the state
 * that each checkpoint and each fault saw: a line for the first ones, then only their sum. With `async` a
 * timer interrupts it as well; where that happens differs from run to run, but must be repeated by a replay,
 * so a hash of all that the handler saw is printed. The last line is a sum of everything. With an even number
 * of rounds a forked child does the same at the same time. The final bytes of the arena and of the stack's
 * upper page go to descriptors 51 and 52.
 *
 * Linked statically at fixed addresses, so that no value depends on the run.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum {
    ARENA_SIZE = 8192,
    STACK_SIZE = 65536,
    STACK_SHOWN = 4096,
    FUNCTIONS = 8,
    LINES_MAX = 400,
    FUEL = 300,
    FAULTS_MAX = 5000
};
enum { CELL_CHECKPOINT, CELL_FUEL, CELL_RESUME };
#define ARENA     ((uint8_t *)0x09000000)
#define CELLS     ((uint64_t *)0x09800000)
#define STACK     ((uint8_t *)0x09c00000)
#define STACK_TOP (STACK + STACK_SIZE - 4096)

extern uint8_t gen_begin[], gen_code_end[], gen_end[], gen_data[], gen_readonly[], gen_pointers[], gen_main[];
extern const uint64_t gen_base, gen_writable, gen_faults;
extern const uint64_t fault_sites[][2];

__thread uint8_t tls_buffer[8192];

/* What a checkpoint saves; the assembly below knows the offsets. */
struct state {
    uint64_t gpr[16]; /* rax rcx rdx rbx rsp rbp rsi rdi r8..r15 */
    uint64_t flags, rip;
    uint32_t mask, mxcsr;
    uint16_t control, status;
    uint8_t pad[36];
    uint8_t ymm[16][32];
} state __attribute__((aligned(64)));

uint8_t checkpoint_stack[32768] __attribute__((aligned(64)));
uint64_t frame_rsp;

__asm__(".intel_syntax noprefix\n"
        ".globl checkpoint\n"
        "checkpoint:\n"
        " pushfq\n pop qword ptr [state + 128]\n"
        " mov [state], rax\n mov [state + 8], rcx\n mov [state + 16], rdx\n mov [state + 24], rbx\n"
        " mov [state + 32], rsp\n mov [state + 40], rbp\n mov [state + 48], rsi\n mov [state + 56], rdi\n"
        " mov [state + 64], r8\n mov [state + 72], r9\n mov [state + 80], r10\n mov [state + 88], r11\n"
        " mov [state + 96], r12\n mov [state + 104], r13\n mov [state + 112], r14\n mov [state + 120], r15\n"
        " mov rax, [rsp]\n mov ecx, [rax]\n mov [state + 144], ecx\n add rax, 4\n mov [rsp], rax\n mov "
        "[state + 136], rax\n"
        " stmxcsr [state + 148]\n fnstcw [state + 152]\n fnstsw [state + 154]\n"
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n vmovups [state + 192 + 32*\\n], ymm\\n\n .endr\n"
        " cld\n lea rsp, [checkpoint_stack + 32768]\n call checkpoint_seen\n"
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n vmovups ymm\\n, [state + 192 + 32*\\n]\n .endr\n"
        " mov rsp, [state + 32]\n"
        " mov rax, [state]\n mov rcx, [state + 8]\n mov rdx, [state + 16]\n mov rbx, [state + 24]\n"
        " mov rbp, [state + 40]\n mov rsi, [state + 48]\n mov rdi, [state + 56]\n"
        " mov r8, [state + 64]\n mov r9, [state + 72]\n mov r10, [state + 80]\n mov r11, [state + 88]\n"
        " mov r12, [state + 96]\n mov r13, [state + 104]\n mov r14, [state + 112]\n mov r15, [state + 120]\n"
        " push qword ptr [state + 128]\n popfq\n ret\n"
        /* void run(entry rdi, stack rsi, arena rdx, cells rcx) */
        ".globl run\n"
        "run:\n push rbx\n push rbp\n push r12\n push r13\n push r14\n push r15\n"
        " mov [frame_rsp], rsp\n mov rsp, rsi\n mov r15, rdx\n mov r14, rcx\n mov rax, rdi\n"
        " xor ebx, ebx\n xor ecx, ecx\n xor edx, edx\n xor esi, esi\n mov ebp, 7\n mov r8d, 8\n mov r9d, 9\n "
        "mov r10d, 10\n"
        " mov r11d, 11\n mov r12d, 12\n mov r13d, 13\n vzeroall\n fninit\n call rax\n"
        " cld\n mov rsp, [frame_rsp]\n pop r15\n pop r14\n pop r13\n pop r12\n pop rbp\n pop rbx\n "
        "vzeroupper\n ret\n"
        ".att_syntax\n");
extern void checkpoint(void);
extern void run(const void *entry, void *stack, void *arena, void *cells);

static uint64_t sum = 1, async_sum, checkpoints, faults, lines, ticks;
static char text[1 << 19];
static size_t text_used;

static void mix(uint64_t *to, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    for (uint64_t word; n; p += 8, n -= n < 8 ? n : 8) {
        word = 0;
        memcpy(&word, p, n < 8 ? n : 8);
        *to = (*to ^ word) * 0x9e3779b97f4a7c15ull;
        *to ^= *to >> 29;
    }
}

static void line(const char *what, uint64_t pc, const uint64_t *registers, int n)
{
    if (lines++ >= LINES_MAX)
        return;
    text_used += (size_t)snprintf(text + text_used, sizeof text - text_used, "%s %lu at +%lx: %016lx", what,
                                  checkpoints, pc - gen_base, sum);
    for (int i = 0; i < n && getenv("REGISTERS"); i++)
        text_used += (size_t)snprintf(text + text_used, sizeof text - text_used, " %lx", registers[i]);
    text[text_used++] = '\n';
}

void checkpoint_seen(void)
{
    struct state s = state;
    s.flags &= s.mask | 0x400;
    s.status &= 0x3f;
    mix(&sum, &s, sizeof s);
    if (++checkpoints % 16 == 0)
        mix(&sum, ARENA, ARENA_SIZE);
    line("checkpoint", s.rip, s.gpr, (int)(offsetof(struct state, ymm) / 8));
}

/* ---- signals ---- */

static uint64_t resume_of(uint64_t pc)
{
    for (uint64_t i = 0; i < gen_faults; i++)
        if (fault_sites[i][0] == pc - gen_base)
            return gen_base + fault_sites[i][1];
    return CELLS[CELL_RESUME];
}

static void mix_vectors(uint64_t *to, const ucontext_t *uc)
{
    static const uint8_t zeros[256];
    const uint8_t *fp = (const uint8_t *)uc->uc_mcontext.fpregs;
    uint32_t magic;
    uint64_t features;
    memcpy(&magic, fp + 464, 4);
    memcpy(&features, fp + 512, 8);
    if (magic != 0x46505853)
        features = 3;
    mix(to, features & 2 ? fp + 160 : zeros, 256); /* a part in its initial state need not be there */
    mix(to, features & 4 ? fp + 576 : zeros, 256);
}

/* Changes xmm3. A frame may lack registers that are in their initial state. */
static void change_vectors(ucontext_t *uc)
{
    uint8_t *fp = (uint8_t *)uc->uc_mcontext.fpregs;
    if (!(fp[512] & 2))
        memset(fp + 160, 0, 256);
    fp[512] |= 2;
    fp[160 + 3 * 16 + 4] ^= 0x77;
}

static void on_fault(int signo, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    greg_t *g = uc->uc_mcontext.gregs;
    uint64_t pc = (uint64_t)g[REG_RIP],
             seen[24] = {(uint64_t)signo, (uint64_t)info->si_code, (uint64_t)info->si_addr};
    for (int i = 0; i <= REG_RIP; i++)
        seen[3 + i] = (uint64_t)g[i];
    seen[20] = (uint64_t)g[REG_EFL] & 0xcd5;
    seen[21] = (uint64_t)g[REG_TRAPNO];
    seen[22] = signo == SIGSEGV ? (uint64_t)g[REG_ERR] : 0;
    seen[23] = g[REG_TRAPNO] == 14 ? (uint64_t)g[REG_CR2] : 0;
    mix(&sum, seen, sizeof seen);
    mix_vectors(&sum, uc);
    if (++faults > FAULTS_MAX)
        _exit(10);
    line("fault", pc, seen, 24);
    g[REG_RIP] = (greg_t)resume_of(signo == SIGTRAP ? pc - 1 : pc);
    g[REG_R8] ^= 0x5555;
    change_vectors(uc);
}

static void on_timer(int signo, siginfo_t *info, void *context)
{
    const ucontext_t *uc = context;
    (void)signo;
    (void)info;
    ticks++;
    mix(&async_sum, uc->uc_mcontext.gregs, sizeof(greg_t) * (REG_RIP + 1));
    mix_vectors(&async_sum, uc);
    mix(&async_sum, ARENA, 64);
}

static void catch (int signo, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | flags};
    sigaction(signo, &a, NULL);
}

static void set_up_signals(void)
{
    static char stack[65536];
    const stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&ss, NULL);
    catch (SIGSEGV, on_fault, 0);
    catch (SIGBUS, on_fault, 0);
    catch (SIGFPE, on_fault, 0);
    catch (SIGILL, on_fault, 0);
    catch (SIGTRAP, on_fault, 0);
}

/* ---- memory ---- */

static void map(void *at, size_t size)
{
    if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
        at) {
        printf("cannot map %p\n", at);
        exit(9);
    }
}

static uint8_t *moved(const uint8_t *p)
{
    return (uint8_t *)(gen_base + (uint64_t)(p - gen_begin));
}

static void copy_part(const uint8_t *from, const uint8_t *end)
{
    uint64_t start = (uint64_t)moved(from) & ~4095ull,
             size = (uint64_t)(end - from) + ((uint64_t)moved(from) & 4095);
    map((void *)start, (size + 4095) & ~4095ull);
    memcpy(moved(from), from, (size_t)(end - from));
}

static void protect(const uint8_t *from, const uint8_t *end, int prot)
{
    mprotect(moved(from), ((size_t)(end - from) + 4095) & ~4095ul, prot);
}

/* Puts the blob where its seed wants it and adds the distance to its pointers. */
static void place_blob(void)
{
    bool in_place = gen_base == (uint64_t)gen_begin;
    if (!in_place) {
        copy_part(gen_begin, gen_code_end);
        copy_part(gen_data, gen_end);
    }
    uint64_t *pointers = (uint64_t *)moved(gen_pointers);
    pointers[0] = (uint64_t)checkpoint;
    for (uint64_t *p = pointers + 1; *p; p++)
        *p += gen_base - (uint64_t)gen_begin;
    if (!in_place || gen_writable)
        protect(gen_begin, gen_code_end, PROT_READ | PROT_EXEC | (gen_writable ? PROT_WRITE : 0));
    protect(gen_readonly, gen_end, PROT_READ);
}

static void set_up_memory(void)
{
    map(ARENA, ARENA_SIZE);
    map(CELLS, 65536);
    map(STACK, STACK_SIZE);
    for (size_t i = 0; i < ARENA_SIZE; i++)
        ARENA[i] = (uint8_t)(i * i * 31 + (i >> 3));
    for (size_t i = 0; i < sizeof tls_buffer; i++)
        tls_buffer[i] = (uint8_t)(i * 7 + (i >> 5));
    place_blob();
    CELLS[CELL_CHECKPOINT] = (uint64_t)checkpoint;
}

static void write_memory(void)
{
    if (write(51, ARENA, ARENA_SIZE) < 0 || write(52, STACK_TOP - STACK_SHOWN, STACK_SHOWN) < 0)
        printf("descriptors 51 and 52 are not open\n");
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    int zero = open("/dev/zero", O_RDONLY);
    if (zero < 0 || dup2(zero, 50) != 50)
        return 9;
    set_up_memory();
    set_up_signals();
    if (argc > 2) {
        const struct itimerval period = {{0, 700}, {0, 700}};
        catch (SIGALRM, on_timer, SA_RESTART);
        setitimer(ITIMER_REAL, &period, NULL);
    }
    /* With an even number both processes run it, at the same time; the child's output comes first. */
    bool two = rounds % 2 == 0;
    pid_t child = two ? fork() : 0;
    for (int i = 0; i < rounds; i++) {
        CELLS[CELL_FUEL] = FUEL;
        run(moved(gen_main), STACK_TOP, ARENA, CELLS);
        mix(&sum, ARENA, ARENA_SIZE);
        mix(&sum, tls_buffer, sizeof tls_buffer);
        mix(&sum, moved(gen_data), 4096);
    }
    if (argc > 2) {
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
        printf("%lu interruptions, %016lx\n", ticks, async_sum);
    }
    int status = 0;
    if (child && waitpid(child, &status, 0) != child)
        return 9;
    if (!two || child)
        write_memory();
    fwrite(text, 1, text_used, stdout);
    printf("%lu checkpoints, sum %016lx\n", checkpoints, sum);
    return status != 0;
}
