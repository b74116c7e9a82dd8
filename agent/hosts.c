#include "agent/hosts.h"

#include <stdlib.h>
#include <string.h>

struct host {
    struct host *next;
    uint32_t number;
    uint32_t holders;
    char text[AGENT_HOST_TEXT_MAX + 1];
};

struct agent_hosts {
    struct host *first; /* a handful at most in real life, one a publisher at worst */
    uint32_t last_number;
};

struct agent_hosts *agent_hosts_new(void)
{
    return calloc(1, sizeof(struct agent_hosts));
}

void agent_hosts_destroy(struct agent_hosts **self_p)
{
    struct agent_hosts *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    while (self->first) {
        struct host *host = self->first;
        self->first = host->next;
        free(host);
    }
    free(self);
}

bool agent_hosts_hold(struct agent_hosts *self, const char *host, uint32_t *number)
{
    for (struct host *have = self->first; have && host[0]; have = have->next)
        if (strcmp(have->text, host) == 0) {
            have->holders++;
            *number = have->number;
            return true;
        }
    struct host *made = calloc(1, sizeof *made);
    if (!made)
        return false;
    const size_t len = strnlen(host, AGENT_HOST_TEXT_MAX);
    memcpy(made->text, host, len);
    made->number = ++self->last_number;
    made->holders = 1;
    made->next = self->first;
    self->first = made;
    *number = made->number;
    return true;
}

void agent_hosts_drop(struct agent_hosts *self, uint32_t number)
{
    for (struct host **at = &self->first; *at; at = &(*at)->next) {
        struct host *host = *at;
        if (host->number != number)
            continue;
        if (--host->holders == 0) {
            *at = host->next;
            free(host);
        }
        return;
    }
}
