/* A gs base of the guest's own is refused by name: gs is the host's. */
// REFUSES: gs base
#include "guest.h"
#include <asm/prctl.h>

int main(void)
{
    static uint64_t mine[16] = {11, 22, 33};
    uint64_t gs = 1;
    is(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs), 0, "ARCH_GET_GS");
    is(gs, 0, "gs base is 0");
    is(syscall(SYS_arch_prctl, ARCH_SET_GS, mine), 0, "ARCH_SET_GS");
    return finish();
}
