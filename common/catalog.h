/*
 * The catalog: every metric family as data. Its language is described in schemas/catalog/README.md.
 *
 * The agent compiles feeds into a plan (agent/plan.h); the hub takes type, help, unit, semantic and role scope.
 */
#ifndef SB_CATALOG_H
#define SB_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bounds.h"
#include "err.h"
#include "expo.h"
#include "feed.h"

enum sb_semantic {
#define SEMANTIC(name, how) SB_SEMANTIC_##name,
#include "semantics.def"
#undef SEMANTIC
    SB_SEMANTIC_COUNT
};

/* What "aggregate" means: counters and sums of gauges, mean and max over live sources, info gauges kept, buckets
 * merged. */
enum sb_aggregate { SB_AGGREGATE_SUM, SB_AGGREGATE_MEAN, SB_AGGREGATE_MAX, SB_AGGREGATE_INFO, SB_AGGREGATE_MERGE };

const char *sb_semantic_text(enum sb_semantic semantic);
bool sb_semantic_parse(const char *text, size_t len, enum sb_semantic *out);
enum sb_aggregate sb_semantic_aggregate(enum sb_semantic semantic);
bool sb_semantic_fits(enum sb_semantic semantic, enum sb_type type);
/* "a, b, c": those that fit the type, for messages; cut after n - 1 bytes. */
void sb_semantic_list(enum sb_type type, char *out, size_t n);
/* What a family gets that says nothing: counter, state_gauge, histogram. */
enum sb_semantic sb_semantic_of_type(enum sb_type type);

enum { SB_ROLES_MAX = 8 };

/* What an agent counts about a source by itself. */
enum sb_agent_count {
    SB_AGENT_COUNT_NONE,
#define COUNT(name) SB_AGENT_COUNT_##name,
#include "agent_counts.def"
#undef COUNT
    SB_AGENT_COUNTS
};

/* An own label whose values are enumerated: they exist from the start. */
struct sb_values {
    const char *label;
    const char *count_from; /* "path.in.config" of a number n (values 0..n-1), or NULL: */
    const char *const *values;
    const double *initial; /* of gauges: the value each starts with; NULL: 0 */
    size_t n;
};

struct sb_family {
    const char *name; /* as exposed in text format 0.0.4 */
    const char *help;
    const char *unit; /* NULL: none */
    enum sb_type type;
    enum sb_semantic semantic;
    const char *role_scope[SB_ROLES_MAX];
    size_t n_role_scope;       /* 0: all roles */
    bool is_per_publisher;     /* scope: publisher; belongs to the front-end source */
    const char *feature;       /* condition, or NULL */
    const char *bucket_set;    /* histograms */
    const char *info;          /* name of the info sample that feeds it, or NULL */
    enum sb_agent_count count; /* what of the agent's own counts feeds it */
    bool is_cumulative;        /* observations are totals of the process that counts, not increments */
    const struct sb_values *values;
    size_t n_values;
    bool has_labels; /* of observations: these and no other ones, own or the source's; else any */
    const char *const *labels;
    size_t n_labels;
    const char *observes; /* a family each observation of which is one of this, too, with fewer labels; or NULL */
    const struct sb_feed *feeds; /* none: fed by observations alone */
    size_t n_feeds;
    const double *quantiles; /* that are derived from a histogram, and its mean with them; none: neither */
    size_t n_quantiles;
    const char *file; /* where it is written, for messages */
    size_t line;
    unsigned layer; /* of that file */
};

/* A gauge that is computed from what a row has of other families. */
enum sb_derived_kind {
    SB_DERIVED_MAX,   /* the largest value of a gauge over the row's live sources */
    SB_DERIVED_RATIO, /* of two counters of the row, series by series, clamped to 0 to 1 */
    SB_DERIVED_SHARE, /* of a total of the row: by it goes another total, or each series of a counter */
    SB_DERIVED_WITHIN /* of a histogram's observations those that are not above a bound */
};

enum { SB_TOTAL_MAX = 4 };

/* All series of some families together; a histogram by how many observations it has. */
struct sb_total {
    const char *const *names;
    size_t n; /* 0: there is none */
};

enum { SB_SHARE_OF, SB_SHARE_BY };

struct sb_derived {
    const char *name;
    const char *help;
    enum sb_derived_kind kind;
    const char *of;            /* the gauge, the numerator or the histogram; NULL: the share of a total */
    const char *by;            /* the denominator, or NULL */
    struct sb_total totals[2]; /* of a share: the numerator, unless it is `of`; the denominator */
    double bound;
    const char *file;
    size_t line;
    unsigned layer;
};

struct sb_feature {
    const char *name;
    const char *path;      /* into the hello's config */
    const char *const *in; /* n_in texts, one of which the value must equal; none: it must be true */
    size_t n_in;
    unsigned layer;
};

struct sb_bucket_set {
    const char *name;
    struct sb_bounds *bounds;
    unsigned layer;
};

struct sb_root {
    const char *name; /* the short name that paths start with */
    const char *path; /* record type, then keys: "step.scheduler_stats" */
    unsigned layer;
};

/* Names of families that begin with `from` are exposed with `to` in its place. */
struct sb_prefix {
    const char *from; /* NULL: every name is exposed as it is written */
    const char *to;
};

struct sb_catalog {
    struct sb_prefix prefix;
    const struct sb_family *families;
    size_t n_families;
    const struct sb_feature *features;
    size_t n_features;
    const struct sb_bucket_set *bucket_sets;
    size_t n_bucket_sets;
    const struct sb_root *roots;
    size_t n_roots;
    const struct sb_derived *derived;
    size_t n_derived;
};

struct sb_catalog_file {
    const char *name; /* for messages */
    const char *text;
    size_t len;
    unsigned layer; /* what it has replaces what files of lower layers have under the same name */
};

/* A file of an operator's, whole; its text is in *text, which the caller releases in any case. What is wrong with the
 * file is said to be so of `flag`. */
enum sb_rc sb_catalog_file_read(struct sb_catalog_file *out, struct sb_buf *text, const char *path, const char *flag,
                                struct sb_err *err) SB_CHECK;

/* The files of schemas/catalog, embedded at build time, in name order. */
extern const struct sb_catalog_file sb_catalog_embedded[];
extern const size_t sb_catalog_embedded_count;
/* schemas/views.yaml, embedded likewise: for hub/view_specs.h. */
extern const struct sb_catalog_file sb_views_embedded[];
extern const size_t sb_views_embedded_count;
/* schemas/computed.yaml: for hub/computed_specs.h. */
extern const struct sb_catalog_file sb_computed_embedded[];
extern const size_t sb_computed_embedded_count;
/* schemas/capacity.yaml, for the same. */
extern const struct sb_catalog_file sb_capacity_embedded[];
extern const size_t sb_capacity_embedded_count;

/*
 * Reads and checks the files, in order, as one catalog: every family's feeds, references and names.
 * Returns NULL with *err set; the text is "file:line: reason".
 */
struct sb_catalog *sb_catalog_new(const struct sb_catalog_file *files, size_t n, struct sb_err *err) SB_CHECK;
/* The same, with all names as they are exposed; prefix is copied, NULL is none. */
struct sb_catalog *sb_catalog_new_exposed(const struct sb_catalog_file *files, size_t n, const struct sb_prefix *prefix,
                                          struct sb_err *err) SB_CHECK;
void sb_catalog_destroy(struct sb_catalog **self_p);

/* The embedded files, then (dir not NULL or "") those of a folder that end in .yaml, in name order, one layer higher.
 */
struct sb_catalog *sb_catalog_load(const char *dir, const struct sb_prefix *prefix, struct sb_err *err) SB_CHECK;

/* A name as it is exposed: itself, or made in out (SB_EXPO_NAME_MAX bytes). One that would be too long stays. */
struct sb_slice sb_prefix_expose(const struct sb_prefix *self, struct sb_slice name, char *out);

/* The quantiles of a histogram that says nothing, by its semantic: *n of them, none for most. */
const double *sb_semantic_quantiles(enum sb_semantic semantic, size_t *n);

/* The names of what is derived from a histogram: "x" and 0.999 give "x_p99_9". out: SB_EXPO_NAME_MAX bytes. */
void sb_quantile_name(char *out, const char *family, double quantile);
void sb_mean_name(char *out, const char *family);

/* By exposed name; NULL when there is none. */
const struct sb_family *sb_catalog_family(const struct sb_catalog *self, const char *name, size_t len);
const struct sb_feature *sb_catalog_feature(const struct sb_catalog *self, const char *name);
const struct sb_bucket_set *sb_catalog_bucket_set(const struct sb_catalog *self, const char *name);

#endif
