/* Runs of totals: which one a source's cumulative families belong to, and to whom each listens (publishers.h, raws.h).
 */
#include <string.h>

#include "agent/publisher.h"

void agent_slot_count_run(struct agent_publishers *self, const struct publisher *publisher, struct slot *slot,
                          const struct agent_hello_source *source, int64_t now_ms)
{
    const char *instance = sb_labelset_value(source->identity, "instance_id");
    const struct agent_run_name name = {
        .publisher = publisher->id,
        .source = slot->contribution->is_front_end ? AGENT_NONE : source->index,
        .counted_by = source->counted_by,
        .place = source->source->text,
        .instance = instance ? instance : "",
    };
    slot->run = agent_raws_run(self->raws, &name);
    if (slot->run)
        agent_run_touch(slot->run, now_ms);
    agent_binding_count_run(slot->binding, self->raws, slot->run, publisher->id);
}

void agent_publisher_resume_runs(struct agent_publishers *self, struct publisher *publisher)
{
    for (uint32_t i = 0; i < publisher->n_slots; i++)
        if (publisher->slots[i].run)
            agent_run_resume(self->raws, publisher->slots[i].run, publisher->id);
    if (publisher->front_end.run)
        agent_run_resume(self->raws, publisher->front_end.run, publisher->id);
}

static bool tells_of(const struct publisher *publisher, const struct agent_run *run)
{
    if (publisher->front_end.run == run && !publisher->front_end.is_ended)
        return true;
    for (uint32_t i = 0; i < publisher->n_slots; i++)
        if (publisher->slots[i].run == run && !publisher->slots[i].is_ended)
            return true;
    return false;
}

static void settle(struct agent_publishers *self, struct publisher *publisher, const struct slot *slot, int64_t now_ms)
{
    struct agent_run *run = slot->run;
    if (!run || !agent_run_is_shared(run))
        return;
    agent_run_touch(run, now_ms);
    if (slot->is_ended || strcmp(agent_run_owner(run), publisher->id) == 0 ||
        !agent_publisher_is_heard(self, publisher, now_ms))
        return;
    const struct publisher *owner = agent_publisher_find(self, agent_run_owner(run));
    if (!owner || !tells_of(owner, run) || !agent_publisher_is_heard(self, owner, now_ms))
        agent_run_hand_over(run, publisher->id);
}

void agent_publishers_sweep_runs(struct agent_publishers *self, int64_t now_ms)
{
    for (struct publisher *at = self->table; at; at = at->hh.next) {
        for (uint32_t i = 0; i < at->n_slots; i++)
            settle(self, at, &at->slots[i], now_ms);
        settle(self, at, &at->front_end, now_ms);
    }
    agent_raws_sweep(self->raws, self->cfg.forget_after_ms, now_ms);
}
