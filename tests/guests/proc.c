/* /proc/self: what it says of memory, signals, limits and descriptors fits what the program knows of itself. */
// VARIANTS: o2 static
// RUNS: memory signals limits names files cpu others
#include "guest.h"
#include <cpuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char text[1 << 20];

static char *whole(int fd)
{
    size_t size = 0;
    for (ssize_t n; (n = read(fd, text + size, sizeof text - 1 - size)) > 0;)
        size += (size_t)n;
    text[size] = 0;
    close(fd);
    return text;
}

static char *file(const char *name)
{
    return whole(open(name, O_RDONLY));
}

/* What follows `key` in a line of the file, or "". */
static char *row(const char *name, const char *key)
{
    static char line[4096];
    char *p = file(name);
    size_t n = strlen(key);
    for (; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (!strncmp(p, key, n)) {
            size_t len = strcspn(p + n, "\n");
            snprintf(line, sizeof line, "%.*s", (int)len, p + n);
            return line + strspn(line, " \t");
        }
    return strcpy(line, "");
}

static long number(const char *name, const char *key)
{
    return strtol(row(name, key), NULL, 10);
}

static long field(int which)
{
    char *p = strrchr(file("/proc/self/stat"), ')') + 1;
    for (int i = 3; i < which; i++)
        p = strchr(p + 1, ' ');
    return (long)strtoull(p, NULL, 10);
}

/* Kilobytes that maps or smaps tell; the vsyscall page is no memory of the process. */
static long listed(const char *name, bool smaps)
{
    unsigned long start, end, size, sum = 0;
    bool real = false;
    for (char *p = file(name); p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (sscanf(p, "%lx-%lx ", &start, &end) == 2) {
            real = start < 1ul << 47;
            if (real && !smaps)
                sum += (end - start) / 1024;
        } else if (real && smaps && sscanf(p, "Size: %lu kB", &size) == 1) {
            sum += size;
        }
    }
    return (long)sum;
}

static void memory(void)
{
    long before = number("/proc/self/status", "VmSize:");
    is(listed("/proc/self/maps", false), before, "VmSize is what maps lists");
    is(listed("/proc/self/smaps", true), before, "and smaps");
    is(field(23) / 1024, before, "and stat");
    is(strtol(file("/proc/self/statm"), NULL, 10) * 4, before, "and statm");
    ok(before < 64 << 10, "it is small");
    char *p = mmap(NULL, 10 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    is(number("/proc/self/status", "VmSize:") - before, 10 << 10, "10 MiB more");
    long anonymous = number("/proc/self/status", "RssAnon:"), data = number("/proc/self/status", "VmData:");
    memset(p, 1, 10 << 20);
    long more = number("/proc/self/status", "RssAnon:") - anonymous;
    ok(more >= 10 << 10 && more < 11 << 10, "which are resident when they are used");
    ok(number("/proc/self/status", "VmRSS:") >= 10 << 10 && number("/proc/self/status", "VmHWM:") >= 10 << 10,
       "VmRSS");
    ok(field(24) * 4 >= 10 << 10, "and in stat");
    ok(number("/proc/self/smaps_rollup", "Anonymous:") >= 10 << 10, "and in smaps_rollup");
    ok(data >= 10 << 10 && data < 64 << 10, "VmData");
    munmap(p, 10 << 20);
    is(number("/proc/self/status", "VmSize:"), before, "VmSize afterwards");
    ok(number("/proc/self/status", "VmPeak:") >= before + (10 << 10), "VmPeak");
    ok(number("/proc/self/status", "VmStk:") > 0 && number("/proc/self/status", "VmStk:") < 1024, "VmStk");
    ok(number("/proc/self/status", "VmExe:") > 0, "VmExe");
    is(number("/proc/self/status", "Threads:"), 1, "one thread");
    unsigned long here = (unsigned long)memory;
    ok((unsigned long)field(26) <= here && here < (unsigned long)field(27),
       "this code is between startcode and endcode");
    int local;
    ok((unsigned long)field(28) > (unsigned long)&local &&
           (unsigned long)field(28) - (unsigned long)&local < 1 << 20,
       "the stack is where startstack says");
}

static uint64_t mask(const char *key)
{
    return strtoull(row("/proc/self/status", key), NULL, 16);
}

static void ignore_it(int signo)
{
}

static void signals(void)
{
    is(mask("SigBlk:"), 0, "no signal is blocked");
    is(mask("SigCgt:"), 0, "none is handled");
    uint64_t ignored = mask("SigIgn:");
    signal(SIGUSR1, ignore_it);
    signal(SIGSEGV, ignore_it);
    signal(SIGRTMAX, ignore_it);
    signal(SIGUSR2, SIG_IGN);
    is(mask("SigCgt:"), 1 << (SIGUSR1 - 1) | 1 << (SIGSEGV - 1) | 1ull << 63, "three are handled");
    is(mask("SigIgn:"), ignored | 1 << (SIGUSR2 - 1), "one more is ignored");
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGSEGV);
    sigprocmask(SIG_BLOCK, &set, NULL);
    is(mask("SigBlk:"), 1 << (SIGTERM - 1) | 1 << (SIGSEGV - 1), "two are blocked");
    raise(SIGTERM);
    is(mask("ShdPnd:") | mask("SigPnd:"), 1 << (SIGTERM - 1), "one is pending");
    is(field(32), 1 << (SIGTERM - 1) | 1 << (SIGSEGV - 1), "stat: blocked");
    is(field(34), 1 << (SIGUSR1 - 1) | 1 << (SIGSEGV - 1), "stat: handled");
}

static void limits(void)
{
    struct rlimit r = {300, 500};
    setrlimit(RLIMIT_NOFILE, &r);
    char *p = row("/proc/self/limits", "Max open files");
    unsigned long soft, hard;
    ok(sscanf(p, "%lu %lu files", &soft, &hard) == 2 && soft == 300 && hard == 500, "limit of open files");
    r = (struct rlimit){1ul << 40, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &r);
    p = row("/proc/self/limits", "Max address space");
    ok(sscanf(p, "%lu", &soft) == 1 && soft == 1ul << 40 && strstr(p, "unlimited"), "limit of address space");
    r = (struct rlimit){1 << 30, 1ul << 41};
    setrlimit(RLIMIT_DATA, &r);
    p = row("/proc/self/limits", "Max data size");
    ok(sscanf(p, "%lu %lu bytes", &soft, &hard) == 2 && soft == 1 << 30 && hard == 1ul << 41,
       "limit of data");
    r = (struct rlimit){0, 0};
    setrlimit(RLIMIT_CORE, &r);
    p = row("/proc/self/limits", "Max core file size");
    ok(sscanf(p, "%lu %lu bytes", &soft, &hard) == 2 && !soft && !hard, "limit of core files");
}

/* Other ways to the same files. */
static void names(void)
{
    char name[64];
    long size = number("/proc/self/status", "VmSize:");
    snprintf(name, sizeof name, "/proc/%d/status", getpid());
    is(number(name, "VmSize:"), size, "by process number");
    snprintf(name, sizeof name, "/proc/self/task/%d/status", getpid());
    is(number(name, "VmSize:"), size, "by thread number");
    is(number("/proc/thread-self/status", "VmSize:"), size, "thread-self");
    int dir = open("/proc/self", O_RDONLY | O_DIRECTORY);
    ok(strstr(whole(openat(dir, "status", O_RDONLY)), "VmSize:") &&
           strtol(strstr(text, "VmSize:") + 7, NULL, 10) == size,
       "through a directory");
    ok(strtol(whole(openat(dir, "statm", O_RDONLY)), NULL, 10) * 4 == size, "statm, too");
    close(dir);
    ok(!strcmp(row("/proc/self/status", "Name:"), "proc-o2") ||
           !strcmp(row("/proc/self/status", "Name:"), "proc-static"),
       "the program's name");
    prctl(PR_SET_NAME, "renamed (x)");
    ok(!strcmp(row("/proc/self/status", "Name:"), "renamed (x)"), "another name");
    ok(!strcmp(file("/proc/self/comm"), "renamed (x)\n"), "in comm");
    ok(strstr(file("/proc/self/stat"), "(renamed (x)) R ") != NULL, "in stat");
    is(field(4), getppid(), "the parent in stat");
    is(number("/proc/self/status", "PPid:"), getppid(), "and in status");
    int fd = open("/proc/self/comm", O_WRONLY);
    write(fd, "written", 7);
    close(fd);
    prctl(PR_GET_NAME, name);
    ok(!strcmp(name, "written"), "a name written to comm");
}

static void files(void)
{
    ok(number("/proc/self/status", "FDSize:") <= 256, "the table of descriptors is small");
    int fd = open("mapped", O_CREAT | O_RDWR, 0600);
    ftruncate(fd, 8192);
    char *p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0), line[256];
    close(fd);
    rename("mapped", "moved");
    snprintf(line, sizeof line, "%lx-%lx r--p", (unsigned long)p, (unsigned long)p + 8192);
    char *entry = strstr(file("/proc/self/maps"), line);
    ok(entry && strstr(entry, "/moved\n") && strchr(entry, '\n') > strstr(entry, "/moved"),
       "a mapped file that was moved");
    unlink("moved");
    entry = strstr(file("/proc/self/maps"), line);
    ok(entry && strstr(entry, "/moved (deleted)\n") && strchr(entry, '\n') > strstr(entry, "/moved"),
       "and deleted");
    munmap(p, 8192);
}

static bool has_flag(const char *flag)
{
    char word[64];
    char *line = row("/proc/cpuinfo", "flags\t\t:");
    snprintf(word, sizeof word, " %s ", flag);
    size_t n = strlen(line);
    line[n] = ' ';
    line[n + 1] = 0;
    memmove(line + 1, line, n + 2);
    line[0] = ' ';
    return strstr(line, word) != NULL;
}

static void cpu(void)
{
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    ok(has_flag("sse2") && has_flag("lm"), "flags that all have");
    ok(has_flag("pclmulqdq") == (c >> 1 & 1), "pclmulqdq");
    ok(has_flag("popcnt") == (c >> 23 & 1), "popcnt");
    ok(has_flag("avx") == (c >> 28 & 1), "avx");
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        ok(has_flag("avx2") == (b >> 5 & 1), "avx2");
        ok(has_flag("avx512f") == (b >> 16 & 1), "avx512f");
        ok(has_flag("sha_ni") == (b >> 29 & 1), "sha_ni");
    }
    char vendor[13] = {0};
    __cpuid(0, a, b, c, d);
    memcpy(vendor, &b, 4);
    memcpy(vendor + 4, &d, 4);
    memcpy(vendor + 8, &c, 4);
    ok(!strcmp(row("/proc/cpuinfo", "vendor_id\t:"), vendor), "the vendor");
}

/* Of another process the kernel tells. */
static void others(void)
{
    char name[64];
    int p[2], status;
    pipe(p);
    pid_t child = fork();
    if (!child) {
        char byte;
        close(p[1]);
        read(p[0], &byte, 1);
        _exit(0);
    }
    snprintf(name, sizeof name, "/proc/%d/status", child);
    is(number(name, "PPid:"), getpid(), "a child's parent");
    is(number(name, "Pid:"), child, "its number");
    close(p[1]);
    waitpid(child, &status, 0);
    is(open(name, O_RDONLY), -1, "afterwards it is gone");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {{"memory", memory}, {"signals", signals}, {"limits", limits}, {"names", names},
                {"files", files},   {"cpu", cpu},         {"others", others}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (argc > 1 && !strcmp(argv[1], runs[i].name))
            runs[i].run();
    return finish();
}
