/* exec: chains, scripts, failures, large arguments, descriptors, environment, and what a program sees of
 * itself. */
// VARIANTS: o2 static nopie
// RUNS: chain scripts failures large descriptors self
#include "guest.h"
#include <dirent.h>
#include <elf.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>

extern char **environ;
static char **arguments;

static void again(const char *what, const char *more)
{
    char *argv[] = {arguments[0], (char *)what, (char *)more, NULL};
    execv("/proc/self/exe", argv);
    say("not ok exec: %s\n", strerror(errno));
    _exit(1);
}

static void chain(void)
{
    int left = arguments[2] ? atoi(arguments[2]) : 8;
    char number[16];
    ok(getenv("CHAIN") == NULL || atoi(getenv("CHAIN")) == left + 1, "link %d", left);
    if (left == 0)
        return;
    snprintf(number, sizeof number, "%d", left);
    setenv("CHAIN", number, 1);
    snprintf(number, sizeof number, "%d", left - 1);
    if (left % 2) {
        again("chain", number);
    } else {
        char *argv[] = {arguments[0], "chain", number, NULL};
        int fd = open("/proc/self/exe", O_RDONLY);
        fexecve(fd, argv, environ);
        say("not ok fexecve: %s\n", strerror(errno));
    }
}

static void file(const char *name, const char *text, int mode)
{
    unlink(name);
    int fd = open(name, O_WRONLY | O_CREAT, mode);
    write(fd, text, strlen(text));
    fchmod(fd, (mode_t)mode);
    close(fd);
}

static int run(const char *program, char *const argv[], char *const env[])
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        execve(program, argv, env);
        _exit(100 + errno);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void scripts(void)
{
    char *argv[] = {"name", "one", "two words", NULL}, *env[] = {"A=b", "PATH=/bin:/usr/bin", NULL};
    file("script", "#!/bin/sh\necho \"$0\" \"$1\" \"$2\" $A\nexit 21\n", 0755);
    is(run("./script", argv, env), 21, "a script");
    file("inner", "#!/bin/sh -e\necho inner \"$@\"\nfalse\nexit 0\n", 0755);
    file("outer", "#!./inner an argument  \nignored\n", 0755);
    is(run("./outer", argv, env), 1, "a script whose interpreter is a script");
    file("cat", "#!/bin/cat\nshown by cat\n", 0755);
    char *one[] = {"cat", NULL};
    is(run("./cat", one, env), 0, "#!/bin/cat");
    file("loop", "#!./loop\n", 0755);
    is(run("./loop", argv, env), 100 + ELOOP, "a script that interprets itself");
    file("gone", "#!/nonexistent/shell\n", 0755);
    is(run("./gone", argv, env), 100 + ENOENT, "a missing interpreter");
}

static void failures(void)
{
    char *argv[] = {"x", NULL};
    is(run("/nonexistent", argv, environ), 100 + ENOENT, "ENOENT");
    is(run("/", argv, environ), 100 + EACCES, "EACCES of a directory");
    file("plain", "no magic\n", 0755);
    is(run("./plain", argv, environ), 100 + ENOEXEC, "ENOEXEC");
    file("noperm", "#!/bin/sh\n", 0644);
    is(run("./noperm", argv, environ), 100 + EACCES, "EACCES of a file");
    is(run("./plain/x", argv, environ), 100 + ENOTDIR, "ENOTDIR");
    file("empty", "", 0755);
    is(run("./empty", argv, environ), 100 + ENOEXEC, "an empty file");
    char head[20] = "\177ELF\2\1\1";
    int fd = open("truncated", O_WRONLY | O_CREAT, 0755);
    write(fd, head, 16);
    close(fd);
    is(run("./truncated", argv, environ), 100 + ENOEXEC, "a truncated ELF file");
    is(run("./plain", (char *const *)8, environ), 100 + EFAULT, "EFAULT of argv");
    char name[300];
    memset(name, 'n', 299);
    name[299] = 0;
    is(run(name, argv, environ), 100 + ENAMETOOLONG, "ENAMETOOLONG");
    int self = open("/proc/self/exe", O_RDONLY);
    ok(self >= 0, "after all that we are still here");
}

static void large(void)
{
    enum { N = 8000 };
    if (arguments[2]) {
        uint64_t h = DIGEST_START, n = 0;
        for (char **a = arguments; *a; a++, n++)
            h = digest(h, *a, strlen(*a) + (n > 0));
        say("%llu arguments, ", (unsigned long long)n);
        n = 0;
        for (char **e = environ; *e; e++)
            if (!strncmp(*e, "BIG", 3))
                h = digest(h, *e, strlen(*e)), n++;
        ok(n == 100, "large vectors arrive (%s)", h ? "digest" : "");
        return;
    }
    static char *argv[N + 2], *env[101], long_one[120000];
    argv[0] = arguments[0];
    argv[1] = "large";
    memset(long_one, 'L', sizeof long_one - 1);
    argv[2] = long_one;
    for (int i = 3; i <= N; i++)
        asprintf(&argv[i], "argument %d of many", i);
    for (int i = 0; i < 100; i++) {
        char *e = malloc(5000);
        memset(e, 'a' + i % 26, 4999);
        e[4999] = 0;
        memcpy(e, "BIG", 3);
        e[3] = '=';
        env[i] = e;
    }
    /* too much first */
    static char *huge[3000];
    huge[0] = "x";
    for (int i = 1; i < 2999; i++)
        huge[i] = long_one;
    is(run("/proc/self/exe", huge, env), 100 + E2BIG, "E2BIG");
    execve("/proc/self/exe", argv, env);
    say("not ok exec: %s\n", strerror(errno));
}

static void descriptors(void)
{
    if (arguments[2]) {
        int kept = atoi(arguments[2]);
        ok(fcntl(kept, F_GETFD) == 0, "an open descriptor survives exec");
        ok(fcntl(kept + 1, F_GETFD) == -1 && errno == EBADF, "a close-on-exec one does not");
        char c;
        ok(read(kept, &c, 1) == 1 && c == 'B', "with its offset");
        is(open("/dev/null", O_RDONLY), 3, "the lowest number is free");
        return;
    }
    file("offset", "ABC", 0600);
    int a = open("offset", O_RDONLY), b = open("/dev/null", O_RDONLY | O_CLOEXEC);
    is(b, a + 1, "numbers follow");
    dup2(a, 50);
    dup3(b, 51, O_CLOEXEC);
    close(a);
    char c;
    read(50, &c, 1);
    again("descriptors", "50");
}

static char *contents(const char *path, size_t *size)
{
    static char text[1 << 17];
    int fd = open(path, O_RDONLY);
    size_t n = 0;
    ssize_t r;
    while (fd >= 0 && n < sizeof text - 1 && (r = read(fd, text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)r;
    close(fd);
    text[n] = 0;
    *size = n;
    return text;
}

static int variable_in_data = 1;

/* One line of maps that holds address: its permissions, or NULL. */
static const char *mapping(const char *maps, uint64_t address, char *name)
{
    static char permissions[5];
    for (const char *line = maps; *line; line = strchr(line, '\n') + 1) {
        uint64_t start, end;
        name[0] = 0;
        if (sscanf(line, "%lx-%lx %4s %*s %*s %*s%*[ ]%255[^\n]", &start, &end, permissions, name) >= 3 &&
            address >= start && address < end)
            return permissions;
    }
    return NULL;
}

static void self(void)
{
    char exe[4096] = "", real[4096] = "", name[256];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    realpath(arguments[0], real);
    ok(n > 0 && !strcmp(exe, real), "/proc/self/exe");
    snprintf(name, sizeof name, "/proc/%d/exe", getpid());
    memset(exe, 0, sizeof exe);
    readlink(name, exe, sizeof exe - 1);
    ok(!strcmp(exe, real), "/proc/PID/exe");
    struct stat a, b;
    ok(stat("/proc/self/exe", &a) == 0 && stat(arguments[0], &b) == 0 && a.st_ino == b.st_ino,
       "stat through it");
    size_t size;
    char *text = contents("/proc/self/cmdline", &size);
    ok(size == strlen(arguments[0]) + 6 && !strcmp(text, arguments[0]) &&
           !strcmp(text + strlen(text) + 1, "self"),
       "cmdline");
    text = contents("/proc/self/environ", &size);
    size_t expect = 0;
    bool same = true;
    for (char **e = environ; *e; e++) {
        same = same && expect < size && !strcmp(text + expect, *e);
        expect += strlen(*e) + 1;
    }
    ok(same && expect == size, "environ");
    text = contents("/proc/self/comm", &size);
    const char *base = strrchr(arguments[0], '/');
    snprintf(name, sizeof name, "%.15s\n", base ? base + 1 : arguments[0]);
    ok(!strcmp(text, name), "comm");
    prctl(PR_SET_NAME, "renamed");
    text = contents("/proc/self/comm", &size);
    char got[16];
    prctl(PR_GET_NAME, got);
    ok(!strcmp(text, "renamed\n") && !strcmp(got, "renamed"), "a changed name");
    Elf64_auxv_t *aux = (Elf64_auxv_t *)contents("/proc/self/auxv", &size);
    same = size % sizeof *aux == 0 && size > 0;
    for (; same && aux->a_type != AT_NULL; aux++)
        if (aux->a_type != AT_HWCAP) /* glibc replaces its copy */
            same = getauxval(aux->a_type) == aux->a_un.a_val;
    ok(same, "auxv");
    ok(getauxval(AT_PAGESZ) == 4096 && getauxval(AT_SECURE) == 0 && getauxval(AT_UID) == getuid() &&
           !strcmp((char *)getauxval(AT_EXECFN), arguments[0]),
       "its values");
    text = contents("/proc/self/maps", &size);
    const char *p = mapping(text, (uint64_t)self, name);
    ok(p && !strcmp(p, "r-xp") && !strcmp(name, real), "maps: code");
    p = mapping(text, (uint64_t)&variable_in_data, name);
    ok(p && !strcmp(p, "rw-p"), "maps: data");
    p = mapping(text, (uint64_t)&size, name);
    ok(p && !strncmp(p, "rw", 2) && !strcmp(name, "[stack]"), "maps: stack");
    void *small = sbrk(0);
    sbrk(100000);
    text = contents("/proc/self/maps", &size);
    p = mapping(text, (uint64_t)small + 8, name);
    ok(p && !strcmp(p, "rw-p") && !strcmp(name, "[heap]"), "maps: heap");
    ok(!strstr(text, "clio-engine") && !strstr(text, "/rings/") && !strstr(text, "libZydis") &&
           !strstr(text, "libzstd"),
       "maps: nothing of the host");
    DIR *d = opendir("/proc/self/fd");
    int count = 0, own = dirfd(d);
    bool strange = false;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        int fd = atoi(e->d_name);
        count++;
        strange = strange || (fd > 2 && fd != own);
    }
    closedir(d);
    ok(count == 4 && !strange, "fd: 0, 1, 2 and the directory itself (%d)", count);
    text = contents("/proc/self/status", &size);
    char *line = strstr(text, "\nPid:");
    ok(line && atoi(line + 5) == getpid(), "status");
    char cwd[4096], link[4096] = "";
    getcwd(cwd, sizeof cwd);
    readlink("/proc/self/cwd", link, sizeof link - 1);
    ok(!strcmp(cwd, link), "cwd");
    ok(!getenv("LD_PRELOAD"), "environment");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*f)(void);
    } all[] = {{"chain", chain}, {"scripts", scripts},         {"failures", failures},
               {"large", large}, {"descriptors", descriptors}, {"self", self}};
    arguments = argv;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc > 1 && !strcmp(argv[1], all[i].name))
            all[i].f();
    return finish();
}
