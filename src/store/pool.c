/*
 * pool.c: see pool.h.
 *
 * A capture goes through three names: a temporary file in the pool ("tmp-PID-N"), the pool's HASH, the
 * trace's files/HASH. Each step is one rename or link, so a store that is killed leaves at most a temporary
 * file, which the next pool_open removes once it is an hour old.
 *
 * The descriptor is the guest's own open file, and the file is watched, leased and timed by whoever likes. So
 * it is neither read (IN_ACCESS) nor sought in (the offset is shared) nor opened again (IN_OPEN, broken
 * leases) nor linked (st_nlink, st_ctime): its content comes through a private mapping, which touches the
 * access time no more than the guest's own mmap does. Exceptions are sparse files where FIEMAP does not work
 * (tmpfs), which are opened again, and clones, which the kernel reports as an access.
 */
#include "store/pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

enum {
    COPY_CHUNK = 1 << 20,
    ATTEMPTS = 3,
    RACY_NS = 2000000000,
    IDENTITIES_MAX = 32 << 20, /* bytes; a larger list is started afresh */
    TEMP_AGE = 3600,
    ID_FIELDS = 5,
    LINE_CHECKED = ID_FIELDS * 17 + 2 * POOL_HASH_SIZE, /* bytes that CHECK covers */
    LINE_SIZE = LINE_CHECKED + 1 + 16 + 1,
};
#define HOLES_MAX (1ull << 30)

struct identity {
    uint64_t field[ID_FIELDS]; /* dev, ino, size, mtime, ctime */
};

struct entry {
    struct identity id;
    uint8_t hash[POOL_HASH_SIZE];
    bool used;
    bool in_trace; /* files/HASH exists */
};

struct pool {
    int dir, files, identities;
    off_t read_to; /* bytes of identities already in the table */
    struct entry *table;
    size_t slots, used;
    unsigned serial;
    uint8_t *chunk;
    struct pool_counts counts;
};

void pool_name(char name[POOL_NAME_SIZE], const uint8_t hash[POOL_HASH_SIZE])
{
    sodium_bin2hex(name, POOL_NAME_SIZE, hash, POOL_HASH_SIZE);
}

struct pool_counts pool_counts(const struct pool *pool)
{
    return pool->counts;
}

/* ---- identities ---- */

static struct identity identity_of(const struct stat *st)
{
    return (struct identity){{(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size,
                              (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec,
                              (uint64_t)st->st_ctim.tv_sec * 1000000000u + (uint64_t)st->st_ctim.tv_nsec}};
}

static bool same(const struct identity *a, const struct identity *b)
{
    return !memcmp(a, b, sizeof *a);
}

static struct entry *slot_of(struct entry *table, size_t slots, const struct identity *id)
{
    uint64_t h = 0;
    for (int i = 0; i < ID_FIELDS; i++)
        h = (h ^ id->field[i]) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 20) & (slots - 1);
    while (table[i].used && !same(&table[i].id, id))
        i = (i + 1) & (slots - 1);
    return &table[i];
}

static int grow(struct pool *pool)
{
    size_t slots = pool->slots * 2;
    struct entry *table = calloc(slots, sizeof *table);
    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < pool->slots; i++)
        if (pool->table[i].used)
            *slot_of(table, slots, &pool->table[i].id) = pool->table[i];
    free(pool->table);
    pool->table = table;
    pool->slots = slots;
    return 0;
}

static struct entry *insert(struct pool *pool, const struct identity *id, const uint8_t hash[POOL_HASH_SIZE])
{
    if (pool->used * 2 >= pool->slots && grow(pool))
        return NULL;
    struct entry *e = slot_of(pool->table, pool->slots, id);
    if (!e->used)
        pool->used++;
    if (!e->used || memcmp(e->hash, hash, POOL_HASH_SIZE))
        *e = (struct entry){.id = *id, .used = true};
    memcpy(e->hash, hash, POOL_HASH_SIZE);
    return e;
}

static void line_check(char check[17], const char *line)
{
    uint8_t sum[crypto_generichash_BYTES_MIN];
    crypto_generichash(sum, sizeof sum, (const uint8_t *)line, LINE_CHECKED, NULL, 0);
    sodium_bin2hex(check, 17, sum, 8);
}

static void parse_line(struct pool *pool, const char *line)
{
    struct identity id;
    uint8_t hash[POOL_HASH_SIZE];
    char check[17];
    line_check(check, line);
    if (memcmp(check, line + LINE_CHECKED + 1, 16))
        return;
    for (int i = 0; i < ID_FIELDS; i++)
        id.field[i] = strtoull(line + i * 17, NULL, 16);
    if (!sodium_hex2bin(hash, sizeof hash, line + ID_FIELDS * 17, 2 * POOL_HASH_SIZE, NULL, NULL, NULL))
        insert(pool, &id, hash);
}

/* Takes in what was appended since the last time, by us or by other stores. */
static void refresh(struct pool *pool)
{
    struct stat st;
    if (fstat(pool->identities, &st) || st.st_size <= pool->read_to)
        return;
    size_t want = (size_t)(st.st_size - pool->read_to);
    char *text = malloc(want + 1);
    if (!text)
        return;
    ssize_t got = pread(pool->identities, text, want, pool->read_to);
    const char *p = text, *end = text + (got > 0 ? got : 0), *newline;
    while ((newline = memchr(p, '\n', (size_t)(end - p)))) {
        if (newline + 1 - p == LINE_SIZE)
            parse_line(pool, p);
        p = newline + 1;
    }
    pool->read_to += p - text;
    free(text);
}

static void append(struct pool *pool, const struct identity *id, const uint8_t hash[POOL_HASH_SIZE])
{
    char line[LINE_SIZE + 1], name[POOL_NAME_SIZE], check[17];
    pool_name(name, hash);
    const uint64_t *f = id->field;
    snprintf(line, sizeof line, "%016lx %016lx %016lx %016lx %016lx %s", f[0], f[1], f[2], f[3], f[4], name);
    line_check(check, line);
    snprintf(line + LINE_CHECKED, sizeof line - LINE_CHECKED, " %s\n", check);
    /* One write, so lines of several stores do not mix; a short one does not check and costs a hash next
     * time. */
    if (write(pool->identities, line, LINE_SIZE) != LINE_SIZE)
        LOG(file, "pool/identities: %s", strerror(errno));
}

/*
 * A lease that is taken and given back on the guest's own open file leaves nothing behind only when there was
 * nothing: the kernel forgets owner and signal with it, and one of the guest's would be replaced.
 */
static bool may_lease(int fd)
{
    struct f_owner_ex owner = {0};
    return fcntl(fd, F_GETLEASE) == F_UNLCK && fcntl(fd, F_GETOWN_EX, &owner) == 0 && owner.pid == 0 &&
           fcntl(fd, F_GETSIG) == 0 && !(fcntl(fd, F_GETFL) & O_ASYNC);
}

/* True when somebody has the file open for writing, or may have. */
static bool has_writers(int fd)
{
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY || !may_lease(fd))
        return true;
    if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
        fcntl(fd, F_SETLEASE, F_UNLCK);
        return false;
    }
    return errno == EAGAIN;
}

static bool trusted(int fd, const struct identity *id)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return id->field[4] + RACY_NS < ns && !has_writers(fd);
}

/* ---- extents ---- */

/* How the extents of a file are found. The offset of the guest's open file stays where it is. */
struct extents {
    int fd;     /* the file, asked with FIEMAP; -1: not this way */
    int seeker; /* an open file of our own to seek in; -1: not this way. Neither: one extent */
};

static bool in_memory(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 &&
           (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC);
}

/* An open file of our own, or -1. Watchers see it, so it is made for sparse files only. */
static int open_again(int fd)
{
    char proc[32];
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    int again = open(proc, flags | O_NOATIME);
    return again < 0 && errno == EPERM ? open(proc, flags) : again;
}

static bool fiemap_works(int fd)
{
    struct fiemap none = {.fm_length = 1};
    return ioctl(fd, FS_IOC_FIEMAP, &none) == 0;
}

static struct extents extents_of(int fd, const struct stat *st)
{
    struct extents x = {-1, -1};
    if ((uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size)
        return x;
    if (!in_memory(fd) && fiemap_works(fd))
        x.fd = fd;
    else
        x.seeker = open_again(fd);
    return x;
}

static void extents_done(const struct extents *x)
{
    if (x->seeker >= 0)
        close(x->seeker);
}

/* The next extent of data at or after `at`; *start = size when there is none. */
static void next_sought(int fd, off_t at, off_t size, off_t *start, off_t *end)
{
    *start = lseek(fd, at, SEEK_DATA);
    if (*start < 0) {
        bool none = errno == ENXIO;
        *start = none ? size : at;
        *end = size;
        return;
    }
    *end = lseek(fd, *start, SEEK_HOLE);
    if (*start > size)
        *start = size;
    if (*end <= *start || *end > size)
        *end = size;
}

/* An extent that is allocated and not written counts as data: the page cache may hold some for it. */
static void next_mapped(int fd, off_t at, off_t size, off_t *start, off_t *end)
{
    struct {
        struct fiemap head;
        struct fiemap_extent extent;
    } map = {.head = {.fm_start = (uint64_t)at, .fm_length = (uint64_t)(size - at), .fm_extent_count = 1}};
    *start = at;
    *end = size;
    if (ioctl(fd, FS_IOC_FIEMAP, &map))
        return;
    if (!map.head.fm_mapped_extents) {
        *start = size;
        return;
    }
    off_t from = (off_t)map.extent.fe_logical, to = from + (off_t)map.extent.fe_length;
    if (from > at)
        *start = from < size ? from : size;
    if (to > *start && to < size)
        *end = to;
}

static void next_extent(const struct extents *x, off_t at, off_t size, off_t *start, off_t *end)
{
    *start = at;
    *end = size;
    if (x->fd >= 0)
        next_mapped(x->fd, at, size, start, end);
    else if (x->seeker >= 0)
        next_sought(x->seeker, at, size, start, end);
}

static bool mostly_holes(const struct extents *x, const struct stat *st)
{
    off_t data = 0, start, end;
    if ((uint64_t)st->st_size <= HOLES_MAX)
        return false;
    for (off_t at = 0; at < st->st_size; at = end) {
        next_extent(x, at, st->st_size, &start, &end);
        data += end - start;
    }
    return (uint64_t)(st->st_size - data) > HOLES_MAX;
}

/* ---- copying ---- */

struct copy {
    struct pool *pool;
    int from, to; /* to -1: hash only */
    bool quiet;   /* `from` is the guest's: it is read through a mapping, which no watcher sees */
    crypto_generichash_state state;
    bool by_extent; /* holes are left out of the hash */
    off_t done;     /* hashed and copied so far */
};

static int write_all(int fd, const uint8_t *data, size_t n, off_t at)
{
    while (n) {
        ssize_t w = pwrite(fd, data, n, at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return w ? -errno : -ENOSPC;
        data += w;
        n -= (size_t)w;
        at += w;
    }
    return 0;
}

static void hash_zeros(struct copy *c, off_t n)
{
    memset(c->pool->chunk, 0, COPY_CHUNK);
    for (off_t step; n > 0; n -= step) {
        step = n < COPY_CHUNK ? n : COPY_CHUNK;
        crypto_generichash_update(&c->state, c->pool->chunk, (unsigned long long)step);
    }
}

/* Bytes of the file at `at` into the chunk and into `to`: how many, 0 at its end, or -errno. */
static ssize_t copy_read(struct copy *c, size_t want, off_t at)
{
    ssize_t n;
    do
        n = pread(c->from, c->pool->chunk, want, at);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n ? -errno : 0;
    int error = c->to < 0 ? 0 : write_all(c->to, c->pool->chunk, (size_t)n, at);
    return error ? error : n;
}

/*
 * The same without reading from `from`: a mapping of it is written to `to`, which fails instead of killing us
 * where the file has become shorter, and read back from there.
 */
static ssize_t copy_quietly(struct copy *c, size_t want, off_t at)
{
    off_t low = at & ~(off_t)4095;
    size_t lead = (size_t)(at - low);
    uint8_t *map = mmap(NULL, lead + want, PROT_READ, MAP_PRIVATE | MAP_POPULATE, c->from, low);
    if (map == MAP_FAILED)
        return copy_read(c, want, at);
    size_t done = 0;
    ssize_t n = 1;
    while (done < want && n > 0) {
        n = pwrite(c->to, map + lead + done, want - done, at + (off_t)done);
        if (n > 0)
            done += (size_t)n;
        else if (n < 0 && errno == EINTR)
            n = 1;
    }
    int error = n == 0 ? -ENOSPC : n < 0 && errno != EFAULT ? -errno : 0;
    munmap(map, lead + want);
    if (error || !done)
        return error;
    n = pread(c->to, c->pool->chunk, done, at);
    return n == (ssize_t)done ? n : n < 0 ? -errno : -EIO;
}

/* Copies [start, end), or up to the end of a file that has become shorter. */
static int copy_extent(struct copy *c, off_t start, off_t end)
{
    if (c->by_extent) {
        uint64_t where[2] = {(uint64_t)start, (uint64_t)(end - start)};
        crypto_generichash_update(&c->state, (uint8_t *)where, sizeof where);
    } else {
        hash_zeros(c, start - c->done);
    }
    while (start < end) {
        size_t want = end - start < COPY_CHUNK ? (size_t)(end - start) : COPY_CHUNK;
        ssize_t n = c->quiet ? copy_quietly(c, want, start) : copy_read(c, want, start);
        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        crypto_generichash_update(&c->state, c->pool->chunk, (unsigned long long)n);
        c->pool->counts.bytes_copied += c->to < 0 ? 0 : (uint64_t)n;
        start += n;
    }
    c->done = start;
    return 0;
}

static int copy_extents(struct copy *c, const struct extents *x, const struct stat *st)
{
    off_t start, end;
    c->by_extent = mostly_holes(x, st);
    for (off_t at = 0; at < st->st_size; at = end) {
        next_extent(x, at, st->st_size, &start, &end);
        int error = start < end ? copy_extent(c, start, end) : 0;
        if (error)
            return error;
    }
    return 0;
}

/*
 * Hashes the file behind `from` into hash and copies it into the empty file `to` (or nowhere when to is -1).
 * `guests`: it is the guest's, who must not see that. In memory, a hole that is read through a mapping
 * becomes a page; so a file of which the holes are not known is read.
 */
static int copy_file(struct pool *pool, int from, bool guests, int to, const struct stat *st,
                     uint8_t hash[POOL_HASH_SIZE])
{
    struct extents x = extents_of(from, st);
    bool dense = (uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size;
    struct copy c = {.pool = pool, .from = from, .to = to};
    c.quiet = guests && to >= 0 && (dense || x.seeker >= 0 || !in_memory(from));
    crypto_generichash_init(&c.state, NULL, 0, POOL_HASH_SIZE);
    int error = copy_extents(&c, &x, st);
    extents_done(&x);
    if (error)
        return error;
    if (c.by_extent)
        crypto_generichash_update(&c.state, (const uint8_t *)&st->st_size, sizeof st->st_size);
    else
        hash_zeros(&c, st->st_size - c.done);
    crypto_generichash_final(&c.state, hash, POOL_HASH_SIZE);
    if (to >= 0 && ftruncate(to, st->st_size))
        return -errno;
    return 0;
}

/* ---- capturing ---- */

struct temp {
    char name[48];
    int fd;
};

static int temp_open(struct pool *pool, struct temp *t)
{
    snprintf(t->name, sizeof t->name, "tmp-%d-%u", (int)getpid(), pool->serial++);
    unlinkat(pool->dir, t->name, 0);
    t->fd = openat(pool->dir, t->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return t->fd < 0 ? -errno : 0;
}

static void temp_drop(struct pool *pool, struct temp *t)
{
    unlinkat(pool->dir, t->name, 0);
    if (t->fd >= 0)
        close(t->fd);
}

static bool full(int error)
{
    return error == -ENOSPC || error == -EDQUOT;
}

/* Fills a temporary file with the content of fd by the cheapest way there is; hash is the content's. */
static int capture_once(struct pool *pool, int fd, const struct stat *st, struct temp *t, uint8_t hash[32])
{
    int error = temp_open(pool, t);
    if (error)
        return error;
    struct stat clone;
    if (ioctl(t->fd, FICLONE, fd) == 0 && fstat(t->fd, &clone) == 0) {
        error = copy_file(pool, t->fd, false, -1, &clone, hash); /* a clone cannot change any more */
        pool->counts.reflinked += !error;
    } else {
        error = copy_file(pool, fd, true, t->fd, st, hash);
        pool->counts.copied += !error;
    }
    if (!error && fchmod(t->fd, 0400))
        error = -errno;
    if (error)
        temp_drop(pool, t);
    return error;
}

static bool is_complete(int dir, const char *name, uint64_t size)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == size;
}

/* Gives the temporary file its name in the pool, unless the content is there already. */
static int temp_keep(struct pool *pool, struct temp *t, const uint8_t hash[32], uint64_t size)
{
    char name[POOL_NAME_SIZE];
    pool_name(name, hash);
    int error = 0;
    if (is_complete(pool->dir, name, size) || renameat(pool->dir, t->name, pool->dir, name) == 0)
        errno = 0;
    else
        error = -errno;
    temp_drop(pool, t);
    return error;
}

/* Puts pool/HASH into the trace: the same file where possible, else a clone or a copy of it. */
static int into_trace(struct pool *pool, const uint8_t hash[32], uint64_t size)
{
    char name[POOL_NAME_SIZE], temp[POOL_NAME_SIZE + 8];
    pool_name(name, hash);
    if (is_complete(pool->files, name, size))
        return 0;
    if (!is_complete(pool->dir, name, size))
        return -ENOENT;
    unlinkat(pool->files, name, 0);
    if (linkat(pool->dir, name, pool->files, name, 0) == 0)
        return 0;
    snprintf(temp, sizeof temp, ".tmp-%s", name);
    unlinkat(pool->files, temp, 0);
    int from = openat(pool->dir, name, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return -errno;
    int to = openat(pool->files, temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error = to < 0 ? -errno : 0;
    uint8_t again[POOL_HASH_SIZE];
    struct stat st;
    if (!error && fstat(from, &st))
        error = -errno;
    if (!error && ioctl(to, FICLONE, from))
        error = copy_file(pool, from, false, to, &st, again);
    if (!error && (fchmod(to, 0400) || renameat(pool->files, temp, pool->files, name)))
        error = -errno;
    if (error)
        unlinkat(pool->files, temp, 0);
    if (to >= 0)
        close(to);
    close(from);
    return error;
}

/* The answer from memory or from pool/identities: 0, or -ENOENT when the file must be read. */
static int remembered(struct pool *pool, int fd, const struct identity *id, struct pool_file *out)
{
    struct entry *e = slot_of(pool->table, pool->slots, id);
    if (!e->used) {
        refresh(pool);
        e = slot_of(pool->table, pool->slots, id);
    }
    if (!e->used || has_writers(fd))
        return -ENOENT;
    out->size = id->field[2];
    memcpy(out->hash, e->hash, sizeof out->hash);
    int error = e->in_trace ? 0 : into_trace(pool, e->hash, out->size);
    e->in_trace = !error;
    return error;
}

static int capture(struct pool *pool, int fd, bool unstable, struct pool_file *out)
{
    struct stat before, after;
    struct temp t;
    int error;
    for (int i = 0;; i++) {
        if (fstat(fd, &before))
            return -errno;
        if ((error = capture_once(pool, fd, &before, &t, out->hash)))
            return error;
        if (fstat(fd, &after)) {
            error = -errno;
            temp_drop(pool, &t);
            return error;
        }
        struct identity a = identity_of(&before), b = identity_of(&after);
        out->changed = !same(&a, &b);
        if (!out->changed || i + 1 == ATTEMPTS)
            break;
        temp_drop(pool, &t);
    }
    out->size = (uint64_t)before.st_size;
    pool->counts.hashed++;
    struct identity id = identity_of(&after);
    bool trust = !unstable && !out->changed && trusted(fd, &id);
    if ((error = temp_keep(pool, &t, out->hash, out->size)))
        return error;
    /* Remembered even if the trace has no room for it yet: the next attempt need not read the file again. */
    struct entry *e = trust ? insert(pool, &id, out->hash) : NULL;
    if (trust)
        append(pool, &id, out->hash);
    error = into_trace(pool, out->hash, out->size);
    if (e && !error)
        e->in_trace = true;
    return error;
}

int pool_capture(struct pool *pool, int fd, bool unstable, struct pool_file *out)
{
    struct stat st;
    *out = (struct pool_file){0};
    pool->counts.asked++;
    if (fstat(fd, &st))
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ENODEV;
    int mine = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY ? open_again(fd) : -1;
    int use = mine >= 0 ? mine : fd;
    struct identity id = identity_of(&st);
    int error = unstable ? -ENOENT : remembered(pool, use, &id, out);
    if (!error)
        pool->counts.remembered++;
    else if (!full(error))
        error = capture(pool, use, unstable, out);
    if (mine >= 0)
        close(mine);
    return error;
}

/* ---- opening ---- */

static void remove_old_temps(int pool_dir)
{
    int fd = openat(pool_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    struct stat st;
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, "tmp-", 4) && fstatat(pool_dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_ctime + TEMP_AGE < time(NULL))
            unlinkat(pool_dir, e->d_name, 0);
    closedir(d);
}

static int open_identities(int pool_dir)
{
    struct stat st;
    if (fstatat(pool_dir, "identities", &st, 0) == 0 && st.st_size > IDENTITIES_MAX)
        unlinkat(pool_dir, "identities", 0);
    int fd = openat(pool_dir, "identities", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st))
        return fd;
    /* A line that a killed store left unfinished must not swallow the next one. */
    char last = '\n';
    if (st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1 && last != '\n' && write(fd, "\n", 1) != 1)
        LOG(file, "pool/identities: %s", strerror(errno));
    return fd;
}

int pool_open(struct pool **out, int pool_dir, int files_dir)
{
    if (sodium_init() < 0)
        return -ENOSYS;
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return -ENOMEM;
    *pool = (struct pool){.dir = pool_dir, .files = files_dir, .identities = -1, .slots = 4096};
    pool->table = calloc(pool->slots, sizeof *pool->table);
    pool->chunk = malloc(COPY_CHUNK);
    int error = pool->table && pool->chunk ? 0 : -ENOMEM;
    if (!error && (pool->identities = open_identities(pool_dir)) < 0)
        error = -errno;
    if (error) {
        pool_close(pool);
        return error;
    }
    remove_old_temps(pool_dir);
    *out = pool;
    return 0;
}

void pool_close(struct pool *pool)
{
    if (pool->identities >= 0)
        close(pool->identities);
    free(pool->table);
    free(pool->chunk);
    free(pool);
}
