/* running.c: see running.h. */
#include "engine/kernel/running.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/guest/engine.h"
#include "engine/host/hostfd.h"

static int program = -1, lock = -1; /* handles */

/* The byte that stands for a file: 62 bits of what identifies it. */
static off_t place_of(const struct stat *st)
{
    uint64_t h = (st->st_dev * 0x9e3779b97f4a7c15ull) ^ st->st_ino;
    h = (h ^ h >> 32) * 0xbf58476d1ce4e5b9ull;
    return (off_t)((h ^ h >> 29) >> 2);
}

static int open_control(void)
{
    return openat(hostfd(engine.trace_dir), "rings/control", O_RDWR | O_CLOEXEC);
}

/* A descriptor that holds the lock, or -1 for a guest that may no longer enter the trace. */
static int take_lock(const struct stat *st)
{
    struct flock range = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = place_of(st), .l_len = 1};
    int fd = open_control();
    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &range)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void keep(int *handle, int fd)
{
    hostfd_drop(*handle);
    *handle = fd < 0 ? -1 : hostfd_keep(fd);
    if (fd >= 0 && *handle < 0)
        close(fd);
}

void running_set(int fd)
{
    struct stat st;
    keep(&lock, fd >= 0 && !fstat(fd, &st) ? take_lock(&st) : -1);
    keep(&program, fd);
}

bool running_link(char *to, size_t size)
{
    int fd = hostfd(program);
    snprintf(to, size, "/proc/self/fd/%d", fd);
    return fd >= 0;
}

bool running_file(struct stat *file)
{
    return hostfd(program) >= 0 && !fstat(hostfd(program), file);
}

bool running_busy(const struct stat *file)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place_of(file), .l_len = 1};
    int fd = open_control(); /* one without a lock of its own: our own counts, too */
    bool busy = fd >= 0 && !fcntl(fd, F_OFD_GETLK, &range) && range.l_type != F_UNLCK;
    if (fd >= 0)
        close(fd);
    return busy;
}
