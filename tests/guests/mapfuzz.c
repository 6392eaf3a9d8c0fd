/* Random changes of files and of what maps them; after each, every page that is mapped is looked at. */
// RUNS: 2 3 14
#include "guest.h"
#include <setjmp.h>

enum { PAGE = 4096, SLOTS = 8, SLOT_PAGES = 6, FILES = 3, FILE_PAGES = 8, STEPS = 1200 };

static uint64_t seed;
static char *arena; /* SLOTS x SLOT_PAGES pages, with as many unused ones behind each */
static int files[FILES];

static uint32_t roll(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % n;
}

static char *slot(uint32_t i)
{
    return arena + (size_t)i * 2 * SLOT_PAGES * PAGE;
}

static sigjmp_buf back;

static void on_fault(int signo)
{
    siglongjmp(back, signo);
}

static int touch(volatile char *p, int value)
{
    int signo = sigsetjmp(back, 1);
    if (signo)
        return -signo;
    if (value >= 0)
        *p = (char)value;
    return (uint8_t)*p;
}

static uint64_t look(uint64_t h)
{
    static const int at[] = {0, 100, PAGE - 1};
    int16_t seen[3];
    for (uint32_t i = 0; i < SLOTS; i++)
        for (uint32_t page = 0; page < 2 * SLOT_PAGES; page++) {
            for (int k = 0; k < 3; k++) {
                seen[k] = (int16_t)touch(slot(i) + page * PAGE + at[k], -1);
                if (seen[k] < 0)
                    break;
            }
            h = digest(h, seen, seen[0] < 0 ? 2 : 6);
        }
    return h;
}

static int any_prot(void)
{
    static const int prots[] = {PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_NONE,
                                PROT_READ | PROT_EXEC};
    return prots[roll(5)];
}

static long step(void)
{
    char block[2 * PAGE], *at = slot(roll(SLOTS)) + roll(SLOT_PAGES) * PAGE;
    uint32_t pages = 1 + roll(SLOT_PAGES);
    int fd = files[roll(FILES)];
    off_t offset = (off_t)roll(FILE_PAGES * PAGE);
    memset(block, (int)roll(256), sizeof block);
    switch (roll(16)) {
    case 0:
    case 1:
        return mmap(at, pages * PAGE, any_prot(), MAP_FIXED | (roll(2) ? MAP_SHARED : MAP_PRIVATE), fd,
                    (off_t)roll(FILE_PAGES) * PAGE) == at;
    case 2:
        return mmap(at, pages * PAGE, any_prot(),
                    MAP_FIXED | MAP_ANONYMOUS | (roll(2) ? MAP_SHARED : MAP_PRIVATE), -1, 0) == at;
    case 3:
        return roll(3) ? 0 : munmap(at, pages * PAGE);
    case 4:
        return mprotect(at, pages * PAGE, any_prot());
    case 5:
    case 6:
    case 7:
        return touch(at + roll(PAGE), (int)roll(256));
    case 8:
    case 9:
        return pwrite(fd, block, roll(sizeof block), offset);
    case 10:
        return roll(3) ? 0 : ftruncate(fd, offset);
    case 11:
        return madvise(at, pages * PAGE, roll(8) ? MADV_DONTNEED : MADV_REMOVE);
    case 12:
        return fallocate(fd, roll(2) ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : 0, offset,
                         1 + roll(2 * PAGE));
    case 13: { /* within one mapping or an error; another view with length 0 */
        char *to = slot(roll(SLOTS)) + SLOT_PAGES * PAGE;
        return mremap(at, roll(4) ? PAGE : 0, PAGE * (1 + roll(3)), MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
    }
    case 14:
        return pread(fd, at + roll(PAGE), roll(PAGE), offset);
    default:
        lseek(fd, offset, SEEK_SET);
        return write(fd, block, roll(PAGE));
    }
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    arena = mmap(NULL, 2 * SLOTS * SLOT_PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    files[0] = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    files[1] = memfd_create("memory", 0);
    files[2] = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
    uint64_t h = 1;
    for (int i = 0; i < STEPS; i++) {
        long result = step();
        if (result < 0 && errno)
            result = -errno;
        errno = 0;
        h = look(digest(h, &result, sizeof result));
        if (i % 50 == 49)
            say("%d: %016llx\n", i + 1, (unsigned long long)h);
    }
    ok(true, "done");
    return finish();
}
