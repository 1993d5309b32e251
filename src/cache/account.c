/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How each read was served. One open of a sample is one read; the open is heard of asynchronously
 * (or not at all), its READ upcalls come before or after that, and an open without any was served
 * by the kernel from staged pages. So an open stays undecided until the sample is opened again or
 * has been quiet for a while; the slowest of its READs decides its class. READs without an open
 * (the watch lags, or lost it) count as one read too, and an open that comes late for them is taken
 * as theirs. Other files: one READ is one read.
 *
 * Bytes of READs are counted at once; the rest of an opened sample counts as staged when the read
 * is decided.
 *
 * Runs on fs threads, I/O threads and the planner. Memory: at most RECORDS_MAX per shard, then the
 * oldest is decided.
 */
#include "cache_priv.h"

#include <string.h>

enum { ACCOUNT_SHARDS = 16, ACCOUNT_BUCKETS = 1024, RECORDS_MAX = 65536 };
enum { GRACE_NS = 1000000000 };
#define PARTIAL_GRACE_NS                                                                           \
	(5 * NS_PER_S) /* a sample that was read in part so far: its reader may be slow */

struct record {
	struct record *next_hash;
	struct list by_age;
	struct entry_id entry;
	uint64_t last_ns; /* of the last open or READ */
	uint64_t bytes;   /* answered to READs */
	enum read_class slowest;
	bool is_opened, has_read, is_counted;
};

struct account_shard {
	struct mutex mu;
	struct record *buckets[ACCOUNT_BUCKETS]; /* mu, like all below */
	struct list by_age;                      /* oldest activity first */
	uint32_t n;
} CACHE_ALIGNED;

struct account {
	struct account_shard shards[ACCOUNT_SHARDS];
};

static uint32_t hash(struct entry_id entry)
{
	return entry.v * 2654435761u >> 16;
}

static struct account_shard *shard_for(struct cache *c, struct entry_id entry)
{
	return &c->account->shards[hash(entry) % ACCOUNT_SHARDS];
}

static struct record **bucket_for(struct account_shard *a, struct entry_id entry)
{
	return &a->buckets[hash(entry) / ACCOUNT_SHARDS % ACCOUNT_BUCKETS];
}

int account_new(struct cache *c)
{
	c->account = aligned_alloc(64, ALIGN_UP(sizeof(*c->account), 64u));
	if (!c->account)
		return -ENOMEM;
	memset(c->account, 0, sizeof(*c->account));
	for (int i = 0; i < ACCOUNT_SHARDS; i++) {
		mutex_init(&c->account->shards[i].mu);
		list_init(&c->account->shards[i].by_age);
	}
	return 0;
}

static void record_free_locked(struct account_shard *a, struct record *rec) REQUIRES(a->mu);
static void record_free_locked(struct account_shard *a, struct record *rec)
{
	struct record **at = bucket_for(a, rec->entry);

	while (*at != rec)
		at = &(*at)->next_hash;
	*at = rec->next_hash;
	list_remove(&rec->by_age);
	a->n--;
	free(rec);
}

void account_free(struct cache *c)
{
	if (!c->account)
		return;
	for (int i = 0; i < ACCOUNT_SHARDS; i++) {
		struct account_shard *a = &c->account->shards[i];

		mutex_lock(&a->mu);
		while (!list_is_empty(&a->by_age))
			record_free_locked(a, container_of(a->by_age.next, struct record, by_age));
		mutex_unlock(&a->mu);
		mutex_fini(&a->mu);
	}
	free(c->account);
}

static void count_read(struct cache *c, enum read_class class)
{
	metrics_add(c->p.metrics, METRIC_READS_STAGED + class, 1);
}

static void count_bytes(struct cache *c, enum read_class class, uint64_t bytes)
{
	metrics_add(c->p.metrics, METRIC_READ_BYTES_STAGED + class, bytes);
}

/* What the kernel had of an opened sample: all that was not asked for. */
static void count_staged_rest(struct cache *c, const struct record *rec)
{
	uint64_t size = dataset_size(c->p.dataset, rec->entry);

	if (rec->is_opened && size > rec->bytes)
		count_bytes(c, READ_STAGED, size - rec->bytes);
}

static void decide(struct cache *c, struct record *rec)
{
	if (!rec->is_counted)
		count_read(c, rec->has_read ? rec->slowest : READ_STAGED);
	rec->is_counted = true;
	count_staged_rest(c, rec);
}

static void restart(struct record *rec)
{
	rec->bytes = 0;
	rec->slowest = READ_STAGED;
	rec->is_opened = rec->has_read = rec->is_counted = false;
}

/* Finds or makes the record; it becomes the youngest. NULL when out of memory. */
static struct record *record_get_locked(struct cache *c, struct account_shard *a,
					struct entry_id entry, uint64_t now_ns) REQUIRES(a->mu);
static struct record *record_get_locked(struct cache *c, struct account_shard *a,
					struct entry_id entry, uint64_t now_ns)
{
	struct record **bucket = bucket_for(a, entry);
	struct record *rec = *bucket;

	while (rec && !entry_eq(rec->entry, entry))
		rec = rec->next_hash;
	if (rec) {
		list_remove(&rec->by_age);
	} else {
		if (a->n >= RECORDS_MAX) {
			struct record *oldest = container_of(a->by_age.next, struct record, by_age);

			decide(c, oldest);
			record_free_locked(a, oldest);
		}
		rec = calloc(1, sizeof(*rec));
		if (!rec)
			return NULL;
		rec->entry = entry;
		rec->next_hash = *bucket;
		*bucket = rec;
		a->n++;
	}
	rec->last_ns = now_ns;
	list_push_tail(&a->by_age, &rec->by_age);
	return rec;
}

void account_open(struct cache *c, struct entry_id entry, uint64_t now_ns)
{
	struct account_shard *a = shard_for(c, entry);
	struct record *rec;

	mutex_lock(&a->mu);
	rec = record_get_locked(c, a, entry, now_ns);
	if (!rec) {
		count_read(c, READ_STAGED);
		mutex_unlock(&a->mu);
		cache_degrade(c, "out of memory");
		return;
	}
	if (rec->is_opened) {
		decide(c, rec);
		restart(rec);
	}
	rec->is_opened = true; /* or READs were here first: they are this open's */
	if (rec->is_counted) {
		count_staged_rest(c, rec);
		record_free_locked(a, rec);
	}
	mutex_unlock(&a->mu);
}

void account_read(struct cache *c, struct entry_id entry, enum read_class class, uint64_t bytes)
{
	struct account_shard *a = shard_for(c, entry);
	struct record *rec;

	count_bytes(c, class, bytes);
	if (!dataset_is_sample(c->p.dataset, entry)) {
		count_read(c, class);
		return;
	}
	mutex_lock(&a->mu);
	rec = record_get_locked(c, a, entry, clock_now(c->p.clock));
	if (rec) {
		rec->bytes += bytes;
		rec->slowest = MAX(rec->slowest, class);
		rec->has_read = true;
	} else {
		count_read(c, class);
	}
	mutex_unlock(&a->mu);
	if (!rec)
		cache_degrade(c, "out of memory");
}

/* How long a record may still be quiet before it is decided. */
static uint64_t grace_of(struct cache *c, const struct record *rec)
{
	bool is_partial = rec->has_read && rec->bytes < dataset_size(c->p.dataset, rec->entry);

	return is_partial ? PARTIAL_GRACE_NS : GRACE_NS;
}

static void sweep_record_locked(struct cache *c, struct account_shard *a, struct record *rec,
				uint64_t now_ns, bool is_final) REQUIRES(a->mu);
static void sweep_record_locked(struct cache *c, struct account_shard *a, struct record *rec,
				uint64_t now_ns, bool is_final)
{
	bool had_open = rec->is_opened || rec->is_counted;

	if (!is_final && now_ns < rec->last_ns + grace_of(c, rec))
		return;
	if (!rec->is_counted)
		decide(c, rec);
	if (had_open || is_final) {
		record_free_locked(a, rec);
		return;
	}
	/* An open that was not seen. Tell the plan, and keep the record for one more turn in case
	 * it is only late. */
	note_sample(c, PLAN_EV_OPENED, rec->entry, 0);
	rec->last_ns = now_ns;
	list_remove(&rec->by_age);
	list_push_tail(&a->by_age, &rec->by_age);
}

void account_sweep(struct cache *c, uint64_t now_ns, bool is_final)
{
	for (int i = 0; i < ACCOUNT_SHARDS; i++) {
		struct account_shard *a = &c->account->shards[i];
		struct list *node, *next;

		mutex_lock(&a->mu);
		for (node = a->by_age.next; node != &a->by_age; node = next) {
			struct record *rec = container_of(node, struct record, by_age);

			next = node->next;
			if (!is_final && now_ns < rec->last_ns + GRACE_NS)
				break; /* so are all the younger ones */
			sweep_record_locked(c, a, rec, now_ns, is_final);
		}
		mutex_unlock(&a->mu);
	}
}
