/*
 * procview.c: see procview.h.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "engine/kernel/procview.h"
#include "engine/guest/layout.h"
#include "engine/event/session.h"
#include "engine/host/hostfd.h"
#include "engine/host/raw.h"
#include "engine/kernel/files.h"
#include "engine/kernel/procself.h"
#include "engine/kernel/running.h"
#include "engine/kernel/selfmem.h"
#include "engine/memory/space.h"

enum { PATH_ROOM = PATH_MAX + 64 };

enum view {
    VIEW_NONE,
    VIEW_EXE,
    VIEW_TEXT,
    VIEW_CMDLINE,
    VIEW_ENVIRON,
    VIEW_AUXV,
    VIEW_FD,
    VIEW_MEM,
    VIEW_HOST
};

struct seen {
    enum view view;
    int fd;            /* VIEW_FD: the number */
    procself_fn *text; /* VIEW_TEXT */
};

/* ---- which file a path names ---- */

static const char *skip_slashes(const char *p)
{
    while (p[0] == '/' || (p[0] == '.' && p[1] == '/'))
        p++;
    return p;
}

/* When p begins with the component `name`, what follows it; else NULL. */
static const char *component(const char *p, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(p, name, n) || (p[n] && p[n] != '/'))
        return NULL;
    return skip_slashes(p + n);
}

static const char *number_component(const char *p, int *number)
{
    char *end;
    if (!isdigit((unsigned char)*p))
        return NULL;
    *number = (int)strtol(p, &end, 10);
    return *end && *end != '/' ? NULL : skip_slashes(end);
}

/* What follows /proc/<this process>/ in an absolute path, or NULL. */
static const char *in_own_proc(const char *path)
{
    int pid, tid;
    const char *p = component(skip_slashes(path), "proc"), *rest, *task;
    if (!p)
        return NULL;
    if ((rest = component(p, "self")) || (rest = component(p, "thread-self")))
        ;
    else if (!(rest = number_component(p, &pid)) || (pid != getpid() && pid != raw0(SYS_gettid)))
        return NULL;
    if ((task = component(rest, "task")) && (task = number_component(task, &tid)))
        rest = task;
    return rest;
}

static struct seen classify_rest(const char *rest)
{
    static const struct {
        const char *name;
        enum view view;
        procself_fn *text;
    } names[] = {{"exe", VIEW_EXE, NULL},
                 {"cmdline", VIEW_CMDLINE, NULL},
                 {"environ", VIEW_ENVIRON, NULL},
                 {"auxv", VIEW_AUXV, NULL},
                 {"mem", VIEW_MEM, NULL},
                 {"maps", VIEW_TEXT, procself_maps},
                 {"smaps", VIEW_TEXT, procself_smaps},
                 {"smaps_rollup", VIEW_TEXT, procself_smaps_rollup},
                 {"status", VIEW_TEXT, procself_status},
                 {"stat", VIEW_TEXT, procself_stat},
                 {"statm", VIEW_TEXT, procself_statm},
                 {"limits", VIEW_TEXT, procself_limits},
                 {"numa_maps", VIEW_HOST, NULL},
                 {"pagemap", VIEW_HOST, NULL},
                 {"map_files", VIEW_HOST, NULL}};
    struct seen s = {VIEW_NONE, -1, NULL};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(rest, names[i].name)) {
            s.view = names[i].view;
            s.text = names[i].text;
        }
    const char *number = component(rest, "fd");
    if (!number)
        number = component(rest, "fdinfo");
    if (number && number_component(number, &s.fd))
        s.view = VIEW_FD;
    return s;
}

static struct seen classify(const char *path)
{
    static const char *const standard[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    struct seen s = {VIEW_NONE, -1, NULL};
    const char *rest = in_own_proc(path);
    if (rest)
        return classify_rest(rest);
    const char *file = component(skip_slashes(path), "proc");
    if (file && !strcmp(file, "cpuinfo"))
        return (struct seen){VIEW_TEXT, -1, procself_cpuinfo};
    for (int i = 0; i < 3; i++)
        if (!strcmp(path, standard[i]))
            return (struct seen){VIEW_FD, i, NULL};
    if (!strncmp(path, "/dev/fd/", 8) && number_component(path + 8, &s.fd))
        s.view = VIEW_FD;
    return s;
}

/* Makes the guest's path absolute in `to` (PATH_ROOM bytes). Returns false when it cannot matter. */
static bool absolute(char *to, int dirfd, const char *path)
{
    char link[48];
    if (path[0] == '/') {
        snprintf(to, PATH_ROOM, "%s", path);
        return true;
    }
    if (dirfd == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
    ssize_t n = raw3(SYS_readlink, link, to, PATH_MAX);
    if (n <= 0)
        return false;
    if (n == 1 && to[0] == '/')
        n = 0;
    if ((size_t)snprintf(to + n, PATH_ROOM - (size_t)n, "/%s", path) >= PATH_ROOM - (size_t)n)
        return false;
    return true;
}

static struct seen classify_at(int dirfd, const char *path)
{
    char full[PATH_ROOM];
    struct seen none = {VIEW_NONE, -1, NULL};
    return absolute(full, dirfd, path) ? classify(full) : none;
}

const char *procview_exe_path(int dirfd, const char *path)
{
    static char link[48];
    return classify_at(dirfd, path).view == VIEW_EXE && running_link(link, sizeof link) ? link : path;
}

/* ---- contents ---- */

/* Guest memory [low, high); what cannot be read ends it. */
static void print_range(FILE *f, uint64_t low, uint64_t high)
{
    char page[PAGE_SIZE];
    for (uint64_t at = low; at < high;) {
        uint64_t n = PAGE_DOWN(at) + PAGE_SIZE - at;
        if (n > high - at)
            n = high - at;
        if (guest_read(page, at, n) || fwrite(page, 1, n, f) != n)
            return;
        at += n;
    }
}

static void print_view(FILE *f, const struct seen *seen)
{
    const struct space *s = &guest_space;
    switch (seen->view) {
    case VIEW_TEXT:
        seen->text(f);
        return;
    case VIEW_CMDLINE:
        print_range(f, s->arg_start, s->arg_end);
        return;
    case VIEW_ENVIRON:
        print_range(f, s->env_start, s->env_end);
        return;
    default:
        fwrite(s->auxv, 1, s->auxv_size, f);
    }
}

/* A file in memory that holds the view's text: its descriptor or -errno. */
static int view_file(const struct seen *seen)
{
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return -ENOMEM;
    print_view(f, seen);
    if (fclose(f))
        return -ENOMEM;
    struct rlimit limit;
    hostfd_limit_raise(&limit); /* the guest's own descriptors may be used up */
    int fd = session_make_memory(text, (uint32_t)size);
    hostfd_limit_restore(&limit);
    free(text);
    return fd;
}

static bool has_text(enum view view)
{
    return view == VIEW_TEXT || view == VIEW_CMDLINE || view == VIEW_ENVIRON || view == VIEW_AUXV;
}

/* Puts a file with the view's text in place of `fd`, the kernel's own file. Returns fd or -errno. */
static int replace_by_view(int fd, const struct seen *seen, int flags)
{
    char name[40];
    int error, memory = view_file(seen);
    if (memory < 0) {
        raw1(SYS_close, fd);
        return memory;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", memory);
    struct rlimit limit;
    hostfd_limit_raise(&limit);
    int reading = (int)raw3(SYS_open, name, O_RDONLY | O_CLOEXEC, 0);
    hostfd_limit_restore(&limit);
    if (reading >= 0)
        error = (int)raw3(SYS_dup3, reading, fd, flags & O_CLOEXEC);
    else
        error = reading;
    raw1(SYS_close, memory);
    if (reading >= 0)
        raw1(SYS_close, reading);
    if (error < 0)
        raw1(SYS_close, fd);
    return error < 0 ? error : fd;
}

/* ---- the calls ---- */

/* Where a call has its path, directory and open flags. */
static int path_arg(const struct sys_call *c)
{
    return c->nr == SYS_open || c->nr == SYS_creat || c->nr == SYS_truncate || c->nr == SYS_stat ||
                   c->nr == SYS_lstat || c->nr == SYS_access || c->nr == SYS_readlink
               ? 0
               : 1;
}

static struct seen classify_call(const struct sys_call *c)
{
    char path[PATH_MAX];
    struct seen none = {VIEW_NONE, -1, NULL};
    int arg = path_arg(c);
    if (guest_string(path, sizeof path, c->args[arg]) < 0)
        return none;
    return classify_at(arg ? (int)c->args[0] : AT_FDCWD, path);
}

static int64_t plain(struct task *t, struct sys_call *c)
{
    return sys_generic(t, c, &sys_table[c->nr]);
}

/* Performs the call with the guest's program in place of /proc/self/exe. */
static int64_t on_program(struct task *t, struct sys_call *c)
{
    char link[48];
    uint64_t *path = &c->args[path_arg(c)], guest = *path;
    if (running_link(link, sizeof link))
        *path = (uint64_t)link;
    plain(t, c);
    *path = guest;
    return c->result;
}

static uint64_t open_flags(const struct sys_call *c)
{
    uint64_t flags = 0;
    if (c->nr == SYS_open)
        return c->args[1];
    if (c->nr == SYS_openat)
        return c->args[2];
    guest_read(&flags, c->args[2], 8); /* struct open_how */
    return flags;
}

/* The call, with the flags of an open, would write to a program that runs, and nothing else stands against it. */
static bool writes_to_program(const struct sys_call *c, uint64_t flags)
{
    struct stat st;
    char link[48];
    int arg = path_arg(c), dirfd = arg ? (int)c->args[0] : AT_FDCWD;
    uint64_t path = c->args[arg];
    int mode = ((flags & O_ACCMODE) == O_WRONLY ? 0 : R_OK) | W_OK;
    bool exclusive = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
    if (((flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC)) || exclusive ||
        (flags & (O_PATH | O_DIRECTORY)))
        return false;
    if (classify_call(c).view == VIEW_EXE && running_link(link, sizeof link))
        path = (uint64_t)link;
    int follow = flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
    if (raw4(SYS_newfstatat, dirfd, path, &st, follow) || !S_ISREG(st.st_mode) || !running_busy(&st))
        return false;
    return !raw4(SYS_faccessat2, dirfd, path, mode, AT_EACCESS);
}

int64_t rec_truncate(struct task *t, struct sys_call *c)
{
    return writes_to_program(c, O_WRONLY) ? (c->result = -ETXTBSY) : plain(t, c);
}

int64_t rec_creat(struct task *t, struct sys_call *c)
{
    return writes_to_program(c, O_WRONLY | O_TRUNC) ? (c->result = -ETXTBSY) : plain(t, c);
}

int64_t rec_open(struct task *t, struct sys_call *c)
{
    struct seen s = classify_call(c);
    uint64_t flags = open_flags(c);
    if (s.view == VIEW_FD && hostfd_is(s.fd))
        return c->result = -ENOENT;
    if (writes_to_program(c, flags))
        return c->result = -ETXTBSY;
    if (s.view == VIEW_EXE && !(flags & O_NOFOLLOW))
        return on_program(t, c);
    plain(t, c);
    if (c->restart || c->result < 0 || (flags & O_PATH))
        return c->result;
    if (s.view == VIEW_MEM && (flags & O_ACCMODE) != O_RDONLY)
        return c->result = selfmem_opened((int)c->result);
    if (s.view == VIEW_HOST)
        event_note("the program reads numa_maps, pagemap or map_files, which show the engine's memory too");
    if (s.view == VIEW_FD && (flags & O_ACCMODE) != O_RDONLY)
        files_same((int)c->result, s.fd);
    else if (has_text(s.view))
        c->result = replace_by_view((int)c->result, &s, (int)flags);
    return c->result;
}

int64_t rec_path(struct task *t, struct sys_call *c)
{
    struct seen s = classify_call(c);
    if (s.view == VIEW_FD && hostfd_is(s.fd))
        return c->result = -ENOENT;
    bool link = (c->nr == SYS_newfstatat && (c->args[3] & AT_SYMLINK_NOFOLLOW)) ||
                (c->nr == SYS_statx && (c->args[2] & AT_SYMLINK_NOFOLLOW)) ||
                (c->nr == SYS_faccessat2 && (c->args[3] & AT_SYMLINK_NOFOLLOW));
    return s.view == VIEW_EXE && !link ? on_program(t, c) : plain(t, c);
}

int64_t rec_link(struct task *t, struct sys_call *c)
{
    struct seen s = classify_call(c);
    if (s.view == VIEW_FD && hostfd_is(s.fd))
        return c->result = -ENOENT;
    return plain(t, c);
}

int64_t rec_readlink(struct task *t, struct sys_call *c)
{
    struct seen s = classify_call(c);
    int arg = path_arg(c);
    uint64_t buffer = c->args[arg + 1];
    int32_t size = (int32_t)c->args[arg + 2];
    if (s.view == VIEW_FD && hostfd_is(s.fd))
        return c->result = -ENOENT;
    char link[48], text[PATH_MAX];
    if (s.view != VIEW_EXE || !running_link(link, sizeof link))
        return plain(t, c);
    if (size <= 0)
        return c->result = -EINVAL;
    int64_t n = raw3(SYS_readlink, link, text, sizeof text);
    if (n <= 0)
        return c->result = n;
    if (n > size)
        n = size;
    if (!space_allows(&guest_space, buffer, (uint64_t)n, PROT_WRITE) ||
        guest_write(buffer, text, (uint64_t)n))
        return c->result = -EFAULT;
    effect_add(t, buffer, (uint64_t)n);
    return c->result = n;
}
