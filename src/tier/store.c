/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: pieces kept on a local drive, for the time of one mount or for those that follow.
 * Pieces are written once, one behind the other, and stay. No policy of replacement is worth the
 * wear of the device as long as one node reads its dataset once per epoch; what a changed file
 * leaves is dead space until its segment goes.
 *
 * A store that fails only loses what it was to keep. A write that fails ends writing for the time
 * being, reads that fail in a row end reading; either is tried again every now and then
 * (store_care.c). What is kept goes on being served, and verified at its first read.
 *
 * Everything may be called from any thread, several at once. Must never return an error that a
 * caller has to do more about than to go to the source.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "store_priv.h"

#define RETRY_NS (10 * NS_PER_S)
#define BURST_NS (100 * NS_PER_MS)

const char *const store_verify_names[] = { "first", "always", "off", NULL };

/* --- open and close --- */

static int store_set_up(struct store *s, const struct store_sys *sys, struct err *err)
{
	const struct io_params io = { .name = "store", .max_inflight = s->p.max_inflight };
	int rc = store_dir_open(&s->dir, s->p.dir, s->p.is_persistent, sys, err);

	if (rc < 0)
		return rc;
	if (!s->p.limit_bytes)
		s->p.limit_bytes = ALIGN_DOWN(store_default_limit(s), (uint64_t)STORE_BLOCK);
	rc = io_new(s->p.engine, s->dir.fd, &io, &s->io, &s->engine_why, err);
	if (rc < 0) {
		err_prefix(err, "store");
		return rc;
	}
	rc = store_reader_init(&s->reader, s->p.max_inflight);
	if (rc < 0)
		return err_set_errno(err, rc, "store");
	return 0;
}

static void store_init(struct store *s)
{
	uint64_t key = 0;

	if (getrandom(&key, sizeof(key), 0) != (ssize_t)sizeof(key))
		key = clock_now(clock_monotonic()) * 0x9e3779b97f4a7c15ull;
	store_index_init(&s->index, key);
	mutex_init(&s->space_mu);
	mutex_init(&s->mu);
	cond_init(&s->turned);
	mutex_init(&s->care_mu);
	cond_init(&s->care_cv);
}

static void store_tear_down(struct store *s)
{
	io_free(s->io);
	for (uint32_t i = 0; i < s->slots_top; i++)
		if (s->segments[i])
			store_segment_put(s, s->segments[i]);
	store_dir_close(&s->dir);
	store_index_fini(&s->index);
	free(s->foreign);
	free(s->foreign_met);
	cond_fini(&s->turned);
	mutex_fini(&s->mu);
	mutex_fini(&s->space_mu);
	cond_fini(&s->care_cv);
	mutex_fini(&s->care_mu);
	free(s);
}

static void begin_without_writing(struct store *s)
{
	int status = s->dir.status;

	log_warn("store directory %s: nothing is written to it for now: %s", s->p.dir,
		 strerror(-status));
	metrics_add(s->metrics, METRIC_STORE_OFF_TIMES, 1);
	atomic_store(&s->write_status, status == -ENOSPC || status == -EDQUOT ? -EAGAIN : status);
}

int store_open_with(const struct store_params *params, const struct store_sys *sys,
		    struct store **ret, struct err *err)
{
	void *mem = NULL;
	struct store *s;
	int rc = posix_memalign(&mem, _Alignof(struct store), sizeof(*s));

	if (rc != 0)
		return err_set_errno(err, -rc, "store");
	s = mem;
	memset(s, 0, sizeof(*s));
	s->p = *params;
	s->p.limit_bytes = ALIGN_DOWN(params->limit_bytes, (uint64_t)STORE_BLOCK);
	if (!s->p.retry_ns)
		s->p.retry_ns = RETRY_NS;
	if (!s->p.max_segments || s->p.max_segments > STORE_SEGMENTS_MAX)
		s->p.max_segments = STORE_SEGMENTS_MAX;
	s->metrics = params->metrics;
	s->dir.fd = s->dir.marker_fd = -1;
	store_init(s);
	rc = store_set_up(s, sys, err);
	if (rc < 0) {
		store_tear_down(s);
		return rc;
	}
	mutex_lock(&s->space_mu);
	rc = store_load(s, true);
	mutex_unlock(&s->space_mu);
	if (rc < 0)
		log_warn("store: not everything in %s could be read: %s", s->p.dir, strerror(-rc));
	if (s->dir.status)
		begin_without_writing(s);
	rc = store_care_start(s, err);
	if (rc < 0) {
		store_reader_fini(&s->reader);
		store_tear_down(s);
		return rc;
	}
	*ret = s;
	return 0;
}

int store_open(const struct store_params *params, struct store **ret, struct err *err)
{
	return store_open_with(params, &store_sys_real, ret, err);
}

void store_close(struct store *store)
{
	if (!store)
		return;
	store_stop(store);
	store_care_stop(store);
	store_close_open(store);
	store_touch_wanted(store);
	store_reader_fini(&store->reader);
	store_tear_down(store);
}

void store_stop(struct store *store)
{
	mutex_lock(&store->care_mu);
	store->is_stopping = true;
	cond_broadcast(&store->care_cv);
	mutex_unlock(&store->care_mu);
}

bool store_is_stopping(struct store *store)
{
	bool is;

	mutex_lock(&store->care_mu);
	is = store->is_stopping;
	mutex_unlock(&store->care_mu);
	return is;
}

/* --- put --- */

static void switch_writing_off(struct store *s, int status, const char *what)
{
	int on = 0;

	if (!atomic_compare_exchange_strong(&s->write_status, &on, status))
		return;
	metrics_add(s->metrics, METRIC_STORE_OFF_TIMES, 1);
	if (status == -EAGAIN) {
		log_info("store: its filesystem or quota is full: nothing is written for now");
		return;
	}
	metrics_add(s->metrics, METRIC_STORE_ERRORS, 1);
	log_warn("store: no more samples are kept for now: %s: %s", what, strerror(-status));
}

int store_fail(struct store *s, int status, const char *what)
{
	if (status == -ENOMEM || status == -EEXIST)
		return status;
	if (status == -EMFILE || status == -ENFILE) { /* nothing is wrong with the drive */
		log_limited(LOG_LEVEL_WARN, "store: %s: %s", what, strerror(-status));
		return -EAGAIN;
	}
	if (status == -ENOBUFS) /* our table */
		status = -ENOSPC;
	if (status == -ENOSPC) {
		if (!atomic_exchange(&s->is_full, true))
			log_info("store: full with %llu bytes", (unsigned long long)store_bytes(s));
		return status;
	}
	switch_writing_off(s, status, what);
	store_close_open(s);
	return status;
}

/* Waits until the cap allows n more bytes; true: the store ends. */
static bool throttle_writes(struct store *s, uint64_t n)
{
	uint64_t now = clock_now(clock_monotonic()), at;
	bool is_stopping;

	mutex_lock(&s->mu);
	s->last_write_ns = now;
	at = MAX(s->next_write_ns, now - MIN(now, BURST_NS));
	if (s->p.write_bytes_per_s)
		s->next_write_ns =
			at + (uint64_t)((double)n * 1e9 / (double)s->p.write_bytes_per_s);
	mutex_unlock(&s->mu);
	mutex_lock(&s->care_mu);
	while (!s->is_stopping && s->p.write_bytes_per_s && at > now) {
		(void)cond_wait_for(&s->care_cv, &s->care_mu, at - now);
		now = clock_now(clock_monotonic());
	}
	is_stopping = s->is_stopping;
	mutex_unlock(&s->care_mu);
	return is_stopping;
}

bool store_want_kept(struct store *s, const struct store_tag *tag, uint32_t length)
{
	struct store_found found;

	if (!store_index_find(&s->index, tag, s->segments, &found))
		return false;
	store_segment_want(s, tag, &found, length);
	store_segment_put(s, found.segment);
	return true;
}

/* What is known before anything is written. What is kept already is wanted from now on: whoever
 * puts it counts on it. */
static int check_put(struct store *s, const struct tier_piece *piece)
{
	const struct file_identity *identity = piece->identity;
	struct store_tag tag;

	if (piece->key.piece >= piece_count(identity->size) ||
	    piece->length != piece_length(identity->size, piece->key.piece))
		return -EINVAL;
	tag = store_tag_of(&s->index, s->p.fsid, identity, piece->key.piece);
	if (store_want_kept(s, &tag, piece->length))
		return -EEXIST;
	if (atomic_load_explicit(&s->is_full, memory_order_relaxed))
		return -ENOSPC;
	if (atomic_load_explicit(&s->write_status, memory_order_relaxed) ||
	    atomic_load_explicit(&s->is_read_off, memory_order_relaxed))
		return -EAGAIN;
	return 0;
}

/* What is written at once: less where a cap would have it come in bursts. */
static uint64_t batch_bytes(const struct store *s)
{
	uint64_t burst = s->p.write_bytes_per_s / (NS_PER_S / BURST_NS);

	return s->p.write_bytes_per_s ? MIN(STORE_BATCH_BYTES, burst) : STORE_BATCH_BYTES;
}

/* Puts as many pieces as make a batch, one at least; how many of them. */
static size_t put_batch(struct store *s, struct tier_piece *pieces, size_t n)
{
	struct store_record records[STORE_BATCH_MAX];
	struct tier_piece *of[STORE_BATCH_MAX];
	uint64_t bytes = 0, most = batch_bytes(s);
	uint32_t n_records = 0;
	size_t i;

	for (i = 0; i < n && n_records < STORE_BATCH_MAX; i++) {
		struct tier_piece *piece = &pieces[i];
		uint32_t n_bytes = store_record_bytes(piece->length);

		piece->status = check_put(s, piece);
		if (piece->status < 0)
			continue;
		if (n_records > 0 && bytes + n_bytes > most)
			break;
		records[n_records] = (struct store_record){
			{ 0, piece->key.piece, piece->length, piece->key.entry.v,
			  *piece->identity },
			piece->data,
			0,
		};
		of[n_records++] = piece;
		bytes += n_bytes;
	}
	if (n_records == 0)
		return i;
	if (throttle_writes(s, bytes)) {
		for (uint32_t k = 0; k < n_records; k++)
			of[k]->status = -ECANCELED;
		return i;
	}
	assert(n_records <= STORE_BATCH_MAX && i >= n_records);
	store_append(s, records, n_records);
	for (uint32_t k = 0; k < n_records; k++)
		of[k]->status =
			records[k].status < 0 ? store_fail(s, records[k].status, "writing") : 0;
	return i;
}

void store_put_many(struct store *store, struct tier_piece *pieces, size_t n)
{
	while (n > 0) {
		size_t n_done = put_batch(store, pieces, n);

		assert(n_done >= 1 && n_done <= n);
		pieces += n_done;
		n -= n_done;
	}
}

int store_put(struct store *store, struct piece_key key, const struct file_identity *identity,
	      const void *data, uint32_t length)
{
	struct tier_piece piece = { key, identity, data, length, 0 };

	store_put_many(store, &piece, 1);
	return piece.status;
}

/* --- ask and forget --- */

bool store_has(struct store *store, struct piece_key key, const struct file_identity *identity)
{
	struct store_tag tag = store_tag_of(&store->index, store->p.fsid, identity, key.piece);

	return store_want_kept(store, &tag, piece_length(identity->size, key.piece)) &&
	       !atomic_load_explicit(&store->is_read_off, memory_order_relaxed);
}

/* Where to stop in a file of any size: no piece from there on was ever kept here, of no file. */
static uint32_t kept_end(const struct store *store, uint32_t end)
{
	return MIN(end, atomic_load(&store->pieces_end));
}

static void unwant_piece(struct store *store, const struct file_identity *identity, uint32_t piece)
{
	struct store_tag tag = store_tag_of(&store->index, store->p.fsid, identity, piece);
	struct store_found found;

	if (!store_index_find(&store->index, &tag, store->segments, &found))
		return;
	store_segment_unwant(store, &tag, &found, piece_length(identity->size, piece));
	store_segment_put(store, found.segment);
}

void store_unwant(struct store *store, const struct file_identity *identity, uint32_t first,
		  uint32_t end)
{
	end = kept_end(store, end);
	for (uint32_t piece = first; piece < end; piece++)
		unwant_piece(store, identity, piece);
}

void store_claimed(struct store *s)
{
	mutex_lock(&s->mu);
	s->is_claimed = true;
	mutex_unlock(&s->mu);
	store_unshare_all(s);
	store_touch_wanted(s);
	store_shrink(s);
}

uint32_t store_n_found(const struct store *s)
{
	return atomic_load_explicit(&s->n_found, memory_order_relaxed);
}

void store_drop_record(struct store *s, const struct store_tag *tag, uint32_t place,
		       uint32_t length)
{
	struct store_found found;
	struct store_segment *segment;

	if (!store_index_find(&s->index, tag, s->segments, &found))
		return;
	segment = found.segment;
	/* With the reference the slot is this segment's: what is removed there was counted here. */
	if ((place == STORE_NO_PLACE || place == found.place) &&
	    store_index_remove(&s->index, tag, found.place, &found))
		store_segment_lost(segment, &found, length);
	store_segment_put(s, segment);
}

static void forget_piece(struct store *store, const struct file_identity *identity, uint32_t piece)
{
	struct store_tag tag = store_tag_of(&store->index, store->p.fsid, identity, piece);

	store_drop_record(store, &tag, STORE_NO_PLACE, piece_length(identity->size, piece));
}

void store_forget(struct store *store, const struct file_identity *identity, uint32_t first,
		  uint32_t end)
{
	end = kept_end(store, end);
	for (uint32_t piece = first; piece < end; piece++)
		forget_piece(store, identity, piece);
}

/* --- description --- */

bool store_is_full(const struct store *store)
{
	return atomic_load_explicit(&store->is_full, memory_order_relaxed);
}

uint64_t store_cost(uint64_t size)
{
	uint64_t n = size / PIECE_BYTES * store_record_bytes(PIECE_BYTES);
	uint32_t rest = (uint32_t)(size % PIECE_BYTES);

	return n + (rest || !size ? store_record_bytes(rest) : 0);
}

bool store_takes_more(const struct store *store)
{
	return !store_is_full(store) && !atomic_load(&store->write_status) &&
	       !atomic_load(&store->is_read_off);
}

uint64_t store_bytes(const struct store *store)
{
	return atomic_load_explicit(&store->bytes, memory_order_relaxed);
}

const char *store_engine_name(const struct store *store)
{
	return io_name(store->io);
}

static const char *why_of(const struct store *s)
{
	int status = atomic_load(&s->write_status);

	if (atomic_load(&s->is_read_off))
		return "reads of its drive failed; tried again now and then";
	if (status == -EAGAIN)
		return "its filesystem or quota is full; tried again now and then";
	if (status == -EROFS || status == -EACCES)
		return "its drive lets nothing be written; tried again now and then";
	if (status)
		return "a write to its drive failed; tried again now and then";
	return store_is_full(s) ? "the budget is used up; tried again now and then" : "";
}

void store_get_status(struct store *store, struct store_status *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->is_persistent = store->p.is_persistent;
	ret->is_full = store_is_full(store);
	ret->is_off = atomic_load(&store->is_read_off);
	ret->is_write_off = atomic_load(&store->write_status) != 0;
	ret->why = why_of(store);
	ret->bytes = store_bytes(store);
	ret->limit_bytes = store->p.limit_bytes;
	store_index_usage(&store->index, &ret->index_bytes, &ret->records);
	mutex_lock(&store->mu);
	for (uint32_t i = 0; i < store->slots_top; i++) {
		const struct store_segment *segment = store->segments[i];

		if (!segment)
			continue;
		ret->segments++;
		ret->foreign += !segment->is_ours;
		ret->record_bytes += atomic_load(&segment->record_bytes);
		ret->unverified += atomic_load(&segment->n_unverified);
	}
	mutex_unlock(&store->mu);
}
