/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One order for another while everything runs. The planner does it between two of its rounds, when
 * no action of the old plan waits to be carried out; what is under way belongs to the old plan's
 * generation and its answers are absorbed. What the old plan held in the arena becomes plain: reads
 * find it, the new plan takes it over without asking the source, and it goes when room is needed.
 * Samples in the store are told to the new plan a share at a time, and looked up once more when the
 * store has found something of other daemons: only then it knows what of that is wanted here.
 *
 * The new plan is shown the last opens once it has its first epoch, because a job may tell its
 * order after it has begun. These opens may as well be another job's: when they do not agree with
 * the order, they are left out. Then nothing is lost, and a wrong start is worse than none: a lost
 * plan prefetches nothing. Whether they agree is seen from the epoch before, or where that says
 * nothing (few opens, a short epoch) by trying it, and then the plan is made afresh.
 *
 * Planner thread, but for plan_make. It must never wait for I/O.
 */
#include "cache_priv.h"

#include "clairfs/base/cleanup.h"
#include "clairfs/tape.h"

enum { KEPT_PER_ROUND = 4096, ECHO_DISTANCE = 64, SEEN_SIZE = 4 * RECENT_MAX };
enum { GIVEN_BACK_PER_ROUND = 256, WORDS_PER_ROUND = 4096 };
#define KEPT_REST_NS (10 * NS_PER_S) /* a look costs a second of CPU for a million samples */
enum { FIT_READS = 256, FIT_LENGTH = 1024 }; /* fewer, or a shorter epoch, might fit by chance */

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

/* --- what the old plan holds --- */

/* A fetch under way goes on for whoever reads the piece; one that nobody has begun does not. */
static void release_object_locked(struct cache *c, struct shard *s, struct object *obj,
				  struct list *dead) REQUIRES(s->mu)
{
	if (obj->job)
		obj->job->n_left--;
	obj->job = NULL;
	if (!obj->is_planned)
		return;
	if (obj->state == OBJECT_RESIDENT)
		object_make_plain_locked(c, s, obj);
	else if (obj->state == OBJECT_QUEUED)
		object_drop_locked(c, s, obj, dead);
	else
		obj->is_planned = false;
}

/* Pieces of an older version of the file may be on their way outside the table: the last of them
 * frees the job. */
static void release_entry_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 struct list *dead) REQUIRES(s->mu)
{
	struct sample_fetch *job = es->job;
	struct list *node = es->objects.next, *next;

	if (es->hold == HOLD_NONE)
		return;
	for (; node != &es->objects; node = next) {
		next = node->next;
		release_object_locked(c, s, container_of(node, struct object, in_entry), dead);
	}
	es->hold = HOLD_NONE;
	es->job = NULL;
	if (job && job->n_left == 0)
		free(job);
	else if (job)
		job->is_orphan = true;
	entry_put_locked(c, s, es);
}

static void release_shard(struct cache *c, struct shard *s)
{
	struct entry_state *es, *next;
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	for (uint32_t b = 0; b < c->buckets; b++)
		for (es = s->entries[b]; es; es = next) {
			next = es->next_hash;
			release_entry_locked(c, s, es, &dead);
		}
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
}

/* Pages that were pushed stay with the kernel; that they are gone again is of no interest to a plan
 * that has not pushed them. When the job is over nobody will read them, and they are given back, a
 * share at a time: there may be millions. What is left of that when the next order comes stays. */
static void forget_staged(struct cache *c, bool is_over)
{
	uint32_t words = dataset_n_samples(c->p.dataset) / 64 + 1;

	c->give_back_at = is_over ? 0 : UINT32_MAX;
	for (uint32_t i = 0; !is_over && i < words; i++)
		atomic_store(&c->staged[i], 0);
}

bool switch_give_back(struct cache *c)
{
	uint32_t words = dataset_n_samples(c->p.dataset) / 64 + 1, left = GIVEN_BACK_PER_ROUND;
	uint32_t end;

	if (c->give_back_at >= words)
		return false;
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

/* Returns the old one, the caller's to free. is_over: nobody reads by it any more. */
static struct plan *install_plan(struct cache *c, struct plan *take_plan, bool is_over) MUST_USE;
static struct plan *install_plan(struct cache *c, struct plan *take_plan, bool is_over)
{
	struct plan *old = c->plan;

	for (int i = 0; i < SHARDS; i++)
		release_shard(c, &c->shards[i]);
	forget_staged(c, is_over);
	c->plan = take_plan;
	c->notes.planned_arena_bytes = c->p.arena_bytes; /* tell_memory says if it is less by now */
	c->notes.planned_stage_bytes = c->p.stage_bytes;
	c->counted = (struct plan_status){ 0 };
	atomic_fetch_add(&c->generation, 1);
	c->kept_at = cache_keeps_any(c) ? 0 : UINT32_MAX;
	c->kept_next_ns = 0;
	return old;
}

/* The plan may have been made of sizes that are older than what was told since. */
static void tell_resized(struct cache *c, uint64_t now_ns)
{
	uint32_t words = dataset_n_samples(c->p.dataset) / 64 + 1;

	for (uint32_t w = 0; w < words; w++) {
		uint64_t bits = c->notes.resized[w];

		if (bits)
			c->notes.resized[w] = 0;
		for (; bits; bits &= bits - 1) {
			uint32_t sample = w * 64 + (uint32_t)__builtin_ctzll(bits);
			struct entry_id entry = { sample };
			struct plan_event ev = { .kind = PLAN_EV_RESIZED, .sample = sample };

			ev.bytes = dataset_size(c->p.dataset, entry);
			plan_event(c->plan, now_ns, &ev);
		}
	}
}

void switch_order(struct cache *c, struct order_request *request, uint64_t now_ns)
{
	struct order_ref *order = TAKE(request->order);

	c->why_none = NULL;
	if (c->n_jobs && !order)
		c->why_none = request->why ? request->why : "the order was taken back";
	atomic_fetch_add(&c->orders, 1);
	request->job = atomic_load(&c->orders);
	request->plan = install_plan(c, request->plan, !order);
	planned_set(c, order, now_ns);
	tell_resized(c, now_ns);
	c->recent.is_replay_due = order && c->recent.count;
	c->recent.since = 0;
	request->status = 0;
}

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
	for (uint32_t i = 0; i < piece_count(id.size); i++)
		tier_unwant(c->keeper, (struct piece_key){ entry, i }, &kept);
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
		if (may_unwant)
			unwant(c, (struct entry_id){ sample });
	} else if (is_in_store(c, (struct entry_id){ sample })) {
		plan_event(c->plan, now_ns, &ev);
	}
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

void switch_absorb(struct cache *c, struct completion *done, uint64_t now_ns)
{
	if (done->event.kind == PLAN_EV_PINNED && done->event.status == 0)
		tell_kept(c, done->event.sample, true, now_ns);
}

/* --- the last opens --- */

void recent_opened(struct cache *c, uint32_t sample)
{
	struct recent *r = &c->recent;

	r->sample[r->head] = sample;
	r->is_placed[r->head] = false;
	r->head = (r->head + 1) % RECENT_MAX;
	r->count = MIN(r->count + 1, (uint32_t)RECENT_MAX);
	r->since = MIN(r->since + 1, (uint32_t)RECENT_MAX);
}

static uint32_t ring_at(const struct recent *r, uint32_t ago)
{
	return (r->head + 2 * RECENT_MAX - 1 - ago) % RECENT_MAX;
}

void recent_placed(struct cache *c)
{
	c->recent.is_placed[ring_at(&c->recent, 0)] = true;
}

uint32_t recent_ago(const struct recent *r, uint32_t ago)
{
	return r->sample[ring_at(r, ago)];
}

bool recent_was_placed(const struct recent *r, uint32_t ago)
{
	return r->is_placed[ring_at(r, ago)];
}

void recent_tell(struct cache *c, struct order_request *request)
{
	request->n_opens = MIN(c->recent.count, request->max_opens);
	for (uint32_t i = 0; i < request->n_opens; i++)
		request->opens[i] = recent_ago(&c->recent, request->n_opens - 1 - i);
	request->status = 0;
}

/* How many of the last opens may be of one pass: in a pass no sample comes again, but for jobs that
 * open a file more than once in a row. */
static uint32_t recent_pass(const struct recent *r)
{
	struct {
		uint32_t sample, ago; /* ago + 1; 0: free */
	} *seen = calloc(SEEN_SIZE, sizeof(*seen));
	uint32_t ago;

	for (ago = 0; seen && ago < r->count; ago++) {
		uint32_t sample = recent_ago(r, ago), at = sample * 2654435761u % SEEN_SIZE;

		while (seen[at].ago && seen[at].sample != sample)
			at = (at + 1) % SEEN_SIZE;
		if (seen[at].ago && ago + 1 - seen[at].ago > ECHO_DISTANCE)
			break;
		seen[at].sample = sample;
		seen[at].ago = ago + 1;
	}
	free(seen);
	return ago;
}

bool recent_is_agreed(const struct plan_status *st)
{
	return st->state == PLAN_FOLLOWING || st->state == PLAN_FINISHED ||
	       (st->state == PLAN_CHECKING && st->match_percent >= 95);
}

static void replay_last(struct cache *c, uint32_t n, uint64_t now_ns)
{
	while (n-- > 0) {
		struct plan_event ev = { .kind = PLAN_EV_OPENED,
					 .sample = recent_ago(&c->recent, n) };

		plan_event(c->plan, now_ns, &ev);
	}
}

void recent_flush(struct cache *c, uint64_t now_ns)
{
	c->recent.is_replay_due = false;
	c->jobs[0].is_show_due = c->recent.count > 0;
	replay_last(c, c->recent.since, now_ns);
}

bool recent_is_elsewhere(const struct cache *c, const struct order_epoch *ep)
{
	const struct recent *r = &c->recent;
	uint32_t reads[FIT_READS];

	if (!ep || ep->length < FIT_LENGTH || r->count < FIT_READS)
		return false;
	for (uint32_t i = 0; i < FIT_READS; i++)
		reads[i] = recent_ago(r, FIT_READS - 1 - i);
	return !plan_epoch_fits(order_info(c->jobs[0].order->order), ep, reads, FIT_READS);
}

void recent_replay(struct cache *c, bool is_elsewhere, uint64_t now_ns)
{
	struct recent *r = &c->recent;
	struct plan_status st;
	struct plan *plan;

	r->is_replay_due = false;
	plan_get_status(c->plan, &st);
	/* Or so small that any reads seem to agree. */
	if (is_elsewhere || st.length < 4 * st.span) {
		replay_last(c, r->since, now_ns);
		return;
	}
	replay_last(c, MAX(recent_pass(r), r->since), now_ns);
	plan_get_status(c->plan, &st);
	c->jobs[0].counted_mismatches = st.mismatches; /* found in hindsight, not by reads */
	if (recent_is_agreed(&st))
		return;
	if (plan_make(c, c->jobs[0].order, &plan) != 0) {
		cache_degrade(c, "out of memory");
		return;
	}
	plan_free(install_plan(c, plan, false));
	c->jobs[0].counted_mismatches = c->jobs[0].counted_resyncs = 0;
	replay_last(c, r->since, now_ns);
}
