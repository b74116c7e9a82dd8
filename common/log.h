/* Structured log lines on stderr, logfmt: time, level, msg, then key=value pairs. Only agent/ and hub/ call this. */
#ifndef SB_LOG_H
#define SB_LOG_H

#include <stdint.h>

#include "err.h"

enum sb_log_level { SB_LOG_DEBUG, SB_LOG_INFO, SB_LOG_WARN, SB_LOG_ERROR };

void sb_log_init(const char *program, enum sb_log_level least);
/* "debug", "info", "warn", "error". */
enum sb_rc sb_log_parse_level(const char *text, enum sb_log_level *out, struct sb_err *err) SB_CHECK;

/* event: a short lower-case sentence that never changes; fmt: key=value pairs ("peer=%s reason=%s"), values with spaces
 * are the caller's to quote (%s inside \"...\"; newlines and quotes inside become '?'). fmt may be "". Never waits: a
 * line that stderr does not take at once is dropped and counted. */
void sb_log(enum sb_log_level level, const char *event, const char *fmt, ...) SB_PRINTF(3, 4);

/* Lines dropped since the start. */
uint64_t sb_log_dropped(void);

#endif
