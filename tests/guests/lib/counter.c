/* counter.c: a library for dl.c: state, a constructor and destructor, callbacks, thread-local data. */
#include <stdlib.h>
#include <unistd.h>

static int count = 100;
static __thread int local = 7;
int (*counter_callback)(int);

__attribute__((constructor)) static void begin(void)
{
    count++;
}

__attribute__((destructor)) static void end(void)
{
    if (counter_callback)
        counter_callback(-1);
}

int counter_next(void)
{
    return count++ + local++;
}

int counter_apply(int (*f)(int), int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += f(i) + (counter_callback ? counter_callback(i) : 0);
    return sum;
}
