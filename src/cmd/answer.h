/*
 * answer.h: how `clio query` shows what a chronicle says: as text for people and as JSON.
 */
#ifndef CLIO_CMD_ANSWER_H
#define CLIO_CMD_ANSWER_H

#include "clio/chronicle.h"
#include "symbols/symbols.h"

struct answer_context {
    const struct clio_chronicle *chronicle;
    struct symbols *symbols;
};

struct answer_question { /* last-write or first-write */
    const char *name;
    uint64_t address, length;
    struct clio_moment moment; /* before or after which */
    bool first;
};

void answer_writes_text(const struct answer_context *c, const struct answer_question *q,
                        const struct clio_write *w, size_t count);
void answer_writes_json(const struct answer_context *c, const struct answer_question *q,
                        const struct clio_write *w, size_t count);
void answer_crash_text(const struct answer_context *c, const struct clio_crash *crash);
void answer_no_crash_json(void);
void answer_crash_json(const struct answer_context *c, const struct clio_crash *crash);
void answer_info_text(const struct answer_context *c);
void answer_info_json(const struct answer_context *c);

/* A module as symbols.h wants it. */
struct symbols_map answer_map(const struct clio_module *module);

#endif
