/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes on beside the plan when orders come and go. The plan is made once, for as long as the
 * cache is; orders are told to it (planned.c). Samples in the store are told to it a share at a
 * time, again with every order, as only who is there decides what is wanted of it, and once more
 * when the store has found something of other daemons. Pages that were pushed for jobs that are
 * over are given back to the kernel, a share at a time.
 *
 * Planner thread, but for plan_make and references. It must never wait for I/O.
 */
#include "cache_priv.h"

#include "clairfs/base/cleanup.h"
#include "clairfs/tape.h"

enum { KEPT_PER_ROUND = 4096 };
enum { GIVEN_BACK_PER_ROUND = 256, WORDS_PER_ROUND = 4096 };
#define KEPT_REST_NS (10 * NS_PER_S) /* a look costs a second of CPU for a million samples */

struct order_ref *order_ref_new(struct order *order, bool is_owned)
{
	struct order_ref *ref = calloc(1, sizeof(*ref));

	if (!ref)
		return NULL;
	ref->order = order;
	ref->is_owned = is_owned;
	atomic_init(&ref->refs, 1);
	return ref;
}

void order_ref_put(struct order_ref *ref)
{
	if (!ref || atomic_fetch_sub(&ref->refs, 1) != 1)
		return;
	if (ref->is_owned)
		order_free(ref->order);
	free(ref);
}

int plan_make(struct cache *c, const struct order_ref *order, struct plan **ret)
{
	uint32_t n = dataset_n_samples(c->p.dataset);
	AUTO_FREE uint64_t *size = calloc((size_t)n + 1, sizeof(*size));
	struct plan_params params = {
		.n = n,
		.size = size,
		.order = order ? order_info(order->order) : NULL,
		.arena_bytes = c->p.arena_bytes,
		.spare_bytes = plan_spare_bytes(c->p.arena_bytes),
		.stage_bytes = c->stage ? c->p.stage_bytes : 0,
		.sample_max_bytes = MIN(c->p.sample_max_bytes, c->p.arena_bytes / 4),
		.store_bytes = c->keeper ? c->p.store_bytes : 0,
		.pin_rule = c->p.pin_rule,
		.inflight_min = c->p.inflight_min,
		.inflight_max = c->p.inflight_max,
		.source_bytes_per_s = c->p.source_bytes_per_s,
	};
	int rc;

	if (!size)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		size[i] = dataset_size(c->p.dataset, (struct entry_id){ i });
	rc = plan_new(&params, ret);
	if (rc < 0 || !c->p.tape)
		return rc;
	rc = tape_record(c->p.tape, *ret, &params);
	if (rc < 0)
		plan_free(TAKE(*ret));
	return rc;
}

/* --- pages --- */

/* Pages that were pushed stay with the kernel; when the last job is over nobody will read them, and
 * they are given back, a share at a time: there may be millions. What is left of that when the next
 * order comes stays, and is of no interest to a plan that has forgotten it (which it has of all of
 * them before the first is given back). */
void switch_pages(struct cache *c, bool is_over)
{
	uint32_t words = dataset_n_samples(c->p.dataset) / 64 + 1;

	for (uint32_t i = c->give_back_at; !is_over && !c->counted.stage_bytes && i < words; i++)
		atomic_store(&c->staged[i], 0);
	c->give_back_at = is_over ? 0 : UINT32_MAX;
}

bool switch_give_back(struct cache *c)
{
	uint32_t words = dataset_n_samples(c->p.dataset) / 64 + 1, left = GIVEN_BACK_PER_ROUND;
	uint32_t end;

	if (c->give_back_at >= words)
		return false;
	if (c->counted.stage_bytes) /* not before the plan has forgotten them */
		return true;
	end = c->give_back_at + MIN(words - c->give_back_at, (uint32_t)WORDS_PER_ROUND);
	for (; c->give_back_at < end && left; c->give_back_at += left != 0) {
		uint32_t i = c->give_back_at;
		uint64_t bits = atomic_load(&c->staged[i]);

		for (; bits && left; bits &= bits - 1, left--) {
			uint32_t sample = i * 64 + (uint32_t)__builtin_ctzll(bits);

			if (bits_clear(c->staged, sample) && !bits_get(c->staged_opened, sample))
				change_drop_pages(c, (struct entry_id){ sample });
		}
	}
	return c->give_back_at < words;
}

/* --- the store --- */

static bool is_in_store(struct cache *c, struct entry_id entry)
{
	struct file_identity id;

	dataset_identity(c->p.dataset, entry, &id);
	return id.size && store_keeps(c, entry, &id, piece_count(id.size));
}

/* The job does not read it as far as its order says, or it reads it beside the order: then it is
 * wanted again with its first read. */
static void unwant(struct cache *c, struct entry_id entry)
{
	struct file_identity id, kept;

	dataset_identity(c->p.dataset, entry, &id);
	if (dataset_kept_identity(c->p.dataset, entry, &id, &kept) != 0)
		return;
	tier_unwant(c->keeper, &kept, 0, piece_count(id.size));
}

/* By the orders of all jobs. */
static bool is_outside(const struct cache *c, uint32_t sample)
{
	bool is_outside = c->n_jobs > 0;

	for (uint32_t i = 0; i < c->n_jobs && is_outside; i++) {
		const uint64_t *outside = order_info(c->jobs[i].order->order)->outside;

		is_outside = outside && outside[sample / 64] >> sample % 64 & 1;
	}
	return is_outside;
}

static void tell_kept(struct cache *c, uint32_t sample, bool may_unwant, uint64_t now_ns)
{
	struct plan_event ev = { .kind = PLAN_EV_KEPT, .sample = sample };

	if (is_outside(c, sample)) {
		if (!may_unwant)
			return;
		unwant(c, (struct entry_id){ sample });
		ev.kind = PLAN_EV_UNPINNED; /* its room is for what is read by now */
		plan_event(c->plan, now_ns, &ev);
	} else if (is_in_store(c, (struct entry_id){ sample })) {
		plan_event(c->plan, now_ns, &ev);
	}
}

void switch_look_again(struct cache *c, bool is_first)
{
	if (!cache_keeps_any(c))
		return;
	c->kept_at = 0;
	c->kept_next_ns = is_first ? 0 : MAX(c->kept_next_ns, 1);
}

/* One look at a time, and not one after the other: all get their turn. */
static void look_again(struct cache *c, uint64_t now_ns)
{
	uint32_t n_found = tier_n_found(c->keeper);

	if (n_found == c->kept_found || now_ns < c->kept_next_ns)
		return;
	c->kept_found = n_found;
	c->kept_next_ns = now_ns + KEPT_REST_NS;
	c->kept_at = 0;
}

bool switch_tell_kept(struct cache *c, uint64_t now_ns)
{
	uint32_t n = dataset_n_samples(c->p.dataset);

	if (n <= c->kept_at)
		look_again(c, now_ns);
	for (uint32_t i = 0; i < KEPT_PER_ROUND && c->kept_at < n; i++)
		tell_kept(c, c->kept_at++, !c->kept_next_ns, now_ns); /* later it may be read */
	return c->kept_at < n;
}
