/*
 * main.c: the program clio-engine, which `clio record`, `clio replay` and `clio chronicle` start.
 *
 *   clio-engine record --dir-fd N --store-fd N --input-fd N --cpu L --cpu-features NAMES [--aslr]
 *               [--check-memory N] [common]
 *   clio-engine replay --trace PATH [--shared-fd N] [--space N] [common]
 *   clio-engine chronicle --trace PATH --space N --from M --to M --out DB [common]
 *   common: [--log TOPICS] [--log-fd N] [--single-block] [--alone LOW-HIGH]
 *
 * --alone corners a bad translation: guest code from LOW to HIGH (hex) is translated one instruction a block.
 *
 * The input of record is a file of: u32 argc, u32 envc, the program's path, argc arguments, envc environment
 * strings, each terminated by NUL. All other descriptors belong to the guest.
 */
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/task/crash.h"
#include "engine/task/dispatch.h"
#include "engine/task/hostsig.h"
#include "engine/run/memcheck.h"
#include "engine/run/record.h"
#include "engine/run/replay.h"
#include "engine/event/session.h"
#include "engine/run/stop.h"
#include "engine/task/task_init.h"
#include "engine/kernel/effects.h"
#include "engine/kernel/files.h"
#include "engine/guest/layout.h"
#include "engine/host/hostfd.h"
#include "engine/kernel/process.h"
#include "engine/kernel/signals.h"
#include "engine/translate/decode.h"
#include "engine/translate/translate.h"
#include "protocol/replay_shared.h"

static struct arguments {
    int dir_fd, store_fd, input_fd, shared_fd, log_fd;
    const char *trace, *out, *cpu, *features;
    uint32_t space, check_every;
    struct moment from, to;
} args = {.dir_fd = -1, .store_fd = -1, .input_fd = -1, .shared_fd = -1, .log_fd = -1};

enum option_id {
    O_DIR_FD = 1,
    O_STORE_FD,
    O_INPUT_FD,
    O_SHARED_FD,
    O_LOG_FD,
    O_LOG,
    O_CPU,
    O_FEATURES,
    O_ASLR,
    O_SINGLE,
    O_ALONE,
    O_TRACE,
    O_SPACE,
    O_FROM,
    O_TO,
    O_OUT,
    O_CHECK
};

static const struct option known[] = {
    {"dir-fd", required_argument, NULL, O_DIR_FD},
    {"store-fd", required_argument, NULL, O_STORE_FD},
    {"input-fd", required_argument, NULL, O_INPUT_FD},
    {"shared-fd", required_argument, NULL, O_SHARED_FD},
    {"log-fd", required_argument, NULL, O_LOG_FD},
    {"log", required_argument, NULL, O_LOG},
    {"cpu", required_argument, NULL, O_CPU},
    {"cpu-features", required_argument, NULL, O_FEATURES},
    {"aslr", no_argument, NULL, O_ASLR},
    {"single-block", no_argument, NULL, O_SINGLE},
    {"alone", required_argument, NULL, O_ALONE},
    {"trace", required_argument, NULL, O_TRACE},
    {"check-memory", required_argument, NULL, O_CHECK},
    {"space", required_argument, NULL, O_SPACE},
    {"from", required_argument, NULL, O_FROM},
    {"to", required_argument, NULL, O_TO},
    {"out", required_argument, NULL, O_OUT},
    {NULL, 0, NULL, 0},
};

static struct moment moment_argument(const char *text)
{
    struct moment m;
    if (!moment_parse(text, &m))
        usage("clio-engine: %s is no moment", text);
    return m;
}

static void take_option(int id)
{
    const char *bad;
    switch (id) {
    case O_DIR_FD:
        args.dir_fd = atoi(optarg);
        break;
    case O_STORE_FD:
        args.store_fd = atoi(optarg);
        break;
    case O_INPUT_FD:
        args.input_fd = atoi(optarg);
        break;
    case O_SHARED_FD:
        args.shared_fd = atoi(optarg);
        break;
    case O_LOG_FD:
        args.log_fd = atoi(optarg);
        break;
    case O_LOG:
        if (log_select(optarg, &bad))
            usage("clio-engine: unknown log topic %s", bad);
        break;
    case O_FEATURES:
        args.features = optarg;
        break;
    case O_CPU:
        args.cpu = optarg;
        break;
    case O_ASLR:
        engine.aslr = true;
        break;
    case O_CHECK:
        args.check_every = (uint32_t)strtoul(optarg, NULL, 10);
        break;
    case O_SINGLE:
        translate_options.single_block = true;
        break;
    case O_ALONE:
        if (sscanf(optarg, "%lx-%lx", &translate_options.alone_low, &translate_options.alone_high) != 2)
            usage("clio-engine: --alone takes LOW-HIGH, two hexadecimal addresses");
        break;
    case O_TRACE:
        args.trace = optarg;
        break;
    case O_SPACE:
        args.space = (uint32_t)strtoul(optarg, NULL, 10);
        break;
    case O_FROM:
        args.from = moment_argument(optarg);
        break;
    case O_TO:
        args.to = moment_argument(optarg);
        break;
    case O_OUT:
        args.out = optarg;
        break;
    default:
        exit(EXIT_USAGE);
    }
}

/* ---- record ---- */

struct input {
    char *path, **argv, **envp;
};

static char **take_strings(char **at, const char *end, uint32_t n)
{
    char **v = calloc(n + 1, sizeof *v);
    for (uint32_t i = 0; v && i < n; i++) {
        if (*at >= end)
            die("the recorder's input is cut short");
        v[i] = *at;
        *at += strlen(*at) + 1;
    }
    return v;
}

static struct input read_input(int fd)
{
    struct stat st;
    uint32_t counts[2];
    if (fstat(fd, &st) || st.st_size < (off_t)sizeof counts)
        die("the recorder's input cannot be read");
    size_t size = (size_t)st.st_size;
    char *bytes = malloc(size + 1);
    if (!bytes || pread(fd, bytes, size, 0) != (ssize_t)size)
        die("the recorder's input cannot be read");
    bytes[size] = 0;
    memcpy(counts, bytes, sizeof counts);
    char *at = bytes + sizeof counts;
    struct input in = {.path = at};
    at += strlen(at) + 1;
    in.argv = take_strings(&at, bytes + size, counts[0]);
    in.envp = take_strings(&at, bytes + size, counts[1]);
    close(fd);
    return in;
}

/* The handle of a descriptor that the guest shall not see. */
static int hide(int fd)
{
    int handle = hostfd_keep(fd);
    if (handle < 0)
        die("cannot hide descriptor %d: %s", fd, strerror(-handle));
    return handle;
}

/* The processor that `clio record` has chosen. */
static void take_cpu(void)
{
    char unknown[64];
    uint64_t features;
    int level = args.cpu ? atoi(args.cpu) : 0;
    if (level < 1 || level > CPU_LEVEL_MAX || !args.features ||
        !cpu_names_parse(args.features, &features, unknown, sizeof unknown))
        usage("clio-engine: record needs --cpu LEVEL and --cpu-features NAMES");
    cpu_init(&engine.cpu, level, cpu_level_features(level) | features, false);
    decode_use_cpu();
}

/*
 * The guest's limit on its stack is the kernel's limit on ours, and may become smaller than what we need. A stack that
 * has grown stays.
 */
static __attribute__((noinline)) void grow_own_stack(void)
{
    enum { ENOUGH = 1 << 20 };
    struct rlimit limit;
    uint64_t size =
        getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur / 2 > ENOUGH ? ENOUGH : limit.rlim_cur / 2;
    volatile char *room = alloca(size);
    for (uint64_t at = size; at > PAGE_SIZE; at -= PAGE_SIZE)
        room[at - 1] = 0;
}

static _Noreturn void record(void)
{
    take_cpu();
    grow_own_stack();
    struct task *t = task_init();
    engine.mode = ENGINE_RECORD;
    run_client = &record_client;
    struct input in = read_input(args.input_fd);
    engine.trace_dir = hide(args.dir_fd);
    engine.store = hide(args.store_fd);
    if (args.log_fd >= 0) {
        args.log_fd = hostfd(hide(args.log_fd));
        log_open(args.log_fd);
    }
    crash_init(args.log_fd);
    translate_init();
    session_init();
    session_arm_lifeline();
    files_begin();
    event_may_cover = effects_may_cover;
    engine.slow_calls = LOG_ON(syscall) || args.check_every;
    if (args.check_every)
        memcheck_record(args.check_every);
    hostsig_init();
    process_begin(t, in.path, in.argv, in.envp);
    signals_begin(t);
    dispatch_resume(t);
    engine_enter(t);
}

/* ---- replay ---- */

static struct replay_shared *map_shared(int fd)
{
    struct stat st;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) || st.st_size < (off_t)sizeof(struct replay_shared))
        usage("clio-engine: --shared-fd %d is unusable", fd);
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        die("cannot map the shared state of the replay: %s", strerror(errno));
    close(fd);
    return p;
}

static _Noreturn void replay(bool follow)
{
    if (!args.trace)
        usage("clio-engine: --trace is missing");
    struct task *t = task_init();
    engine.mode = ENGINE_REPLAY;
    run_client = &replay_client;
    struct replay_options options = {args.trace, args.space, map_shared(args.shared_fd), follow};
    if (args.log_fd >= 0)
        log_open(args.log_fd);
    crash_init(args.log_fd >= 0 ? args.log_fd : 2);
    translate_init();
    hostsig_init();
    replay_begin(t, &options);
    dispatch_resume(t);
    engine_enter(t);
}

static _Noreturn void chronicle(void)
{
    if (!args.out || !args.space)
        usage("clio-engine: chronicle needs --space, --from, --to and --out");
    const struct stop_interval interval = {args.from, args.to, args.out, args.trace};
    stop_interval_set(args.space, &interval);
    replay(false);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        usage("clio-engine is started by clio; it has no use of its own");
    cpu_host_ask(&engine.host);
    engine.trace_dir = engine.store = -1;
    optind = 2;
    for (int id; (id = getopt_long(argc, argv, "", known, NULL)) >= 0;)
        take_option(id);
    if (!strcmp(argv[1], "record"))
        record();
    if (!strcmp(argv[1], "replay"))
        replay(true);
    if (!strcmp(argv[1], "chronicle"))
        chronicle();
    usage("clio-engine: unknown command %s", argv[1]);
}
