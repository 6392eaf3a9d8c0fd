/* names.h: names of the machine's registers and of signals, for every message that shows one. */
#ifndef CLIO_BASE_NAMES_H
#define CLIO_BASE_NAMES_H

/* The general registers in the order of the machine's encoding: "rax", "rcx", ... "r15". */
extern const char *const register_names[16];

/* "SIGSEGV", or "signal 70" for one without a name. Returns text. */
const char *signal_name(int signal, char text[32]);

#endif
