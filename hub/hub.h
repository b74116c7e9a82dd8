/* The hub as a whole: sockets, timers, HTTP and signals in one loop. */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include "common/err.h"
#include "hub/hub_settings.h"

struct hub;

/*
 * Binds and listens. settings are loaded, of hub_settings_spec, and borrowed; SIGHUP reloads them.
 * NULL with *err: the reason says which setting or socket.
 */
struct hub *hub_new(struct sb_settings *settings, struct sb_err *err) SB_CHECK;
void hub_destroy(struct hub **self_p);

/* Works until SIGTERM or SIGINT; scrapes under way then get up to two seconds to end. */
void hub_run(struct hub *self);

#endif
