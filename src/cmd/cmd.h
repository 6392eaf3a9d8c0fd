/*
 * cmd.h: the commands of clio, one file each, and what they share.
 *
 * A command gets its own argv (argv[0] is the command's name) and returns the exit status. It may end by
 * usage() or die(). The list is written once, in CMD_LIST; main.c makes the table and the help from it.
 */
#ifndef CLIO_CMD_H
#define CLIO_CMD_H

#define CLIO_VERSION "0.1"

/* X(name, arguments, what it does, options: shown by clio NAME --help) */
#define CMD_LIST(X)                                                                                          \
    X(record, "[-o DIR] [--] PROG [ARG...]", "run a program and record it and its children",                 \
      "  -o, --output DIR      make the trace here, not in the trace home\n"                                 \
      "  --cpu=vN[+NAME|-NAME]...  the processor that the program sees: x86-64-v1 to v4, with or without\n"  \
      "                        features by name (docs/cpu.md); default: v3, or less if this machine has "    \
      "less\n"                                                                                               \
      "  --aslr                place the program at random\n"                                                \
      "  --check-memory[=N]    put hashes of its memory into every N-th event, compared in replay; slow\n"   \
      "  --single-block        run one block of code at a time; slow\n"                                      \
      "  --wait                return when the last process has ended, not when the program has\n"           \
      "  --log TOPICS, --log-file FILE\n"                                                                    \
      "The status is the program's own, 128+n for a signal. Processes that it leaves behind are recorded "   \
      "in the\n"                                                                                             \
      "background until they end or clio stop ends them. SIGTERM, SIGINT and SIGHUP end the recording.\n")   \
    X(stop, "[TRACE]", "end a recording, and all its processes",                                             \
      "Every process gets SIGTERM, and SIGKILL after 2 seconds. Returns when the trace is complete; "        \
      "status 1 when\n"                                                                                      \
      "it is not being recorded.\n")                                                                         \
    X(replay, "-a [TRACE]", "repeat a recording exactly",                                                    \
      "  -a, --all             run to the end without a debugger\n"                                          \
      "  --space N             begin with this space, which clio ps shows\n"                                 \
      "  --single-block        run one block of code at a time; slow\n"                                      \
      "  --log TOPICS, --log-file FILE\n"                                                                    \
      "A trace that is still being recorded is followed to its end. Status 0: every event matched.\n")       \
    X(dump, "[--json] [TRACE] [KIND...]", "print the records of a trace",                                    \
      "  --json                one JSON object in a line for each record\n"                                  \
      "  --space N             of this space only\n"                                                         \
      "  --follow              wait for what is still being recorded\n"                                      \
      "Kinds: start syscall signal insn fork exec exit data map space end note.\n")                          \
    X(ps, "[TRACE]", "list the recorded processes", "")                                                      \
    X(ls, "", "list the traces", "")                                                                         \
    X(info, "[--json] [TRACE]", "what was recorded, when, and how large it is", "")                          \
    X(verify, "[TRACE]", "check every byte of a trace",                                                      \
      "Status 1: it is damaged; every bad frame and file is named.\n")                                       \
    X(rm, "TRACE...", "remove traces", "")                                                                   \
    X(chronicle, "[TRACE] [--from M] [--to M] -o DB", "build the database of an interval of a recording",    \
      "  -o, --output DB       the database; it must not exist\n"                                            \
      "  --from M, --to M      the interval; default start and end\n"                                        \
      "  --space N, --pid N    of this space or process; default the one that crashed, else the first\n"     \
      "  --log TOPICS\n")                                                                                    \
    X(query, "DB QUESTION...", "ask a chronicle: last-write, crash, ...",                                    \
      "  last-write ADDRESS[+LENGTH] [--before M]\n"                                                         \
      "  first-write ADDRESS[+LENGTH] [--after M]\n"                                                         \
      "  crash\n"                                                                                            \
      "  info\n"                                                                                             \
      "  --json                the answer as JSON\n"                                                         \
      "  --trace TRACE         where the recording is now\n"                                                 \
      "ADDRESS is a number, or the name of a symbol and perhaps +OFFSET. Status 1: nothing was found.\n")

#define X(name, arguments, text, options) int cmd_##name(int argc, char **argv);
CMD_LIST(X)
#undef X

#endif
