/*
 * What the hub knows: contributions, the sources they are about, the lineages that counted them, and the views over
 * them.
 *
 * A contribution's cells only grow and stay when its source is gone. Gauges are shown of one contribution a source: of
 * those that live, the one whose snapshot is youngest, across lineages.
 */
#ifndef HUB_STORE_H
#define HUB_STORE_H

#include "common/ranges.h"
#include "hub/computed.h"
#include "hub/index.h"
#include "hub/values.h"
#include "hub/view.h"

#define HUB_NO_SNAPSHOT INT64_MIN

struct hub_windows;

enum { HUB_LINEAGE_BYTES = 16, HUB_LINEAGES_MAX = 65536, HUB_KEPT_ROWS_MAX = 4096, HUB_IDLE_SOURCES_MAX = 4096 };

/* One part in so many of the memory for rows is kept free for what lives, as long as rows without contributions can go
 * for it. */
enum { HUB_SPARE_SHARE = 16 };

enum hub_kind { HUB_ENGINE, HUB_FRONT_END };

/* The state of one agent's totals; outlives its sessions. */
struct hub_lineage {
    uint8_t id[HUB_LINEAGE_BYTES];
    char node[SB_LABEL_VALUE_MAX + 1];
    uint64_t generation;    /* the highest seen in a frame */
    uint64_t session;       /* serial of the session that speaks for it; 0: none */
    uint32_t n_sessions;    /* that hold this, replaced ones among them */
    int64_t heard_ms;       /* last message of that session */
    int64_t began_ms;       /* when that session said HELLO */
    bool is_closed;         /* what it counted is retired, all of it, and it must not send it again */
    struct sb_ranges final; /* epochs that were retired without FORGET: naming one again would count it twice */
    uint32_t n_contributions;
    uint32_t cap_contributions;
    struct hub_contribution **contributions;
};

struct hub_source {
    enum hub_kind kind;
    struct sb_labelset *key;    /* service_name, job_name, dp_rank, stage, replica; owned */
    struct sb_labelset *worker; /* the same without dp_rank; owned */
    uint32_t n_contributions;
    uint32_t cap_contributions;
    struct hub_contribution **contributions;
    struct hub_contribution *shown; /* whose gauges count; NULL: none */
    /* For statsbus_source_* (sources.h). */
    uint64_t id;                      /* rising in order of making */
    struct hub_contribution *current; /* its latest incarnation; NULL: that is forgotten, and there is no other */
    struct sb_labelset *identity;     /* of that, or of the last there was; owned */
    struct sb_labelset *row;          /* the key, and the model_name of that; owned */
    uint32_t n_live;
    int64_t idle_since_ms; /* when the last one stopped to live, or a silent one was forgotten */
    int64_t seen_ms;       /* when one that doesn't live any more was last known to */
    uint64_t n_incarnations;
    uint64_t n_conflicts;
    bool has_retired[SB_AGENT_COUNTS];
    double retired[SB_AGENT_COUNTS]; /* of the agent's counts, what forgotten contributions had */
};

struct hub_contribution {
    struct hub_lineage *lineage;
    uint64_t epoch;
    struct hub_source *source;
    struct sb_labelset *identity; /* all labels of the source and of its identity; owned */
    struct sb_labelset *role;     /* the label role alone, or none; owned */
    struct hub_values values;
    bool is_live;
    bool is_ended;       /* in order, by END */
    bool is_forgotten;   /* its agent will not speak of it again: to be retired */
    int64_t snapshot_ms; /* when its gauges arrived at the agent, by this hub's clock; HUB_NO_SNAPSHOT: none has */
    uint64_t session;    /* serial of the last session that sent a frame of it */
    uint64_t named_by;   /* serial of the last session that defined it: under one id, so that FORGET leaves no other */
    bool is_left_out;    /* by the session that its lineage has now, and maybe by others before that */
    int64_t left_out_ms; /* since when, if so */
    bool is_watched;     /* its counts so far were seen to come, or are known to be of the past */
    bool is_from_zero;   /* it began while the hub watched */
    struct hub_rates *rates;     /* of what is computed; NULL: no sample yet; owned */
    struct hub_stat_seen *stats; /* what the log's table was told of it last (stat_table.h); NULL: nothing; owned */
    uint32_t n_wire_gauges;
    uint32_t cap_wire_gauges;
    struct hub_wire_gauge *wire_gauges;          /* the last frame's, in its order; owned */
    struct hub_group *groups[HUB_ALL_VIEWS_MAX]; /* by view; NULL: the view doesn't count it */
};

/* Where the gauge that a frame names at this position is in values.gauges. */
struct hub_wire_gauge {
    uint32_t id; /* of the session */
    uint32_t at; /* UINT32_MAX: nowhere */
};

struct hub_store {
    struct hub_index index;
    struct hub_counters *counters; /* borrowed */
    struct hub_computed computed;
    struct hub_windows *windows; /* NULL: there are none; owned */
    uint64_t n_lives;            /* how often a source came, went, or changed its life */
    struct hub_view views[HUB_ALL_VIEWS_MAX];
    size_t n_views;
    size_t n_shown_views; /* the first of them; what is behind has other uses */
    struct hub_table lineages;
    struct hub_table sources;
    struct hub_source **source_list; /* rising by id */
    size_t n_sources;
    size_t cap_sources;
    uint64_t last_source;
    struct hub_table contributions; /* by lineage and epoch */
    size_t contributions_max;
    size_t row_bytes; /* memory for the numbers of all contributions, and of what is retired */
    size_t row_bytes_max;
    int64_t linger_ms;
    int64_t now_ms; /* the time that it was told last, by a message or a sweep */
};

struct hub_store_limits {
    size_t contributions;
    size_t row_bytes;
    int64_t linger_ms; /* how long a row without a live source is shown, where the view doesn't keep it */
};

/* catalog, views and counters are borrowed. */
enum sb_rc hub_store_init(struct hub_store *self, const struct sb_catalog *catalog, const struct hub_view_specs *views,
                          struct hub_counters *counters, struct hub_store_limits limits, struct sb_err *err) SB_CHECK;
void hub_store_release(struct hub_store *self);

/* Has metrics computed from now on; before anything is known. All is borrowed. Errors: those of hub_computed_init. */
enum sb_rc hub_store_compute(struct hub_store *self, const struct hub_computed_specs *specs,
                             const struct hub_expectations *expected, int64_t rate_window_ms, struct sb_err *err)
    SB_CHECK;

const struct hub_view *hub_store_view(const struct hub_store *self, const char *name); /* NULL: no such */

/* The lineage with this id, made if need be. NULL with *err: SB_FULL (counted), SB_NOMEM. */
struct hub_lineage *hub_store_lineage(struct hub_store *self, const uint8_t id[HUB_LINEAGE_BYTES], struct sb_err *err)
    SB_CHECK;
/* A session speaks for it from now on, in the place of any other; it holds the lineage until it ends. */
void hub_lineage_begin_session(struct hub_lineage *lineage, uint64_t session, int64_t now_ms);
/* A session that holds it is over. A lineage without sessions and contributions goes; what was sent stays until it is
 * stale. */
void hub_store_end_session(struct hub_store *self, struct hub_lineage *lineage, uint64_t session);
/* Retires all that the lineage counted. It must come back as another, which a session is told (hub-wire.md). */
void hub_store_close(struct hub_store *self, struct hub_lineage *lineage);

struct hub_contribution *hub_store_find(const struct hub_store *self, const struct hub_lineage *lineage,
                                        uint64_t epoch);

/* The contribution of a definition, made if need be. *out is NULL at the limit (counted). Errors: SB_NOMEM; SB_INVAL:
 * the epoch is known with other labels or another source; SB_ABSENT: it was retired, and with that the lineage is
 * closed, so that all contributions of it that a session knows are gone. */
struct hub_contribution_def {
    uint64_t epoch;
    enum hub_kind kind;
    const struct sb_label_draft *source;
    const struct sb_label_draft *identity; /* the source's labels among them */
};
enum sb_rc hub_store_contribution(struct hub_store *self, struct hub_lineage *lineage,
                                  const struct hub_contribution_def *def, struct hub_contribution **out,
                                  struct sb_err *err) SB_CHECK;
/* Takes a contribution out of everything and frees it, with what it counted. No session may name it any more. */
void hub_store_remove(struct hub_store *self, struct hub_contribution *contribution);
/* The same, and what it counted goes into the retired part of its rows. Without memory for that it stays, marked
 * forgotten, and the next sweep tries again. */
void hub_store_retire(struct hub_store *self, struct hub_contribution *contribution);

/* The place in source_list of the first source with an id above this one. */
size_t hub_store_source_after(const struct hub_store *self, uint64_t id);
/* What the agent has counted of a contribution. False: nothing yet, not even 0. */
bool hub_store_count_of(const struct hub_store *self, const struct hub_contribution *contribution,
                        enum sb_agent_count what, double *out);
/* Drops sources without contributions whose time is over, or that are over the limit (counted). */
void hub_store_sweep_sources(struct hub_store *self);
/* source.c: keeps count of incarnations, and of the latest one. False: out of memory, nothing changed. */
bool hub_source_meet(struct hub_store *self, struct hub_contribution *contribution) SB_CHECK;
/* Is it told of? One that is silent until its lineage is closed; one that ended, or that nothing is left of, for the
 * linger. */
bool hub_source_is_shown(const struct hub_store *self, const struct hub_source *source, int64_t now_ms);
void hub_source_note_life(struct hub_store *self, struct hub_contribution *contribution, bool is_live);
/* Of a source that has not lived since it was met, one that is silent is the latest, not one that ended. */
void hub_source_note_end(struct hub_store *self, struct hub_contribution *contribution);
/* What it counted stays with the source. */
void hub_source_leave(struct hub_store *self, struct hub_contribution *contribution);

/* Chooses anew whose gauges are shown; after any change of a contribution's gauges, age or life. */
void hub_source_choose(struct hub_source *source);

size_t hub_contribution_bytes(const struct hub_contribution *contribution); /* of memory for its numbers */

/* The source doesn't live any more: all gauges leave at once, counters stay. */
void hub_contribution_bury(struct hub_store *self, struct hub_contribution *contribution, bool is_ended);
/* It lives. Its gauges have been set, and when they were taken. */
void hub_contribution_revive(struct hub_store *self, struct hub_contribution *contribution);

/*
 * Buries what nobody has spoken for: all of a lineage that was silent for the timeout, and what a new session of a
 * lineage has not sent again for as long. Closes lineages that have been silent for closed_after_ms, and retires what
 * the sessions of a lineage have not named for as long: its agent has forgotten it, and FORGET was lost with a session.
 * Drops rows and sources whose time is over. To be called when everything that arrived has been read.
 */
void hub_store_sweep(struct hub_store *self, int64_t now_ms, int64_t timeout_ms, int64_t closed_after_ms);

#endif
