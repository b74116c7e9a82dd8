#include "agent/retire.h"

/* May it leave as far as the hubs are concerned? *n_given_up: hubs that don't have all of it and are not waited for. */
static bool is_delivered(const struct agent_retire_cfg *cfg, const struct agent_contribution *contribution,
                         const struct agent_uplink_release *release, int64_t now_ms, uint32_t *n_given_up)
{
    *n_given_up = 0;
    for (size_t i = 0; i < cfg->n_hubs; i++) {
        if (agent_uplink_has(&cfg->hubs[i].uplink, contribution, release))
            continue;
        if (agent_hublink_is_open(&cfg->hubs[i]) || now_ms - cfg->hubs[i].down_ms < cfg->forget_after_ms)
            return false;
        ++*n_given_up;
    }
    return true;
}

void agent_retire(const struct agent_retire_cfg *cfg, int64_t now_ms)
{
    if (!cfg->commit->is_released)
        return; /* what the hubs have can't be told */
    const struct agent_uplink_release release = {.is_released = true, .generation = cfg->commit->released};
    bool has_left = false;
    for (uint32_t i = 0; i < agent_ledger_n_contributions(cfg->ledger); i++) {
        const struct agent_contribution *contribution = agent_ledger_contribution_at(cfg->ledger, i);
        uint32_t n_given_up;
        if (!contribution || !contribution->is_ended || now_ms - contribution->ended_ms < cfg->forget_after_ms ||
            !agent_contribution_is_staged(contribution) ||
            !is_delivered(cfg, contribution, &release, now_ms, &n_given_up) ||
            !agent_publishers_release(cfg->publishers, contribution))
            continue;
        for (size_t j = 0; j < cfg->n_hubs; j++)
            agent_uplink_forget(&cfg->hubs[j].uplink, contribution, cfg->commit->state.generation + 1);
        agent_ledger_forget(cfg->ledger, i);
        cfg->counters->contributions_given_up += n_given_up;
        cfg->counters->contributions_forgotten++;
        has_left = true;
    }
    if (has_left)
        agent_commit_hurry(cfg->commit);
}
