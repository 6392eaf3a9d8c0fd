/* dir_create.c: making a trace directory; see dir_sink.h. */
#include "trace/dir_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "trace/fault.h"
#include "trace/header.h"

static const char *const parts[] = {"spaces", "files", "rings"};
static const char *const files[] = {"trace", "lock", "lifeline"};

static void random_bytes(uint8_t *to, size_t size)
{
    while (getrandom(to, size, 0) != (ssize_t)size)
        ; /* interrupted before the pool was ready */
}

void trace_info_here(struct clio_trace_info *info)
{
    static struct utsname name;
    static char kernel[sizeof name.sysname + sizeof name.release + sizeof name.machine + 3];
    static char *cwd;
    uint8_t identity[16];
    random_bytes(identity, sizeof identity);
    identity[6] = (identity[6] & 0x0f) | 0x40; /* a random UUID, RFC 9562 version 4 */
    identity[8] = (identity[8] & 0x3f) | 0x80;
    trace_identity_text(identity, info->identity);
    uname(&name);
    snprintf(kernel, sizeof kernel, "%s %s %s", name.sysname, name.release, name.machine);
    free(cwd);
    cwd = getcwd(NULL, 0);
    info->host = name.nodename;
    info->kernel = kernel;
    info->cwd = cwd ? cwd : "";
    info->version = TRACE_FORMAT_VERSION;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    info->start_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool write_header(int dir, const char *path, const struct clio_trace_info *info,
                         struct clio_error *error)
{
    size_t size;
    char *text = trace_header_text(info, &size);
    if (!text)
        return fault_system(error, ENOMEM, "creating %s/trace", path);
    int fd = openat(dir, "trace", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ssize_t n = fd < 0 ? -1 : write(fd, text, size);
    int code = n < 0 ? errno : ENOSPC;
    if (fd >= 0)
        close(fd);
    free(text);
    return n == (ssize_t)size || fault_system(error, code, "creating %s/trace", path);
}

static bool make_parts(int dir, const char *path, const struct clio_trace_info *info,
                       struct clio_error *error)
{
    if (!write_header(dir, path, info, error))
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (mkdirat(dir, parts[i], 0700) < 0)
            return fault_system(error, errno, "creating %s/%s", path, parts[i]);
    for (size_t i = 1; i < sizeof files / sizeof *files; i++) {
        int fd = openat(dir, files[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
            return fault_system(error, errno, "creating %s/%s", path, files[i]);
        close(fd);
    }
    return true;
}

static void remove_parts(int dir, const char *path)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        unlinkat(dir, parts[i], AT_REMOVEDIR);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlinkat(dir, files[i], 0);
    rmdir(path);
}

int trace_dir_create(const char *path, const struct clio_trace_info *info, struct clio_error *error)
{
    if (mkdir(path, 0700) < 0) {
        fault_system(error, errno, "creating the trace %s", path);
        return -1;
    }
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        fault_system(error, errno, "opening the trace %s", path);
        rmdir(path);
        return -1;
    }
    if (make_parts(dir, path, info, error))
        return dir;
    remove_parts(dir, path);
    close(dir);
    return -1;
}
