/* Calls whose answers take odd ways: value-result lengths, special descriptors, answers that come with errors. */
// VARIANTS: o2
// RUNS: options errqueue special leases queues pidfds polls vectors limits direct netlink alg fanotify extents
#include "guest.h"
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/if_alg.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <mqueue.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>

static char room[65536] __attribute__((aligned(4096)));

static void fill(void)
{
    memset(room, 0x5a, sizeof room);
}

/* What differs from the filling: first and last place, and a digest of all. */
static void changed(const char *what, long result)
{
    int first = -1, last = -1;
    for (int i = 0; i < (int)sizeof room; i++)
        if (room[i] != 0x5a) {
            first = first < 0 ? i : first;
            last = i;
        }
    say("%s: %ld (%s), changed %d to %d\n", what, result, result < 0 ? strerror(errno) : "fine", first, last);
}

static void options(void)
{
    static const int lengths[] = {-1, INT32_MIN, 0,  1,  2,   3,    4,     5,       7,
                                  8,  15,        16, 17, 100, 4096, 65536, 1 << 20, INT32_MAX};
    static const struct {
        int level, option;
    } asked[] = {{SOL_SOCKET, SO_TYPE},
                 {SOL_SOCKET, SO_LINGER},
                 {SOL_SOCKET, SO_RCVTIMEO},
                 {SOL_SOCKET, SO_PEERNAME},
                 {SOL_SOCKET, SO_ERROR},
                 {SOL_SOCKET, SO_BINDTODEVICE},
                 {SOL_SOCKET, SO_MEMINFO},
                 {SOL_SOCKET, SO_PEERGROUPS},
                 {SOL_SOCKET, SO_PEERCRED},
                 {IPPROTO_TCP, TCP_NODELAY},
                 {IPPROTO_TCP, TCP_CONGESTION},
                 {IPPROTO_TCP, TCP_MAXSEG},
                 {IPPROTO_IP, IP_TTL},
                 {IPPROTO_IP, IP_OPTIONS},
                 {IPPROTO_IP, IP_MTU_DISCOVER},
                 {SOL_SOCKET, 9999},
                 {9999, 1}};
    int pair[2], tcp = socket(AF_INET, SOCK_STREAM, 0);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    for (unsigned i = 0; i < sizeof asked / sizeof asked[0]; i++)
        for (unsigned j = 0; j < 2 * sizeof lengths / sizeof lengths[0]; j++) {
            socklen_t n = (socklen_t)lengths[j / 2];
            fill();
            long r = getsockopt(j & 1 ? tcp : pair[0], asked[i].level, asked[i].option, room, &n);
            bool mem = asked[i].option == SO_MEMINFO && asked[i].level == SOL_SOCKET;
            say("%u %u: %ld %d, %d %s\n", i, j, r, r ? errno : 0, (int)n, mem ? "" : "and");
            if (!mem)
                changed("option", r);
        }
    fill();
    is(getsockopt(tcp, SOL_SOCKET, SO_TYPE, room, NULL), -1, "no length");
    socklen_t n = 4;
    is(getsockopt(tcp, SOL_SOCKET, SO_TYPE, NULL, &n), -1, "no room");
    is(errno, EFAULT, "is a fault");
    is(getsockopt(tcp, SOL_SOCKET, SO_TYPE, (void *)8, &n), -1, "bad room");
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    is(getsockopt(tcp, SOL_SOCKET, SO_TYPE, page, &n), -1, "room that is read only");
    is(setsockopt(tcp, SOL_SOCKET, SO_RCVBUF, room, (socklen_t)-1), -1, "negative length");
    n = 64;
    is(getsockopt(tcp, IPPROTO_TCP, 35 /* TCP_ZEROCOPY_RECEIVE */, room, &n) < 0, 1,
       "zero copy, not connected");
    /* Names that do not fit. */
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "x/a name"};
    int named = socket(AF_UNIX, SOCK_DGRAM, 0);
    name.sun_path[0] = 0;
    bind(named, (struct sockaddr *)&name, sizeof(sa_family_t) + 8);
    for (int len = -1; len < 14; len++) {
        fill();
        n = (socklen_t)len;
        long r = getsockname(named, (struct sockaddr *)room, &n);
        say("name %d: %d ", len, (int)n);
        changed("name", r);
    }
}

static void errqueue(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one);
    sendto(fd, "nobody listens", 14, 0, (struct sockaddr *)&to, sizeof to);
    struct pollfd p = {fd, POLLERR, 0};
    poll(&p, 1, 2000);
    for (size_t control = 0; control < 160; control += 12) {
        struct iovec iov[2] = {{room, 3}, {room + 100, 100}};
        struct sockaddr_in from;
        struct msghdr m = {.msg_name = &from,
                           .msg_namelen = sizeof from,
                           .msg_iov = iov,
                           .msg_iovlen = 2,
                           .msg_control = control ? room + 1000 : NULL,
                           .msg_controllen = control};
        fill();
        long r = recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT);
        if (r < 0)
            sendto(fd, "again", 5, 0, (struct sockaddr *)&to, sizeof to), poll(&p, 1, 2000);
        say("%ld flags %x, port %d, control %ld, text %.3s\n", r, m.msg_flags,
            r < 0 ? 0 : ntohs(from.sin_port), (long)m.msg_controllen, room);
        sendto(fd, "nobody listens", 14, 0, (struct sockaddr *)&to, sizeof to);
        sendto(fd, "nobody listens", 14, 0, (struct sockaddr *)&to, sizeof to);
        poll(&p, 1, 2000);
    }
}

static void special(void)
{
    uint64_t value = 5;
    int ev = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK), tfd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    for (int size = 4; size <= 16; size += 4) {
        fill();
        changed("eventfd", read(ev, room, (size_t)size));
    }
    write(ev, &value, 8);
    struct iovec iov[3] = {{room, 3}, {room + 10, 4}, {room + 20, 20}};
    fill();
    changed("eventfd, in pieces", readv(ev, iov, 3));
    struct itimerspec soon = {{0, 0}, {0, 1}};
    timerfd_settime(tfd, 0, &soon, NULL);
    struct pollfd p = {tfd, POLLIN, 0};
    poll(&p, 1, 2000);
    fill();
    changed("timerfd", read(tfd, room, 100));
    changed("timerfd again", read(tfd, room, 100));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int sfd = signalfd(-1, &set, SFD_NONBLOCK);
    changed("signalfd, nothing", read(sfd, room, 1000));
    raise(SIGUSR1), raise(SIGUSR2);
    fill();
    long r = read(sfd, room, 127);
    changed("signalfd, too small", r);
    r = read(sfd, room, 300);
    struct signalfd_siginfo *si = (void *)room;
    say("signalfd: %ld, %u and %u\n", r, si[0].ssi_signo, si[1].ssi_signo);
    int in = inotify_init1(IN_NONBLOCK);
    inotify_add_watch(in, ".", IN_CREATE | IN_DELETE);
    close(open("a name of some length", O_CREAT | O_WRONLY, 0600));
    unlink("a name of some length");
    for (int size = 8; size < 128; size *= 2) {
        fill();
        changed("inotify", read(in, room, (size_t)size));
    }
    int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR), full = open("/dev/full", O_RDWR);
    fill();
    changed("null", read(null, room, 100));
    changed("zero", read(zero, room, 100));
    is(write(full, "x", 1), -1, "full");
    iov[1].iov_base = (void *)16;
    fill();
    changed("zero, half a vector", readv(zero, iov, 3));
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    say("zero, up to a hole: %ld\n", (long)read(zero, page + 4000, 1000));
    int random = open("/dev/urandom", O_RDONLY);
    is(read(random, room, 5000), 5000, "random");
    is(syscall(SYS_getrandom, room, 100, 0xff00), -1, "getrandom, unknown flags");
}

static volatile int seen;

static void on_signal(int signal)
{
    seen++;
}

static void leases(void)
{
    signal(SIGIO, on_signal);
    close(open("file", O_CREAT | O_WRONLY, 0600));
    int fd = open("file", O_RDONLY), dir = open(".", O_RDONLY);
    if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
        is(open("file", O_WRONLY | O_NONBLOCK), -1, "a lease is in the way");
        is(errno, EAGAIN, "try again");
        is(seen, 1, "its holder was told");
        fcntl(fd, F_SETLEASE, F_UNLCK);
    }
    is(fcntl(dir, F_NOTIFY, DN_CREATE), 0, "dnotify");
    close(open("other", O_CREAT | O_WRONLY, 0600));
    say("told %d times\n", seen);
    struct f_owner_ex owner = {F_OWNER_TID, getpid()}, back;
    fcntl(fd, F_SETOWN_EX, &owner);
    is(fcntl(fd, F_GETOWN_EX, &back), 0, "owner");
    is(back.type, F_OWNER_TID, "of a thread");
    int p[2];
    pipe(p);
    say("pipe %d %d\n", fcntl(p[0], F_SETPIPE_SZ, 8192), fcntl(p[0], F_GETPIPE_SZ));
    uint64_t hint = 99;
    int r = fcntl(fd, 1035 /* F_GET_RW_HINT */, &hint);
    say("hint %d %lu\n", r, (unsigned long)hint);
    struct flock l = {.l_type = F_WRLCK, .l_start = 5, .l_len = 10}, o = {.l_type = F_WRLCK};
    int w = open("file", O_RDWR);
    is(fcntl(w, F_OFD_SETLK, &l), 0, "a lock of the open file");
    is(fcntl(fd, F_OFD_GETLK, &o), 0, "is seen");
    say("%d %ld %ld %d\n", o.l_type, (long)o.l_start, (long)o.l_len, o.l_pid);
    is(fcntl(fd, 12345, 0), -1, "no such command");
}

static void queues(void)
{
    struct mq_attr attr = {.mq_maxmsg = 3, .mq_msgsize = 20}, got;
    mqd_t q = mq_open("/clio-guest-kernel", O_RDWR | O_CREAT | O_NONBLOCK, 0600, &attr);
    if (q < 0) {
        say("no queues: %s\n", strerror(errno));
        return;
    }
    mq_unlink("/clio-guest-kernel");
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    signal(SIGUSR1, on_signal);
    is(mq_notify(q, &event), 0, "notify");
    is(mq_send(q, "message", 7, 9), 0, "send");
    is(seen, 1, "notified");
    unsigned priority = 0;
    fill();
    is(mq_receive(q, room, 10, NULL), -1, "too little room");
    changed("queue", mq_receive(q, room, 4000, &priority));
    is(priority, 9, "priority");
    changed("queue, empty", mq_receive(q, room, 4000, &priority));
    mq_getattr(q, &got);
    say("%ld %ld %ld\n", got.mq_maxmsg, got.mq_msgsize, got.mq_curmsgs);
}

static void pidfds(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    int fd = (int)syscall(434 /* pidfd_open */, child, 0);
    siginfo_t info;
    memset(&info, 0x33, sizeof info);
    is(waitid(3 /* P_PIDFD */, (id_t)fd, &info, WEXITED | WNOWAIT), 0, "waited and left");
    is(info.si_status, 7, "status");
    is(info.si_pid, child, "pid");
    memset(&info, 0x33, sizeof info);
    is(waitid(P_PID, (id_t)child, &info, WEXITED), 0, "waited");
    memset(&info, 0x33, sizeof info);
    is(waitid(P_PID, (id_t)child, &info, WEXITED), -1, "no more");
    say("%d %d %d %d\n", info.si_signo, info.si_code, info.si_errno, info.si_pid);
    memset(&info, 0x33, sizeof info);
    is(waitid(P_ALL, 0, &info, WEXITED | WNOHANG), -1, "nobody");
    memset(&info, 0x33, sizeof info);
    is(waitid(77, 0, &info, WEXITED), -1, "no such kind");
    say("%x %x\n", info.si_signo, info.si_pid);
    child = fork();
    if (child == 0)
        pause();
    memset(&info, 0x33, sizeof info);
    is(waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG), 0, "not yet");
    say("%d %d\n", info.si_signo, info.si_pid);
    kill(child, SIGTERM);
    int status;
    is(wait4(child, &status, 0, NULL), child, "without usage");
    is(status, SIGTERM, "killed");
    is(wait4(child, (int *)8, 0, NULL), -1, "a bad place does not matter when nobody is there");
}

static void polls(void)
{
    struct pollfd *p = calloc(5000, sizeof *p);
    int pipes[2];
    pipe(pipes);
    for (int i = 0; i < 900; i++)
        p[i] = (struct pollfd){i % 3 ? -1 : pipes[1], POLLOUT, 0x55};
    is(poll(p, 900, 0), 300, "poll of 900");
    is(p[899].revents, 0, "the last");
    is(p[897].revents, POLLOUT, "one before");
    p[0].revents = 0x55;
    is(syscall(SYS_poll, p, 0xffffffffu, 0), -1, "poll of too many");
    is(p[0].revents, 0x55, "nothing is written");
    struct timespec ts = {0, 5000};
    is(syscall(SYS_ppoll, NULL, 0, &ts, NULL, 8), 0, "ppoll");
    say("left %ld %ld\n", (long)ts.tv_sec, ts.tv_nsec);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    struct timeval tv = {0, 1000};
    is(select(1024, &set, NULL, NULL, &tv), 0, "select");
    say("left %ld %ld, set %d\n", (long)tv.tv_sec, (long)tv.tv_usec, FD_ISSET(pipes[0], &set));
    struct epoll_event events[3];
    int ep = epoll_create1(0), inner = epoll_create1(0);
    events[0] = (struct epoll_event){EPOLLOUT, {.u64 = 0x123456789abcdef}};
    epoll_ctl(inner, EPOLL_CTL_ADD, pipes[1], events);
    events[0] = (struct epoll_event){EPOLLIN, {.u64 = 42}};
    epoll_ctl(ep, EPOLL_CTL_ADD, inner, events);
    memset(events, 0, sizeof events);
    is(epoll_wait(ep, events, 3, 100), 1, "nested epoll");
    is(events[0].data.u64, 42, "its data");
    is(epoll_wait(inner, events, 3, 100), 1, "inner epoll");
    is(events[0].data.u64, 0x123456789abcdef, "its data");
    is(epoll_wait(inner, events, 0, 0), -1, "no room");
    free(p);
}

static void vectors(void)
{
    char a[5] = "", b[5] = "", source[] = "0123456789";
    struct iovec local[3] = {{a, 4}, {NULL, 0}, {b, 4}}, remote = {source, 10};
    is(process_vm_readv(getpid(), local, 3, &remote, 1, 0), 8, "read of oneself");
    say("%s %s\n", a, b);
    struct iovec into = {source, 3};
    is(process_vm_writev(getpid(), local, 1, &into, 1, 0), 3, "write to oneself");
    say("%s\n", source);
    local[2].iov_base = (void *)8;
    long r = process_vm_readv(getpid(), local, 3, &remote, 1, 0);
    say("%ld %s\n", r, a);
    is(process_vm_readv(getpid(), local, 3, &remote, 1, 1), -1, "unknown flags");
    int fd = memfd_create("v", 0);
    write(fd, "abcdefghijklmnop", 16);
    is(preadv2(fd, local, 1, 3, 0), 4, "preadv2");
    say("%s\n", a);
    is(preadv2(fd, local, 1, 3, 0x40000000), -1, "preadv2, unknown flags");
    lseek(fd, 10, SEEK_SET);
    is(preadv2(fd, local, 1, -1, 0), 4, "preadv2 at the offset");
    say("%s %ld\n", a, (long)lseek(fd, 0, SEEK_CUR));
    is(readv(fd, local, -1), -1, "negative count");
    is(readv(fd, local, 1025), -1, "too many");
    struct iovec huge[2] = {{a, 4}, {b, SIZE_MAX}};
    is(readv(fd, huge, 2), -1, "negative length");
}

static void limits(void)
{
    unsigned cpu = 99, node = 99;
    char third[32];
    memset(third, 0x44, sizeof third);
    is(syscall(SYS_getcpu, &cpu, &node, third), 0, "getcpu");
    is(third[0], 0x44, "its third argument is nobody's");
    unsigned long mask[128];
    memset(mask, 0x11, sizeof mask);
    long r = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    ok(r > 0 && r <= (long)sizeof mask && mask[127] == 0x1111111111111111, "affinity");
    is(syscall(SYS_sched_getaffinity, 0, 1, mask), -1, "affinity, too small");
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t more[20];
    } attr = {0};
    for (unsigned size = 40; size <= 60; size += 8) {
        memset(&attr, 0x22, sizeof attr);
        r = syscall(SYS_sched_getattr, 0, &attr, size, 0);
        say("sched_getattr %u: %ld size %u policy %u\n", size, r, attr.size, attr.policy);
    }
    memset(&attr, 0, sizeof attr);
    attr.size = 190;
    attr.more[18] = 1;
    r = syscall(SYS_sched_setattr, 0, &attr, 0);
    say("sched_setattr, too large: %ld, %d\n", r, attr.size < 190);
    int sv[2] = {77, 77};
    is(socketpair(AF_INET, SOCK_STREAM, 0, sv), -1, "a pair of TCP");
    say("%d %d\n", sv[0] == 77, sv[1] == 77);
    struct {
        uint32_t version, pid;
    } head = {0x12345678, 0};
    uint32_t data[6];
    is(syscall(SYS_capget, &head, NULL), 0, "capget, asking for the version");
    say("%x\n", head.version);
    head.pid = 0;
    memset(data, 0x66, sizeof data);
    is(syscall(SYS_capget, &head, data), 0, "capget");
    timer_t id = (timer_t)0x77;
    r = syscall(SYS_timer_create, (uint32_t)(~99999999u << 3 | 2), NULL, &id);
    say("timer of nobody: %ld\n", r);
    struct timespec sleep = {0, 1000};
    is(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 1, &(struct timespec){0, 0}, (void *)8), 0,
       "absolute sleep");
    is(syscall(SYS_nanosleep, &sleep, (void *)8), 0, "a bad place for the rest");
    is(syscall(SYS_getgroups, -1, NULL), -1, "getgroups(-1)");
}

static void direct(void)
{
    int fd = open("file", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    write(fd, "some bytes, fewer than a block", 30);
    fsync(fd);
    close(fd);
    fd = open("file", O_RDONLY | O_DIRECT);
    if (fd < 0) {
        say("no O_DIRECT: %s\n", strerror(errno));
        return;
    }
    fill();
    changed("direct", read(fd, room, 8192));
    fill();
    changed("direct, at an offset", pread(fd, room, 4096, 0));
    struct iovec iov[2] = {{room, 4096}, {room + 8192, 4096}};
    fill();
    changed("direct, in pieces", preadv(fd, iov, 2, 0));
    close(fd);
}

static void netlink(void)
{
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    struct {
        struct nlmsghdr head;
        struct rtgenmsg body;
    } ask = {{sizeof ask, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {AF_UNSPEC}};
    if (fd < 0 || send(fd, &ask, sizeof ask, 0) < 0) {
        say("no netlink: %s\n", strerror(errno));
        return;
    }
    int parts = 0, type = 0;
    while (type != NLMSG_DONE && parts < 100) {
        struct sockaddr_nl from;
        struct iovec iov = {room, sizeof room};
        struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &iov, .msg_iovlen = 1};
        long n = recvmsg(fd, &m, 0);
        for (struct nlmsghdr *h = (void *)room; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n), parts++)
            type = h->nlmsg_type;
    }
    is(type, NLMSG_DONE, "links were listed");
    say("%lx\n", (unsigned long)(parts > 1));
    struct sockaddr_nl self;
    socklen_t size = sizeof self;
    getsockname(fd, (struct sockaddr *)&self, &size);
    is(size, sizeof self, "its name");
}

static void alg(void)
{
    struct sockaddr_alg name = {.salg_family = AF_ALG, .salg_type = "hash", .salg_name = "sha256"};
    int fd = socket(AF_ALG, SOCK_SEQPACKET, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof name)) {
        say("no AF_ALG: %s\n", strerror(errno));
        return;
    }
    int op = accept(fd, NULL, 0);
    write(op, "abc", 3);
    fill();
    changed("sha256", read(op, room, 100));
    say("%lx\n", (unsigned long)digest(DIGEST_START, room, 32));
}

static void fanotify(void)
{
    int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK, O_RDONLY);
    close(open("file", O_CREAT | O_WRONLY, 0600));
    if (fd < 0 || fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN | FAN_CLOSE, AT_FDCWD, "file")) {
        say("no fanotify: %s\n", strerror(errno));
        return;
    }
    int file = open("file", O_RDONLY);
    long n = read(fd, room, sizeof room);
    struct fanotify_event_metadata *e = (void *)room;
    is(n, sizeof *e, "one event");
    is(e->pid, getpid(), "by this program");
    ok(e->fd > file, "its descriptor");
    close(e->fd);
    close(file);
    n = read(fd, room, sizeof room);
    ok(n >= (long)sizeof *e, "closed");
}

static void extents(void)
{
    int fd = open("file", O_CREAT | O_RDWR | O_TRUNC, 0600),
        other = open("other", O_CREAT | O_RDWR | O_TRUNC, 0600);
    write(fd, room, 20000);
    fsync(fd);
    struct {
        struct fiemap head;
        struct fiemap_extent extents[4];
    } map = {.head = {.fm_length = ~0ull, .fm_extent_count = 4}};
    long r = ioctl(fd, FS_IOC_FIEMAP, &map);
    say("fiemap %ld %u\n", r, map.head.fm_mapped_extents > 0);
    map.head.fm_flags = 1u << 30;
    r = ioctl(fd, FS_IOC_FIEMAP, &map);
    say("unknown flags: %ld %d %x\n", r, r ? errno : 0, map.head.fm_flags);
    say("clone: %d\n", ioctl(other, FICLONE, fd));
    struct {
        struct file_dedupe_range head;
        struct file_dedupe_range_info info;
    } same = {.head = {.src_length = 4096, .dest_count = 1}, .info = {.dest_fd = other}};
    r = ioctl(fd, FIDEDUPERANGE, &same);
    say("dedupe: %ld %d\n", r, same.info.status);
    /* A file that is mapped and changed by a clone or an allocation. */
    memset(room, 'm', 20000);
    pwrite(other, room, 20000, 0);
    char *p = mmap(NULL, 20000, PROT_READ, MAP_SHARED, other, 0);
    say("%c", p[5000]);
    ioctl(other, FICLONE, fd);
    say("%c", p[5000]);
    struct {
        int16_t type, whence;
        int64_t start, length;
        int32_t sysid, pid, more[4];
    } zero = {.start = 4096, .length = 4096};
    r = ioctl(other, 0x40305839 /* FS_IOC_ZERO_RANGE */, &zero);
    say("%ld %d\n", r, p[5000]);
    r = fallocate(other, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096);
    say("%ld %d %c\n", r, r ? 0 : p[9000], p[13000]);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {{"options", options},   {"errqueue", errqueue}, {"special", special}, {"leases", leases},
                {"queues", queues},     {"pidfds", pidfds},     {"polls", polls},     {"vectors", vectors},
                {"limits", limits},     {"direct", direct},     {"netlink", netlink}, {"alg", alg},
                {"fanotify", fanotify}, {"extents", extents}};
    for (unsigned i = 0; i < sizeof runs / sizeof runs[0]; i++)
        if (!strcmp(argv[1], runs[i].name))
            runs[i].run();
    return finish();
}
