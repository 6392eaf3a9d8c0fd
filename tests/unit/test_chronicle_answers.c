/* Chronicles of random logs answer as a plain search through the log does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "chronicle_model.h"
#include "clio/chronicle.h"

static char path[64];

static void check_value(const struct model *m, const struct clio_write *a, const struct model_write *w)
{
    uint64_t ordinal = (uint64_t)(w - m->writes);
    if (w->kind == MODEL_MAP || w->kind == MODEL_UNMAP) {
        assert_int_equal(a->value_length, 0);
        return;
    }
    assert_int_equal(a->value_length, a->length < CLIO_VALUE_MAX ? a->length : CLIO_VALUE_MAX);
    assert_memory_equal(a->value, w->bytes + (a->address - w->address), a->value_length);
    for (uint32_t i = 0; i < a->value_length; i++) {
        const struct model_write *old = model_last(m, a->address + i, ordinal);
        bool known = old && (old->kind == MODEL_STORE || old->kind == MODEL_MEMORY);
        assert_int_equal(a->old_known >> i & 1, known);
        if (known)
            assert_int_equal(a->old[i], old->bytes[a->address + i - old->address]);
    }
}

static void check_answer(const struct model *m, const struct clio_write *a, const struct model_write *w)
{
    static const enum clio_write_kind kinds[] = {[MODEL_STORE] = CLIO_WRITE_STORE,
                                                 [MODEL_MEMORY] = CLIO_WRITE_EVENT,
                                                 [MODEL_MAP] = CLIO_WRITE_MAP,
                                                 [MODEL_UNMAP] = CLIO_WRITE_UNMAP};
    if (!w) {
        assert_int_equal(a->kind, CLIO_WRITE_NONE);
        return;
    }
    assert_int_equal(a->kind, kinds[w->kind]);
    assert_int_equal(a->ordinal, w - m->writes);
    assert_int_equal(a->pc, w->pc);
    assert_int_equal(a->write_address, w->address);
    assert_int_equal(a->write_length, w->length);
    assert_memory_equal(&a->moment, &w->clock, sizeof w->clock);
    assert_memory_equal(&a->before, &w->before, sizeof w->before);
    assert_int_equal(a->event, w->event);
    check_value(m, a, w);
}

/* Asks one random question and compares every byte of the answers. */
static void check_question(struct model *m, struct clio_chronicle *c)
{
    bool first = model_below(m, 2), whole = model_below(m, 4) == 0;
    uint64_t address = model_address(m) - model_below(m, 30),
             length = 1 + model_below(m, model_below(m, 10) ? 40 : 3000);
    if (model_below(m, 20) == 0)
        address += model_below(m, 1ull << 30);
    const struct model_write *some = &m->writes[model_below(m, m->nwrites)];
    struct chron_clock at = some->clock;
    if (model_below(m, 2) && at.step)
        at.step--;
    else if (model_below(m, 2))
        at = some->before;
    if (whole)
        at = first ? (struct chron_clock){0} : m->clock;
    struct clio_moment moment = {at.event, at.tick, at.step};
    const struct clio_write *answers;
    struct clio_error error;
    size_t n;
    bool ok =
        first ? clio_chronicle_first_write(c, address, length, whole ? NULL : &moment, &answers, &n, &error)
              : clio_chronicle_last_write(c, address, length, whole ? NULL : &moment, &answers, &n, &error);
    if (!ok)
        fail_msg("%s", error.text);
    uint64_t ordinal = model_ordinal(m, &at), next = address;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(answers[i].address, next);
        assert_true(answers[i].length > 0);
        const struct model_write *w = NULL;
        for (uint64_t j = 0; j < answers[i].length; j++) {
            w = first ? model_first(m, next + j, ordinal) : model_last(m, next + j, ordinal);
            if (w)
                assert_int_equal(answers[i].ordinal, w - m->writes);
            else
                assert_int_equal(answers[i].kind, CLIO_WRITE_NONE);
        }
        check_answer(m, &answers[i], w);
        next += answers[i].length;
        if (i)
            assert_true(answers[i].kind != answers[i - 1].kind ||
                        answers[i].ordinal != answers[i - 1].ordinal);
    }
    assert_int_equal(next, address + length);
}

static void check_log(uint64_t seed, uint64_t nblocks, uint64_t steps, int questions)
{
    struct model m;
    struct clio_error error;
    model_make(&m, seed, nblocks, steps);
    assert_int_equal(model_build(&m, path), 0);
    struct clio_chronicle *c = clio_chronicle_open(path, &error);
    if (!c)
        fail_msg("%s", error.text);
    const struct clio_chronicle_info *info = clio_chronicle_info(c);
    assert_int_equal(info->writes, m.nwrites);
    assert_int_equal(info->instructions, m.instructions);
    assert_int_equal(info->blocks, m.executions);
    assert_int_equal(info->events, m.events);
    assert_int_equal(info->space, 7);
    assert_true(clio_chronicle_verify(c, &error));
    for (int i = 0; i < questions; i++)
        check_question(&m, c);
    clio_chronicle_close(c);
    model_free(&m);
    unlink(path);
}

static void small_logs(void **state)
{
    for (uint64_t seed = 1; seed <= 60; seed++)
        check_log(seed, 1 + seed % 30, seed * 5, 100);
}

static void logs_of_several_chunks(void **state)
{
    check_log(1001, 50, 60000, 60);
    check_log(1002, 3000, 60000, 60);
}

static void empty_log(void **state)
{
    struct chron_builder *b;
    struct clio_error error;
    uint64_t from[3] = {1, 0, 0}, to[3] = {2, 0, 0};
    const struct clio_write *answers;
    size_t n;
    assert_int_equal(chron_build_open(&b, path, "/", 1), 0);
    assert_int_equal(chron_build_close(b, from, to), 0);
    struct clio_chronicle *c = clio_chronicle_open(path, &error);
    assert_non_null(c);
    assert_true(clio_chronicle_last_write(c, 0x1000, 16, NULL, &answers, &n, &error));
    assert_int_equal(n, 1);
    assert_int_equal(answers[0].kind, CLIO_WRITE_NONE);
    assert_null(clio_chronicle_crash(c));
    clio_chronicle_close(c);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(empty_log), cmocka_unit_test(small_logs),
                                       cmocka_unit_test(logs_of_several_chunks)};
    snprintf(path, sizeof path, "/tmp/test_chronicle_answers.%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
