/* What a program sees of the file that it was made from, and what exec makes of names and arguments. */
// VARIANTS: o2 static
// RUNS: deleted renamed busy memfd names arguments errors interpreter
#include "guest.h"
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;

static void copy_self(const char *to)
{
    char buffer[65536];
    int in = open("/proc/self/exe", O_RDONLY), out = open(to, O_CREAT | O_WRONLY | O_TRUNC, 0700);
    for (ssize_t n; (n = read(in, buffer, sizeof buffer)) > 0;)
        write(out, buffer, (size_t)n);
    close(in);
    close(out);
}

/* Runs program with the word as its only argument; its exit status, or minus a signal. */
static int run(const char *program, const char *word)
{
    int status;
    pid_t child = fork();
    if (!child) {
        execl(program, "self", word, NULL);
        _exit(100 + errno % 100);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static char *link_text(void)
{
    static char text[4096];
    ssize_t n = readlink("/proc/self/exe", text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    return text;
}

static bool link_ends(const char *end)
{
    const char *text = link_text();
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Stages: what the copies do. */

static int stage_deleted(void)
{
    struct stat a, b;
    char head[4] = "";
    if (!link_ends("/gone"))
        return 1;
    unlink("gone");
    if (!link_ends("/gone (deleted)"))
        return 2;
    mkdir("gone", 0700); /* something else by that name */
    if (!link_ends("/gone (deleted)"))
        return 3;
    rmdir("gone");
    int fd = open("/proc/self/exe", O_RDONLY);
    if (fd < 0 || read(fd, head, 4) != 4 || memcmp(head, "\177ELF", 4))
        return 4;
    if (fstat(fd, &a) || stat("/proc/self/exe", &b) || a.st_ino != b.st_ino || b.st_nlink)
        return 5;
    close(fd);
    if (access("/proc/self/exe", X_OK) || access(link_text(), F_OK) == 0)
        return 6;
    pid_t child = fork();
    int status;
    if (!child)
        _exit(link_ends("/gone (deleted)") ? 0 : 1);
    waitpid(child, &status, 0);
    if (status)
        return 7;
    execl("/proc/self/exe", "self", "stage-again", NULL);
    return 8;
}

static int stage_again(void)
{
    return link_ends("/gone (deleted)") && !strcmp((char *)getauxval(AT_EXECFN), "/proc/self/exe") ? 40 : 9;
}

static int stage_renamed(void)
{
    rename("before", "after");
    if (!link_ends("/after"))
        return 1;
    copy_self("before");
    if (!link_ends("/after"))
        return 2;
    mkdir("dir", 0700);
    rename("after", "dir/after");
    bool right = link_ends("/dir/after");
    rename("dir/after", "after");
    rmdir("dir");
    return right ? 41 : 3;
}

static int stage_busy(void)
{
    return open("busy", O_WRONLY) < 0 && errno == ETXTBSY ? 42 : 1;
}

static int stage_wait(void)
{
    char byte = 0;
    write(5, &byte, 1);
    read(0, &byte, 1);
    return 43;
}

static void deleted(void)
{
    copy_self("gone");
    is(run("./gone", "stage-deleted"), 40, "a program that deletes its file and runs it again");
}

static void renamed(void)
{
    copy_self("before");
    is(run("./before", "stage-renamed"), 41, "a program that moves its file");
    unlink("before");
    unlink("after");
}

static int error_of(int result)
{
    if (result >= 0)
        close(result);
    return result < 0 ? errno : 0;
}

static void busy(void)
{
    int p[2], q[2], status;
    char byte;
    copy_self("busy");
    is(run("./busy", "stage-busy"), 42, "a program cannot write to its own file");
    is(error_of(open("busy", O_RDWR)), 0, "afterwards its file can be written");
    pipe(p);
    pipe(q);
    pid_t child = fork();
    if (!child) {
        dup2(p[0], 0);
        dup2(q[1], 5);
        close(p[1]);
        execl("./busy", "self", "stage-wait", NULL);
        _exit(1);
    }
    close(p[0]);
    read(q[0], &byte, 1); /* the child has executed it */
    is(error_of(open("busy", O_WRONLY)), ETXTBSY, "nor can another process");
    is(error_of(open("busy", O_RDWR | O_APPEND)), ETXTBSY, "in any way");
    is(error_of(open("busy", O_RDONLY | O_TRUNC)), ETXTBSY, "or cut it");
    is(error_of(creat("busy", 0700)), ETXTBSY, "or make it anew");
    is(error_of(truncate("busy", 3)), ETXTBSY, "or set its size");
    is(error_of(open("busy", O_WRONLY | O_CREAT | O_EXCL, 0700)), EEXIST, "a new one of that name");
    is(error_of(open("busy", O_WRONLY | O_DIRECTORY)), ENOTDIR, "as a directory");
    is(error_of(open("busy", O_RDONLY)), 0, "reading is free");
    link("busy", "other");
    is(error_of(open("other", O_WRONLY)), ETXTBSY, "nor by another name");
    unlink("other");
    symlink("busy", "other");
    is(error_of(open("other", O_WRONLY)), ETXTBSY, "or through a link");
    is(error_of(open("other", O_WRONLY | O_NOFOLLOW)), ELOOP, "which is not followed");
    unlink("other");
    is(error_of(chmod("busy", 0755)), 0, "its mode is no content");
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(p[1]);
    close(q[0]);
    close(q[1]);
    is(error_of(open("busy", O_WRONLY)), 0, "when it was killed it is free again");
    int fd = open("busy", O_WRONLY);
    is(run("./busy", "stage-busy"), 100 + ETXTBSY, "what is written to cannot be executed");
    close(fd);
    unlink("busy");
}

static void memfd(void)
{
    char buffer[65536], name[64];
    int status, fd = memfd_create("code", 0), in = open("/proc/self/exe", O_RDONLY);
    for (ssize_t n; (n = read(in, buffer, sizeof buffer)) > 0;)
        write(fd, buffer, (size_t)n);
    close(in);
    fchmod(fd, 0700);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int reading = open(name, O_RDONLY | O_CLOEXEC);
    close(fd);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (!child) {
            char *argv[] = {"self", "stage-memfd", NULL};
            if (i)
                syscall(SYS_execveat, reading, "", argv, environ, AT_EMPTY_PATH);
            else
                fexecve(reading, argv, environ);
            _exit(100 + errno);
        }
        waitpid(child, &status, 0);
        is(status, 44 << 8, "a program in memory");
    }
    close(reading);
}

static int stage_memfd(void)
{
    return link_ends("/memfd:code (deleted)") ? 44 : 1;
}

static int stage_name(const char *want)
{
    const char *name = (char *)getauxval(AT_EXECFN);
    if (strcmp(name, want))
        say("not ok AT_EXECFN %s, not %s\n", name, want);
    return strcmp(name, want) ? 1 : 45;
}

static int run_as(const char *program, const char *word, const char *more)
{
    int status;
    pid_t child = fork();
    if (!child) {
        execl(program, "self", word, more, NULL);
        _exit(100 + errno);
    }
    waitpid(child, &status, 0);
    return status >> 8;
}

static void names(void)
{
    static const char *const forms[] = {"./named", "named", ".//named", "dir/../named", "link"};
    copy_self("named");
    mkdir("dir", 0700);
    symlink("named", "link");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        is(run_as(forms[i], "stage-name", forms[i]), 45, "AT_EXECFN is what exec was given");
    int status, here = open(".", O_RDONLY);
    pid_t child = fork();
    if (!child) {
        char want[64], *argv[] = {"self", "stage-name", want, NULL};
        snprintf(want, sizeof want, "/dev/fd/%d/named", here);
        syscall(SYS_execveat, here, "named", argv, environ, 0);
        _exit(1);
    }
    waitpid(child, &status, 0);
    is(status, 45 << 8, "or the name that execveat makes");
    is(error_of(
           (int)syscall(SYS_execveat, here, "link", (char *[]){"x", NULL}, environ, AT_SYMLINK_NOFOLLOW)),
       ELOOP, "execveat of a link that is not followed");
    close(here);
    unlink("link");
    rmdir("dir");
    unlink("named");
}

/* A program without a name: its environment decides what it is. */
static int stage_nameless(int argc, char **argv)
{
    bool nameless = argc == 1 && argv[0] && !argv[0][0] && !argv[1];
    return nameless && (!environ[0] || !strcmp(environ[0], "NAMELESS=1")) ? 46 : 1;
}

static int run_vector(char **argv, char **envp)
{
    int status;
    pid_t child = fork();
    if (!child) {
        execve("/proc/self/exe", argv, envp);
        _exit(100 + errno);
    }
    waitpid(child, &status, 0);
    return status >> 8;
}

static void arguments(void)
{
    char *none[] = {NULL}, *one[] = {"NAMELESS=1", NULL};
    is(run_vector(NULL, one), 46, "a null argv is one empty argument");
    is(run_vector(none, one), 46, "so is an empty one");
    is(run_vector(none, NULL), 46, "a null environment");
    is(run_vector((char **)8, one), 100 + EFAULT, "an argv that cannot be read");
    char *bad[] = {"self", (char *)8, NULL};
    is(run_vector(bad, one), 100 + EFAULT, "an argument that cannot be read");
    is(run_vector(one, bad), 100 + EFAULT, "an environment that cannot be read");
    size_t longest = 32 * 4096;
    char *text = malloc(longest + 1), *big[] = {"self", text, NULL};
    memset(text, 'x', longest);
    text[longest] = 0;
    is(run_vector(big, one), 100 + E2BIG, "an argument of 128 KiB");
    text[longest - 1] = 0;
    is(run_vector(big, one), 47, "one a byte shorter");
    free(text);
}

static int stage_long(const char *text)
{
    return strlen(text) == 32 * 4096 - 1 ? 47 : 1;
}

static void make_file(const char *name, const char *text, size_t size, int mode)
{
    unlink(name);
    int fd = open(name, O_CREAT | O_WRONLY, mode);
    write(fd, text, size);
    fchmod(fd, (mode_t)mode);
    close(fd);
}

static void errors(void)
{
    make_file("file", "\177ELF\2\1\1", 7, 0755);
    is(run("./file", ""), 100 + ENOEXEC, "an ELF file cut short");
    make_file("file", "", 0, 0755);
    is(run("./file", ""), 100 + ENOEXEC, "an empty file");
    make_file("file", "hello\n", 6, 0755);
    is(run("./file", ""), 100 + ENOEXEC, "text");
    make_file("file", "#!\n", 3, 0755);
    is(run("./file", ""), 100 + ENOEXEC, "a script without an interpreter");
    make_file("file", "#!/dev/null\n", 12, 0755);
    is(run("./file", ""), 100 + EACCES, "a script with a device as its interpreter");
    make_file("file", "#! \t .\n", 7, 0755);
    is(run("./file", ""), 100 + EACCES, "a script with a directory as its interpreter");
    is(run(".", ""), 100 + EACCES, "a directory");
    is(run("./file/", ""), 100 + ENOTDIR, "a file as a directory");
    is(run("", ""), 100 + ENOENT, "no name");
    make_file("file", "#!/bin/sh\n", 10, 0644);
    is(run("./file", ""), 100 + EACCES, "a file without permission");
    symlink("loop", "loop");
    is(run("./loop", ""), 100 + ELOOP, "a link to itself");
    is(run((char *)8, ""), 100 + EFAULT, "a name that cannot be read");
    unlink("loop");
    unlink("file");
}

/* A script finds its interpreter when it runs, even if that is deleted by its first command. */
static void interpreter(void)
{
    copy_self("inter");
    make_file("script", "#!./inter stage-script\n", 23, 0755);
    int status;
    pid_t child = fork();
    if (!child) {
        execl("./script", "ignored", "one", NULL);
        _exit(100 + errno);
    }
    waitpid(child, &status, 0);
    is(status, 48 << 8, "a script with an interpreter of its own");
    unlink("inter");
    is(run("./script", ""), 100 + ENOENT, "whose interpreter is gone");
    unlink("script");
}

static int stage_script(int argc, char **argv)
{
    bool right = argc == 4 && !strcmp(argv[0], "./inter") && !strcmp(argv[2], "./script") &&
                 !strcmp(argv[3], "one") && !strcmp((char *)getauxval(AT_EXECFN), "./script") &&
                 link_ends("/inter");
    unlink("inter");
    bool gone = link_ends("/inter (deleted)");
    copy_self("inter");
    return right && gone ? 48 : 1;
}

static int stage(int argc, char **argv)
{
    const char *name = argv[1] + strlen("stage-");
    if (!strcmp(name, "deleted"))
        return stage_deleted();
    if (!strcmp(name, "again"))
        return stage_again();
    if (!strcmp(name, "renamed"))
        return stage_renamed();
    if (!strcmp(name, "busy"))
        return stage_busy();
    if (!strcmp(name, "wait"))
        return stage_wait();
    if (!strcmp(name, "memfd"))
        return stage_memfd();
    if (!strcmp(name, "name"))
        return stage_name(argv[2]);
    return stage_script(argc, argv);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {
        {"deleted", deleted}, {"renamed", renamed},     {"busy", busy},     {"memfd", memfd},
        {"names", names},     {"arguments", arguments}, {"errors", errors}, {"interpreter", interpreter}};
    if (argc < 2)
        return stage_nameless(argc, argv);
    if (argv[1][0] == 'x')
        return stage_long(argv[1]);
    if (!strncmp(argv[1], "stage-", 6))
        return stage(argc, argv);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (!strcmp(argv[1], runs[i].name))
            runs[i].run();
    return finish();
}
