/* Kernel features through which memory changes without a system call: not offered, as old kernels do not. */
// NONDET
#include "guest.h"

int main(void)
{
    char block[256] = {0};
    uint64_t context = 0;
    is(syscall(SYS_io_uring_setup, 8, block), -1, "io_uring");
    is(errno, ENOSYS, "ENOSYS");
    is(syscall(SYS_io_setup, 8, &context), -1, "aio");
    is(errno, ENOSYS, "ENOSYS");
    is(syscall(SYS_userfaultfd, 0), -1, "userfaultfd");
    is(errno, ENOSYS, "ENOSYS");
    return finish();
}
