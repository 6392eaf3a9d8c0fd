/* calls.c: one million getppid and small reads. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    char block[64];
    int fd = open("/dev/zero", O_RDONLY);
    long sum = 0;
    for (int i = 0; i < 500000; i++) {
        sum += syscall(SYS_getppid) > 0;
        sum += read(fd, block, sizeof block);
    }
    printf("%ld\n", sum);
    return 0;
}
