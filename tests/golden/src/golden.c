/*
 * golden.c: the program of the golden traces, without a C library, so that its trace is small.
 *
 * It forks a child that runs itself as `golden second`, reads what the child writes into a pipe, waits for
 * it, takes a signal, maps memory, and dies of a store through a pointer that a system call filled in.
 * `planted` is what a chronicle is asked about: the last write of it is in plant().
 *
 * x86-64, `gcc -static -nostdlib`: the entry is `_start`, see make.sh.
 */
enum {
    READ,
    WRITE,
    MMAP = 9,
    SIGACTION = 13,
    SIGRETURN = 15,
    PIPE = 22,
    GETPID = 39,
    FORK = 57,
    EXECVE = 59
};
enum { EXIT = 60, WAIT4 = 61, KILL = 62, DUP2 = 33, CLOSE = 3, GETRANDOM = 318 };
enum { USR1 = 10, RESTORER = 0x04000000 };

struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}

__asm__(".globl _start\n"
        "_start: mov %rsp, %rdi\n"
        "        call start\n"
        "restore: mov $15, %eax\n"
        "        syscall\n");
void restore(void);

volatile long planted = 1;
static volatile int handled;

static void say(const char *text)
{
    long n = 0;
    while (text[n])
        n++;
    call(WRITE, 1, (long)text, n, 0, 0, 0);
}

static void say_number(unsigned long n)
{
    char text[24];
    int at = sizeof text;
    text[--at] = 0;
    do
        text[--at] = (char)('0' + n % 10);
    while (n /= 10);
    say(text + at);
}

static void on_signal(int signal)
{
    handled = signal;
}

static __attribute__((noinline)) void plant(long value)
{
    planted = value;
}

/* What the child prints is random: only a replay can print the same. */
static void second(void)
{
    unsigned long random = 0;
    call(GETRANDOM, (long)&random, sizeof random, 0, 0, 0, 0);
    say("second ");
    say_number(random);
    call(EXIT, 3, 0, 0, 0, 0, 0);
}

static void read_child(long *environment)
{
    static const char *const arguments[] = {"golden", "second", 0};
    int ends[2], status = 0;
    char text[64];
    call(PIPE, (long)ends, 0, 0, 0, 0, 0);
    long child = call(FORK, 0, 0, 0, 0, 0, 0);
    if (child == 0) {
        call(DUP2, ends[1], 1, 0, 0, 0, 0);
        call(CLOSE, ends[0], 0, 0, 0, 0, 0);
        call(CLOSE, ends[1], 0, 0, 0, 0, 0);
        call(EXECVE, (long)"/proc/self/exe", (long)arguments, (long)environment, 0, 0, 0);
        call(EXIT, 127, 0, 0, 0, 0, 0);
    }
    call(CLOSE, ends[1], 0, 0, 0, 0, 0);
    for (long n; (n = call(READ, ends[0], (long)text, sizeof text - 1, 0, 0, 0)) > 0;) {
        text[n] = 0;
        say(text);
    }
    call(WAIT4, child, (long)&status, 0, 0, 0, 0);
    say("\nended with ");
    say_number((unsigned long)status >> 8);
    say("\n");
}

static __attribute__((used)) void start(long *stack)
{
    if (stack[0] > 1)
        second();
    read_child(stack + stack[0] + 2);

    struct action action = {on_signal, RESTORER, restore, 0};
    call(SIGACTION, USR1, (long)&action, 0, 8, 0, 0);
    call(KILL, call(GETPID, 0, 0, 0, 0, 0, 0), USR1, 0, 0, 0, 0);
    say("signal ");
    say_number((unsigned long)handled);
    say("\n");

    long *memory = (long *)call(MMAP, 0, 8192, 3, 0x22, -1, 0);
    for (int i = 0; i < 1024; i++)
        memory[i] = i;
    plant(memory[777]);
    say("planted ");
    say_number((unsigned long)planted);
    say("\n");
    *(long *)planted = 1;
}
