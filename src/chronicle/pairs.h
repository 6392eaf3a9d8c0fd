/*
 * pairs.h: a stream of (key, ordinal) pairs in ascending order, as index blocks and sorted runs hold them.
 *
 * A pair is a varint v. Even v: the same key as before, the ordinal grew by v >> 1 (at least 1). Odd v: the
 * key grew by v >> 1, and a second varint is zigzag(ordinal - ordinal of the last pair of this kind). The
 * stream begins at a key and ordinal known from elsewhere, so its first pair is the two bytes 1, 0.
 */
#ifndef CLIO_CHRONICLE_PAIRS_H
#define CLIO_CHRONICLE_PAIRS_H

#include "chronicle/format.h"

enum { PAIR_BYTES_MAX = 20 };

struct pair {
    uint64_t key, ordinal;
    uint64_t base; /* ordinal of the last pair that named its key */
    int named;     /* a pair was put: the next may leave out its key */
};

static inline struct pair pair_start(uint64_t key, uint64_t ordinal)
{
    return (struct pair){.key = key, .ordinal = ordinal, .base = ordinal};
}

static inline uint8_t *pair_put(uint8_t *p, struct pair *s, uint64_t key, uint64_t ordinal)
{
    if (key == s->key && s->named) {
        p = varint_put(p, (ordinal - s->ordinal) << 1);
    } else {
        p = varint_put(p, (key - s->key) << 1 | 1);
        p = varint_put(p, zigzag(ordinal - s->base));
        s->key = key;
        s->base = ordinal;
        s->named = 1;
    }
    s->ordinal = ordinal;
    return p;
}

/* Reads the next pair into *s. Returns the position after it or NULL for bytes that are no pair. */
static inline const uint8_t *pair_get(const uint8_t *p, const uint8_t *end, struct pair *s)
{
    uint64_t v;
    p = varint_get(p, end, &v);
    if (!p)
        return NULL;
    if (!(v & 1)) {
        s->ordinal += v >> 1;
        return v && s->named ? p : NULL;
    }
    s->key += v >> 1;
    p = varint_get(p, end, &v);
    s->ordinal = s->base += unzigzag(v);
    s->named = 1;
    return p;
}

#endif
