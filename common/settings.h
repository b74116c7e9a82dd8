/*
 * Settings from one table: the struct, defaults, file, environment, flags, --help, --check-config, SIGHUP and the docs.
 *
 * A daemon lists its settings in a .def file:   SETTING(name, kind, "default", "range", change, "help")
 *   name    the key `name` in the file, the variable PREFIX_NAME, the flag --name (underscores as dashes)
 *   kind    one of enum sb_setting_kind
 *   range   of a number, both ends allowed: "1ms..1h"; "1.." has no upper end; "" any
 *   change  reload: SIGHUP changes it in the running process; restart: only a restart does
 * Flags win over the environment, that over the file, that over the default. Every value of the file is checked, also
 * one that is overruled. Variables that no setting has are ignored, since Kubernetes makes such (STATSBUS_HUB_PORT) for
 * a service called statsbus-hub: no setting may be called `port` or `service_...`.
 * docs/configuration.md is made of the same tables by scripts/make-docs.
 */
#ifndef SB_SETTINGS_H
#define SB_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "arena.h"
#include "err.h"

enum sb_setting_kind {
    SB_SETTING_text,      /* const char * */
    SB_SETTING_path,      /* const char *, not empty */
    SB_SETTING_endpoint,  /* const char *: "ipc:///run/x", "tcp://host:5577" */
    SB_SETTING_endpoints, /* const char *: none or more of them, separated by commas */
    SB_SETTING_address,   /* const char *: "127.0.0.1:9464", "[::1]:9464" */
    SB_SETTING_level,     /* int64_t, an enum sb_log_level: "debug", "info", "warn", "error" */
    SB_SETTING_duration,  /* int64_t, milliseconds: "250ms", "2s", "1m", "24h" */
    SB_SETTING_seconds,   /* the same, and a plain number is so many seconds */
    SB_SETTING_count,     /* int64_t, not negative */
    SB_SETTING_bytes,     /* int64_t: "64KiB", "1MiB", "1GiB" or plain bytes */
    SB_SETTING_flag,      /* bool as int64_t: "true" or "false"; as a flag without value: true */
    SB_SETTING_KINDS,
};

enum sb_setting_change { SB_SETTING_restart, SB_SETTING_reload };

struct sb_setting {
    const char *name;
    enum sb_setting_kind kind;
    enum sb_setting_change change;
    const char *fallback; /* the default, as text */
    const char *range;
    const char *help;
    size_t offset; /* of its field in the daemon's settings struct */
};

struct sb_settings_spec {
    const char *program;    /* "statsbus-agent" */
    const char *about;      /* one sentence for --help */
    const char *env_prefix; /* "STATSBUS_AGENT_" */
    const struct sb_setting *settings;
    size_t n;
    size_t size; /* of the daemon's settings struct */
    /*
     * What settings must keep among each other; may be NULL. Opens nothing. The text names the setting. Those that are
     * compared need the same `change`: a reload is judged as what a restart would find.
     */
    enum sb_rc (*check)(const void *values, struct sb_err *err);
    /* Reads the files that settings name and that a start would read, for --check-config alone; may be NULL. Makes
     * nothing and keeps nothing. */
    enum sb_rc (*try_files)(const void *values, struct sb_err *err);
};

/* Field types by kind, for the struct that a .def makes. */
#define SB_FIELD_text const char *
#define SB_FIELD_path const char *
#define SB_FIELD_endpoint const char *
#define SB_FIELD_endpoints const char *
#define SB_FIELD_address const char *
#define SB_FIELD_level int64_t
#define SB_FIELD_duration int64_t
#define SB_FIELD_seconds int64_t
#define SB_FIELD_count int64_t
#define SB_FIELD_bytes int64_t
#define SB_FIELD_flag int64_t

/* A row of struct sb_setting, for the table that a .def makes; `owner` is the settings struct. */
#define SB_SETTING_ROW(owner, name_, kind_, fallback_, range_, change_, help_)                                         \
    {                                                                                                                  \
        .name = #name_, .kind = SB_SETTING_##kind_, .fallback = fallback_, .range = range_,                            \
        .change = SB_SETTING_##change_, .help = help_, .offset = offsetof(owner, name_),                               \
    }

/* The settings of one process: where they come from, and what they are. */
struct sb_settings {
    const struct sb_settings_spec *spec;
    int argc;
    char **argv;
    char *(*getenv_fn)(const char *);
    void *values; /* the daemon's struct, the caller's: written by load and reload alone */
    struct sb_arena texts;
    struct sb_setting_choice *choices; /* one a setting; in `texts` */
};

enum sb_settings_todo { SB_SETTINGS_RUN, SB_SETTINGS_EXIT_OK, SB_SETTINGS_ASK_HEALTH };

/* Everything is borrowed for the life of self; getenv_fn is usually getenv. Release in any case. */
void sb_settings_init(struct sb_settings *self, const struct sb_settings_spec *spec, int argc, char **argv,
                      char *(*getenv_fn)(const char *), void *values);
/* The texts in *values are gone then. */
void sb_settings_release(struct sb_settings *self);

/*
 * Fills *values. --help and --version are printed to `out` and answered with SB_SETTINGS_EXIT_OK in *todo; so is
 * --check-config, which tries the files that are named and prints the settings as a file that --config would take, each
 * with who said so. --health is answered with SB_SETTINGS_ASK_HEALTH: the caller asks the daemon that runs with these
 * settings (health.h).
 * Errors: the text names the flag, the variable, or file and line, and the reason; *values is untouched.
 * SB_INVAL, SB_FORMAT, SB_RANGE (a value), SB_IO (the file, or `out`), SB_NOMEM.
 */
enum sb_rc sb_settings_load(struct sb_settings *self, FILE *out, enum sb_settings_todo *todo, struct sb_err *err)
    SB_CHECK;

/* One setting that has another value than *values: as texts, alive during the call. */
struct sb_settings_difference {
    const struct sb_setting *setting;
    const char *before;
    const char *after;
    const char *origin; /* "agent.yaml:7", "default", ... */
};

/*
 * Reads file and environment anew. Each setting that differs is told to `tell`; those with SB_SETTING_reload are
 * changed in *values before the first is told, the others wait for a restart and will be told again. One fault anywhere
 * and nothing is changed or told; errors as above. What a change replaces stays in memory until release: some bytes
 * each.
 */
enum sb_rc sb_settings_reload(struct sb_settings *self,
                              void (*tell)(void *arg, const struct sb_settings_difference *difference), void *arg,
                              struct sb_err *err) SB_CHECK;

/* Has this setting another value in `b` than in `a`? Both are structs of the setting's daemon. */
bool sb_setting_differs(const struct sb_setting *setting, const void *a, const void *b);

/* Parsers of single values, for tests and other users. */
enum sb_rc sb_parse_duration_ms(const char *text, int64_t *out_ms, struct sb_err *err) SB_CHECK;
enum sb_rc sb_parse_seconds_ms(const char *text, int64_t *out_ms, struct sb_err *err) SB_CHECK;
enum sb_rc sb_parse_bytes(const char *text, int64_t *out_bytes, struct sb_err *err) SB_CHECK;
enum sb_rc sb_parse_count(const char *text, int64_t *out, struct sb_err *err) SB_CHECK;

#endif
