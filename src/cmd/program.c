/* program.c: see program.h. */
#include "cmd/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/privileged.h"

#define DEFAULT_PATH "/bin:/usr/bin" /* as execvp without PATH */

/* 0 when path is a file that we may execute, else errno. */
static int executable(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return errno;
    if (S_ISDIR(st.st_mode))
        return EISDIR;
    if (!S_ISREG(st.st_mode))
        return EACCES;
    return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) ? errno : 0;
}

/* Searches PATH; the first file that can be run, else the error of the first that exists. */
static char *search(const char *name, int *error)
{
    const char *dirs = getenv("PATH");
    *error = ENOENT;
    for (const char *p = dirs ? dirs : DEFAULT_PATH;; p++) {
        size_t n = strcspn(p, ":");
        char *path;
        if (asprintf(&path, "%.*s%s%s", (int)n, p, n ? "/" : "./", name) < 0)
            die("no memory for the path of %s", name);
        int e = executable(path);
        if (e == 0)
            return path;
        free(path);
        if (e != ENOENT && e != ENOTDIR && *error == ENOENT)
            *error = e;
        p += n;
        if (!*p)
            return NULL;
    }
}

/* A file that is neither ELF nor a #! script is run by the shell, as execvp does. */
static void use_shell(struct program *p)
{
    size_t n = 0;
    while (p->argv[n])
        n++;
    char **argv = calloc(n + 2, sizeof *argv);
    if (!argv)
        die("no memory for the arguments of %s", p->path);
    argv[0] = "/bin/sh";
    argv[1] = p->path;
    memcpy(argv + 2, p->argv + 1, n * sizeof *argv);
    p->argv = argv;
    p->path = "/bin/sh";
    if (executable(p->path))
        die("cannot run /bin/sh for the script %s: %s", argv[1], strerror(errno));
}

static void judge_elf(struct program *p, const Elf64_Ehdr *head, int fd)
{
    bool intel = head->e_machine == EM_X86_64 || head->e_machine == EM_386;
    if (!intel || head->e_ident[EI_DATA] != ELFDATA2LSB)
        die("cannot run %s: it is a program for another kind of machine (ELF machine %u)", p->path,
            head->e_machine);
    if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_machine != EM_X86_64)
        p->unrecorded = "it is a 32-bit program";
    else
        p->unrecorded = why_privileged(fd);
}

static void judge(struct program *p)
{
    Elf64_Ehdr head = {0};
    int fd = open(p->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno != EACCES)
        die("cannot read %s: %s", p->path, strerror(errno));
    if (fd < 0) {
        p->unrecorded = "it may be executed, but not read";
        return;
    }
    ssize_t n = read(fd, &head, sizeof head);
    if (n >= (ssize_t)(offsetof(Elf64_Ehdr, e_machine) + sizeof head.e_machine) &&
        !memcmp(head.e_ident, ELFMAG, SELFMAG))
        judge_elf(p, &head, fd);
    else if (n < 2 || memcmp(head.e_ident, "#!", 2))
        use_shell(p);
    close(fd);
}

void program_find(struct program *p, char **argv)
{
    *p = (struct program){.argv = argv};
    int error;
    if (!*argv[0])
        die("cannot run a program with an empty name");
    if (strchr(argv[0], '/')) {
        error = executable(argv[0]);
        p->path = error ? NULL : argv[0];
    } else {
        p->path = search(argv[0], &error);
    }
    if (!p->path && error == ENOENT)
        die("%s: program not found%s", argv[0], strchr(argv[0], '/') ? "" : " in PATH");
    if (!p->path)
        die("cannot run %s: %s", argv[0], strerror(error));
    judge(p);
}
