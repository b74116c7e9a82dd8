/*
 * Prometheus text: format 0.0.4 and OpenMetrics 1.0.
 *
 * Names are as exposed in 0.0.4 (a counter ends in _total); the OpenMetrics family name of a counter leaves it out.
 * Sources: prometheus.io/docs/instrumenting/exposition_formats, the OpenMetrics 1.0 specification.
 */
#ifndef SB_EXPO_H
#define SB_EXPO_H

#include <stdbool.h>

#include "bounds.h"
#include "buf.h"
#include "labels.h"

enum sb_expo_format { SB_EXPO_TEXT, SB_EXPO_OPENMETRICS };

enum sb_type { SB_COUNTER, SB_GAUGE, SB_HISTOGRAM, SB_TYPE_COUNT };

const char *sb_type_text(enum sb_type type); /* "counter", "gauge", "histogram" */

/* The Content-Type header of a format. */
const char *sb_expo_content_type(enum sb_expo_format format);

/* The format that an Accept header asks for (NULL: text). */
enum sb_expo_format sb_expo_negotiate(const char *accept);

struct sb_expo {
    struct sb_buf *out; /* borrowed */
    enum sb_expo_format format;
};

/* # HELP, # TYPE and (OpenMetrics, where the name ends in it) # UNIT. help may be "", unit NULL. */
void sb_expo_family(const struct sb_expo *self, const char *name, enum sb_type type, const char *unit,
                    const char *help);

/* The labels of a line in parts, each an escaped text without braces (a="1",b="2"); empty parts are skipped. */
struct sb_expo_labels {
    const char *text[3];
    uint32_t len[3];
};

/* One line of a counter or gauge. */
void sb_expo_value(const struct sb_expo *self, const char *name, const struct sb_expo_labels *labels, double value);

/* All lines of a histogram: _bucket (rising le), _sum, _count. buckets: n + 1 counts, each for itself. */
void sb_expo_histogram(const struct sb_expo *self, const char *name, const struct sb_expo_labels *labels,
                       const struct sb_bounds *bounds, const double *buckets, double sum);

/* Its _sum and _count alone (in OpenMetrics also the +Inf bucket, without which parsers refuse a histogram). */
void sb_expo_histogram_totals(const struct sb_expo *self, const char *name, const struct sb_expo_labels *labels,
                              double count, double sum);

/* The end of a scrape (# EOF in OpenMetrics). */
void sb_expo_end(const struct sb_expo *self);

/* Appends a label value with \ " and newline escaped. */
void sb_expo_escape(struct sb_buf *out, const char *value);

/*
 * Names that a family claims: itself (in OpenMetrics without _total) and what its type adds. Two families clash when
 * they claim a name in common; parsers refuse such a scrape. Returns how many (at most SB_EXPO_CLAIMS_MAX).
 */
enum { SB_EXPO_CLAIMS_MAX = 6, SB_EXPO_NAME_MAX = 220 };
size_t sb_expo_claims(const char *name, enum sb_type type, char claims[SB_EXPO_CLAIMS_MAX][SB_EXPO_NAME_MAX]);

#endif
