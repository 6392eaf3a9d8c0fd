/*
 * layout.h: where the guest's memory lies and where the engine's. All constants; host mappings never fall inside the guest's.
 *
 *   0x0000_0001_0000 - 0x0000_1000_0000   non-PIE programs
 *   0x0000_1000_0000 - 0x0000_4000_0000   slots of ELF files (PIE, libraries); in older traces up to 0x6000_0000
 *   0x0000_4000_0000 - 0x0000_6000_0000   left to who asks for it: MAP_32BIT, programs with places of their own
 *   0x0000_6000_0000 - 0x0000_7000_0000   code cache                        (host)
 *   0x0000_7000_0000 - 0x0000_7100_0000   indirect branch table, task       (host)
 *   0x0000_7100_0000 - 0x1100_0000_0000   left to who asks for it
 *   0x1100_0000_0000 - 0x1180_0000_0000   break of every program
 *   0x1180_0000_0000 - 0x2100_0000_0000   mmap area, allocated downwards; the stack lies at its top
 *   0x2200_0000_0000 - 0x2300_0000_0000   tables of the code cache          (host)
 *   0x2300_0000_0000 - 0x5500_0000_0000   left to who asks for it, and to what is too large for the mmap area
 *   0x5500_0000_0000 - 0x5700_0000_0000   the engine's program              (host, where the kernel likes)
 *   0x5700_0000_0000 - 0x7e00_0000_0000   left to who asks for it, unless the kernel has put something of ours there
 *   0x7e00_0000_0000 - 0x8000_0000_0000   the engine's libraries, mappings, stack (host, where the kernel likes)
 *
 * A range that was the guest's in some version of the trace format stays so: old traces replay at their addresses.
 * Everything below 2 GiB can reach the code cache by a 32-bit displacement, and its addresses fit `push
 * imm32`.
 */
#ifndef CLIO_ENGINE_GUEST_LAYOUT_H
#define CLIO_ENGINE_GUEST_LAYOUT_H

#include <stdint.h>

#define GUEST_LOW    0x10000ull
#define SLOTS_LOW    0x10000000ull
#define SLOTS_HIGH   0x40000000ull
#define SHARED_HIGH  0x60000000ull /* code of files below may be in the shared cache */
#define CACHE_LOW    0x60000000ull
#define CACHE_HIGH   0x70000000ull
#define HOST_LOW     0x60000000ull /* [HOST_LOW, HOST_HIGH) is never the guest's */
#define HOST_HIGH    0x71000000ull
#define BRK_LOW      0x110000000000ull
#define BRK_HIGH     0x118000000000ull
#define MMAP_LOW     0x118000000000ull
#define GUEST_HIGH   0x210000000000ull
#define TABLES_LOW   0x220000000000ull /* [TABLES_LOW, TABLES_HIGH) is never the guest's */
#define TABLES_HIGH  0x230000000000ull
#define IMAGE_LOW    0x550000000000ull /* nor [IMAGE_LOW, IMAGE_HIGH) */
#define IMAGE_HIGH   0x570000000000ull
#define TOP_LOW      0x7e0000000000ull /* nor what lies above */
#define USER_END     0x7ffffffff000ull /* of the processor's user half, as the kernel gives it out */
#define PAGE_SIZE    4096ull
#define PAGE_UP(x)   (((uint64_t)(x) + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1))
#define PAGE_DOWN(x) ((uint64_t)(x) & ~(PAGE_SIZE - 1))

#endif
