/* prctl options that would act on the engine: refused as by a kernel that lacks them. */
// LIMIT: cannot be recorded: the program was told that the kernel lacks it
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static bool lacking(int option, long a, long b, long c)
{
    return syscall(SYS_prctl, option, a, b, c, 0) >= 0 || errno == EINVAL || errno == EPERM;
}

int main(void)
{
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &allow};
    unsigned size;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    ok(lacking(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0), "PR_SET_SECCOMP");
    ok(lacking(PR_SET_MM, PR_SET_MM_MAP_SIZE, (long)&size, 0), "PR_SET_MM");
    return finish();
}
