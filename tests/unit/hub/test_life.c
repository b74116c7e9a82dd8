#include "cluster_test.h"

enum { TIMEOUT_MS = 15000, CLOSED_AFTER_MS = 24 * 3600 * 1000 };

static int open_cluster(void **state)
{
    static struct cluster cluster;
    cluster_open(&cluster, NULL);
    cluster_join(&cluster);
    *state = &cluster;
    return 0;
}

static int close_cluster(void **state)
{
    cluster_close(*state);
    return 0;
}

/* Time passes; the agent goes on to speak. */
static void wait_ms(struct cluster *cluster, int64_t ms)
{
    cluster->world.now_ms += ms;
    begin(&cluster->world, 1, "FRAME");
    assert_int_equal(deliver(&cluster->world, &cluster->session), HUB_OK);
    hub_store_sweep(&cluster->world.store, cluster->world.now_ms, TIMEOUT_MS, CLOSED_AFTER_MS);
}

/* Time passes, and nobody speaks. */
static void wait_in_silence(struct cluster *cluster, int64_t ms)
{
    cluster->world.now_ms += ms;
    hub_store_sweep(&cluster->world.store, cluster->world.now_ms, TIMEOUT_MS, CLOSED_AFTER_MS);
}

static void assert_done(struct cluster *cluster, const char *view, const char *expected)
{
    struct hub_query query = {.view = hub_store_view(&cluster->world.store, view)->spec};
    assert_true(hub_query_add_family(&query, "c:done"));
    char *text = scrape_asked(&cluster->world, view, SB_EXPO_TEXT, &query);
    const char *lines = strchr(text, '\n');
    assert_string_equal(lines ? lines + 1 : "", expected);
    free(text);
}

#define FULL(n) "c:done_total{model_name=\"m\",service_name=\"s\"} " #n "\n"
#define NODE(node, role, n)                                                                                            \
    "c:done_total{model_name=\"m\",node=\"" node "\",role=\"" role "\",service_name=\"s\"} " #n "\n"
#define ROLE(role, n) "c:done_total{model_name=\"m\",role=\"" role "\",service_name=\"s\"} " #n "\n"

static void a_row_without_live_sources_lingers_and_comes_back_with_its_counters(void **state)
{
    struct cluster *cluster = *state;
    cluster_done(cluster, 0, 10, 1);
    cluster_done(cluster, 2, 30, 1);
    assert_done(cluster, "node", NODE("n1", "prefill", 10) NODE("n1", "decode", 30));
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 0), HUB_OK);
    wait_ms(cluster, TEST_LINGER_MS - 1);
    assert_done(cluster, "node", NODE("n1", "prefill", 10) NODE("n1", "decode", 30));
    wait_ms(cluster, 1);
    assert_done(cluster, "node", NODE("n1", "decode", 30));
    assert_done(cluster, "role", ROLE("prefill", 10) ROLE("decode", 30)); /* kept */
    assert_done(cluster, "full", FULL(40));
    cluster_done(cluster, 0, 11, 1);
    assert_done(cluster, "node", NODE("n1", "prefill", 11) NODE("n1", "decode", 30));
}

static void what_is_forgotten_stays_in_every_row_it_belonged_to(void **state)
{
    struct cluster *cluster = *state;
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 10 * (i + 1), 1);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 0), HUB_OK);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 0), HUB_OK);
    assert_int_equal(cluster->world.store.contributions.n, 3);
    assert_done(cluster, "full", FULL(100));
    assert_done(cluster, "role", ROLE("prefill", 30) ROLE("decode", 70));
    assert_done(cluster, "node",
                NODE("n1", "prefill", 10) NODE("n2", "prefill", 20) NODE("n1", "decode", 30) NODE("n2", "decode", 40));
    wait_ms(cluster, TEST_LINGER_MS);
    assert_done(cluster, "node", NODE("n2", "prefill", 20) NODE("n1", "decode", 30) NODE("n2", "decode", 40));
    assert_done(cluster, "role", ROLE("prefill", 30) ROLE("decode", 70));
    for (uint32_t i = 1; i < 4; i++)
        assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", i), HUB_OK);
    wait_ms(cluster, TEST_LINGER_MS);
    assert_int_equal(cluster->world.store.contributions.n, 0);
    assert_done(cluster, "node", "");
    assert_done(cluster, "dp", "");
    assert_done(cluster, "role", ROLE("prefill", 30) ROLE("decode", 70));
    assert_done(cluster, "full", FULL(100));
}

/* Of a row that is not shown any more, a part is retired already: then the rest is, too. */
static void a_row_never_comes_back_with_a_part_of_its_counters(void **state)
{
    struct cluster *cluster = *state;
    cluster_done(cluster, 0, 10, 1);
    cluster_add(cluster, &cluster->session, 9, 77, "service_name=s,job_name=j9,dp_rank=0",
                "model_name=m,role=prefill,node=n1,pod_ip=10.0.0.0,instance_id=i0");
    cluster_done(cluster, 9, 5, 1);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 0), HUB_OK);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "END", 9), HUB_OK);
    wait_ms(cluster, TEST_LINGER_MS);
    assert_done(cluster, "node", "");
    assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 9), HUB_OK);
    cluster_add(cluster, &cluster->session, 9, 78, "service_name=s,job_name=j9,dp_rank=0",
                "model_name=m,role=prefill,node=n1,pod_ip=10.0.0.0,instance_id=i0");
    cluster_done(cluster, 9, 1, 1);
    assert_done(cluster, "node", NODE("n1", "prefill", 16));
}

/* The id may be used again at once, for another contribution of the same row. */
static void a_forgotten_id_is_free_and_its_row_goes_on(void **state)
{
    struct cluster *cluster = *state;
    cluster_done(cluster, 0, 10, 1);
    assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 0), HUB_OK);
    cluster_add(cluster, &cluster->session, 0, 77, "service_name=s,job_name=j0,dp_rank=0",
                "model_name=m,role=prefill,node=n1,pod_ip=10.0.0.0,instance_id=new");
    assert_done(cluster, "node", NODE("n1", "prefill", 10));
    cluster_done(cluster, 0, 5, 1);
    assert_done(cluster, "node", NODE("n1", "prefill", 15));
    assert_done(cluster, "full", FULL(15));
}

static void forget_is_checked_whole(void **state)
{
    struct cluster *cluster = *state;
    cluster_done(cluster, 0, 10, 1);
    struct sb_buf *buf = begin(&cluster->world, 2, "FORGET");
    sb_mp_put_array(buf, 2);
    sb_mp_put_uint(buf, 0);
    sb_mp_put_uint(buf, 99);
    assert_int_equal(deliver(&cluster->world, &cluster->session), HUB_REFUSAL_unknown_id);
    assert_int_equal(cluster->world.store.contributions.n, 4);
    buf = begin(&cluster->world, 2, "FORGET");
    sb_mp_put_array(buf, 2);
    sb_mp_put_uint(buf, 0);
    sb_mp_put_uint(buf, 0);
    assert_int_equal(deliver(&cluster->world, &cluster->session), HUB_OK);
    assert_int_equal(cluster->world.store.contributions.n, 3);
}

/* Fractions whose sums round: neither retiring nor another order may make the row fall. */
static void retiring_never_makes_a_sum_fall(void **state)
{
    enum { N = 200, FIRST = 10 };
    struct cluster *cluster = *state;
    for (uint32_t i = 0; i < N; i++) {
        char source[64];
        snprintf(source, sizeof source, "service_name=s,job_name=x%u,dp_rank=0", i);
        cluster_add(cluster, &cluster->session, FIRST + i, 100 + i, source, "model_name=m,role=decode");
        cluster_done(cluster, FIRST + i, 0.1 * (i + 1) + (i % 3 ? 1e9 : 1e-9), 1);
    }
    char *before = scrape_as(&cluster->world, "role", SB_EXPO_TEXT);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(cluster_tell(cluster, &cluster->session, "END", FIRST + (i * 7) % N), HUB_OK);
        assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", FIRST + (i * 7) % N), HUB_OK);
        if (i % 20 != 0 && i != N - 1)
            continue;
        char *after = scrape_as(&cluster->world, "role", SB_EXPO_TEXT);
        const char *done = strstr(before, "c:done_total{"), *now = strstr(after, "c:done_total{");
        assert_memory_equal(done, now, strcspn(done, "\n"));
        free(after);
    }
    free(before);
}

static void retired_cells_keep_their_role(void **state)
{
    struct cluster *cluster = *state;
    for (uint32_t i = 0; i < 4; i++)
        cluster_send(cluster,
                     (struct test_frame){
                         .contribution = i,
                         .n_cells = 5,
                         .cells = {{D_DONE, 10}, {D_WAIT, i + 1}, {D_WAIT + 1, 0}, {D_WAIT + 2, 0}, {D_WAIT + 3, 1}}});
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", i), HUB_OK);
    char *text = scrape_as(&cluster->world, "full", SB_EXPO_TEXT);
    assert_non_null(strstr(text, "c:wait_seconds_count{model_name=\"m\",service_name=\"s\"} 7\n"));
    assert_non_null(strstr(text, FULL(40)));
    free(text);
    struct hub_query query = {.view = hub_store_view(&cluster->world.store, "full")->spec};
    assert_true(hub_query_narrow(&query, HUB_NARROW_role, "prefill"));
    assert_true(hub_query_add_family(&query, "c:done"));
    text = scrape_asked(&cluster->world, "full", SB_EXPO_TEXT, &query);
    assert_non_null(strstr(text, FULL(20)));
    free(text);
}

static void memory_of_retired_rows_is_counted_and_given_back(void **state)
{
    struct cluster *cluster = *state;
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 1, 1);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", i), HUB_OK);
    size_t lingering = cluster->world.store.row_bytes;
    wait_ms(cluster, TEST_LINGER_MS);
    size_t kept = cluster->world.store.row_bytes;
    assert_true(kept > 0 && kept < lingering);
    /* full, role and stage, each for two roles: a page and its place, for both halves */
    assert_true(kept <= 6 * 2 * (HUB_PAGE_CELLS + 1) * sizeof(double));
}

/* Engine after engine comes, counts and is forgotten. */
static void rows_that_have_been_idle_longest_make_room_for_others(void **state)
{
    enum { ROUNDS = 60, BEFORE_LIMIT = 20, FIRST = 10 };
    struct cluster *cluster = *state;
    struct hub_store *store = &cluster->world.store;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        char source[64];
        char identity[128];
        snprintf(source, sizeof source, "service_name=s,job_name=j,dp_rank=%u", i);
        snprintf(identity, sizeof identity, "model_name=m,role=both,node=later-%u,instance_id=later-%u", i, i);
        cluster_add(cluster, &cluster->session, FIRST + i, FIRST + 1 + i, source, identity);
        cluster_done(cluster, FIRST + i, 1, 1);
        assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", FIRST + i), HUB_OK);
        if (i == BEFORE_LIMIT)
            store->row_bytes_max = store->row_bytes;
        wait_ms(cluster, 10);
        assert_true(i < BEFORE_LIMIT || store->row_bytes <= store->row_bytes_max);
    }
    assert_int_equal(cluster->world.counters.limits[HUB_LIMIT_memory], 0);
    assert_true(cluster->world.counters.limits[HUB_LIMIT_kept_rows] > 0);
    char expected[256];
    snprintf(expected, sizeof expected, "%d\n", ROUNDS);
    char *text = scrape_as(&cluster->world, "full", SB_EXPO_TEXT);
    const char *found = strstr(text, "c:done_total{");
    assert_non_null(found);
    assert_string_equal(strchr(found, ' ') + 1, expected);
    free(text);
    text = scrape_as(&cluster->world, "node", SB_EXPO_TEXT);
    assert_null(strstr(text, "node=\"later-0\""));
    snprintf(expected, sizeof expected, "node=\"later-%d\"", ROUNDS - 1);
    assert_non_null(strstr(text, expected));
    free(text);
}

/* Rows that have live sources can't go for it: then the contribution stays, and nothing that it counted is lost. */
static void without_room_a_contribution_stays_until_there_is(void **state)
{
    struct cluster *cluster = *state;
    struct hub_store *store = &cluster->world.store;
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 10, 1);
    store->row_bytes_max = store->row_bytes;
    assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 0), HUB_OK);
    assert_int_equal(store->row_bytes, store->row_bytes_max);
    assert_int_equal(store->contributions.n, 4);
    assert_int_equal(cluster->world.counters.limits[HUB_LIMIT_memory], 1);
    assert_done(cluster, "full", FULL(40));
    store->row_bytes_max *= 8;
    wait_ms(cluster, 1);
    assert_int_equal(store->contributions.n, 3);
    assert_done(cluster, "full", FULL(40));
}

static void assert_welcome(struct cluster *cluster, uint64_t offered, uint64_t expected, bool is_closed_expected)
{
    pack_hello(&cluster->world, 'a', offered);
    assert_int_equal(deliver(&cluster->world, &cluster->session), HUB_OK);
    struct sb_mp at = sb_mp_over(cluster->world.answer.data, cluster->world.answer.len);
    uint32_t n;
    struct sb_slice type, id;
    uint64_t version = 0;
    uint64_t generation = 0;
    bool is_closed = false;
    assert_true(sb_mp_array(&at, &n) && sb_mp_str(&at, &type) && sb_slice_is(type, "WELCOME") &&
                sb_mp_uint(&at, &version) && sb_mp_bin(&at, &id) && sb_mp_uint(&at, &generation) &&
                sb_mp_bool(&at, &is_closed));
    assert_int_equal(generation, expected);
    assert_int_equal(is_closed, is_closed_expected);
}

static void a_closed_lineage_whose_state_was_rolled_back_is_told_of_that(void **state)
{
    struct cluster *cluster = *state;
    cluster_send(cluster,
                 (struct test_frame){.contribution = 0, .generation = 20, .n_cells = 1, .cells = {{D_DONE, 10}}});
    hub_session_release(&cluster->session);
    wait_in_silence(cluster, CLOSED_AFTER_MS);
    hub_session_init(&cluster->session, &cluster->world.store, ++cluster->world.last_serial, cluster->world.now_ms);
    assert_welcome(cluster, 19, 21, false);
    hub_session_release(&cluster->session);
    hub_session_init(&cluster->session, &cluster->world.store, ++cluster->world.last_serial, cluster->world.now_ms);
    assert_welcome(cluster, 20, 21, true);
}

static void a_lineage_silent_for_a_day_is_closed_and_must_come_back_as_another(void **state)
{
    struct cluster *cluster = *state;
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 10, 1);
    hub_session_release(&cluster->session);
    hub_session_init(&cluster->session, &cluster->world.store, ++cluster->world.last_serial, cluster->world.now_ms);
    wait_in_silence(cluster, CLOSED_AFTER_MS - 1);
    assert_int_equal(cluster->world.store.contributions.n, 4);
    wait_in_silence(cluster, 1);
    assert_int_equal(cluster->world.store.contributions.n, 0);
    assert_done(cluster, "full", FULL(40));

    assert_welcome(cluster, 17, 18, true);
    begin(&cluster->world, 1, "FRAME");
    assert_int_equal(deliver(&cluster->world, &cluster->session), HUB_REFUSAL_closed);
    assert_done(cluster, "full", FULL(40));

    struct hub_session fresh;
    greet(&cluster->world, &fresh, 'b');
    hub_session_release(&fresh);
    assert_int_equal(cluster->world.store.lineages.n, 1); /* the closed one is remembered, the idle one not */
}

static void a_lineage_with_a_session_is_never_closed(void **state)
{
    struct cluster *cluster = *state;
    cluster_done(cluster, 0, 10, 1);
    wait_in_silence(cluster, 2 * (int64_t) CLOSED_AFTER_MS);
    assert_int_equal(cluster->world.store.contributions.n, 4);
    wait_ms(cluster, 1);
}

/* The same agent's next session, which names sources 1 to 3 of the four: source 0 is forgotten, and FORGET was lost. */
static void greet_without_the_first(struct cluster *cluster)
{
    hub_session_release(&cluster->session);
    greet(&cluster->world, &cluster->session, 'a');
    cluster_define(&cluster->world, &cluster->session);
    cluster->number = 0;
    for (uint32_t i = 1; i < 4; i++)
        cluster_add_usual(cluster, i);
}

static enum hub_refusal name_the_first(struct cluster *cluster)
{
    struct sb_buf *buf = begin(&cluster->world, 4, "DEFINE");
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 1);
    put_contribution(buf, 0, 1, "engine", "service_name=s,job_name=j0,dp_rank=0",
                     "model_name=m,role=prefill,node=n1,pod_ip=10.0.0.0,instance_id=i0");
    return deliver(&cluster->world, &cluster->session);
}

static void what_sessions_leave_out_ends_and_becomes_final(void **state)
{
    struct cluster *cluster = *state;
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 10 * (i + 1), 1);
    greet_without_the_first(cluster);
    const struct hub_contribution *first = hub_store_find(&cluster->world.store, cluster->session.lineage, 1);
    wait_ms(cluster, TIMEOUT_MS - 1);
    assert_true(first->is_live);
    wait_ms(cluster, 1);
    assert_true(!first->is_live && first->is_ended);
    wait_ms(cluster, CLOSED_AFTER_MS / 2);
    greet_without_the_first(cluster); /* a session that breaks gives it no more time */
    wait_ms(cluster, CLOSED_AFTER_MS / 2 - TIMEOUT_MS - 1);
    assert_int_equal(cluster->world.store.contributions.n, 4);
    wait_ms(cluster, 1);
    assert_int_equal(cluster->world.store.contributions.n, 3);
    assert_done(cluster, "full", FULL(100));
    assert_done(cluster, "role", ROLE("prefill", 30) ROLE("decode", 70));
}

static void what_a_session_names_again_in_time_goes_on(void **state)
{
    struct cluster *cluster = *state;
    cluster_done(cluster, 0, 10, 1);
    greet_without_the_first(cluster);
    wait_ms(cluster, CLOSED_AFTER_MS - 1);
    assert_int_equal(name_the_first(cluster), HUB_OK);
    wait_ms(cluster, CLOSED_AFTER_MS);
    assert_int_equal(cluster->world.store.contributions.n, 4);
    cluster_done(cluster, 0, 11, 1);
    assert_done(cluster, "full", FULL(11));
    greet_without_the_first(cluster); /* left out anew: the time starts anew */
    wait_ms(cluster, TIMEOUT_MS);
    assert_int_equal(cluster->world.store.contributions.n, 4);
}

/* Its agent comes back with a state from before: what it says now would count twice. */
static void naming_what_is_final_closes_the_lineage(void **state)
{
    struct cluster *cluster = *state;
    for (uint32_t i = 0; i < 4; i++)
        cluster_done(cluster, i, 10 * (i + 1), 1);
    greet_without_the_first(cluster);
    wait_ms(cluster, CLOSED_AFTER_MS);
    assert_int_equal(cluster->world.store.contributions.n, 3);
    hub_session_release(&cluster->session);
    assert_int_equal(cluster->world.store.lineages.n, 1);
    greet(&cluster->world, &cluster->session, 'a');
    assert_int_equal(name_the_first(cluster), HUB_REFUSAL_closed);
    hub_session_release(&cluster->session);
    assert_int_equal(cluster->world.store.contributions.n, 0);
    assert_done(cluster, "full", FULL(100));

    greet(&cluster->world, &cluster->session, 'a');
    begin(&cluster->world, 1, "FRAME");
    assert_int_equal(deliver(&cluster->world, &cluster->session), HUB_REFUSAL_closed);
    assert_done(cluster, "full", FULL(100));
}

/* Its contributions are all final, and its agent is away: it is remembered nevertheless. */
static void a_lineage_without_contributions_remembers_what_is_final(void **state)
{
    struct cluster *cluster = *state;
    cluster_done(cluster, 0, 10, 1);
    hub_session_release(&cluster->session);
    greet(&cluster->world, &cluster->session, 'a');
    wait_ms(cluster, CLOSED_AFTER_MS);
    assert_int_equal(cluster->world.store.contributions.n, 0);
    hub_session_release(&cluster->session);
    assert_int_equal(cluster->world.store.lineages.n, 1);
    greet(&cluster->world, &cluster->session, 'a');
    assert_int_equal(name_the_first(cluster), HUB_REFUSAL_closed);
}

/* A contribution that couldn't be retired for want of memory is over all the same. */
static void what_is_forgotten_and_still_there_can_not_be_named(void **state)
{
    struct cluster *cluster = *state;
    cluster_done(cluster, 0, 10, 1);
    hub_store_find(&cluster->world.store, cluster->session.lineage, 1)->is_forgotten = true;
    hub_session_release(&cluster->session);
    greet(&cluster->world, &cluster->session, 'a');
    assert_int_equal(name_the_first(cluster), HUB_REFUSAL_closed);
    assert_int_equal(cluster->world.store.contributions.n, 0);
    assert_done(cluster, "full", FULL(10));
}

/* As after a restart of the hub: what has ended before is told again, and was shown for its time before. */
static void what_is_dead_when_it_is_met_is_shown_where_rows_are_kept_alone(void **state)
{
    struct cluster *cluster = *state;
    cluster_send(cluster,
                 (struct test_frame){.contribution = 0, .is_dead = true, .n_cells = 1, .cells = {{D_DONE, 10}}});
    assert_done(cluster, "node", "");
    assert_done(cluster, "full", FULL(10));
    cluster_done(cluster, 0, 11, 1);
    assert_done(cluster, "node", NODE("n1", "prefill", 11));
}

static void rows_that_are_kept_for_good_have_a_limit(void **state)
{
    struct cluster *cluster = *state;
    for (uint32_t i = 0; i < HUB_KEPT_ROWS_MAX + 3; i++) {
        char source[64];
        char identity[64];
        snprintf(source, sizeof source, "service_name=q%u,job_name=x,dp_rank=0", i);
        snprintf(identity, sizeof identity, "model_name=m,role=decode");
        cluster_add(cluster, &cluster->session, 10, 1000 + i, source, identity);
        cluster_done(cluster, 10, 1, 1);
        assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 10), HUB_OK);
        cluster->world.now_ms++;
    }
    wait_ms(cluster, TEST_LINGER_MS);
    const struct hub_view *full = hub_store_view(&cluster->world.store, "full");
    assert_int_equal(full->n_groups, HUB_KEPT_ROWS_MAX + 1); /* and the row of the sources that live */
    assert_int_equal(cluster->world.counters.limits[HUB_LIMIT_kept_rows], 3 * 3); /* full, role and stage */
    char *text = scrape_as(&cluster->world, "full", SB_EXPO_TEXT);
    assert_null(strstr(text, "service_name=\"q2\""));
    assert_non_null(strstr(text, "service_name=\"q3\""));
    free(text);
}

/* Also when most of them stopped to live at one moment. */
static void of_rows_over_the_limit_those_that_lived_last_stay(void **state)
{
    enum { N_BEFORE = 3, N_AT_ONCE = HUB_KEPT_ROWS_MAX, N_AFTER = 5 };
    struct cluster *cluster = *state;
    for (uint32_t i = 0; i < N_BEFORE + N_AT_ONCE + N_AFTER; i++) {
        char source[64];
        snprintf(source, sizeof source, "service_name=q%u,job_name=x,dp_rank=0", i);
        cluster_add(cluster, &cluster->session, 10, 1000 + i, source, "model_name=m,role=decode");
        cluster_done(cluster, 10, 1, 1);
        assert_int_equal(cluster_tell(cluster, &cluster->session, "FORGET", 10), HUB_OK);
        cluster->world.now_ms += i < N_BEFORE || i >= N_BEFORE + N_AT_ONCE - 1;
    }
    wait_ms(cluster, 1);
    char *text = scrape_as(&cluster->world, "full", SB_EXPO_TEXT);
    for (uint32_t i = 0; i < N_BEFORE + N_AT_ONCE + N_AFTER; i++) {
        char label[32];
        snprintf(label, sizeof label, "service_name=\"q%u\"", i);
        bool is_wanted = i >= N_BEFORE + N_AFTER; /* of those at one moment, the first ones went */
        assert_true((strstr(text, label) != NULL) == is_wanted);
    }
    free(text);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_cluster, close_cluster)
    const struct CMUnitTest tests[] = {
        CASE(a_row_without_live_sources_lingers_and_comes_back_with_its_counters),
        CASE(what_is_forgotten_stays_in_every_row_it_belonged_to),
        CASE(a_row_never_comes_back_with_a_part_of_its_counters),
        CASE(a_forgotten_id_is_free_and_its_row_goes_on),
        CASE(forget_is_checked_whole),
        CASE(retiring_never_makes_a_sum_fall),
        CASE(retired_cells_keep_their_role),
        CASE(memory_of_retired_rows_is_counted_and_given_back),
        CASE(rows_that_have_been_idle_longest_make_room_for_others),
        CASE(without_room_a_contribution_stays_until_there_is),
        CASE(a_lineage_silent_for_a_day_is_closed_and_must_come_back_as_another),
        CASE(a_closed_lineage_whose_state_was_rolled_back_is_told_of_that),
        CASE(a_lineage_with_a_session_is_never_closed),
        CASE(what_sessions_leave_out_ends_and_becomes_final),
        CASE(what_a_session_names_again_in_time_goes_on),
        CASE(naming_what_is_final_closes_the_lineage),
        CASE(a_lineage_without_contributions_remembers_what_is_final),
        CASE(what_is_forgotten_and_still_there_can_not_be_named),
        CASE(what_is_dead_when_it_is_met_is_shown_where_rows_are_kept_alone),
        CASE(rows_that_are_kept_for_good_have_a_limit),
        CASE(of_rows_over_the_limit_those_that_lived_last_stay),
    };
    return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
