/* record_guest.c: the root guest's engine is started; see recording.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/libexec.h"
#include "cmd/recording.h"

static bool put_string(FILE *f, const char *text)
{
    return fwrite(text, 1, strlen(text) + 1, f) == strlen(text) + 1;
}

/* What the engine is to run, as a memfd: u32 argc, u32 envc, then program, argv and environment,
 * NUL-terminated. */
static int make_input(void)
{
    uint32_t counts[2] = {0, 0};
    while (rec.program.argv[counts[0]])
        counts[0]++;
    while (environ[counts[1]])
        counts[1]++;
    int fd = memfd_create("clio-input", MFD_CLOEXEC);
    int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    FILE *f = copy < 0 ? NULL : fdopen(copy, "w");
    bool good = f && fwrite(counts, sizeof counts, 1, f) == 1 && put_string(f, rec.program.path);
    for (uint32_t i = 0; good && i < counts[0]; i++)
        good = put_string(f, rec.program.argv[i]);
    for (uint32_t i = 0; good && i < counts[1]; i++)
        good = put_string(f, environ[i]);
    if (!f || fclose(f) || !good || lseek(fd, 0, SEEK_SET))
        die("cannot pass the program's arguments on: %s", strerror(errno));
    return fd;
}

static char *number(int n)
{
    char *text;
    if (asprintf(&text, "%d", n) < 0)
        die("no memory");
    return text;
}

/* A descriptor that the engine gets, as its number. */
static char *pass(int fd)
{
    fcntl(fd, F_SETFD, 0);
    return number(fd);
}

static void restore_signals(void)
{
    sigaction(SIGCHLD, &rec.old_chld, NULL);
    sigprocmask(SIG_SETMASK, &rec.old_mask, NULL);
}

static _Noreturn void run_engine(const char *engine, int input, int said)
{
    char *argv[20], *empty[] = {NULL};
    int n = 0;
    argv[n++] = "clio-engine";
    argv[n++] = "record";
    argv[n++] = "--dir-fd";
    argv[n++] = pass(rec.dir);
    argv[n++] = "--store-fd";
    argv[n++] = pass(rec.writer.connection);
    argv[n++] = "--input-fd";
    argv[n++] = pass(input);
    if (rec.topics) {
        argv[n++] = "--log-fd";
        argv[n++] = pass(rec.log_fd);
        argv[n++] = "--log";
        argv[n++] = (char *)rec.topics;
    }
    argv[n++] = "--cpu";
    argv[n++] = number(rec.choice.level);
    argv[n++] = "--cpu-features";
    argv[n++] = rec.features;
    if (rec.aslr)
        argv[n++] = "--aslr";
    if (rec.single_block)
        argv[n++] = "--single-block";
    if (rec.check_memory) {
        argv[n++] = "--check-memory";
        argv[n++] = (char *)rec.check_memory;
    }
    argv[n] = NULL;
    restore_signals();
    setrlimit(RLIMIT_NOFILE, &rec.old_files);
    execve(engine, argv, empty);
    int error = errno;
    if (write(said, &error, sizeof error) < 0)
        _exit(EXIT_ENVIRONMENT);
    _exit(EXIT_ENVIRONMENT);
}

void record_start_guest(void)
{
    char engine[PATH_MAX];
    int said[2], error = libexec_path(engine, sizeof engine, "clio-engine");
    if (error)
        die("cannot find clio-engine (%s): %s", engine, strerror(-error));
    int input = make_input();
    if (pipe2(said, O_CLOEXEC))
        die("cannot make a pipe: %s", strerror(errno));
    rec.guest = fork();
    if (rec.guest == 0)
        run_engine(engine, input, said[1]);
    if (rec.guest < 0)
        die("cannot fork for %s: %s", rec.program.path, strerror(errno));
    close(said[1]);
    close(input);
    int failed = 0;
    if (read(said[0], &failed, sizeof failed) > 0)
        die("cannot run %s: %s", engine, strerror(failed));
    close(said[0]);
    rec.running = true;
}
