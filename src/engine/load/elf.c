/* elf.c: see elf.h. The checks and their errors are those of the kernel's ELF loader. */
#include "engine/load/elf.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/load/slots.h"
#include "engine/memory/change.h"
#include "engine/memory/space.h"

enum { PROGRAMS_SIZE_MAX = 65536, ALIGN_MAX = 1 << 30 };

/* Reads exactly n bytes. 0, -EIO, or -ENOEXEC when the file ends before. */
static int read_at(int fd, void *to, size_t n, uint64_t offset)
{
    for (size_t done = 0; done < n;) {
        ssize_t r =
            offset > INT64_MAX - n ? 0 : pread(fd, (char *)to + done, n - done, (off_t)(offset + done));
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r ? -EIO : -ENOEXEC;
        done += (size_t)r;
    }
    return 0;
}

/*
 * The same through a mapping, which watchers of the file do not see. A hole of a file in memory would become
 * a page of it: there it is read.
 */
static int peek_at(int fd, void *to, size_t n, uint64_t offset)
{
    struct stat st;
    struct statfs fs;
    if (fstat(fd, &st) || fstatfs(fd, &fs))
        return -EIO;
    bool sparse = (uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size;
    if (sparse && (fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC))
        return read_at(fd, to, n, offset);
    if (offset > (uint64_t)st.st_size || n > (uint64_t)st.st_size - offset)
        return -ENOEXEC;
    size_t lead = offset % PAGE_SIZE;
    uint8_t *map = mmap(NULL, lead + n, PROT_READ, MAP_PRIVATE, fd, (off_t)(offset - lead));
    if (map == MAP_FAILED)
        return -EIO;
    size_t missed = safe_copy(to, map + lead, n);
    munmap(map, lead + n);
    return missed ? -EIO : 0;
}

static bool header_fits(const Elf64_Ehdr *h)
{
    return !memcmp(h->e_ident, ELFMAG, SELFMAG) && h->e_ident[EI_CLASS] == ELFCLASS64 &&
           h->e_machine == EM_X86_64 && (h->e_type == ET_EXEC || h->e_type == ET_DYN) &&
           h->e_phentsize == sizeof(Elf64_Phdr) && h->e_phnum &&
           h->e_phnum * sizeof(Elf64_Phdr) <= PROGRAMS_SIZE_MAX;
}

static int read_image(int fd, struct elf_image *image,
                      int (*read_part)(int fd, void *to, size_t n, uint64_t offset))
{
    int error = read_part(fd, &image->header, sizeof image->header, 0);
    if (error)
        return error;
    if (!header_fits(&image->header))
        return -ENOEXEC;
    size_t size = image->header.e_phnum * sizeof(Elf64_Phdr);
    image->programs = malloc(size);
    if (!image->programs)
        return -ENOMEM;
    error = read_part(fd, image->programs, size, image->header.e_phoff);
    if (error)
        elf_free(image);
    return error;
}

int elf_read(int fd, struct elf_image *image)
{
    return read_image(fd, image, read_at);
}

int elf_peek(int fd, struct elf_image *image)
{
    return read_image(fd, image, peek_at);
}

void elf_free(struct elf_image *image)
{
    free(image->programs);
    image->programs = NULL;
}

static bool in_guest(uint64_t start, uint64_t len)
{
    return start < GUEST_HIGH && len <= GUEST_HIGH - start;
}

bool elf_span(const struct elf_image *image, uint64_t *span, uint64_t *align)
{
    uint64_t low = UINT64_MAX, high = 0;
    *align = PAGE_SIZE;
    for (int i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->programs[i];
        if (p->p_type != PT_LOAD)
            continue;
        if (!in_guest(p->p_vaddr, p->p_memsz))
            return false;
        if (PAGE_DOWN(p->p_vaddr) < low)
            low = PAGE_DOWN(p->p_vaddr);
        if (PAGE_UP(p->p_vaddr + p->p_memsz) > high)
            high = PAGE_UP(p->p_vaddr + p->p_memsz);
        if (p->p_align > *align && p->p_align <= ALIGN_MAX && !(p->p_align & (p->p_align - 1)))
            *align = p->p_align;
    }
    *span = high - low;
    return low < high;
}

static uint32_t prot_of(const Elf64_Phdr *p)
{
    return (p->p_flags & PF_R ? PROT_READ : 0) | (p->p_flags & PF_W ? PROT_WRITE : 0) |
           (p->p_flags & PF_X ? PROT_EXEC : 0);
}

struct mapper {
    struct space *space;
    int fd;
    const struct file_ref *file;
    uint64_t file_size;
    uint64_t bias;
};

static int map_file_part(struct mapper *m, const Elf64_Phdr *p)
{
    uint64_t inside = p->p_vaddr % PAGE_SIZE;
    uint64_t start = m->bias + p->p_vaddr - inside;
    uint64_t len = PAGE_UP(inside + p->p_filesz);
    if (p->p_offset < inside || (p->p_offset - inside) % PAGE_SIZE || p->p_offset > INT64_MAX - len)
        return -EINVAL;
    struct vma v = {.start = start,
                    .end = start + len,
                    .prot = prot_of(p),
                    .offset = p->p_offset - inside,
                    .file = m->file};
    return change_map(m->space, &v, m->fd, 0);
}

/* The rest of the last file page is zero where the segment is writable. */
static int zero_page_end(struct mapper *m, const Elf64_Phdr *p)
{
    static const uint8_t zeros[PAGE_SIZE];
    uint64_t from = m->bias + p->p_vaddr + p->p_filesz;
    uint64_t len = PAGE_UP(from) - from;
    if (!len || !(p->p_flags & PF_W))
        return 0;
    bool backed = p->p_offset + p->p_filesz < PAGE_UP(m->file_size);
    return backed ? guest_write(from, zeros, len) : -EFAULT;
}

static int map_bss(struct mapper *m, const Elf64_Phdr *p)
{
    uint64_t from = m->bias + p->p_vaddr;
    uint64_t to = PAGE_UP(from + p->p_memsz);
    from = p->p_filesz ? PAGE_UP(from + p->p_filesz) : PAGE_DOWN(from);
    if (from >= to)
        return 0;
    struct vma v = {
        .start = from, .end = to, .prot = PROT_READ | PROT_WRITE | (p->p_flags & PF_X ? PROT_EXEC : 0)};
    return change_map(m->space, &v, -1, MAP_NORESERVE);
}

static int map_segment(struct mapper *m, const Elf64_Phdr *p)
{
    if (p->p_filesz > p->p_memsz || !in_guest(m->bias + p->p_vaddr, p->p_memsz) ||
        !in_guest(p->p_vaddr, p->p_memsz))
        return -EINVAL;
    int error = p->p_filesz ? map_file_part(m, p) : 0;
    if (!error && p->p_filesz && p->p_memsz > p->p_filesz)
        error = zero_page_end(m, p);
    if (!error && p->p_memsz > p->p_filesz)
        error = map_bss(m, p);
    return error;
}

/* Adds the zeroed page ends to the event, unless another segment hides them. */
static void record_zeros(const struct mapper *m, const struct elf_image *image)
{
    static uint8_t page[PAGE_SIZE];
    for (int i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->programs[i];
        uint64_t from = m->bias + p->p_vaddr + p->p_filesz, len = PAGE_UP(from) - from;
        bool zeroed = p->p_type == PT_LOAD && (p->p_flags & PF_W) && p->p_filesz && p->p_memsz > p->p_filesz;
        if (zeroed && !guest_read(page, from, len))
            effect_add(engine.task, from, len);
    }
}

static uint64_t headers_in_memory(const struct elf_image *image, uint64_t bias)
{
    for (int i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->programs[i];
        if (p->p_type == PT_LOAD && p->p_offset <= image->header.e_phoff &&
            image->header.e_phoff - p->p_offset < p->p_filesz)
            return bias + p->p_vaddr + (image->header.e_phoff - p->p_offset);
    }
    return 0;
}

static uint64_t lowest_page(const struct elf_image *image)
{
    uint64_t low = UINT64_MAX;
    for (int i = 0; i < image->header.e_phnum; i++)
        if (image->programs[i].p_type == PT_LOAD && PAGE_DOWN(image->programs[i].p_vaddr) < low)
            low = PAGE_DOWN(image->programs[i].p_vaddr);
    return low;
}

int elf_map(struct space *s, const struct elf_image *image, int fd, const struct file_ref *file,
            struct elf_place *place)
{
    struct stat st;
    struct mapper m = {.space = s, .fd = fd, .file = file};
    if (fstat(fd, &st))
        return -EIO;
    m.file_size = (uint64_t)st.st_size;
    if (image->header.e_type == ET_DYN) {
        struct slot_need need;
        if (!slot_need(fd, &need))
            return -EINVAL;
        uint64_t at = slot_pick(s, &need);
        if (!at)
            return -ENOMEM;
        m.bias = at - lowest_page(image);
    }
    for (int i = 0; i < image->header.e_phnum; i++) {
        int error = image->programs[i].p_type == PT_LOAD ? map_segment(&m, &image->programs[i]) : 0;
        if (error)
            return error;
    }
    record_zeros(&m, image);
    place->bias = m.bias;
    place->entry = m.bias + image->header.e_entry;
    place->phdr = headers_in_memory(image, m.bias);
    return in_guest(place->entry, 1) ? 0 : -EINVAL;
}
