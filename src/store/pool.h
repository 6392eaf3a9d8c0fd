/*
 * pool.h: the content-addressed pool of mapped files, shared by all traces of one user.
 *
 *   HOME/pool/HASH         a file's content; HASH is 64 hex digits of BLAKE2b-256; never changed once it has
 *                          its name
 *   HOME/pool/identities   which file on this machine had which content, one line each, append only:
 *
 *       DEV INO SIZE MTIME CTIME HASH CHECK\n
 *
 *     in hexadecimal of fixed width (16 digits each, HASH 64; times in nanoseconds; CHECK is BLAKE2b of the
 * line before it, cut to 8 bytes). A line that does not check is ignored: two stores may append at the same
 * time, and either may be killed.
 *
 * HOME is the trace home; where there is none that can be written, the trace's own directory.
 *
 * A file is recognised by its identity only when nothing could have changed it without changing its ctime:
 * its ctime was older than 2 seconds at capture, and nobody had it open for writing (a shared writable
 * mapping changes a dirty page again without touching the ctime). Whoever owns a file can be asked that
 * through a lease; of files of other owners only the age is known.
 *
 * A sparse file is copied extent by extent. Holes count as zeros in the name, unless they exceed 1 GiB: then
 * the name is computed over (offset, length, bytes) of the extents and the size, so that a huge empty file
 * costs nothing.
 *
 * Used by the store's one thread only.
 */
#ifndef CLIO_STORE_POOL_H
#define CLIO_STORE_POOL_H

#include <stdbool.h>
#include <stdint.h>

enum { POOL_HASH_SIZE = 32, POOL_NAME_SIZE = 2 * POOL_HASH_SIZE + 1 };

struct pool;

struct pool_file {
    uint8_t hash[POOL_HASH_SIZE];
    uint64_t size; /* bytes captured */
    bool changed;  /* it was written to during each of several attempts; the last copy is kept */
};

struct pool_counts { /* for the log and for tests */
    uint64_t asked, remembered, hashed, reflinked, copied, bytes_copied;
};

/* pool_dir and files_dir are directory descriptors, kept by the caller while the pool is open. Returns 0 or
 * -errno. */
int pool_open(struct pool **pool, int pool_dir, int files_dir);
void pool_close(struct pool *pool);

/*
 * Captures the regular file behind fd and gives it its name in the trace's files directory. With `unstable`
 * the asker knows that the file's times prove nothing: it is read again. Returns 0 or -errno; -ENOSPC and
 * -EDQUOT leave nothing behind, so the call can be repeated. The file that fd is open to is left as it
 * was: see pool.c.
 */
int pool_capture(struct pool *pool, int fd, bool unstable, struct pool_file *out);

struct pool_counts pool_counts(const struct pool *pool);
void pool_name(char name[POOL_NAME_SIZE], const uint8_t hash[POOL_HASH_SIZE]);

#endif
