#include "settings.h"

#include <argp.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"

enum {
    NAME_MAX_BYTES = 128, /* of a flag or variable */
    HELP_MAX = 64 * 1024, /* of all help texts */
    KEY_HELP = 1,
    KEY_VERSION,
    KEY_FIRST = 256, /* of the settings: above what argp takes for one-letter flags */
};

/* What a setting has so far: its text, and who said so ("--hub", "STATSBUS_AGENT_HUB"; "" for the default). */
struct choice {
    const char *text;
    char origin[NAME_MAX_BYTES];
};

struct load {
    const struct sb_settings_spec *spec;
    struct choice *choices; /* one a setting */
    enum sb_settings_todo todo;
    int failed_at; /* where argp itself gave up: the argument after the bad one */
    FILE *out;
    const struct argp *argp;
    struct sb_err *err;
};

/* The flag as it is written, "--commit-every". */
static void flag_name(char out[NAME_MAX_BYTES], const struct sb_setting *setting)
{
    snprintf(out, NAME_MAX_BYTES, "--%s", setting->name);
    for (char *at = out; *at != '\0'; at++)
        *at = *at == '_' ? '-' : *at;
}

static void variable_name(char out[NAME_MAX_BYTES], const struct sb_settings_spec *spec,
                          const struct sb_setting *setting)
{
    snprintf(out, NAME_MAX_BYTES, "%s%s", spec->env_prefix, setting->name);
    for (char *at = out; *at != '\0'; at++)
        *at = (char) toupper((unsigned char) *at);
}

/* The layers, each over the one before: a file would come between the first two. */

static void take_defaults(const struct load *load)
{
    for (size_t i = 0; i < load->spec->n; i++)
        load->choices[i] = (struct choice){.text = load->spec->settings[i].fallback};
}

static void take_environment(const struct load *load, char *(*getenv_fn)(const char *) )
{
    for (size_t i = 0; i < load->spec->n; i++) {
        char variable[NAME_MAX_BYTES];
        variable_name(variable, load->spec, &load->spec->settings[i]);
        const char *text = getenv_fn(variable);
        if (!text)
            continue;
        load->choices[i].text = text;
        memcpy(load->choices[i].origin, variable, sizeof variable);
    }
}

static void print(const struct load *load, bool is_help)
{
    char program[NAME_MAX_BYTES]; /* argp_help wants to be allowed to write to it */
    snprintf(program, sizeof program, "%s", load->spec->program);
    if (is_help)
        argp_help(load->argp, load->out, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, program);
    else
        fprintf(load->out, "%s %s\n", program, STATSBUS_VERSION);
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
    struct load *load = state->input;
    if (key == KEY_HELP || key == KEY_VERSION) {
        load->todo = SB_SETTINGS_EXIT_OK;
        state->next = state->argc; /* the rest does not matter any more */
        print(load, key == KEY_HELP);
        return 0;
    }
    if (key == ARGP_KEY_ERROR) {
        load->failed_at = state->next;
        return 0;
    }
    if (key == ARGP_KEY_ARG) {
        sb_fail(load->err, SB_INVAL, "'%s' is neither a flag nor the value of one", arg);
        return EINVAL;
    }
    if (key < KEY_FIRST || (size_t) (key - KEY_FIRST) >= load->spec->n)
        return ARGP_ERR_UNKNOWN;

    struct choice *choice = &load->choices[key - KEY_FIRST];
    flag_name(choice->origin, &load->spec->settings[key - KEY_FIRST]);
    choice->text = arg ? arg : "true"; /* a flag without a value */
    return 0;
}

/* argp's own checks say no more than that they failed, and where. */
static enum sb_rc explain(const struct load *load, int argc, char **argv)
{
    const int at = load->failed_at;
    const char *argument = argv[at > 0 && (at >= argc || argv[at - 1][0] == '-') ? at - 1 : at];
    const size_t name_len = strcspn(argument, "=");
    for (size_t i = 0; i < load->spec->n; i++) {
        char flag[NAME_MAX_BYTES];
        flag_name(flag, &load->spec->settings[i]);
        if (strlen(flag) == name_len && strncmp(argument, flag, name_len) == 0)
            return sb_fail(load->err, SB_INVAL, "%s needs a value", flag);
    }
    return sb_fail(load->err, SB_INVAL, "no flag is called '%s' (--help lists them)", argument);
}

static enum sb_rc take_flags(struct load *load, const struct argp *argp, int argc, char **argv)
{
    struct sb_err err = {0};
    struct sb_err *callers = load->err;
    load->err = &err;
    load->argp = argp;
    const error_t failed = argp_parse(argp, argc, argv, ARGP_SILENT | ARGP_IN_ORDER, NULL, load);
    load->err = callers;
    if (failed == 0)
        return SB_OK;
    if (failed == ENOMEM)
        return sb_fail(callers, SB_NOMEM, "reading the flags");
    if (err.rc != SB_OK)
        return sb_fail(callers, err.rc, "%s", err.text);
    return explain(load, argc, argv);
}

/* One line of --help; texts live in `texts`, whose memory does not move: it is reserved at once. */
static const char *put_help(struct sb_buf *texts, const struct sb_settings_spec *spec, const struct sb_setting *setting)
{
    char variable[NAME_MAX_BYTES];
    variable_name(variable, spec, setting);
    const size_t start = texts->len;
    sb_buf_printf(texts, "%s (default: %s; %s)", setting->help, setting->fallback[0] ? setting->fallback : "none",
                  variable);
    sb_buf_put_byte(texts, '\0');
    return texts->is_overflow ? setting->help : (const char *) texts->data + start;
}

static const char *put_flag(struct sb_buf *texts, const struct sb_setting *setting)
{
    char flag[NAME_MAX_BYTES];
    flag_name(flag, setting);
    const size_t start = texts->len;
    sb_buf_put(texts, flag + 2, strlen(flag + 2) + 1); /* argp wants it without the dashes */
    return texts->is_overflow ? setting->name : (const char *) texts->data + start;
}

static const char *value_text(enum sb_setting_kind kind)
{
    static const char *const texts[] = {
        [SB_SETTING_text] = "TEXT",   [SB_SETTING_duration] = "DURATION", [SB_SETTING_count] = "COUNT",
        [SB_SETTING_bytes] = "BYTES", [SB_SETTING_flag] = "true|false",
    };
    return texts[kind];
}

static void make_options(struct argp_option *options, struct sb_buf *texts, const struct sb_settings_spec *spec)
{
    size_t n = 0;
    for (; n < spec->n; n++) {
        const struct sb_setting *setting = &spec->settings[n];
        options[n] = (struct argp_option){
            .name = put_flag(texts, setting),
            .key = KEY_FIRST + (int) n,
            .arg = value_text(setting->kind),
            .flags = setting->kind == SB_SETTING_flag ? OPTION_ARG_OPTIONAL : 0,
            .doc = put_help(texts, spec, setting),
        };
    }
    options[n++] = (struct argp_option){.name = "help", .key = KEY_HELP, .doc = "print this and exit", .group = -1};
    options[n++] =
        (struct argp_option){.name = "version", .key = KEY_VERSION, .doc = "print the version and exit", .group = -1};
    options[n] = (struct argp_option){0};
}

static enum sb_rc parse_flag(const char *text, int64_t *out, struct sb_err *err)
{
    const bool is_true = strcmp(text, "true") == 0;
    if (!is_true && strcmp(text, "false") != 0)
        return sb_fail(err, SB_FORMAT, "'%s' is neither true nor false", text);
    *out = is_true;
    return SB_OK;
}

/* Parses the chosen text into its field, or only checks it when into is NULL. */
static enum sb_rc store(const struct sb_setting *setting, const struct choice *choice, void *into, struct sb_err *err)
{
    static enum sb_rc (*const parsers[])(const char *, int64_t *, struct sb_err *) = {
        [SB_SETTING_text] = NULL,
        [SB_SETTING_duration] = sb_parse_duration_ms,
        [SB_SETTING_count] = sb_parse_count,
        [SB_SETTING_bytes] = sb_parse_bytes,
        [SB_SETTING_flag] = parse_flag,
    };
    int64_t number = 0;
    if (parsers[setting->kind]) {
        const enum sb_rc rc = parsers[setting->kind](choice->text, &number, err);
        if (rc != SB_OK)
            return sb_fail_at(err, rc, "%s", choice->origin[0] ? choice->origin : setting->name);
    }
    if (!into)
        return SB_OK;
    char *field = (char *) into + setting->offset;
    if (parsers[setting->kind])
        memcpy(field, &number, sizeof number);
    else
        memcpy(field, &choice->text, sizeof choice->text);
    return SB_OK;
}

/* All are checked before the first is stored. */
static enum sb_rc store_all(const struct load *load, void *into, struct sb_err *err)
{
    const struct sb_settings_spec *spec = load->spec;
    for (size_t i = 0; i < spec->n; i++) {
        const enum sb_rc rc = store(&spec->settings[i], &load->choices[i], NULL, err);
        if (rc != SB_OK)
            return rc;
    }
    for (size_t i = 0; i < spec->n; i++)
        (void) !store(&spec->settings[i], &load->choices[i], into, NULL);
    return SB_OK;
}

static void free_options(struct argp_option **options)
{
    free(*options);
}

static void free_choices(struct choice **choices)
{
    free(*choices);
}

enum sb_rc sb_settings_load(const struct sb_settings_spec *spec, int argc, char **argv,
                            char *(*getenv_fn)(const char *), FILE *out, void *into, enum sb_settings_todo *todo,
                            struct sb_err *err)
{
    SB_OWN(sb_buf_release) struct sb_buf texts;
    sb_buf_init(&texts, HELP_MAX);
    SB_OWN(free_options) struct argp_option *options = calloc(spec->n + 3, sizeof *options);
    SB_OWN(free_choices) struct choice *choices = calloc(spec->n + 1, sizeof *choices);
    if (!options || !choices || !sb_buf_reserve(&texts, HELP_MAX - 1))
        return sb_fail(err, SB_NOMEM, "%zu settings", spec->n);

    make_options(options, &texts, spec);
    const struct argp argp = {.options = options, .parser = on_option, .doc = spec->about};
    struct load load = {.spec = spec, .choices = choices, .todo = SB_SETTINGS_RUN, .out = out, .err = err};
    take_defaults(&load);
    take_environment(&load, getenv_fn);
    enum sb_rc rc = take_flags(&load, &argp, argc, argv);
    if (rc == SB_OK && load.todo == SB_SETTINGS_RUN)
        rc = store_all(&load, into, err);
    if (rc == SB_OK)
        *todo = load.todo;
    return rc;
}
