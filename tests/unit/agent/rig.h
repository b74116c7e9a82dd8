/* One hello, its plan, ledger and bindings: what a test of applying records needs. */
#ifndef RIG_H
#define RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "agent/apply.h"
#include "yaml_pack.h"

struct rig {
    struct sb_catalog *catalog;
    struct sb_labelsets *labelsets;
    struct agent_ledger *ledger;
    struct agent_hello hello;
    struct agent_plan_counters counters;
    struct agent_plan *plan;
    struct agent_binding *engine;
    struct agent_binding *front_end;
    struct agent_moment now;
    char text[4096]; /* what rig_show wrote last */
};

static inline void rig_hello(struct rig *rig, const char *hello)
{
    struct sb_buf buf;
    struct sb_err err = {.text = ""};
    sb_buf_init(&buf, 1 << 20);
    pack_yaml(&buf, hello);
    enum sb_rc rc = agent_hello_read(&rig->hello, buf.data, buf.len, "", rig->labelsets,
                                     agent_ledger_text_faults(rig->ledger), &err);
    sb_buf_release(&buf);
    if (rc != SB_OK)
        fail_msg("hello: %s", err.text);
}

/* catalog NULL: the embedded one. place: further keys of the source (", stage: a"); more: of the hello; both may be "".
 */
static inline void rig_init_at(struct rig *rig, const char *catalog, const char *place, const char *more)
{
    struct sb_err err = {.text = ""};
    struct sb_catalog_file file = {.name = "test.yaml", .text = catalog, .len = catalog ? strlen(catalog) : 0};
    char hello[4096];
    snprintf(hello, sizeof hello,
             "{publisher: \"%032d\", pid: 1, host: h, time: 1.0, engine: {name: vllm, version: \"1\"}, "
             "sources: [{index: 0, service_name: s, model_name: m, job_name: j, instance_id: i, role: both, "
             "dp_rank: \"0\"%s}]%s}",
             7, place, more);
    *rig = (struct rig){.now = {.time = 10, .host = 1, .arrival_ms = 1000}};
    rig->catalog =
        catalog ? sb_catalog_new(&file, 1, &err) : sb_catalog_new(sb_catalog_embedded, sb_catalog_embedded_count, &err);
    if (!rig->catalog)
        fail_msg("catalog: %s", err.text);
    rig->labelsets = sb_labelsets_new();
    rig->ledger = agent_ledger_new(rig->labelsets);
    assert_int_equal(agent_ledger_reserve(rig->ledger, rig->catalog, &err), SB_OK);
    rig_hello(rig, hello);
    rig->plan = agent_plan_new(rig->catalog, rig->ledger, &rig->hello, &rig->counters, &err);
    if (!rig->plan)
        fail_msg("plan: %s", err.text);
    const struct agent_hello_source *source = &rig->hello.sources[0], *front = &rig->hello.front_end;
    uint64_t shape = agent_plan_shape(rig->plan);
    struct agent_contribution *engine =
        agent_ledger_contribution(rig->ledger, false, source->source, source->identity, shape, NULL, &err);
    struct agent_contribution *front_end =
        agent_ledger_contribution(rig->ledger, true, front->source, front->identity, shape, NULL, &err);
    engine->is_live = front_end->is_live = true;
    rig->engine = agent_binding_new(rig->plan, rig->ledger, engine, &rig->hello, source, true);
    rig->front_end = agent_binding_new(rig->plan, rig->ledger, front_end, &rig->hello, front, true);
    assert_non_null(rig->engine);
    assert_non_null(rig->front_end);
}

static inline void rig_init(struct rig *rig, const char *catalog, const char *more)
{
    rig_init_at(rig, catalog, "", more);
}

static inline void rig_release(struct rig *rig)
{
    agent_binding_destroy(&rig->engine);
    agent_binding_destroy(&rig->front_end);
    agent_plan_destroy(&rig->plan);
    agent_hello_release(&rig->hello);
    agent_ledger_destroy(&rig->ledger);
    assert_int_equal(sb_labelsets_count(rig->labelsets), 0);
    sb_labelsets_destroy(&rig->labelsets);
    sb_catalog_destroy(&rig->catalog);
}

/* Applies one content to engine and front end, a second after the one before. */
static inline void rig_apply_as(struct rig *rig, enum agent_record_type type, const char *content,
                                enum agent_apply_parts parts)
{
    struct sb_buf buf;
    sb_buf_init(&buf, 1 << 22);
    pack_yaml(&buf, content);
    assert_int_equal(sb_mp_validate(buf.data, buf.len, SB_MP_DEPTH_MAX, NULL), SB_OK);
    struct agent_binding *const bindings[] = {rig->engine, rig->front_end};
    for (size_t i = 0; i < SB_COUNT(bindings); i++) {
        struct sb_mp at = sb_mp_over(buf.data, buf.len);
        agent_apply(bindings[i], type, &at, &rig->now, parts);
        assert_ptr_equal(at.at, at.end);
    }
    sb_buf_release(&buf);
    rig->now.time += 1;
    rig->now.arrival_ms += 1000;
}

static inline void rig_step(struct rig *rig, const char *content)
{
    rig_apply_as(rig, AGENT_RECORD_STEP, content, AGENT_APPLY_ALL);
}

static inline void rig_append(struct rig *rig, const char *fmt, ...) SB_PRINTF(2, 3);
static inline void rig_append(struct rig *rig, const char *fmt, ...)
{
    size_t len = strlen(rig->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(rig->text + len, sizeof rig->text - len, fmt, args);
    va_end(args);
}

static inline void rig_show_gauge(struct rig *rig, const struct agent_contribution *of, uint32_t cell)
{
    for (uint32_t i = 0; i < of->n_shown; i++)
        if (of->shown_cells[i] == cell)
            rig_append(rig, " %g", of->shown_values[i]);
}

/*
 * The series of a family as one text: "labels value; labels value", histograms as "labels bucket bucket ... sum"; ""
 * when it has none. A gauge series without a sample now has no value.
 */
static inline const char *rig_show(struct rig *rig, struct agent_binding *binding, const char *family)
{
    struct agent_contribution *of = agent_binding_contribution(binding);
    assert_true(agent_contribution_publish(of));
    rig->text[0] = '\0';
    for (uint32_t i = 0; i < of->n_series; i++) {
        const struct agent_series *series = agent_ledger_series_at(rig->ledger, of->series[i].index);
        const struct agent_family *owner = agent_ledger_family_at(rig->ledger, series->family);
        if (strcmp(owner->name, family) != 0)
            continue;
        rig_append(rig, "%s%s", rig->text[0] ? "; " : "", series->labels->text);
        if (owner->type == SB_GAUGE)
            rig_show_gauge(rig, of, series->first);
        for (uint32_t cell = 0; owner->type != SB_GAUGE && cell < series->n; cell++)
            rig_append(rig, " %g", of->live[of->series[i].place + cell]);
    }
    return rig->text[0] == ' ' ? rig->text + 1 : rig->text;
}

static inline uint64_t rig_refused(const struct rig *rig, const char *family)
{
    uint64_t refused = 0;
    for (uint32_t i = 0; i < agent_ledger_n_families(rig->ledger); i++)
        if (strcmp(agent_ledger_family_at(rig->ledger, i)->name, family) == 0)
            refused += agent_ledger_family_at(rig->ledger, i)->refused;
    return refused;
}

#endif
