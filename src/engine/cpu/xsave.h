/* xsave.h: areas that a guest's XSAVE, XSAVEC or XSAVEOPT has written, made independent of the processor's
 * bookkeeping. */
#ifndef CLIO_ENGINE_XSAVE_H
#define CLIO_ENGINE_XSAVE_H

#include "engine/guest/engine.h"

/*
 * Components that were asked for (edx:eax) and left out because they are in their initial state are written,
 * and marked as present, which means the same to XRSTOR. Called right after the instruction.
 */
void xsave_normalize(struct task *t, uint64_t area);

#endif
