/* SPDX-License-Identifier: Apache-2.0 */
/* The two passes that are loaded: the one being read and the next one. The next epoch is asked for
 * as soon as there is a current one, so that fetching runs over the end of an epoch and what was
 * read is kept by its next use.
 *
 * A new epoch is taken in a chunk per step (absorbed): giving every unit its key costs two cache
 * misses, 30 ms at a million, which must not happen in one go. When the position is lost and found
 * again all keys are thrown away and given out afresh the same way. The plan owns the epochs it is
 * given; two slots may share one. */
#include "plan_priv.h"

#include <errno.h>
#include <string.h>

#define TRIES_MAX 8u
#define FEW_LEFTOVERS 4096u
#define AHEAD 16 /* positions whose units are brought near the processor */

int epochs_install(struct plan_job *job, uint32_t i, struct order_epoch *take_ep, uint64_t epoch)
{
	struct slot *slot = &job->slots[i];
	int r;

	assert(!slot->ep);
	*slot = (struct slot){ .ep = take_ep, .epoch = epoch, .length = take_ep->length };
	slot->worth_end = slot->length;
	r = bitmap_init(&slot->consumed, slot->length);
	for (uint32_t s = 0; s < SET_COUNT && r == 0; s++)
		r = tree_init(&slot->set[s], slot->length);
	if (r < 0)
		epochs_uninstall(job, i);
	job->is_stage_dirty = true;
	return r;
}

/* Frees an epoch that nothing uses. */
static void epochs_release(struct plan_job *job, struct order_epoch *ep)
{
	if (ep && ep != job->slots[0].ep && ep != job->slots[1].ep && ep != job->before &&
	    ep != job->valid.learned)
		order_epoch_free(ep);
}

void epochs_forget_before(struct plan_job *job)
{
	struct order_epoch *ep = job->before;

	job->before = NULL;
	epochs_release(job, ep);
}

/* Units that have their key there must be given another one by the caller. */
void epochs_uninstall(struct plan_job *job, uint32_t i)
{
	struct slot *slot = &job->slots[i];
	struct order_epoch *ep = slot->ep;

	bitmap_fini(&slot->consumed);
	for (uint32_t s = 0; s < SET_COUNT; s++)
		tree_fini(&slot->set[s]);
	slot->ep = NULL;
	slot->length = slot->low = slot->absorbed = 0;
	epochs_release(job, ep);
}

void epochs_consume_below(const struct plan_job *job, struct slot *slot, uint64_t pos)
{
	uint64_t *words = slot->consumed.words;

	assert(slot->consumed.count == 0 && pos <= slot->length);
	memset(words, 0xff, pos / 64 * sizeof(*words));
	if (pos % 64)
		words[pos / 64] |= ~(~0ull << pos % 64);
	slot->consumed.count = pos;
	slot->inner = pos - job_samples(job, pos);
	slot->low = bitmap_next_clear(&slot->consumed, pos);
}

bool epochs_is_last(const struct plan_job *job, const struct slot *slot)
{
	return job->has_epochs_end && slot->index + 1 >= job->info.epochs;
}

/* Forgets all keys of the job; epochs_absorb gives them out again. What was staged for uses that
 * are not coming no longer counts. Where its keys say the units are need not be true any more. */
void epochs_rebuild(struct plan *plan, struct plan_job *job)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &job->slots[i];

		slot->absorbed = slot->low;
		slot->worth_pages = 0;
		slot->worth_end = slot->length;
		for (uint32_t s = 0; s < SET_COUNT; s++)
			tree_clear_all(&slot->set[s]);
	}
	tree_clear_all(&plan->unkeyed);
	later_forget_buckets(plan);
	for (uint32_t i = 0; i < plan->n; i++) {
		item_out_of_others(plan, job, i);
		*job_key(plan, job, i) = NO_KEY;
		later_find_bucket(plan, job, i);
		stage_forget(plan, i);
		item_in(plan, i);
	}
	job->is_stage_dirty = true;
}

/* A unit can only be kept for the next pass by having been read in this one; of those needed
 * later the buckets know. */
static bool epochs_is_read_before(const struct plan *plan, const struct plan_job *job,
				  const struct slot *slot, uint32_t unit)
{
	const struct slot *cur = job_cur(job);

	return !plan->later.mask || slot != job_next(job) || cur->ep->first[unit] != SAMPLE_NONE;
}

static void epochs_absorb_pos(struct plan *plan, struct plan_job *job, struct slot *slot,
			      uint64_t pos, uint64_t worth_pages)
{
	uint32_t unit = slot->ep->sample[pos];
	struct item *it = &plan->item[unit];
	uint32_t *key = job_key(plan, job, unit);

	if (pos + AHEAD < slot->length) {
		__builtin_prefetch(&plan->item[slot->ep->sample[pos + AHEAD]]);
		if (slot->ep->first)
			__builtin_prefetch(&slot->ep->first[slot->ep->sample[pos + AHEAD]]);
	}
	if ((!slot->ep->first || slot->ep->first[unit] == pos) && !(it->flags & PINNED) &&
	    it->pages <= plan->max_pages && epochs_is_read_before(plan, job, slot, unit)) {
		slot->worth_pages += it->pages;
		if (slot->worth_pages > worth_pages && slot->worth_end == slot->length)
			slot->worth_end = pos;
	}
	if (*key != NO_KEY || bitmap_get(&slot->consumed, pos))
		return;
	item_out(plan, unit);
	*key = key_make(job, slot, pos);
	it->flags &= ~(uint32_t)(NO_FETCH | NO_STAGE | HELD_OUT | TRY_MASK | AGAIN);
	item_in(plan, unit);
}

/* At most so many positions; returns how many are left to be done. */
static uint64_t epochs_absorb_slot(struct plan *plan, struct plan_job *job, struct slot *slot,
				   uint64_t most)
{
	/* Part of the arena is for what is on its way and finds no room in the kernel. */
	uint64_t busy = (plan->hold_reads + 2 * plan->inflight_source) * plan->mean_pages;
	uint64_t slack = MIN(busy - MIN(alone_pages(plan), busy), plan->arena_pages / 8);
	uint64_t worth_pages = plan->arena_pages - slack;

	while (slot->absorbed < slot->length && most) {
		epochs_absorb_pos(plan, job, slot, slot->absorbed++, worth_pages);
		most--;
	}
	return most;
}

void epochs_absorb_rest(struct plan *plan, struct plan_job *job, struct slot *slot)
{
	epochs_absorb_slot(plan, job, slot, slot->length);
}

/* Memory that was never written to comes with the first touch, a page at a time: in the order of the
 * epoch that would be nearly all of it in one step. True when there is more to do. */
static bool epochs_touch_keys(const struct plan *plan, struct plan_job *job)
{
	uint32_t end = job->key_ready + MIN(plan->n - job->key_ready, KEY_CHUNK);

	if (!job->key || job->key_ready == plan->n)
		return false;
	for (uint32_t i = job->key_ready; i < end; i += PAGE_BYTES / sizeof(*job->key)) {
		volatile uint32_t *key = &job->key[i];

		*key = *key;
	}
	job->key_ready = end;
	return true;
}

/* True when there is more to do. */
static bool epochs_absorb(struct plan *plan, struct plan_job *job)
{
	/* Beside it what jobs that are over have left takes the room of what this one wants. */
	uint32_t rest = plan->n_leaving ? plan->work_most / 4 : 0;
	struct slot *const slots[SLOTS] = { job_cur(job), job_valid(job), job_next(job) };

	for (uint32_t i = 0; i < SLOTS; i++) {
		uint32_t most = plan->work - MIN(plan->work, rest), left;

		if (!slots[i]->ep && slots[i] != job_valid(job))
			return false;
		left = (uint32_t)epochs_absorb_slot(plan, job, slots[i], most);
		plan->work -= most - left;
		if (!left)
			return true;
	}
	return false;
}

static void epochs_mark_tail(struct plan *plan, struct plan_job *job, uint32_t unit)
{
	if (job->n_tail == TAIL_MAX || plan->item[unit].flags & TAIL)
		return;
	plan->item[unit].flags |= TAIL;
	job->tail[job->n_tail++] = unit;
}

/* Remembers the units that may still be read late, or once more, from the pass that ends. */
static void epochs_remember_tail(struct plan *plan, struct plan_job *job, const struct slot *slot)
{
	uint64_t from = slot->low > 2 * job->span ? slot->low - 2 * job->span : 0, pos;

	while (job->n_tail)
		plan->item[job->tail[--job->n_tail]].flags &= ~(uint32_t)TAIL;
	for (pos = from;
	     pos < MIN(slot->low + job->span, slot->length) && job->n_tail < TAIL_MAX;
	     pos++)
		epochs_mark_tail(plan, job, slot->ep->sample[pos]);
}

/* The next pass becomes the current one; what was left unread is not going to be. */
void epochs_roll(struct plan *plan, struct plan_job *job)
{
	struct slot *old = job_cur(job), *next = job_next(job);
	uint64_t left;

	assert(next->ep);
	tracers_rolled(plan, job, old);
	left = old->length - old->consumed.count;
	horizon_rolled(plan, job, old);
	waste_rolled(plan, job, old);
	valid_close(plan, job);
	window_begins(job);
	later_rolled(plan);
	epochs_remember_tail(plan, job, old);
	epochs_forget_before(job);
	if (!left && !next->is_rerun)
		job->before = old->ep;
	for (uint64_t pos = old->low; left <= FEW_LEFTOVERS && old->low < old->length;
	     pos = old->low)
		window_pass_over(plan, job, old, pos);
	epochs_uninstall(job, job->cur);
	job->cur = !job->cur;
	valid_open(job);
	if (next->is_rerun) {
		next->is_rerun = false;
		job->is_repeat = false;
	}
	if (!job->is_repeat) { /* what was found out was about the pass that is over */
		job->note = WHY_OF_STATE;
		if (job->state == PLAN_FOLLOWING)
			plan_enter(plan, job, PLAN_FOLLOWING, WHY_OF_STATE);
	}
	if (left > FEW_LEFTOVERS)
		epochs_rebuild(plan, job);
	job->is_stage_dirty = true;
	job->has_failed_epoch = false;
	job->epoch_tries = 0;
	job->next_streak = 0;
	if (job->state == PLAN_FINISHED) {
		job->note = WHY_RUN_AGAIN;
		plan_enter(plan, job, job->is_proven ? PLAN_FOLLOWING : PLAN_CHECKING,
			   job->is_proven ? WHY_OF_STATE : job->note);
	}
}

/* The number of the epoch that the next pass reads. */
static uint64_t epochs_successor(const struct plan_job *job)
{
	const struct slot *cur = job_cur(job);

	if (epochs_is_last(job, cur))
		return job->info.start_epoch;
	return job->is_repeat ? cur->epoch : cur->epoch + 1;
}

static int epochs_set_next(struct plan_job *job, struct order_epoch *take_ep)
{
	struct slot *cur = job_cur(job), *next = job_next(job);
	int r;

	assert(cur->ep);
	r = epochs_install(job, !job->cur, take_ep, epochs_successor(job));
	if (r < 0)
		return r;
	next->pass = cur->pass + 1;
	next->is_rerun = epochs_is_last(job, cur);
	next->index = next->is_rerun ? 0 : cur->index + 1;
	return 0;
}

/* The first epoch of all starts where the job was left. */
int epochs_set_first(struct plan_job *job, struct order_epoch *take_ep)
{
	struct slot *cur = job_cur(job);
	int r = epochs_install(job, job->cur, take_ep, take_ep->epoch);

	if (r < 0)
		return r;
	if (job->inner && take_ep->place) { /* of what it reads, not of all that it might */
		job->info.samples = take_ep->places;
		job->info.units = take_ep->length;
	}
	cur->pass = cur->epoch;
	epochs_consume_below(job, cur, MIN(take_ep->start, cur->length));
	cur->absorbed = cur->low;
	return 0;
}

/* How many units its samples are is known with its first epoch. */
static int epochs_begin(struct plan *plan, struct plan_job *job, struct order_epoch *take_ep)
{
	int r = epochs_set_first(job, take_ep);

	if (r == 0 && job->inner && !job->reads)
		jobs_init_span(plan, job);
	return r;
}

static void epochs_failed(struct plan *plan, struct plan_job *job, uint64_t now_ns,
			  bool is_candidate)
{
	if (is_candidate) {
		job->candidate++;
		return;
	}
	job->ask_not_before_ns = now_ns + (NS_PER_S << MIN(job->epoch_tries, 6));
	if (++job->epoch_tries < TRIES_MAX)
		return;
	job->has_failed_epoch = true;
	job->n_pending = 0;
	if (!job_cur(job)->ep)
		plan_enter(plan, job, PLAN_LOST, WHY_NO_EPOCH);
}

void epochs_arrived(struct plan *plan, struct plan_job *job, uint64_t now_ns,
		    const struct plan_event *ev)
{
	struct order_epoch *ep = ev->order_epoch;
	bool has_cur = job_cur(job)->ep != NULL, is_next, is_candidate;
	uint32_t tries = job->epoch_tries;
	int r = -EINVAL;

	assert(job->is_asked && ev->epoch == job->asked_epoch);
	job->is_asked = false;
	if (job->is_for_later) {
		job->is_for_later = false;
		later_arrived(plan, job, ev);
		return;
	}
	is_next = has_cur && !job_next(job)->ep && job->state != PLAN_LOST &&
		  ev->epoch == epochs_successor(job);
	is_candidate = has_cur && !is_next && job->is_searching &&
		       ev->epoch == resync_next_candidate(job);
	if (ev->status < 0 || !ep || ep->n != plan->n || !ep->length || ep->length > LENGTH_MAX) {
		if (ev->status == 0)
			order_epoch_free(ep);
		epochs_failed(plan, job, now_ns, is_candidate);
		return;
	}
	if (is_candidate) {
		resync_candidate(plan, job, ep);
		return;
	}
	if (!has_cur)
		r = epochs_begin(plan, job, ep);
	else if (is_next)
		r = epochs_set_next(job, ep);
	else
		order_epoch_free(ep); /* of no use any more */
	if (r == 0 && has_cur)
		window_replay(plan, job, now_ns);
	else if (r == 0)
		r = recent_show(plan, job);
	if (r == 0) {
		job->epoch_tries = 0;
	} else if (!has_cur || is_next) {
		job->epoch_tries = tries; /* it may have begun again meanwhile */
		epochs_failed(plan, job, now_ns, false);
	}
}

static void epochs_ask(struct plan *plan, struct plan_job *job, uint64_t epoch)
{
	if (epoch == UINT64_MAX || !actions_left(plan))
		return;
	assert(!job->is_asked && job->home != NO_HOME);
	job->is_asked = true;
	job->asked_epoch = epoch;
	plan_act(plan, job, PLAN_ACT_EPOCH, UNIT_NONE.v);
}

/* Asks for one epoch at a time. */
static uint64_t epochs_request(struct plan *plan, struct plan_job *job, uint64_t now_ns)
{
	struct slot *cur = job_cur(job);
	uint64_t next_epoch;

	if (job->is_asked || job->home == NO_HOME)
		return UINT64_MAX;
	if (job->is_searching && cur->ep)
		epochs_ask(plan, job, resync_next_candidate(job));
	if (!job->is_asked && job->state != PLAN_LOST) {
		epochs_ask(plan, job, later_wanted(plan, job));
		job->is_for_later = job->is_asked;
	}
	if (job->is_asked || job->has_failed_epoch || job_next(job)->ep ||
	    job->state == PLAN_LOST)
		return UINT64_MAX;
	/* That it may be started again is a guess; nothing that others need is given up for it. */
	if (plan->n_jobs > 1 && cur->ep && epochs_is_last(job, cur))
		return UINT64_MAX;
	next_epoch = cur->ep ? epochs_successor(job) : job->info.start_epoch;
	if (cur->ep && (job->info.is_same_every_epoch || next_epoch == cur->epoch)) {
		if (epochs_set_next(job, cur->ep) < 0)
			job->has_failed_epoch = true;
		else
			window_replay(plan, job, now_ns);
		return now_ns;
	}
	if (now_ns < job->ask_not_before_ns)
		return job->ask_not_before_ns;
	epochs_ask(plan, job, next_epoch);
	return UINT64_MAX;
}

uint64_t epochs_step(struct plan *plan, struct plan_job *job, uint64_t now_ns)
{
	uint64_t wake = epochs_request(plan, job, now_ns);

	return epochs_touch_keys(plan, job) || epochs_absorb(plan, job) ? now_ns : wake;
}
