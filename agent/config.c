#include "agent/config.h"

#include <string.h>

#include "common/num.h"

bool agent_map_find(struct sb_slice map, const char *key, size_t len, struct sb_mp *out)
{
    struct sb_mp at = sb_mp_over(map.at, map.len);
    uint32_t n;
    if (!map.len || !sb_mp_map(&at, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct sb_slice name = {0};
        if (!sb_mp_str(&at, &name) && !sb_mp_skip(&at))
            return false;
        if (name.at && name.len == len && memcmp(name.at, key, len) == 0) {
            *out = at;
            return true;
        }
        if (!sb_mp_skip(&at))
            return false;
    }
    return false;
}

bool agent_config_find(struct sb_slice config, const char *path, struct sb_mp *out)
{
    struct sb_mp at = sb_mp_over(config.at, config.len);
    for (;;) {
        const char *dot = strchrnul(path, '.');
        struct sb_slice map = {.at = (const char *) at.at, .len = (size_t) (at.end - at.at)};
        if (!agent_map_find(map, path, (size_t) (dot - path), &at))
            return false;
        if (*dot == '\0')
            break;
        path = dot + 1;
    }
    *out = at;
    return true;
}

/* A scalar as text: "true", "1", "0.5", a str as it is; false for others. */
static bool scalar_text(struct sb_mp at, char number[SB_NUM_MAX], struct sb_slice *out)
{
    bool truth;
    double value;
    if (sb_mp_str(&at, out))
        return true;
    if (sb_mp_bool(&at, &truth)) {
        *out = (struct sb_slice){.at = truth ? "true" : "false", .len = truth ? 4 : 5};
        return true;
    }
    if (!sb_mp_number(&at, &value))
        return false;
    *out = (struct sb_slice){.at = number, .len = sb_num_value(number, value)};
    return true;
}

static bool is_true(struct sb_mp at)
{
    struct sb_slice text;
    double number;
    uint32_t n;
    if (sb_mp_number(&at, &number))
        return number != 0;
    if (sb_mp_str(&at, &text))
        return text.len > 0;
    return (sb_mp_map(&at, &n) || sb_mp_array(&at, &n)) && n > 0;
}

bool agent_config_has(struct sb_slice config, const struct sb_feature *feature)
{
    struct sb_mp at;
    if (!agent_config_find(config, feature->path, &at))
        return false;
    if (!feature->n_in)
        return is_true(at);
    char number[SB_NUM_MAX];
    struct sb_slice text;
    if (!scalar_text(at, number, &text))
        return false;
    for (size_t i = 0; i < feature->n_in; i++)
        if (sb_slice_is(text, feature->in[i]))
            return true;
    return false;
}
