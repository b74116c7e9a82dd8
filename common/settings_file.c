/* Settings from a YAML file: one map of names and values. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/settings_private.h"
#include "common/yaml_node.h"

enum {
    PIECE = 4096,
    SHOWN_MAX = 100, /* of a path: messages have an end, and the reason comes last */
};

/* Only a file: a pipe would have nothing for the next SIGHUP, and could make the loop wait. */
static int open_file(const char *path, struct sb_err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        sb_fail(err, SB_IO, "cannot open %s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        sb_fail(err, SB_IO, "%s is not a file", path);
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static enum sb_rc read_file(const char *path, struct sb_buf *out, struct sb_err *err)
{
    const int fd = open_file(path, err);
    if (fd < 0)
        return err->rc;
    ssize_t got = 0;
    do {
        uint8_t *room = sb_buf_reserve(out, PIECE);
        got = room ? read(fd, room, PIECE) : 0;
        out->len += got > 0 ? (size_t) got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    const int reason = errno;
    close(fd);
    if (out->is_overflow)
        return sb_fail(err, SB_FULL, "%s: more than %d bytes, or out of memory", path, SB_SETTINGS_FILE_MAX);
    return got < 0 ? sb_fail(err, SB_IO, "cannot read %s: %s", path, strerror(reason)) : SB_OK;
}

static size_t find(const struct sb_settings_spec *spec, const char *name)
{
    size_t i = 0;
    while (i < spec->n && strcmp(spec->settings[i].name, name) != 0)
        i++;
    return i;
}

/* `key:`, `key: ~` and `key: null` are most likely forgotten values; `key: ""` is an empty text. */
static bool is_null(const yaml_node_t *node)
{
    const char *text = sb_yaml_text(node);
    return text && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static enum sb_rc take_pair(struct sb_settings_reading *reading, struct sb_yaml *yaml, const yaml_node_t *key,
                            const yaml_node_t *value, struct sb_err *err)
{
    const struct sb_settings_spec *spec = reading->spec;
    const char *name = sb_yaml_text(key);
    const size_t i = name ? find(spec, name) : spec->n;
    if (i == spec->n)
        return sb_yaml_fail(yaml, key, err, "no setting is called '%s'", name ? name : "?");
    if (sb_yaml_get(yaml, yaml->root, name) != value)
        return sb_yaml_fail(yaml, key, err, "'%s' stands here twice", name);
    const char *text = sb_yaml_text(value);
    if (!text || strlen(text) != value->data.scalar.length)
        return sb_yaml_fail(yaml, value, err, "%s: one value is expected", name);
    if (is_null(value))
        return sb_yaml_fail(yaml, value, err, "%s: there is no value (\"\" is the empty text)", name);
    int64_t ignored;
    enum sb_rc rc = sb_setting_parse(&spec->settings[i], text, &ignored, err);
    if (rc != SB_OK)
        return sb_fail_at(err, rc, "%s:%zu: %s", yaml->file, sb_yaml_line(key), name);
    if (reading->choices[i].text)
        return SB_OK; /* overruled */

    char origin[SHOWN_MAX + 32];
    const int len = snprintf(origin, sizeof origin, "%s:%zu", yaml->file, sb_yaml_line(key));
    reading->choices[i].text = sb_arena_text(reading->texts, text, strlen(text));
    reading->choices[i].origin = sb_arena_text(reading->texts, origin, (size_t) len);
    return reading->choices[i].text && reading->choices[i].origin ? SB_OK : sb_fail(err, SB_NOMEM, "settings");
}

static enum sb_rc take_root(struct sb_settings_reading *reading, struct sb_yaml *yaml, struct sb_err *err)
{
    if (!yaml->root || is_null(yaml->root))
        return SB_OK; /* nothing but comments */
    if (yaml->root->type != YAML_MAPPING_NODE)
        return sb_yaml_fail(yaml, yaml->root, err, "settings are a map: lines of `name: value`");
    yaml_node_t *key, *value;
    enum sb_rc rc = SB_OK;
    for (size_t i = 0; rc == SB_OK && sb_yaml_pair(yaml, yaml->root, i, &key, &value); i++)
        rc = take_pair(reading, yaml, key, value, err);
    return rc;
}

enum sb_rc sb_settings_take_file(struct sb_settings_reading *reading, struct sb_err *err)
{
    const char *path = reading->config.text;
    SB_OWN(sb_buf_release) struct sb_buf content;
    sb_buf_init(&content, SB_SETTINGS_FILE_MAX + PIECE);
    enum sb_rc rc = read_file(path, &content, err);
    if (rc == SB_OK && content.len > SB_SETTINGS_FILE_MAX)
        rc = sb_fail(err, SB_FULL, "%s has more than %d bytes", path, SB_SETTINGS_FILE_MAX);
    if (rc != SB_OK)
        return sb_fail_at(err, rc, "%s", reading->config.origin);

    char shown[SHOWN_MAX + 1];
    const size_t len = strlen(path);
    snprintf(shown, sizeof shown, "%s%s", len > SHOWN_MAX ? "..." : "",
             len > SHOWN_MAX ? path + len - SHOWN_MAX + 3 : path);
    struct sb_yaml yaml;
    rc = sb_yaml_load(&yaml, shown, content.len ? (const char *) content.data : "", content.len, err);
    if (rc != SB_OK)
        return rc;
    rc = take_root(reading, &yaml, err);
    sb_yaml_release(&yaml);
    return rc;
}
