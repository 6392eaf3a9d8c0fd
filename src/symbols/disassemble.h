/*
 * disassemble.h: one instruction as text, in the notation of gdb and objdump (AT&T).
 */
#ifndef CLIO_SYMBOLS_DISASSEMBLE_H
#define CLIO_SYMBOLS_DISASSEMBLE_H

#include <stddef.h>
#include <stdint.h>

/* The instruction in bytes[0..n), as if at address pc, to text. text is "" when the bytes hold none. */
void disassemble(const void *bytes, size_t n, uint64_t pc, char *text, size_t size);

#endif
