/* The agent as a whole: sockets, state, commits, hubs and HTTP in one loop. */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include "agent/agent_settings.h"
#include "common/err.h"

struct agent;

/*
 * Takes the state file, binds the sockets and is ready to run. Signals must be blocked before (sb_signals_block).
 * settings are loaded, of agent_settings_spec, and borrowed; SIGHUP reloads them. NULL with *err: what can't be opened,
 * and why. A state file of damaged content is put aside and never a reason.
 */
struct agent *agent_new(struct sb_settings *settings, struct sb_err *err) SB_CHECK;
void agent_destroy(struct agent **self_p);

/* Runs until SIGTERM or SIGINT; then takes what is there, commits, and gives the hubs some time to take it. */
void agent_run(struct agent *self);

#endif
