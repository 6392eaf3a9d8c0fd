/*
 * files.c: the descriptor bookkeeping that every read, write and close passes. FAST: see kernel/files.h.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "engine/core/raw.h"
#include "engine/kernel/files.h"
#include "engine/kernel/hostfd.h"
#include "engine/kernel/limits.h"

/*
 * State of a descriptor, forgotten when it is closed. FILE: files_id holds the regular file or block device
 * it leads to; PLAIN: it is neither.
 */
enum { CLASS_OUTPUT = FILE_OUT | FILE_ERR, CLASS_PLAIN = 4, CLASS_FILE = 8 };

uint8_t files_class[FILE_TRACKED];

unsigned files_output(int fd)
{
    return (unsigned)fd < FILE_TRACKED ? files_class[fd] & CLASS_OUTPUT : 0;
}

void files_same(int fd, int from)
{
    if ((unsigned)fd < FILE_TRACKED)
        files_class[fd] = (unsigned)from < FILE_TRACKED ? files_class[from] & ~CLASS_FILE : 0;
}

void after_close(struct task *t, struct sys_call *c)
{
    if (c->result != -9) /* -EBADF: whatever else close says, the descriptor is gone */
        files_same((int)c->args[0], -1);
}

void after_dup(struct task *t, struct sys_call *c)
{
    if (c->result >= 0)
        files_same((int)c->result, (int)c->args[0]);
}

void after_dup2(struct task *t, struct sys_call *c)
{
    if (c->result >= 0 && (int)c->args[0] != (int)c->args[1])
        files_same((int)c->result, (int)c->args[0]);
}

void after_fcntl(struct task *t, struct sys_call *c)
{
    if ((int)c->args[1] == F_DUPFD || (int)c->args[1] == F_DUPFD_CLOEXEC)
        after_dup(t, c);
}

/* ---- hidden descriptors ---- */

bool hostfd_is(int64_t fd)
{
    if ((uint64_t)fd < hostfd_table.lowest)
        return false;
    for (uint32_t i = 0; i < HOSTFD_MAX; i++)
        if (hostfd_table.fd[i] == fd && fd >= 0)
            return true;
    return false;
}

bool slow_dup2(const struct sys_call *c)
{
    return hostfd_is((int32_t)c->args[1]);
}

bool slow_poll(const struct sys_call *c)
{
    uint32_t count = (uint32_t)c->args[1];
    struct pollfd p;
    for (uint32_t i = 0; i < count && i < FILE_TRACKED; i++) {
        if (guest_read(&p, c->args[0] + i * sizeof p, sizeof p))
            return false;
        if (hostfd_is(p.fd))
            return true;
    }
    return false;
}

bool slow_select(const struct sys_call *c)
{
    return (int64_t)(int32_t)c->args[0] > (int64_t)hostfd_table.lowest;
}

/* ---- files that are written and mapped ---- */

/* What file a descriptor leads to, asked for once: neither can change while it is open. */
static struct file_id {
    uint64_t dev, ino;
} files_id[FILE_TRACKED];

/* False when fd is no file that can be mapped. */
static bool identify(int fd, struct file_id *id)
{
    struct stat st;
    bool tracked = (unsigned)fd < FILE_TRACKED;
    if (tracked && (files_class[fd] & CLASS_FILE)) {
        *id = files_id[fd];
        return true;
    }
    if ((tracked && (files_class[fd] & CLASS_PLAIN)) || raw2(SYS_fstat, fd, &st))
        return false;
    bool file = S_ISREG(st.st_mode) || S_ISBLK(st.st_mode);
    *id = (struct file_id){st.st_dev, st.st_ino};
    if (tracked) {
        files_class[fd] |= file ? CLASS_FILE : CLASS_PLAIN;
        files_id[fd] = *id;
    }
    return file;
}

/* Adds those parts of v that show bytes [from, to) of its file and can be read. */
static void add_mapped(struct task *t, const struct vma *v, uint64_t from, uint64_t to)
{
    uint64_t low = from > v->offset ? v->start + (from - v->offset) : v->start;
    uint64_t high = to > v->offset ? v->start + (to - v->offset) : v->start;
    if (high > v->end || to == ~0ull)
        high = v->end;
    for (uint64_t at = low; at < high; at = PAGE_DOWN(at) + PAGE_SIZE) {
        uint64_t end = PAGE_DOWN(at) + PAGE_SIZE < high ? PAGE_DOWN(at) + PAGE_SIZE : high;
        char byte;
        if (!safe_copy(&byte, (const void *)at, 1))
            effect_add(t, at, end - at);
    }
}

/* The bytes of the file a call changed. Where the position is not an argument it is where the descriptor is.
 */
static void written_range(const struct sys_call *c, int fd, uint64_t *from, uint64_t *to)
{
    *from = 0;
    *to = ~0ull;
    switch (c->nr) {
    case SYS_pwrite64:
    case SYS_pwritev:
        *from = c->args[3];
        *to = *from + (uint64_t)c->result;
        break;
    case SYS_write:
    case SYS_writev: {
        int64_t position = raw3(SYS_lseek, fd, 0, SEEK_CUR);
        if (position >= c->result) {
            *from = (uint64_t)(position - c->result);
            *to = (uint64_t)position;
        }
        break;
    }
    case SYS_truncate:
    case SYS_ftruncate: /* bytes of the last page beyond the new end become zero */
        *from = c->args[1];
        break;
    }
}

/* A file whose bytes [from, to) changed; they are asked for only when it is mapped. */
static void add_file(struct task *t, const struct sys_call *c, struct file_id id, int fd)
{
    uint64_t from, to;
    bool ranged = false;
    for (uint32_t i = 0; i < engine.space.count; i++) {
        const struct vma *v = &engine.space.vmas[i];
        if (!v->file || v->file->ino != id.ino || v->file->dev != id.dev)
            continue;
        if (!ranged)
            written_range(c, fd, &from, &to);
        ranged = true;
        add_mapped(t, v, from, to);
    }
}

void files_written(struct task *t, const struct sys_call *c, const struct sys_row *row)
{
    struct file_id id;
    int fd = (int)c->args[row->to_fd];
    if (identify(fd, &id))
        add_file(t, c, id, fd);
}

void after_truncate(struct task *t, struct sys_call *c)
{
    struct stat st;
    if (!c->result && !raw2(SYS_stat, c->args[0], &st))
        add_file(t, c, (struct file_id){st.st_dev, st.st_ino}, -1);
}

/* ---- limits ---- */

bool slow_getrlimit(const struct sys_call *c)
{
    uint32_t resource = (uint32_t)c->args[0];
    return resource == RLIMIT_AS || resource == RLIMIT_DATA || resource == RLIMIT_NOFILE;
}

/* ---- listings of /proc/self/fd ---- */

/* The decimal number that text is, or -1. */
static int64_t number_of(const char *text, uint64_t limit)
{
    int64_t n = 0;
    uint64_t i = 0;
    for (; i < limit && i < 10 && text[i] >= '0' && text[i] <= '9'; i++)
        n = n * 10 + (text[i] - '0');
    return i && i < limit && !text[i] ? n : -1;
}

static char *put_number(char *to, uint64_t n)
{
    char digits[20];
    int count = 0;
    do
        digits[count++] = (char)('0' + n % 10);
    while (n /= 10);
    while (count)
        *to++ = digits[--count];
    return to;
}

static bool starts_with(const char *text, const char *prefix)
{
    while (*prefix)
        if (*text++ != *prefix++)
            return false;
    return true;
}

/* True when the directory open as fd is /proc/<own pid>/fd or fdinfo, or that of a thread. */
static bool lists_own_descriptors(int fd)
{
    char name[40] = "/proc/self/fd/", target[64], own[40] = "/proc/";
    *put_number(name + 14, (uint64_t)fd) = 0;
    int64_t n = raw3(SYS_readlink, name, target, sizeof target - 1);
    if (n <= 0)
        return false;
    target[n] = 0;
    char *end = put_number(own + 6, (uint64_t)raw0(SYS_getpid));
    *end++ = '/';
    *end = 0;
    if (!starts_with(target, own))
        return false;
    while (n > 0 && target[n - 1] != '/')
        n--;
    return starts_with(target + n, "fd");
}

static void drop_hidden(struct sys_call *c, uint64_t name_offset)
{
    uint64_t buffer = c->args[1], in = 0, out = 0, end = (uint64_t)c->result;
    bool checked = false;
    while (in + name_offset < end) {
        char *entry = (char *)(buffer + in);
        uint16_t size = *(uint16_t *)(entry + 16);
        if (size <= name_offset || in + size > end)
            return;
        bool hidden = hostfd_is(number_of(entry + name_offset, size - name_offset));
        if (hidden && !checked && !lists_own_descriptors((int)c->args[0]))
            return;
        checked |= hidden;
        if (!hidden) {
            if (in != out)
                copy_bytes((char *)(buffer + out), entry, size);
            out += size;
        }
        in += size;
    }
    c->result = (int64_t)out;
}

/* A listing that held nothing but hidden entries is not its end: ask for more. */
static void after_listing(struct sys_call *c, uint64_t name_offset)
{
    while (c->result > 0 && hostfd_table.lowest != ~0ull) {
        drop_hidden(c, name_offset);
        if (c->result)
            return;
        c->result = raw3(c->nr, c->args[0], c->args[1], c->args[2]);
    }
}

void after_getdents(struct task *t, struct sys_call *c)
{
    after_listing(c, 18);
}

void after_getdents64(struct task *t, struct sys_call *c)
{
    after_listing(c, 19);
}

/* ---- prctl ---- */

bool slow_prctl(const struct sys_call *c)
{
    enum { PR_SET_SECCOMP = 22, PR_SET_TSC = 26, PR_SET_SYSCALL_USER_DISPATCH = 59, PR_SET_MDWE = 65 };
    uint32_t option = (uint32_t)c->args[0];
    return option == PR_SET_SECCOMP || option == PR_SET_TSC || option == PR_SET_SYSCALL_USER_DISPATCH ||
           option == PR_SET_MDWE;
}

/* ---- paths that procview must see ---- */

enum { PATH_PEEK = 24 };

/* The last component of a relative path is one that /proc/<pid> has and the engine answers for. */
static bool suspicious_relative(const char *path, int length)
{
    static const char *const names[] = {"exe", "maps", "cmdline", "environ", "auxv"};
    int last = length;
    while (last && path[last - 1] != '/')
        last--;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        int n = 0;
        while (names[i][n] && names[i][n] == path[last + n])
            n++;
        if (!names[i][n] && !path[last + n])
            return true;
    }
    return hostfd_is(number_of(path + last, (uint64_t)(length - last + 1)));
}

/* The first PATH_PEEK bytes of a string, or all of it. Returns its length in `path`, or -1 when it cannot be
 * read. */
static int peek(char *path, uint64_t addr)
{
    int n = 0;
    while (n < PATH_PEEK) {
        int piece = PAGE_SIZE - addr % PAGE_SIZE < 8 ? 1 : 8; /* a word never reaches into the next page */
        if (safe_copy(path + n, (const void *)addr, (size_t)piece))
            return -1;
        for (int i = 0; i < piece; i++)
            if (!path[n + i])
                return n + i;
        n += piece;
        addr += (uint64_t)piece;
        if (n >= 8 && path[0] == '/' && !starts_with(path, "/proc/") && !starts_with(path, "/dev/"))
            break;
    }
    path[n] = 0;
    return n;
}

static bool suspicious_path(uint64_t addr)
{
    char path[PATH_PEEK + 8];
    int n = peek(path, addr);
    if (n < 0)
        return false;
    if (path[0] != '/')
        return n < PATH_PEEK && suspicious_relative(path, n);
    return starts_with(path, "/proc/") || path[1] == '/' || path[1] == '.' || starts_with(path, "/dev/std") ||
           starts_with(path, "/dev/fd/");
}

bool slow_path0(const struct sys_call *c)
{
    return suspicious_path(c->args[0]);
}

bool slow_path1(const struct sys_call *c)
{
    return suspicious_path(c->args[1]);
}
