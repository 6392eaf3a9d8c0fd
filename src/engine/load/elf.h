/*
 * elf.h: the headers of an ELF file, checked as the kernel checks them, and its PT_LOADs mapped as the kernel
 * maps them.
 */
#ifndef CLIO_ENGINE_LOAD_ELF_H
#define CLIO_ENGINE_LOAD_ELF_H

#include <elf.h>

#include "engine/guest/engine.h"
#include "engine/memory/space.h"

struct elf_image {
    Elf64_Ehdr header;
    Elf64_Phdr *programs; /* header.e_phnum of them; owned */
};

/*
 * Reads the ELF header and the program headers of an x86-64 ELF64 file that is ET_EXEC or ET_DYN. 0,
 * -ENOEXEC, -EIO when the file cannot be read, -ENOMEM. Free with elf_free after success only.
 */
int elf_read(int fd, struct elf_image *image);
/* The same for a file that the guest maps: nobody who watches the file sees it. */
int elf_peek(int fd, struct elf_image *image);
void elf_free(struct elf_image *image);

/*
 * Bytes from the first page of the PT_LOADs to the page after the last, and the largest sane alignment. False
 * when there is no PT_LOAD or one wraps around or is larger than the guest's memory.
 */
bool elf_span(const struct elf_image *image, uint64_t *span, uint64_t *align);

/* Where an image lies in the guest. */
struct elf_place {
    uint64_t bias;  /* added to the file's addresses */
    uint64_t entry; /* where it starts */
    uint64_t phdr;  /* address of the program headers in memory, 0 when no PT_LOAD holds them */
};

/*
 * Maps the PT_LOADs of the file fd, known to the trace as `file` (NULL: content goes into the event), at its
 * own addresses or, for ET_DYN, at its slot. 0, -ENOMEM, -EINVAL, -EFAULT; some of it may be mapped then.
 */
int elf_map(struct space *s, const struct elf_image *image, int fd, const struct file_ref *file,
            struct elf_place *place);

#endif
