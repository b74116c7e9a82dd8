#include "cluster_test.h"

static int open_cluster(void **state)
{
    static struct cluster cluster;
    cluster_open(&cluster, "version: 1\nviews:\n"
                           "  tidy: {by: [role], buckets: false, deny: [c:looks, c:wait_seconds_p50, c:hit_rate]}\n"
                           "  some: {by: [], allow: [c:done, c:wait_seconds_mean], where: {node: [n1]}}\n"
                           "  plain: {by: [], derived: false, allow: [c:running, c:running_max]}\n"
                           "  engine: {by: [dp_rank], rename: {engine: dp_rank}, allow: [c:done_total]}\n");
    cluster_join(&cluster);
    *state = &cluster;
    return 0;
}

static int close_cluster(void **state)
{
    cluster_close(*state);
    return 0;
}

/* Prefill sources observe 1 and 2 waits in the first bucket, decode sources 0 and 4 in the second. */
static void fill(struct cluster *cluster)
{
    static const double running[] = {1, 2, 5, 4}, usage[] = {0.125, 0.375, 0.5, 0.75};
    static const double hits[] = {1, 0, 2, 3}, looks[] = {2, 0, 10, 4};
    static const double first[] = {1, 2, 0, 0}, second[] = {0, 0, 0, 4}, sums[] = {0.5, 1.5, 0, 6};
    for (uint32_t i = 0; i < 4; i++)
        cluster_send(cluster, (struct test_frame){.contribution = i,
                                                  .n_gauges = 2,
                                                  .gauges = {{D_RUNNING, running[i]}, {D_USAGE, usage[i]}},
                                                  .n_cells = 7,
                                                  .cells = {{D_DONE, 10 * (i + 1)},
                                                            {D_HITS, hits[i]},
                                                            {D_LOOKS, looks[i]},
                                                            {D_WAIT, first[i]},
                                                            {D_WAIT + 1, second[i]},
                                                            {D_WAIT + 2, 0},
                                                            {D_WAIT + 3, sums[i]}}});
}

#define F "model_name=\"m\",service_name=\"s\""
#define R(role) "model_name=\"m\",role=\"" role "\",service_name=\"s\""

static void full_has_all_semantics_and_what_is_derived(void **state)
{
    struct cluster *cluster = *state;
    fill(cluster);
    assert_scrape(&cluster->world, "full",
                  "# TYPE c:done_total counter\n"
                  "c:done_total{" F "} 100\n"
                  "# TYPE c:hit_rate gauge\n"
                  "c:hit_rate{" F "} 0.375\n"
                  "# TYPE c:hits_total counter\n"
                  "c:hits_total{" F "} 6\n"
                  "# TYPE c:looks_total counter\n"
                  "c:looks_total{" F "} 16\n"
                  "# TYPE c:running gauge\n"
                  "c:running{" F "} 12\n"
                  "# TYPE c:running_max gauge\n"
                  "c:running_max{" F "} 5\n"
                  "# TYPE c:usage gauge\n"
                  "c:usage{" F "} 0.4375\n"
                  "# TYPE c:usage_max gauge\n"
                  "c:usage_max{" F "} 0.75\n"
                  "# TYPE c:wait_seconds histogram\n"
                  "c:wait_seconds_bucket{" F ",le=\"1.0\"} 0\n"
                  "c:wait_seconds_bucket{" F ",le=\"2.0\"} 4\n"
                  "c:wait_seconds_bucket{" F ",le=\"+Inf\"} 4\n"
                  "c:wait_seconds_sum{" F "} 6\n"
                  "c:wait_seconds_count{" F "} 4\n"
                  "# TYPE c:wait_seconds_mean gauge\n"
                  "c:wait_seconds_mean{" F "} 1.5\n"
                  "# TYPE c:wait_seconds_p50 gauge\n"
                  "c:wait_seconds_p50{" F ",quantile=\"0.5\"} 1.5\n");
}

static void other_views_count_every_role_in_its_own_row(void **state)
{
    struct cluster *cluster = *state;
    fill(cluster);
    assert_scrape(
        &cluster->world, "tidy",
        "# TYPE c:done_total counter\n"
        "c:done_total{" R(
            "prefill") "} 30\n"
                       "c:done_total{" R(
                           "decode") "} 70\n"
                                     "# TYPE c:hits_total counter\n"
                                     "c:hits_total{" R(
                                         "prefill") "} 1\n"
                                                    "c:hits_total{" R(
                                                        "decode") "} 5\n"
                                                                  "# TYPE c:running gauge\n"
                                                                  "c:running{" R(
                                                                      "prefill") "} 3\n"
                                                                                 "c:running{" R(
                                                                                     "decode") "}"
                                                                                               " "
                                                                                               "9"
                                                                                               "\n"
                                                                                               "#"
                                                                                               " "
                                                                                               "T"
                                                                                               "Y"
                                                                                               "P"
                                                                                               "E"
                                                                                               " "
                                                                                               "c"
                                                                                               ":"
                                                                                               "r"
                                                                                               "u"
                                                                                               "n"
                                                                                               "n"
                                                                                               "i"
                                                                                               "n"
                                                                                               "g"
                                                                                               "_"
                                                                                               "m"
                                                                                               "a"
                                                                                               "x"
                                                                                               " "
                                                                                               "g"
                                                                                               "a"
                                                                                               "u"
                                                                                               "g"
                                                                                               "e"
                                                                                               "\n"
                                                                                               "c"
                                                                                               ":"
                                                                                               "r"
                                                                                               "u"
                                                                                               "n"
                                                                                               "n"
                                                                                               "i"
                                                                                               "n"
                                                                                               "g"
                                                                                               "_"
                                                                                               "m"
                                                                                               "a"
                                                                                               "x"
                                                                                               "{" R(
                                                                                                   "prefil"
                                                                                                   "l") "}"
                                                                                                        " "
                                                                                                        "2"
                                                                                                        "\n"
                                                                                                        "c"
                                                                                                        ":"
                                                                                                        "r"
                                                                                                        "u"
                                                                                                        "n"
                                                                                                        "n"
                                                                                                        "i"
                                                                                                        "n"
                                                                                                        "g"
                                                                                                        "_"
                                                                                                        "m"
                                                                                                        "a"
                                                                                                        "x"
                                                                                                        "{" R("decod"
                                                                                                              "e") "}"
                                                                                                                   " "
                                                                                                                   "5"
                                                                                                                   "\n"
                                                                                                                   "#"
                                                                                                                   " "
                                                                                                                   "T"
                                                                                                                   "Y"
                                                                                                                   "P"
                                                                                                                   "E"
                                                                                                                   " "
                                                                                                                   "c"
                                                                                                                   ":"
                                                                                                                   "u"
                                                                                                                   "s"
                                                                                                                   "a"
                                                                                                                   "g"
                                                                                                                   "e"
                                                                                                                   " "
                                                                                                                   "g"
                                                                                                                   "a"
                                                                                                                   "u"
                                                                                                                   "g"
                                                                                                                   "e"
                                                                                                                   "\n"
                                                                                                                   "c"
                                                                                                                   ":"
                                                                                                                   "u"
                                                                                                                   "s"
                                                                                                                   "a"
                                                                                                                   "g"
                                                                                                                   "e"
                                                                                                                   "{" R("prefill") "} 0.25\n"
                                                                                                                                    "c:usage{" R("decode") "} 0.625\n"
                                                                                                                                                           "# TYPE c:usage_max gauge\n"
                                                                                                                                                           "c:usage_max{" R("prefill") "} 0.375\n"
                                                                                                                                                                                       "c:usage_max{" R("decode") "} 0.75\n"
                                                                                                                                                                                                                  "# TYPE c:wait_seconds histogram\n"
                                                                                                                                                                                                                  "c:wait_seconds_sum{" R("prefill") "} 2\n"
                                                                                                                                                                                                                                                     "c:wait_seconds_count{" R("prefill") "} 3\n"
                                                                                                                                                                                                                                                                                          "c:wait_seconds_sum{" R("decode") "} 6\n"
                                                                                                                                                                                                                                                                                                                            "c:wait_seconds_count{" R("decode") "} 4\n"
                                                                                                                                                                                                                                                                                                                                                                "# TYPE c:wait_seconds_mean gauge\n"
                                                                                                                                                                                                                                                                                                                                                                "c:wait_seconds_mean{" R(
                                                                                                                                                                                                                                                                                                                                                                    "prefill") "} 0.6666666666666666\n"
                                                                                                                                                                                                                                                                                                                                                                               "c:wait_seconds_mean{" R("decode") "} 1.5\n");
}

static void views_choose_sources_families_and_what_is_derived(void **state)
{
    struct cluster *cluster = *state;
    fill(cluster);
    assert_scrape(&cluster->world, "some",
                  "# TYPE c:done_total counter\n"
                  "c:done_total{" F "} 40\n"
                  "# TYPE c:wait_seconds_mean gauge\n"
                  "c:wait_seconds_mean{" F "} 0.5\n");
    assert_scrape(&cluster->world, "plain", "# TYPE c:running gauge\nc:running{" F "} 12\n");
    assert_scrape(&cluster->world, "engine",
                  "# TYPE c:done_total counter\n"
                  "c:done_total{dp_rank=\"0\",engine=\"0\"," F "} 40\n"
                  "c:done_total{dp_rank=\"1\",engine=\"1\"," F "} 60\n");
}

static void histograms_without_buckets_keep_the_infinite_one_in_openmetrics(void **state)
{
    struct cluster *cluster = *state;
    fill(cluster);
    char *text = scrape_as(&cluster->world, "tidy", SB_EXPO_OPENMETRICS);
    assert_non_null(
        strstr(text, "# TYPE c:wait_seconds histogram\n"
                     "c:wait_seconds_bucket{" R("prefill") ",le=\"+Inf\"} 3\n"
                                                           "c:wait_seconds_sum{" R("prefill") "} 2\n"
                                                                                              "c:wait_seconds_count{" R(
                                                                                                  "prefill") "} 3\n"));
    free(text);
}

/* Sources of role both, and of none, count in every scope. */
static void a_scope_never_leaves_out_both_and_none(void **state)
{
    struct cluster *cluster = *state;
    cluster_add(cluster, &cluster->session, 4, 5, "service_name=t,job_name=x,dp_rank=0", "model_name=m,role=both");
    cluster_add(cluster, &cluster->session, 5, 6, "service_name=t,job_name=y,dp_rank=0", "model_name=m");
    cluster_add(cluster, &cluster->session, 6, 7, "service_name=t,job_name=z,dp_rank=0", "model_name=m,role=prefill");
    for (uint32_t i = 4; i < 7; i++)
        cluster_send(cluster,
                     (struct test_frame){.contribution = i,
                                         .n_cells = 4,
                                         .cells = {{D_WAIT, 1}, {D_WAIT + 1, 0}, {D_WAIT + 2, 0}, {D_WAIT + 3, 1}}});
    char *text = scrape_as(&cluster->world, "full", SB_EXPO_TEXT);
    assert_non_null(strstr(text, "c:wait_seconds_count{model_name=\"m\",service_name=\"t\"} 2\n"));
    free(text);
    hub_view_specs_lift_role_scopes(&cluster->world.views);
    text = scrape_as(&cluster->world, "full", SB_EXPO_TEXT);
    assert_non_null(strstr(text, "c:wait_seconds_count{model_name=\"m\",service_name=\"t\"} 3\n"));
    free(text);
}

static void a_family_of_an_agent_brings_its_own_scope_and_quantiles(void **state)
{
    static const double bounds[] = {1, 2};
    struct cluster *cluster = *state;
    struct sb_buf *buf = begin(&cluster->world, 4, "DEFINE");
    sb_mp_put_array(buf, 1);
    sb_mp_put_array(buf, 8);
    sb_mp_put_uint(buf, 9);
    sb_mp_put_str(buf, "x:lag_seconds");
    sb_mp_put_str(buf, "histogram");
    sb_mp_put_nil(buf);
    sb_mp_put_array(buf, 2);
    sb_mp_put_float(buf, bounds[0]);
    sb_mp_put_float(buf, bounds[1]);
    sb_mp_put_str(buf, "Lag");
    sb_mp_put_str(buf, "histogram_latency");
    sb_mp_put_array(buf, 1);
    sb_mp_put_str(buf, "prefill");
    sb_mp_put_array(buf, 1);
    put_series(buf, D_NEXT, 9, "quantile=x");
    sb_mp_put_array(buf, 0);
    assert_int_equal(deliver(&cluster->world, &cluster->session), HUB_OK);
    for (uint32_t i = 1; i < 3; i++)
        cluster_send(cluster,
                     (struct test_frame){.contribution = i,
                                         .n_cells = 4,
                                         .cells = {{D_NEXT, i}, {D_NEXT + 1, 0}, {D_NEXT + 2, 0}, {D_NEXT + 3, 1}}});
    char *text = scrape_as(&cluster->world, "full", SB_EXPO_TEXT);
    assert_non_null(strstr(text, "x:lag_seconds_count{" F ",exported_quantile=\"x\"} 1\n"));
    assert_non_null(strstr(text, "x:lag_seconds_p95{" F ",exported_quantile=\"x\",quantile=\"0.95\"} 0.95\n"));
    assert_non_null(strstr(text, "x:lag_seconds_mean{" F ",exported_quantile=\"x\"} 1\n"));
    free(text);
}

/* What is derived comes of what is printed: of the merged buckets. */
static void quantiles_of_unlike_bounds_are_those_of_the_merged_buckets(void **state)
{
    static const double other[] = {1, 3};
    struct cluster *cluster = *state;
    fill(cluster);
    define_family(&cluster->world, &cluster->session, 9, "c:wait_seconds", "histogram", other, 2, D_NEXT, "");
    cluster_send(cluster,
                 (struct test_frame){.contribution = 2,
                                     .n_cells = 4,
                                     .cells = {{D_NEXT, 4}, {D_NEXT + 1, 2}, {D_NEXT + 2, 0}, {D_NEXT + 3, 8}}});
    char *text = scrape_as(&cluster->world, "full", SB_EXPO_TEXT);
    /* The bound that both have is 1: 4 of 10 lie below, the rest in +Inf. */
    assert_non_null(strstr(text, "c:wait_seconds_bucket{" F ",le=\"1.0\"} 4\n"
                                 "c:wait_seconds_bucket{" F ",le=\"+Inf\"} 10\n"));
    assert_non_null(strstr(text, "c:wait_seconds_p50{" F ",quantile=\"0.5\"} 1\n"));
    assert_non_null(strstr(text, "c:wait_seconds_mean{" F "} 1.4\n"));
    free(text);
}

static void nothing_derived_without_observations_or_lookups(void **state)
{
    struct cluster *cluster = *state;
    cluster_send(
        cluster,
        (struct test_frame){
            .contribution = 2,
            .n_cells = 6,
            .cells = {{D_HITS, 0}, {D_LOOKS, 0}, {D_WAIT, 0}, {D_WAIT + 1, 0}, {D_WAIT + 2, 0}, {D_WAIT + 3, 0}}});
    char *text = scrape_as(&cluster->world, "full", SB_EXPO_TEXT);
    assert_non_null(strstr(text, "c:wait_seconds_count{" F "} 0\n"));
    assert_null(strstr(text, "hit_rate"));
    assert_null(strstr(text, "_p50"));
    assert_null(strstr(text, "_mean"));
    assert_null(strstr(text, "_max"));
    free(text);
}

static void queries_narrow_before_anything_is_added_up(void **state)
{
    struct cluster *cluster = *state;
    fill(cluster);
    static const struct {
        const char *view;
        const char *roles[2];
        const char *models[1];
        const char *services[1];
        const char *families[2];
        const char *expected;
    } cases[] = {
        {"full", {"prefill"}, {NULL}, {NULL}, {"c:done"}, "# TYPE c:done_total counter\nc:done_total{" F "} 30\n"},
        {"full",
         {"prefill", "decode"},
         {"m"},
         {"s"},
         {"c:usage", "c:running_max"},
         "# TYPE c:running_max gauge\nc:running_max{" F "} 5\n# TYPE c:usage gauge\nc:usage{" F "} 0.4375\n"},
        {"full",
         {"decode"},
         {NULL},
         {NULL},
         {"c:hit_rate"},
         "# TYPE c:hit_rate gauge\nc:hit_rate{" F "} 0.35714285714285715\n"},
        {"full", {"prefill"}, {NULL}, {NULL}, {"c:wait_seconds_p50"}, ""},
        {"dp",
         {"decode"},
         {NULL},
         {NULL},
         {"c:done_total"},
         "# TYPE c:done_total counter\n"
         "c:done_total{dp_rank=\"0\",instance_id=\"i2\",model_name=\"m\",pod_ip=\"10.0.0.2\",role=\"decode\",service_"
         "name=\"s\"} 30\n"
         "c:done_total{dp_rank=\"1\",instance_id=\"i3\",model_name=\"m\",pod_ip=\"10.0.0.3\",role=\"decode\",service_"
         "name=\"s\"} 40\n"},
        {"full", {"nosuch"}, {NULL}, {NULL}, {NULL}, ""},
        {"full", {""}, {NULL}, {NULL}, {NULL}, ""},
        {"dp", {NULL}, {"nosuch"}, {NULL}, {NULL}, ""},
        {"node", {NULL}, {NULL}, {"nosuch"}, {NULL}, ""},
        {"full", {NULL}, {NULL}, {NULL}, {"nosuch"}, ""},
    };
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        struct hub_query query = {.view = hub_store_view(&cluster->world.store, cases[i].view)->spec};
        for (size_t k = 0; k < 2 && cases[i].roles[k]; k++)
            assert_true(hub_query_narrow(&query, HUB_NARROW_role, cases[i].roles[k]));
        if (cases[i].models[0])
            assert_true(hub_query_narrow(&query, HUB_NARROW_model_name, cases[i].models[0]));
        if (cases[i].services[0])
            assert_true(hub_query_narrow(&query, HUB_NARROW_service_name, cases[i].services[0]));
        for (size_t k = 0; k < 2 && cases[i].families[k]; k++)
            assert_true(hub_query_add_family(&query, cases[i].families[k]));
        char *text = scrape_asked(&cluster->world, cases[i].view, SB_EXPO_TEXT, &query);
        assert_string_equal(text, cases[i].expected);
        free(text);
    }
}

static void names_of_derived_families_are_taken(void **state)
{
    struct cluster *cluster = *state;
    fill(cluster);
    static const char *const names[] = {"c:hit_rate", "c:running_max", "c:wait_seconds_p50", "c:wait_seconds_mean"};
    for (uint32_t i = 0; i < SB_COUNT(names); i++) {
        define_family(&cluster->world, &cluster->session, 20 + i, names[i], "gauge", NULL, 0, D_NEXT + i, "");
        assert_null(hub_index_find(&cluster->world.store.index, names[i]));
    }
    assert_int_equal(cluster->world.store.index.clashes.n, SB_COUNT(names));
    /* The other way round: a family is there first, and a histogram of an agent goes without that quantile. */
    static const double bounds[] = {1, 2};
    define_family(&cluster->world, &cluster->session, 30, "x:lag_p95", "gauge", NULL, 0, D_NEXT + 10, "");
    struct sb_buf *buf = begin(&cluster->world, 4, "DEFINE");
    sb_mp_put_array(buf, 1);
    sb_mp_put_array(buf, 8);
    sb_mp_put_uint(buf, 31);
    sb_mp_put_str(buf, "x:lag");
    sb_mp_put_str(buf, "histogram");
    sb_mp_put_nil(buf);
    sb_mp_put_array(buf, 2);
    sb_mp_put_float(buf, bounds[0]);
    sb_mp_put_float(buf, bounds[1]);
    sb_mp_put_nil(buf);
    sb_mp_put_str(buf, "sla_metric");
    sb_mp_put_nil(buf);
    sb_mp_put_array(buf, 0);
    sb_mp_put_array(buf, 0);
    assert_int_equal(deliver(&cluster->world, &cluster->session), HUB_OK);
    assert_int_equal(cluster->world.store.index.clashes.n, SB_COUNT(names) + 1);
}

static void a_query_has_a_limit(void **state)
{
    (void) state;
    struct hub_query query = {0};
    for (int i = 0; i < HUB_QUERY_VALUES_MAX; i++) {
        assert_true(hub_query_narrow(&query, HUB_NARROW_role, "r"));
        assert_true(hub_query_add_family(&query, "f"));
    }
    assert_false(hub_query_narrow(&query, HUB_NARROW_role, "r"));
    assert_false(hub_query_add_family(&query, "f"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_cluster, close_cluster)
    const struct CMUnitTest tests[] = {
        CASE(full_has_all_semantics_and_what_is_derived),
        CASE(other_views_count_every_role_in_its_own_row),
        CASE(views_choose_sources_families_and_what_is_derived),
        CASE(histograms_without_buckets_keep_the_infinite_one_in_openmetrics),
        CASE(a_scope_never_leaves_out_both_and_none),
        CASE(a_family_of_an_agent_brings_its_own_scope_and_quantiles),
        CASE(quantiles_of_unlike_bounds_are_those_of_the_merged_buckets),
        CASE(nothing_derived_without_observations_or_lookups),
        CASE(queries_narrow_before_anything_is_added_up),
        CASE(names_of_derived_families_are_taken),
        cmocka_unit_test(a_query_has_a_limit),
    };
    return cmocka_run_group_tests_name("views", tests, NULL, NULL);
}
