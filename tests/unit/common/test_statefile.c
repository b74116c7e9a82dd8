#include "common/statefile.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "temp_dir.h"

static const char payload[] = "what was counted so far";

static struct sb_statefile *open_file(const char *path)
{
    struct sb_err err = {0};
    struct sb_statefile *file = sb_statefile_open(path, &err);
    if (!file)
        print_error("%s\n", err.text);
    assert_non_null(file);
    return file;
}

static void put_bytes(const char *path, const void *bytes, size_t n)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static size_t get_bytes(const char *path, void *bytes, size_t n)
{
    const int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    const ssize_t got = read(fd, bytes, n);
    close(fd);
    assert_true(got >= 0);
    return (size_t) got;
}

static void what_was_written_is_read(void **state)
{
    char path[256];
    SB_OWN(sb_statefile_close) struct sb_statefile *file = open_file(temp_path(state, path, "state"));
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1 << 22);
    assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_ABSENT);

    char *large = malloc(1 << 21);
    assert_non_null(large);
    memset(large, 'x', 1 << 21);
    const struct {
        const void *bytes;
        size_t n;
    } cases[] = {{payload, sizeof payload}, {"", 0}, {large, 1 << 21}, {"a", 1}};
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        assert_int_equal(sb_statefile_write(file, cases[i].bytes, cases[i].n, NULL), SB_OK);
        assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_OK);
        assert_int_equal(buf.len, cases[i].n);
        if (cases[i].n)
            assert_memory_equal(buf.data, cases[i].bytes, cases[i].n);
    }
    free(large);

    sb_statefile_close(&file);
    assert_null(file);
    file = open_file(path);
    assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_OK);
    assert_int_equal(buf.len, 1);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    char path[256];
    SB_OWN(sb_statefile_close) struct sb_statefile *file = open_file(temp_path(state, path, "state"));
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1000);
    assert_int_equal(sb_statefile_write(file, payload, sizeof payload, NULL), SB_OK);
    char bytes[100];
    const size_t n = get_bytes(path, bytes, sizeof bytes);
    for (size_t cut = 0; cut < n; cut++) {
        put_bytes(path, bytes, cut);
        struct sb_err err = {0};
        assert_int_equal(sb_statefile_read(file, &buf, &err), SB_FORMAT);
        assert_non_null(strstr(err.text, path));
        assert_int_equal(buf.len, 0);
    }
    bytes[n] = 'x';
    put_bytes(path, bytes, n + 1);
    assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_FORMAT);
    put_bytes(path, bytes, n);
    assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_OK);
}

static void a_flipped_bit_anywhere_is_noticed(void **state)
{
    char path[256];
    SB_OWN(sb_statefile_close) struct sb_statefile *file = open_file(temp_path(state, path, "state"));
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1000);
    assert_int_equal(sb_statefile_write(file, payload, sizeof payload, NULL), SB_OK);
    char bytes[100];
    const size_t n = get_bytes(path, bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (char) (1 << bit % 8);
        put_bytes(path, bytes, n);
        assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_FORMAT);
        bytes[bit / 8] ^= (char) (1 << bit % 8);
    }
    struct sb_err err = {0};
    bytes[7] = '2';
    put_bytes(path, bytes, n);
    assert_int_equal(sb_statefile_read(file, &buf, &err), SB_FORMAT);
    assert_non_null(strstr(err.text, "is a state file of another version"));
}

static void a_payload_over_the_callers_limit_is_refused(void **state)
{
    char path[256];
    SB_OWN(sb_statefile_close) struct sb_statefile *file = open_file(temp_path(state, path, "state"));
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, sizeof payload - 1);
    assert_int_equal(sb_statefile_write(file, payload, sizeof payload, NULL), SB_OK);
    assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_FULL);
    assert_int_equal(sb_statefile_write(file, payload, sizeof payload - 1, NULL), SB_OK);
    assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_OK);
}

static void one_holds_it_at_a_time(void **state)
{
    char path[256];
    struct sb_statefile *file = open_file(temp_path(state, path, "state"));
    struct sb_err err = {0};
    assert_null(sb_statefile_open(path, &err));
    assert_int_equal(err.rc, SB_FULL);
    assert_non_null(strstr(err.text, "another process holds"));
    assert_non_null(strstr(err.text, "state.lock"));
    sb_statefile_close(&file);
    file = open_file(path);
    sb_statefile_close(&file);
    sb_statefile_close(&file);
}

static void places_that_cannot_be_say_why(void **state)
{
    char path[256];
    struct sb_err err = {0};
    assert_null(sb_statefile_open(temp_path(state, path, "no/such/dir"), &err));
    assert_int_equal(err.rc, SB_IO);
    assert_non_null(strstr(err.text, "there is no folder "));
    assert_string_equal(strrchr(err.text, '/'), "/such");

    SB_OWN(sb_statefile_close) struct sb_statefile *file = open_file(temp_path(state, path, "state"));
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1000);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(sb_statefile_read(file, &buf, &err), SB_IO);
    assert_non_null(strstr(err.text, "is a folder, not a file"));
    assert_int_equal(sb_statefile_write(file, "x", 1, &err), SB_IO);
    char next[300];
    snprintf(next, sizeof next, "%s.tmp", path);
    assert_int_equal(access(next, F_OK), -1);
}

static void what_is_no_file_is_refused_and_left_alone(void **state)
{
    char folder[256], pipe[256], lock[300];
    struct sb_err err = {0};
    assert_int_equal(mkdir(temp_path(state, folder, "folder"), 0700), 0);
    assert_int_equal(mkfifo(temp_path(state, pipe, "pipe"), 0600), 0);
    const char *const paths[] = {folder, pipe, "/dev/null"};
    for (size_t i = 0; i < SB_COUNT(paths); i++) {
        assert_null(sb_statefile_open(paths[i], &err));
        assert_int_equal(err.rc, SB_IO);
        assert_non_null(strstr(err.text, ", not a file"));
        snprintf(lock, sizeof lock, "%s.lock", paths[i]);
        assert_int_equal(access(lock, F_OK), -1);
    }
}

/* A limit on file sizes fails a write as a full disk does. */
static void a_full_disk_leaves_the_old_state(void **state)
{
    char path[256];
    SB_OWN(sb_statefile_close) struct sb_statefile *file = open_file(temp_path(state, path, "state"));
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1 << 20);
    assert_int_equal(sb_statefile_write(file, payload, sizeof payload, NULL), SB_OK);

    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    static char large[10000];
    struct sb_err err = {0};
    const enum sb_rc rc = sb_statefile_write(file, large, sizeof large, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rc, SB_IO);
    assert_non_null(strstr(err.text, "File too large"));

    assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_OK);
    assert_memory_equal(buf.data, payload, sizeof payload);
    char next[300];
    snprintf(next, sizeof next, "%s.tmp", path);
    assert_int_equal(access(next, F_OK), -1);
    assert_int_equal(sb_statefile_write(file, large, sizeof large, NULL), SB_OK);
}

static void a_rest_of_a_killed_write_is_no_obstacle(void **state)
{
    char path[256];
    char next[300];
    SB_OWN(sb_statefile_close) struct sb_statefile *file = open_file(temp_path(state, path, "state"));
    snprintf(next, sizeof next, "%s.tmp", path);
    put_bytes(next, "half a stat", 11);
    SB_OWN(sb_buf_release) struct sb_buf buf;
    sb_buf_init(&buf, 1000);
    assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_ABSENT);
    assert_int_equal(sb_statefile_write(file, "abc", 3, NULL), SB_OK);
    assert_int_equal(sb_statefile_read(file, &buf, NULL), SB_OK);
    assert_int_equal(buf.len, 3);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, temp_dir_make, temp_dir_drop)
    const struct CMUnitTest tests[] = {
        TEST(what_was_written_is_read),
        TEST(a_file_cut_anywhere_is_refused),
        TEST(a_flipped_bit_anywhere_is_noticed),
        TEST(a_payload_over_the_callers_limit_is_refused),
        TEST(one_holds_it_at_a_time),
        TEST(places_that_cannot_be_say_why),
        TEST(what_is_no_file_is_refused_and_left_alone),
        TEST(a_full_disk_leaves_the_old_state),
        TEST(a_rest_of_a_killed_write_is_no_obstacle),
    };
    return cmocka_run_group_tests_name("statefile", tests, NULL, NULL);
}
