/* host.c: the one place where the host's processor is asked. See cpu.h. */
#include <cpuid.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/features.h"

/* In a virtual machine every CPUID is an exit to the hypervisor: no leaf is asked for twice. */
static uint32_t max_basic, max_extended;

static struct cpu_leaf ask(uint32_t leaf, uint32_t sub)
{
    struct cpu_leaf r = {0};
    if (leaf <= (leaf >> 31 ? max_extended : max_basic))
        __cpuid_count(leaf, sub, r.a, r.b, r.c, r.d);
    return r;
}

static uint64_t ask_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* For tests of what happens on lesser machines. */
static void hide(struct cpu_host *host, const char *text)
{
    struct cpu_choice c;
    struct cpu_leaf shown[LEAF_COUNT] = {0};
    char problem[200];
    if (!cpu_choose(text, host, &c, problem, sizeof problem))
        return;
    for (int i = 0; i < CPU_FEATURES; i++) {
        const struct cpu_row *r = &cpu_rows[i];
        uint32_t *to = cpu_register(&shown[r->leaf], r->reg);
        if (c.features & CPU_BIT(i))
            *to |= *cpu_register(&host->leaf[r->leaf], r->reg) & 1u << r->bit;
    }
    memcpy(host->leaf, shown, sizeof shown);
}

void cpu_host_ask(struct cpu_host *host)
{
    max_basic = __get_cpuid_max(0, NULL);
    max_extended = __get_cpuid_max(0x80000000, NULL);
    *host = (struct cpu_host){
        .leaf = {[LEAF_1] = ask(1, 0),
                 [LEAF_7] = ask(7, 0),
                 [LEAF_EXT1] = ask(0x80000001, 0),
                 [LEAF_EXT8] = ask(0x80000008, 0)},
    };
    if (host->leaf[LEAF_7].a)
        host->leaf[LEAF_7_1] = ask(7, 1);
    if (host->leaf[LEAF_1].c & bit_OSXSAVE) {
        host->xcr0 = ask_xcr0();
        host->layout.offset[2] = 576; /* on all processors */
        for (uint32_t i = 3; i < CPU_COMPONENTS; i++)
            if (host->xcr0 & CPU_KEPT & 1u << i)
                host->layout.offset[i] = ask(0xd, i).b;
    }
    const char *test = getenv("CLIO_TEST_HOST_CPU");
    if (test)
        hide(host, test);
}
