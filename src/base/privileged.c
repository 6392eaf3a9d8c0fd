/* privileged.c: see privileged.h. */
#include "base/privileged.h"

#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static bool kernel_ignores(int fd)
{
    struct statvfs fs;
    return (!fstatvfs(fd, &fs) && (fs.f_flag & ST_NOSUID)) || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
}

const char *why_privileged(int fd)
{
    struct stat st;
    bool root = !getuid() && !geteuid(); /* has every capability anyway */
    if (fstat(fd, &st) || kernel_ignores(fd))
        return NULL;
    if ((st.st_mode & S_ISUID) && st.st_uid != geteuid())
        return "it is set-uid";
    if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st.st_gid != getegid())
        return "it is set-gid";
    return !root && fgetxattr(fd, "security.capability", NULL, 0) > 0 ? "it has file capabilities" : NULL;
}
