/*
 * files.h: what is known of the guest's descriptors: which of them lead to the stdout and stderr of `clio
 * record`, and which files written to are also mapped.
 *
 * A byte for each descriptor below FILE_TRACKED, inherited over fork; it follows dup, dup2, dup3, F_DUPFD and
 * reopening through /dev/stdout, /dev/fd/N or /proc/self/fd/N, and ends with close. Descriptors received over
 * a socket or taken with pidfd_getfd are compared with what is known. Those above FILE_TRACKED count as ordinary files.
 */
#ifndef CLIO_ENGINE_KERNEL_FILES_H
#define CLIO_ENGINE_KERNEL_FILES_H

#include "engine/kernel/table.h"

enum { FILE_TRACKED = 4096 };
enum { FILE_OUT = 1, FILE_ERR = 2, FILE_MEMORY = 16 /* /proc/self/mem, to be written: see selfmem.c */ };

extern uint8_t files_class[FILE_TRACKED];
/* What file a descriptor leads to, asked for once: neither can change while it is open. */
extern struct file_id {
    uint64_t dev, ino;
} files_id[FILE_TRACKED];

/* FILE_OUT, FILE_ERR or 0. FAST. */
unsigned files_output(int fd);
/* fd now is the same as `from` (or, with from -1, something else). FAST. */
void files_same(int fd, int from);
/*
 * After a successful call of a SYS_WRITES row: when the file written to is mapped by this space, the mapped
 * part is recorded as an effect, and its size when that changed. FAST.
 */
void files_written(struct task *t, const struct sys_call *c, const struct sys_row *row);

/* Guest code that such a call changed, until whoever may call the translator has told it; end 0: none. */
extern struct files_stale {
    uint64_t start, end;
} files_stale;

/* At the start of a recording: 1 is stdout, 2 is stderr, and so are other descriptors of the same open files.
 */
void files_begin(void);
/* A program was executed: close-on-exec descriptors are gone. Call before they are, in the process that
 * executes. */
void files_exec(void);
/* A descriptor has come from elsewhere: a socket, another process. */
void files_received(int fd);
/* after-functions of rows. FAST. */
void after_close(struct task *t, struct sys_call *c);
void after_dup(struct task *t, struct sys_call *c);
void after_dup2(struct task *t, struct sys_call *c);
/* truncate has no descriptor. */
void after_truncate(struct task *t, struct sys_call *c);
/* O_TRUNC. */
void after_open(struct task *t, struct sys_call *c);
void after_fcntl(struct task *t, struct sys_call *c);
/* A read of fewer bytes than were asked for may have written them all: O_DIRECT reads whole blocks. */
void after_read(struct task *t, struct sys_call *c);
/* FICLONE and its like write to files. */
void after_ioctl(struct task *t, struct sys_call *c);
/* Leaves hidden descriptors out of a listing of /proc/self/fd. */
void after_getdents(struct task *t, struct sys_call *c);
void after_getdents64(struct task *t, struct sys_call *c);

/* A write to FILE_MEMORY. FAST. */
bool slow_memory(const struct sys_call *c);
/* dup2, dup3: a number that is ours must be freed first. FAST. */
bool slow_dup2(const struct sys_call *c);
/* F_DUPFD from a number near ours. FAST. */
bool slow_fcntl(const struct sys_call *c);
/* poll, ppoll: a hidden descriptor is asked about. FAST. */
bool slow_poll(const struct sys_call *c);
bool slow_select(const struct sys_call *c);
/* unshare of a table of descriptors that is shared. FAST. */
bool slow_unshare(const struct sys_call *c);

sys_record_fn rec_fcntl, rec_dup2, rec_dup3, rec_close_range, rec_unshare, rec_poll, rec_ppoll, rec_select,
    rec_pselect6, rec_pidfd_getfd;

#endif
