/* Opening the agent's parts: state, publishers, hubs (agent.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/agent_private.h"
#include "common/clock.h"
#include "common/log.h"

void agent_draw(void *out, size_t n)
{
    unsigned char *at = out;
    while (n > 0) {
        const ssize_t got = getrandom(at, n, 0);
        if (got < 0 && errno != EINTR)
            abort(); /* no kernel that this runs on */
        if (got < 0)
            continue;
        at += got;
        n -= (size_t) got;
    }
}

void agent_start_lineage(struct agent *self, bool is_closed)
{
    uint8_t fresh[AGENT_LINEAGE_LEN];
    agent_draw(fresh, sizeof fresh);
    sb_log(is_closed ? SB_LOG_WARN : SB_LOG_ERROR,
           is_closed ? "a hub had not heard of this agent for long: a new lineage starts with what no hub has"
                     : "the state is older than what others know: a new lineage starts",
           "generation=%llu", (unsigned long long) self->commit.state.generation);
    agent_commit_new_lineage(&self->commit, fresh, is_closed);
    self->is_lineage_new = true;
}

static void on_rolled_back(void *arg)
{
    agent_start_lineage(arg, false);
}

static void send_to_publisher(void *arg, const char *publisher_id, const void *bytes, size_t n)
{
    struct agent *self = arg;
    agent_ingest_send(self->ingest, publisher_id, bytes, n);
}

static enum sb_rc write_state(void *arg, const void *bytes, size_t n, struct sb_err *err)
{
    struct agent *self = arg;
    return sb_statefile_write(self->statefile, bytes, n, err);
}

static void close_tables(struct agent *self)
{
    agent_publishers_destroy(&self->publishers);
    agent_ledger_destroy(&self->ledger);
}

static enum sb_rc open_tables(struct agent *self, struct sb_err *err)
{
    self->ledger = agent_ledger_new(self->labelsets);
    if (!self->ledger)
        return sb_fail(err, SB_NOMEM, "the ledger");
    const enum sb_rc rc = agent_ledger_reserve(self->ledger, self->catalog, err);
    if (rc != SB_OK)
        return rc;
    const struct agent_publishers_cfg cfg = {
        .catalog = self->catalog,
        .ledger = self->ledger,
        .counters = &self->self.counters,
        .node = self->node,
        .lineage = self->commit.state.lineage,
        .source_timeout_ms = self->settings->source_timeout,
        .forget_after_ms = self->settings->forget_after,
        .send = send_to_publisher,
        .rolled_back = on_rolled_back,
        .arg = self,
    };
    self->publishers = agent_publishers_new(&cfg);
    return self->publishers ? SB_OK : sb_fail(err, SB_NOMEM, "the table of publishers");
}

/* A file that can't be read is kept beside for whoever wants to look, and a new lineage starts. */
static void put_aside(struct agent *self, const struct sb_err *why)
{
    char aside[4096];
    snprintf(aside, sizeof aside, "%s.damaged", self->settings->state);
    const bool is_moved = rename(self->settings->state, aside) == 0;
    sb_log(SB_LOG_ERROR, "the state can't be read: a new lineage starts", "file=%s moved_to=%s reason=\"%s\"",
           self->settings->state, is_moved ? aside : "nowhere", why->text);
    self->self.counters.state_damaged++;
}

/*
 * *is_loaded false: there is none, or it was put aside; the tables are new then. Only what it holds can be a reason for
 * that: a file that can't be read now may be a good one.
 */
static enum sb_rc load_state(struct agent *self, struct agent_state *state, bool *is_loaded, struct sb_err *err)
{
    struct sb_buf bytes;
    struct sb_err why = {0};
    sb_buf_init(&bytes, AGENT_STATE_MAX);
    enum sb_rc rc = sb_statefile_read(self->statefile, &bytes, &why);
    if (rc == SB_OK)
        rc = agent_state_load(state, self->ledger, self->publishers, &self->self.counters, bytes.data, bytes.len,
                              sb_mono_ms(), &why);
    sb_buf_release(&bytes);
    *is_loaded = rc == SB_OK;
    if (rc == SB_OK || rc == SB_ABSENT)
        return SB_OK;
    if (rc != SB_FORMAT && rc != SB_FULL)
        return sb_fail(err, rc, "--state: %s", why.text);
    put_aside(self, &why);
    close_tables(self);
    return open_tables(self, err);
}

enum sb_rc agent_open_state(struct agent *self, struct sb_err *err)
{
    self->catalog = sb_catalog_load(self->settings->catalog, NULL, err);
    if (!self->catalog)
        return err->rc;
    self->labelsets = sb_labelsets_new();
    if (!self->labelsets)
        return sb_fail(err, SB_NOMEM, "label sets");
    self->statefile = sb_statefile_open(self->settings->state, err);
    if (!self->statefile)
        return sb_fail_at(err, err->rc, "--state");
    enum sb_rc rc = open_tables(self, err);
    if (rc != SB_OK)
        return rc;
    struct agent_state state = {0};
    bool is_loaded;
    rc = load_state(self, &state, &is_loaded, err);
    if (rc != SB_OK)
        return rc;
    if (!is_loaded)
        agent_draw(state.lineage, sizeof state.lineage);
    sb_log(SB_LOG_INFO, is_loaded ? "state loaded" : "new state", "file=%s generation=%llu", self->settings->state,
           (unsigned long long) state.generation);
    const struct agent_commit_cfg cfg = {
        .ledger = self->ledger,
        .publishers = self->publishers,
        .counters = &self->self.counters,
        .period_ms = self->settings->commit_period,
        .write = write_state,
        .arg = self,
    };
    agent_commit_init(&self->commit, &cfg, &state);
    return SB_OK;
}

static enum sb_rc open_hub(struct agent *self, const char *endpoint, struct sb_err *err)
{
    if (self->n_hubs == AGENT_HUBS_MAX)
        return sb_fail(err, SB_FULL, "--hub: more than %d hubs", AGENT_HUBS_MAX);
    if (strncmp(endpoint, "tcp://", 6) != 0 && strncmp(endpoint, "ipc://", 6) != 0)
        return sb_fail(err, SB_FORMAT, "--hub: '%s' starts neither with tcp:// nor with ipc://", endpoint);
    const struct agent_uplink_cfg cfg = {
        .ledger = self->ledger,
        .counters = &self->self.counters,
        .node = self->node,
        .lineage = self->commit.state.lineage,
        .loaded_generation = self->commit.state.generation,
        .hub_timeout_ms = self->settings->hub_timeout,
    };
    uint64_t seed;
    agent_draw(&seed, sizeof seed);
    const enum sb_rc rc = agent_hublink_init(&self->hubs[self->n_hubs], &cfg, endpoint, seed, sb_mono_ms(), err);
    if (rc == SB_OK)
        self->n_hubs++;
    return rc;
}

enum sb_rc agent_open_hubs(struct agent *self, struct sb_err *err)
{
    char *list = strdup(self->settings->hub);
    if (!list)
        return sb_fail(err, SB_NOMEM, "the list of hubs");
    enum sb_rc rc = SB_OK;
    char *rest = list;
    for (char *one = strsep(&rest, ","); one && rc == SB_OK; one = strsep(&rest, ",")) {
        one += strspn(one, " ");
        if (*one)
            rc = open_hub(self, one, err);
    }
    free(list);
    return rc;
}
