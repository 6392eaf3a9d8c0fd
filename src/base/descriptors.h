/*
 * descriptors.h: what a process that outlives its starter does with the descriptors it was given.
 */
#ifndef CLIO_BASE_DESCRIPTORS_H
#define CLIO_BASE_DESCRIPTORS_H

#include <stddef.h>
#include <sys/resource.h>

/*
 * Closes every descriptor but the n in keep (which is sorted; entries below 0 name none). Those of 0, 1 and 2
 * that are not kept become /dev/null, or are closed where that cannot be opened.
 */
void descriptors_close_others(int *keep, size_t n);

/*
 * Raises the soft limit of open files to the hard one: it is meant for the program that is recorded, and what
 * leaves that room may leave us none. *was (unless NULL) is what it was.
 */
void descriptors_lift_limit(struct rlimit *was);

#endif
