/* For the files settings*.c: the layers that settings come from, and what a kind is. */
#ifndef SB_SETTINGS_PRIVATE_H
#define SB_SETTINGS_PRIVATE_H

#include "common/settings.h"

enum {
    SB_SETTING_NAME_MAX = 128,      /* of a flag or variable */
    SB_SETTINGS_FILE_MAX = 1 << 20, /* bytes of a file of settings */
};

/* What a setting has: its text, and who said so. Texts live as long as argv, the environment, the table or the arena.
 */
struct sb_setting_choice {
    const char *text;   /* NULL: nobody said anything yet */
    const char *origin; /* "--hub", "STATSBUS_AGENT_HUB", "agent.yaml:7", "default" */
};

/* One reading of all layers, the strongest first: each fills only what is still empty. */
struct sb_settings_reading {
    const struct sb_settings_spec *spec;
    struct sb_arena *texts;
    struct sb_setting_choice *choices; /* one a setting */
    struct sb_setting_choice config;   /* the file; text NULL or "": none */
    bool is_check;                     /* --check-config */
    bool is_health;                    /* --health */
    enum sb_settings_todo todo;
    FILE *out; /* for --help and --version */
};

/* Errors of all: the text says where and why. */
enum sb_rc sb_settings_take_flags(struct sb_settings_reading *reading, int argc, char **argv, struct sb_err *err)
    SB_CHECK;
enum sb_rc sb_settings_take_file(struct sb_settings_reading *reading, struct sb_err *err) SB_CHECK;

/* Names, as users write them. */
void sb_setting_flag(char out[SB_SETTING_NAME_MAX], const char *name);
void sb_setting_variable(char out[SB_SETTING_NAME_MAX], const struct sb_settings_spec *spec, const char *name);

/* What a kind is: its word in --help, and whether its field is a text. */
const char *sb_setting_kind_word(enum sb_setting_kind kind);
bool sb_setting_is_text(enum sb_setting_kind kind);

/* Checks a text by kind and range. *out gets a number, and nothing when the kind is a text. SB_FORMAT, SB_RANGE, ... */
enum sb_rc sb_setting_parse(const struct sb_setting *setting, const char *text, int64_t *out, struct sb_err *err)
    SB_CHECK;

/* The settings as YAML, with their origins. */
void sb_settings_print(const struct sb_settings_reading *reading);

#endif
