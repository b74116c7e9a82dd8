/*
 * A hub without sockets and with a clock that its reader sets: for models of what depends on time
 * (tests/e2e/hub_play.py).
 *
 * usage: hub_play WINDOWS RATE_WINDOW_MS     Commands on stdin, each a letter and little-endian numbers of 8 bytes:
 *   T time_ms             time has come: what is due is done
 *   N session             a session begins
 *   M session n bytes     a message of it
 *   S n view              answered on stdout by a length (8 bytes) and the text of a scrape
 * Any fault ends it with a word on stderr.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hub/render.h"
#include "hub/session.h"
#include "hub/windows.h"

enum { SESSIONS_MAX = 4096, TIMEOUT_MS = 15 * 1000, CLOSED_AFTER_MS = 24 * 3600 * 1000, LINGER_MS = 300 * 1000 };

static struct hub_counters counters;
static struct hub_store store;
static struct hub_session sessions[SESSIONS_MAX];
static int64_t now_ms = 1;

static void die(const char *what)
{
    fprintf(stderr, "hub_play: %s\n", what);
    exit(1);
}

static void read_bytes(void *to, size_t n)
{
    if (fread(to, 1, n, stdin) != n)
        die("a command ends too early");
}

static uint64_t read_number(void)
{
    uint64_t number;
    read_bytes(&number, sizeof number);
    return number;
}

static void *read_text(size_t *n)
{
    *n = read_number();
    char *text = *n < HUB_MESSAGE_MAX ? malloc(*n + 1) : NULL;
    if (!text)
        die("no memory");
    read_bytes(text, *n);
    text[*n] = '\0';
    return text;
}

static uint64_t read_session(void)
{
    const uint64_t number = read_number();
    if (number == 0 || number >= SESSIONS_MAX)
        die("no such session");
    return number;
}

static void pass(void)
{
    now_ms = (int64_t) read_number();
    hub_store_sweep(&store, now_ms, TIMEOUT_MS, CLOSED_AFTER_MS);
    hub_computed_begin_round(&store, now_ms);
    hub_windows_begin_round(&store, now_ms);
    while (hub_computed_go_on(&store) || hub_windows_go_on(&store)) {
    }
}

static void take(void)
{
    static const uint8_t hub_id[HUB_ID_BYTES] = "played";
    struct hub_session *session = &sessions[read_session()];
    size_t n;
    void *bytes = read_text(&n);
    struct sb_buf answer;
    sb_buf_init(&answer, 4096);
    const enum hub_refusal refusal = hub_session_take(session, hub_id, bytes, n, now_ms, &answer);
    if (refusal != HUB_OK)
        die(hub_refusal_text(refusal));
    sb_buf_release(&answer);
    free(bytes);
}

static void scrape(void)
{
    size_t n;
    char *name = read_text(&n);
    struct sb_buf out;
    sb_buf_init(&out, 64 * 1024 * 1024);
    const struct hub_ask ask = {.view = hub_store_view(&store, name), .now_ms = now_ms};
    struct hub_scrape *scrape = ask.view ? hub_scrape_new(&store, &ask) : NULL;
    if (!scrape)
        die("no such view, or no memory");
    while (hub_scrape_next(scrape, &out)) {
    }
    hub_scrape_destroy(&scrape);
    const uint64_t len = out.len;
    if (fwrite(&len, 1, sizeof len, stdout) != sizeof len || fwrite(out.data, 1, out.len, stdout) != out.len ||
        fflush(stdout) != 0)
        die("nobody reads");
    sb_buf_release(&out);
    free(name);
}

int main(int argc, char **argv)
{
    static struct hub_view_specs views;
    static struct hub_computed_specs computed;
    static struct hub_window_lengths lengths;
    static const struct hub_expectations none;
    const struct hub_store_limits limits = {.contributions = 65536, .row_bytes = SIZE_MAX, .linger_ms = LINGER_MS};
    struct sb_err err = {.text = ""};
    if (argc != 3)
        die("two arguments are needed");
    struct sb_catalog *catalog = sb_catalog_load(NULL, NULL, &err);
    if (!catalog || hub_view_specs_load(&views, NULL, &err) != SB_OK ||
        hub_window_lengths_parse(&lengths, argv[1], &err) != SB_OK ||
        hub_computed_specs_load(&computed, NULL, "motor_", false, catalog, &err) != SB_OK ||
        hub_store_init(&store, catalog, &views, &counters, limits, &err) != SB_OK ||
        hub_windows_init(&store, &lengths, SIZE_MAX, &err) != SB_OK ||
        hub_store_compute(&store, &computed, &none, strtoll(argv[2], NULL, 10), &err) != SB_OK)
        die(err.text);
    for (int command; (command = getchar()) != EOF;) {
        if (command == 'T') {
            pass();
        } else if (command == 'N') {
            const uint64_t number = read_session();
            hub_session_init(&sessions[number], &store, number, now_ms);
        } else if (command == 'M') {
            take();
        } else if (command == 'S') {
            scrape();
        } else {
            die("no such command");
        }
    }
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        if (sessions[i].store)
            hub_session_release(&sessions[i]);
    }
    hub_store_release(&store);
    hub_computed_specs_release(&computed);
    hub_view_specs_release(&views);
    sb_catalog_destroy(&catalog);
    return 0;
}
