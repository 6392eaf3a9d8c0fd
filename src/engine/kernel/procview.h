/*
 * procview.h: what the guest sees of itself under /proc.
 *
 * /proc/self/exe is the guest's program; cmdline, environ and auxv, and the texts of procself.h (maps, status, stat and
 * their like), are made from what the engine knows, at the moment they are opened; and hidden descriptors do not exist in fd and fdinfo. The forms /proc/<own pid>/, /proc/thread-self/ and
 * /proc/self/task/<tid>/ and relative paths are understood too. Everything else is the kernel's. The guest is
 * not hidden from others: /proc/<pid> of another recorded process shows the engine.
 */
#ifndef CLIO_ENGINE_KERNEL_PROCVIEW_H
#define CLIO_ENGINE_KERNEL_PROCVIEW_H

#include "engine/kernel/table.h"

/* The path at argument 0 or 1 needs a look: it may lie in /proc, or be another name of an open descriptor.
 * FAST. */
bool slow_path0(const struct sys_call *c);
bool slow_path1(const struct sys_call *c);

/* The same for those that may write to the file: a program may run that is not to be written to. FAST. */
bool slow_open(const struct sys_call *c);
bool slow_openat(const struct sys_call *c);
bool slow_openat2(const struct sys_call *c);
bool slow_truncate(const struct sys_call *c);

/* open, openat, openat2; truncate, creat; calls that follow the path; lstat; readlink, readlinkat */
sys_record_fn rec_open, rec_truncate, rec_creat, rec_path, rec_link, rec_readlink;

/* The path to execute for `path` (seen from dirfd): the guest's program when it names /proc/self/exe, else
 * path. */
const char *procview_exe_path(int dirfd, const char *path);

#endif
