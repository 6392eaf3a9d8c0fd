/* main.c: `clio COMMAND ...`: the table of commands, help and version. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cmd/cmd.h"

static const struct command {
    const char *name, *arguments, *text, *options;
    int (*run)(int argc, char **argv);
} commands[] = {
#define X(name, arguments, text, options) {#name, arguments, text, options, cmd_##name},
    CMD_LIST(X)
#undef X
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static int help(void)
{
    printf("usage: clio COMMAND [ARGUMENTS]\n\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-9s %-38s %s\n", commands[i].name, commands[i].arguments, commands[i].text);
    printf("\nTRACE is a directory, a name that `clio ls` shows, or left out for the latest one.\n"
           "A moment M is EVENT[:TICK[:STEP]], start, end, end-TICKS or crash.\n"
           "Exit status: 0 done; 1 the thing asked about is not so; 2 misuse; 3 the environment refused.\n");
    return EXIT_DONE;
}

/* Output that did not reach its reader is a failure; a reader that went away is not. */
static int finish(int status)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && errno != EPIPE && status == EXIT_DONE)
        die("writing the output: %s", strerror(errno));
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        usage("no command; clio --help lists them");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return finish(help());
    if (strcmp(argv[1], "--version") == 0) {
        printf("clio %s\n", CLIO_VERSION);
        return finish(EXIT_DONE);
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            if (argc > 2 && strcmp(argv[2], "--help") == 0) {
                printf("usage: clio %s %s\n  %s\n%s", commands[i].name, commands[i].arguments,
                       commands[i].text, commands[i].options);
                return finish(EXIT_DONE);
            }
            return finish(commands[i].run(argc - 1, argv + 1));
        }
    usage("unknown command `%s`; clio --help lists them", argv[1]);
}
