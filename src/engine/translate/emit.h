/*
 * emit.h: appends machine code at a pointer.
 *
 * Every function writes exactly the instruction its name says. gs slots are addressed as gs:[disp32] with the
 * TASK_ offsets of guest/task.h; none of these touches the flags unless its name is an arithmetic instruction.
 */
#ifndef CLIO_TRANSLATE_EMIT_H
#define CLIO_TRANSLATE_EMIT_H

#include <stdint.h>
#include <string.h>

struct code { /* an output position */
    uint8_t *p;
};

static inline void emit8(struct code *c, unsigned byte)
{
    *c->p++ = (uint8_t)byte;
}

static inline void emit32(struct code *c, uint32_t word)
{
    memcpy(c->p, &word, 4);
    c->p += 4;
}

static inline void emit64(struct code *c, uint64_t word)
{
    memcpy(c->p, &word, 8);
    c->p += 8;
}

static inline void emit_bytes(struct code *c, const void *bytes, size_t n)
{
    memcpy(c->p, bytes, n);
    c->p += n;
}

static inline void emit_gs_modrm(struct code *c, unsigned reg, uint32_t slot)
{
    emit8(c, (reg & 7) << 3 | 4);
    emit8(c, 0x25);
    emit32(c, slot);
}

/* mov gs:[slot], reg */
static inline void emit_store_slot(struct code *c, uint32_t slot, unsigned reg)
{
    emit8(c, 0x65);
    emit8(c, 0x48 | (reg >> 3) << 2);
    emit8(c, 0x89);
    emit_gs_modrm(c, reg, slot);
}

/* mov reg, gs:[slot] */
static inline void emit_load_slot(struct code *c, unsigned reg, uint32_t slot)
{
    emit8(c, 0x65);
    emit8(c, 0x48 | (reg >> 3) << 2);
    emit8(c, 0x8b);
    emit_gs_modrm(c, reg, slot);
}

/* mov qword gs:[slot], value */
static inline void emit_set_slot(struct code *c, uint32_t slot, uint64_t value)
{
    if ((int64_t)value == (int32_t)value) {
        emit8(c, 0x65);
        emit8(c, 0x48);
        emit8(c, 0xc7);
        emit_gs_modrm(c, 0, slot);
        emit32(c, (uint32_t)value);
        return;
    }
    for (int half = 0; half < 2; half++) {
        emit8(c, 0x65);
        emit8(c, 0xc7);
        emit_gs_modrm(c, 0, slot + 4 * (uint32_t)half);
        emit32(c, (uint32_t)(value >> 32 * half));
    }
}

/* jmp gs:[slot] */
static inline void emit_jmp_slot(struct code *c, uint32_t slot)
{
    emit8(c, 0x65);
    emit8(c, 0xff);
    emit_gs_modrm(c, 4, slot);
}

/* Points the 4 bytes at `site` (the end of an instruction) at `target`. */
static inline void emit_patch_rel32(uint8_t *site, const uint8_t *target)
{
    int32_t rel = (int32_t)(target - (site + 4));
    memcpy(site, &rel, 4);
}

static inline void emit_rel32(struct code *c, const uint8_t *target)
{
    emit_patch_rel32(c->p, target);
    c->p += 4;
}

static inline void emit_jmp(struct code *c, const uint8_t *target)
{
    emit8(c, 0xe9);
    emit_rel32(c, target);
}

/* jcc target; condition is the low nibble of the opcode */
static inline void emit_jcc(struct code *c, unsigned condition, const uint8_t *target)
{
    emit8(c, 0x0f);
    emit8(c, 0x80 | condition);
    emit_rel32(c, target);
}

/* lea reg, [reg + disp32] */
static inline void emit_lea_add(struct code *c, unsigned reg, int32_t disp)
{
    emit8(c, 0x48 | (reg >> 3) * 5);
    emit8(c, 0x8d);
    emit8(c, 0x80 | (reg & 7) * 9);
    if ((reg & 7) == 4) {
        c->p[-1] = (uint8_t)(0x80 | 4 << 3 | 4);
        emit8(c, 0x24);
    }
    emit32(c, (uint32_t)disp);
}

/* mov reg, imm64 (shortest form) */
static inline void emit_mov_imm(struct code *c, unsigned reg, uint64_t value)
{
    if (value <= UINT32_MAX) {
        if (reg >> 3)
            emit8(c, 0x41);
        emit8(c, 0xb8 | (reg & 7));
        emit32(c, (uint32_t)value);
    } else {
        emit8(c, 0x48 | reg >> 3);
        emit8(c, 0xb8 | (reg & 7));
        emit64(c, value);
    }
}

/* push of a guest return address: one push, and its upper half where it does not sign-extend */
static inline void emit_push_pc(struct code *c, uint64_t pc)
{
    emit8(c, 0x68);
    emit32(c, (uint32_t)pc);
    if ((int64_t)pc != (int32_t)pc) {
        emit8(c, 0xc7); /* mov dword [rsp+4], imm32 */
        emit8(c, 0x44);
        emit8(c, 0x24);
        emit8(c, 4);
        emit32(c, (uint32_t)(pc >> 32));
    }
}

#endif
