#include "agent/raws.h"

#include <stdlib.h>
#include <string.h>

#include <uthash.h>

enum {
    VERSION = 1,
    ELEMENTS = 6,
    HASH_BYTES = 64, /* what a hash table needs for one more, about */
    KEY_MAX = 16 << 10,
    FAMILY = 1, /* entries: of a family, or of a series */
    SERIES = 0,
};

/* The last total of a series; or of a family, without values: the record that said how much was counted. */
struct entry {
    UT_hash_handle hh;
    uint64_t key; /* kind and ledger index */
    uint64_t number;
    uint32_t n;
    double values[];
};

struct agent_run {
    UT_hash_handle hh;
    char owner[AGENT_PUBLISHER_ID_LEN + 1];
    char *instance;
    bool is_shared;
    bool needs_base;
    int64_t used_ms;
    struct entry *entries;
    uint32_t len;
    char key[];
};

struct agent_raws {
    struct agent_ledger *ledger;
    struct agent_run *runs;
    size_t bytes;
};

struct agent_raws *agent_raws_new(struct agent_ledger *ledger)
{
    struct agent_raws *self = calloc(1, sizeof *self);
    if (self)
        self->ledger = ledger;
    return self;
}

static uint64_t entry_key(int kind, uint32_t index)
{
    return (uint64_t) index << 1 | (uint64_t) kind;
}

static int kind_of(uint64_t key)
{
    return (int) (key & 1);
}

static uint32_t index_of(uint64_t key)
{
    return (uint32_t) (key >> 1);
}

static size_t entry_bytes(uint32_t n)
{
    return sizeof(struct entry) + n * sizeof(double) + HASH_BYTES;
}

static size_t run_bytes(const struct agent_run *run)
{
    return sizeof *run + run->len + strlen(run->instance) + HASH_BYTES;
}

static void clear(struct agent_raws *self, struct agent_run *run)
{
    struct entry *entry, *next;
    HASH_ITER(hh, run->entries, entry, next)
    {
        HASH_DEL(run->entries, entry);
        self->bytes -= entry_bytes(entry->n);
        if (kind_of(entry->key) == SERIES)
            agent_ledger_let_go_of_series(self->ledger, index_of(entry->key));
        free(entry);
    }
}

static void drop_run(struct agent_raws *self, struct agent_run *run)
{
    clear(self, run);
    HASH_DEL(self->runs, run);
    self->bytes -= run_bytes(run);
    free(run->instance);
    free(run);
}

void agent_raws_destroy(struct agent_raws **self_p)
{
    struct agent_raws *self = *self_p;
    struct agent_run *run, *next;
    *self_p = NULL;
    if (!self)
        return;
    HASH_ITER(hh, self->runs, run, next)
    {
        drop_run(self, run);
    }
    free(self);
}

size_t agent_raws_bytes(const struct agent_raws *self)
{
    return self->bytes;
}

/* Runs */

static struct agent_run *add_run(struct agent_raws *self, const char *key, size_t len, struct sb_slice instance)
{
    struct agent_run *run = calloc(1, sizeof *run + len);
    char *copy = calloc(1, instance.len + 1);
    if (!run || !copy) {
        free(run);
        free(copy);
        return NULL;
    }
    memcpy(copy, instance.at, instance.len);
    memcpy(run->key, key, len);
    run->len = (uint32_t) len;
    run->instance = copy;
    if (self->bytes + run_bytes(run) > AGENT_RAWS_BYTES_MAX) {
        free(copy);
        free(run);
        return NULL;
    }
    self->bytes += run_bytes(run);
    HASH_ADD_KEYPTR(hh, self->runs, run->key, run->len, run);
    return run;
}

/* The bytes that a run is found by. Of a shared one the instance is part: two lives of it may be told of at once. */
static bool make_key(const struct agent_run_name *name, struct sb_buf *out)
{
    const bool is_shared = name->counted_by.len > 0;
    const bool is_front_end = name->source == AGENT_NONE;
    sb_mp_put_array(out, is_shared ? 4 : 2);
    sb_mp_put_uint(out, is_shared ? is_front_end : name->source);
    if (is_shared) {
        sb_mp_put_slice(out, name->counted_by);
        sb_mp_put_str(out, name->place);
        sb_mp_put_str(out, name->instance);
    } else {
        sb_mp_put_str(out, name->publisher);
    }
    return !out->is_overflow;
}

static void set_owner(struct agent_run *run, const char *publisher)
{
    memcpy(run->owner, publisher, AGENT_PUBLISHER_ID_LEN);
    run->owner[AGENT_PUBLISHER_ID_LEN] = '\0';
}

struct agent_run *agent_raws_run(struct agent_raws *self, const struct agent_run_name *name)
{
    struct agent_run *run = NULL;
    struct sb_buf key;
    sb_buf_init(&key, KEY_MAX);
    if (make_key(name, &key))
        HASH_FIND(hh, self->runs, key.data, key.len, run);
    if (run && strcmp(run->instance, name->instance) != 0) {
        drop_run(self, run);
        run = NULL;
    }
    if (!run && !key.is_overflow) {
        run =
            add_run(self, (const char *) key.data, key.len, (struct sb_slice){name->instance, strlen(name->instance)});
        if (run)
            set_owner(run, name->publisher);
    }
    if (run)
        run->is_shared = name->counted_by.len > 0;
    sb_buf_release(&key);
    return run;
}

void agent_run_resume(struct agent_raws *self, struct agent_run *run, const char *publisher)
{
    if (strcmp(run->owner, publisher) != 0)
        return;
    clear(self, run);
    run->needs_base = true;
}

bool agent_run_needs_base(const struct agent_run *run)
{
    return run->needs_base;
}

bool agent_run_is_shared(const struct agent_run *run)
{
    return run->is_shared;
}

const char *agent_run_owner(const struct agent_run *run)
{
    return run->owner;
}

void agent_run_hand_over(struct agent_run *run, const char *publisher)
{
    set_owner(run, publisher);
    for (struct entry *entry = run->entries; entry; entry = entry->hh.next)
        entry->number = 0; /* those of another publisher mean nothing */
}

void agent_run_touch(struct agent_run *run, int64_t now_ms)
{
    run->used_ms = now_ms;
}

void agent_raws_sweep(struct agent_raws *self, int64_t unused_ms, int64_t now_ms)
{
    struct agent_run *run, *next;
    HASH_ITER(hh, self->runs, run, next)
    {
        if (run->is_shared && now_ms - run->used_ms > unused_ms)
            drop_run(self, run);
    }
}

void agent_raws_drop(struct agent_raws *self, const char *publisher)
{
    struct agent_run *run, *next;
    HASH_ITER(hh, self->runs, run, next)
    {
        if (!run->is_shared && strcmp(run->owner, publisher) == 0)
            drop_run(self, run);
    }
}

/* Totals */

static struct entry *find_entry(const struct agent_run *run, uint64_t key)
{
    struct entry *entry = NULL;
    HASH_FIND(hh, run->entries, &key, sizeof key, entry);
    return entry;
}

bool agent_run_has_room(const struct agent_raws *self, const struct agent_run *run, const struct agent_raw *raw)
{
    return self->bytes + entry_bytes(raw->n) + entry_bytes(0) <= AGENT_RAWS_BYTES_MAX ||
           find_entry(run, entry_key(SERIES, raw->series));
}

static struct entry *add_entry(struct agent_raws *self, struct agent_run *run, uint64_t key, uint64_t number,
                               uint32_t n)
{
    if (self->bytes + entry_bytes(n) > AGENT_RAWS_BYTES_MAX)
        return NULL;
    struct entry *entry = calloc(1, sizeof *entry + n * sizeof entry->values[0]);
    if (!entry)
        return NULL;
    entry->key = key;
    entry->number = number;
    entry->n = n;
    self->bytes += entry_bytes(n);
    if (kind_of(key) == SERIES)
        agent_ledger_hold_series(self->ledger, index_of(key));
    HASH_ADD(hh, run->entries, key, sizeof entry->key, entry);
    return entry;
}

/* Is this record the one that says how much of its family was counted? The first one is. */
static bool is_base(struct agent_raws *self, struct agent_run *run, const struct agent_raw *raw)
{
    if (!run->needs_base)
        return false;
    const uint64_t key = entry_key(FAMILY, raw->family);
    const struct entry *base = find_entry(run, key);
    if (!base)
        base = add_entry(self, run, key, raw->number, 0);
    return base && base->number == raw->number;
}

static bool has_fallen(const struct entry *last, const struct agent_raw *raw)
{
    for (uint32_t i = 0; i < raw->n; i++)
        if (raw->values[i] < last->values[i])
            return true;
    return false;
}

bool agent_run_add(struct agent_raws *self, struct agent_run *run, const struct agent_raw *raw, double *cells)
{
    const uint64_t key = entry_key(SERIES, raw->series);
    struct entry *last = find_entry(run, key);
    if (last && raw->number < last->number)
        return true;
    if (!last) {
        if (!agent_run_has_room(self, run, raw))
            return false;
        const bool is_counted = is_base(self, run, raw);
        last = add_entry(self, run, key, raw->number, raw->n);
        if (!last)
            return false;
        if (is_counted)
            memcpy(last->values, raw->values, raw->n * sizeof *raw->values);
    }
    const bool is_new_life = has_fallen(last, raw);
    for (uint32_t i = 0; i < raw->n; i++) {
        cells[i] += is_new_life ? raw->values[i] : raw->values[i] - last->values[i];
        last->values[i] = raw->values[i];
    }
    last->number = raw->number;
    return true;
}

void agent_run_base(struct agent_raws *self, struct agent_run *run, const struct agent_raw *raw)
{
    const uint64_t keys[] = {entry_key(SERIES, raw->series), entry_key(FAMILY, raw->family)};
    struct entry *series = find_entry(run, keys[0]), *family = find_entry(run, keys[1]);
    if (!run->needs_base || !agent_run_has_room(self, run, raw))
        return;
    if (!series)
        series = add_entry(self, run, keys[0], 0, raw->n);
    if (!family)
        family = add_entry(self, run, keys[1], 0, 0);
    if (family && raw->number > family->number)
        family->number = raw->number;
    if (!series || raw->number < series->number)
        return;
    series->number = raw->number;
    memcpy(series->values, raw->values, raw->n * sizeof *raw->values);
}

/* The state file: [version, [[key, owner, instance, is shared, needs base, [[kind and index, number, values], ...]]]]
 */

static bool is_worth_keeping(const struct agent_run *run)
{
    return run->entries || run->needs_base;
}

/* The entry's key by the numbers of the ledger's last save; false: that has left it out. */
static bool saved_key(const struct agent_raws *self, const struct entry *entry, uint64_t *out)
{
    const int kind = kind_of(entry->key);
    const uint32_t index = kind == FAMILY ? agent_ledger_saved_family(self->ledger, index_of(entry->key))
                                          : agent_ledger_saved_series(self->ledger, index_of(entry->key));
    *out = entry_key(kind, index);
    return index != AGENT_NONE;
}

static void save_run(const struct agent_raws *self, const struct agent_run *run, struct sb_buf *out)
{
    uint64_t key;
    uint32_t n = 0;
    for (const struct entry *entry = run->entries; entry; entry = entry->hh.next)
        n += saved_key(self, entry, &key);
    sb_mp_put_array(out, ELEMENTS);
    sb_mp_put_bin(out, run->key, run->len);
    sb_mp_put_str(out, run->owner);
    sb_mp_put_str(out, run->instance);
    sb_mp_put_bool(out, run->is_shared);
    sb_mp_put_bool(out, run->needs_base);
    sb_mp_put_array(out, n);
    for (const struct entry *entry = run->entries; entry; entry = entry->hh.next) {
        if (!saved_key(self, entry, &key))
            continue;
        sb_mp_put_array(out, 3);
        sb_mp_put_uint(out, key);
        sb_mp_put_uint(out, entry->number);
        sb_mp_put_bin(out, entry->values, entry->n * sizeof entry->values[0]);
    }
}

void agent_raws_save(const struct agent_raws *self, struct sb_buf *out)
{
    uint32_t n = 0;
    for (const struct agent_run *run = self->runs; run; run = run->hh.next)
        n += is_worth_keeping(run);
    sb_mp_put_array(out, 2);
    sb_mp_put_uint(out, VERSION);
    sb_mp_put_array(out, n);
    for (const struct agent_run *run = self->runs; run; run = run->hh.next)
        if (is_worth_keeping(run))
            save_run(self, run, out);
}

/* How many cells an entry has by the ledger; AGENT_NONE: there is no such family or series. */
static uint32_t cells_of(const struct agent_ledger *ledger, uint64_t key)
{
    const uint64_t index = key >> 1;
    if (kind_of(key) == FAMILY)
        return index < agent_ledger_n_families(ledger) ? 0 : AGENT_NONE;
    return index < agent_ledger_n_series(ledger) ? agent_ledger_series_at(ledger, (uint32_t) index)->n : AGENT_NONE;
}

static enum sb_rc load_entry(struct agent_raws *self, struct agent_run *run, struct sb_mp *from, struct sb_err *err)
{
    uint32_t n;
    uint64_t key, number;
    struct sb_slice values;
    if (!sb_mp_array(from, &n) || n != 3 || !sb_mp_uint(from, &key) || !sb_mp_uint(from, &number) ||
        !sb_mp_bin(from, &values) || find_entry(run, key) ||
        values.len != (uint64_t) cells_of(self->ledger, key) * sizeof(double))
        return sb_fail(err, SB_FORMAT, "the last total of a series is damaged");
    struct entry *entry = add_entry(self, run, key, number, (uint32_t) (values.len / sizeof(double)));
    if (!entry)
        return sb_fail(err, SB_NOMEM, "the last total of a series");
    if (values.len)
        memcpy(entry->values, values.at, values.len);
    return SB_OK;
}

static enum sb_rc load_run(struct agent_raws *self, struct sb_mp *from, int64_t now_ms, struct sb_err *err)
{
    uint32_t n;
    struct sb_slice key, owner, instance;
    bool is_shared, needs_base;
    struct agent_run *run = NULL;
    if (!sb_mp_array(from, &n) || n != ELEMENTS || !sb_mp_bin(from, &key) || key.len > KEY_MAX ||
        !sb_mp_str(from, &owner) || owner.len != AGENT_PUBLISHER_ID_LEN || !sb_mp_str(from, &instance) ||
        !sb_mp_bool(from, &is_shared) || !sb_mp_bool(from, &needs_base) || !sb_mp_array(from, &n))
        return sb_fail(err, SB_FORMAT, "a run of totals is damaged");
    HASH_FIND(hh, self->runs, key.at, key.len, run);
    if (run)
        return sb_fail(err, SB_FORMAT, "a run of totals is there twice");
    run = add_run(self, key.at, key.len, instance);
    if (!run)
        return sb_fail(err, SB_NOMEM, "a run of totals");
    set_owner(run, owner.at);
    run->is_shared = is_shared;
    run->needs_base = needs_base;
    run->used_ms = now_ms;
    enum sb_rc rc = SB_OK;
    for (uint32_t i = 0; i < n && rc == SB_OK; i++)
        rc = load_entry(self, run, from, err);
    return rc;
}

enum sb_rc agent_raws_load(struct agent_raws *self, struct sb_mp *from, int64_t now_ms, struct sb_err *err)
{
    uint32_t n;
    uint64_t version;
    if (!sb_mp_array(from, &n) || n != 2 || !sb_mp_uint(from, &version) || version != VERSION || !sb_mp_array(from, &n))
        return sb_fail(err, SB_FORMAT, "last totals are not [version %d, runs]", VERSION);
    enum sb_rc rc = SB_OK;
    for (uint32_t i = 0; i < n && rc == SB_OK; i++)
        rc = load_run(self, from, now_ms, err);
    return rc;
}
