/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files whose bytes the kernel may serve without asking us would never be seen to change: this
 * thread compares them with the source from time to time. Only files that were opened, read,
 * fetched or staged ("touched"), spread evenly over the interval and at most RATE_MAX of them per
 * second, so that a parallel filesystem's metadata server does not notice: of more than RATE_MAX
 * times the interval's seconds each is looked at less often than the interval says. Symlinks are
 * followed, as everywhere. Where others see the mount, all directories are among them, since their
 * permissions decide (access.c).
 *
 * Its own thread, because a stat of a dead filesystem hangs. It must never hold a lock while it
 * asks the source.
 */
#include "cache_priv.h"

enum { RATE_MAX = 1000 };
#define NAP_MIN_NS (10 * NS_PER_MS) /* shorter ones are put together */
#define NAP_MAX_NS NS_PER_S /* then the pace is set anew: more files may be touched by now */

void entry_touch(struct cache *c, struct entry_id entry)
{
	if (bits_set(c->touched, entry.v))
		atomic_fetch_add(&c->n_touched, 1);
}

/* From here on nobody looks whether it changes: what the store keeps of it has to be asked for
 * again. */
void entry_untouch(struct cache *c, struct entry_id entry)
{
	if (bits_clear(c->touched, entry.v))
		atomic_fetch_sub(&c->n_touched, 1);
	bits_clear(c->confirmed, entry.v);
}

uint64_t revalidate_gap_ns(uint64_t interval_ns, uint64_t n)
{
	return MAX(interval_ns / MAX(n, 1), NS_PER_S / RATE_MAX);
}

/* False when the cache stops. */
static bool nap(struct cache *c, uint64_t ns)
{
	bool is_stopping, is_over = false;

	mutex_lock(&c->reval_mu);
	while (!c->reval_stop && !is_over)
		is_over = cond_wait_for(&c->reval_cv, &c->reval_mu, ns);
	is_stopping = c->reval_stop;
	mutex_unlock(&c->reval_mu);
	return !is_stopping;
}

/* How many are looked at in one round. */
static uint64_t round_size(const struct cache *c)
{
	return atomic_load(&c->n_touched) +
	       (c->narrowed ? (uint64_t)dataset_n_dirs(c->p.dataset) + 1 : 0);
}

/* Rests for what *n_done comparisons cost, once that is worth a nap. False when the cache stops. */
static bool keep_pace(struct cache *c, uint32_t *n_done)
{
	uint64_t rested = 0, due;

	for (;;) {
		due = *n_done * revalidate_gap_ns(c->p.revalidate_ns, round_size(c));
		if (rested == 0 && due < NAP_MIN_NS)
			return true;
		if (rested >= due)
			break;
		due = MIN(due - rested, NAP_MAX_NS);
		if (!nap(c, due))
			return false;
		rested += due;
	}
	*n_done = 0;
	return true;
}

static void check_entry(struct cache *c, struct entry_id entry)
{
	struct file_identity known, now;
	struct stat st;
	int rc;

	if (c->narrowed) {
		(void)access_look_again(c, entry);
		return;
	}
	dataset_identity(c->p.dataset, entry, &known);
	rc = access_look(c, entry, &st);
	if (rc != 0 && rc != -ENOENT)
		return; /* says nothing about the file */
	if (rc != 0) {
		change_file(c, entry, NULL, NULL);
		return;
	}
	now = file_identity_of(&st);
	if (!file_identity_eq(&known, &now))
		change_file(c, entry, &known, &st);
}

/* All directories, whose permissions decide who may come to the files; false when the cache stops.
 */
static bool check_dirs(struct cache *c, uint32_t *n_done)
{
	uint32_t first = dataset_first_dir(c->p.dataset), n = dataset_n_dirs(c->p.dataset);

	for (uint32_t i = 0; i <= n; i++) {
		access_check_dir(c, i == n ? ENTRY_ROOT : (struct entry_id){ first + i });
		(*n_done)++;
		if (!keep_pace(c, n_done))
			return false;
	}
	return true;
}

/* One round over all touched files; false when the cache stops. */
static bool check_all(struct cache *c)
{
	uint32_t n = dataset_n_entries(c->p.dataset), n_done = 0;

	if (c->narrowed && !check_dirs(c, &n_done))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		if (!atomic_load_explicit(&c->touched[i / 64], memory_order_relaxed)) {
			i |= 63;
			continue;
		}
		if (!bits_get(c->touched, i))
			continue;
		check_entry(c, (struct entry_id){ i });
		n_done++;
		if (!keep_pace(c, &n_done))
			return false;
	}
	/* What the last few of this round cost, or nothing was touched. */
	return nap(c, MIN(MAX(n_done, 1u) * NS_PER_MS, c->p.revalidate_ns));
}

void *revalidate_main(void *cache)
{
	struct cache *c = cache;
	uint64_t idle_ns = MIN(c->p.revalidate_ns, NAP_MAX_NS);

	for (;;) {
		bool is_idle = round_size(c) == 0;

		if (is_idle ? !nap(c, idle_ns) : !check_all(c))
			return NULL;
	}
}
