/* sharedcopy.c: see sharedcopy.h. */
#include "engine/kernel/sharedcopy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/event/event.h"
#include "engine/guest/access.h"
#include "engine/memory/space.h"

enum { SHARED_LIMIT = 64 << 20, GRAIN = 8, JOIN = 64 };

/* Differences less than JOIN apart become one. */
void add_differences(struct task *t, uint64_t addr, const uint8_t *old, uint64_t len)
{
    const uint8_t *now = (const uint8_t *)addr;
    uint64_t start = 0, end = 0;
    for (uint64_t i = 0; i < len; i += GRAIN) {
        if (!memcmp(now + i, old + i, GRAIN))
            continue;
        if (end && i - end > JOIN) {
            effect_add(t, addr + start, end - start);
            end = 0;
        }
        if (!end)
            start = i;
        end = i + GRAIN;
    }
    if (end)
        effect_add(t, addr + start, end - start);
}

static bool shared_writable(const struct vma *v)
{
    return v->shared && (v->prot & PROT_WRITE) && (v->prot & PROT_READ);
}

static bool add_piece(struct shared_copy *c, const struct vma *v)
{
    uint64_t len = v->end - v->start;
    uint8_t *bytes = malloc(len);
    struct shared_piece *pieces = realloc(c->pieces, (c->count + 1) * sizeof *pieces);
    if (pieces)
        c->pieces = pieces;
    if (!bytes || !pieces) {
        free(bytes);
        return false;
    }
    for (uint64_t at = 0; at < len; at += PAGE_SIZE)
        if (safe_copy(bytes + at, (const void *)(v->start + at), PAGE_SIZE))
            memset(bytes + at, 0, PAGE_SIZE);
    c->pieces[c->count++] = (struct shared_piece){v->start, len, bytes};
    return true;
}

void shared_copy_take(struct shared_copy *c, const char *who)
{
    uint64_t size = 0;
    *c = (struct shared_copy){0};
    for (uint32_t i = 0; i < guest_space.count; i++) {
        const struct vma *v = &guest_space.vmas[i];
        if (!shared_writable(v))
            continue;
        size += v->end - v->start;
        if (size <= SHARED_LIMIT && add_piece(c, v))
            continue;
        event_note("%s ran with large shared mappings: changes there are not recorded", who);
        return;
    }
}

void shared_copy_compare(struct shared_copy *c, struct task *t)
{
    char byte;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct shared_piece *p = &c->pieces[i];
        for (uint64_t at = 0; at < p->len; at += PAGE_SIZE) {
            const struct vma *v = space_at_or_above(&guest_space, p->start + at);
            if (v && v->start <= p->start + at && shared_writable(v) &&
                !safe_copy(&byte, (const void *)(p->start + at), 1))
                add_differences(t, p->start + at, p->bytes + at, PAGE_SIZE);
        }
        free(p->bytes);
    }
    free(c->pieces);
    *c = (struct shared_copy){0};
}
