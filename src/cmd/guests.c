/* guests.c: see guests.h. */
#include "cmd/guests.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cmd/process.h"

static FILE *children_of(pid_t pid, const char *thread)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)pid, thread);
    return fopen(path, "re");
}

int guests_children(pid_t store)
{
    char self[16];
    int n = 0, pid;
    snprintf(self, sizeof self, "%d", (int)getpid());
    FILE *f = children_of(getpid(), self);
    if (!f)
        die("cannot read /proc/self/task/%s/children, which tells whether guests are left: %s", self,
            strerror(errno));
    while (fscanf(f, "%d", &pid) == 1)
        n += pid != store;
    fclose(f);
    return n;
}

/* 0 when there is no such process. */
static char state_of(pid_t pid)
{
    char state;
    int status;
    return process_look(pid, &state, &status) ? state : 0;
}

struct found {
    pid_t *pids;
    size_t count, capacity;
};

static bool add(struct found *f, pid_t pid)
{
    if (f->count == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 64;
        pid_t *pids = reallocarray(f->pids, capacity, sizeof *pids);
        if (!pids)
            return false;
        f->pids = pids;
        f->capacity = capacity;
    }
    f->pids[f->count++] = pid;
    return true;
}

/* The children of all threads of a process, but `store`. */
static void add_children(struct found *f, pid_t parent, pid_t store)
{
    char path[32];
    int pid;
    snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    DIR *threads = opendir(path);
    for (struct dirent *e; threads && (e = readdir(threads));) {
        FILE *list = *e->d_name == '.' ? NULL : children_of(parent, e->d_name);
        while (list && fscanf(list, "%d", &pid) == 1)
            if (pid != store && !add(f, pid))
                break;
        if (list)
            fclose(list);
    }
    if (threads)
        closedir(threads);
}

int guests_all(pid_t store, void (*each)(pid_t pid, void *context), void *context)
{
    struct found f = {0};
    int living = 0;
    add_children(&f, getpid(), store);
    for (size_t i = 0; i < f.count; i++) /* which grows as it is walked */
        add_children(&f, f.pids[i], store);
    for (size_t i = 0; i < f.count; i++) {
        char state = state_of(f.pids[i]);
        if (!state || state == 'Z' || state == 'X')
            continue;
        living++;
        if (each)
            each(f.pids[i], context);
    }
    free(f.pids);
    return living;
}

static void signal_one(pid_t pid, void *context)
{
    kill(pid, *(const int *)context);
}

void guests_signal(pid_t store, int signal)
{
    guests_all(store, signal_one, &signal);
}

static void continue_one(pid_t pid, void *context)
{
    if (state_of(pid) == 'T')
        kill(pid, SIGCONT);
}

void guests_continue(pid_t store)
{
    guests_all(store, continue_one, NULL);
}
