/* Calls that are rare, unknown or refused, none of which may end a recording. */
// VARIANTS: o2
#include "guest.h"
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/times.h>
#include <linux/futex.h>

int main(void)
{
    is(syscall(1000), -1, "a call that does not exist");
    is(errno, ENOSYS, "ENOSYS");
    is(syscall(0x40000000 | 39), -1, "an x32 call");
    char block[256] = {0};
    is(ioctl(1, 0x12345678, block), -1, "an unknown ioctl");
    is(ioctl(999, 0xc0104567, block), -1, "on no descriptor");
    is(errno, EBADF, "EBADF");
    int p[2], n = -1;
    pipe(p);
    write(p[1], "12345", 5);
    is(ioctl(p[0], FIONREAD, &n), 0, "FIONREAD");
    is(n, 5, "its value");
    struct winsize ws;
    is(ioctl(p[0], TIOCGWINSZ, &ws), -1, "TIOCGWINSZ of a pipe");
    is(errno, ENOTTY, "ENOTTY");
    int on = 1;
    is(ioctl(p[0], FIONBIO, &on), 0, "FIONBIO");
    is(ioctl(p[0], FIOCLEX), 0, "FIOCLEX");
    uint32_t word = 5;
    is(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 4, NULL), -1, "futex wait for another value");
    is(errno, EAGAIN, "EAGAIN");
    struct timespec ts = {0, 2000000};
    is(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, &ts), -1, "futex wait");
    is(errno, ETIMEDOUT, "ETIMEDOUT");
    is(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1), 0, "futex wake of nobody");
    cpu_set_t set;
    ok(sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0, "sched_getaffinity");
    struct rlimit l;
    is(getrlimit(RLIMIT_CORE, &l), 0, "getrlimit");
    is(prlimit(0, RLIMIT_AS, NULL, &l), 0, "prlimit");
    errno = 0;
    ok(getpriority(PRIO_PROCESS, 0) != -1 || errno == 0, "getpriority");
    is(prctl(PR_GET_DUMPABLE) >= 0, 1, "prctl");
    is(prctl(12345, 0, 0, 0, 0), -1, "unknown prctl");
    is(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0, "PR_SET_NO_NEW_PRIVS");
    is(sched_yield(), 0, "sched_yield");
    is(syscall(SYS_membarrier, 0, 0, 0) >= 0 || errno == ENOSYS, 1, "membarrier");
    is(syscall(SYS_rseq, block, 32, 0, 0), -1, "rseq is taken or not there");
    uint64_t list[3];
    is(syscall(SYS_set_robust_list, list, sizeof list), 0, "set_robust_list");
    is(syscall(SYS_set_tid_address, &word), getpid(), "set_tid_address");
    is(getgroups(0, NULL) >= 0, 1, "getgroups");
    uid_t r, e, s;
    is(getresuid(&r, &e, &s), 0, "getresuid");
    ok(r == getuid() && e == geteuid(), "its values");
    gid_t rg, eg, sg;
    is(getresgid(&rg, &eg, &sg), 0, "getresgid");
    struct tms t;
    ok(times(&t) != -1, "times");
    return finish();
}
