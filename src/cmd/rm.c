/*
 * rm.c: `clio rm TRACE...`: removes traces, and captured files that no other trace uses from the pool.
 *
 * Only the parts that a trace has are removed, by their names, and only from a directory whose file `trace`
 * is one; a directory that holds anything else stays, with that in it. The file `trace` goes last, so that a
 * removal that was interrupted can be repeated. A trace that is being recorded is refused.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cmd/cmd.h"
#include "cmd/home.h"
#include "cmd/trace_text.h"
#include "trace/lifeline.h"
#include "trace/locate.h"

static const char *const parts[] = {"tasks",    "spaces", "files", "rings", "lock",
                                    "lifeline", "socket", "pool",  "trace"};

static bool remove_below(int dir, const char *name);

/* Removes what lies in directory `fd` (consumed). False with errno. */
static bool remove_contents(int fd)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return false;
    }
    bool good = true;
    for (struct dirent *entry; good && (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            good = remove_below(dirfd(dir), entry->d_name);
    int saved = errno;
    closedir(dir);
    errno = saved;
    return good;
}

/* Removes a file, or a directory with all it holds; never follows a link. */
static bool remove_below(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return true;
    if (errno != EISDIR)
        return false;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && remove_contents(fd) && unlinkat(dir, name, AT_REMOVEDIR) == 0;
}

/* Whether the directory holds one file alone. */
static bool holds_one_file(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    int count = 0;
    while (list && readdir(list))
        count++;
    if (list)
        closedir(list);
    else if (fd >= 0)
        close(fd);
    return count == 3; /* with . and .. */
}

/* Whether `trace` in the directory is the header of a trace of any version, or the empty beginning of one. */
static bool is_trace(int dir)
{
    static const char first[] = "clio trace ";
    char text[sizeof first - 1];
    struct stat st;
    int fd = openat(dir, "trace", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                ((st.st_size == 0 && holds_one_file(dir)) ||
                 (pread(fd, text, sizeof text, 0) == sizeof text && memcmp(text, first, sizeof text) == 0));
    close(fd);
    return good;
}

/* Removes from the pool what only this trace had: after its own link is gone, the pool's is the last one. */
static void trim_pool(int dir, const char *pool)
{
    int files = openat(dir, "files", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int pool_dir = open(pool, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = files < 0 ? NULL : fdopendir(files);
    for (struct dirent *entry; list && pool_dir >= 0 && (entry = readdir(list));) {
        struct stat st;
        if (entry->d_name[0] == '.' || unlinkat(dirfd(list), entry->d_name, 0) < 0)
            continue;
        if (fstatat(pool_dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 1)
            unlinkat(pool_dir, entry->d_name, 0);
    }
    if (list)
        closedir(list);
    if (pool_dir >= 0)
        close(pool_dir);
}

/* Lets `latest` name the newest of the remaining traces when the one it named is gone. */
static void mend_latest(const char *home)
{
    struct clio_error error;
    char *link;
    if (asprintf(&link, "%s/latest", home) < 0)
        return;
    struct stat st;
    if (lstat(link, &st) == 0 && stat(link, &st) < 0) {
        size_t count;
        struct home_trace *traces = home_traces(&count);
        if (count == 0)
            unlink(link);
        else
            trace_set_latest(traces[count - 1].path, &error);
        home_traces_free(traces, count);
    }
    free(link);
}

static void remove_trace(const char *argument, const char *home)
{
    struct clio_error error;
    char *named = trace_resolve(argument, &error);
    if (!named)
        trace_failed(&error);
    char *path = realpath(named, NULL);
    if (!path)
        die("%s: %s", named, strerror(errno));
    free(named);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        die("opening the trace %s: %s", path, strerror(errno));
    if (!is_trace(dir))
        die("%s: not a trace; nothing was removed", path);
    if (trace_lifeline_held(dir))
        die("%s: is being recorded; nothing was removed", path);
    char *pool;
    if (asprintf(&pool, "%s/pool", home ? home : path) < 0)
        die("out of memory");
    trim_pool(dir, pool);
    free(pool);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!remove_below(dir, parts[i]))
            die("removing %s/%s: %s", path, parts[i], strerror(errno));
    if (rmdir(path) < 0)
        die("removed the trace %s, but not the directory: %s", path, strerror(errno));
    close(dir);
    free(path);
}

int cmd_rm(int argc, char **argv)
{
    struct clio_error error;
    if (argc < 2)
        usage("rm: which traces? clio rm TRACE...");
    if (argv[1][0] == '-')
        usage("rm: unknown option %s", argv[1]);
    char *home = trace_home(&error);
    for (int i = 1; i < argc; i++)
        remove_trace(argv[i], home);
    if (home)
        mend_latest(home);
    free(home);
    return EXIT_DONE;
}
