/* prctl and arch_prctl: what a program sets about itself, and who inherits it. */
// VARIANTS: o2 static
#include "guest.h"
#include <elf.h>
#include <setjmp.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <ucontext.h>

static sigjmp_buf back;
static siginfo_t info;
static greg_t trap, error, rip;

static void note(int sig, siginfo_t *i, void *context)
{
    const greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    info = *i;
    trap = g[REG_TRAPNO];
    error = g[REG_ERR];
    rip = g[REG_RIP];
    siglongjmp(back, 1);
}

static long p(int option, long a, long b, long c, long d)
{
    long r = syscall(SYS_prctl, option, a, b, c, d);
    return r < 0 ? -errno : r;
}

static long arch(int option, long a)
{
    long r = syscall(SYS_arch_prctl, option, a);
    return r < 0 ? -errno : r;
}

/* ---- small ones ---- */

static void values(void)
{
    char name[17] = "";
    int v = -1;
    is(p(PR_SET_NAME, (long)"a name of more than sixteen", 0, 0, 0), 0, "PR_SET_NAME");
    is(p(PR_GET_NAME, (long)name, 0, 0, 0), 0, "PR_GET_NAME");
    ok(!strcmp(name, "a name of more "), "cuts it at 15");
    is(p(PR_SET_NAME, 8, 0, 0, 0), -EFAULT, "a name out of memory");
    is(p(PR_SET_PDEATHSIG, SIGUSR1, 0, 0, 0), 0, "PR_SET_PDEATHSIG");
    is(p(PR_SET_PDEATHSIG, 99, 0, 0, 0), -EINVAL, "of no signal");
    is(p(PR_GET_PDEATHSIG, (long)&v, 0, 0, 0), 0, "PR_GET_PDEATHSIG");
    is(v, SIGUSR1, "as it was set");
    p(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    is(p(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0, "PR_SET_CHILD_SUBREAPER");
    is(p(PR_GET_CHILD_SUBREAPER, (long)&v, 0, 0, 0), 0, "PR_GET_CHILD_SUBREAPER");
    is(v, 1, "as it was set");
    is(p(PR_SET_KEEPCAPS, 1, 0, 0, 0), 0, "PR_SET_KEEPCAPS");
    is(p(PR_GET_KEEPCAPS, 0, 0, 0, 0), 1, "PR_GET_KEEPCAPS");
    is(p(PR_SET_TIMERSLACK, 70000, 0, 0, 0), 0, "PR_SET_TIMERSLACK");
    is(p(PR_GET_TIMERSLACK, 0, 0, 0, 0), 70000, "PR_GET_TIMERSLACK");
    is(p(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0, "PR_SET_THP_DISABLE");
    is(p(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1, "PR_GET_THP_DISABLE");
    is(p(PR_GET_TIMING, 0, 0, 0, 0), PR_TIMING_STATISTICAL, "PR_GET_TIMING");
    is(p(PR_SET_TIMING, PR_TIMING_TIMESTAMP, 0, 0, 0), -EINVAL, "PR_SET_TIMING");
    is(p(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), -EINVAL, "PR_SET_NO_NEW_PRIVS is for ever");
    is(p(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0, "PR_SET_NO_NEW_PRIVS");
    is(p(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1, "PR_GET_NO_NEW_PRIVS");
    is(p(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0), -EINVAL, "unused arguments are 0");
    ok(p(PR_CAPBSET_READ, 0, 0, 0, 0) >= 0 && p(PR_CAPBSET_READ, 99, 0, 0, 0) == -EINVAL, "PR_CAPBSET_READ");
}

static void dumpable(void)
{
    int status;
    is(p(PR_GET_DUMPABLE, 0, 0, 0, 0), 1, "dumpable");
    is(p(PR_SET_DUMPABLE, 2, 0, 0, 0), -EINVAL, "as setuid programs are: refused");
    is(p(PR_SET_DUMPABLE, 0, 0, 0, 0), 0, "not dumpable");
    is(p(PR_GET_DUMPABLE, 0, 0, 0, 0), 0, "reads back");
    if (!fork())
        _exit(p(PR_GET_DUMPABLE, 0, 0, 0, 0) + 7);
    wait(&status);
    is(WEXITSTATUS(status), 7, "a child inherits it");
    if (!fork())
        execl("/proc/self/exe", "prctl", "exec", NULL);
    wait(&status);
    is(status, 0, "an executed program does not");
    if (!vfork())
        _exit(0);
    wait(&status);
    is(p(PR_SET_DUMPABLE, 1, 0, 0, 0), 0, "dumpable again");
    is(p(PR_GET_DUMPABLE, 0, 0, 0, 0), 1, "reads back");
}

/* Numbers that this kind of processor has no use for, and that no kernel has. */
static void absent(void)
{
    static const int options[] = {0,  5,  6,  9,  10, 11, 12, 17, 18, 19, 20, 43,     44,         45,
                                  46, 48, 50, 51, 54, 60, 61, 63, 64, 69, 70, 0x7777, 0x7fffffff, -1};
    static const int arches[] = {0, 0x1000, 0x1005, 0x1020, 0x1026, 0x3000, 0x6000, -1};
    for (unsigned i = 0; i < sizeof options / sizeof options[0]; i++)
        is(p(options[i], 0, 0, 0, 0), -EINVAL, "an option that is none here");
    for (unsigned i = 0; i < sizeof arches / sizeof arches[0]; i++)
        is(arch(arches[i], 0), -EINVAL, "an arch_prctl option that is none");
}

static void auxv(void)
{
    enum { GET_AUXV = 0x41555856 };
    static Elf64_auxv_t v[64];
    long n = p(GET_AUXV, (long)v, sizeof v, 0, 0);
    if (n == -EINVAL) {
        say("no PR_GET_AUXV\n");
        return;
    }
    bool same = n > 0;
    for (Elf64_auxv_t *a = v; a->a_type != AT_NULL; a++)
        same = same && (a->a_type == AT_HWCAP || a->a_un.a_val == getauxval(a->a_type));
    ok(same, "PR_GET_AUXV is what the program was started with");
    memset(v, 0x55, sizeof v);
    ok(p(GET_AUXV, (long)v, 16, 0, 0) == n && v[0].a_type != 0x5555555555555555 &&
           v[1].a_type == 0x5555555555555555,
       "as much as there is room for");
    is(p(GET_AUXV, 8, 16, 0, 0), -EFAULT, "no room at all");
    is(p(GET_AUXV, (long)v, sizeof v, 1, 0), -EINVAL, "unused arguments are 0");
}

/* ---- forbidden instructions ---- */

__attribute__((noinline)) static void try(int which)
{
    unsigned a = 0, b, c = 0, d;
    if (which == 0)
        __asm__ volatile("rdtsc" : "=a"(a), "=d"(d));
    else if (which == 1)
        __asm__ volatile("rdtscp" : "=a"(a), "=d"(d), "=c"(c));
    else
        __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
}

/* 1: SIGSEGV, as of a privileged instruction. */
static int faults(int which)
{
    if (sigsetjmp(back, 1))
        return info.si_signo == SIGSEGV && info.si_code == SI_KERNEL && !info.si_addr && trap == 13 &&
               !error && rip >= (greg_t)try && rip < (greg_t)try + 200;
    try(which);
    return 0;
}

static void instructions(void)
{
    int v = 0, status;
    struct sigaction a = {.sa_sigaction = note, .sa_flags = SA_SIGINFO}, before;
    sigaction(SIGSEGV, &a, &before);
    ok(p(PR_GET_TSC, (long)&v, 0, 0, 0) == 0 && v == PR_TSC_ENABLE, "PR_GET_TSC");
    is(p(PR_SET_TSC, 3, 0, 0, 0), -EINVAL, "PR_SET_TSC with another mode");
    is(p(PR_GET_TSC, 8, 0, 0, 0), -EFAULT, "PR_GET_TSC out of memory");
    is(p(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0), 0, "PR_SET_TSC");
    ok(p(PR_GET_TSC, (long)&v, 0, 0, 0) == 0 && v == PR_TSC_SIGSEGV, "reads back");
    for (int i = 0; i < 3; i++)
        ok(faults(0) && faults(1) && !faults(2), "rdtsc and rdtscp fault, cpuid does not");
    if (!fork())
        _exit(faults(0));
    wait(&status);
    is(WEXITSTATUS(status), 1, "in a child, too");
    if (!fork()) {
        signal(SIGSEGV, SIG_DFL);
        try(0);
    }
    wait(&status);
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "without a handler it kills");
    is(p(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0), 0, "allowed again");
    ok(!faults(0) && !faults(1), "they run");
    is(arch(0x1011, 0), 1, "ARCH_GET_CPUID");
    long r = arch(0x1012, 0);
    if (r == 0) { /* -ENODEV: the processor cannot */
        ok(faults(2) && !faults(0) && arch(0x1011, 0) == 0, "cpuid faults");
        if (!fork())
            _exit(faults(2));
        wait(&status);
        is(WEXITSTATUS(status), 1, "in a child, too");
        if (!fork())
            execl("/proc/self/exe", "prctl", "exec", NULL);
        wait(&status);
        is(status, 0, "not in an executed program");
        is(arch(0x1012, 1), 0, "allowed again");
    }
    ok(!faults(2), "cpuid runs");
    sigaction(SIGSEGV, &before, NULL);
}

/* ---- nothing both writable and executable ---- */

static int map(int prot)
{
    void *p = mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return errno;
    munmap(p, 4096);
    return 0;
}

static void exec_gain(void)
{
    enum { SET_MDWE = 65, GET_MDWE = 66, REFUSE = 1, NO_INHERIT = 2 };
    const int rw = PROT_READ | PROT_WRITE, rx = PROT_READ | PROT_EXEC;
    int status;
    if (p(GET_MDWE, 0, 0, 0, 0) < 0)
        return; /* before Linux 6.3 */
    uint8_t *data = mmap(NULL, 8192, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *text = mmap(NULL, 4096, rw | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    text[0] = 0xc3;
    for (int bits = REFUSE | NO_INHERIT; bits; bits = bits == REFUSE ? 0 : REFUSE) {
        pid_t child = fork();
        if (!child) {
            is(p(SET_MDWE, NO_INHERIT, 0, 0, 0), -EINVAL, "not to inherit nothing");
            is(p(SET_MDWE, 4, 0, 0, 0), -EINVAL, "an unknown bit");
            long r = p(SET_MDWE, bits, 0, 0, 0);
            if (r < 0 && bits != REFUSE)
                _exit(0); /* before Linux 6.6 */
            is(r, 0, "PR_SET_MDWE");
            is(p(GET_MDWE, 0, 0, 0, 0), bits, "PR_GET_MDWE");
            is(p(SET_MDWE, 0, 0, 0, 0), -EPERM, "is for ever");
            is(p(SET_MDWE, bits, 0, 0, 0), 0, "but may be said again");
            is(map(rw | PROT_EXEC), EACCES, "no new mapping for both");
            is(map(rx), 0, "one to execute");
            is(mprotect(data, 8192, rx), -1, "data does not become code");
            is(errno, EACCES, "EACCES");
            is(mprotect(text, 4096, rx), 0, "code stays code");
            ((void (*)(void))text)();
            is(mprotect(text, 4096, rw), 0, "and becomes data");
            is(mprotect(text, 4096, rx), -1, "for good");
            if (!fork())
                _exit(map(rw | PROT_EXEC) == (bits == REFUSE ? EACCES : 0));
            wait(&status);
            is(WEXITSTATUS(status), 1, "a child inherits it or not");
            if (!fork())
                execl("/proc/self/exe", "prctl", "exec", NULL);
            wait(&status);
            is(status, 0, "an executed program runs");
            _exit(guest_failures);
        }
        waitpid(child, &status, 0);
        is(status, 0, "all of it");
    }
}

static void segments(void)
{
    uint64_t fs = 0, gs = 1;
    is(arch(0x1003, (long)&fs), 0, "ARCH_GET_FS");
    ok(*(uint64_t *)fs == fs, "the thread's");
    is(arch(0x1004, (long)&gs), 0, "ARCH_GET_GS");
    is(gs, 0, "none");
    is(arch(0x1003, 8), -EFAULT, "out of memory");
    is(arch(0x1002, 1l << 62), -EPERM, "a base that is no address of the program's");
    is(arch(0x1001, 1l << 62), -EPERM, "of gs as well");
    is(arch(0x1001, 0), 0, "none of gs");
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "exec")) {
        try(2);
        return p(PR_GET_DUMPABLE, 0, 0, 0, 0) != 1;
    }
    dumpable();
    values();
    absent();
    auxv();
    instructions();
    exec_gain();
    segments();
    return finish();
}
