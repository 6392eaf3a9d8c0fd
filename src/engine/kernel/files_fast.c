/*
 * files.c: the descriptor bookkeeping that every read, write and close passes. FAST: see kernel/files.h.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "engine/host/raw.h"
#include "engine/kernel/files.h"
#include "engine/host/hostfd.h"
#include "engine/kernel/limits.h"
#include "engine/memory/objects.h"

/*
 * State of a descriptor, forgotten when it is closed. FILE: files_id holds the regular file or block device
 * it leads to; PLAIN: it is neither.
 */
enum { CLASS_OUTPUT = FILE_OUT | FILE_ERR, CLASS_PLAIN = 4, CLASS_FILE = 8 };

_Alignas(4096) uint8_t files_class[FILE_TRACKED];

unsigned files_output(int fd)
{
    return (unsigned)fd < FILE_TRACKED ? files_class[fd] & CLASS_OUTPUT : 0;
}

void files_same(int fd, int from)
{
    if ((unsigned)fd >= FILE_TRACKED)
        return;
    files_class[fd] = (unsigned)from < FILE_TRACKED ? files_class[from] & ~CLASS_FILE : 0;
    if (files_class[fd] & FILE_MEMORY)
        files_id[fd] = files_id[from];
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

bool slow_memory(const struct sys_call *c)
{
    int fd = (int)c->args[0];
    return (unsigned)fd < FILE_TRACKED && (files_class[fd] & FILE_MEMORY);
}

/* ---- hidden descriptors ---- */

bool slow_dup2(const struct sys_call *c)
{
    return hostfd_is((int32_t)c->args[1]);
}

bool slow_fcntl(const struct sys_call *c)
{
    bool duplicates = (int)c->args[1] == F_DUPFD || (int)c->args[1] == F_DUPFD_CLOEXEC;
    return duplicates && c->args[2] + FILE_TRACKED > hostfd_table.lowest;
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
_Alignas(4096) struct file_id files_id[FILE_TRACKED];

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
        files_id[fd] = *id; /* first: another process may share the table */
        files_class[fd] |= file ? CLASS_FILE : CLASS_PLAIN;
    }
    return file;
}

struct files_stale files_stale;

static void code_changed(uint64_t start, uint64_t end)
{
    if (!files_stale.end || start < files_stale.start)
        files_stale.start = start;
    if (end > files_stale.end)
        files_stale.end = end;
}

/* Adds those parts of v that show bytes [from, to) of its file and can be read. */
static void add_mapped(struct task *t, const struct vma *v, uint64_t from, uint64_t to)
{
    uint64_t low = from > v->offset ? v->start + (from - v->offset) : v->start;
    uint64_t high = to > v->offset ? v->start + (to - v->offset) : v->start;
    if (high > v->end)
        high = v->end;
    effect_add_file(t, low, high);
    if (low < high && (v->prot & 4))
        code_changed(low, high);
}

struct file_range {
    uint64_t from, to;
};

/* The bytes of the file a call changed. Where the position is not an argument it is where the descriptor is.
 */
static struct file_range written_range(const struct sys_call *c, int fd)
{
    struct file_range all = {0, ~0ull}, nothing = {0, 0};
    switch (c->nr) {
    case SYS_pwrite64:
    case SYS_pwritev:
        return (struct file_range){c->args[3], c->args[3] + (uint64_t)c->result};
    case SYS_write:
    case SYS_writev: {
        int64_t position = raw3(SYS_lseek, fd, 0, SEEK_CUR);
        if (position < c->result)
            return all;
        return (struct file_range){(uint64_t)(position - c->result), (uint64_t)position};
    }
    case SYS_fallocate: {
        const uint64_t in_place = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
        if (c->args[1] & ~in_place)
            return (struct file_range){PAGE_DOWN(c->args[2]), ~0ull};
        return (struct file_range){c->args[2], c->args[2] + c->args[3]};
    }
    case SYS_truncate:
    case SYS_ftruncate:
    case SYS_open:
    case SYS_openat:
    case SYS_openat2:
    case SYS_creat:
        return nothing; /* beside the change of size */
    }
    return all;
}

/* The part of v beyond the end of its file cannot be run any more. */
static void cut_code(const struct vma *v, uint64_t size)
{
    uint64_t left = PAGE_UP(size);
    uint64_t low = left > v->offset ? v->start + (left - v->offset) : v->start;
    if ((v->prot & 4) && low < v->end)
        code_changed(low, v->end);
}

/* The object that a file is, or 0 when nothing maps it. */
static uint16_t object_mapped(const struct file_id *id)
{
    for (uint32_t i = 0; i < guest_space.count; i++) {
        const struct vma *v = &guest_space.vmas[i];
        if (v->file && objects[v->object].ino == id->ino && objects[v->object].dev == id->dev)
            return v->object;
    }
    return 0;
}

/*
 * A mapped file was written to or has another size. The rest of the page that holds its old or new end is
 * recorded with it: it becomes zero, or comes to be part of the file.
 */
static void file_changed(struct task *t, const struct sys_call *c, uint16_t number, int fd, uint64_t size)
{
    struct object *o = &objects[number];
    struct file_range range = written_range(c, fd), end = {0, 0};
    if (size != o->size) {
        uint64_t edge = size < o->size ? size : o->size;
        end = (struct file_range){edge, PAGE_UP(edge)};
        if (size > o->size && range.from < range.to && range.from > edge)
            range.from = edge; /* O_APPEND: the position argument did not count */
        if (size > o->size && range.from < range.to && range.to < size)
            range.to = size;
        event_resize(t, number, size);
    }
    if (range.to > PAGE_UP(size))
        range.to = PAGE_UP(size);
    if (size == o->size && range.from >= range.to)
        return;
    o->changed = true;
    for (uint32_t i = 0; i < guest_space.count; i++) {
        const struct vma *v = &guest_space.vmas[i];
        if (v->object != number)
            continue;
        add_mapped(t, v, end.from, end.to);
        add_mapped(t, v, range.from, range.to);
        if (size < o->size)
            cut_code(v, size);
    }
    o->size = size;
}

void files_written(struct task *t, const struct sys_call *c, const struct sys_row *row)
{
    struct file_id id;
    struct stat st;
    int fd = (int)c->args[row->to_fd];
    uint16_t number = identify(fd, &id) ? object_mapped(&id) : 0;
    if (number && !raw2(SYS_fstat, fd, &st))
        file_changed(t, c, number, fd, (uint64_t)st.st_size);
}

void after_read(struct task *t, struct sys_call *c)
{
    enum { BLOCK = 512 };
    struct file_id id;
    int fd = (int)c->args[0];
    bool plain = c->nr == SYS_read || c->nr == SYS_pread64;
    if (c->result <= 0 || c->result % BLOCK == 0 || (plain && c->args[2] % BLOCK) || !identify(fd, &id) ||
        !(raw2(SYS_fcntl, fd, F_GETFL) & O_DIRECT))
        return;
    if (plain)
        effect_add_writable(t, c->args[1], c->args[2]);
    else
        effect_add_vector(t, c->args[1], c->args[2]);
}

void after_ioctl(struct task *t, struct sys_call *c)
{
    static const uint32_t writing[] = {0x40049409,  /* FICLONE */
                                       0x4020940d,  /* FICLONERANGE */
                                       0x40305829,  /* FS_IOC_UNRESVSP */
                                       0x4030582b,  /* FS_IOC_UNRESVSP64 */
                                       0x40305828,  /* FS_IOC_RESVSP */
                                       0x4030582a,  /* FS_IOC_RESVSP64 */
                                       0x40305839}; /* FS_IOC_ZERO_RANGE */
    for (unsigned i = 0; c->result >= 0 && i < sizeof writing / sizeof writing[0]; i++)
        if ((uint32_t)c->args[1] == writing[i])
            files_written(t, c, &sys_table[c->nr]);
}

/* The file may have another size. */
static void maybe_resized(struct task *t, const struct sys_call *c, const struct stat *st)
{
    struct file_id id = {st->st_dev, st->st_ino};
    uint16_t number = S_ISREG(st->st_mode) ? object_mapped(&id) : 0;
    if (number)
        file_changed(t, c, number, -1, (uint64_t)st->st_size);
}

void after_truncate(struct task *t, struct sys_call *c)
{
    struct stat st;
    if (!c->result && !raw2(SYS_stat, c->args[0], &st))
        maybe_resized(t, c, &st);
}

void after_open(struct task *t, struct sys_call *c)
{
    struct stat st;
    uint64_t flags = 0;
    if (c->result < 0)
        return;
    switch (c->nr) {
    case SYS_open:
        flags = c->args[1];
        break;
    case SYS_openat:
        flags = c->args[2];
        break;
    case SYS_openat2:
        guest_read(&flags, c->args[2], sizeof flags);
        break;
    case SYS_creat:
        flags = O_TRUNC;
        break;
    }
    if ((flags & O_TRUNC) && !raw2(SYS_fstat, c->result, &st))
        maybe_resized(t, c, &st);
}

/* ---- tables of one's own ---- */

bool slow_unshare(const struct sys_call *c)
{
    return hostfd_shared() && (c->args[0] & 0x400 /* CLONE_FILES */);
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

/* ---- paths that procview must see ---- */

enum { PATH_PEEK = 24 };

/* The last component of a relative path is one that /proc/<pid> has and the engine answers for. */
static bool suspicious_relative(const char *path, int length)
{
    static const char *const names[] = {"exe",   "maps",   "cmdline",      "environ", "auxv",
                                        "mem",   "smaps",  "smaps_rollup", "status",  "stat",
                                        "statm", "limits", "cpuinfo"};
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
    return hostfd_is(number_of(path + last, (uint64_t)length - (uint64_t)last + 1));
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

/* A file that could be a program, opened with flags that write to it. */
static bool may_be_program(int dirfd, uint64_t path, uint64_t flags)
{
    struct stat st;
    if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC))
        return false;
    return !raw4(SYS_newfstatat, dirfd, path, &st, 0) && S_ISREG(st.st_mode) && (st.st_mode & 0111);
}

bool slow_open(const struct sys_call *c)
{
    return suspicious_path(c->args[0]) || may_be_program(AT_FDCWD, c->args[0], c->args[1]);
}

bool slow_openat(const struct sys_call *c)
{
    return suspicious_path(c->args[1]) || may_be_program((int)c->args[0], c->args[1], c->args[2]);
}

bool slow_openat2(const struct sys_call *c)
{
    uint64_t flags = O_WRONLY;
    guest_read(&flags, c->args[2], sizeof flags);
    return suspicious_path(c->args[1]) || may_be_program((int)c->args[0], c->args[1], flags);
}

bool slow_truncate(const struct sys_call *c)
{
    return may_be_program(AT_FDCWD, c->args[0], O_WRONLY);
}

bool slow_path0(const struct sys_call *c)
{
    return suspicious_path(c->args[0]);
}

bool slow_path1(const struct sys_call *c)
{
    return suspicious_path(c->args[1]);
}
