/*
 * Whose monotonic clock a publisher reads. Times of one host are compared as they are; times of different hosts after
 * adding each publisher's smallest arrival minus send. Hosts are numbered; a number is never given twice.
 */
#ifndef AGENT_HOSTS_H
#define AGENT_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

enum { AGENT_HOST_TEXT_MAX = 63 };

struct agent_hosts;

struct agent_hosts *agent_hosts_new(void) SB_CHECK; /* NULL: out of memory */
void agent_hosts_destroy(struct agent_hosts **self_p);

/* The number of a host, held until agent_hosts_drop. False: out of memory. An empty text is a host of its own. */
bool agent_hosts_hold(struct agent_hosts *self, const char *host, uint32_t *number) SB_CHECK;
void agent_hosts_drop(struct agent_hosts *self, uint32_t number);

#endif
