/*
 * generate.c: the inputs of the benchmark, the same on every machine.
 *
 *     generate text BYTES        words and numbers that compress about as prose does
 *     generate c LINES SEED      a C file of about LINES lines; SEED also names its functions
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t x = 88172645463325252ull;
static unsigned next(unsigned n)
{
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (unsigned)(x >> 20) % n;
}

static void text(long bytes)
{
    static const char *const syllables[] = {"ka", "lo",  "mi",  "ter", "an", "os",  "e",  "ri",
                                            "un", "the", "cli", "o",   "ra", "ven", "st", "ing"};
    for (long n = 0; n < bytes;) {
        char word[64] = "";
        int length = (int)next(4) + 1;
        if (next(9) == 0)
            snprintf(word, sizeof word, "%u", next(100000));
        else
            for (int i = 0; i < length; i++)
                strcat(word, syllables[next(next(3) ? 8 : 16)]);
        n += printf("%s%c", word, next(12) ? ' ' : '\n');
    }
}

static void function(int file, int number)
{
    printf("static struct item *make_%d_%d(struct table *t, int key)\n{\n"
           "    struct item *i = t->items + (unsigned)key %% %u;\n    unsigned h = (unsigned)key * %uu;\n",
           file, number, next(900) + 100, next(1u << 30) | 1);
    int statements = (int)next(6) + 4;
    for (int s = 0; s < statements; s++) {
        switch (next(5)) {
        case 0:
            printf("    for (int k = 0; k < %u; k++) {\n        h = (h << %u) ^ (h >> %u) ^ (unsigned)k;\n   "
                   "     i->counts[k %% 8] += h & 255;\n    }\n",
                   next(60) + 2, next(7) + 1, next(20) + 1);
            break;
        case 1:
            printf("    if (h %% %u == %u)\n        i->value = i->value * %u.%ue-2 + key;\n    else\n        "
                   "i->flags |= 1u << (h & 31);\n",
                   next(90) + 2, next(20), next(90), next(10));
            break;
        case 2:
            printf("    switch (h & 3) {\n    case 0:\n        h += %u;\n        break;\n    case 1:\n       "
                   " i->name[h & 15] = (char)key;\n        break;\n    default:\n        h ^= %u;\n    }\n",
                   next(1000), next(1000000));
            break;
        case 3:
            printf("    while (i->flags > %uu && key > 0) {\n        i->flags >>= 1;\n        key -= %u;\n   "
                   " }\n",
                   next(5000), next(30) + 1);
            break;
        default:
            printf("    i->value += i->counts[h & 7] * %u.5;\n    t->total += h;\n", next(40));
        }
    }
    printf("    i->flags ^= h;\n    return i;\n}\n\n");
}

static void c_file(int lines, int file)
{
    x += (uint64_t)file * 7919;
    printf("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\n"
           "struct item {\n    unsigned flags;\n    double value;\n    unsigned counts[8];\n    char "
           "name[16];\n};\n"
           "struct table {\n    struct item items[1000];\n    unsigned long total;\n};\n\n");
    int functions = lines / 41;
    for (int n = 0; n < functions; n++)
        function(file, n);
    printf("double run_%d(void)\n{\n    struct table *t = calloc(1, sizeof *t);\n    double sum = 0;\n    "
           "for (int i = 0; i < 1000; i++) {\n",
           file);
    for (int n = 0; n < functions; n++)
        printf("        sum += make_%d_%d(t, i)->value;\n", file, n);
    printf("    }\n    printf(\"%%lu\\n\", t->total);\n    free(t);\n    return sum;\n}\n");
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "text"))
        text(atol(argv[2]));
    else if (argc == 4 && !strcmp(argv[1], "c"))
        c_file(atoi(argv[2]), atoi(argv[3]));
    else
        return 2;
    return 0;
}
