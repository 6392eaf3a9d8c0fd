/* require.c: see require.h. */
#include "cmd/require.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/cpu/cpu.h"

enum {
    HWCAP2_FSGSBASE = 2,     /* AT_HWCAP2: user code may use them; guests do not see it */
    DESCRIPTORS = 32,        /* the recorder's, the store's and the engine's own, and some */
    ADDRESS_SPACE_MIB = 640, /* what an engine lays claim to before there is a guest */
};

const char *require_processor(uint64_t hwcap2, uint64_t xcr0)
{
    if (!xcr0)
        return "the processor or the kernel lacks XSAVE";
    if (!(hwcap2 & HWCAP2_FSGSBASE))
        return "this runs inside a recording already, or on a processor or kernel without the FSGSBASE "
               "instructions (Linux 5.9, Ivy Bridge or Zen)";
    return NULL;
}

static bool readable(const char *proc, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", proc, name);
    return access(path, R_OK) == 0;
}

const char *require_proc(const char *proc)
{
    char children[64];
    snprintf(children, sizeof children, "self/task/%d/children", (int)getpid());
    if (!readable(proc, "self/exe") || !readable(proc, "self/fd") || !readable(proc, "self/maps"))
        return "/proc is not mounted, or not of this pid namespace";
    if (!readable(proc, children))
        return "/proc/PID/task/PID/children is missing (CONFIG_PROC_CHILDREN of the kernel)";
    return NULL;
}

static const char *unless(bool good, const char *missing)
{
    return good ? NULL : missing;
}

static bool descriptor(int fd)
{
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

const char *require_memfd(void)
{
    return unless(descriptor(memfd_create("clio", MFD_CLOEXEC)), "memfd_create is refused");
}

const char *require_sockets(void)
{
    int pair[2];
    bool good = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0;
    if (good) {
        close(pair[0]);
        good = descriptor(pair[1]) && descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    }
    return unless(good, "AF_UNIX sockets are refused");
}

const char *require_signalfd(void)
{
    sigset_t none;
    sigemptyset(&none);
    return unless(descriptor(signalfd(-1, &none, SFD_CLOEXEC)), "signalfd is refused");
}

const char *require_subreaper(void)
{
    int was;
    return unless(prctl(PR_GET_CHILD_SUBREAPER, &was) == 0, "prctl(PR_SET_CHILD_SUBREAPER) is refused");
}

const char *require_code_memory(void)
{
    const int prot = PROT_READ | PROT_WRITE | PROT_EXEC;
    void *p = mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED)
        munmap(p, 4096);
    return unless(p != MAP_FAILED, "memory that is writable and executable is refused (a security policy)");
}

const char *require_descriptors(uint64_t limit)
{
    return unless(limit >= DESCRIPTORS, "fewer than 32 open files are allowed (the hard limit, ulimit -Hn)");
}

const char *require_address_space(uint64_t limit)
{
    return unless(limit >= (uint64_t)ADDRESS_SPACE_MIB << 20,
                  "less than 640 MiB of address space is allowed (ulimit -v)");
}

static uint64_t limit_of(int resource, bool hard)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(resource, &limit);
    return hard ? limit.rlim_max : limit.rlim_cur;
}

const char *require_all(void)
{
    struct cpu_host host;
    cpu_host_ask(&host);
    const char *missing = require_processor(getauxval(AT_HWCAP2), host.xcr0);
    if (!missing)
        missing = require_descriptors(limit_of(RLIMIT_NOFILE, true));
    if (!missing)
        missing = require_address_space(limit_of(RLIMIT_AS, false));
    if (!missing)
        missing = require_proc("/proc");
    if (!missing)
        missing = require_memfd();
    if (!missing)
        missing = require_sockets();
    if (!missing)
        missing = require_signalfd();
    if (!missing)
        missing = require_subreaper();
    return missing ? missing : require_code_memory();
}
