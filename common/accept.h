/* The lists of preferences in Accept and Accept-Encoding (RFC 9110, 12.5): values with parameters and a weight. */
#ifndef SB_ACCEPT_H
#define SB_ACCEPT_H

#include <stdbool.h>

#include "mp.h"

/* One preference; texts point into the header. */
struct sb_preference {
    struct sb_slice value;   /* "text/plain", "gzip", "*" */
    struct sb_slice version; /* of the parameter version; at NULL: none given */
    double q;                /* weight, 0 to 1; one that is none counts as 0 */
};

/* Takes the next preference off *header, a text that it moves on; false at the end. */
bool sb_accept_next(const char **header, struct sb_preference *out) SB_CHECK;

/* Equal without regard to case. */
bool sb_accept_is(struct sb_slice slice, const char *text);

/* Does an Accept-Encoding header (NULL: absent) ask for gzip, and like it at least as much as the plain bytes? */
bool sb_accept_gzip(const char *header);

#endif
