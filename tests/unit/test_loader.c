/*
 * test_loader.c: programs loaded into this process and compared with their files, with the kernel (a loaded
 * program is run, errors are compared with those of a real execve) and with what replay makes of the recorded
 * event; and malformed ELF files, which must fail and nothing more.
 */
// LINK: src/engine/memory/space.c src/engine/memory/capture.c src/engine/load/slots.c src/engine/load/elf.c
// LINK: src/engine/load/personality.c src/engine/memory/change.c src/engine/load/program.c src/engine/load/stack.c
// LINK: src/engine/memory/objects.c src/engine/memory/replica.c
// LINK: src/engine/cpu/cpuid.c src/engine/cpu/features.c src/engine/cpu/xsave.c
#include "engine_fakes.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "engine/cpu/registers.h"
#include "engine/load/program.h"
#include "engine/load/slots.h"
#include "engine/memory/capture.h"
#include "engine/memory/space.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

static char dir[] = "/tmp/clio-test-loader-XXXXXX";

static const char *in_dir(const char *name)
{
    static char text[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(text[turn], sizeof text[turn], "%s/%s", dir, name);
    return text[turn];
}

static void write_file(const char *path, const void *bytes, size_t n, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void write_text(const char *path, const char *text, mode_t mode)
{
    write_file(path, text, strlen(text), mode);
}

/* Compiles a program of our own. */
static const char *build(const char *name, const char *source, const char *flags)
{
    char command[512];
    const char *path = in_dir(name);
    snprintf(command, sizeof command, "cc -x c -o %s %s - <<'EOF'\n%s\nEOF\n", path, flags, source);
    assert_int_equal(system(command), 0);
    return path;
}

static char *environment[] = {"A=1", "EMPTY=", "LONG=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", NULL};

/* Checks and loads; the result of whichever failed. */
static int load(const char *path, char **argv, char **envp, struct trace_regs *regs, struct program *p)
{
    fake_forget_event();
    int error = program_check(p, AT_FDCWD, path, 0, argv, envp);
    if (!error && p->kind != PROGRAM_RECORDABLE)
        fail_msg("%s is not recordable: %s", path, p->why);
    return error ? error : program_load(&guest_space, p, argv, envp, regs);
}

/* ---- memory against the file ---- */

static void check_bytes(const struct elf_image *image, int fd, uint64_t bias)
{
    for (int i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *ph = &image->programs[i];
        if (ph->p_type != PT_LOAD || !ph->p_memsz)
            continue;
        uint8_t *want = calloc(1, ph->p_memsz), *got = malloc(ph->p_memsz);
        assert_int_equal(pread(fd, want, ph->p_filesz, (off_t)ph->p_offset), ph->p_filesz);
        assert_int_equal(guest_read(got, bias + ph->p_vaddr, ph->p_memsz), 0);
        assert_memory_equal(got, want, ph->p_memsz);
        uint32_t prot = (ph->p_flags & PF_R ? PROT_READ : 0) | (ph->p_flags & PF_W ? PROT_WRITE : 0) |
                        (ph->p_flags & PF_X ? PROT_EXEC : 0);
        assert_true(space_allows(&guest_space, bias + ph->p_vaddr, ph->p_memsz, prot));
        assert_int_equal(space_find(&guest_space, bias + ph->p_vaddr)->prot, prot);
        free(want);
        free(got);
    }
}

static uint64_t aux(uint64_t type)
{
    const uint64_t *v = (const uint64_t *)guest_space.auxv;
    for (uint32_t i = 0; i < guest_space.auxv_size / 16; i++)
        if (v[2 * i] == type)
            return v[2 * i + 1];
    return UINT64_MAX;
}

static const char *check_strings(uint64_t **slot, const char *at, char **want)
{
    for (uint32_t i = 0; want[i]; i++) {
        assert_ptr_equal((char *)*(*slot)++, at);
        assert_string_equal(at, want[i]);
        at += strlen(at) + 1;
    }
    assert_int_equal(*(*slot)++, 0);
    return at;
}

static void check_stack(const struct program *p, const struct trace_regs *regs, char **argv, char **envp)
{
    const struct space *s = &guest_space;
    uint64_t *slot = (uint64_t *)regs->gpr[GPR_RSP];
    assert_int_equal((uint64_t)slot % 16, 0);
    uint32_t argc = 0;
    while (argv[argc])
        argc++;
    assert_int_equal(*slot++, argc);
    assert_ptr_equal(check_strings(&slot, (char *)s->arg_start, argv), (char *)s->arg_end);
    assert_int_equal(s->arg_end, s->env_start);
    assert_ptr_equal(check_strings(&slot, (char *)s->env_start, envp), (char *)s->env_end);
    assert_memory_equal(slot, s->auxv, s->auxv_size);
    assert_int_equal(aux(AT_EXECFN), s->env_end);
    assert_string_equal((char *)aux(AT_EXECFN), p->filename);
    assert_int_equal(aux(AT_EXECFN) + strlen(p->filename) + 1 + 8, s->stack_high);
    assert_string_equal((char *)aux(AT_PLATFORM), "x86_64");
    assert_true(aux(AT_RANDOM) > regs->gpr[GPR_RSP] && aux(AT_RANDOM) + 16 <= s->arg_start);
    assert_int_equal(aux(AT_PAGESZ), 4096);
    assert_int_equal(aux(AT_HWCAP), cpu_id(&engine.cpu, 1, 0).d);
    assert_int_equal(aux(AT_MINSIGSTKSZ), cpu_minimal_stack(&engine.cpu));
    assert_int_equal(aux(AT_HWCAP2) & 2, 0);
    assert_int_equal(aux(AT_UID), getuid());
    assert_int_equal(aux(AT_SECURE), 0);
    assert_int_equal(aux(AT_SYSINFO_EHDR), UINT64_MAX);
    assert_int_equal(aux(27), UINT64_MAX); /* AT_RSEQ_FEATURE_SIZE */
    assert_true(space_allows(s, s->stack_low, s->stack_high - s->stack_low, PROT_READ | PROT_WRITE));
}

/* ---- the event against memory: what replay does ---- */

struct snapshot {
    struct vma *vmas;
    uint32_t count;
    uint8_t **bytes;
};

/* Skips the middle of what is very large. */
static uint64_t next_page(uint64_t at, uint64_t len)
{
    at += PAGE_SIZE;
    return len > 16 << 20 && at == 8 << 20 ? len - (8 << 20) : at;
}

static struct snapshot take_snapshot(void)
{
    struct snapshot shot = {.count = guest_space.count};
    shot.vmas = calloc(shot.count, sizeof *shot.vmas);
    shot.bytes = calloc(shot.count, sizeof *shot.bytes);
    memcpy(shot.vmas, guest_space.vmas, shot.count * sizeof *shot.vmas);
    for (uint32_t i = 0; i < shot.count; i++) {
        uint64_t len = shot.vmas[i].end - shot.vmas[i].start;
        if (!shot.vmas[i].prot)
            continue;
        shot.bytes[i] =
            mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        for (uint64_t at = 0; at < len; at = next_page(at, len)) {
            uint8_t page[PAGE_SIZE];
            if (!guest_read(page, shot.vmas[i].start + at, sizeof page))
                memcpy(shot.bytes[i] + at, page, sizeof page);
        }
    }
    return shot;
}

static void compare_and_free(struct snapshot *a, struct snapshot *b)
{
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        struct vma *v = &a->vmas[i], *w = &b->vmas[i];
        uint64_t len = v->end - v->start;
        assert_int_equal(v->start, w->start);
        assert_int_equal(v->end, w->end);
        assert_int_equal(v->prot, w->prot);
        assert_int_equal(!v->file, !w->file);
        if (v->file)
            assert_string_equal(v->file->path, w->file->path);
        for (uint64_t at = 0; a->bytes[i] && at < len; at = next_page(at, len))
            if (memcmp(a->bytes[i] + at, b->bytes[i] + at, PAGE_SIZE))
                fail_msg("page 0x%lx differs in replay", v->start + at);
        if (a->bytes[i]) {
            munmap(a->bytes[i], len);
            munmap(b->bytes[i], len);
        }
    }
    free(a->vmas);
    free(a->bytes);
    free(b->vmas);
    free(b->bytes);
}

static void check_replay(void)
{
    fake_commit();
    struct snapshot recorded = take_snapshot();
    space_clear(&guest_space);
    engine.mode = ENGINE_REPLAY;
    for (uint32_t i = 0; i < fake_nmaps; i++) {
        const struct trace_map *m = &fake_maps[i].map;
        int fd = m->op == MAP_OP_FILE ? fake_file(m->file) : -1;
        assert_int_equal(space_apply(&guest_space, m, fake_maps[i].path, fd), 0);
    }
    for (uint32_t i = 0; i < fake_neffects; i++) {
        assert_int_equal(
            mprotect((void *)PAGE_DOWN(fake_effects[i].addr),
                     PAGE_UP(fake_effects[i].addr + fake_effects[i].len) - PAGE_DOWN(fake_effects[i].addr),
                     PROT_READ | PROT_WRITE),
            0);
        memcpy((void *)fake_effects[i].addr, fake_effects[i].bytes, fake_effects[i].len);
    }
    engine.mode = ENGINE_RECORD;
    struct snapshot replayed = take_snapshot();
    compare_and_free(&recorded, &replayed);
    space_clear(&guest_space);
}

static void check_program(const char *path, char **argv)
{
    struct trace_regs regs;
    struct program p;
    assert_int_equal(load(path, argv, environment, &regs, &p), 0);
    uint64_t bias = aux(AT_ENTRY) - p.image.header.e_entry;
    assert_int_equal(bias == 0, p.image.header.e_type == ET_EXEC);
    check_bytes(&p.image, p.fd, bias);
    if (p.interpreter_fd >= 0) {
        check_bytes(&p.interpreter, p.interpreter_fd, aux(AT_BASE));
        assert_int_equal(regs.rip, aux(AT_BASE) + p.interpreter.header.e_entry);
    } else {
        assert_int_equal(regs.rip, aux(AT_ENTRY));
    }
    assert_int_equal(aux(AT_PHNUM), p.image.header.e_phnum);
    assert_memory_equal((void *)aux(AT_PHDR), p.image.programs, p.image.header.e_phnum * sizeof(Elf64_Phdr));
    check_stack(&p, &regs, argv, environment);
    assert_true(guest_space.brk_start >= BRK_LOW && guest_space.brk_start < BRK_HIGH);
    char *real = realpath(path, NULL);
    assert_string_equal(guest_space.exe, real);
    free(real);
    program_free(&p);
    check_replay();
}

/* ---- running what was loaded ---- */

static _Noreturn void run_loaded(const struct trace_regs *regs)
{
    for (uint32_t i = 0; i < guest_space.count; i++) {
        const struct vma *v = &guest_space.vmas[i];
        if (v->prot & PROT_EXEC)
            mprotect((void *)v->start, v->end - v->start, (int)v->prot);
    }
    __asm__ volatile("mov %0, %%rsp\n\txor %%edx, %%edx\n\txor %%ebp, %%ebp\n\tjmp *%1"
                     :
                     : "r"(regs->gpr[GPR_RSP]), "a"(regs->rip));
    __builtin_unreachable();
}

/* Loads and runs in a child, without a translator; its output and status. */
static int run(const char *path, char **argv, char *output, size_t size)
{
    int out[2];
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int store[2];
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, store);
        engine.store = hostfd_keep(store[0]);
        pthread_t thread;
        pthread_create(&thread, NULL, fake_store, (void *)(intptr_t)store[1]);
        struct trace_regs regs;
        struct program p;
        if (load(path, argv, environment, &regs, &p))
            _exit(99);
        dup2(out[1], 1);
        run_loaded(&regs);
    }
    close(out[1]);
    size_t n = 0;
    for (ssize_t r; n < size - 1 && (r = read(out[0], output + n, size - 1 - n)) > 0;)
        n += (size_t)r;
    output[n] = 0;
    close(out[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void check_run(const char *path, char **argv, const char *want)
{
    char output[4096];
    int status = run(path, argv, output, sizeof output);
    assert_string_equal(output, want);
    assert_int_equal(status, 0);
}

static const char hello[] = "#include <stdio.h>\n"
                            "static char big[300 << 20]; int set = 7; int zero;\n"
                            "int main(int c, char **v) { big[sizeof big - 1] = 1;\n"
                            "printf(\"%d %d %d %s\\n\", c, set, zero, v[c - 1]); return 0; }";

static void test_real_programs(void **state)
{
    char *argv[] = {"a0", "first", "", "third argument", NULL};
    const char *paths[] = {"/bin/ls",          "/bin/bash",    "/bin/true",
                           "/usr/bin/python3", "/bin/busybox", "/lib64/ld-linux-x86-64.so.2"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!access(paths[i], X_OK))
            check_program(paths[i], argv);
        else
            print_message("[  NOTE    ] %s is not installed\n", paths[i]);
}

static void test_built_programs(void **state)
{
    static const char *const kinds[][2] = {
        {"pie", "-fPIE -pie"},
        {"non-pie", "-fno-pie -no-pie"},
        {"static", "-static -no-pie"},
        {"static-pie", "-static-pie -fPIE"},
        {"aligned", "-fPIE -pie -Wl,-z,max-page-size=0x200000"},
        {"tight", "-fno-pie -no-pie -Wl,-z,noseparate-code -Wl,-z,max-page-size=0x1000"},
        {"exec-stack", "-fPIE -pie -z execstack"},
    };
    char *argv[] = {"prog", "x", NULL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *path = build(kinds[i][0], hello, kinds[i][1]);
        check_program(path, argv);
        check_run(path, argv, "2 7 0 x\n");
    }
}

static void test_runs(void **state)
{
    char *echo[] = {"echo", "one", "two", NULL};
    check_run("/bin/echo", echo, "one two\n");
    char *bash[] = {"bash", "-c",  "echo $0 $1; echo $A; for i in 1 2; do /bin/echo $i; done",
                    "zero", "one", NULL};
    check_run("/bin/bash", bash, "zero one\n1\n1\n2\n");
}

static void test_stack_protection(void **state)
{
    struct trace_regs regs;
    struct program p;
    char *argv[] = {"x", NULL};
    assert_int_equal(load(build("exec-stack", "int main(void) { return 0; }", "-z execstack"), argv,
                          environment, &regs, &p),
                     0);
    assert_int_equal(space_find(&guest_space, regs.gpr[GPR_RSP])->prot, PROT_READ | PROT_WRITE | PROT_EXEC);
    program_free(&p);
    space_clear(&guest_space);
    assert_int_equal(load("/bin/true", argv, environment, &regs, &p), 0);
    assert_int_equal(space_find(&guest_space, regs.gpr[GPR_RSP])->prot, PROT_READ | PROT_WRITE);
    assert_true(space_find(&guest_space, regs.gpr[GPR_RSP])->growsdown);
    program_free(&p);
    space_clear(&guest_space);
}

static void test_same_slot(void **state)
{
    struct trace_regs regs[2];
    struct program p;
    char *argv[] = {"x", NULL};
    uint64_t base[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(load(i ? "/bin/bash" : "/bin/ls", argv, environment, &regs[i], &p), 0);
        base[i] = aux(AT_BASE);
        assert_true(base[i] >= SLOTS_LOW && base[i] < SLOTS_HIGH);
        assert_true(aux(AT_ENTRY) >= SLOTS_LOW && aux(AT_ENTRY) < SLOTS_HIGH);
        program_free(&p);
        space_clear(&guest_space);
    }
    assert_int_equal(base[0], base[1]);
    /* taken: the next free place */
    struct slot_need need;
    int fd = open("/lib64/ld-linux-x86-64.so.2", O_RDONLY | O_CLOEXEC);
    assert_true(slot_need(fd, &need));
    struct vma v = {.start = base[0], .end = base[0] + PAGE_SIZE, .prot = PROT_READ};
    assert_int_equal(space_map(&guest_space, &v, -1, 0), 0);
    assert_int_equal(slot_pick(&guest_space, &need), base[0] + 0x10000);
    need.span = SLOTS_HIGH - SLOTS_LOW;
    assert_true(slot_pick(&guest_space, &need) >= MMAP_LOW);
    close(fd);
    space_clear(&guest_space);
}

static void test_aslr(void **state)
{
    struct trace_regs regs[2];
    struct program p;
    char *argv[] = {"x", NULL};
    engine.aslr = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(load("/bin/true", argv, environment, &regs[i], &p), 0);
        program_free(&p);
        check_replay();
    }
    engine.aslr = false;
    assert_int_not_equal(regs[0].rip, regs[1].rip);
    assert_int_not_equal(regs[0].gpr[GPR_RSP], regs[1].gpr[GPR_RSP]);
}

/* A file the store cannot keep is loaded all the same, with its bytes in the event. */
static void test_uncaptured(void **state)
{
    struct trace_regs regs;
    struct program p;
    char *argv[] = {"x", NULL};
    const char *path = in_dir("copy-of-true");
    char command[300];
    snprintf(command, sizeof command, "cp /bin/true %s", path);
    assert_int_equal(system(command), 0);
    fake_store_error = ENOSPC;
    assert_int_equal(load(path, argv, environment, &regs, &p), 0);
    fake_store_error = 0;
    assert_non_null(strstr(fake_note, "mapped at"));
    for (uint32_t i = 0; i < fake_nmaps; i++)
        assert_true(fake_maps[i].map.op != MAP_OP_FILE || strcmp(fake_maps[i].path, path));
    program_free(&p);
    check_replay();
}

/* ---- errors, as the kernel's ---- */

/* errno of a real execve, or 0 when it would succeed. */
static int real_execve(const char *path, char **argv, char **envp)
{
    int report[2];
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        execve(path, argv, envp);
        int error = errno;
        _exit(write(report[1], &error, sizeof error) == sizeof error ? 1 : 2);
    }
    close(report[1]);
    int error = 0;
    if (read(report[0], &error, sizeof error) != sizeof error)
        error = 0;
    close(report[0]);
    waitpid(pid, NULL, 0);
    return error;
}

static void check_error(const char *path, int want)
{
    char *argv[] = {"x", NULL};
    struct program p;
    int got = program_check(&p, AT_FDCWD, path, 0, argv, environment);
    if (got != -want)
        fail_msg("%s: program_check says %s instead of %s", path, strerror(-got), strerror(want));
    int real = real_execve(path, argv, environment);
    if (real != want)
        fail_msg("%s: execve says %s instead of %s", path, strerror(real), strerror(want));
    if (!got)
        program_free(&p);
}

static void test_errors(void **state)
{
    check_error("/nonexistent", ENOENT);
    check_error("", ENOENT);
    check_error("/bin", EACCES);
    check_error("/dev/null", EACCES);
    check_error("/bin/true/x", ENOTDIR);
    write_text(in_dir("plain"), "echo no header\n", 0755);
    check_error(in_dir("plain"), ENOEXEC);
    write_text(in_dir("empty"), "", 0755);
    check_error(in_dir("empty"), ENOEXEC);
    write_text(in_dir("no-x"), "#!/bin/sh\n", 0644);
    check_error(in_dir("no-x"), EACCES);
    write_text(in_dir("no-interpreter"), "#!/nonexistent/sh\n", 0755);
    check_error(in_dir("no-interpreter"), ENOENT);
    write_text(in_dir("blank"), "#!   \t \nx", 0755);
    check_error(in_dir("blank"), ENOEXEC);
    write_text(in_dir("bare"), "#!", 0755);
    check_error(in_dir("bare"), EACCES);
    write_text(in_dir("no-newline"), "#!/bin/sh", 0755);
    check_error(in_dir("no-newline"), 0);
    char text[400] = "#!/";
    memset(text + 3, 'x', 300);
    write_text(in_dir("too-long"), text, 0755);
    check_error(in_dir("too-long"), ENOEXEC);
    assert_int_equal(symlink("loop", in_dir("loop")), 0);
    check_error(in_dir("loop"), ELOOP);
    int fd = open(in_dir("busy"), O_WRONLY | O_CREAT, 0755);
    assert_int_equal(write(fd, "#!/bin/sh\n", 10), 10);
    int busy = real_execve(in_dir("busy"), (char *[]){"x", NULL}, environment);
    check_error(in_dir("busy"), busy); /* ETXTBSY, but for Linux 6.11 and 6.12 */
    close(fd);
    write_file(in_dir("elf-head"), ELFMAG "\2\1\1", 7, 0755);
    check_error(in_dir("elf-head"), ENOEXEC);
}

static void test_identity(void **state)
{
    if (geteuid()) {
        print_message("only root can make a file of another user set-uid\n");
        skip();
    }
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) {
        print_message("no_new_privs is set: a set-uid file gives no rights\n");
        skip();
    }
    char *argv[] = {"x", NULL};
    struct program p;
    const char *path = build("set-uid", "int main(void) { return 0; }", "");
    assert_int_equal(chown(path, 1, 1), 0);
    assert_int_equal(chmod(path, 04755), 0);
    assert_int_equal(program_check(&p, AT_FDCWD, path, 0, argv, environment), 0);
    assert_int_equal(p.kind, PROGRAM_UNRECORDED);
    assert_non_null(strstr(p.why, "set-uid"));
    program_free(&p);
    assert_int_equal(chmod(path, 02755), 0);
    assert_int_equal(program_check(&p, AT_FDCWD, path, 0, argv, environment), 0);
    assert_int_equal(p.kind, PROGRAM_UNRECORDED);
    program_free(&p);
    /* 32-bit: the ELF class and machine decide */
    Elf32_Ehdr h = {.e_ident = ELFMAG "\1\1\1", .e_type = ET_EXEC, .e_machine = EM_386};
    write_file(in_dir("i386"), &h, sizeof h, 0755);
    assert_int_equal(program_check(&p, AT_FDCWD, in_dir("i386"), 0, argv, environment), 0);
    assert_int_equal(p.kind, PROGRAM_UNRECORDED);
    assert_non_null(strstr(p.why, "32-bit"));
    program_free(&p);
}

/* ---- scripts ---- */

static void check_script_output(const char *script, char **argv)
{
    char command[300], want[4096] = "", output[4096];
    snprintf(command, sizeof command, "%s 'one two' 3", script);
    FILE *f = popen(command, "r");
    size_t n = fread(want, 1, sizeof want - 1, f);
    want[n] = 0;
    assert_int_equal(pclose(f), 0);
    assert_true(n > 0);
    run(script, argv, output, sizeof output);
    assert_string_equal(output, want);
}

static void test_scripts(void **state)
{
    char text[300];
    char *argv[] = {"ignored", "one two", "3", NULL};
    build("show",
          "#include <stdio.h>\nint main(int c, char **v) { for (int i = 0; i < c; i++) printf(\"[%s]\", "
          "v[i]);\n"
          "puts(\"\"); return 0; }",
          "");
    snprintf(text, sizeof text, "#! %s  -a  b c \t \nrest\n", in_dir("show"));
    write_text(in_dir("s1"), text, 0755);
    check_script_output(in_dir("s1"), argv);
    for (int i = 2; i <= 6; i++) {
        char name[16], below[16];
        snprintf(name, sizeof name, "s%d", i);
        snprintf(below, sizeof below, "s%d", i - 1);
        snprintf(text, sizeof text, "#!%s%s\n", in_dir(below), i % 2 ? " arg" : "");
        write_text(in_dir(name), text, 0755);
        if (i <= 5)
            check_script_output(in_dir(name), argv);
    }
    check_error(in_dir("s5"), 0);
    check_error(in_dir("s6"), ELOOP);
    struct program p;
    assert_int_equal(program_check(&p, AT_FDCWD, in_dir("s2"), 0, argv, environment), 0);
    assert_string_equal(p.filename, in_dir("s2"));
    assert_string_equal(p.path, in_dir("show"));
    program_free(&p);
}

static void test_execveat(void **state)
{
    char *argv[] = {"x", NULL};
    struct program p;
    int bin = open("/bin", O_PATH | O_DIRECTORY), fd = open("/bin/true", O_RDONLY);
    char name[64];
    assert_int_equal(program_check(&p, bin, "true", 0, argv, environment), 0);
    snprintf(name, sizeof name, "/dev/fd/%d/true", bin);
    assert_string_equal(p.filename, name);
    program_free(&p);
    assert_int_equal(program_check(&p, fd, "", AT_EMPTY_PATH, argv, environment), 0);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_string_equal(p.filename, name);
    program_free(&p);
    assert_int_equal(program_check(&p, fd, "", 0, argv, environment), -ENOENT);
    assert_int_equal(program_check(&p, fd, "", 0x40000000, argv, environment), -EINVAL);
    assert_int_equal(symlink("/bin/true", in_dir("link")), 0);
    assert_int_equal(program_check(&p, AT_FDCWD, in_dir("link"), AT_SYMLINK_NOFOLLOW, argv, environment),
                     -ELOOP);
    assert_int_equal(program_check(&p, AT_FDCWD, in_dir("link"), 0, argv, environment), 0);
    program_free(&p);
    close(bin);
    close(fd);
    fd = open(in_dir("s1"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(program_check(&p, fd, "", AT_EMPTY_PATH, argv, environment), -ENOENT);
    close(fd);
}

static void check_size(char **argv, char **envp)
{
    struct program p;
    int got = program_check(&p, AT_FDCWD, "/bin/true", 0, argv, envp);
    assert_int_equal(-got, real_execve("/bin/true", argv, envp));
    if (!got)
        program_free(&p);
}

static void test_too_big(void **state)
{
    static char longest[32 * 4096 + 1];
    memset(longest, 'x', 32 * 4096);
    char *argv[] = {"x", longest, NULL};
    check_size(argv, environment);
    longest[32 * 4096 - 1] = 0;
    check_size(argv, environment);
    /* around the limit of the sum: a quarter of the stack */
    char **many = calloc(40, sizeof *many);
    for (int n = 1; n < 39; n++) {
        many[n - 1] = longest;
        check_size(many, environment);
    }
    struct rlimit old, tight;
    getrlimit(RLIMIT_STACK, &old);
    tight = (struct rlimit){2 << 20, old.rlim_max};
    setrlimit(RLIMIT_STACK, &tight);
    for (int n = 1; n < 8; n++) {
        many[n] = NULL;
        check_size(many, environment);
        many[n] = longest;
    }
    setrlimit(RLIMIT_STACK, &old);
    free(many);
    check_size((char *[]){NULL}, (char *[]){NULL});
    /* a program without arguments gets an empty one */
    struct trace_regs regs;
    struct program p;
    assert_int_equal(load("/bin/true", (char *[]){NULL}, (char *[]){NULL}, &regs, &p), 0);
    check_stack(&p, &regs, (char *[]){"", NULL}, (char *[]){NULL});
    program_free(&p);
    space_clear(&guest_space);
}

/* ---- malformed files ---- */

struct tiny {
    Elf64_Ehdr header;
    Elf64_Phdr program[2];
    uint8_t rest[2 * 4096];
};

static struct tiny sane(void)
{
    struct tiny t = {.header = {.e_ident = ELFMAG "\2\1\1",
                                .e_type = ET_EXEC,
                                .e_machine = EM_X86_64,
                                .e_version = 1,
                                .e_entry = 0x400100,
                                .e_phoff = sizeof(Elf64_Ehdr),
                                .e_ehsize = sizeof(Elf64_Ehdr),
                                .e_phentsize = sizeof(Elf64_Phdr),
                                .e_phnum = 2},
                     .program = {{PT_LOAD, PF_R | PF_X, 0, 0x400000, 0x400000, 0x1000, 0x1000, 0x1000},
                                 {PT_LOAD, PF_R | PF_W, 0x1000, 0x401000, 0x401000, 0x100, 0x2100, 0x1000}}};
    return t;
}

static int load_tiny(const struct tiny *t, size_t size)
{
    char *argv[] = {"x", NULL};
    struct trace_regs regs;
    struct program p;
    write_file(in_dir("tiny"), t, size, 0755);
    int error = load(in_dir("tiny"), argv, environment, &regs, &p);
    program_free(&p);
    if (!error)
        check_replay();
    space_clear(&guest_space);
    return error;
}

#define CHECK_TINY(want, change)                                                                             \
    do {                                                                                                     \
        struct tiny t = sane();                                                                              \
        change;                                                                                              \
        int got = load_tiny(&t, sizeof t);                                                                   \
        if (got != (want))                                                                                   \
            fail_msg("%s: %d instead of %d", #change, got, want);                                            \
    } while (0)

static void test_malformed(void **state)
{
    CHECK_TINY(0, (void)0);
    CHECK_TINY(-ENOEXEC, t.header.e_type = ET_REL);
    CHECK_TINY(-ENOEXEC, t.header.e_machine = EM_AARCH64);
    CHECK_TINY(-ENOEXEC, t.header.e_phentsize = 32);
    CHECK_TINY(-ENOEXEC, t.header.e_phnum = 0);
    CHECK_TINY(-ENOEXEC, t.header.e_phnum = 0xffff);
    CHECK_TINY(-ENOEXEC, t.header.e_phoff = 1ull << 63);
    CHECK_TINY(-ENOEXEC, t.header.e_phoff = UINT64_MAX - 10);
    CHECK_TINY(-ENOEXEC, t.header.e_phoff = sizeof t - 20);
    CHECK_TINY(-EINVAL, t.program[1].p_filesz = 0x3000);
    CHECK_TINY(-EINVAL, t.program[1].p_offset = 0x1010);
    CHECK_TINY(-EINVAL, t.program[1].p_offset = UINT64_MAX & ~0xfffull);
    CHECK_TINY(-EINVAL, t.program[1].p_memsz = UINT64_MAX);
    CHECK_TINY(-EINVAL, t.program[1].p_vaddr = 1ull << 47);
    CHECK_TINY(-EINVAL, t.program[1].p_vaddr = UINT64_MAX & ~0xfffull);
    CHECK_TINY(-ENOMEM, t.program[1].p_vaddr = HOST_LOW);
    CHECK_TINY(-ENOMEM, t.program[1].p_vaddr = HOST_LOW - 0x1000);
    CHECK_TINY(-ENOMEM, t.program[0].p_vaddr = 0);
    CHECK_TINY(-EINVAL, t.header.e_entry = 1ull << 63);
    CHECK_TINY(-EFAULT, t.program[1].p_offset = 0x100000);
    CHECK_TINY(-EINVAL, t.header.e_type = ET_DYN; t.program[0].p_type = t.program[1].p_type = PT_NULL);
    CHECK_TINY(-EINVAL, t.header.e_type = ET_DYN; t.program[1].p_vaddr = GUEST_HIGH);
    CHECK_TINY(-EINVAL, t.header.e_type = ET_DYN; t.program[0].p_memsz = UINT64_MAX);
    CHECK_TINY(0, t.header.e_type = ET_DYN; t.program[0].p_align = 3);
    CHECK_TINY(0, t.header.e_type = ET_DYN; t.program[0].p_align = 1ull << 25);
    CHECK_TINY(0, t.header.e_type = ET_DYN; t.program[0].p_align = 1ull << 63);
    CHECK_TINY(0, t.program[1].p_filesz = 0);
    CHECK_TINY(0, t.program[1].p_memsz = 0x100);
    CHECK_TINY(0, t.program[1].p_flags = PF_R); /* a bss that cannot be zeroed keeps the file's bytes */
    CHECK_TINY(0, t.program[1].p_flags = 0);
    CHECK_TINY(0, t.program[1].p_vaddr = 0x400000);
    CHECK_TINY(-ENOMEM, t.program[1].p_memsz = 8ull << 40); /* over the host */
    CHECK_TINY(0, t.header.e_type = ET_DYN; t.program[1].p_memsz = 8ull << 40);
    CHECK_TINY(-ENOEXEC, t.program[1] = ((Elf64_Phdr){PT_INTERP, 0, 0, 0, 0, 1, 1, 1}));
    CHECK_TINY(-ENOEXEC, t.program[1] = ((Elf64_Phdr){PT_INTERP, 0, 0, 0, 0, 5000, 1, 1}));
    CHECK_TINY(-ENOEXEC, t.program[1] = ((Elf64_Phdr){PT_INTERP, 0, 0, 0, 0, 4, 4, 1}));
    CHECK_TINY(-EIO, t.program[1] = ((Elf64_Phdr){PT_INTERP, 0, sizeof t - 1, 0, 0, 100, 100, 1}));
    CHECK_TINY(-ENOENT, t.program[1] = ((Elf64_Phdr){PT_INTERP, 0, 0x1000, 0, 0, 4, 4, 1});
               memcpy(t.rest + 0x1000 - offsetof(struct tiny, rest), "/zz", 4));
    CHECK_TINY(-ELIBBAD, t.program[1] = ((Elf64_Phdr){PT_INTERP, 0, 0x1000, 0, 0, 12, 12, 1});
               snprintf((char *)t.rest + 0x1000 - offsetof(struct tiny, rest), 100, "%s", in_dir("plain"));
               t.program[1].p_filesz = strlen(in_dir("plain")) + 1);
}

static void test_truncated(void **state)
{
    struct tiny t = sane();
    for (size_t size = 0; size < sizeof t; size += size < 200 ? 1 : 97)
        load_tiny(&t, size);
}

/* AddressSanitizer's shadow lies where a guest of an ordinary build may. */
static bool hits_shadow(const struct tiny *t)
{
#ifdef __SANITIZE_ADDRESS__
    for (int i = 0; i < 2; i++)
        if (t->program[i].p_vaddr < 0x10007fff8000 &&
            t->program[i].p_vaddr + t->program[i].p_memsz > 0x7fff7000)
            return true;
#endif
    return false;
}

static void test_fuzzed(void **state)
{
    srand(7);
    for (int round = 0; round < 3000; round++) {
        struct tiny t = sane();
        if (rand() % 2)
            t.header.e_type = ET_DYN;
        for (int n = rand() % 4 + 1; n > 0; n--) {
            uint8_t *at = (uint8_t *)&t + rand() % (sizeof t.header + sizeof t.program);
            *at = rand() % 2 ? (uint8_t)rand() : (uint8_t)(1 << rand() % 8);
        }
        if (hits_shadow(&t))
            continue;
        char *argv[] = {"x", NULL};
        struct trace_regs regs;
        struct program p;
        fake_forget_event();
        fake_forget_files();
        write_file(in_dir("fuzzed"), &t, sizeof t, 0755);
        if (!program_check(&p, AT_FDCWD, in_dir("fuzzed"), 0, argv, environment)) {
            if (p.kind == PROGRAM_RECORDABLE && !program_load(&guest_space, &p, argv, environment, &regs))
                fake_commit();
            program_free(&p);
        }
        space_clear(&guest_space);
    }
}

static void test_no_descriptor_leaks(void **state)
{
    fake_forget_files();
    int before = dup(0);
    close(before);
    test_malformed(state);
    fake_forget_files();
    int after = dup(0);
    close(after);
    assert_int_equal(after, before);
}

static int begin(void **state)
{
    return mkdtemp(dir) ? fake_engine_begin(state) : -1;
}

static int end(void **state)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, fake_event_begin)
    const struct CMUnitTest tests[] = {
        TEST(test_real_programs), TEST(test_built_programs),
        TEST(test_runs),          TEST(test_stack_protection),
        TEST(test_same_slot),     TEST(test_aslr),
        TEST(test_uncaptured),    TEST(test_errors),
        TEST(test_identity),      TEST(test_scripts),
        TEST(test_execveat),      TEST(test_too_big),
        TEST(test_malformed),     TEST(test_truncated),
        TEST(test_fuzzed),        TEST(test_no_descriptor_leaks),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
