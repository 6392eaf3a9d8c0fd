/* names.c: see names.h. */
#include "base/names.h"

#include <stdio.h>
#include <string.h>

const char *const register_names[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                        "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

const char *signal_name(int signal, char text[32])
{
    const char *name = sigabbrev_np(signal);
    if (name)
        snprintf(text, 32, "SIG%s", name);
    else
        snprintf(text, 32, "signal %d", signal);
    return text;
}
