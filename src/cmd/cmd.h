/*
 * cmd.h: the commands of clio, one file each, and what they share.
 *
 * A command gets its own argv (argv[0] is the command's name) and returns the exit status. It may end by
 * usage() or die(). The list is written once, in CMD_LIST; main.c makes the table and the help from it.
 */
#ifndef CLIO_CMD_H
#define CLIO_CMD_H

#define CLIO_VERSION "0.1"

/* X(name, arguments, what it does) */
#define CMD_LIST(X)                                                                                          \
    X(record, "[-o DIR] [--] PROG [ARG...]", "run a program and record it and its children")                 \
    X(replay, "[-a] [TRACE]", "repeat a recording exactly")                                                  \
    X(dump, "[--json] [TRACE] [KIND...]", "print the records of a trace")                                    \
    X(ps, "[TRACE]", "list the recorded processes")                                                          \
    X(ls, "", "list the traces")                                                                             \
    X(info, "[--json] [TRACE]", "what was recorded, when, and how large it is")                              \
    X(verify, "[TRACE]", "check every byte of a trace")                                                      \
    X(rm, "TRACE...", "remove traces")                                                                       \
    X(chronicle, "[TRACE] [--from M] [--to M] [-o DB]", "build the database of an interval of a recording")  \
    X(query, "DB QUESTION...", "ask a chronicle: last-write, crash, ...")

#define X(name, arguments, text) int cmd_##name(int argc, char **argv);
CMD_LIST(X)
#undef X

#endif
