/* Loading the sample's settings with a played environment, for test_settings*.c. */
#ifndef SETTINGS_RIG_H
#define SETTINGS_RIG_H

#include <stdlib.h>

#include "cmocka_all.h"
#include "common/settings.h"

struct sample {
#define SETTING(name, kind, fallback, range, change, help) SB_FIELD_##kind name;
#include "settings_sample.def"
#undef SETTING
};

static const struct sb_setting sample_settings[] = {
#define SETTING(...) SB_SETTING_ROW(struct sample, __VA_ARGS__),
#include "settings_sample.def"
#undef SETTING
};

static inline enum sb_rc sample_check(const void *values, struct sb_err *err)
{
    const struct sample *sample = values;
    return strcmp(sample->node, "forbidden") == 0 ? sb_fail(err, SB_INVAL, "node is forbidden") : SB_OK;
}

static const struct sb_settings_spec sample_spec = {
    .program = "statsbus-sample",
    .about = "Shows settings.",
    .env_prefix = "STATSBUS_SAMPLE_",
    .settings = sample_settings,
    .n = SB_COUNT(sample_settings),
    .size = sizeof(struct sample),
    .check = sample_check,
};

/* The environment of the running test: name, value, ..., NULL. */
static const char *const *environment;

/* For interfaces that are older than const and write nothing. */
static inline char *unconst(const char *text)
{
    return (char *) (uintptr_t) text;
}

static inline char *fake_getenv(const char *name)
{
    for (size_t i = 0; environment && environment[i]; i += 2) {
        if (strcmp(environment[i], name) == 0)
            return unconst(environment[i + 1]);
    }
    return NULL;
}

enum { ARGS_MAX = 16, PRINTED_MAX = 8192 };

struct settings_rig {
    struct sb_settings settings;
    struct sample values;
    char *argv[ARGS_MAX];
    enum sb_settings_todo todo;
    char printed[PRINTED_MAX];
    struct sb_err err;
};

/* Loads with the arguments (NULL ends them) into rig->values, which is empty before. Drop it in any case. */
static inline enum sb_rc rig_load(struct settings_rig *rig, const char *const *args)
{
    *rig = (struct settings_rig){.argv = {unconst("statsbus-sample")}};
    int argc = 1;
    for (; args[argc - 1]; argc++)
        rig->argv[argc] = unconst(args[argc - 1]);
    FILE *out = fmemopen(rig->printed, PRINTED_MAX - 1, "w");
    assert_non_null(out);
    sb_settings_init(&rig->settings, &sample_spec, argc, rig->argv, fake_getenv, &rig->values);
    const enum sb_rc rc = sb_settings_load(&rig->settings, out, &rig->todo, &rig->err);
    fclose(out);
    return rc;
}

static inline void rig_drop(struct settings_rig *rig)
{
    sb_settings_release(&rig->settings);
}

static inline void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

#endif
