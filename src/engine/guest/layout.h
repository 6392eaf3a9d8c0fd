/*
 * layout.h: where the guest's memory lies and where the engine's. All constants; host mappings never fall inside the guest's.
 *
 *   0x0000_0001_0000 - 0x0000_1000_0000   non-PIE programs
 *   0x0000_1000_0000 - 0x0000_6000_0000   slots of ELF files (PIE, libraries)
 *   0x0000_6000_0000 - 0x0000_7000_0000   code cache                        (host)
 *   0x0000_7000_0000 - 0x0000_7100_0000   indirect branch table, task       (host)
 *   0x1100_0000_0000 - 0x1180_0000_0000   break of every program
 *   0x1180_0000_0000 - 0x2100_0000_0000   mmap area, allocated downwards; the stack lies at its top
 *   0x6000_0000_0000 - 0x6401_0000_0000   given only to who asks for it: AddressSanitizer's heap
 *
 * Everything below 2 GiB can reach the code cache by a 32-bit displacement, and its addresses fit `push
 * imm32`.
 */
#ifndef CLIO_ENGINE_GUEST_LAYOUT_H
#define CLIO_ENGINE_GUEST_LAYOUT_H

#include <stdint.h>

#define GUEST_LOW    0x10000ull
#define SLOTS_LOW    0x10000000ull
#define SLOTS_HIGH   0x60000000ull
#define CACHE_LOW    0x60000000ull
#define CACHE_HIGH   0x70000000ull
#define HOST_LOW     0x60000000ull /* [HOST_LOW, HOST_HIGH) is never the guest's */
#define HOST_HIGH    0x71000000ull
#define BRK_LOW      0x110000000000ull
#define BRK_HIGH     0x118000000000ull
#define MMAP_LOW     0x118000000000ull
#define GUEST_HIGH   0x210000000000ull
#define FAR_LOW      0x600000000000ull
#define FAR_HIGH     0x640100000000ull
#define PAGE_SIZE    4096ull
#define PAGE_UP(x)   (((uint64_t)(x) + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1))
#define PAGE_DOWN(x) ((uint64_t)(x) & ~(PAGE_SIZE - 1))

#endif
