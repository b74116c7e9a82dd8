/*
 * Settings from one table: the struct, defaults, flags, environment variables and --help.
 *
 * A daemon lists its settings in a .def file:   SETTING(name, kind, "default", "help")
 * name becomes the flag --name (underscores as dashes) and the variable PREFIX_NAME. Flags win over the environment,
 * that wins over the default.
 */
#ifndef SB_SETTINGS_H
#define SB_SETTINGS_H

#include <stdint.h>
#include <stdio.h>

#include "err.h"

enum sb_setting_kind {
    SB_SETTING_text,     /* const char * */
    SB_SETTING_duration, /* int64_t, milliseconds: "250ms", "2s", "1m", "24h" */
    SB_SETTING_count,    /* int64_t, not negative */
    SB_SETTING_bytes,    /* int64_t: "64KiB", "1MiB", "1GiB" or plain bytes */
    SB_SETTING_flag,     /* bool as int64_t: "true" or "false"; as a flag without value: true */
};

struct sb_setting {
    const char *name;
    enum sb_setting_kind kind;
    const char *fallback; /* the default, as text */
    const char *help;
    size_t offset; /* of its field in the daemon's settings struct */
};

struct sb_settings_spec {
    const char *program; /* "statsbus-agent" */
    const char *about;   /* one sentence for --help */
    const char *env_prefix; /* "STATSBUS_AGENT_" */
    const struct sb_setting *settings;
    size_t n;
};

/* Field types by kind, for the struct that a .def makes. */
#define SB_FIELD_text const char *
#define SB_FIELD_duration int64_t
#define SB_FIELD_count int64_t
#define SB_FIELD_bytes int64_t
#define SB_FIELD_flag int64_t

enum sb_settings_todo { SB_SETTINGS_RUN, SB_SETTINGS_EXIT_OK };

/*
 * Fills the struct at `into` from defaults, environment (getenv_fn, usually getenv) and argv, by argp. --help and --version are
 * printed to `out` and answered with SB_SETTINGS_EXIT_OK in *todo. Texts point into argv, the environment or the table:
 * nothing to release. Errors: the text names the flag or variable and the reason.
 */
enum sb_rc sb_settings_load(const struct sb_settings_spec *spec, int argc, char **argv,
                            char *(*getenv_fn)(const char *), FILE *out, void *into,
                            enum sb_settings_todo *todo, struct sb_err *err) SB_CHECK;

/* Parsers of single values, for tests and other users. */
enum sb_rc sb_parse_duration_ms(const char *text, int64_t *out_ms, struct sb_err *err) SB_CHECK;
enum sb_rc sb_parse_bytes(const char *text, int64_t *out_bytes, struct sb_err *err) SB_CHECK;
enum sb_rc sb_parse_count(const char *text, int64_t *out, struct sb_err *err) SB_CHECK;

#endif
