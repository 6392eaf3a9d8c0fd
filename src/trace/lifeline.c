/* lifeline.c: see lifeline.h. */
#include "trace/lifeline.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int trace_lifeline_hold(int dir)
{
    int fd = openat(dir, "lifeline", O_RDONLY | O_NONBLOCK | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

bool trace_lifeline_held(int dir)
{
    int fd = openat(dir, "lifeline", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool held = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    return held;
}
