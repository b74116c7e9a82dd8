/* Settings from flags, by argp, and --help. */
#include <argp.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/settings_private.h"

enum {
    HELP_MAX = 64 * 1024, /* of all help texts */
    KEY_HELP = 1,
    KEY_VERSION,
    KEY_CONFIG,
    KEY_CHECK,
    KEY_HEALTH,
    KEY_FIRST = 256, /* of the settings: above what argp takes for one-letter flags */
    OWN_FLAGS = 5,   /* that every program has */
};

struct parsing {
    struct sb_settings_reading *reading;
    const struct argp *argp;
    int failed_at; /* where argp itself gave up: the argument after the bad one */
    struct sb_err err;
};

void sb_setting_flag(char out[SB_SETTING_NAME_MAX], const char *name)
{
    snprintf(out, SB_SETTING_NAME_MAX, "--%s", name);
    for (char *at = out; *at != '\0'; at++)
        *at = *at == '_' ? '-' : *at;
}

void sb_setting_variable(char out[SB_SETTING_NAME_MAX], const struct sb_settings_spec *spec, const char *name)
{
    snprintf(out, SB_SETTING_NAME_MAX, "%s%s", spec->env_prefix, name);
    for (char *at = out; *at != '\0'; at++)
        *at = (char) toupper((unsigned char) *at);
}

static void print(const struct parsing *parsing, bool is_help)
{
    const struct sb_settings_reading *reading = parsing->reading;
    char program[SB_SETTING_NAME_MAX]; /* argp_help wants to be allowed to write to it */
    snprintf(program, sizeof program, "%s", reading->spec->program);
    if (is_help)
        argp_help(parsing->argp, reading->out, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, program);
    else
        fprintf(reading->out, "%s %s\n", program, STATSBUS_VERSION);
}

static error_t take_setting(struct parsing *parsing, size_t i, const char *arg)
{
    struct sb_settings_reading *reading = parsing->reading;
    char flag[SB_SETTING_NAME_MAX];
    sb_setting_flag(flag, reading->spec->settings[i].name);
    const char *origin = sb_arena_text(reading->texts, flag, strlen(flag));
    if (!origin)
        return ENOMEM;
    /* A flag without a value is true. */
    reading->choices[i] = (struct sb_setting_choice){.text = arg ? arg : "true", .origin = origin};
    return 0;
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    struct sb_settings_reading *reading = parsing->reading;
    switch (key) {
    case KEY_HELP:
    case KEY_VERSION:
        reading->todo = SB_SETTINGS_EXIT_OK;
        state->next = state->argc; /* the rest does not matter any more */
        print(parsing, key == KEY_HELP);
        return 0;
    case KEY_CONFIG:
        reading->config = (struct sb_setting_choice){.text = arg, .origin = "--config"};
        return 0;
    case KEY_CHECK:
        reading->is_check = true;
        return 0;
    case KEY_HEALTH:
        reading->is_health = true;
        return 0;
    case ARGP_KEY_ERROR:
        parsing->failed_at = state->next;
        return 0;
    case ARGP_KEY_ARG:
        sb_fail(&parsing->err, SB_INVAL, "'%s' is neither a flag nor the value of one", arg);
        return EINVAL;
    default:
        break;
    }
    if (key < KEY_FIRST || (size_t) (key - KEY_FIRST) >= reading->spec->n)
        return ARGP_ERR_UNKNOWN;
    return take_setting(parsing, (size_t) (key - KEY_FIRST), arg);
}

static bool is_flag(const char *name, const char *argument, size_t len)
{
    char flag[SB_SETTING_NAME_MAX];
    sb_setting_flag(flag, name);
    return strlen(flag) == len && strncmp(argument, flag, len) == 0;
}

/* argp's own checks say no more than that they failed, and where. */
static enum sb_rc explain(const struct parsing *parsing, int argc, char **argv, struct sb_err *err)
{
    const struct sb_settings_spec *spec = parsing->reading->spec;
    const int at = parsing->failed_at;
    const char *argument = argv[at > 0 && (at >= argc || argv[at - 1][0] == '-') ? at - 1 : at];
    const size_t len = strcspn(argument, "=");
    bool is_known = is_flag("config", argument, len);
    for (size_t i = 0; i < spec->n && !is_known; i++)
        is_known = is_flag(spec->settings[i].name, argument, len);
    if (is_known)
        return sb_fail(err, SB_INVAL, "%.*s needs a value", (int) len, argument);
    return sb_fail(err, SB_INVAL, "no flag is called '%s' (--help lists them)", argument);
}

/* One line of --help; texts live in `texts`, whose memory does not move: it is reserved at once. */
static const char *put_help(struct sb_buf *texts, const struct sb_settings_spec *spec, const struct sb_setting *setting)
{
    char variable[SB_SETTING_NAME_MAX];
    sb_setting_variable(variable, spec, setting->name);
    const size_t start = texts->len;
    sb_buf_printf(texts, "%s (default: %s; %s%s%s)", setting->help, setting->fallback[0] ? setting->fallback : "none",
                  setting->range, setting->range[0] ? "; " : "", variable);
    sb_buf_put_byte(texts, '\0');
    return texts->is_overflow ? setting->help : (const char *) texts->data + start;
}

static const char *put_flag(struct sb_buf *texts, const struct sb_setting *setting)
{
    char flag[SB_SETTING_NAME_MAX];
    sb_setting_flag(flag, setting->name);
    const size_t start = texts->len;
    sb_buf_put(texts, flag + 2, strlen(flag + 2) + 1); /* argp wants it without the dashes */
    return texts->is_overflow ? setting->name : (const char *) texts->data + start;
}

static void make_options(struct argp_option *options, struct sb_buf *texts, const struct sb_settings_spec *spec)
{
    static const struct argp_option own[] = {
        {.name = "config", .key = KEY_CONFIG, .arg = "FILE", .doc = "YAML file of settings, `name: value`", .group = 1},
        {.name = "check-config", .key = KEY_CHECK, .doc = "check and print all settings, and exit", .group = 1},
        {.name = "health", .key = KEY_HEALTH, .doc = "ask the running one how it is: exit 0 when well", .group = 1},
        {.name = "help", .key = KEY_HELP, .doc = "print this and exit", .group = -1},
        {.name = "version", .key = KEY_VERSION, .doc = "print the version and exit", .group = -1},
    };
    _Static_assert(SB_COUNT(own) == OWN_FLAGS, "room is made for all");
    size_t n = 0;
    for (; n < spec->n; n++) {
        const struct sb_setting *setting = &spec->settings[n];
        options[n] = (struct argp_option){
            .name = put_flag(texts, setting),
            .key = KEY_FIRST + (int) n,
            .arg = sb_setting_kind_word(setting->kind),
            .flags = setting->kind == SB_SETTING_flag ? OPTION_ARG_OPTIONAL : 0,
            .doc = put_help(texts, spec, setting),
        };
    }
    memcpy(options + n, own, sizeof own);
    options[n + OWN_FLAGS] = (struct argp_option){0};
}

static void free_options(struct argp_option **options)
{
    free(*options);
}

enum sb_rc sb_settings_take_flags(struct sb_settings_reading *reading, int argc, char **argv, struct sb_err *err)
{
    const struct sb_settings_spec *spec = reading->spec;
    SB_OWN(sb_buf_release) struct sb_buf texts;
    sb_buf_init(&texts, HELP_MAX);
    SB_OWN(free_options) struct argp_option *options = calloc(spec->n + OWN_FLAGS + 1, sizeof *options);
    if (!options || !sb_buf_reserve(&texts, HELP_MAX - 1))
        return sb_fail(err, SB_NOMEM, "%zu settings", spec->n);
    make_options(options, &texts, spec);

    const struct argp argp = {.options = options, .parser = on_option, .doc = spec->about};
    struct parsing parsing = {.reading = reading, .argp = &argp};
    const error_t failed = argp_parse(&argp, argc, argv, ARGP_SILENT | ARGP_IN_ORDER, NULL, &parsing);
    if (failed == 0)
        return SB_OK;
    if (failed == ENOMEM)
        return sb_fail(err, SB_NOMEM, "reading the flags");
    if (parsing.err.rc != SB_OK)
        return sb_fail(err, parsing.err.rc, "%s", parsing.err.text);
    return explain(&parsing, argc, argv, err);
}
