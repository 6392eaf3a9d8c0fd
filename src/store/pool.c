/*
 * pool.c: see pool.h.
 *
 * A capture goes through three names: a temporary file in the pool ("tmp-PID-N"), the pool's HASH, the
 * trace's files/HASH. Each step is one rename or link, so a store that is killed leaves at most a temporary
 * file, which the next pool_open removes once it is an hour old.
 */
#include "store/pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
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

/* True when somebody has the file open for writing, as far as we may know. */
static bool has_writers(int fd)
{
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

/* ---- copying ---- */

struct copy {
    struct pool *pool;
    int from, to; /* to -1: hash only */
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
        ssize_t n = pread(c->from, c->pool->chunk, want, start);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        crypto_generichash_update(&c->state, c->pool->chunk, (unsigned long long)n);
        int error = c->to < 0 ? 0 : write_all(c->to, c->pool->chunk, (size_t)n, start);
        if (error)
            return error;
        c->pool->counts.bytes_copied += c->to < 0 ? 0 : (uint64_t)n;
        start += n;
    }
    c->done = start;
    return 0;
}

/* The next extent of data at or after `at`; *start = size when there is none. */
static void next_extent(int fd, off_t at, off_t size, off_t *start, off_t *end)
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

static bool mostly_holes(int fd, const struct stat *st)
{
    off_t data = 0, start, end;
    if ((uint64_t)st->st_size <= HOLES_MAX)
        return false;
    for (off_t at = 0; at < st->st_size; at = end) {
        next_extent(fd, at, st->st_size, &start, &end);
        data += end - start;
    }
    return (uint64_t)(st->st_size - data) > HOLES_MAX;
}

/* Hashes the file behind `from` into hash and copies it into the empty file `to` (or nowhere when to is -1).
 */
static int copy_file(struct pool *pool, int from, int to, const struct stat *st, uint8_t hash[POOL_HASH_SIZE])
{
    struct copy c = {.pool = pool, .from = from, .to = to, .by_extent = mostly_holes(from, st)};
    off_t start, end;
    crypto_generichash_init(&c.state, NULL, 0, POOL_HASH_SIZE);
    for (off_t at = 0; at < st->st_size; at = end) {
        next_extent(from, at, st->st_size, &start, &end);
        int error = start < end ? copy_extent(&c, start, end) : 0;
        if (error)
            return error;
    }
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

/* True when nobody but root could change the file, and we are not root. */
static bool beyond_reach(const struct stat *st)
{
    return geteuid() != 0 && st->st_uid == 0 && !(st->st_mode & 022) && !(st->st_mode & S_ISUID);
}

static int hardlink_into(struct pool *pool, int fd, struct temp *t)
{
    char proc[32];
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    snprintf(t->name, sizeof t->name, "tmp-%d-%u", (int)getpid(), pool->serial++);
    t->fd = -1;
    return linkat(AT_FDCWD, proc, pool->dir, t->name, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

/* Fills a temporary file with the content of fd by the cheapest way there is; hash is the content's. */
static int capture_once(struct pool *pool, int fd, const struct stat *st, struct temp *t, uint8_t hash[32])
{
    if (beyond_reach(st) && hardlink_into(pool, fd, t) == 0) {
        int error = copy_file(pool, fd, -1, st, hash);
        if (error)
            temp_drop(pool, t);
        else
            pool->counts.hardlinked++;
        return error;
    }
    int error = temp_open(pool, t);
    if (error)
        return error;
    struct stat clone;
    if (ioctl(t->fd, FICLONE, fd) == 0 && fstat(t->fd, &clone) == 0) {
        error = copy_file(pool, t->fd, -1, &clone, hash); /* a clone cannot change any more */
        pool->counts.reflinked += !error;
    } else {
        error = copy_file(pool, fd, t->fd, st, hash);
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
        error = copy_file(pool, from, to, &st, again);
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
        /* A hard link of our own changes the ctime and nothing else. */
        out->changed = t.fd < 0 ? memcmp(a.field, b.field, 4 * sizeof a.field[0]) != 0 : !same(&a, &b);
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
    /* Descriptors for writing only, and the lease that has_writers asks for, need one for reading. */
    char proc[32];
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    int mine = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY ? -1 : open(proc, O_RDONLY | O_CLOEXEC);
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
