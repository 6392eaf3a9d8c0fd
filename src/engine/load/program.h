/*
 * program.h: what execve does, in two halves: find out what would run, and set up a fresh address space for
 * it.
 */
#ifndef CLIO_ENGINE_LOAD_PROGRAM_H
#define CLIO_ENGINE_LOAD_PROGRAM_H

#include "engine/guest/engine.h"
#include "engine/load/elf.h"
#include "engine/memory/space.h"

enum { PROGRAM_SCRIPTS_MAX = 5 }; /* nested #! interpreters, as the kernel */

enum program_kind {
    PROGRAM_RECORDABLE = 1,
    PROGRAM_UNRECORDED, /* only the kernel can run it: `why` says why; a real execve of the original path
                           decides */
};

struct program {
    enum program_kind kind;
    const char *why;    /* PROGRAM_UNRECORDED: text for people, static */
    char *filename;     /* AT_EXECFN: what execve was given, or /dev/fd/N for a descriptor */
    char *path;         /* absolute path of the ELF file, for /proc/self/exe */
    int fd;             /* the ELF file, or -1 */
    int interpreter_fd; /* PT_INTERP, or -1 */
    struct elf_image image,
        interpreter;       /* read when the descriptors are valid and kind is PROGRAM_RECORDABLE */
    bool executable_stack; /* PT_GNU_STACK asks for it */
    char *prefix[2 * PROGRAM_SCRIPTS_MAX + 3]; /* argv in front of argv[1..] for scripts, else empty */
    uint32_t nprefix;
};

/*
 * Resolves execveat(dirfd, path, argv, envp, flags) without side effects; for execve dirfd is AT_FDCWD and
 * flags 0. Only AT_EMPTY_PATH and AT_SYMLINK_NOFOLLOW are known, others are -EINVAL. 0 with *p filled, to be
 * freed by program_free; else the errno that the kernel would return, with nothing to free. The descriptors
 * in *p are ordinary ones of this process, close-on-exec, to be closed (program_free) before the guest runs.
 */
int program_check(struct program *p, int dirfd, const char *path, int flags, char **argv, char **envp);
void program_free(struct program *p);

/*
 * Maps the program into the empty space s (space_clear before) with interpreter, break and stack, and adds
 * every mapping and every byte written to the event being built. argv and envp are the execve's own, in host
 * memory; scripts are accounted for by *p. Fills the space's fields and *regs. An error (-ENOMEM, -EINVAL,
 * -EFAULT, -EIO) comes after the point of no return: the kernel would kill the process with SIGSEGV.
 */
int program_load(struct space *s, struct program *p, char **argv, char **envp, struct trace_regs *regs);

#endif
