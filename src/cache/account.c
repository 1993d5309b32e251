/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How each read was served. One open of a sample is one read; the open is heard of asynchronously
 * (or not at all), its READ upcalls come before or after that, and an open without any was served
 * by the kernel from staged pages. So an open stays undecided until the sample is opened again or
 * has been quiet for a while; the slowest of its READs decides its class. READs without an open
 * (the watch lags, or lost it) count as one read too, and an open that comes late for them is taken
 * as theirs. READs of more bytes than the opens heard of have left to read are kept apart: they are
 * the next open's, which is late; without that it would count as staged on top of them, in an epoch
 * that follows the last one quickly. Other files: one READ is one read.
 *
 * While a READ is in flight nothing is decided, however long it takes. A READ that fails is the
 * source's answer: its open counts as a miss, with the bytes that it was given and no more.
 *
 * What is decided is also told to whoever watches (cache/probe.h), with the time in
 * which READs of it were under way, and the place in the order that the planner has seen it at. A
 * sample that is opened again right away (its size first, then its bytes) is one read of the job's:
 * it is counted twice, but has one place in the order. It is the first open that has it, and that
 * shows only when the second one was heard of already: then they are told as one, else the second
 * as such. (Or inotify merges them; then nobody knows.)
 *
 * Bytes of READs are counted at once; the rest of an opened sample counts as staged when the read
 * is decided.
 *
 * A file of several pieces may be opened for any part of it, or once for all epochs. There one READ
 * is one read. What an open had of pushed pages counts as staged, as many reads as the kernel would
 * have made READs of it, and as much as is expected of an open (asked.c): a push is worth no more
 * than one open. What the kernel has from READs before is a read of no bytes. What is told of such an
 * open are the bytes that it is known or expected to have asked for.
 *
 * Records are of units. Of a file of several, the READ of a unit's first page, which is never pushed,
 * is what an open is of others: only then its pushed pages count.
 *
 * Runs on fs threads, I/O threads and the planner. Memory: at most RECORDS_MAX per shard, then the
 * oldest is decided. It must not send a note with its lock held: locks of the news and of records are
 * both leaves.
 */
#include "record_priv.h"

#include <string.h>

enum { RECORDS_MAX = 65536, UNSEEN_MAX = 64, PLACE_MAX = 64 };

#define READ_LIKELY_BYTES (128u << 10) /* of the kernel, where pages follow each other */

/* How long a record may be quiet before it is decided: a sample that was read in part so far may
 * have a slow reader. One list for each, so that the oldest of a list is the first one due. */
static const uint64_t grace_ns[AGES] = { NS_PER_S, 5 * NS_PER_S };

/* Units that were read and whose open was not seen; told without the lock. */
struct unseen {
	struct unit_id unit[UNSEEN_MAX];
	uint32_t n;
};

static uint32_t hash(struct unit_id unit)
{
	return unit.v * 2654435761u >> 16;
}

static struct account_shard *shard_for(struct cache *c, struct unit_id unit)
{
	return &c->account->shards[hash(unit) % ACCOUNT_SHARDS];
}

static struct record **bucket_for(struct account_shard *a, struct unit_id unit)
{
	return &a->buckets[hash(unit) / ACCOUNT_SHARDS % ACCOUNT_BUCKETS];
}

int account_new(struct cache *c)
{
	c->account = aligned_alloc(64, ALIGN_UP(sizeof(*c->account), 64u));
	if (!c->account)
		return -ENOMEM;
	memset(c->account, 0, sizeof(*c->account));
	for (int i = 0; i < ACCOUNT_SHARDS; i++) {
		mutex_init(&c->account->shards[i].mu);
		for (int age = 0; age < AGES; age++)
			list_init(&c->account->shards[i].by_age[age]);
		list_init(&c->account->shards[i].untold);
	}
	return 0;
}

static void record_free_locked(struct account_shard *a, struct record *rec) REQUIRES(a->mu)
{
	struct record **at = bucket_for(a, rec->unit);

	while (*at != rec)
		at = &(*at)->next_hash;
	*at = rec->next_hash;
	list_remove(&rec->by_age);
	list_remove(&rec->by_since);
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
		for (uint32_t b = 0; b < ACCOUNT_BUCKETS; b++)
			while (a->buckets[b])
				record_free_locked(a, a->buckets[b]);
		mutex_unlock(&a->mu);
		mutex_fini(&a->mu);
		free(a->told);
	}
	free(c->account);
}

/* Signs come nearly in the order of their times, so its place is near the end. One that is not goes
 * to the beginning, as if it were as old as the first one there: then others are said to be told later
 * than they are. */
static void untold_since_locked(struct account_shard *a, struct record *rec, uint64_t since_ns)
	REQUIRES(a->mu)
{
	uint32_t steps = 0;
	struct list *at;

	if (!list_is_empty(&rec->by_since) && rec->since_ns <= since_ns)
		return;
	list_remove(&rec->by_since);
	for (at = a->untold.prev; at != &a->untold && steps < PLACE_MAX; at = at->prev, steps++)
		if (container_of(at, struct record, by_since)->since_ns <= since_ns)
			break;
	if (steps == PLACE_MAX && at != &a->untold) {
		at = &a->untold;
		since_ns = MIN(since_ns,
			       container_of(at->next, struct record, by_since)->since_ns);
	}
	rec->since_ns = since_ns;
	list_push_head(at, &rec->by_since);
}

static void count_reads(struct cache *c, enum read_class class, uint64_t n)
{
	metrics_add(c->p.metrics, METRIC_READS_STAGED + class, n);
}

static void count_bytes(struct cache *c, enum read_class class, uint64_t bytes)
{
	metrics_add(c->p.metrics, METRIC_READ_BYTES_STAGED + class, bytes);
}

static void count_large_rest(struct cache *c, struct record *rec)
{
	uint64_t size = bytes_of_unit(c, rec->unit), most = cache_asked_of(c, rec->unit);
	bool is_traced = unit_is_traced(c, rec->unit);

	if (rec->is_summed || !(rec->n_opens || rec->now.is_traced) || rec->now.has_failed)
		return;
	if (is_traced && !rec->now.is_traced)
		return; /* its file was opened, and nobody has come to it: no read at all */
	rec->is_summed = true;
	/* Or pushed while it was read; what was pushed for the next open counts now or then. */
	if (!rec->is_fresh && rec->now.bytes < most)
		rec->is_fresh = bits_clear(c->pushed, rec->unit.v);
	if (rec->is_fresh)
		rec->unseen = most - MIN(rec->now.bytes, most);
	else if (!is_traced && rec->now.has_read && !rec->is_pushed)
		asked_learn(c, size, rec->now.bytes / rec->n_opens);
	count_bytes(c, READ_STAGED, rec->unseen);
	count_reads(c, READ_STAGED,
		    MAX(DIV_ROUND_UP(rec->unseen, READ_LIKELY_BYTES),
			MAX(rec->n_opens, (uint64_t)rec->now.has_read) - rec->now.has_read));
}

/* What the kernel had of an opened sample: all that was not asked for. */
static void count_staged_rest(struct cache *c, struct record *rec)
{
	uint64_t bytes = bytes_of_unit(c, rec->unit) * rec->n_opens;

	if (is_large_unit(c, rec->unit))
		count_large_rest(c, rec);
	else if (!rec->now.has_failed && bytes > rec->now.bytes)
		count_bytes(c, READ_STAGED, bytes - rec->now.bytes);
}

/* A push that served its open is used up: a READ that comes later is not for want of its pages. One
 * that came after the open is for the next. */
static void use_up_stage(struct cache *c, const struct record *rec)
{
	if (rec->n_opens && record_is_from_kernel(rec, &rec->now) && bits_clear(c->staged_opened, rec->unit.v)) {
		bits_clear(c->staged, rec->unit.v);
		direct_used_pages(c);
	}
}

static void decide_locked(struct cache *c, struct account_shard *a, struct record *rec)
	REQUIRES(a->mu)
{
	uint32_t n = MAX(rec->n_opens, 1u) - rec->is_counted;

	assert(rec->n_inflight == 0);
	if (!is_large_unit(c, rec->unit))
		count_reads(c, rec->now.has_read ? rec->now.slowest : READ_STAGED, n);
	count_staged_rest(c, rec);
	if (n && !rec->is_kept_back)
		record_tell_locked(c, a, rec);
	use_up_stage(c, rec);
	rec->is_counted = true;
	if (!rec->is_kept_back && !rec->next.has_read) /* what is left of it begins no later */
		list_remove(&rec->by_since);
}

static void restart(struct record *rec)
{
	rec->is_again = rec->n_opens && (rec->has_use || rec->is_again);
	if (rec->has_use) {
		rec->place = rec->use;
		rec->placed_by = rec->generation;
	}
	rec->has_before = false;
	rec->now = rec->next;
	rec->next = (struct reading){ .slowest = READ_STAGED };
	rec->n_opens = 0;
	rec->is_counted = rec->is_fresh = rec->is_summed = false;
	rec->unseen = 0;
	rec->has_use = false;
	rec->is_fed = false;
	rec->is_late = false;
	rec->is_pushed = false;
	rec->reader = rec->now.reader;
}

/* Opened again before the open before was placed: that one is counted, and told with this
 * one. */
static void open_again_locked(struct cache *c, struct account_shard *a, struct record *rec)
	REQUIRES(a->mu)
{
	uint8_t n = rec->has_before ? rec->n_before : 0;
	bool was_pushed = n ? rec->was_pushed : rec->is_pushed;
	struct reading before = rec->now;

	if (rec->has_before)
		reading_add(&before, &rec->before);
	rec->is_kept_back = true;
	decide_locked(c, a, rec);
	rec->is_kept_back = false;
	before.bytes += rec->unseen;
	restart(rec);
	if (!rec->reader) /* it has not come to a READ of its own yet */
		rec->reader = before.reader;
	rec->before = before;
	rec->n_before = (uint8_t)MIN(n + 1u, UINT8_MAX);
	rec->has_before = true;
	rec->was_pushed = was_pushed;
}

/* Whose READ it was. One of no bytes found the end of the file. */
static struct reading *reading_of(struct cache *c, struct record *rec, int status, uint64_t bytes)
{
	uint64_t size = bytes_of_unit(c, rec->unit) * MAX(rec->n_opens, 1u);
	bool is_more = rec->now.has_read && size && rec->now.bytes + MAX(bytes, 1) > size;

	return is_more && (bytes || status) ? &rec->next : &rec->now;
}

/* The oldest of those that may be decided, or NULL. */
static struct record *record_oldest_locked(struct account_shard *a) REQUIRES(a->mu)
{
	struct record *oldest = NULL;

	for (int age = 0; age < AGES; age++) {
		struct list *head = &a->by_age[age];
		struct record *rec = container_of(head->next, struct record, by_age);

		if (!list_is_empty(head) && (!oldest || rec->last_ns < oldest->last_ns))
			oldest = rec;
	}
	return oldest;
}

static struct record *record_find_locked(struct account_shard *a, struct unit_id unit)
	REQUIRES(a->mu)
{
	struct record *rec = *bucket_for(a, unit);

	while (rec && !unit_eq(rec->unit, unit))
		rec = rec->next_hash;
	return rec;
}

/* Finds or makes the record. NULL when out of memory. */
static struct record *record_get_locked(struct cache *c, struct account_shard *a,
					struct unit_id unit) REQUIRES(a->mu)
{
	struct record **bucket = bucket_for(a, unit);
	struct record *rec = record_find_locked(a, unit);

	if (rec)
		return rec;
	rec = a->n >= RECORDS_MAX ? record_oldest_locked(a) : NULL;
	if (rec) {
		decide_locked(c, a, rec);
		record_free_locked(a, rec);
	}
	rec = calloc(1, sizeof(*rec));
	if (!rec)
		return NULL;
	list_init(&rec->by_age);
	list_init(&rec->by_since);
	rec->unit = unit;
	rec->next_hash = *bucket;
	*bucket = rec;
	a->n++;
	return rec;
}

/* Something was seen of it: it becomes the youngest, or is in no list while READs are in flight. */
static void record_seen_locked(struct cache *c, struct account_shard *a, struct record *rec,
			       uint64_t now_ns) REQUIRES(a->mu)
{
	const struct reading *last = rec->next.has_read ? &rec->next : &rec->now;
	bool is_partial = last->has_read && !last->has_failed &&
			  last->bytes < bytes_of_unit(c, rec->unit);

	rec->last_ns = now_ns;
	list_remove(&rec->by_age);
	if (!rec->n_inflight)
		list_push_tail(&a->by_age[is_partial ? AGE_PARTIAL : AGE_WHOLE], &rec->by_age);
}

/* All that is known of this open is counted: what is left may be the next one's. As many bytes as
 * the file has are an open that nobody has heard of; fewer were read twice. */
static void record_end_locked(struct cache *c, struct account_shard *a, struct record *rec,
			      uint64_t now_ns) REQUIRES(a->mu)
{
	bool is_open =
		rec->next.has_failed || rec->next.bytes >= bytes_of_unit(c, rec->unit);

	if (!rec->next.has_read || !is_open) {
		record_free_locked(a, rec);
		return;
	}
	restart(rec);
	untold_since_locked(a, rec, rec->now.began_ns);
	record_seen_locked(c, a, rec, now_ns);
}

/* What comes now is of another open than what is known of it so far. */
static void next_open_locked(struct cache *c, struct account_shard *a, struct record *rec)
	REQUIRES(a->mu)
{
	if (!rec->is_fed) {
		open_again_locked(c, a, rec);
		return;
	}
	decide_locked(c, a, rec);
	restart(rec);
}

/* has_come: not only its file was opened. */
static void record_open_locked(struct cache *c, struct account_shard *a, struct record *rec,
			       bool has_come, uint64_t now_ns) REQUIRES(a->mu)
{
	struct unit_id unit = rec->unit;

	if (rec->n_opens && !rec->n_inflight)
		next_open_locked(c, a, rec);
	if (!rec->now.began_ns)
		rec->now.began_ns = now_ns;
	rec->is_pushed |= bits_get(c->staged, unit.v);
	if (has_come)
		rec->is_fresh |= bits_clear(c->pushed, unit.v);
	rec->n_opens++; /* or READs were here first: they are this open's */
	if (rec->n_inflight && rec->n_opens > 1) {
		reading_add(&rec->now, &rec->next);
		rec->next = (struct reading){ .slowest = READ_STAGED };
	}
	if (has_come && bits_get(c->staged, unit.v))
		bits_set(c->staged_opened, unit.v);
	if (rec->is_counted && !rec->n_inflight) {
		count_staged_rest(c, rec);
		record_end_locked(c, a, rec, now_ns);
	} else {
		if (!rec->is_counted)
			untold_since_locked(a, rec, rec->now.began_ns);
		record_seen_locked(c, a, rec, now_ns);
	}
}

void account_open(struct cache *c, struct unit_id unit, uint64_t now_ns)
{
	struct account_shard *a = shard_for(c, unit);
	struct record *rec;

	mutex_lock(&a->mu);
	rec = record_get_locked(c, a, unit);
	if (rec)
		record_open_locked(c, a, rec, !unit_is_traced(c, unit), now_ns);
	else
		count_reads(c, READ_STAGED, 1);
	mutex_unlock(&a->mu);
	if (!rec)
		cache_degrade(c, "out of memory");
}

/* The first unit's open is that of its file, which is heard of sooner or later; or never, then the sweep
 * says so as of other files. Where it was pushed once more since its page was asked for, this is the READ
 * of an open that will be heard of; not while it is being pushed (cache_push_begin), which is for whoever
 * reads it already. Who has it open and asks once more when that push is over is taken for another open.
 * READs that none was heard of are one open's while they follow each other within HEARD_NS, whatever is
 * pushed between them. So epochs as short as that whose opens are heard of later than that, or never, are
 * counted as one: nothing tells them from one reader whose page was dropped by a push.
 * True: one that was read before was never heard of, and this is the next. */
static bool come_to_first_locked(struct cache *c, struct account_shard *a, struct record *rec,
				 uint64_t now_ns) REQUIRES(a->mu)
{
	bool is_told = rec->is_counted; /* by the sweep */

	if (rec->n_opens && !rec->n_inflight && rec->now.is_traced &&
	    bits_get(c->pushed, rec->unit.v) && bits_get(c->staged, rec->unit.v))
		next_open_locked(c, a, rec);
	if (rec->n_opens || rec->n_inflight || !rec->now.is_traced)
		return false;
	if (!rec->is_counted && now_ns < rec->last_ns + HEARD_NS)
		return false; /* the same one, which is not heard of yet */
	decide_locked(c, a, rec);
	restart(rec);
	return !is_told;
}

bool account_is_reached_only(struct cache *c, struct unit_id unit)
{
	const struct unit_map *map = dataset_unit_map(c->p.dataset);

	return !unit_is_first(map, unit) || unit_is_in_records(map, unit_sample(map, unit));
}

/* What was asked for of a record some time before its reader came: the kernel read on from another one. Where
 * its reader asks for anything it has come with that. */
static void end_read_on_locked(struct cache *c, struct account_shard *a, struct record *rec, uint64_t now_ns)
	REQUIRES(a->mu)
{
	if (rec->n_inflight || now_ns < rec->last_ns + HEARD_NS ||
	    !dataset_unit_is_small(c->p.dataset, rec->unit)) /* others are several READs */
		return;
	if (rec->n_opens && rec->next.has_read) { /* which was kept for the next one */
		decide_locked(c, a, rec);
		restart(rec);
	}
	if (!rec->n_opens && rec->now.has_read) {
		decide_locked(c, a, rec);
		restart(rec);
	}
}

static bool account_come_as(struct cache *c, struct unit_id unit, bool is_late, uint64_t now_ns)
{
	bool is_first = !account_is_reached_only(c, unit), is_unheard = false;
	struct account_shard *a = shard_for(c, unit);
	struct record *rec;

	mutex_lock(&a->mu);
	rec = record_get_locked(c, a, unit);
	if (rec && is_first) {
		is_unheard = come_to_first_locked(c, a, rec, now_ns);
	} else if (rec && (!rec->n_opens || rec->now.is_traced)) {
		end_read_on_locked(c, a, rec, now_ns);
		record_open_locked(c, a, rec, true, now_ns);
	}
	/* What had been counted before it was seen may be over with that. */
	rec = record_find_locked(a, unit);
	if (rec) {
		rec->now.is_traced = true;
		rec->is_late = is_late;
		rec->is_fresh |= bits_clear(c->pushed, unit.v);
		rec->is_pushed |= bits_get(c->staged, unit.v);
	}
	bits_set(c->staged_opened, unit.v);
	mutex_unlock(&a->mu);
	return is_unheard;
}

bool account_come(struct cache *c, struct unit_id unit, uint64_t now_ns)
{
	return account_come_as(c, unit, false, now_ns);
}

void cache_come(struct cache *c, struct unit_id unit)
{
	if (bits_get(c->untraced, unit.v) && bits_get(c->staged, unit.v) && !bits_get(c->staged_opened, unit.v))
		(void)account_come_as(c, unit, true, clock_now(c->p.clock));
}

uint32_t cache_place_open(struct cache *c, struct unit_id unit, uint32_t generation,
			  const struct read_place *place)
{
	struct account_shard *a = shard_for(c, unit);
	uint32_t reader = 0;
	struct record *rec;

	mutex_lock(&a->mu);
	rec = record_find_locked(a, unit);
	if (rec)
		reader = rec->reader;
	if (rec && rec->n_opens && c->p.probe)
		rec->is_fed = true;
	if (rec && rec->n_opens && c->p.probe && place) {
		rec->has_use = true;
		rec->generation = generation;
		rec->use = *place;
	}
	mutex_unlock(&a->mu);
	return reader;
}

/* A read that was held back, of a sample whose last open was served from what we had of it: that is
 * gone since, so this is the READ of another open, which is not heard of yet. */
static bool is_of_another_open(const struct record *rec)
{
	return rec->n_opens && !rec->n_inflight &&
	       (rec->now.has_read ? !rec->now.traits.mark : rec->is_pushed);
}

uint32_t cache_reader_of(struct cache *c, struct unit_id unit)
{
	struct account_shard *a = shard_for(c, unit);
	const struct record *rec;
	uint32_t reader;

	mutex_lock(&a->mu);
	rec = record_find_locked(a, unit);
	reader = rec ? rec->reader : 0;
	mutex_unlock(&a->mu);
	return reader;
}

/* Whether a READ that comes now is of the last open that was heard of: not if all was read, and soon
 * after it if nothing was. */
static bool is_of_last_open(struct cache *c, const struct record *rec, uint64_t now_ns)
{
	if (!rec->n_opens || rec->n_inflight)
		return rec->n_opens > 0;
	if (rec->now.has_read)
		return rec->now.bytes < bytes_of_unit(c, rec->unit) * rec->n_opens;
	return now_ns < rec->last_ns + HEARD_NS;
}

/* Of the first page of a unit that others follow or go before, and of nothing else; nor was it pushed. */
static bool is_of_tracer(struct cache *c, const struct cache_read *r)
{
	return unit_is_traced(c, r->unit) && !bits_get(c->untraced, r->unit.v) && r->length <= c->tracer_bytes &&
	       r->offset == dataset_unit_own(c->p.dataset, r->unit).offset;
}

bool account_lacks_push(struct cache *c, const struct cache_read *r)
{
	struct account_shard *a = shard_for(c, r->unit);
	bool is_opened, is_of_last, is_first = false;
	struct unit_id unit = r->unit;
	const struct record *rec;

	if (!bits_get(c->staged, unit.v) || is_of_tracer(c, r))
		return false;
	mutex_lock(&a->mu);
	rec = record_find_locked(a, unit);
	is_of_last = rec && is_of_last_open(c, rec, clock_now(c->p.clock));
	is_opened = bits_get(c->staged_opened, unit.v);
	if (is_opened || !is_of_last) /* else it came after this open, and waits for the next */
		is_first = bits_clear(c->staged, unit.v);
	mutex_unlock(&a->mu);
	return is_first && is_opened == is_of_last; /* else it has served its open, this is another */
}

void account_unpushed(struct cache *c, struct unit_id unit)
{
	bits_clear(c->pushed, unit.v);
}

/* A READ has come to the unit: it is in flight there. False: out of memory. */
static bool account_begin_in(struct cache *c, const struct cache_read *r, struct unit_id unit)
{
	struct account_shard *a = shard_for(c, unit);
	uint64_t now = clock_now(c->p.clock);
	struct record *rec;

	mutex_lock(&a->mu);
	rec = record_get_locked(c, a, unit);
	if (rec)
		end_read_on_locked(c, a, rec, now);
	/* The mark is that of the unit where it begins. */
	if (rec && unit_eq(unit, r->unit) && r->traits.mark && is_of_another_open(rec)) {
		decide_locked(c, a, rec);
		restart(rec);
	}
	if (rec) {
		if (rec->n_inflight++ == 0)
			rec->busy_ns = now;
		rec->reader = r->reader;
		if (!rec->is_counted)
			untold_since_locked(a, rec, MIN(now, r->arrived_ns));
		record_seen_locked(c, a, rec, now);
	}
	mutex_unlock(&a->mu);
	if (!rec)
		cache_degrade(c, "out of memory");
	return rec != NULL;
}

/* It has been answered, with so many bytes of that unit. */
static void account_end_in(struct cache *c, const struct cache_read *r, struct unit_id unit,
			   int status, uint64_t bytes)
{
	struct account_shard *a = shard_for(c, unit);
	uint64_t now = clock_now(c->p.clock);
	struct record *rec;

	mutex_lock(&a->mu);
	rec = record_get_locked(c, a, unit);
	assert(rec && rec->n_inflight > 0);
	rec->n_inflight--;
	reading_add(reading_of(c, rec, status, bytes),
		    &(struct reading){ .bytes = bytes,
				       .began_ns = r->arrived_ns,
				       .wait_ns = rec->n_inflight ? 0 : now - rec->busy_ns,
				       .slowest = status == 0 ? r->read_class : READ_MISS,
				       .reader = r->reader,
				       .has_read = true,
				       .has_failed = status != 0,
				       .traits = r->traits });
	record_seen_locked(c, a, rec, now);
	mutex_unlock(&a->mu);
}

/* The unit behind the one where it begins, if it asks for some of that as well. */
static struct unit_id next_unit_of(struct cache *c, const struct cache_read *r)
{
	uint64_t end;

	if (!unit_is_traced(c, r->unit) || dataset_unit_is_record(c->p.dataset, r->unit))
		return UNIT_NONE;
	end = (r->offset / UNIT_BYTES + 1) * UNIT_BYTES;
	return r->offset + r->length > end ? dataset_unit_at(c->p.dataset, r->entry, end)
					   : UNIT_NONE;
}

static uint64_t bytes_in_unit(struct cache *c, const struct cache_read *r, uint64_t bytes)
{
	struct dataset_extent extent;

	if (!unit_is_traced(c, r->unit))
		return bytes;
	extent = dataset_unit_extent(c->p.dataset, r->unit);
	if (dataset_unit_is_record(c->p.dataset, r->unit)) { /* the rest is its neighbours' */
		uint64_t from = MAX(extent.offset, r->offset);

		return MIN(extent.offset + extent.length, r->offset + bytes) -
		       MIN(from, MIN(extent.offset + extent.length, r->offset + bytes));
	}
	return MIN(bytes, MAX(extent.offset + extent.length, r->offset) - r->offset);
}

bool account_read_begin(struct cache *c, struct cache_read *r)
{
	r->next_unit = UNIT_NONE;
	if (unit_eq(r->unit, UNIT_NONE) || !account_begin_in(c, r, r->unit))
		return false;
	r->next_unit = next_unit_of(c, r);
	if (!unit_eq(r->next_unit, UNIT_NONE) && !account_begin_in(c, r, r->next_unit))
		r->next_unit = UNIT_NONE;
	return true;
}

void account_read_end(struct cache *c, const struct cache_read *r, int status, uint64_t bytes)
{
	uint64_t here;

	if (status == 0)
		count_bytes(c, r->read_class, bytes);
	if (status == 0 && (!r->is_accounted || (bytes && is_large_unit(c, r->unit))))
		count_reads(c, r->read_class, 1);
	else if (r->is_accounted && status != 0 && is_large_unit(c, r->unit))
		count_reads(c, READ_MISS, 1);
	if (!r->is_accounted)
		return;
	here = bytes_in_unit(c, r, bytes);
	account_end_in(c, r, r->unit, status, here);
	if (!unit_eq(r->next_unit, UNIT_NONE))
		account_end_in(c, r, r->next_unit, status, bytes - here);
}

static void sweep_record_locked(struct cache *c, struct account_shard *a, struct record *rec,
				uint64_t now_ns, bool is_final, struct unseen *unseen)
	REQUIRES(a->mu)
{
	bool is_over = rec->n_opens || rec->is_counted || is_final;

	/* Of a record that is no sign of a reader: the kernel reads on beyond the one before it. */
	is_over |= dataset_unit_is_record(c->p.dataset, rec->unit);
	if (rec->n_opens || !rec->is_counted)
		decide_locked(c, a, rec);
	if (is_over) {
		record_end_locked(c, a, rec, now_ns);
		return;
	}
	/* An open that was not seen. Tell who plans, and keep the record for one more turn in case
	 * it is only late. */
	unseen->unit[unseen->n++] = rec->unit;
	record_seen_locked(c, a, rec, now_ns);
}

/* What it is that a unit was come to. */
static enum news_kind news_of(struct cache *c, struct unit_id unit)
{
	return account_is_reached_only(c, unit) ? NEWS_REACHED : NEWS_OPENED;
}

/* Returns early when `unseen` is full. */
static void sweep_shard(struct cache *c, struct account_shard *a, uint64_t now_ns, bool is_final,
			struct unseen *unseen)
{
	unseen->n = 0;
	mutex_lock(&a->mu);
	for (int age = 0; age < AGES; age++) {
		struct list *head = &a->by_age[age];

		while (!list_is_empty(head) && unseen->n < UNSEEN_MAX) {
			struct record *rec = container_of(head->next, struct record, by_age);

			if (!is_final && now_ns < rec->last_ns + grace_ns[age])
				break; /* so are all the younger ones */
			sweep_record_locked(c, a, rec, now_ns, is_final, unseen);
		}
	}
	mutex_unlock(&a->mu);
}

void account_sweep(struct cache *c, uint64_t now_ns, bool is_final)
{
	struct unseen unseen;

	for (int i = 0; i < ACCOUNT_SHARDS; i++) {
		do {
			sweep_shard(c, &c->account->shards[i], now_ns, is_final, &unseen);
			for (uint32_t k = 0; k < unseen.n; k++)
				note_unit(c, news_of(c, unseen.unit[k]), unseen.unit[k]);
		} while (unseen.n == UNSEEN_MAX);
		account_tell(c, &c->account->shards[i]);
	}
	account_tell_settled(c, now_ns);
}
