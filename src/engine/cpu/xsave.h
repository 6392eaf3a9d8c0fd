/*
 * xsave.h: XSAVE areas: the guest's layout, and what the XSAVE family and signal frames store and load, as a function of the
 * vector state alone. No processor executes these instructions for the guest: which components a processor leaves out
 * because they are in their initial state differs from run to run, and its areas have its own sizes.
 *
 * For the guest all components of XCR0 are always in use: what is asked for is stored.
 */
#ifndef CLIO_ENGINE_CPU_XSAVE_H
#define CLIO_ENGINE_CPU_XSAVE_H

#include "engine/cpu/cpu.h"

enum {
    XSAVE_LEGACY = 512,
    XSAVE_HEADER = 64,
    XSAVE_EXTENDED = XSAVE_LEGACY + XSAVE_HEADER,
    XSAVE_MAX = 2752
};
enum { XSAVE_MAGIC2 = 0x46505845 }; /* the kernel's, behind the area in a frame */

extern const struct cpu_layout xsave_guest_layout; /* of the standard form */
uint32_t xsave_component_size(unsigned component);
uint32_t xsave_standard_size(uint64_t components);
uint32_t xsave_compact_size(uint64_t components);

/* Vector state as the host's xsave64 has written it in standard form. */
struct xsave_state {
    uint8_t *area;
    const struct cpu_layout *layout;
};

/* Of the last x87 instruction: its address, its operand's, its opcode. */
struct x87_pointers {
    uint64_t instruction, operand;
    uint16_t opcode;
};
struct x87_pointers xsave_x87_pointers(const struct xsave_state *state);
/* Sets the instruction, where there is one. */
void xsave_set_x87_instruction(const struct xsave_state *state, uint64_t instruction);

enum xsave_form { FORM_FXSAVE, FORM_STANDARD, FORM_COMPACT };

/* An area, and the parts of it that an instruction writes or reads, in the order in which it does. */
struct xsave_image {
    struct {
        uint32_t offset, size;
    } parts[12];
    unsigned count;
    _Alignas(64) uint8_t bytes[XSAVE_MAX];
};

/*
 * What is stored for the components `asked`, which are cut to the guest's. wide: with 64-bit pointers (REX.W). old: the
 * XSTATE_BV that the area holds.
 */
void xsave_store(const struct cpu *cpu, const struct xsave_state *state, enum xsave_form form, uint64_t asked,
                 bool wide, uint64_t old, const struct x87_pointers *pointers, struct xsave_image *image);

/* Bytes from the area's beginning that an instruction wants to be able to write. */
uint32_t xsave_reach(const struct cpu *cpu, enum xsave_form form, uint64_t asked);

/*
 * Loading takes two steps. First, image->bytes holds the legacy region and (not FXRSTOR) the header: sets image->parts to
 * what is read behind them. False: #GP. Then, with those in bytes, xsave_load changes the state.
 */
bool xsave_plan_load(const struct cpu *cpu, bool fx, uint64_t asked, struct xsave_image *image);
void xsave_load(const struct cpu *cpu, const struct xsave_state *state, bool fx, uint64_t asked, bool wide,
                const struct xsave_image *image);

/* The state after reset, as a new program and a signal's handler have it. */
void xsave_initial(const struct xsave_state *state);

/* One component's bytes; parts in their initial state are zero. For registers: 0 to 15 of SSE, AVX, ZMM_Hi256; k0-7. */
void xsave_component(const struct xsave_state *state, unsigned component, void *to);

/* From a frame of the host's kernel, whose layout is the state's; `kept`: the components that the state keeps. */
void xsave_from_kernel(const struct xsave_state *state, uint32_t room, uint64_t kept, const uint8_t *frame);

/* ---- signal frames ---- */

/* Bytes that a frame holds of the vector state, at an address aligned to 64. */
uint32_t xsave_frame_size(const struct cpu *cpu);
void xsave_frame_store(const struct cpu *cpu, const struct xsave_state *state,
                       const struct x87_pointers *pointers, struct xsave_image *image);
/* Bytes of the area in a frame, if XSAVE_MAGIC2 follows; 0: only the legacy region counts. */
uint32_t xsave_frame_extended(const struct cpu *cpu, const uint8_t legacy[XSAVE_LEGACY]);
/* From a frame in image->bytes of which `size` bytes are there. False: the kernel would send SIGSEGV. */
bool xsave_frame_load(const struct cpu *cpu, const struct xsave_state *state, uint32_t size,
                      struct xsave_image *image);

#endif
