/*
 * files.h: mapped files as the trace knows them: by the hash of their content.
 */
#ifndef CLIO_ENGINE_LOAD_FILES_H
#define CLIO_ENGINE_LOAD_FILES_H

#include "engine/guest/engine.h"
#include "engine/memory/space.h"

/*
 * Has the store capture the content that the readable regular file fd has now, unless this process (or one it
 * was forked from) already did and the file cannot have changed since. The path is what the kernel says of
 * fd, else `path`, which may be NULL. NULL with errno when the content cannot be captured: ENODEV for what is
 * not a regular file, else the store's error. A store that is gone and does not come back ends the space
 * (event_unsupported). The result is valid for the life of the process.
 */
const struct file_ref *file_capture(int fd, const char *path);

/* The file with this content and path; makes one up for replay, which never sees the original. NULL: no
 * memory. */
const struct file_ref *file_known(const uint8_t hash[32], uint64_t size, const char *path);

/* The guest can change the file behind v without touching its times: later captures do not trust those. */
void file_changes(const struct file_ref *file);

/* /proc/self/fd/N as text; the length, or 0 when it cannot be read. */
size_t file_path(int fd, char *text, size_t size);

#endif
