/*
 * measure.c: measure COMMAND ARG...: runs a command, its output to /dev/null, and prints
 *
 *     STATUS SECONDS USER SYSTEM PEAK_KB TREE_KB
 *
 * USER and SYSTEM are the processor time of the command and of all its descendants (those nobody waits for
 * included: this process is their reaper). PEAK_KB is the largest resident set of any one of them, TREE_KB
 * the peak of the sum of proportional set sizes over the tree, sampled every 50 ms.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TREE_MAX = 4096, SAMPLE_MS = 50 };

struct process {
    pid_t pid, parent;
};

static size_t all_processes(struct process *all)
{
    size_t n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d)) && n < TREE_MAX;) {
        char path[64], text[512];
        pid_t pid = atoi(e->d_name);
        if (pid <= 0)
            continue;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        int fd = open(path, O_RDONLY);
        ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
        close(fd);
        if (got <= 0)
            continue;
        text[got] = 0;
        char *after = strrchr(text, ')');
        int parent;
        if (after && sscanf(after + 1, " %*c %d", &parent) == 1)
            all[n++] = (struct process){pid, parent};
    }
    if (d)
        closedir(d);
    return n;
}

static long proportional_kb(pid_t pid)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *f = fopen(path, "r");
    long kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

static long tree_kb(void)
{
    static struct process all[TREE_MAX];
    static bool ours[TREE_MAX];
    size_t n = all_processes(all);
    long sum = 0;
    memset(ours, 0, sizeof ours);
    for (bool grown = true; grown;) {
        grown = false;
        for (size_t i = 0; i < n; i++) {
            bool below = all[i].parent == getpid();
            for (size_t k = 0; k < n && !below; k++)
                below = ours[k] && all[k].pid == all[i].parent;
            if (below && !ours[i]) {
                ours[i] = grown = true;
                sum += proportional_kb(all[i].pid);
            }
        }
    }
    return sum;
}

int main(int argc, char **argv)
{
    bool sample = argc > 2 && !strcmp(argv[1], "-m");
    char **command = argv + 1 + sample;
    if (argc < 2 + sample)
        return 2;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        execvp(command[0], command);
        perror(command[0]);
        _exit(127);
    }
    int status = 0, one;
    long peak = 0;
    for (pid_t p; (p = waitpid(-1, &one, sample ? WNOHANG : 0)) >= 0;) {
        if (p == child)
            status = one;
        if (p == 0) {
            long kb = tree_kb();
            peak = kb > peak ? kb : peak;
            nanosleep(&(struct timespec){0, SAMPLE_MS * 1000000l}, NULL);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    printf("%d %.4f %.4f %.4f %ld %ld\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
           (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9,
           (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6,
           (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec / 1e6, u.ru_maxrss, peak);
    return 0;
}
