/*
 * running.h: the files of the programs that run in this recording.
 *
 * The kernel takes the engine for the program. So each process keeps its program's file open, by which
 * /proc/self/exe is answered also when the file was renamed or deleted, and holds a lock that stands for the
 * file, by which opening it for writing is refused with ETXTBSY as long as one process of the recording runs
 * it. The locks are on the trace's rings/control, at an offset made from device and inode, and touch no file
 * of the guest's.
 */
#ifndef CLIO_ENGINE_KERNEL_RUNNING_H
#define CLIO_ENGINE_KERNEL_RUNNING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Recording: this process runs the program open as fd, which is taken over, and no other any more. */
void running_set(int fd);
/* Writes a path that leads to the program's file, whatever its name is now. False when it is not known. */
bool running_link(char *to, size_t size);
/* The program's file. False when it is not known. */
bool running_file(struct stat *file);
/* True when a process of this recording runs the file. */
bool running_busy(const struct stat *file);

#endif
