/* fs as the guest sees it: thread-local storage, arch_prctl. */
// VARIANTS: o2 static
#include "guest.h"
#include <asm/prctl.h>

static __thread int local = 5;
static __thread char many[10000];

int main(void)
{
    uint64_t fs, v;
    local += 1;
    memset(many, 3, sizeof many);
    ok(local == 6 && many[9999] == 3, "thread-local variables");
    is(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs), 0, "ARCH_GET_FS");
    asm volatile("mov %%fs:0, %0" : "=r"(v));
    ok(v == fs, "fs:0 holds the base");
    /* fs elsewhere and back, by arch_prctl, with nothing of libc between */
    static uint64_t other[2] = {77, 88};
    long r = SYS_arch_prctl;
    asm volatile("syscall\n mov %%fs:8, %%rbx\n mov $158, %%eax\n mov $0x1002, %%edi\n mov %[old], %%rsi\n "
                 "syscall\n mov %%rbx, %[v]"
                 : "+a"(r), [v] "=r"(v)
                 : "D"((long)ARCH_SET_FS), "S"(other), [old] "r"(fs)
                 : "rcx", "r11", "rbx", "memory");
    is(v, 88, "ARCH_SET_FS");
    ok(local == 6 && errno == 0, "and back");
    uint16_t cs, ss;
    asm volatile("mov %%cs, %0\n mov %%ss, %1" : "=r"(cs), "=r"(ss));
    ok(cs == 0x33 && ss == 0x2b, "selectors");
    return finish();
}
