/* procself.c: see procself.h. */
#include "engine/kernel/procself.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "engine/cpu/cpu.h"
#include "engine/guest/layout.h"
#include "engine/host/hostfd.h"
#include "engine/kernel/limits.h"
#include "engine/kernel/process.h"
#include "engine/kernel/running.h"
#include "engine/kernel/signals.h"
#include "engine/host/raw.h"
#include "engine/memory/space.h"

/* ---- the kernel's text ---- */

/* Opens a file to read it, although the guest's descriptors may be used up. */
static int open_over_limit(const char *path)
{
    struct rlimit limit;
    hostfd_limit_raise(&limit);
    int fd = (int)raw3(SYS_open, path, O_RDONLY | O_CLOEXEC, 0);
    hostfd_limit_restore(&limit);
    return fd;
}

/* All of a file, with a terminator; NULL when it cannot be read. To be freed. */
static char *read_all(const char *path)
{
    size_t size = 0, room = 1 << 16;
    char *text = malloc(room);
    int fd = open_over_limit(path);
    ssize_t n = fd < 0 ? -1 : 0;
    while (text && fd >= 0 && (n = read(fd, text + size, room - size - 1)) > 0) {
        size += (size_t)n;
        if (room - size < 4096) {
            char *more = realloc(text, room *= 2);
            if (!more)
                free(text);
            text = more;
        }
    }
    if (fd >= 0)
        close(fd);
    if (n < 0) {
        free(text);
        return NULL;
    }
    if (text)
        text[size] = 0;
    return text;
}

/* Cuts the line that begins at *text off, and moves there to the next. NULL at the end. */
static char *next_line(char **text)
{
    char *line = *text, *end = strchr(line, '\n');
    if (!*line)
        return NULL;
    *text = end ? end + 1 : line + strlen(line);
    if (end)
        *end = 0;
    return line;
}

/* What follows `key` in a line that begins with it, or NULL. */
static const char *after_key(const char *line, const char *key)
{
    size_t n = strlen(key);
    return strncmp(line, key, n) ? NULL : line + n;
}

/* ---- how much memory ---- */

struct sizes { /* bytes */
    uint64_t total, data, stack, text, library, anonymous, file, shared, swapped;
    uint64_t code_start, code_end;
};

/* Adds the resident pages of v. */
static void add_resident(struct sizes *s, int pagemap, const struct vma *v)
{
    enum { BATCH = 4096 };
    static uint64_t entries[BATCH];
    for (uint64_t at = v->start; at < v->end;) {
        uint64_t pages = (v->end - at) / PAGE_SIZE;
        ssize_t n = pread(pagemap, entries, (pages < BATCH ? pages : BATCH) * 8, (off_t)(at / PAGE_SIZE * 8));
        if (n < 8)
            return;
        for (ssize_t i = 0; i < n / 8; i++, at += PAGE_SIZE) {
            bool present = entries[i] >> 63, swapped = entries[i] >> 62 & 1, of_file = entries[i] >> 61 & 1;
            if (present)
                *(!of_file ? &s->anonymous : v->file ? &s->file : &s->shared) += PAGE_SIZE;
            else if (swapped)
                s->swapped += PAGE_SIZE;
        }
    }
}

static void measure(struct sizes *s)
{
    int pagemap = open_over_limit("/proc/self/pagemap");
    struct stat program = {0};
    running_file(&program);
    *s = (struct sizes){0};
    for (uint32_t i = 0; i < guest_space.count; i++) {
        const struct vma *v = &guest_space.vmas[i];
        uint64_t len = v->end - v->start;
        bool writable = v->prot & PROT_WRITE, runs = v->prot & PROT_EXEC;
        s->total += len;
        if (v->growsdown)
            s->stack += len;
        else if (writable && !v->shared)
            s->data += len;
        bool own = v->file && v->file->dev == program.st_dev && v->file->ino == program.st_ino;
        if (runs && !writable && own) {
            s->code_start = s->code_start ? s->code_start : v->start;
            s->code_end = v->end;
            s->text += len;
        } else if (runs && !writable) {
            s->library += len;
        }
        if (pagemap >= 0)
            add_resident(s, pagemap, v);
    }
    if (pagemap >= 0)
        close(pagemap);
}

static uint64_t resident(const struct sizes *s)
{
    return s->anonymous + s->file + s->shared;
}

/* ---- status ---- */

/* Most of what was seen. */
static uint64_t most(uint64_t *peak, uint64_t now)
{
    *peak = *peak > now ? *peak : now;
    return *peak;
}

/* The size of the table that a process has with the descriptors of the guest. */
static int table_size(void)
{
    int size = 64;
    for (int fd = 0; fd < 4096; fd++)
        if (fd >= size && !hostfd_is(fd) && fcntl(fd, F_GETFD) >= 0)
            size = (fd + 256) / 256 * 256;
    return size;
}

static bool status_number(const struct sizes *s, const char *line, uint64_t *kilobytes)
{
    static uint64_t peak_total, peak_resident;
    const struct {
        const char *key;
        uint64_t bytes;
    } rows[] = {
        {"VmPeak:", most(&peak_total, s->total)},
        {"VmSize:", s->total},
        {"VmHWM:", most(&peak_resident, resident(s))},
        {"VmRSS:", resident(s)},
        {"RssAnon:", s->anonymous},
        {"RssFile:", s->file},
        {"RssShmem:", s->shared},
        {"VmData:", s->data},
        {"VmStk:", s->stack},
        {"VmExe:", s->text},
        {"VmLib:", s->library},
        {"VmSwap:", s->swapped},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (after_key(line, rows[i].key)) {
            *kilobytes = rows[i].bytes / 1024;
            return true;
        }
    return false;
}

static bool status_set(const struct task *t, const char *line, uint64_t *set)
{
    uint64_t ignored, caught;
    signals_sets(&ignored, &caught);
    if (after_key(line, "SigBlk:"))
        *set = t->blocked;
    else if (after_key(line, "SigIgn:"))
        *set = ignored;
    else if (after_key(line, "SigCgt:"))
        *set = caught;
    else
        return false;
    return true;
}

void procself_status(FILE *to)
{
    char *text = read_all("/proc/self/status"), *at = text, *line;
    uint64_t number;
    const char *value;
    struct sizes sizes;
    measure(&sizes);
    while (text && (line = next_line(&at))) {
        int key = (int)strcspn(line, ":") + 1;
        if (status_set(engine.task, line, &number))
            fprintf(to, "%.*s\t%016lx\n", key, line, (unsigned long)number);
        else if (status_number(&sizes, line, &number))
            fprintf(to, "%.*s\t%8lu kB\n", key, line, (unsigned long)number);
        else if ((value = after_key(line, "PPid:\t")))
            fprintf(to, "PPid:\t%d\n", process_parent(atoi(value)));
        else if (after_key(line, "FDSize:"))
            fprintf(to, "FDSize:\t%d\n", table_size());
        else
            fprintf(to, "%s\n", line);
    }
    free(text);
}

/* ---- stat and statm ---- */

void procself_stat(FILE *to)
{
    enum {
        PARENT = 4,
        VSIZE = 23,
        RSS,
        RSS_LIMIT,
        START_CODE,
        END_CODE,
        START_STACK,
        BLOCKED = 32,
        IGNORED,
        CAUGHT,
        START_DATA = 45,
        END_DATA,
        START_BREAK,
        ARG_START,
        ARG_END,
        ENV_START,
        ENV_END
    };
    char *text = read_all("/proc/self/stat"), *rest = text ? strrchr(text, ')') : NULL;
    const struct space *s = &guest_space;
    struct sizes sizes;
    uint64_t ignored, caught;
    if (!rest) {
        free(text);
        return;
    }
    measure(&sizes);
    signals_sets(&ignored, &caught);
    fprintf(to, "%.*s", (int)(rest + 1 - text), text);
    int field = 3;
    for (char *word = strtok(rest + 1, " \n"); word; word = strtok(NULL, " \n"), field++) {
        const uint64_t legacy = 0x7fffffff; /* these fields hold 31 signals */
        const struct {
            int field;
            uint64_t value;
        } ours[] = {{PARENT, (uint64_t)process_parent(atoi(word))},
                    {VSIZE, sizes.total},
                    {RSS, resident(&sizes) / PAGE_SIZE},
                    {START_CODE, sizes.code_start},
                    {END_CODE, sizes.code_end},
                    {START_STACK, s->arg_start},
                    {BLOCKED, engine.task->blocked & legacy},
                    {IGNORED, ignored & legacy},
                    {CAUGHT, caught & legacy},
                    {START_DATA, sizes.code_start},
                    {END_DATA, sizes.code_end},
                    {START_BREAK, s->brk_start},
                    {ARG_START, s->arg_start},
                    {ARG_END, s->arg_end},
                    {ENV_START, s->env_start},
                    {ENV_END, s->env_end}};
        size_t i = 0;
        while (i < sizeof ours / sizeof *ours && ours[i].field != field)
            i++;
        if (i < sizeof ours / sizeof *ours)
            fprintf(to, " %lu", (unsigned long)ours[i].value);
        else
            fprintf(to, " %s", word);
    }
    fputc('\n', to);
    free(text);
}

void procself_statm(FILE *to)
{
    struct sizes s;
    measure(&s);
    fprintf(to, "%lu %lu %lu %lu 0 %lu 0\n", (unsigned long)(s.total / PAGE_SIZE),
            (unsigned long)(resident(&s) / PAGE_SIZE), (unsigned long)((s.file + s.shared) / PAGE_SIZE),
            (unsigned long)(s.text / PAGE_SIZE), (unsigned long)((s.data + s.stack) / PAGE_SIZE));
}

/* ---- limits ---- */

static void print_limit(FILE *to, rlim_t value)
{
    if (value == RLIM_INFINITY)
        fprintf(to, "%-20s ", "unlimited");
    else
        fprintf(to, "%-20lu ", (unsigned long)value);
}

void procself_limits(FILE *to)
{
    static const struct {
        const char *name, *unit;
        uint32_t resource;
    } kept[] = {{"Max data size", "bytes", RLIMIT_DATA},
                {"Max open files", "files", RLIMIT_NOFILE},
                {"Max address space", "bytes", RLIMIT_AS}};
    char *text = read_all("/proc/self/limits"), *at = text, *line;
    while (text && (line = next_line(&at))) {
        size_t i = 0;
        struct rlimit r;
        while (i < sizeof kept / sizeof *kept && !after_key(line, kept[i].name))
            i++;
        if (i == sizeof kept / sizeof *kept || limits_current(kept[i].resource, &r)) {
            fprintf(to, "%s\n", line);
            continue;
        }
        fprintf(to, "%-25s ", kept[i].name);
        print_limit(to, r.rlim_cur);
        print_limit(to, r.rlim_max);
        fprintf(to, "%-10s\n", kept[i].unit);
    }
    free(text);
}

/* ---- maps ---- */

/* A name as the kernel shows it: newlines as \012. */
static void print_path(FILE *to, const char *path)
{
    for (; *path; path++)
        if (*path == '\n')
            fputs("\\012", to);
        else
            fputc(*path, to);
}

struct host_map { /* a line of the kernel's maps: where, and the name that a mapped file has now */
    uint64_t start, end;
    const char *name;
};

struct host_maps {
    char *text;
    struct host_map *v;
    size_t count;
};

static struct host_maps read_host_maps(void)
{
    struct host_maps m = {.text = read_all("/proc/self/maps")};
    char *at = m.text, *line;
    while (m.text && (line = next_line(&at))) {
        struct host_map *more = realloc(m.v, (m.count + 1) * sizeof *more);
        int name = 0;
        if (!more)
            break;
        m.v = more;
        struct host_map *h = &m.v[m.count++];
        *h = (struct host_map){0, 0, ""};
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &h->start, &h->end, &name) >= 2 && name)
            h->name = line + name;
    }
    return m;
}

static void free_host_maps(struct host_maps *m)
{
    free(m->v);
    free(m->text);
}

/* The file's name as the kernel has it at addr, else as it was when it was mapped. */
static void print_file(FILE *to, const struct host_maps *m, const struct vma *v)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->v[i].start <= v->start && v->start < m->v[i].end && m->v[i].name[0] == '/') {
            fputs(m->v[i].name, to);
            return;
        }
    print_path(to, v->file->path);
}

static void print_vma(FILE *to, const struct host_maps *m, const struct vma *v)
{
    const struct space *s = &guest_space;
    int width = fprintf(to, "%08lx-%08lx %c%c%c%c %08lx %02x:%02x %lu ", v->start, v->end,
                        v->prot & PROT_READ ? 'r' : '-', v->prot & PROT_WRITE ? 'w' : '-',
                        v->prot & PROT_EXEC ? 'x' : '-', v->shared ? 's' : 'p', v->file ? v->offset : 0,
                        v->file ? major(v->file->dev) : 0, v->file ? minor(v->file->dev) : 0,
                        v->file ? v->file->ino : 0);
    const char *name = NULL;
    if (!v->file && v->start <= s->brk && v->end >= s->brk_start && s->brk > s->brk_start)
        name = "[heap]";
    else if (!v->file && s->stack_high && v->start < s->stack_high && v->end >= s->stack_high)
        name = "[stack]";
    if (name || v->file)
        fprintf(to, "%*s", width < 73 ? 73 - width : 0, "");
    if (v->file)
        print_file(to, m, v);
    else if (name)
        fputs(name, to);
    fputc('\n', to);
}

void procself_maps(FILE *to)
{
    struct host_maps m = read_host_maps();
    for (uint32_t i = 0; i < guest_space.count; i++)
        print_vma(to, &m, &guest_space.vmas[i]);
    free_host_maps(&m);
}

/* ---- smaps ---- */

enum { KEYS_MAX = 32 };

struct totals { /* of the kernel's entries that lie in one mapping of the guest's */
    struct {
        char key[24];
        double kilobytes;
    } rows[KEYS_MAX];
    int count;
    char flags[128];
};

/* Rows that are no amounts: they are not summed. */
static bool is_property(const char *key)
{
    return strstr(key, "PageSize") || !strcmp(key, "THPeligible") || !strcmp(key, "ProtectionKey");
}

static void add_row(struct totals *sum, const char *key, double kilobytes)
{
    int i = 0;
    while (i < sum->count && strcmp(sum->rows[i].key, key))
        i++;
    if (i == KEYS_MAX)
        return;
    if (i == sum->count) {
        snprintf(sum->rows[i].key, sizeof sum->rows[i].key, "%s", key);
        sum->rows[i].kilobytes = 0;
        sum->count++;
    }
    sum->rows[i].kilobytes = is_property(key) ? kilobytes : sum->rows[i].kilobytes + kilobytes;
}

/*
 * Adds the kernel's entries that cover v, or NULL: all that are the guest's. One that covers more, because the
 * host tells less apart, counts in proportion.
 */
static void add_entries(struct totals *sum, const char *smaps, const struct vma *v)
{
    char *text = strdup(smaps), *at = text, *line, key[24];
    double share = 0;
    while (text && (line = next_line(&at))) {
        unsigned long start, end, kilobytes;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            unsigned long low = v && v->start > start ? v->start : start,
                          high = v && v->end < end ? v->end : end;
            const struct vma *own = space_at_or_above(&guest_space, low);
            share = low < high && own && own->start <= low ? (double)(high - low) / (double)(end - start) : 0;
        } else if (share > 0 && after_key(line, "VmFlags:")) {
            snprintf(sum->flags, sizeof sum->flags, "%s", line + 8);
        } else if (share > 0 && sscanf(line, "%23[^:]: %lu", key, &kilobytes) == 2) {
            add_row(sum, key, is_property(key) ? (double)kilobytes : (double)kilobytes * share);
        }
    }
    free(text);
}

static void print_totals(FILE *to, const struct totals *sum, bool rollup)
{
    for (int i = 0; i < sum->count; i++) {
        const char *key = sum->rows[i].key;
        if (rollup && (is_property(key) || !strcmp(key, "Size")))
            continue;
        bool bare = is_property(key) && !strstr(key, "PageSize");
        fprintf(to, "%s:%*lu%s\n", key, 23 - (int)strlen(key), (unsigned long)sum->rows[i].kilobytes,
                bare ? "" : " kB");
    }
}

/* The host's pages never are executable. */
static void print_flags_of(FILE *to, const struct totals *sum, const struct vma *v)
{
    const char *rest = sum->flags;
    fputs("VmFlags:", to);
    while (!strncmp(rest, " rd", 3) || !strncmp(rest, " wr", 3)) {
        fprintf(to, "%.3s", rest);
        rest += 3;
    }
    fprintf(to, "%s%s\n", v->prot & PROT_EXEC ? " ex" : "", rest);
}

void procself_smaps(FILE *to)
{
    struct host_maps m = read_host_maps();
    char *smaps = read_all("/proc/self/smaps");
    for (uint32_t i = 0; smaps && i < guest_space.count; i++) {
        const struct vma *v = &guest_space.vmas[i];
        struct totals sum = {.count = 0};
        add_entries(&sum, smaps, v);
        for (int j = 0; j < sum.count; j++)
            if (!strcmp(sum.rows[j].key, "Size"))
                sum.rows[j].kilobytes = (double)(v->end - v->start) / 1024;
        print_vma(to, &m, v);
        print_totals(to, &sum, false);
        print_flags_of(to, &sum, v);
    }
    free(smaps);
    free_host_maps(&m);
}

void procself_smaps_rollup(FILE *to)
{
    const struct space *s = &guest_space;
    char *smaps = read_all("/proc/self/smaps");
    struct totals sum = {.count = 0};
    if (smaps && s->count) {
        add_entries(&sum, smaps, NULL);
        int width =
            fprintf(to, "%08lx-%08lx ---p 00000000 00:00 0 ", s->vmas[0].start, s->vmas[s->count - 1].end);
        fprintf(to, "%*s[rollup]\n", width < 73 ? 73 - width : 0, "");
        print_totals(to, &sum, true);
    }
    free(smaps);
}

/* ---- cpuinfo ---- */

/* The kernel's names of what CPUID tells, in its order. */
static const struct {
    const char *name;
    uint32_t leaf, sub;
    uint8_t reg, bit; /* reg: 0 eax to 3 edx */
} flags[] = {
    {"fpu", 1, 0, 3, 0},
    {"vme", 1, 0, 3, 1},
    {"de", 1, 0, 3, 2},
    {"pse", 1, 0, 3, 3},
    {"tsc", 1, 0, 3, 4},
    {"msr", 1, 0, 3, 5},
    {"pae", 1, 0, 3, 6},
    {"mce", 1, 0, 3, 7},
    {"cx8", 1, 0, 3, 8},
    {"apic", 1, 0, 3, 9},
    {"sep", 1, 0, 3, 11},
    {"mtrr", 1, 0, 3, 12},
    {"pge", 1, 0, 3, 13},
    {"mca", 1, 0, 3, 14},
    {"cmov", 1, 0, 3, 15},
    {"pat", 1, 0, 3, 16},
    {"pse36", 1, 0, 3, 17},
    {"clflush", 1, 0, 3, 19},
    {"mmx", 1, 0, 3, 23},
    {"fxsr", 1, 0, 3, 24},
    {"sse", 1, 0, 3, 25},
    {"sse2", 1, 0, 3, 26},
    {"ss", 1, 0, 3, 27},
    {"ht", 1, 0, 3, 28},
    {"syscall", 0x80000001, 0, 3, 11},
    {"nx", 0x80000001, 0, 3, 20},
    {"mmxext", 0x80000001, 0, 3, 22},
    {"fxsr_opt", 0x80000001, 0, 3, 25},
    {"pdpe1gb", 0x80000001, 0, 3, 26},
    {"rdtscp", 0x80000001, 0, 3, 27},
    {"lm", 0x80000001, 0, 3, 29},
    {"pni", 1, 0, 2, 0},
    {"pclmulqdq", 1, 0, 2, 1},
    {"ssse3", 1, 0, 2, 9},
    {"fma", 1, 0, 2, 12},
    {"cx16", 1, 0, 2, 13},
    {"pcid", 1, 0, 2, 17},
    {"sse4_1", 1, 0, 2, 19},
    {"sse4_2", 1, 0, 2, 20},
    {"x2apic", 1, 0, 2, 21},
    {"movbe", 1, 0, 2, 22},
    {"popcnt", 1, 0, 2, 23},
    {"aes", 1, 0, 2, 25},
    {"xsave", 1, 0, 2, 26},
    {"avx", 1, 0, 2, 28},
    {"f16c", 1, 0, 2, 29},
    {"rdrand", 1, 0, 2, 30},
    {"hypervisor", 1, 0, 2, 31},
    {"lahf_lm", 0x80000001, 0, 2, 0},
    {"abm", 0x80000001, 0, 2, 5},
    {"sse4a", 0x80000001, 0, 2, 6},
    {"misalignsse", 0x80000001, 0, 2, 7},
    {"3dnowprefetch", 0x80000001, 0, 2, 8},
    {"fsgsbase", 7, 0, 1, 0},
    {"bmi1", 7, 0, 1, 3},
    {"avx2", 7, 0, 1, 5},
    {"smep", 7, 0, 1, 7},
    {"bmi2", 7, 0, 1, 8},
    {"erms", 7, 0, 1, 9},
    {"avx512f", 7, 0, 1, 16},
    {"avx512dq", 7, 0, 1, 17},
    {"rdseed", 7, 0, 1, 18},
    {"adx", 7, 0, 1, 19},
    {"avx512ifma", 7, 0, 1, 21},
    {"clflushopt", 7, 0, 1, 23},
    {"clwb", 7, 0, 1, 24},
    {"avx512cd", 7, 0, 1, 28},
    {"sha_ni", 7, 0, 1, 29},
    {"avx512bw", 7, 0, 1, 30},
    {"avx512vl", 7, 0, 1, 31},
    {"xsaveopt", 0xd, 1, 0, 0},
    {"xsavec", 0xd, 1, 0, 1},
    {"xgetbv1", 0xd, 1, 0, 2},
    {"xsaves", 0xd, 1, 0, 3},
    {"avx_vnni", 7, 1, 0, 4},
    {"avx512_bf16", 7, 1, 0, 5},
    {"clzero", 0x80000008, 0, 1, 0},
    {"avx512vbmi", 7, 0, 2, 1},
    {"umip", 7, 0, 2, 2},
    {"avx512_vbmi2", 7, 0, 2, 6},
    {"gfni", 7, 0, 2, 8},
    {"vaes", 7, 0, 2, 9},
    {"vpclmulqdq", 7, 0, 2, 10},
    {"avx512_vnni", 7, 0, 2, 11},
    {"avx512_bitalg", 7, 0, 2, 12},
    {"avx512_vpopcntdq", 7, 0, 2, 14},
    {"rdpid", 7, 0, 2, 22},
    {"movdiri", 7, 0, 2, 27},
    {"movdir64b", 7, 0, 2, 28},
    {"fsrm", 7, 0, 3, 4},
    {"serialize", 7, 0, 3, 14},
    {"avx512_fp16", 7, 0, 3, 23},
};

static void print_flags(FILE *to)
{
    static const char always[] =
        " constant_tsc rep_good nopl nonstop_tsc cpuid"; /* of the kernel's own making */
    fputs("flags\t\t:", to);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const struct cpu_leaf l = cpu_id(&engine.cpu, flags[i].leaf, flags[i].sub);
        const uint32_t registers[] = {l.a, l.b, l.c, l.d};
        if (registers[flags[i].reg] >> flags[i].bit & 1)
            fprintf(to, " %s%s", flags[i].name, !strcmp(flags[i].name, "lm") ? always : "");
    }
    fputc('\n', to);
}

static void print_vendor(FILE *to)
{
    const struct cpu_leaf l = cpu_id(&engine.cpu, 0, 0);
    char text[13] = {0};
    memcpy(text, &l.b, 4);
    memcpy(text + 4, &l.d, 4);
    memcpy(text + 8, &l.c, 4);
    fprintf(to, "vendor_id\t: %s\n", text);
}

static void print_model(FILE *to)
{
    char text[49] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        const struct cpu_leaf l = cpu_id(&engine.cpu, 0x80000002 + i, 0);
        memcpy(text + 16 * i, &l, 16);
    }
    const char *name = text + strspn(text, " ");
    fprintf(to, "model name\t: %s\n", *name ? name : "unknown");
}

/* Lines that CPUID decides are the guest's; how many processors there are, and how fast, is the machine's. */
void procself_cpuinfo(FILE *to)
{
    char *text = read_all("/proc/cpuinfo"), *at = text, *line;
    const uint32_t id = cpu_id(&engine.cpu, 1, 0).a;
    uint32_t family = id >> 8 & 15, model = id >> 4 & 15;
    model |= family == 6 || family == 15 ? id >> 12 & 0xf0 : 0;
    family += family == 15 ? id >> 20 & 0xff : 0;
    while (text && (line = next_line(&at)))
        if (after_key(line, "vendor_id\t"))
            print_vendor(to);
        else if (after_key(line, "cpu family\t"))
            fprintf(to, "cpu family\t: %u\n", family);
        else if (after_key(line, "model\t"))
            fprintf(to, "model\t\t: %u\n", model);
        else if (after_key(line, "model name\t"))
            print_model(to);
        else if (after_key(line, "cpuid level\t"))
            fprintf(to, "cpuid level\t: %u\n", cpu_id(&engine.cpu, 0, 0).a);
        else if (after_key(line, "stepping\t"))
            fprintf(to, "stepping\t: %u\n", id & 15);
        else if (after_key(line, "flags\t"))
            print_flags(to);
        else if (!after_key(line, "microcode\t") && !after_key(line, "bugs\t") &&
                 !after_key(line, "vmx flags\t"))
            fprintf(to, "%s\n", line);
    free(text);
}
