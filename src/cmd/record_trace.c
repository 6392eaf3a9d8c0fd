/* record_trace.c: the trace of a recording is made; see recording.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "cmd/recording.h"
#include "trace/dir_sink.h"
#include "trace/header.h"
#include "trace/locate.h"
#include "trace/ring.h"

/* Removes a trace in which nothing was recorded; only what is known to be ours. */
static void remove_empty_trace(void)
{
    static const char *const files[] = {"trace",  "lock",  "lifeline",      ".lifeline",
                                        "socket", "tasks", "rings/control", "pool/identities"};
    static const char *const dirs[] = {"spaces", "files", "rings", "pool"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlinkat(rec.dir, files[i], 0);
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        unlinkat(rec.dir, dirs[i], AT_REMOVEDIR);
    rmdir(rec.path);
}

void record_leave(int status)
{
    if (rec.running || !rec.path || rec.dir < 0)
        return;
    if (rec.writer.pid > 0) {
        kill(rec.writer.pid, SIGKILL);
        waitpid(rec.writer.pid, NULL, 0);
    }
    remove_empty_trace();
}

static void create_named(const struct clio_trace_info *info)
{
    struct clio_error error;
    rec.path = strdup(rec.output);
    rec.dir = trace_dir_create(rec.path, info, &error);
    if (rec.dir < 0)
        die("%s", error.text);
}

static void create_in_home(const struct clio_trace_info *info)
{
    struct clio_error error;
    do {
        free(rec.path);
        rec.path = trace_new_path(rec.program.path, &error);
        if (!rec.path)
            die("%s", error.text);
        rec.dir = trace_dir_create(rec.path, info, &error);
    } while (rec.dir < 0 && error.code == EEXIST);
    if (rec.dir < 0)
        die("%s", error.text);
}

void record_create_trace(int argc, char **argv)
{
    struct clio_trace_info info = {.features = 1ull << TRACE_FEATURE_CPU,
                                   .cpu_level = (uint32_t)rec.choice.level,
                                   .cpu_features = rec.features,
                                   .argc = argc,
                                   .argv = (const char *const *)argv};
    trace_info_here(&info);
    if (rec.output)
        create_named(&info);
    else
        create_in_home(&info);
}

void record_need_room(void)
{
    const uint64_t need = 2 * (uint64_t)(RING_HEADER_SIZE + RING_CAPACITY);
    struct statvfs fs;
    if (fstatvfs(rec.dir, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < need)
        die("no space for a recording at %s: %llu KiB are free, %llu are needed to begin", rec.path,
            (unsigned long long)fs.f_bavail * fs.f_frsize / 1024, (unsigned long long)need / 1024);
}

/* In the place of the plain file that trace_dir_create made: guests of any user may open it once they are
 * inside. */
void record_create_lifeline(void)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (mkfifoat(rec.dir, ".lifeline", 0600) || fchmodat(rec.dir, ".lifeline", 0666, 0) ||
        renameat(rec.dir, ".lifeline", rec.dir, "lifeline") ||
        (rec.lifeline = openat(rec.dir, "lifeline", O_RDWR | O_CLOEXEC)) < 0 ||
        fcntl(rec.lifeline, F_OFD_SETLK, &lock))
        die("cannot make the lifeline of %s: %s", rec.path, strerror(errno));
}

void record_create_control(void)
{
    int fd = openat(rec.dir, "rings/control", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, RING_HEADER_SIZE);
    if (error)
        die("cannot make rings/control of %s: %s", rec.path, strerror(error));
    rec.control = mmap(NULL, RING_HEADER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (rec.control == MAP_FAILED)
        die("cannot map rings/control of %s: %s", rec.path, strerror(errno));
    close(fd);
    *rec.control = (struct ring_control){.magic = CONTROL_MAGIC,
                                         .version = TRACE_FORMAT_VERSION,
                                         .seq = 1,
                                         .recorder = getpid(),
                                         .caller = rec.caller};
}

int record_open_pool(void)
{
    struct clio_error error;
    char *home = trace_home(&error), *path = NULL;
    int fd = -1;
    if (home && asprintf(&path, "%s/pool", home) >= 0) {
        mkdir(home, 0700);
        mkdir(path, 0700);
        if (access(path, W_OK) == 0)
            fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    free(path);
    free(home);
    if (fd >= 0)
        return fd;
    mkdirat(rec.dir, "pool", 0700);
    fd = openat(rec.dir, "pool", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        die("cannot make a pool for captured files in %s: %s", rec.path, strerror(errno));
    return fd;
}

void record_set_latest(void)
{
    struct clio_error error;
    if (!trace_set_latest(rec.path, &error) && !rec.output)
        die("%s", error.text);
}
