#include "engine/translate/instrument.h"
#include "engine/core/dispatch.h"
void instrument_block(struct code *c, struct block *b){}
bool instrument_before(struct code *c, const struct insn *in, struct write_site *site){return false;}
void instrument_after(struct code *c, const struct write_site *site, uint32_t index){}
void instrument_describe(const struct block *b){}
void exit_log_full(struct task *t){}
