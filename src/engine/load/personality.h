/*
 * personality.h: the guest's personality(2), kept by the engine through fork and exec. Of the kernel's own, which is the
 * engine's, only those bits follow that do not say how memory is mapped.
 */
#ifndef CLIO_ENGINE_LOAD_PERSONALITY_H
#define CLIO_ENGINE_LOAD_PERSONALITY_H

#include <stdbool.h>
#include <stdint.h>

/* At the start of a recording: takes over what the engine was started with. */
void personality_begin(void);
/* As personality(2): the former value, or -errno. */
int64_t personality_change(uint32_t to);
/* True when the guest has set the bit (linux/personality.h). */
bool personality_has(uint32_t bit);
/* A 64-bit program is being executed: what the kernel resets then is reset; a note names what is not honoured. */
void personality_exec(void);
/* A program that only the kernel can run is about to be: its personality is the guest's in full. */
void personality_leave(void);

#endif
