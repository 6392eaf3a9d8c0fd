/* Code above 4 GiB and at odd places: mapped, written, run; calls to and from it. */
// VARIANTS: o2 nopie static
#include "guest.h"

static uint64_t helper(uint64_t x)
{
    return x * 2 + 1;
}

static uint8_t *emit64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, 8);
    return p + 8;
}

static const struct {
    const char *name;
    uint64_t address;
} places[] = {
    {"kernel's choice", 0},
    {"just above 4 GiB", 0x100000000ull},
    {"at 1 TiB", 0x10000000000ull},
    {"at 16 TiB", 0x100000400000ull},
};

/* mov rax, rdi; add rax, [rip+data]; a loop; movabs r11, helper; call r11; ret */
static uint64_t (*build(uint8_t *code))(uint64_t)
{
    static const uint8_t head[] = {0x53,                               /* push rbx */
                                   0x48, 0x89, 0xf8,                   /* mov rax, rdi */
                                   0x48, 0x03, 0x05, 0xf5, 0x0f, 0, 0, /* add rax, [rip+0xff5] */
                                   0xb9, 10,   0,    0,    0,          /* mov ecx, 10 */
                                   0x48, 0xff, 0xc0,                   /* inc rax */
                                   0xff, 0xc9,                         /* dec ecx */
                                   0x75, 0xf9,                         /* jnz -7 */
                                   0x48, 0x89, 0xc7,                   /* mov rdi, rax */
                                   0x49, 0xbb};                        /* movabs r11, */
    static const uint8_t tail[] = {0x41, 0xff, 0xd3, 0x5b, 0xc3};      /* call r11; pop rbx; ret */
    memcpy(code, head, sizeof head);
    uint8_t *p = emit64(code + sizeof head, (uint64_t)helper);
    memcpy(p, tail, sizeof tail);
    uint64_t data = 100;
    memcpy(code + 11 + 0xff5, &data, 8);
    return (uint64_t(*)(uint64_t))code;
}

int main(void)
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint8_t *code = mmap((void *)places[i].address, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (code == MAP_FAILED) {
            ok(false, "%s: mmap: %s", places[i].name, strerror(errno));
            continue;
        }
        uint64_t (*f)(uint64_t) = build(code);
        uint64_t sum = 0;
        for (uint64_t n = 0; n < 1000; n++)
            sum += f(n);
        ok(sum == 1000 * 221 + 999 * 1000, "%s", places[i].name);
        munmap(code, 8192);
    }
    /* code that crosses a page boundary, the second page mapped apart */
    uint8_t *two = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int offset = 4096 - 10; offset <= 4096; offset++) {
        static const uint8_t body[] = {0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xc3}; /* movabs rax; ret */
        memcpy(two + offset, body, sizeof body);
        uint64_t v = ((uint64_t(*)(void))(two + offset))();
        ok(v == 0x0807060504030201ull, "code over a page boundary at %d", offset);
    }
    return finish();
}
