#include "hub/query.h"

#include <string.h>

const char *const hub_narrow_labels[HUB_NARROW_COUNT] = {
    [HUB_NARROW_role] = "role",
    [HUB_NARROW_model_name] = "model_name",
    [HUB_NARROW_service_name] = "service_name",
};

bool hub_query_narrow(struct hub_query *self, enum hub_narrow what, const char *value)
{
    if (self->narrow[what].n == HUB_QUERY_VALUES_MAX)
        return false;
    self->narrow[what].values[self->narrow[what].n++] = value;
    return true;
}

bool hub_query_add_family(struct hub_query *self, const char *name)
{
    if (self->n_families == HUB_QUERY_VALUES_MAX)
        return false;
    self->families[self->n_families++] = name;
    return true;
}

static bool copy_texts(const char **texts, size_t n, struct sb_arena *arena)
{
    for (size_t i = 0; i < n; i++) {
        texts[i] = sb_arena_text(arena, texts[i], strlen(texts[i]));
        if (!texts[i])
            return false;
    }
    return true;
}

bool hub_query_copy(struct hub_query *to, const struct hub_query *from, struct sb_arena *arena)
{
    *to = *from;
    bool is_ok = copy_texts(to->families, to->n_families, arena);
    for (int what = 0; is_ok && what < HUB_NARROW_COUNT; what++)
        is_ok = copy_texts(to->narrow[what].values, to->narrow[what].n, arena);
    return is_ok;
}

bool hub_query_is_narrowed(const struct hub_query *self)
{
    for (int what = 0; what < HUB_NARROW_COUNT; what++) {
        if (self->narrow[what].n > 0)
            return true;
    }
    return false;
}

bool hub_query_wants_family(const struct hub_query *self, const char *name)
{
    const struct hub_texts asked = {.at = self->families, .n = self->n_families};
    return (asked.n == 0 || hub_texts_have_family(&asked, name)) && hub_view_spec_has(self->view, name);
}

bool hub_query_wants(const struct hub_query *self, enum hub_narrow what, const char *value)
{
    for (size_t i = 0; i < self->narrow[what].n; i++) {
        if (strcmp(self->narrow[what].values[i], value ? value : "") == 0)
            return true;
    }
    return self->narrow[what].n == 0;
}
