/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's background thread: looks for what other daemons have sealed, seals what nobody writes
 * to any more so that they can have it, and tries a store again that was switched off. None of it
 * is waited for by anybody.
 *
 * Switching on again wants proof: a block written to a file of its own and read back, a header of a
 * segment read. Must never hold a lock over any of it, and ends within one step when told to.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "store_priv.h"

/* An open segment is sealed when nothing was put for so many rounds. Small ones a few times only:
 * each leaves a file. */
#define IDLE_ROUNDS 3
#define SMALL_SEALS_MAX 64
#define SMALL_BYTES (16ull << 20)

struct care {
	struct store *s;
	uint64_t next_ns;
	uint32_t n_small_seals;
};

/* --- on again --- */

static bool can_write(struct store *s)
{
	uint64_t bytes = 0;
	bool is_well;
	int rc = 0;

	mutex_lock(&s->space_mu);
	is_well = store_dir_again(&s->dir) == 0;
	if (is_well) {
		store_dir_lock(&s->dir);
		rc = store_space(s, store_record_blocks(PIECE_BYTES), &bytes);
		store_dir_unlock(&s->dir);
	}
	mutex_unlock(&s->space_mu);
	if (rc == -ENOSPC) /* the budget: a put finds that out for itself */
		rc = 0;
	if (is_well && rc == 0)
		rc = store_without_room(store_dir_try(&s->dir));
	if (is_well && rc == -EAGAIN && bytes) { /* a quota */
		store_space_lock(s);
		if (store_space_refused(s, bytes))
			log_debug("store: gave up what nobody wants for its quota");
		store_space_unlock(s);
	}
	return is_well && rc == 0;
}

static bool can_read(struct store *s)
{
	struct store_segment *segment = NULL;
	void *block = NULL;
	bool can;

	mutex_lock(&s->mu);
	for (uint32_t i = 0; i < s->slots_top && !segment; i++)
		if (s->segments[i] && store_segment_try_get(s->segments[i]))
			segment = s->segments[i];
	mutex_unlock(&s->mu);
	if (!segment)
		return true;
	can = posix_memalign(&block, STORE_BLOCK, STORE_BLOCK) == 0 &&
	      store_read_all(&s->dir, segment->fd, block, STORE_BLOCK, 0) == 0;
	free(block);
	store_segment_put(s, segment);
	return can;
}

static void try_again(struct store *s)
{
	if (atomic_load(&s->is_read_off) && can_read(s)) {
		atomic_store(&s->n_read_errors, 0);
		atomic_store(&s->is_read_off, false);
		log_info("store: can be read again");
	}
	if (!atomic_load(&s->write_status) || atomic_load(&s->is_read_off))
		return;
	store_seal_leftovers(s);
	if (can_write(s)) {
		atomic_store(&s->write_status, 0);
		log_info("store: can be written again");
	}
}

/* --- segments --- */

/* What others may have of ours: nobody can read a segment of another daemon before it is sealed. */
static void seal_idle(struct care *care, uint64_t now)
{
	struct store *s = care->s;
	bool is_idle, is_small = false;

	mutex_lock(&s->mu);
	is_idle = s->open && now - s->last_write_ns > IDLE_ROUNDS * s->p.retry_ns &&
		  s->open->n_entries > 0;
	if (is_idle)
		is_small = atomic_load(&s->open->bytes) < SMALL_BYTES;
	mutex_unlock(&s->mu);
	if (!is_idle || (is_small && care->n_small_seals == SMALL_SEALS_MAX))
		return;
	care->n_small_seals += is_small;
	store_close_open(s);
}

static void tend_directory(struct care *care, uint64_t now)
{
	struct store *s = care->s;

	seal_idle(care, now);
	store_retire_removed(s);
	store_unshare_all(s);
	mutex_lock(&s->space_mu);
	if (store_load(s, true) < 0 && !store_is_stopping(s))
		log_limited(LOG_LEVEL_WARN, "store: its directory cannot be looked through");
	mutex_unlock(&s->space_mu);
}

static void care_tend(struct care *care, uint64_t now)
{
	struct store *s = care->s;

	try_again(s);
	if (atomic_load(&s->is_read_off))
		return;
	if (s->dir.is_persistent)
		tend_directory(care, now);
	store_tend_space(s);
}

static void *care_main(void *arg)
{
	struct care care = { .s = arg };
	struct store *s = care.s;
	bool is_stopping = false;

	care.next_ns = clock_now(clock_monotonic()) + s->p.retry_ns;
	while (!is_stopping) {
		uint64_t now = clock_now(clock_monotonic());

		if (now >= care.next_ns) {
			care_tend(&care, now);
			care.next_ns = now + s->p.retry_ns;
		}
		mutex_lock(&s->care_mu);
		if (!s->is_stopping)
			(void)cond_wait_for(&s->care_cv, &s->care_mu, care.next_ns - now);
		is_stopping = s->is_stopping;
		mutex_unlock(&s->care_mu);
	}
	return NULL;
}

int store_care_start(struct store *s, struct err *err)
{
	return thr_start(&s->care, "cl-store", care_main, s, err);
}

void store_care_stop(struct store *s)
{
	store_stop(s);
	thr_join(&s->care);
}
