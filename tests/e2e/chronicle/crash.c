/* Dies far from the cause: an item was released through a stale pointer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct item {
    long references;
    struct item *next;
    char name[16];
};

struct item *list, *stale;
char greeting[16];

static void append(const char *name)
{
    struct item *item = malloc(sizeof *item);
    item->references = 1;
    item->next = list;
    strcpy(item->name, name);
    list = item;
}

static void release_item(struct item *item)
{
    item->next = (void *)0xdeadbeef; /* the culprit */
}

static void child(void)
{
    strcpy(greeting, "from the child");
    _exit(7);
}

int main(void)
{
    char name[16];
    long sum = 0;
    if (read(0, greeting, sizeof greeting) < 0)
        return 1;
    if (fork() == 0)
        child();
    wait(NULL);
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "item %d", i);
        append(name);
        if (i == 700)
            stale = list;
    }
    fprintf(stderr, "%p\n", (void *)&stale->next);
    release_item(stale);
    for (struct item *i = list; i; i = i->next)
        sum += i->references; /* dies here */
    printf("%ld\n", sum);
}
