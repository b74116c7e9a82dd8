/* --check-config: the settings as a file that --config takes. */
#include "common/settings_private.h"

static void print_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        const unsigned char c = (unsigned char) *text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

/* A path may hold anything, and a comment must stay one line. */
static void print_comment(FILE *out, const char *text)
{
    fputs(" # ", out);
    for (; *text; text++)
        fputc((unsigned char) *text < 0x20 || *text == 0x7f ? '?' : *text, out);
    fputc('\n', out);
}

void sb_settings_print(const struct sb_settings_reading *reading)
{
    const struct sb_settings_spec *spec = reading->spec;
    fprintf(reading->out, "# %s %s: the settings are good; behind each is who said so\n", spec->program,
            STATSBUS_VERSION);
    for (size_t i = 0; i < spec->n; i++) {
        const struct sb_setting *setting = &spec->settings[i];
        fprintf(reading->out, "%s: ", setting->name);
        if (sb_setting_is_text(setting->kind))
            print_quoted(reading->out, reading->choices[i].text);
        else
            fputs(reading->choices[i].text, reading->out);
        print_comment(reading->out, reading->choices[i].origin);
    }
}
