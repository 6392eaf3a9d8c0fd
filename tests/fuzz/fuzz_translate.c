/*
 * fuzz_translate SEED: writes one random program's code as an assembly file to stdout.
 * fuzz_translate check FILE ADDRESS: is stdin, the answer to `clio query DB last-write ADDRESS+SIZE --json`,
 * right for the SIZE bytes of FILE, what lay there at the end? Every byte must have a last write, and its
 * value must be that write's.
 *
 * The code is deterministic natively, whatever runs it: it reads nothing but registers, its arena, its own
 * data and its thread-local buffer, all at fixed addresses, and no flag that the instruction set leaves
 * undefined. tests/fuzz/ translate_guest.c is its frame: it copies the blob [gen_begin, gen_end) to gen_base,
 * calls gen_main there and prints what the checkpoints saw.
 *
 *   r15   the arena, ARENA_SIZE bytes, a page without access behind it
 *   r14   cells: the CELL_ offsets below, then one loop counter for each loop
 *   rsp   a stack of the frame's
 *
 * `call checkpoint` is followed by the mask of the flags that are defined there; it returns behind that.
 *
 * The generator follows which flags are defined. At labels that are reached from several places that is the
 * intersection. Functions call only functions generated before them, so every call ends; loops have counters
 * in memory.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CF = 1, PF = 4, AF = 0x10, ZF = 0x40, SF = 0x80, OF = 0x800, ALL = 0x8d5 };
enum {
    CELL_CHECKPOINT = 0,
    CELL_FUEL = 8,
    CELL_RESUME = 16,
    CELL_SAVE = 24,
    CELL_JUMP = 32,
    CELL_LOOPS = 64
};
enum { ARENA_SIZE = 8192, FUNCTIONS_MAX = 8, DEPTH_MAX = 3, TABLE_MAX = 64 };

struct function {
    unsigned entry, result; /* flags defined at entry, at return */
    unsigned pops;          /* bytes that its ret removes */
};

static struct {
    uint64_t random;
    unsigned defined; /* flags */
    unsigned label, loops, tables, faults;
    int depth, function;
    bool smc, unaligned; /* code is writable; rsp is no multiple of 8 */
    struct function functions[FUNCTIONS_MAX];
    char data[65536];
    size_t data_used;
} g;

static uint64_t next_random(void)
{
    uint64_t z = (g.random += 0x9e3779b97f4a7c15ull);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static unsigned pick(unsigned n)
{
    return (unsigned)(next_random() % n);
}

static bool chance(unsigned percent)
{
    return pick(100) < percent;
}

static void out(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void out(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    putchar('\t');
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

static void data(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void data(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g.data_used += (size_t)vsnprintf(g.data + g.data_used, sizeof g.data - g.data_used, format, args);
    va_end(args);
    if (g.data_used >= sizeof g.data)
        abort();
}

static void place(unsigned label)
{
    printf("L%u:\n", label);
}

/* ---- operands ---- */

static const char *const names[4][16] = {
    {"al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil", "r8b", "r9b", "r10b", "r11b", "r12b", "r13b", "r14b",
     "r15b"},
    {"ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8w", "r9w", "r10w", "r11w", "r12w", "r13w", "r14w",
     "r15w"},
    {"eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d", "r13d",
     "r14d", "r15d"},
    {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
     "r15"},
};
static const char *const sizes[6] = {"byte ptr",  "word ptr",    "dword ptr",
                                     "qword ptr", "xmmword ptr", "ymmword ptr"};

/* A general register that code may change. */
static unsigned reg(void)
{
    static const unsigned usable[] = {0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    return usable[pick(13)];
}

static unsigned reg_but(unsigned a, unsigned b)
{
    unsigned r;
    do
        r = reg();
    while (r == a || r == b);
    return r;
}

static const char *name(int size, unsigned r)
{
    return names[size][r];
}

/* Memory of 1 << size bytes in the arena, the blob's data or the thread's buffer; may load an index register
 * first. */
static void memory(char *to, size_t room, int size, unsigned busy)
{
    unsigned i, disp = pick(2000);
    if (size >= 4 || chance(30))
        disp &= ~31u;
    switch (pick(9)) {
    case 0:
    case 1:
        snprintf(to, room, "%s [rip + gen_data + %u]", sizes[size], disp);
        return;
    case 2:
        snprintf(to, room, "%s fs:[tls_buffer@tpoff + %u]", sizes[size], disp);
        return;
    case 3:
        snprintf(to, room, "%s [r15d + %u]", sizes[size], disp);
        return;
    case 4:
    case 5:
        if (size >= 4)
            break;
        i = reg_but(busy, busy);
        out("movzx %s, %s", name(2, i), name(0, i));
        snprintf(to, room, "%s [r15 + %s*%u + %u]", sizes[size], name(3, i), 1u << pick(4), disp);
        return;
    case 6:
        i = reg_but(busy, busy);
        out("lea %s, [r15 + %u]", name(3, i), disp);
        snprintf(to, room, "%s [%s + 64]", sizes[size], name(3, i));
        return;
    default:
        break;
    }
    snprintf(to, room, "%s [r15 + %u]", sizes[size], disp);
}

static uint64_t immediate(int size)
{
    static const uint64_t edges[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0xffffffff};
    uint64_t v = chance(50) ? edges[pick(10)] : next_random();
    return size == 0 ? v & 0x7f : size == 1 ? v & 0x7fff : v & 0x7fffffff;
}

/* ---- flags ---- */

static void define_all(void)
{
    unsigned r = reg();
    switch (pick(3)) {
    case 0:
        out("add %s, %s", name(3, r), name(3, reg()));
        break;
    case 1:
        out("cmp %s, %u", name(2, r), (unsigned)immediate(2));
        break;
    default:
        out("sub %s, %s", name(3, r), name(3, reg()));
        break;
    }
    g.defined = ALL;
}

static void need(unsigned flags)
{
    if (~g.defined & flags)
        define_all();
}

static const struct condition {
    const char *name;
    unsigned flags;
} conditions[] = {
    {"o", OF},           {"no", OF},      {"b", CF},      {"ae", CF},      {"e", ZF},
    {"ne", ZF},          {"be", CF | ZF}, {"a", CF | ZF}, {"s", SF},       {"ns", SF},
    {"p", PF},           {"np", PF},      {"l", SF | OF}, {"ge", SF | OF}, {"le", ZF | SF | OF},
    {"g", ZF | SF | OF},
};

static const struct condition *condition(void)
{
    const struct condition *c = &conditions[pick(16)];
    if (g.defined && chance(70)) /* one that is defined already, if luck has it */
        for (int i = 0; i < 8 && (~g.defined & c->flags); i++)
            c = &conditions[pick(16)];
    need(c->flags);
    return c;
}

/* ---- plain instructions ---- */

static void two_operands(const char *op, int size)
{
    char m[96];
    unsigned r = reg();
    switch (pick(5)) {
    case 0:
        memory(m, sizeof m, size, r);
        out("%s %s, %s", op, m, name(size, r));
        break;
    case 1:
        memory(m, sizeof m, size, r);
        out("%s %s, %s", op, name(size, r), m);
        break;
    case 2:
        memory(m, sizeof m, size, r);
        out("%s %s, %u", op, m, (unsigned)immediate(size));
        break;
    case 3:
        out("%s %s, %u", op, name(size, r), (unsigned)immediate(size));
        break;
    default:
        out("%s %s, %s", op, name(size, r), name(size, reg()));
        break;
    }
}

static void op_arithmetic(void)
{
    static const struct {
        const char *op;
        unsigned needs, defines;
    } ops[] = {{"add", 0, ALL},  {"sub", 0, ALL},       {"cmp", 0, ALL},      {"adc", CF, ALL},
               {"sbb", CF, ALL}, {"and", 0, ALL & ~AF}, {"or", 0, ALL & ~AF}, {"xor", 0, ALL & ~AF}};
    unsigned i = pick(8);
    int size = (int)pick(4);
    need(ops[i].needs);
    if (chance(10) && i != 2) {
        char m[96];
        memory(m, sizeof m, size, 0);
        out("lock %s %s, %s", ops[i].op, m, name(size, reg()));
    } else {
        two_operands(ops[i].op, size);
    }
    g.defined = ops[i].defines;
}

static void op_chain(void)
{
    need(CF);
    for (unsigned n = 2 + pick(4); n; n--)
        two_operands(chance(50) ? "adc" : "sbb", 2 + (int)pick(2));
    g.defined = ALL;
}

static void op_one_operand(void)
{
    static const char *const ops[] = {"inc", "dec", "neg", "not"};
    unsigned i = pick(4);
    int size = (int)pick(4);
    char m[96];
    if (chance(40)) {
        memory(m, sizeof m, size, 0);
        out("%s %s", ops[i], m);
    } else {
        out("%s %s", ops[i], name(size, reg()));
    }
    if (i < 2)
        g.defined |= ALL & ~CF;
    else if (i == 2)
        g.defined = ALL;
}

static void op_shift(void)
{
    static const char *const ops[] = {"shl", "shr", "sar", "rol", "ror", "rcl", "rcr"};
    unsigned i = pick(7), n = chance(25) ? 0 : 1 + pick(31);
    int size = 2 + (int)pick(2);
    unsigned results = i < 3 ? CF | SF | ZF | PF : CF;
    unsigned lost = i < 3 ? AF | OF : OF;
    char m[96];
    if (i >= 5)
        need(CF);
    if (chance(50)) { /* by cl: whether anything changes is not known */
        if (chance(40))
            out("mov cl, %u", n);
        unsigned r = reg_but(1, 1);
        if (chance(30)) {
            memory(m, sizeof m, size, 1);
            out("%s %s, cl", ops[i], m);
        } else {
            out("%s %s, cl", ops[i], name(size, r));
        }
        g.defined &= ~lost;
        return;
    }
    out("%s %s, %u", ops[i], name(size, reg()), n);
    if (!n)
        return;
    g.defined = ((g.defined & ~lost) | results) | (n == 1 ? OF : 0);
}

static void op_double_shift(void)
{
    unsigned n = pick(32);
    int size = 2 + (int)pick(2);
    if (chance(50)) {
        out("%s %s, %s, cl", chance(50) ? "shld" : "shrd", name(size, reg_but(1, 1)), name(size, reg()));
        g.defined &= ~(unsigned)(AF | OF);
        return;
    }
    out("%s %s, %s, %u", chance(50) ? "shld" : "shrd", name(size, reg()), name(size, reg()), n);
    if (n)
        g.defined = CF | SF | ZF | PF | (n == 1 ? OF : 0);
}

static void op_multiply(void)
{
    int size = 1 + (int)pick(3);
    char m[96];
    switch (pick(4)) {
    case 0:
        memory(m, sizeof m, size, 0);
        out("%s %s", chance(50) ? "mul" : "imul", m);
        break;
    case 1:
        out("%s %s", chance(50) ? "mul" : "imul", name(size, reg()));
        break;
    case 2:
        out("imul %s, %s", name(size, reg()), name(size, reg()));
        break;
    default:
        memory(m, sizeof m, size, 0);
        out("imul %s, %s, %u", name(size, reg()), m, (unsigned)immediate(size));
        break;
    }
    g.defined = CF | OF;
}

static void op_divide(void)
{
    int size = 2 + (int)pick(2);
    unsigned r = reg_but(0, 2);
    out("or %s, 1", name(3, r));
    if (chance(50)) {
        out("xor edx, edx");
        out("div %s", name(size, r));
    } else {
        out("shr rax, 34"); /* a small positive dividend never overflows */
        out("xor edx, edx");
        out("idiv %s", name(size, r));
    }
    g.defined = 0;
}

static void op_move(void)
{
    char m[96];
    int size = (int)pick(4);
    unsigned r = reg();
    switch (pick(10)) {
    case 0:
        out("movabs %s, %llu", name(3, r), (unsigned long long)next_random());
        break;
    case 1:
        memory(m, sizeof m, size < 2 ? size : 1, r);
        out("%s %s, %s", chance(50) ? "movzx" : "movsx", name(3, r), m);
        break;
    case 2:
        memory(m, sizeof m, 2, r);
        out("movsxd %s, %s", name(3, r), m);
        break;
    case 3:
        out("lea %s, [%s + %s*4 + %u]", name(3, r), name(3, reg()), name(3, reg()), (unsigned)immediate(2));
        break;
    case 4:
        out("bswap %s", name(3, r));
        break;
    case 5:
        memory(m, sizeof m, size, r);
        out("xchg %s, %s", m, name(size, r));
        break;
    case 6:
        memory(m, sizeof m, 3, r);
        out("movbe %s, %s", name(3, r), m);
        break;
    case 7:
        out("mov %s, ah", name(0, pick(4)));
        break;
    default:
        two_operands("mov", size);
        break;
    }
}

static void op_on_condition(void)
{
    char m[96];
    unsigned r = reg();
    memory(m, sizeof m, 3, r);
    const struct condition *c = condition();
    if (chance(50))
        out("cmov%s %s, %s", c->name, name(3, r), chance(50) ? m : name(3, reg()));
    else if (chance(50))
        out("set%s %s", c->name, name(0, r));
    else {
        memory(m, sizeof m, 0, r);
        out("set%s %s", c->name, m);
    }
}

static void op_bits(void)
{
    static const char *const ops[] = {"bt", "bts", "btr", "btc"};
    char m[96];
    unsigned r = reg(), i = pick(4);
    switch (pick(3)) {
    case 0: /* a register as offset reaches far: both ways within the arena */
        out("movsx %s, %s", name(3, r), name(0, r));
        out("%s%s %s [r15 + %u], %s", i && chance(20) ? "lock " : "", ops[i], sizes[3], 1024 + pick(2000),
            name(3, r));
        break;
    case 1:
        out("movsx %s, %s", name(2, r), name(1, r));
        out("%s %s [r15 + 4096], %s", ops[i], sizes[2], name(2, r));
        break;
    default:
        memory(m, sizeof m, 3, r);
        out("%s %s, %u", ops[i], m, pick(64));
        break;
    }
    g.defined = (g.defined & ZF) | CF;
}

static void op_scan(void)
{
    unsigned r = reg(), d = reg();
    if (chance(50)) {
        out("or %s, 0x100", name(3, r));
        out("%s %s, %s", chance(50) ? "bsf" : "bsr", name(3, d), name(3, r));
        g.defined = ZF;
    } else if (chance(50)) {
        out("%s %s, %s", chance(50) ? "lzcnt" : "tzcnt", name(3, d), name(3, r));
        g.defined = CF | ZF;
    } else {
        out("popcnt %s, %s", name(3, d), name(3, r));
        g.defined = ALL;
    }
}

static void op_bmi(void)
{
    char m[96];
    unsigned d = reg();
    int size = 2 + (int)pick(2);
    memory(m, sizeof m, size, d);
    const char *a = name(size, reg()), *b = chance(50) ? m : name(size, reg());
    switch (pick(10)) {
    case 0:
        out("andn %s, %s, %s", name(size, d), a, b);
        g.defined = SF | ZF | CF | OF;
        break;
    case 1:
        out("%s %s, %s", chance(50) ? "blsi" : "blsr", name(size, d), b);
        g.defined = SF | ZF | CF | OF;
        break;
    case 2:
        out("bextr %s, %s, %s", name(size, d), b, a);
        g.defined = ZF | CF | OF;
        break;
    case 3:
        out("bzhi %s, %s, %s", name(size, d), b, a);
        g.defined = SF | ZF | CF | OF;
        break;
    case 4:
        out("%s %s, %s, %s", chance(50) ? "pdep" : "pext", name(size, d), a, b);
        break;
    case 5:
        out("mulx %s, %s, %s", name(size, d), name(size, reg_but(d, d)), b);
        break;
    case 6:
        out("rorx %s, %s, %u", name(size, d), b, pick(32));
        break;
    case 7:
        need(CF);
        out("adcx %s, %s", name(size, d), b);
        break;
    case 8:
        need(OF);
        out("adox %s, %s", name(size, d), b);
        break;
    default:
        out("%s %s, %s, %s", chance(50) ? "shlx" : chance(50) ? "sarx" : "shrx", name(size, d), b, a);
        break;
    }
}

static void op_exchange(void)
{
    char m[96];
    int size = (int)pick(4);
    unsigned r = reg_but(0, 0);
    switch (pick(5)) {
    case 0:
        memory(m, sizeof m, size, r);
        out("%sxadd %s, %s", chance(30) ? "lock " : "", m, name(size, r));
        g.defined = ALL;
        break;
    case 1:
        memory(m, sizeof m, size, r);
        if (chance(50))
            out("mov %s, %s", name(size, 0), m);
        out("%scmpxchg %s, %s", chance(30) ? "lock " : "", m, name(size, r));
        g.defined = ALL;
        break;
    case 2:
        out("%scmpxchg16b xmmword ptr [%s + %u]", chance(30) ? "lock " : "",
            chance(50) ? "r15" : "rip + gen_data", pick(64) * 16);
        g.defined |= ZF;
        break;
    case 3:
        memory(m, sizeof m, 3, 0);
        out("cmpxchg8b %s", m);
        g.defined |= ZF;
        break;
    default:
        out("xchg %s, %s", name(size, r), name(size, reg()));
        break;
    }
}

static void op_flags(void)
{
    unsigned r = reg();
    switch (pick(7)) {
    case 0:
        need(ALL);
        out("pushfq");
        out("pop %s", name(3, r));
        break;
    case 1:
        need(ALL & ~OF);
        out("lahf");
        break;
    case 2:
        out("sahf");
        g.defined |= ALL & ~OF;
        break;
    case 3:
        out("push %u", 0x202u | (unsigned)(next_random() & ALL));
        out("popfq");
        g.defined = ALL;
        break;
    case 4:
        need(CF);
        out("cmc");
        break;
    case 5:
        out(chance(50) ? "clc" : "stc");
        g.defined |= CF;
        break;
    default:
        need(ALL);
        out("pushfw");
        out("pop %s", name(1, r));
        break;
    }
}

static void op_stack(void)
{
    char m[96];
    unsigned r = reg(), n;
    switch (pick(9)) {
    case 0:
        out("push %s", name(3, r));
        out("pop %s", name(3, reg()));
        break;
    case 1:
        memory(m, sizeof m, 3, r);
        out("push %s", m);
        memory(m, sizeof m, 3, r);
        out("pop %s", m);
        break;
    case 2:
        out("push %d", (int)immediate(2) - (int)immediate(2));
        out("pop %s", name(3, r));
        break;
    case 3: /* the red zone */
        n = 8 * (1 + pick(16));
        out("mov [rsp - %u], %s", n, name(3, r));
        out("mov %s, [rsp - %u]", name(3, reg()), n);
        break;
    case 4:
        out("push rbp");
        out("enter %u, %u", 16 * pick(4), pick(2));
        out("mov [rbp - 8], %s", name(3, reg_but(5, 5)));
        out("leave");
        out("pop rbp");
        break;
    case 5:
        out("push rsp");
        out("pop %s", name(3, r));
        break;
    case 6: /* the address counts from rsp after the pop */
        out("lea rsp, [rsp - 32]");
        out("push %s", name(3, r));
        out("pop qword ptr [rsp + 16]");
        out("mov %s, [rsp + 16]", name(3, reg()));
        out("lea rsp, [rsp + 32]");
        break;
    case 7:
        out("push %s", name(1, r));
        out("pop %s", name(1, reg()));
        break;
    default:
        out("push %s", name(3, r));
        out("push qword ptr [rsp]");
        out("pop %s", name(3, reg()));
        out("lea rsp, [rsp + 8]");
        break;
    }
}

static void op_string(void)
{
    static const char letters[] = "bwdq";
    char width = letters[pick(4)];
    unsigned count = pick(4) ? pick(40) : 0;
    bool down = chance(40), repeats = chance(70);
    if (down)
        out("std");
    out("lea rdi, [r15 + %u]", 1024 + pick(2048));
    out("lea rsi, [r15 + %u]", 1024 + pick(2048));
    out("mov ecx, %u", count);
    switch (pick(5)) {
    case 0:
        out("%smovs%c", repeats ? "rep " : "", width);
        break;
    case 1:
        out("%sstos%c", repeats ? "rep " : "", width);
        break;
    case 2:
        out("%slods%c", repeats ? "rep " : "", width);
        break;
    case 3:
        out("%sscas%c", !repeats ? "" : chance(50) ? "repe " : "repne ", width);
        if (!repeats || count)
            g.defined = ALL;
        break;
    default:
        out("%scmps%c", !repeats ? "" : chance(50) ? "repe " : "repne ", width);
        if (!repeats || count)
            g.defined = ALL;
        break;
    }
    if (down)
        out("cld");
}

static void op_vector(void)
{
    static const char *const integer[] = {"vpaddd",   "vpsubq",     "vpxor",    "vpmulld", "vpshufb",
                                          "vpcmpeqb", "vpunpcklbw", "vpmaddwd", "vpminub", "vpsllvd"};
    static const char *const floating[] = {"vaddps", "vmulpd", "vsubps", "vmaxpd", "vdivps", "vunpckhps"};
    static const char *const fused[] = {"vfmadd213ps", "vfmsub231pd", "vfnmadd132ps"};
    static const char *const sse[] = {"paddd",  "mulps",  "addpd",    "pxor",
                                      "pshufb", "sqrtps", "cvtps2dq", "packuswb"};
    bool wide = chance(50);
    int size = wide ? 5 : 4;
    char m[96];
    unsigned d = pick(16), a = pick(16), b = pick(16), r = reg();
    char letter = wide ? 'y' : 'x';
    memory(m, sizeof m, size, r);
    switch (pick(13)) {
    case 0:
        out("vmovdqu %cmm%u, %s", letter, d, m);
        break;
    case 1:
        out("vmovdqu %s, %cmm%u", m, letter, d);
        break;
    case 2:
        out("%s %cmm%u, %cmm%u, %s", integer[pick(10)], letter, d, letter, a, m);
        break;
    case 3:
        out("%s %cmm%u, %cmm%u, %cmm%u", floating[pick(6)], letter, d, letter, a, letter, b);
        break;
    case 4:
        out("%s %cmm%u, %cmm%u, %s", fused[pick(3)], letter, d, letter, a, m);
        break;
    case 5:
        memory(m, sizeof m, 4, r);
        out("movdqu xmm%u, %s", a, m);
        out("%s xmm%u, xmm%u", sse[pick(8)], d, a);
        break;
    case 6:
        out("movq xmm%u, %s", d, name(3, r));
        break;
    case 7:
        out("vpextrq %s, xmm%u, %u", name(3, r), a, pick(2));
        break;
    case 8:
        out("vptest %cmm%u, %cmm%u", letter, a, letter, b);
        g.defined = ALL;
        break;
    case 9:
        out("%s xmm%u, xmm%u", chance(50) ? "ucomisd" : "vcomiss", a, b);
        g.defined = ALL;
        break;
    case 10:
        out("vpmaskmovd %s [r15 + %u], %cmm%u, %cmm%u", sizes[size], pick(1000), letter, a, letter, b);
        break;
    case 11:
        break;
    default:
        out("vzeroupper");
        break;
    }
}

/* Gathering with random indexes would leave the arena: make them small first. */
static void op_gather(void)
{
    unsigned d = pick(14);
    out("vpsrld xmm%u, xmm%u, 20", d + 1, d + 1);
    out("vpcmpeqd xmm%u, xmm%u, xmm%u", d + 2, d + 2, d + 2);
    out("vpgatherdd xmm%u, dword ptr [r15 + xmm%u*1], xmm%u", d, d + 1, d + 2);
}

static void op_vector_safe(void)
{
    if (chance(5))
        op_gather();
    else
        op_vector();
}

static void op_x87(void)
{
    char m[96];
    static const char *const ops[] = {"faddp", "fmulp", "fsubp", "fdivp"};
    memory(m, sizeof m, chance(50) ? 2 : 3, 16);
    out("fild %s", m);
    memory(m, sizeof m, 3, 16);
    out("fld %s", m);
    out("%s", ops[pick(4)]);
    if (chance(30)) {
        out("fldpi");
        out("fcomip st, st(1)");
        g.defined = ZF | PF | CF;
    }
    memory(m, sizeof m, 3, 16);
    if (chance(70))
        out("fstp %s", m);
    else
        out("fstp tbyte ptr [r15 + %u]", pick(2000));
}

/* ---- system calls ---- */

static void op_syscall(void)
{
    need(ALL); /* r11 receives the flags */
    switch (pick(5)) {
    case 0:
        out("mov eax, 3");
        out("mov edi, -1");
        out("syscall"); /* close: EBADF */
        break;
    case 1:
        out("mov eax, 110");
        out("syscall"); /* getppid */
        out("mov eax, 1");
        break;
    case 2:
        out("mov eax, 24");
        out("syscall"); /* sched_yield */
        break;
    case 3: /* reads zeros from descriptor 50 */
        out("xor eax, eax");
        out("mov edi, 50");
        out("lea rsi, [r15 + %u]", pick(3000));
        out("mov edx, %u", pick(200));
        need(ALL);
        out("cmp edi, edx");
        out("syscall");
        break;
    default:
        out("mov eax, 99999");
        out("syscall"); /* ENOSYS */
        break;
    }
}

/* Instructions that a recording keeps; what they give is overwritten. */
static void op_recorded(void)
{
    switch (pick(4)) {
    case 0:
        out("rdtsc");
        break;
    case 1:
        out("xor ecx, ecx");
        out("mov eax, %u", pick(8));
        out("cpuid");
        out("mov ebx, 1");
        g.defined = CF | PF | ZF | SF | OF;
        break;
    case 2:
        out("xor ecx, ecx");
        out("xgetbv");
        g.defined = CF | PF | ZF | SF | OF;
        break;
    default:
        out("rdtscp");
        break;
    }
    out("mov eax, %u", pick(100));
    out("mov ecx, %u", pick(100));
    out("mov edx, %u", pick(100));
}

/* ---- faults ---- */

/* The handler logs the state and goes on at label `resume`. */
static void fault_site(unsigned site, unsigned resume)
{
    g.faults++;
    printf("\t.pushsection .faults, \"a\"\n\t.quad L%u - gen_begin, L%u - gen_begin\n\t.popsection\n", site,
           resume);
}

static void set_resume(unsigned resume, unsigned r)
{
    out("lea %s, [rip + L%u]", name(3, r), resume);
    out("mov [r14 + %d], %s", CELL_RESUME, name(3, r));
}

static void op_fetch_fault(void)
{
    unsigned resume = g.label++, r = reg(), kind = pick(5);
    set_resume(resume, r);
    out("mov [r14 + %d], rsp", CELL_SAVE);
    if (chance(50))
        out("mov %s, r15", name(3, r)); /* not executable */
    else
        out("mov %s, %u", name(2, r), chance(20) ? 0 : 0x1000 + pick(0x1000));
    out("mov [r14 + %d], %s", CELL_JUMP, name(3, r));
    define_all();
    out("mov %s, [r14 + %d]", name(3, r), CELL_JUMP);
    switch (kind) {
    case 0:
        out("jmp %s", name(3, r));
        break;
    case 1:
        out("call %s", name(3, r));
        break;
    case 2:
        out("jmp qword ptr [r14 + %d]", CELL_JUMP);
        break;
    case 3:
        out("call qword ptr [r14 + %d]", CELL_JUMP);
        break;
    default:
        out("push %s", name(3, r));
        out("ret");
        break;
    }
    place(resume);
    out("mov rsp, [r14 + %d]", CELL_SAVE);
}

static void op_stack_fault(void)
{
    unsigned site = g.label++, resume = g.label++, r = reg();
    out("mov [r14 + %d], rsp", CELL_SAVE);
    define_all();
    out("mov esp, 0x3000");
    place(site);
    switch (pick(7)) {
    case 0:
        out("push %s", name(3, r));
        break;
    case 1:
        out("pop %s", name(3, r));
        break;
    case 2:
        out("call checkpoint_stub");
        break;
    case 3:
        out("call qword ptr [r14 + %d]", CELL_CHECKPOINT);
        break;
    case 4:
        out("ret");
        break;
    case 5:
        out("ret 16");
        break;
    default:
        out("pushfq");
        break;
    }
    place(resume);
    out("mov rsp, [r14 + %d]", CELL_SAVE);
    fault_site(site, resume);
}

static void op_data_fault(void)
{
    unsigned site = g.label++, resume = g.label++, r = reg(), kind = pick(15);
    char letter = chance(50) ? 'x' : 'y';
    if (kind == 8)
        out("xor %s, %s", name(2, r), name(2, r));
    if (kind == 9) {
        out("lea rdi, [r15 + %u]", ARENA_SIZE - 100);
        out("mov ecx, 400");
    }
    define_all();
    if (kind == 7)
        out("mov %s, 0x1000", name(2, r));
    if (kind == 12)
        out("movabs %s, 0x8000000000000000", name(3, r));
    place(site);
    switch (kind) {
    case 0:
        out("mov %s, [0x2008]", name(3, r));
        break;
    case 1:
        out("add [0x2008], %s", name(2, r));
        break;
    case 2:
        out("mov [rip + gen_readonly + %u], %s", pick(1000), name(3, r));
        break;
    case 3:
        out("vmovups [rip + gen_readonly + %u], %cmm%u", pick(1000), letter, pick(16));
        break;
    case 4:
        out("xadd [rip + gen_readonly + %u], %s", pick(1000), name(3, r));
        break;
    case 5:
        out("jmp qword ptr [0x3000]");
        break;
    case 6:
        out("call qword ptr [0x3000]");
        break;
    case 7:
        out("call qword ptr [%s]", name(3, r));
        break;
    case 8:
        out("div %s", name(2, r));
        break;
    case 9:
        out("rep %s", chance(50) ? "stosb" : "stosq");
        break;
    case 10:
        out("ud2");
        break;
    case 11:
        out("int3");
        break;
    case 12:
        out("mov %s, [%s]", name(3, reg()), name(3, r));
        break;
    case 13:
        out("movaps xmm%u, [r15 + 1]", pick(16));
        break;
    default:
        out("hlt");
        break;
    }
    place(resume);
    fault_site(site, resume);
    g.defined = 0;
}

static void op_fault(void)
{
    if (chance(25))
        op_fetch_fault();
    else if (chance(35))
        op_stack_fault();
    else
        op_data_fault();
    define_all();
}

/* ---- code that changes itself ---- */

static void op_self_modify(void)
{
    unsigned target = g.label++, r = reg(), over = g.label++;
    if (!g.smc)
        return;
    switch (pick(6)) {
    case 0: /* the next instruction but one */
        out("mov dword ptr [rip + L%u + 1], %u", target, (unsigned)immediate(2));
        break;
    case 1:
        out("mov byte ptr [rip + L%u + 1], %s", target, name(0, pick(4)));
        out("jmp L%u", target);
        break;
    case 2:
        out("lea rdi, [rip + L%u + 1]", target);
        out("mov ecx, 4");
        out("rep stosb");
        break;
    case 3: /* another block of the same page */
        out("xchg [rip + L%u + 1], %s", target, name(2, r));
        if (chance(50)) {
            out("mov rcx, [r14 + %d]", CELL_FUEL);
            out("jrcxz L%u", target);
        }
        break;
    case 4: /* by the kernel */
        out("xor eax, eax");
        out("mov edi, 50");
        out("lea rsi, [rip + L%u + 1]", target);
        out("mov edx, 4");
        out("cmp edx, edi");
        out("syscall");
        g.defined = ALL;
        break;
    default:
        out("movd xmm0, %s", name(2, r));
        out("movd [rip + L%u + 1], xmm0", target);
        out("jmp L%u", target);
        break;
    }
    if (chance(30)) {
        out("jmp L%u", over);
        place(over);
    }
    place(target);
    out("mov eax, %u", (unsigned)immediate(2) | 0x10000);
}

/* ---- shapes ---- */

static void body(unsigned n);

static void checkpoint(void)
{
    switch (pick(4)) {
    case 0:
        out("call qword ptr [r14 + %d]", CELL_CHECKPOINT);
        break;
    case 1:
        out("call qword ptr [rip + checkpoint_cell]");
        break;
    default:
        out("call checkpoint_stub");
        break;
    }
    out(".long 0x%x", g.defined);
}

/* if: over a part, or one of two */
static void shape_if(void)
{
    unsigned other = g.label++, end = g.label++;
    const struct condition *c = condition();
    out("j%s L%u", c->name, other);
    unsigned before = g.defined;
    body(1 + pick(4));
    unsigned after = g.defined;
    bool two = chance(50);
    if (two)
        out("jmp L%u", end);
    place(other);
    g.defined = before;
    if (two) {
        body(1 + pick(3));
        place(end);
    }
    g.defined &= after;
}

/* A backward loop; flags live at its head in one form. */
static void shape_loop(void)
{
    unsigned head = g.label++, out_of = g.label++, again = g.label++, cell = CELL_LOOPS + 8 * g.loops++;
    unsigned kind = pick(6);
    out("mov qword ptr [r14 + %u], %u", cell, 2 + pick(5));
    if (kind == 0 || kind == 5)
        define_all();
    else
        g.defined = 0;
    place(head);
    body(1 + pick(4));
    switch (kind) {
    case 0: /* flags go round */
        need(ALL);
        out("mov rcx, [r14 + %u]", cell);
        out("lea rcx, [rcx - 1]");
        out("mov [r14 + %u], rcx", cell);
        out("jrcxz L%u", again);
        out("jmp L%u", head);
        place(again);
        break;
    case 1:
        out("mov rcx, [r14 + %u]", cell);
        out("lea rdx, [rcx - 1]");
        out("mov [r14 + %u], rdx", cell);
        out("loop L%u", again);
        out("jmp L%u", out_of);
        place(again);
        out("jmp L%u", head);
        g.defined = 0;
        break;
    case 2:
        out("sub qword ptr [r14 + %u], 1", cell);
        out("%s L%u", chance(50) ? "ja" : "jnz", head);
        g.defined = ALL;
        break;
    case 3:
        out("dec qword ptr [r14 + %u]", cell);
        out("jle L%u", out_of);
        out("lea %s, [rip + L%u]", name(3, 0), head);
        out("jmp rax");
        g.defined = 0;
        break;
    case 4:
        out("mov rcx, [r14 + %u]", cell);
        out("lea rdx, [rcx - 1]");
        out("mov [r14 + %u], rdx", cell);
        out("cmp rcx, rcx");
        out("%s L%u", chance(50) ? "loope" : "loop", again);
        out("jmp L%u", out_of);
        place(again);
        out("jmp L%u", head);
        g.defined = ALL;
        break;
    default: /* flags go round through an indirect jump */
        need(ALL);
        out("mov rcx, [r14 + %u]", cell);
        out("lea ecx, [rcx - 1]");
        out("mov [r14 + %u], rcx", cell);
        out("%s L%u", chance(50) ? "jrcxz" : "jecxz", again);
        out("lea rdi, [rip + L%u]", head);
        if (chance(50)) {
            out("push rdi");
            out("ret");
        } else {
            out("jmp rdi");
        }
        place(again);
        break;
    }
    place(out_of);
}

/* One of four targets through a table in the blob's data; without changing flags. */
static void shape_table(void)
{
    unsigned end = g.label++, first = g.label, n = 4, kind = pick(6), r = reg_but(6, 7);
    if (g.tables == TABLE_MAX)
        return;
    g.label += n;
    unsigned table = g.tables++;
    data("table%u:\n", table);
    for (unsigned i = 0; i < n; i++)
        data("\t.quad L%u\n", first + i);
    out("mov esi, 3");
    out("pext rdi, %s, rsi", name(3, r));
    out("lea rsi, [rip + table%u]", table);
    if (kind == 0) {
        out("jmp qword ptr [rsi + rdi*8]");
    } else if (kind == 1) {
        out("mov rdi, [rsi + rdi*8]");
        out("jmp rdi");
    } else if (kind == 2) {
        out("push qword ptr [rsi + rdi*8]");
        out("ret");
    } else if (kind == 3) {
        out("mov rcx, rdi");
        out("jmp qword ptr [rsi + rcx*8]");
    } else if (kind == 4) {
        out("mov r9, rsi");
        out("mov r12, rdi");
        out("jmp qword ptr [r9 + r12*8]");
    } else {
        out("mov rdi, [rsi + rdi*8]");
        out("mov [rsp - 8], rdi");
        out("jmp qword ptr [rsp - 8]");
    }
    unsigned before = g.defined, after = ALL;
    for (unsigned i = 0; i < n; i++) {
        place(first + i);
        g.defined = before;
        body(1 + pick(2));
        after &= g.defined;
        if (i + 1 < n)
            out("jmp L%u", end);
    }
    place(end);
    g.defined = after;
}

static void shape_call(void)
{
    if (!g.function)
        return;
    unsigned f = pick((unsigned)g.function), kind = pick(13);
    const struct function *to = &g.functions[f];
    if (to->pops)
        out("lea rsp, [rsp - %u]", to->pops);
    need(to->entry);
    switch (kind) {
    case 0:
        out("lea rsi, [rip + function%u]", f);
        out("call rsi");
        break;
    case 1:
        out("call qword ptr [rip + cell%u]", f);
        break;
    case 2:
        out("mov edi, %u", f);
        out("lea rsi, [rip + functions]");
        out("call qword ptr [rsi + rdi*8]");
        break;
    case 3:
        out("mov rdi, [rip + cell%u]", f);
        out("mov [rsp - 64], rdi");
        out("call qword ptr [rsp - 64]");
        break;
    case 4:
        out("lea rcx, [rip + function%u]", f);
        out("call rcx");
        break;
    case 5:
        out("mov r11d, %u", f);
        out("lea rcx, [rip + functions]");
        out("call qword ptr [rcx + r11*8]");
        break;
    case 6:
        out("lea rsi, [rip + function%u]", f);
        out("mov fs:[tls_buffer@tpoff + 8184], rsi");
        out("call qword ptr fs:[tls_buffer@tpoff + 8184]");
        break;
    case 7: /* the target lies where the return address goes */
        out("lea rsi, [rip + function%u]", f);
        out("push rsi");
        out("lea rsp, [rsp + 8]");
        out("call qword ptr [rsp - 8]");
        break;
    case 8:
        out("lea rsi, [rip + function%u]", f);
        out("mov [r14 + %d], rsi", CELL_JUMP);
        out("call qword ptr [r14d + %d]", CELL_JUMP);
        break;
    default:
        out("call function%u", f);
        break;
    }
    g.defined = to->result;
    if (to->pops && chance(50))
        need(ALL);
}

static void shape_unaligned(void)
{
    unsigned n = 1 + pick(7);
    bool outer = g.unaligned;
    if (outer)
        return;
    g.unaligned = true;
    out("lea rsp, [rsp - %u]", n);
    body(1 + pick(4));
    out("lea rsp, [rsp + %u]", n);
    g.unaligned = outer;
}

/* Forward branches with nothing behind them but more branches. */
static void shape_ladder(void)
{
    unsigned end = g.label++, n = 2 + pick(5);
    need(ALL);
    for (unsigned i = 0; i < n; i++) {
        const struct condition *c = condition();
        unsigned skip = g.label++;
        out("j%s L%u", c->name, skip);
        out("lea %s, [%s + %u]", name(3, 3), name(3, 3), i);
        if (chance(30))
            out("jmp L%u", end);
        place(skip);
    }
    place(end);
}

static void one(void)
{
    static void (*const ops[])(void) = {
        op_arithmetic,  op_arithmetic,   op_arithmetic,   op_chain,  op_one_operand, op_shift,
        op_shift,       op_double_shift, op_multiply,     op_divide, op_move,        op_move,
        op_move,        op_on_condition, op_on_condition, op_bits,   op_scan,        op_bmi,
        op_exchange,    op_flags,        op_flags,        op_stack,  op_stack,       op_string,
        op_vector_safe, op_vector_safe,  op_x87,
    };
    static void (*const shapes[])(void) = {shape_if,   shape_if,   shape_loop,      shape_table,
                                           shape_call, shape_call, shape_unaligned, shape_ladder};
    unsigned what = pick(100);
    if (what < 14 && g.depth < DEPTH_MAX) {
        g.depth++;
        shapes[pick(8)]();
        g.depth--;
    } else if (what < 17) {
        op_fault();
    } else if (what < 19) {
        op_syscall();
    } else if (what < 20) {
        op_recorded();
    } else if (what < 23) {
        op_self_modify();
    } else if (what < 30) {
        checkpoint();
    } else {
        ops[pick(sizeof ops / sizeof *ops)]();
    }
}

static void body(unsigned n)
{
    while (n--)
        one();
}

static void function(unsigned number)
{
    struct function *f = &g.functions[number];
    unsigned empty = g.label++, out_of_fuel = g.label++, go = g.label++;
    *f = (struct function){.entry = chance(50) ? ALL : 0, .pops = chance(30) ? 8 * (1 + pick(3)) : 0};
    g.function = (int)number;
    printf("\n\t.p2align %u\nfunction%u:\n", pick(5), number);
    out("mov rcx, [r14 + %d]", CELL_FUEL);
    out("jrcxz L%u", out_of_fuel);
    out("jmp L%u", go);
    place(out_of_fuel);
    out("jmp L%u", empty);
    place(go);
    out("lea rcx, [rcx - 1]");
    out("mov [r14 + %d], rcx", CELL_FUEL);
    g.defined = f->entry;
    body(6 + pick(30));
    if (chance(50))
        need(ALL);
    f->result = g.defined;
    if (f->pops)
        out("ret %u", f->pops);
    else
        out("ret");
    place(empty);
    define_all();
    if (f->pops)
        out("ret %u", f->pops);
    else
        out("%sret", chance(20) ? "rep " : "");
}

static void main_function(void)
{
    out(".globl gen_main");
    printf("gen_main:\n");
    g.function = FUNCTIONS_MAX;
    g.defined = 0;
    for (int i = 0; i < 3; i++) {
        body(12 + pick(20));
        checkpoint();
    }
    out("ret");
}

static void data_section(void)
{
    printf("\n\t.globl gen_code_end\ngen_code_end:\n\t.section .gendata, \"aw\"\n\t.p2align 12\n\t.globl "
           "gen_data\ngen_data:\n");
    for (int i = 0; i < 512; i++)
        out(".quad 0x%llx", (unsigned long long)next_random());
    printf("\t.globl gen_pointers\ngen_pointers:\ncheckpoint_cell:\n\t.quad 0\nfunctions:\n");
    for (int i = 0; i < FUNCTIONS_MAX; i++)
        printf("cell%d:\t.quad function%d\n", i, i);
    printf("%s\t.quad 0\n\t.p2align 12\n\t.globl gen_readonly\ngen_readonly:\n\t.fill 4096, 1, 0x5a\n",
           g.data);
}

/* ---- the check ---- */

static struct check {
    uint64_t base, size;
    uint8_t bytes[65536];
    bool known[65536];
} c;

struct answer {
    uint64_t address, length;
    bool map; /* the mapping is what set the bytes, or it is older than the chronicle: they are zero */
    char value[1024];
};

static void check_byte(const struct answer *a, bool cut, uint64_t at)
{
    uint64_t index = 2 * (at - a->address), i = at - c.base;
    unsigned byte = 0;
    if (i >= c.size)
        return;
    if (!a->map && index + 2 > strlen(a->value)) {
        c.known[i] = cut; /* a long value's end is not shown */
        return;
    }
    if (!a->map && sscanf(a->value + index, "%2x", &byte) != 1)
        return;
    c.known[i] = byte == c.bytes[i];
    if (!c.known[i])
        printf("%#llx is %02x, but its last write is said to have made it %02x\n", (unsigned long long)at,
               c.bytes[i], byte);
}

static void check_answer(const struct answer *a, bool cut)
{
    for (uint64_t i = 0; i < a->length; i++)
        check_byte(a, cut, a->address + i);
}

static int check(const char *file, const char *address)
{
    char line[2048];
    struct answer a = {0};
    FILE *f = fopen(file, "r");
    if (!f || !(c.size = fread(c.bytes, 1, sizeof c.bytes, f))) {
        fprintf(stderr, "fuzz_translate: cannot read %s\n", file);
        return 2;
    }
    c.base = strtoull(address, NULL, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long v;
        if (sscanf(line, "      \"address\": \"%llx", &v) == 1)
            a = (struct answer){.address = v};
        if (sscanf(line, "      \"length\": %llu", &v) == 1)
            a.length = v;
        if (strstr(line, "      \"kind\": \"map\"") || strstr(line, "      \"kind\": \"none\"")) {
            a.map = true;
            check_answer(&a, false);
        }
        if (sscanf(line, "      \"value\": \"%1023[0-9a-f]", a.value) == 1)
            continue;
        if (strstr(line, "\"value_cut\": "))
            check_answer(&a, strstr(line, "true") != NULL);
    }
    int wrong = 0;
    for (uint64_t i = 0; i < c.size; i++)
        wrong += !c.known[i];
    if (wrong)
        printf("%d of %s's bytes without a right last write\n", wrong, file);
    return wrong != 0;
}

int main(int argc, char **argv)
{
    static const uint64_t bases[] = {0, 0, 0x0a000000, 0x20000000, 0x150000000000, 0x11f012345000};
    if (argc == 4 && !strcmp(argv[1], "check"))
        return check(argv[2], argv[3]);
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_translate SEED | check FILE ADDRESS\n");
        return 2;
    }
    g.random = strtoull(argv[1], NULL, 0) * 0xd1342543de82ef95ull;
    uint64_t base = bases[pick(6)];
    g.smc = chance(25);
    printf("# seed %s\n\t.intel_syntax noprefix\n\t.section .faults, \"a\"\n\t.globl "
           "fault_sites\nfault_sites:\n\t.section .gen, \"ax\"\n\t.p2align 12\n\t.globl "
           "gen_begin\ngen_begin:\n",
           argv[1]);
    printf("checkpoint_stub:\n\tjmp qword ptr [rip + checkpoint_cell]\n");
    for (unsigned i = 0; i < FUNCTIONS_MAX; i++)
        function(i);
    main_function();
    data_section();
    printf("\t.globl gen_end\ngen_end:\n");
    printf("\t.section .rodata\n\t.globl gen_base, gen_writable, gen_faults\n\t.p2align 3\ngen_base: .quad ");
    if (base)
        printf("0x%llx\n", (unsigned long long)base);
    else
        printf("gen_begin\n");
    printf("gen_writable: .quad %d\ngen_faults: .quad %u\n", g.smc, g.faults);
    printf("\t.section .faults, \"a\"\n\t.quad 0, 0\n\t.section .note.GNU-stack, \"\", @progbits\n");
    return 0;
}
