/* The agent's parts, for the files agent*.c. */
#ifndef AGENT_PRIVATE_H
#define AGENT_PRIVATE_H

#include "agent/agent.h"
#include "agent/commit.h"
#include "agent/hublink.h"
#include "agent/ingest.h"
#include "agent/self.h"
#include "agent/stat_lines.h"
#include "agent/throttle.h"
#include "common/catalog.h"
#include "common/http.h"
#include "common/statefile.h"

struct agent {
    struct sb_settings *loaded; /* where the settings come from; SIGHUP reads them anew */
    const struct agent_settings *settings;
    char node[256];
    struct sb_catalog *catalog;
    struct sb_labelsets *labelsets;
    struct agent_ledger *ledger;
    struct agent_publishers *publishers;
    struct sb_statefile *statefile;
    struct agent_commit commit;
    struct agent_throttle throttle;
    struct agent_stat_lines stat_lines;
    struct agent_ingest *ingest;
    struct agent_hublink hubs[AGENT_HUBS_MAX];
    size_t n_hubs;
    struct agent_self self; /* what it says about itself */
    struct sb_http *http;
    zloop_t *loop;
    int signal_fd;

    bool is_busy;          /* the sockets are readers of the loop, not only of the tick */
    uint32_t n_since_tick; /* messages */
    int more_timer;        /* that goes on feeding the hubs; 0: none */
    bool is_lineage_new;   /* the hubs' sessions must start anew */
    int64_t ticked_ms, asked_ms, swept_ms, retired_ms, failure_logged_ms;
    int64_t stopping_ms; /* since when; 0: not stopping */
};

/* agent_open.c: the parts that are opened once, in this order. */
enum sb_rc agent_open_state(struct agent *self, struct sb_err *err) SB_CHECK;
enum sb_rc agent_open_hubs(struct agent *self, struct sb_err *err) SB_CHECK;
/* Random bytes from the kernel. */
void agent_draw(void *out, size_t n);
/* A new lineage, since the state was rolled back; or since a hub has closed the old one. */
void agent_start_lineage(struct agent *self, bool is_closed);

/* agent_http.c */
enum { AGENT_ROUTES = 4 };
extern const struct sb_http_route agent_routes[AGENT_ROUTES];

#endif
