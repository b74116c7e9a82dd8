/*
 * Capacity signals of a row (docs/autoscaling.md): what clients want of the engines of some roles, and what these can
 * do. Advice, from what was seen: the highest rate that an engine reached is taken for what each can reach.
 */
#include <math.h>
#include <string.h>

#include "hub/computing.h"
#include "hub/rates.h"
#include "hub/workers.h"

#define TARGET_DEFAULT 0.8

struct capacity {
    double rate;    /* of all live members that count */
    double peak;    /* the highest that one of them has reached */
    double waiting; /* requests */
    double running;
    uint32_t n; /* live members that have a rate */
};

static void add_backlog(const struct hub_computing *at, const struct hub_contribution *member, struct capacity *out)
{
    double value;
    if (at->spec->backlog.n == 0)
        return;
    if (hub_computing_gauge(at->store, member, at->spec->backlog.at[0], &value))
        out->waiting += value;
    if (hub_computing_gauge(at->store, member, at->spec->backlog.at[1], &value))
        out->running += value;
}

static struct capacity capacity_of(const struct hub_computing *at)
{
    const uint8_t rate_number = at->store->computed.rate_of[at->number];
    struct capacity out = {0};
    for (uint32_t i = 0; i < at->group->n_members; i++) {
        const struct hub_contribution *member = at->group->members[i];
        const char *role = member->role->n > 0 ? member->role->labels[0].value : NULL;
        double rate;
        if (!member->is_live || !hub_computing_has_role(at->spec, member) ||
            !hub_query_wants(at->query, HUB_NARROW_role, role))
            continue;
        add_backlog(at, member, &out);
        if (!member->rates || !hub_rates_read(member->rates, rate_number, &rate))
            continue;
        out.n++;
        out.rate += rate;
        out.peak = fmax(out.peak, hub_rates_peak(member->rates, rate_number));
    }
    return out;
}

/* What is served, and as much more as requests wait for each that runs. Without one that runs: what is served. */
static double demand_of(const struct capacity *of)
{
    return of->running > 0 ? of->rate * (1 + of->waiting / of->running) : of->rate;
}

bool capacity_demand(const struct hub_computing *at, double *out)
{
    const struct capacity of = capacity_of(at);
    *out = demand_of(&of);
    return of.n > 0;
}

bool capacity_estimate(const struct hub_computing *at, double *out)
{
    const struct capacity of = capacity_of(at);
    *out = of.peak * of.n;
    return of.peak > 0;
}

bool capacity_utilisation(const struct hub_computing *at, double *out)
{
    const struct capacity of = capacity_of(at);
    if (of.peak <= 0)
        return false;
    *out = demand_of(&of) / (of.peak * of.n);
    return true;
}

/* Those there are now, by how far they are from the target; at least one. */
bool capacity_replicas(const struct hub_computing *at, double *out)
{
    double utilisation;
    uint32_t n;
    uint32_t n_active = 0;
    const struct hub_worker_count *counts = hub_workers_of(at->store, at->group, &n);
    for (uint32_t i = 0; i < n; i++) {
        const char *role = counts[i].role->n > 0 ? counts[i].role->labels[0].value : "";
        bool is_wanted = at->spec->roles.n == 0;
        for (size_t r = 0; r < at->spec->roles.n; r++)
            is_wanted = is_wanted || strcmp(at->spec->roles.at[r], role) == 0;
        n_active += is_wanted ? counts[i].n_active : 0;
    }
    if (n_active == 0 || !capacity_utilisation(at, &utilisation))
        return false;
    const double target = at->spec->target > 0 ? at->spec->target : TARGET_DEFAULT;
    *out = fmax(1, ceil(n_active * utilisation / target - 1e-9));
    return true;
}
