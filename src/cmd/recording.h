/*
 * recording.h: the recording that `clio record` makes, as its files share it: record.c (the command, and what happens until the
 * end), record_trace.c (the trace is made), record_guest.c (the root guest is started). There is one in a process.
 */
#ifndef CLIO_CMD_RECORDING_H
#define CLIO_CMD_RECORDING_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "cmd/front.h"
#include "cmd/program.h"
#include "cmd/writer.h"
#include "engine/cpu/cpu.h"

struct recording {
    /* what the user wants */
    const char *output, *topics, *log_file;
    const char *cpu; /* as --cpu has it, or NULL */
    bool aslr, single_block, wait;
    const char *check_memory; /* every how many events, or NULL */
    struct program program;

    /* the recording */
    struct cpu_choice choice;
    char features[CPU_NAMES_MAX]; /* beyond the level, by name */
    char *path;                   /* of the trace */
    int dir, lifeline, log_fd, signals;
    struct ring_control *control;
    pid_t caller; /* our parent: the program's, as it sees it */
    struct writer writer;
    sigset_t old_mask;
    struct sigaction old_chld;
    struct rlimit old_files; /* the program's limit of descriptors */
    struct front front;
    pid_t guest;  /* the root guest's process */
    bool running; /* the root guest was started: its trace is kept whatever happens */

    /* how it goes */
    int status; /* wait status of the root guest */
    bool guest_gone;
    uint64_t gone_ms;    /* since when */
    bool runs_again;     /* the root guest was continued; the front may not know */
    bool background;     /* the front has gone its way */
    int ending;          /* signal that ends the recording, or 0 */
    bool all_told;       /* every guest got it */
    uint64_t ending_ms;  /* when it came */
    uint64_t killing_ms; /* when guests were told to die; 0: not yet */
    char failure[1300];  /* why the recording cannot go on */

    /* to say at the end; each once */
    char **notes;
    size_t nnotes, nsaid;
};
extern struct recording rec;

/* ---- record_trace.c: each ends the process with a message when it fails (die) ---- */

/* The directory, named by --output or in the trace home; argv is the command to remember. Sets rec.path and rec.dir. */
void record_create_trace(int argc, char **argv);
/* A guest that could not even begin would wait for room for ever: refuses while there is nothing to lose. */
void record_need_room(void);
void record_create_lifeline(void);
void record_create_control(void);
/* The pool of captured files, in the trace home or, where there is none to write to, in the trace. Its descriptor. */
int record_open_pool(void);
void record_set_latest(void);
/* What die() does before the guest runs: takes everything back. */
void record_leave(int status);

/* ---- record_guest.c ---- */

/* Starts the engine with the program; dies when that cannot be. Sets rec.guest and rec.running. */
void record_start_guest(void);

#endif
