/* test_require.c: what `clio record` cannot do without is named, and nothing is missing here. */
// LINK: src/cmd/require.c src/engine/cpu/host.c src/engine/cpu/features.c
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/require.h"

static void names(const char *missing, const char *word)
{
    assert_non_null(missing);
    if (!strstr(missing, word))
        fail_msg("\"%s\" does not name %s", missing, word);
}

static void processor(void **state)
{
    names(require_processor(2, 0), "XSAVE");
    names(require_processor(0, 7), "FSGSBASE");
    names(require_processor(1, 7), "FSGSBASE");
    assert_null(require_processor(2, 3));
}

static void limits(void **state)
{
    names(require_descriptors(16), "open files");
    assert_null(require_descriptors(1024));
    names(require_address_space(100u << 20), "address space");
    assert_null(require_address_space(UINT64_MAX));
}

static void make(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void proc(void **state)
{
    char dir[] = "/tmp/clio-require-XXXXXX", path[200];
    static const char *const parts[] = {"self", "self/fd", "self/task"};
    static const char *const files[] = {"self/exe", "self/maps"};
    assert_null(require_proc("/proc"));
    assert_non_null(mkdtemp(dir));
    names(require_proc(dir), "/proc is not mounted");
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, parts[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        make(path);
    }
    names(require_proc(dir), "children");
    snprintf(path, sizeof path, "rm -r %s", dir);
    assert_int_equal(system(path), 0);
}

static void refuse(int number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(77);
}

/* What a child says, in which the call is refused. */
static void refused(int number, const char *word, const char *(*ask)(void))
{
    int status;
    assert_null(ask());
    pid_t child = fork();
    if (child == 0) {
        refuse(number);
        const char *missing = ask(), *first = require_all();
        _exit(!missing || !strstr(missing, word) ? 1 : !first || strcmp(first, missing) ? 2 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("system-call filters are not to be had here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void calls(void **state)
{
    refused(SYS_memfd_create, "memfd_create", require_memfd);
    refused(SYS_socketpair, "AF_UNIX", require_sockets);
    refused(SYS_socket, "AF_UNIX", require_sockets);
    refused(SYS_signalfd4, "signalfd", require_signalfd);
    refused(SYS_prctl, "SUBREAPER", require_subreaper);
    refused(SYS_mmap, "writable and executable", require_code_memory);
}

static void here(void **state)
{
    assert_null(require_all());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processor), cmocka_unit_test(limits), cmocka_unit_test(proc),
        cmocka_unit_test(calls),     cmocka_unit_test(here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
