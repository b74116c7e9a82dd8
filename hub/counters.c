#include "hub/counters.h"

static const struct {
    const char *name;
    const char *text;
} refusals[] = {
    [HUB_OK] = {"ok", "ok"},
#define REFUSAL(name, text) [HUB_REFUSAL_##name] = {#name, text},
#include "hub/refusals.def"
#undef REFUSAL
};
_Static_assert(sizeof refusals / sizeof refusals[0] == HUB_REFUSAL_COUNT, "every refusal needs a row");

static const char *const limits[] = {
#define LIMIT(name, text) [HUB_LIMIT_##name] = #name,
#include "hub/limits.def"
#undef LIMIT
};
_Static_assert(sizeof limits / sizeof limits[0] == HUB_LIMIT_COUNT, "every limit needs a row");

const char *hub_refusal_name(enum hub_refusal refusal)
{
    return refusals[refusal].name;
}

const char *hub_refusal_text(enum hub_refusal refusal)
{
    return refusals[refusal].text;
}

const char *hub_limit_name(enum hub_limit limit)
{
    return limits[limit];
}
