/*
 * program.c: see program.h: scripts, permissions and formats, in the order and with the errors of the
 * kernel's execve.
 */
#include "engine/load/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/privileged.h"
#include "engine/cpu/registers.h"
#include "engine/host/raw.h"
#include "engine/load/stack.h"
#include "engine/memory/capture.h"

#ifndef AT_EXECVE_CHECK
#define AT_EXECVE_CHECK 0x10000
#endif

enum { SCRIPT_HEAD = 256 };

/* ---- may this file be executed? ---- */

static bool mount_has(int fd, unsigned long flag)
{
    struct statvfs fs;
    return !fstatvfs(fd, &fs) && (fs.f_flag & flag);
}

/* For kernels that cannot be asked. */
static int check_permission(int fd)
{
    if (mount_has(fd, ST_NOEXEC))
        return -EACCES;
    int64_t r = raw4(SYS_faccessat2, fd, "", X_OK, AT_EACCESS | AT_EMPTY_PATH);
    if (r != -ENOSYS && r != -EINVAL)
        return (int)r;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return faccessat(AT_FDCWD, link, X_OK, AT_EACCESS) ? -errno : 0;
}

/* Kernels from 6.14 on answer exactly, down to ETXTBSY and security modules, without executing. */
static int check_executable(int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EACCES;
    char *none[] = {"", NULL};
    int64_t r = raw5(SYS_execveat, fd, "", none, none + 1, AT_EMPTY_PATH | AT_EXECVE_CHECK);
    return r == -EINVAL || r == -ENOSYS ? check_permission(fd) : (int)r;
}

/*
 * Opens what path names for reading if that is allowed; *fd is -1 where only execution is. Errors are those
 * of execve. `flags` as for program_check.
 */
static int open_executable(int dirfd, const char *path, int flags, int *fd)
{
    int place, error;
    *fd = -1;
    if (!*path && (flags & AT_EMPTY_PATH) && dirfd != AT_FDCWD) {
        place = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
    } else {
        int nofollow = flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0;
        place = openat(dirfd, path, O_PATH | O_CLOEXEC | nofollow);
    }
    if (place < 0)
        return -errno;
    struct stat st;
    if (!fstat(place, &st) && S_ISLNK(st.st_mode))
        error = -ELOOP;
    else
        error = check_executable(place);
    if (!error) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", place);
        *fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (*fd < 0 && errno == ENOENT && *path)
            *fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (*fd < 0 && errno != EACCES && errno != EPERM)
            error = -errno;
    }
    close(place);
    return error;
}

/* ---- programs that only the kernel can run ---- */

/* The kernel knows formats that we do not when someone registered them. */
static bool kernel_has_more_formats(void)
{
    DIR *dir = opendir("/proc/sys/fs/binfmt_misc");
    int entries = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        entries += e->d_name[0] != '.' && strcmp(e->d_name, "register") && strcmp(e->d_name, "status");
    if (dir)
        closedir(dir);
    return entries > 0;
}

/* A file that is neither a script nor an ELF file for us: 0 with `why`, or -ENOEXEC. */
static int classify_foreign(struct program *p, const uint8_t *head)
{
    const Elf32_Ehdr *h = (const Elf32_Ehdr *)head;
    bool elf = !memcmp(head, ELFMAG, SELFMAG);
    if (elf && h->e_ident[EI_CLASS] == ELFCLASS32 &&
        (h->e_machine == EM_386 || h->e_machine == EM_IAMCU || h->e_machine == EM_X86_64))
        p->why = "it is a 32-bit program";
    else if ((!elf || h->e_machine != EM_X86_64) && kernel_has_more_formats())
        p->why = "it is of a foreign format";
    else
        return -ENOEXEC;
    p->kind = PROGRAM_UNRECORDED;
    return 0;
}

/* ---- scripts ---- */

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static char *skip_blanks(char *at, char *end)
{
    while (at < end && blank(*at))
        at++;
    return at < end ? at : NULL;
}

static char *find_terminator(char *at, char *end)
{
    while (at < end && *at && !blank(*at))
        at++;
    return at < end ? at : NULL;
}

/*
 * Parses "#!" NAME [ARGUMENT] of a zero-filled head. The argument is one, whatever blanks it holds; a name
 * that fills the head might be cut and is refused. *name may be empty, *argument NULL. 0 or -ENOEXEC.
 */
static int parse_script(char head[SCRIPT_HEAD], char **name, char **argument)
{
    char *end = memchr(head, '\n', SCRIPT_HEAD);
    if (!end) {
        end = head + SCRIPT_HEAD - 1;
        char *start = skip_blanks(head + 2, end);
        if (!start || !find_terminator(start, end))
            return -ENOEXEC;
    }
    while (end > head + 2 && blank(end[-1]))
        end--;
    *end = 0;
    *name = skip_blanks(head + 2, end);
    if (!*name)
        return -ENOEXEC;
    char *gap = find_terminator(*name, end);
    *argument = NULL;
    if (gap && *gap) {
        *argument = skip_blanks(gap, end);
        *gap = 0;
    }
    return 0;
}

/* Puts the interpreter and its argument in front of argv; `script` is what the interpreter is to read. */
static int push_script(struct program *p, const char *name, const char *argument, const char *script)
{
    char *front[3] = {strdup(name), argument ? strdup(argument) : NULL, NULL};
    uint32_t n = argument ? 2 : 1;
    if (p->nprefix == 0) /* else the script is the former interpreter, which is in front already */
        front[n++] = strdup(script);
    memmove(&p->prefix[n], p->prefix, p->nprefix * sizeof *p->prefix);
    memcpy(p->prefix, front, n * sizeof *p->prefix);
    p->nprefix += n;
    for (uint32_t i = 0; i < p->nprefix; i++)
        if (!p->prefix[i])
            return -ENOMEM;
    return 0;
}

/* ---- resolving ---- */

/* Opens and checks PT_INTERP. 0, or the kernel's errno. */
static int find_interpreter(struct program *p)
{
    const Elf64_Phdr *interp = NULL;
    for (int i = 0; i < p->image.header.e_phnum && !interp; i++)
        if (p->image.programs[i].p_type == PT_INTERP)
            interp = &p->image.programs[i];
    if (!interp)
        return 0;
    char name[PATH_MAX];
    if (interp->p_filesz > PATH_MAX || interp->p_filesz < 2 || interp->p_offset > INT64_MAX)
        return -ENOEXEC;
    ssize_t n = pread(p->fd, name, interp->p_filesz, (off_t)interp->p_offset);
    if (n != (ssize_t)interp->p_filesz)
        return -EIO;
    if (name[n - 1])
        return -ENOEXEC;
    int error = open_executable(AT_FDCWD, name, 0, &p->interpreter_fd);
    if (error)
        return error;
    if (p->interpreter_fd < 0) {
        p->kind = PROGRAM_UNRECORDED;
        p->why = "its ELF interpreter may not be read";
        return 0;
    }
    error = elf_read(p->interpreter_fd, &p->interpreter);
    return error == -ENOEXEC ? -ELIBBAD : error;
}

static void read_stack_flags(struct program *p)
{
    for (int i = 0; i < p->image.header.e_phnum; i++)
        if (p->image.programs[i].p_type == PT_GNU_STACK)
            p->executable_stack = p->image.programs[i].p_flags & PF_X;
}

static int resolve_elf(struct program *p, const uint8_t *head)
{
    int error = elf_read(p->fd, &p->image);
    if (error == -ENOEXEC)
        return classify_foreign(p, head);
    if (error)
        return error;
    p->why = why_privileged(p->fd);
    p->kind = p->why ? PROGRAM_UNRECORDED : PROGRAM_RECORDABLE;
    error = find_interpreter(p);
    if (error)
        return error;
    read_stack_flags(p);
    char path[PATH_MAX];
    p->path = strdup(file_path(p->fd, path, sizeof path) ? path : p->filename);
    return p->path ? 0 : -ENOMEM;
}

/* Follows scripts from the file in p->fd, named `name`, to the ELF file. */
static int resolve(struct program *p, const char *name, bool name_vanishes)
{
    char script[SCRIPT_HEAD];
    snprintf(script, sizeof script, "%s", name);
    const char *current = name;
    for (int depth = 0;; depth++) {
        if (depth > PROGRAM_SCRIPTS_MAX)
            return -ELOOP;
        if (p->fd < 0) {
            p->kind = PROGRAM_UNRECORDED;
            p->why = "it may be executed but not read";
            return 0;
        }
        char head[SCRIPT_HEAD + 1] = {0};
        ssize_t n = pread(p->fd, head, SCRIPT_HEAD, 0);
        if (n < 0)
            return -errno;
        if (head[0] != '#' || head[1] != '!')
            return resolve_elf(p, (const uint8_t *)head);
        char *interpreter, *argument;
        int error = parse_script(head, &interpreter, &argument);
        if (error)
            return error;
        if (name_vanishes && depth == 0)
            return -ENOENT;
        if (!*interpreter)
            return -EACCES; /* the kernel opens the working directory */
        error = push_script(p, interpreter, argument, current);
        if (error)
            return error;
        close(p->fd);
        error = open_executable(AT_FDCWD, interpreter, 0, &p->fd);
        if (error)
            return error;
        snprintf(script, sizeof script, "%s", interpreter);
        current = script;
    }
}

/* What execveat calls the file: the path itself, or one through the descriptor. */
static char *execveat_name(int dirfd, const char *path)
{
    char *name = NULL;
    if (dirfd == AT_FDCWD || *path == '/')
        return strdup(path);
    if (asprintf(&name, *path ? "/dev/fd/%d/%s" : "/dev/fd/%d", dirfd, path) < 0)
        return NULL;
    return name;
}

int program_check(struct program *p, int dirfd, const char *path, int flags, char **argv, char **envp)
{
    *p = (struct program){.fd = -1, .interpreter_fd = -1};
    if (flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
        return -EINVAL;
    if (!*path && !(flags & AT_EMPTY_PATH))
        return -ENOENT;
    int error = open_executable(dirfd, path, flags, &p->fd);
    if (error)
        return error;
    p->filename = execveat_name(dirfd, path);
    bool through_fd = dirfd != AT_FDCWD && *path != '/';
    bool vanishes = through_fd && (fcntl(dirfd, F_GETFD) & FD_CLOEXEC);
    error = p->filename ? stack_check_size(p, argv, envp) : -ENOMEM;
    if (!error)
        error = resolve(p, p->filename, vanishes);
    if (!error)
        error = stack_check_size(p, argv, envp);
    if (error)
        program_free(p);
    else
        LOG(load, "%s is %s%s%s", p->filename, p->path ? p->path : "unreadable",
            p->why ? ", not recorded: " : "", p->why ? p->why : "");
    return error;
}

void program_free(struct program *p)
{
    if (p->fd >= 0)
        close(p->fd);
    if (p->interpreter_fd >= 0)
        close(p->interpreter_fd);
    elf_free(&p->image);
    elf_free(&p->interpreter);
    for (uint32_t i = 0; i < p->nprefix; i++)
        free(p->prefix[i]);
    free(p->filename);
    free(p->path);
    *p = (struct program){.fd = -1, .interpreter_fd = -1};
}

/* ---- loading ---- */

static int load_image(struct space *s, const struct elf_image *image, int fd, struct elf_place *place)
{
    const struct file_ref *file = file_capture(fd, NULL);
    return elf_map(s, image, fd, file, place);
}

/* A fixed place, or with --aslr one of a million. */
static uint64_t break_start(void)
{
    return BRK_LOW + PAGE_SIZE + stack_random_pages(20) * PAGE_SIZE;
}

int program_load(struct space *s, struct program *p, char **argv, char **envp, struct trace_regs *regs)
{
    struct elf_place image, interpreter = {0};
    if (p->kind != PROGRAM_RECORDABLE)
        return -EINVAL;
    stack_place(s);
    int error = load_image(s, &p->image, p->fd, &image);
    if (!error && p->interpreter_fd >= 0)
        error = load_image(s, &p->interpreter, p->interpreter_fd, &interpreter);
    if (error)
        return error;
    uint64_t sp;
    error = stack_build(s, p, argv, envp, &image, &interpreter, &sp);
    if (error)
        return error;
    s->brk_start = s->brk = break_start();
    s->exe = strdup(p->path);
    *regs =
        (struct trace_regs){.rip = p->interpreter_fd >= 0 ? interpreter.entry : image.entry, .rflags = 0x202};
    regs->gpr[GPR_RSP] = sp;
    LOG(load, "%s at 0x%lx, interpreter at 0x%lx, entry 0x%lx, stack pointer 0x%lx", p->path,
        (unsigned long)image.bias, (unsigned long)interpreter.bias, (unsigned long)regs->rip,
        (unsigned long)sp);
    return s->exe ? 0 : -ENOMEM;
}
