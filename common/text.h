/* Text from outside, made fit for labels: valid UTF-8, of bounded length. */
#ifndef SB_TEXT_H
#define SB_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SB_LABEL_VALUE_MAX = 256, /* bytes of a label value, cut at a character boundary */
    SB_LABEL_NAME_MAX = 64,
    SB_LABELS_MAX = 64, /* labels of one set */
};

/* What was done to texts so far: one counter a limit, shown by the daemon's own metrics. */
struct sb_text_faults {
    uint64_t replaced; /* texts with bytes that are not UTF-8, each bad piece replaced by one U+FFFD */
    uint64_t cut;      /* texts longer than the limit */
};

/*
 * Copies n bytes to out as valid UTF-8 of at most max bytes (out holds max + 1) and adds a NUL. NUL bytes inside count
 * as invalid. Returns the length. Faults are counted in *faults (may be NULL).
 */
size_t sb_text_clean(char *out, size_t max, const char *bytes, size_t n, struct sb_text_faults *faults);

/* [a-zA-Z_][a-zA-Z0-9_]*, 1 to SB_LABEL_NAME_MAX bytes, not starting with "__". */
bool sb_label_name_is_valid(const char *bytes, size_t n);
/* [a-zA-Z_:][a-zA-Z0-9_:]*, 1 to 200 bytes. */
bool sb_metric_name_is_valid(const char *bytes, size_t n);

#endif
