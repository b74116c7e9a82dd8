#include "common/settings.h"

#include <string.h>

#include "common/settings_private.h"

/* The layers, the strongest first: flags (settings_flags.c), environment, file (settings_file.c), defaults. */

static enum sb_rc take_environment(struct sb_settings_reading *reading, char *(*getenv_fn)(const char *),
                                   struct sb_err *err)
{
    const struct sb_settings_spec *spec = reading->spec;
    for (size_t i = 0; i <= spec->n; i++) {
        /* The last is the file's own. */
        struct sb_setting_choice *choice = i < spec->n ? &reading->choices[i] : &reading->config;
        char variable[SB_SETTING_NAME_MAX];
        sb_setting_variable(variable, spec, i < spec->n ? spec->settings[i].name : "config");
        const char *text = getenv_fn(variable);
        if (!text || choice->text)
            continue;
        const char *origin = sb_arena_text(reading->texts, variable, strlen(variable));
        if (!origin)
            return sb_fail(err, SB_NOMEM, "%zu settings", spec->n);
        *choice = (struct sb_setting_choice){.text = text, .origin = origin};
    }
    return SB_OK;
}

static void take_defaults(struct sb_settings_reading *reading)
{
    for (size_t i = 0; i < reading->spec->n; i++) {
        if (!reading->choices[i].text)
            reading->choices[i] =
                (struct sb_setting_choice){.text = reading->spec->settings[i].fallback, .origin = "default"};
    }
}

/* Parses the chosen texts into the struct at `into`; what is left there after a failure is not to be used. */
static enum sb_rc store(const struct sb_settings_reading *reading, void *into, struct sb_err *err)
{
    const struct sb_settings_spec *spec = reading->spec;
    for (size_t i = 0; i < spec->n; i++) {
        const struct sb_setting *setting = &spec->settings[i];
        const struct sb_setting_choice *choice = &reading->choices[i];
        int64_t number = 0;
        const enum sb_rc rc = sb_setting_parse(setting, choice->text, &number, err);
        if (rc != SB_OK)
            return sb_fail_at(err, rc, "%s", choice->origin);
        char *field = (char *) into + setting->offset;
        if (sb_setting_is_text(setting->kind))
            memcpy(field, &choice->text, sizeof choice->text);
        else
            memcpy(field, &number, sizeof number);
    }
    return spec->check ? spec->check(into, err) : SB_OK;
}

/* All layers into a struct in the arena: *values, or NULL when flags said that there is nothing to do. */
static enum sb_rc read_all(const struct sb_settings *self, struct sb_settings_reading *reading, void **values,
                           struct sb_err *err)
{
    *values = NULL;
    reading->spec = self->spec;
    reading->choices = sb_arena_get(reading->texts, (self->spec->n + 1) * sizeof *reading->choices);
    void *into = sb_arena_get(reading->texts, self->spec->size);
    if (!reading->choices || !into)
        return sb_fail(err, SB_NOMEM, "%zu settings", self->spec->n);

    enum sb_rc rc = sb_settings_take_flags(reading, self->argc, self->argv, err);
    if (rc != SB_OK || reading->todo != SB_SETTINGS_RUN)
        return rc;
    rc = take_environment(reading, self->getenv_fn, err);
    if (rc == SB_OK && reading->config.text && reading->config.text[0])
        rc = sb_settings_take_file(reading, err);
    if (rc != SB_OK)
        return rc;
    take_defaults(reading);
    rc = store(reading, into, err);
    if (rc == SB_OK)
        *values = into;
    return rc;
}

void sb_settings_init(struct sb_settings *self, const struct sb_settings_spec *spec, int argc, char **argv,
                      char *(*getenv_fn)(const char *), void *values)
{
    *self = (struct sb_settings){.spec = spec, .argc = argc, .argv = argv, .getenv_fn = getenv_fn, .values = values};
    sb_arena_init(&self->texts);
}

void sb_settings_release(struct sb_settings *self)
{
    sb_arena_release(&self->texts);
    self->choices = NULL;
}

enum sb_rc sb_settings_load(struct sb_settings *self, FILE *out, enum sb_settings_todo *todo, struct sb_err *err)
{
    struct sb_settings_reading reading = {.texts = &self->texts, .out = out};
    void *values;
    const enum sb_rc rc = read_all(self, &reading, &values, err);
    if (rc != SB_OK)
        return rc;
    if (values && reading.is_check) {
        const enum sb_rc tried = self->spec->try_files ? self->spec->try_files(values, err) : SB_OK;
        if (tried != SB_OK)
            return tried;
        sb_settings_print(&reading);
        reading.todo = SB_SETTINGS_EXIT_OK;
    } else if (values && reading.is_health) {
        reading.todo = SB_SETTINGS_ASK_HEALTH;
    }
    if (reading.todo == SB_SETTINGS_EXIT_OK && (fflush(out) != 0 || ferror(out)))
        return sb_fail(err, SB_IO, "what is asked for cannot be printed");
    if (values)
        memcpy(self->values, values, self->spec->size);
    self->choices = reading.choices;
    *todo = reading.todo;
    return SB_OK;
}

/* Reloading */

static const void *field(const struct sb_setting *setting, const void *values)
{
    return (const char *) values + setting->offset;
}

bool sb_setting_differs(const struct sb_setting *setting, const void *a, const void *b)
{
    if (!sb_setting_is_text(setting->kind))
        return memcmp(field(setting, a), field(setting, b), sizeof(int64_t)) != 0;
    const char *texts[2];
    memcpy(&texts[0], field(setting, a), sizeof texts[0]);
    memcpy(&texts[1], field(setting, b), sizeof texts[1]);
    return strcmp(texts[0], texts[1]) != 0;
}

static bool is_applied(const struct sb_setting *setting, const void *now, const void *fresh)
{
    return setting->change == SB_SETTING_reload && sb_setting_differs(setting, now, fresh);
}

/* Lets what will be applied outlive the reading. */
static enum sb_rc keep_texts(struct sb_settings *self, struct sb_settings_reading *reading, const void *fresh,
                             struct sb_err *err)
{
    for (size_t i = 0; i < self->spec->n; i++) {
        struct sb_setting_choice *choice = &reading->choices[i];
        if (!is_applied(&self->spec->settings[i], self->values, fresh))
            continue;
        choice->text = sb_arena_text(&self->texts, choice->text, strlen(choice->text));
        choice->origin = sb_arena_text(&self->texts, choice->origin, strlen(choice->origin));
        if (!choice->text || !choice->origin)
            return sb_fail(err, SB_NOMEM, "%zu settings", self->spec->n);
    }
    return SB_OK;
}

static void apply(struct sb_settings *self, const struct sb_setting *setting, const struct sb_setting_choice *choice,
                  const void *fresh)
{
    char *into = (char *) self->values + setting->offset;
    if (sb_setting_is_text(setting->kind))
        memcpy(into, &choice->text, sizeof choice->text);
    else
        memcpy(into, field(setting, fresh), sizeof(int64_t));
}

static enum sb_rc reload(struct sb_settings *self, struct sb_arena *texts,
                         void (*tell)(void *arg, const struct sb_settings_difference *difference), void *arg,
                         struct sb_err *err)
{
    const struct sb_settings_spec *spec = self->spec;
    struct sb_settings_reading reading = {.texts = texts};
    void *fresh;
    enum sb_rc rc = read_all(self, &reading, &fresh, err);
    struct sb_settings_difference *found = sb_arena_get(texts, (spec->n + 1) * sizeof *found);
    if (rc == SB_OK && (!fresh || !found))
        rc = sb_fail(err, SB_NOMEM, "%zu settings", spec->n);
    if (rc == SB_OK)
        rc = keep_texts(self, &reading, fresh, err);
    if (rc != SB_OK)
        return rc;

    size_t n = 0;
    for (size_t i = 0; i < spec->n; i++) {
        const struct sb_setting *setting = &spec->settings[i];
        const struct sb_setting_choice *choice = &reading.choices[i];
        if (!sb_setting_differs(setting, self->values, fresh))
            continue;
        found[n++] = (struct sb_settings_difference){setting, self->choices[i].text, choice->text, choice->origin};
        if (setting->change != SB_SETTING_reload)
            continue;
        apply(self, setting, choice, fresh);
        self->choices[i] = *choice;
    }
    for (size_t i = 0; i < n; i++)
        tell(arg, &found[i]);
    return SB_OK;
}

enum sb_rc sb_settings_reload(struct sb_settings *self,
                              void (*tell)(void *arg, const struct sb_settings_difference *difference), void *arg,
                              struct sb_err *err)
{
    struct sb_arena texts;
    sb_arena_init(&texts);
    const enum sb_rc rc = reload(self, &texts, tell, arg, err);
    sb_arena_release(&texts);
    return rc;
}
