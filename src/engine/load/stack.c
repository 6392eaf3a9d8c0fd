/* stack.c: see stack.h. */
#include "engine/load/stack.h"

#include <errno.h>
#include <linux/personality.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/memory/change.h"
#include "engine/load/personality.h"
#include "engine/memory/space.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

enum {
    FIXED_MAX = 128 /* platform, random bytes, alignment */,
    STRING_MAX = 32 * 4096,
    STRINGS_MIN = 128 * 1024,
    STRINGS_MAX = 6 << 20
};
#define STACK_AHEAD  (128ull << 10) /* mapped below what the program finds on its stack */
#define STACK_ROOM   (128ull << 20) /* kept free for the stack at least */
#define STACK_MARGIN 0x10000ull     /* above the stack */

static const char platform[] = "x86_64";

uint64_t stack_random_pages(int bits)
{
    uint64_t value = 0;
    if (engine.aslr && !personality_has(ADDR_NO_RANDOMIZE) &&
        getrandom(&value, sizeof value, 0) != sizeof value)
        value = 0;
    return value & ((1ull << bits) - 1);
}

/* ---- argv as the program will see it ---- */

struct strings {
    char *const *front; /* of scripts */
    uint32_t nfront;
    char **rest;
    uint32_t count; /* front and rest */
};

static uint32_t length_of(char **list)
{
    uint32_t n = 0;
    while (list && list[n])
        n++;
    return n;
}

static struct strings arguments(const struct program *p, char **argv)
{
    static char *empty[] = {"", NULL}; /* the kernel gives a program without argv[0] an empty one */
    if (!argv || !argv[0])
        argv = empty;
    struct strings a = {.front = p->prefix, .nfront = p->nprefix, .rest = p->nprefix ? argv + 1 : argv};
    a.count = a.nfront + length_of(a.rest);
    return a;
}

static const char *string_at(const struct strings *s, uint32_t i)
{
    return i < s->nfront ? s->front[i] : s->rest[i - s->nfront];
}

/* Bytes of all strings with their terminators, or -E2BIG for one that is too long. */
static int64_t strings_size(const struct strings *s)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        size_t n = strlen(string_at(s, i)) + 1;
        if (n > STRING_MAX)
            return -E2BIG;
        total += (int64_t)n;
    }
    return total;
}

static struct strings environment(char **envp)
{
    return (struct strings){.rest = envp, .count = length_of(envp)};
}

int stack_check_size(const struct program *p, char **argv, char **envp)
{
    struct strings args = arguments(p, argv), env = environment(envp);
    struct rlimit limit;
    uint64_t room = STRINGS_MAX;
    if (!getrlimit(RLIMIT_STACK, &limit) && limit.rlim_cur / 4 < room)
        room = limit.rlim_cur / 4;
    if (room < STRINGS_MIN)
        room = STRINGS_MIN;
    int64_t a = strings_size(&args), e = strings_size(&env);
    if (a < 0 || e < 0)
        return -E2BIG;
    uint64_t pointers = ((uint64_t)args.count + env.count) * sizeof(uint64_t);
    uint64_t bytes = (uint64_t)a + (uint64_t)e + strlen(p->filename) + 1;
    return pointers >= room || bytes > room - pointers ? -E2BIG : 0;
}

/* ---- placing ---- */

static uint64_t stack_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_STACK, &limit) ? RLIM_INFINITY : limit.rlim_cur;
}

/* As the kernel: the mmap area begins where a stack of the soft limit ends, but a program may raise that later. */
void stack_place(struct space *s)
{
    uint64_t room = stack_limit(), most = (GUEST_HIGH - MMAP_LOW) / 6 * 5;
    if (room < STACK_ROOM)
        room = STACK_ROOM;
    if (room > most)
        room = most;
    s->stack_low = s->stack_high = GUEST_HIGH - STACK_MARGIN - stack_random_pages(22) * PAGE_SIZE;
    space_set_mmap_top(s, s->stack_high - PAGE_UP(room) - STACK_GUARD - stack_random_pages(28) * PAGE_SIZE);
}

/* ---- filling ---- */

struct builder {
    uint64_t at; /* everything at and above is written */
    int error;
};

static uint64_t push(struct builder *b, const void *bytes, size_t n)
{
    b->at -= n;
    if (!b->error)
        b->error = guest_write(b->at, bytes, n);
    return b->at;
}

/* Pushes the strings so that the first is lowest. */
static void push_strings(struct builder *b, const struct strings *s)
{
    for (uint32_t i = s->count; i-- > 0;)
        push(b, string_at(s, i), strlen(string_at(s, i)) + 1);
}

/* Writes pointers to the strings that lie one after the other from `string` on, then NULL; returns the slot
 * after. */
static uint64_t write_pointers(struct builder *b, uint64_t slot, const struct strings *s, uint64_t string)
{
    for (uint32_t i = 0; i <= s->count; i++) {
        uint64_t value = i < s->count ? string : 0;
        if (!b->error)
            b->error = guest_write(slot, &value, sizeof value);
        slot += sizeof value;
        if (i < s->count)
            string += strlen(string_at(s, i)) + 1;
    }
    return slot;
}

static uint64_t host_value(unsigned long type, uint64_t otherwise)
{
    unsigned long value = getauxval(type);
    return value ? value : otherwise;
}

/*
 * The vector offers no vdso and no restartable sequences. AT_HWCAP is cpuid(1).edx;
 * AT_HWCAP2 hides FSGSBASE and MONITOR in user mode, which the guest's CPU does not have.
 */
static uint32_t fill_auxv(struct space *s, const struct program *p, const struct elf_place *image,
                          const struct elf_place *interpreter, uint64_t execfn, uint64_t platform_at,
                          uint64_t random_at)
{
    const uint64_t entries[][2] = {
        {AT_MINSIGSTKSZ, cpu_minimal_stack(&engine.cpu)},
        {AT_HWCAP, cpu_hwcap()},
        {AT_PAGESZ, PAGE_SIZE},
        {AT_CLKTCK, host_value(AT_CLKTCK, 100)},
        {AT_PHDR, image->phdr},
        {AT_PHENT, sizeof(Elf64_Phdr)},
        {AT_PHNUM, p->image.header.e_phnum},
        {AT_BASE, interpreter->bias},
        {AT_FLAGS, 0},
        {AT_ENTRY, image->entry},
        {AT_UID, getuid()},
        {AT_EUID, geteuid()},
        {AT_GID, getgid()},
        {AT_EGID, getegid()},
        {AT_SECURE, 0},
        {AT_RANDOM, random_at},
        {AT_HWCAP2, 0},
        {AT_EXECFN, execfn},
        {AT_PLATFORM, platform_at},
        {AT_NULL, 0},
    };
    _Static_assert(sizeof entries <= sizeof s->auxv, "the auxiliary vector fits");
    memcpy(s->auxv, entries, sizeof entries);
    return s->auxv_size = sizeof entries;
}

/*
 * The mapping as the kernel leaves it: some room below the strings as far as the limit allows, and in any case what is
 * filled.
 */
static int map_stack(struct space *s, const struct program *p, uint64_t strings, uint64_t filled)
{
    uint64_t limit = PAGE_DOWN(stack_limit()), size = PAGE_UP(strings) + STACK_AHEAD;
    if (size > limit)
        size = limit;
    if (size < PAGE_UP(filled))
        size = PAGE_UP(filled);
    s->stack_low = s->stack_high - size;
    struct vma v = {.start = s->stack_low,
                    .end = s->stack_high,
                    .prot = PROT_READ | PROT_WRITE | (p->executable_stack ? PROT_EXEC : 0),
                    .growsdown = true};
    if (!space_free(s, v.start, v.end - v.start))
        return -ENOMEM;
    return change_map(s, &v, -1, MAP_NORESERVE);
}

int stack_build(struct space *s, const struct program *p, char **argv, char **envp,
                const struct elf_place *image, const struct elf_place *interpreter, uint64_t *sp)
{
    struct strings args = arguments(p, argv), env = environment(envp);
    uint64_t strings =
        (uint64_t)strings_size(&args) + (uint64_t)strings_size(&env) + strlen(p->filename) + 1 + 8;
    uint64_t vectors = (args.count + (uint64_t)env.count + 3) * sizeof(uint64_t) + sizeof s->auxv;
    int error = map_stack(s, p, strings, strings + vectors + FIXED_MAX);
    if (error)
        return error;
    uint8_t random[16];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return -EIO;

    struct builder b = {.at = s->stack_high};
    push(&b, &(uint64_t){0}, sizeof(uint64_t));
    uint64_t execfn = push(&b, p->filename, strlen(p->filename) + 1);
    s->env_end = b.at;
    push_strings(&b, &env);
    s->env_start = s->arg_end = b.at;
    push_strings(&b, &args);
    s->arg_start = b.at;
    b.at &= ~15ull;
    uint64_t platform_at = push(&b, platform, sizeof platform);
    uint64_t random_at = push(&b, random, sizeof random);
    uint32_t size = fill_auxv(s, p, image, interpreter, execfn, platform_at, random_at);

    uint64_t count = args.count;
    *sp = (b.at - (count + 1 + env.count + 1 + 1) * sizeof(uint64_t) - size) & ~15ull;
    uint64_t slot = *sp;
    if (!b.error)
        b.error = guest_write(slot, &count, sizeof count);
    slot = write_pointers(&b, slot + sizeof count, &args, s->arg_start);
    slot = write_pointers(&b, slot, &env, s->env_start);
    if (!b.error)
        b.error = guest_write(slot, s->auxv, size);
    effect_add(engine.task, *sp, s->stack_high - *sp);
    return b.error;
}
