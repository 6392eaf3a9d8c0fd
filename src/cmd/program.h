/*
 * program.h: what `clio record PROG ARG...` is to run: found as execvp would, and judged before anything is
 * made.
 */
#ifndef CLIO_CMD_PROGRAM_H
#define CLIO_CMD_PROGRAM_H

struct program {
    char *path;             /* absolute or as given */
    char **argv;            /* NULL-terminated; the caller's, or longer by one when a shell runs the file */
    const char *unrecorded; /* NULL, or why this program cannot be recorded and is run as it is */
};

/* Fills p for argv (at least one string). Ends the command (exit 3), naming the program, when it cannot be
 * run. */
void program_find(struct program *p, char **argv);

#endif
