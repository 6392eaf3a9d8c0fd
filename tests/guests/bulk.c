/* Large transfers: 100 MB through a pipe between two processes, big reads of a device, events larger than a
 * ring. */
// VARIANTS: o2
#include "guest.h"
#include <sys/uio.h>

int main(void)
{
    enum { TOTAL = 100 << 20, CHUNK = 1 << 20 };
    uint8_t *buffer = malloc(8 << 20);
    int p[2];
    pipe(p);
    fcntl(p[1], F_SETPIPE_SZ, CHUNK);
    pid_t child = fork();
    if (child == 0) {
        close(p[0]);
        for (size_t i = 0; i < CHUNK; i++)
            buffer[i] = (uint8_t)(i >> 8 ^ i);
        for (size_t done = 0; done < TOTAL;) {
            ssize_t n = write(p[1], buffer + done % CHUNK, CHUNK - done % CHUNK);
            if (n <= 0)
                _exit(1);
            done += (size_t)n;
        }
        _exit(0);
    }
    close(p[1]);
    uint64_t total = 0, sum = 0;
    ssize_t n;
    while ((n = read(p[0], buffer, CHUNK)) > 0) {
        for (ssize_t i = 0; i < n; i += 64)
            sum += buffer[i] * ((total + (uint64_t)i) & 0xffff);
        total += (uint64_t)n;
    }
    int status;
    waitpid(child, &status, 0);
    ok(total == TOTAL && status == 0, "100 MB through a pipe");
    int fd = open("/dev/zero", O_RDONLY);
    memset(buffer, 1, 8 << 20);
    is(read(fd, buffer, 8 << 20), 8 << 20, "8 MB in one read");
    ok(buffer[0] == 0 && buffer[(8 << 20) - 1] == 0, "all zero");
    int f = open("bulk", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (size_t i = 0; i < 8 << 20; i++)
        buffer[i] = (uint8_t)(i * 2654435761u >> 24);
    is(write(f, buffer, 8 << 20), 8 << 20, "8 MB in one write");
    uint64_t want = digest(DIGEST_START, buffer, 8 << 20);
    memset(buffer, 0, 8 << 20);
    struct iovec v[64];
    for (int i = 0; i < 64; i++)
        v[i] = (struct iovec){buffer + i * (131072), 131072};
    is(preadv(f, v, 64, 0), 8 << 20, "and back in 64 pieces");
    ok(digest(DIGEST_START, buffer, 8 << 20) == want, "the same bytes");
    unlink("bulk");
    return finish();
}
