/* File calls: contents, positions, metadata, directories, links, locks, copies, odd arguments. */
// VARIANTS: o2 static
#include "guest.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <utime.h>

static void contents(void)
{
    int fd = open("f", O_RDWR | O_CREAT | O_EXCL, 0640);
    ok(fd >= 0 && open("f", O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST, "O_EXCL");
    is(write(fd, "hello, world\n", 13), 13, "write");
    char b[64] = "";
    is(pread(fd, b, 5, 7), 5, "pread");
    ok(!strcmp(b, "world"), "its bytes");
    is(lseek(fd, 0, SEEK_SET), 0, "lseek");
    struct iovec v[3] = {{b, 2}, {b + 10, 0}, {b + 20, 40}};
    is(readv(fd, v, 3), 13, "readv");
    ok(!memcmp(b, "he", 2) && !memcmp(b + 20, "llo, world\n", 11), "scattered");
    is(read(fd, b, 1), 0, "end of file");
    is(pwrite(fd, "J", 1, 0), 1, "pwrite");
    is(writev(fd, (struct iovec[]){{"a", 1}, {"bc", 2}}, 2), 3, "writev");
    is(lseek(fd, 0, SEEK_END), 16, "SEEK_END");
    is(ftruncate(fd, 100000), 0, "ftruncate");
    is(lseek(fd, 50, SEEK_DATA) >= 0 || errno == ENXIO || errno == EINVAL, 1, "SEEK_DATA");
    is(posix_fallocate(fd, 0, 200000), 0, "fallocate");
    struct stat st;
    fstat(fd, &st);
    ok(st.st_size == 200000 && (st.st_mode & 07777) == 0640 && st.st_nlink == 1, "fstat");
    is(preadv(fd, v, 2, 1), 2, "preadv");
    int out = open("copy", O_RDWR | O_CREAT, 0600);
    off_t from = 0;
    is(sendfile(out, fd, &from, 16), 16, "sendfile");
    is(from, 16, "its offset");
    loff_t in_off = 0;
    ssize_t n = copy_file_range(fd, &in_off, out, NULL, 10, 0);
    ok(n == 10 && in_off == 10, "copy_file_range");
    int p[2];
    pipe(p);
    loff_t off = 0;
    is(splice(fd, &off, p[1], NULL, 16, 0), 16, "splice");
    memset(b, 0, sizeof b);
    is(read(p[0], b, 16), 16, "from the pipe");
    ok(!strcmp(b, "Jello, world\nabc"), "its bytes");
    is(readahead(fd, 0, 100), 0, "readahead");
    is(fsync(fd) | fdatasync(out), 0, "fsync");
    is(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR, "F_GETFL");
    close(fd);
    fd = open("f", O_RDONLY | O_APPEND);
    is(write(fd, "x", 1), -1, "write to a read-only descriptor");
    is(read(fd, (void *)8, 10), -1, "read to nowhere");
    is(errno, EFAULT, "EFAULT");
    close(fd);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void directories(void)
{
    is(mkdir("d", 0755), 0, "mkdir");
    for (int i = 0; i < 300; i++) {
        char name[40];
        snprintf(name, sizeof name, "d/file-%03d-%.*s", i, i % 20, "long-name-long-name-");
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    DIR *d = opendir("d");
    char *names[400];
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) && n < 400;)
        names[n++] = strdup(e->d_name);
    is(n, 302, "entries");
    qsort(names, (size_t)n, sizeof *names, by_name);
    uint64_t h = DIGEST_START;
    for (int i = 0; i < n; i++)
        h = digest(h, names[i], strlen(names[i]));
    say("names %llx\n", (unsigned long long)h);
    rewinddir(d);
    ok(readdir(d) != NULL, "rewinddir");
    closedir(d);
    is(chdir("d"), 0, "chdir");
    char cwd[4096];
    ok(getcwd(cwd, sizeof cwd) && !strcmp(cwd + strlen(cwd) - 2, "/d"), "getcwd");
    is(syscall(SYS_getcwd, cwd, 2), -1, "getcwd with no room");
    is(errno, ERANGE, "ERANGE");
    int up = open("..", O_PATH | O_DIRECTORY);
    is(fchdir(up), 0, "fchdir");
    is(rmdir("d"), -1, "rmdir of a full directory");
    is(errno, ENOTEMPTY, "ENOTEMPTY");
    is(symlink("d/target", "link"), 0, "symlink");
    char text[64] = "";
    is(readlink("link", text, sizeof text), 8, "readlink");
    is(readlink("link", text, 3), 3, "readlink cut");
    is(link("f", "hard"), 0, "link");
    is(rename("hard", "renamed"), 0, "rename");
    is(renameat2(AT_FDCWD, "f", AT_FDCWD, "renamed", RENAME_EXCHANGE) == 0 || errno == EINVAL, 1,
       "renameat2");
    is(faccessat(up, "f", R_OK, 0), 0, "faccessat");
    is(access("nothing", F_OK), -1, "access");
    is(unlinkat(up, "renamed", 0), 0, "unlinkat");
    struct statx sx;
    is(statx(up, "f", 0, STATX_ALL, &sx), 0, "statx");
    ok(sx.stx_size == 200000, "its size");
    struct stat st;
    is(lstat("link", &st), 0, "lstat");
    ok(S_ISLNK(st.st_mode), "a link");
    is(stat("link", &st), -1, "stat of a dangling link");
    struct statfs sf;
    is(statfs(".", &sf), 0, "statfs");
    is(chmod("f", 0600) | utimensat(AT_FDCWD, "f", (struct timespec[]){{1, 2}, {3, 4}}, 0), 0,
       "chmod, utimensat");
    stat("f", &st);
    ok(st.st_mtim.tv_sec == 3 && st.st_mtim.tv_nsec == 4 && st.st_atim.tv_sec == 1, "times");
    mode_t old = umask(077);
    umask(old);
    close(open("masked", O_CREAT | O_WRONLY, 0666));
    is(mkfifo("fifo", 0600), 0, "mkfifo");
    char value[16] = "";
    if (setxattr("f", "user.test", "abc", 3, 0) == 0)
        ok(getxattr("f", "user.test", value, 16) == 3 && !strcmp(value, "abc") &&
               listxattr("f", cwd, sizeof cwd) >= 10,
           "extended attributes");
    else
        ok(errno == ENOTSUP, "extended attributes");
    is(truncate("f", 10), 0, "truncate");
    close(up);
}

static void locks(void)
{
    int fd = open("f", O_RDWR);
    is(flock(fd, LOCK_EX | LOCK_NB), 0, "flock");
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5};
    is(fcntl(fd, F_SETLK, &l), 0, "F_SETLK");
    pid_t child = fork();
    if (child == 0) {
        struct flock g = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5};
        fcntl(fd, F_GETLK, &g);
        int other = open("f", O_RDWR);
        _exit((g.l_type == F_WRLCK && g.l_pid == getppid()) +
              2 * (flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK));
    }
    int status;
    waitpid(child, &status, 0);
    is(WEXITSTATUS(status), 3, "a child sees both locks");
    int in = inotify_init1(IN_NONBLOCK);
    int wd = inotify_add_watch(in, ".", IN_CREATE | IN_DELETE);
    close(open("watched", O_CREAT | O_WRONLY, 0600));
    unlink("watched");
    char events[1024];
    ssize_t n = read(in, events, sizeof events);
    struct inotify_event *e = (struct inotify_event *)events;
    ok(n == 2 * (16 + 16) && e->wd == wd && e->mask == IN_CREATE && !strcmp(e->name, "watched"), "inotify");
    close(in);
    close(fd);
}

int main(void)
{
    umask(022);
    contents();
    directories();
    locks();
    return finish();
}
