/* Calls at the edge of what a call can be: numbers that no call has, and calls that write to very many places. */
// VARIANTS: o2
// RUNS: numbers messages vectors scattered
#include "guest.h"
#include <sys/socket.h>
#include <sys/uio.h>

static long call(uint64_t nr)
{
    long result;
    register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0, r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(nr), "D"(0), "S"(0), "d"(0), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static void numbers(void)
{
    static const uint32_t nobodys[] = {387,        400,        423,        512,        547,
                                       548,        600,        1000,       0xffff,     0x10000,
                                       0x10027,    0x1003b,    0x7fffffff, 0x80000000, 0x80000027,
                                       0xfffffff0, 0xffffffff, 0x3fffffff, 0x50000000, 0x40001000};
    for (unsigned i = 0; i < sizeof nobodys / sizeof nobodys[0]; i++) {
        is(call(nobodys[i]), -ENOSYS, "no such call");
        is(call(0xffffffff00000000 | nobodys[i]), -ENOSYS, "nor with the upper half set");
    }
    /* Only the lower half of rax is the number. */
    is(call(0xdeadbeef00000000 | SYS_getpid), getpid(), "getpid");
    is(call(0x100000000 | SYS_getppid), getppid(), "getppid");
    for (int i = 0; i < 20000; i++)
        if (call(0x12345) != -ENOSYS)
            ok(false, "call %d", i);
    errno = 0;
    is(syscall(-1), -1, "syscall(-1)");
    is(errno, ENOSYS, "says so");
}

enum { MESSAGES = 1024, PIECES = 20, STRIDE = 3 };

/* Every byte that is received goes to a place of its own: 20480 of them in one call. */
static void messages(void)
{
    static struct mmsghdr headers[MESSAGES];
    static struct iovec pieces[MESSAGES][PIECES];
    static char room[MESSAGES * PIECES * STRIDE], sent[MESSAGES * PIECES];
    int pair[2], size = 1 << 20;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    for (unsigned i = 0; i < sizeof sent; i++)
        sent[i] = (char)(i * 7 + i / 256);
    memset(room, '.', sizeof room);
    for (int i = 0; i < MESSAGES; i++) {
        for (int j = 0; j < PIECES; j++)
            pieces[i][j] = (struct iovec){room + (i * PIECES + j) * STRIDE, 1};
        headers[i].msg_hdr.msg_iov = pieces[i];
        headers[i].msg_hdr.msg_iovlen = PIECES;
    }
    is(write(pair[1], sent, sizeof sent), sizeof sent, "sent");
    is(recvmmsg(pair[0], headers, MESSAGES, 0, NULL), MESSAGES, "received");
    unsigned right = 0, between = 0;
    for (unsigned i = 0; i < sizeof sent; i++) {
        right += room[i * STRIDE] == sent[i];
        between += room[i * STRIDE + 1] == '.' && room[i * STRIDE + 2] == '.';
    }
    is(right, sizeof sent, "bytes in their places");
    is(between, sizeof sent, "and nothing between");
    is(headers[MESSAGES - 1].msg_len, PIECES, "length of the last");
}

/* 1024 pieces with unmapped memory between them. */
static void vectors(void)
{
    enum { COUNT = 1024, PAGE = 4096 };
    char *base = mmap(NULL, 2 * COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static struct iovec iov[COUNT], from[COUNT];
    static char sent[COUNT * 2];
    int p[2];
    pipe(p);
    for (int i = 0; i < COUNT; i++) {
        munmap(base + (2 * i + 1) * PAGE, PAGE);
        iov[i] = (struct iovec){base + 2 * i * PAGE + i, 2};
        from[i] = (struct iovec){sent + 2 * i, 2};
        sent[2 * i] = (char)i, sent[2 * i + 1] = (char)(i >> 8);
    }
    write(p[1], sent, sizeof sent);
    is(readv(p[0], iov, COUNT), sizeof sent, "readv");
    unsigned right = 0;
    for (int i = 0; i < COUNT; i++)
        right += !memcmp(iov[i].iov_base, sent + 2 * i, 2);
    is(right, COUNT, "pieces in their places");
    for (int i = 0; i < COUNT; i++)
        iov[i].iov_base = (char *)iov[i].iov_base + 8;
    is(process_vm_readv(getpid(), iov, COUNT, from, COUNT, 0), sizeof sent, "process_vm_readv");
    write(p[1], sent, sizeof sent);
    iov[1000].iov_base = base + PAGE;
    is(readv(p[0], iov, COUNT), -1, "readv into a hole");
    is(*((char *)iov[999].iov_base + 1), (char)(999 >> 8), "what came before it");
}

/* More places than an event has room for, and nothing to write between them. */
static void scattered(void)
{
    enum { COUNT = 4000, PAGE = 4096, GROUP = 10 };
    char *base = mmap(NULL, 2 * COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static struct mmsghdr headers[COUNT / GROUP];
    static struct iovec iov[COUNT][4];
    static char sent[COUNT * 4];
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    for (int i = 0; i < COUNT; i++) {
        mprotect(base + (2 * i + 1) * PAGE, PAGE, PROT_READ);
        for (int j = 0; j < 4; j++)
            iov[i][j] = (struct iovec){base + 2 * i * PAGE + 1000 * j, 1};
    }
    for (int i = 0; i < COUNT / GROUP; i++)
        headers[i].msg_hdr = (struct msghdr){.msg_iov = iov[i * GROUP], .msg_iovlen = 4 * GROUP};
    memset(sent, 'x', sizeof sent);
    write(pair[1], sent, sizeof sent);
    is(recvmmsg(pair[0], headers, COUNT / GROUP, 0, NULL), COUNT / GROUP, "received");
    unsigned right = 0;
    for (int i = 0; i < COUNT; i++)
        right += base[2 * i * PAGE + 3000] == 'x' && base[2 * i * PAGE + 2999] == 0;
    is(right, COUNT, "bytes in their places");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } runs[] = {{"numbers", numbers}, {"messages", messages}, {"vectors", vectors}, {"scattered", scattered}};
    for (unsigned i = 0; i < sizeof runs / sizeof runs[0]; i++)
        if (!strcmp(argv[1], runs[i].name))
            runs[i].run();
    return finish();
}
