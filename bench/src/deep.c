/* deep.c: many small calls, deep and shallow; meant for -O0. */
#include <stdio.h>

static unsigned long fibonacci(unsigned long n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static unsigned long down(unsigned long n, unsigned long x)
{
    return n == 0 ? x : down(n - 1, x * 3 + n) + 1;
}

static long apply(long (*f)(long), long x)
{
    return f(x);
}
static long increment(long x)
{
    return x + 1;
}
static long twice(long x)
{
    return 2 * x;
}

int main(void)
{
    unsigned long sum = fibonacci(37);
    for (int i = 0; i < 1000; i++)
        sum += down(20000, (unsigned long)i);
    long x = 0;
    for (int i = 0; i < 30000000; i++)
        x = apply(i % 3 ? increment : twice, x) % 1000003;
    printf("%lu %ld\n", sum, x);
    return 0;
}
