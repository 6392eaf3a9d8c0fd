/*
 * container.c: runs a command as a container engine would, as far as that takes no image.
 *
 *     container [--profile] [--caps] [--user UID] [--deny CALL=ERRNO]... COMMAND...
 *
 *   --profile   a system-call filter that refuses what the default profiles of Docker or Podman refuse, on any
 *               kernel, without added capabilities: the union of the two. Sets no_new_privs.
 *   --caps      only the capabilities that Docker leaves to root
 *   --user      becomes this user and group, without other groups, capabilities or a way to get them
 *   --deny      this call fails (a filter of its own): --deny memfd_create=38
 *
 * The filter: EPERM for the calls below, ENOSYS for clone3 and for numbers that the profiles do not know, EPERM
 * for clone with a namespace's flag, for other personalities than Linux's plain ones and for vsock sockets.
 */
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LAST_KNOWN = 448, FILTER_MAX = 1000 };

static const int refused[] = {
    SYS_acct,
    SYS_add_key,
    SYS_bpf,
    SYS_chroot,
    SYS_clock_settime,
    SYS_create_module,
    SYS_delete_module,
    SYS_fanotify_init,
    SYS_finit_module,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fsopen,
    SYS_fspick,
    SYS_get_kernel_syms,
    SYS_get_mempolicy,
    SYS_init_module,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_uring_setup,
    SYS_ioperm,
    SYS_iopl,
    SYS_kcmp,
    SYS_kexec_file_load,
    SYS_kexec_load,
    SYS_keyctl,
    SYS_lookup_dcookie,
    SYS_mbind,
    SYS_migrate_pages,
    SYS_mount,
    SYS_mount_setattr,
    SYS_move_mount,
    SYS_move_pages,
    SYS_nfsservctl,
    SYS_open_by_handle_at,
    SYS_open_tree,
    SYS_perf_event_open,
    SYS_pidfd_getfd,
    SYS_pivot_root,
    SYS_process_madvise,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_ptrace,
    SYS_query_module,
    SYS_quotactl,
    SYS_reboot,
    SYS_request_key,
    SYS_set_mempolicy,
    SYS_setdomainname,
    SYS_sethostname,
    SYS_setns,
    SYS_settimeofday,
    SYS_swapoff,
    SYS_swapon,
    SYS__sysctl,
    SYS_sysfs,
    SYS_syslog,
    SYS_umount2,
    SYS_unshare,
    SYS_uselib,
    SYS_userfaultfd,
    SYS_ustat,
    SYS_vhangup,
    SYS_vmsplice,
};

static const struct {
    const char *name;
    int number;
} names[] = {
    {"clone", SYS_clone},
    {"clone3", SYS_clone3},
    {"close_range", SYS_close_range},
    {"fcntl", SYS_fcntl},
    {"kcmp", SYS_kcmp},
    {"memfd_create", SYS_memfd_create},
    {"mknodat", SYS_mknodat},
    {"pidfd_open", SYS_pidfd_open},
    {"pidfd_send_signal", SYS_pidfd_send_signal},
    {"prctl", SYS_prctl},
    {"process_vm_readv", SYS_process_vm_readv},
    {"rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo},
    {"seccomp", SYS_seccomp},
    {"signalfd4", SYS_signalfd4},
    {"socket", SYS_socket},
    {"socketpair", SYS_socketpair},
    {"timer_create", SYS_timer_create},
};

static void fail(const char *what)
{
    fprintf(stderr, "container: %s: %s\n", what, strerror(errno));
    exit(125);
}

/* ---- filters ---- */

static struct sock_filter code[FILTER_MAX];
static unsigned short used;

static void put(unsigned short op, unsigned value, unsigned char if_true, unsigned char if_false)
{
    if (used == FILTER_MAX)
        exit(125);
    code[used++] = (struct sock_filter){op, if_true, if_false, value};
}

static void load(size_t offset)
{
    put(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

static void answer(unsigned action)
{
    put(BPF_RET | BPF_K, action, 0, 0);
}

static void deny(int error)
{
    answer(SECCOMP_RET_ERRNO | (unsigned)error);
}

/* The next `n` instructions are for this call alone; the number is loaded again after them. */
static void only_for(int number, unsigned char n)
{
    put(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, n);
}

static void begin(void)
{
    used = 0;
    load(offsetof(struct seccomp_data, arch));
    put(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    answer(SECCOMP_RET_ALLOW); /* 32-bit calls: the profiles allow them */
    load(offsetof(struct seccomp_data, nr));
}

static void install(void)
{
    struct sock_fprog program = {used, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
        fail("installing a filter");
}

static void profile(void)
{
    static const unsigned plain[] = {0, 8, 0x20000, 0x20008, 0xffffffff};
    enum { PLAIN = sizeof plain / sizeof *plain };
    const unsigned namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                                CLONE_NEWPID | CLONE_NEWNET;
    begin();
    put(BPF_JMP | BPF_JGT | BPF_K, LAST_KNOWN, 0, 1);
    deny(ENOSYS);
    only_for(SYS_clone3, 1);
    deny(ENOSYS);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        only_for(refused[i], 1);
        deny(EPERM);
    }
    only_for(SYS_clone, 4);
    load(offsetof(struct seccomp_data, args[0]));
    put(BPF_JMP | BPF_JSET | BPF_K, namespaces, 0, 1);
    deny(EPERM);
    answer(SECCOMP_RET_ALLOW);
    only_for(SYS_socket, 4);
    load(offsetof(struct seccomp_data, args[0]));
    put(BPF_JMP | BPF_JEQ | BPF_K, AF_VSOCK, 0, 1);
    deny(EPERM);
    answer(SECCOMP_RET_ALLOW);
    only_for(SYS_personality, PLAIN + 2);
    load(offsetof(struct seccomp_data, args[0]));
    for (unsigned char i = 0; i < PLAIN; i++)
        put(BPF_JMP | BPF_JEQ | BPF_K, plain[i], (unsigned char)(PLAIN - i), 0);
    deny(EPERM);
    answer(SECCOMP_RET_ALLOW);
    install();
}

static void deny_one(const char *text)
{
    size_t length = strcspn(text, "=");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == length && !strncmp(names[i].name, text, length) && text[length]) {
            begin();
            only_for(names[i].number, 1);
            deny(atoi(text + length + 1));
            answer(SECCOMP_RET_ALLOW);
            install();
            return;
        }
    errno = EINVAL;
    fail(text);
}

/* ---- rights ---- */

static void set_caps(unsigned long long caps)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    const unsigned low = (unsigned)caps, high = (unsigned)(caps >> 32);
    struct __user_cap_data_struct data[2] = {{low, low, 0}, {high, high, 0}};
    if (syscall(SYS_capset, &head, data))
        fail("capset");
}

static void drop_caps(void)
{
    static const int kept[] = {CAP_CHOWN,       CAP_DAC_OVERRIDE,    CAP_FSETID, CAP_FOWNER,
                               CAP_MKNOD,       CAP_NET_RAW,         CAP_SETGID, CAP_SETUID,
                               CAP_SETFCAP,     CAP_SETPCAP,         CAP_KILL,   CAP_SYS_CHROOT,
                               CAP_AUDIT_WRITE, CAP_NET_BIND_SERVICE};
    unsigned long long caps = 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        caps |= 1ull << kept[i];
    for (int c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        if (!(caps >> c & 1) && prctl(PR_CAPBSET_DROP, c, 0, 0, 0))
            fail("dropping a capability");
    set_caps(caps);
}

static void become(const char *user)
{
    unsigned id = (unsigned)atoi(user);
    if (setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id))
        fail("becoming another user");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        fail("no_new_privs");
}

int main(int argc, char **argv)
{
    int at = 1;
    const char *user = NULL;
    int want_profile = 0;
    for (; at < argc && !strncmp(argv[at], "--", 2); at++) {
        if (!strcmp(argv[at], "--profile"))
            want_profile = 1;
        else if (!strcmp(argv[at], "--caps"))
            drop_caps();
        else if (!strcmp(argv[at], "--user") && at + 1 < argc)
            user = argv[++at];
        else if (!strcmp(argv[at], "--deny") && at + 1 < argc)
            deny_one(argv[++at]);
        else
            break;
    }
    if (at >= argc) {
        fprintf(stderr,
                "usage: container [--profile] [--caps] [--user UID] [--deny CALL=ERRNO]... COMMAND...\n");
        return 125;
    }
    if (user)
        become(user);
    if (want_profile)
        profile();
    execvp(argv[at], argv + at);
    fail(argv[at]);
}
