/* What the files of the session module share: session.c, define.c, frame.c. */
#ifndef HUB_SESSION_PARTS_H
#define HUB_SESSION_PARTS_H

#include "hub/session.h"

enum { HUB_SETTLED_MS = 3000 }; /* by when a session has named what its agent had when it began */

enum hub_slot_state { HUB_SLOT_FREE, HUB_SLOT_STAGED, HUB_SLOT_DEFINED };

struct hub_family_slot {
    struct hub_variant *variant; /* NULL: it was refused, its values go nowhere */
    uint32_t n_cells;            /* of each series */
    uint8_t state;
    uint8_t type;
};

struct hub_contribution_slot {
    struct hub_contribution *contribution; /* NULL: over the limit, its frames are dropped */
    uint64_t last_number;                  /* of the frame whose gauges it shows */
    uint8_t state;
};

/* Each takes the elements after the message's type, n of them. The message is well-formed msgpack. */
enum hub_refusal hub_session_define(struct hub_session *self, struct sb_mp *at, uint32_t n);
enum hub_refusal hub_session_frame(struct hub_session *self, struct sb_mp *at, uint32_t n, int64_t now_ms);

/* The slot of a contribution that was defined, or NULL. */
struct hub_contribution_slot *hub_session_contribution(const struct hub_session *self, uint64_t id);

#endif
