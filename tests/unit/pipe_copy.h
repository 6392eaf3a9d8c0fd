/*
 * pipe_copy.h: copies memory that may not be there, for what stands in for the engine in unit tests: through a
 * pipe, whose kernel checks both sides. It needs no call that a container may refuse.
 */
#ifndef CLIO_TESTS_PIPE_COPY_H
#define CLIO_TESTS_PIPE_COPY_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns how many bytes could be copied, from the first on. */
static inline size_t pipe_copy(void *to, const void *from, size_t n)
{
    int ends[2];
    size_t done = 0;
    if (pipe2(ends, O_CLOEXEC))
        return 0;
    while (done < n) {
        const uint8_t *source = (const uint8_t *)from + done;
        size_t rest = 4096 - ((uintptr_t)source & 4095), room = 4096 - (((uintptr_t)to + done) & 4095);
        size_t want = n - done;
        want = want < rest ? want : rest;
        want = want < room ? want : room;
        /* Not write: a sanitizer would look at the bytes beyond a string, which the engine may read. */
        ssize_t written = syscall(SYS_write, ends[1], source, want);
        if (written <= 0 || read(ends[0], (uint8_t *)to + done, (size_t)written) != written)
            break;
        done += (size_t)written;
    }
    close(ends[0]);
    close(ends[1]);
    return done;
}

#endif
