/* fs and gs as the guest sees them: thread-local storage, arch_prctl, wrfsbase where offered. */
// VARIANTS: o2 static
#include "guest.h"
#include <asm/prctl.h>
#include <sys/auxv.h>

static __thread int local = 5;
static __thread char many[10000];

int main(void)
{
    uint64_t fs, gs, v;
    local += 1;
    memset(many, 3, sizeof many);
    ok(local == 6 && many[9999] == 3, "thread-local variables");
    is(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs), 0, "ARCH_GET_FS");
    asm volatile("mov %%fs:0, %0" : "=r"(v));
    ok(v == fs, "fs:0 holds the base");
    is(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs), 0, "ARCH_GET_GS");
    is(gs, 0, "gs base is 0");
    static uint64_t mine[16] = {11, 22, 33};
    is(syscall(SYS_arch_prctl, ARCH_SET_GS, mine), 0, "ARCH_SET_GS");
    asm volatile("mov %%gs:8, %0" : "=r"(v));
    is(v, 22, "mov from gs");
    asm volatile("movq $44, %%gs:16\n addq $1, %%gs:(%0)\n" ::"r"(0L) : "memory", "cc");
    ok(mine[2] == 44 && mine[0] == 12, "mov and add to gs");
    asm volatile("lea 16, %%rsi\n lea %1, %%rdi\n mov $1, %%ecx\n rep movsq %%gs:(%%rsi), (%%rdi)"
                 : "=m"(v)
                 : "m"(v)
                 : "rsi", "rdi", "rcx", "memory");
    is(v, 44, "movs from gs");
    syscall(SYS_getppid);
    raise(0);
    syscall(SYS_arch_prctl, ARCH_GET_GS, &gs);
    ok(gs == (uint64_t)mine, "ARCH_GET_GS gives it back");
    if (fork() == 0) {
        asm volatile("mov %%gs:8, %0" : "=r"(v));
        _exit((int)v);
    }
    int status;
    wait(&status);
    is(WEXITSTATUS(status), 22, "gs in a child");
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
    if (getauxval(AT_HWCAP2) & 2) {
        asm volatile("wrfsbase %1\n mov %%fs:0, %0\n wrfsbase %2\n" : "=&r"(v) : "r"(other), "r"(fs));
        is(v, 77, "wrfsbase");
        asm volatile("wrgsbase %1\n mov %%gs:8, %0\n rdgsbase %%rax\n" : "=&r"(v) : "r"(other) : "rax");
        is(v, 88, "wrgsbase");
        asm volatile("rdfsbase %0" : "=r"(v));
        ok(v == fs, "rdfsbase");
    } else {
        ok(true, "wrfsbase not offered");
        ok(true, "wrgsbase not offered");
        ok(true, "rdfsbase not offered");
    }
    uint16_t cs, ss;
    asm volatile("mov %%cs, %0\n mov %%ss, %1" : "=r"(cs), "=r"(ss));
    ok(cs == 0x33 && ss == 0x2b, "selectors");
    return finish();
}
