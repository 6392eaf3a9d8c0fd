/* compute.c: tight integer and float loops, a sort and a hash table. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t x = 88172645463325252ull;
static uint64_t next(void)
{
    x ^= x << 13;
    x ^= x >> 7;
    return x ^= x << 17;
}

static uint64_t integers(long n)
{
    uint64_t sum = 0;
    for (long i = 1; i < n; i++)
        sum += (sum ^ (uint64_t)i) % 127 + (uint64_t)__builtin_popcountll(sum);
    return sum;
}

static double matrices(int n)
{
    double *a = malloc(sizeof *a * (size_t)(n * n)), *b = malloc(sizeof *b * (size_t)(n * n)), sum = 0;
    for (int i = 0; i < n * n; i++)
        a[i] = i % 17 * 0.25, b[i] = i % 13 * 0.5;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++)
                s += a[i * n + k] * b[k * n + j];
            sum += s;
        }
    free(a);
    free(b);
    return sum;
}

static int compare(const void *a, const void *b)
{
    uint64_t l = *(const uint64_t *)a, r = *(const uint64_t *)b;
    return l < r ? -1 : l > r;
}

static uint64_t sorted(size_t n)
{
    uint64_t *v = malloc(n * sizeof *v), sum = 0;
    for (size_t i = 0; i < n; i++)
        v[i] = next();
    qsort(v, n, sizeof *v, compare);
    for (size_t i = 0; i < n; i += 1000)
        sum ^= v[i];
    free(v);
    return sum;
}

static uint64_t table(size_t n)
{
    enum { BITS = 20 };
    uint64_t *keys = calloc(1u << BITS, sizeof *keys), found = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t key = next() % (1u << (BITS - 1)) + 1;
        size_t h = key * 0x9e3779b97f4a7c15ull >> (64 - BITS);
        while (keys[h] && keys[h] != key)
            h = (h + 1) & ((1u << BITS) - 1);
        found += keys[h] == key;
        keys[h] = key;
    }
    free(keys);
    return found;
}

int main(void)
{
    printf("%llu\n", (unsigned long long)integers(60000000));
    printf("%.3f\n", matrices(500));
    printf("%llu\n", (unsigned long long)sorted(1500000));
    printf("%llu\n", (unsigned long long)table(8000000));
    return 0;
}
