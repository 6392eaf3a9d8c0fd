/*
 * memory.h: the system calls that shape the guest's address space. They decide addresses themselves, perform
 * the change through memory/change.h, which tells the trace, and answer as the kernel would. Replay never calls
 * them.
 */
#ifndef CLIO_ENGINE_KERNEL_MEMORY_H
#define CLIO_ENGINE_KERNEL_MEMORY_H

#include "engine/kernel/table.h"

sys_record_fn rec_personality, rec_process_madvise, rec_mmap, rec_munmap, rec_mprotect, rec_pkey_mprotect,
    rec_mremap, rec_brk, rec_madvise, rec_msync, rec_mlock, rec_mlock2, rec_munlock, rec_mlockall,
    rec_munlockall, rec_mincore, rec_shmget, rec_shmat, rec_shmctl, rec_shmdt, rec_remap_file_pages,
    rec_mseal;

/*
 * In a forked child, before its first event is complete: memory marked MADV_WIPEONFORK and MADV_DONTFORK is
 * wiped and unmapped as part of that event.
 */
void memory_forked(struct task *t);

/* The error for a fixed address that the kernel would accept and Clio cannot; a note names it. */
int64_t memory_refuse_address(uint64_t addr, uint64_t len);
/* /dev/zero, whose mappings are anonymous memory. */
struct stat;
bool memory_is_zero_device(const struct stat *st);
/* What is readable is executable, too: the personality READ_IMPLIES_EXEC. */
bool memory_implies_exec(uint32_t prot);

#endif
