/*
 * replay_shared.h: what `clio replay` and the engine processes of one replay share, in a memfd mapped by all.
 *
 * The command fills `outputs` with the sequence numbers of all events flagged EVF_OUTPUT or EVF_OUTERR of the
 * spaces it replays, ascending. An engine that replays such an event waits until outputs[turn] is its event's
 * seq, writes the bytes to descriptor 1 or 2, adds 1 to turn and wakes everybody. `abort` not 0 ends all
 * waiting.
 */
#ifndef CLIO_TRACE_REPLAY_SHARED_H
#define CLIO_TRACE_REPLAY_SHARED_H

#include <stdint.h>

struct replay_shared {
    uint32_t turn; /* futex word */
    uint32_t noutputs;
    uint32_t abort;
    uint32_t diverged;    /* spaces that diverged; the first one fills `text` */
    uint64_t events;      /* replayed and matched, all spaces */
    uint32_t spaces_done; /* replayed to their last event, clean end */
    uint32_t spaces_cut;  /* replayed to the last published event of a space that was killed */
    uint32_t failed;      /* spaces that could not be replayed for another reason; `text` says why */
    uint32_t text_lock;   /* 0 free; whoever swaps it to 1 writes text */
    char text[4096];      /* first divergence or failure, for people, may have several lines */
    uint64_t outputs[];
};

#endif
