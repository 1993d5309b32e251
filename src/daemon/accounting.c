/* SPDX-License-Identifier: Apache-2.0 */
/* Stall accounting in a daemon. The cache tells reads a few times a second (on the planner's
 * thread), the reactor tells steps of the job; both are only copied here. A thread of its own, at
 * low priority, takes them once a second, feeds a struct stall, has passes judged that are over,
 * and leaves a copy of the numbers for whoever asks. Judging a pass of a million reads takes a
 * tenth of a second: it must never happen on the planner or the reactor.
 *
 * A job may tell an order for each epoch. Reads name the order that their place is of, and are told
 * up to seconds after they were made, so they come when the next order is in force already; and a
 * moment before accounting hears of their own order, which they are then held for.
 *
 * Of several jobs at once one is accounted for. Reads of the others are told as well, and have no
 * place; when the one is gone and the next takes its turn, nothing of before counts for it: it is
 * the same time of the same ranks, and time that was judged for the one must not be judged again.
 *
 * What finds no room is dropped and counted; the pass it belongs to has a hole then, and with many
 * holes is not judged. The lock is a leaf. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "accounting_priv.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "clairfs/base/thr.h"
#include "clairfs/daemon.h"
#include "clairfs/hint.h"

enum { NOTES_MAX = 1 << 18, STEPS_MAX = 1 << 16, NICE = 10 };
#define SWITCHBACK_PERCENT_MIN 0.1
/* An order that is in force in the cache is told here by then, if ever. */
#define HELD_NS (10 * NS_PER_S)

struct told_order {
	struct stall_job job;
	uint32_t ranks[STALL_RANKS_MAX];
	uint64_t turn_ns; /* until then another job was accounted for; 0: none was */
};

/* What was told since the thread last looked. */
struct told {
	struct cache_read_note *note;
	struct clairfs_step_record *step;
	struct told_order *order;
	size_t n_notes, notes_size, n_steps, steps_size, n_orders, orders_size;
	struct cache_load load; /* the last one */
	uint64_t settled_ns;    /* reads opened before are told; 0: not known */
	uint32_t heard;         /* orders up to this one were told, or are of other jobs */
	bool has_heard;
};

struct accounting {
	struct accounting_params params;
	struct metrics *metrics;
	struct stall *stall; /* the thread's; of nobody when it does not run */
	/* The thread's, of the orders taken so far: by generation modulo their number. */
	struct order_taken {
		bool is_known;
		uint32_t generation, n_ranks;
		uint64_t from_ns, until_ns; /* reads with a place lie in between */
	} taken[STALL_ORDERS];
	uint32_t generation;      /* of the last one */
	struct told held;         /* the thread's: reads of orders that were not told yet */
	uint64_t held_ns;         /* since when */
	_Atomic uint64_t full;    /* bit per class of sizes: no more control reads */
	_Atomic uint32_t readers; /* of the job here, all ranks together; 0: not known */
	_Atomic bool is_finished; /* the job has read all of its order */
	struct accounting_machine machine; /* the thread's */
	struct thr thr;
	struct mutex mu;
	struct cond cv;
	struct told told; /* mu, like all below */
	bool is_stopping;
	bool has_order; /* as told, whether or not it was taken yet */
	uint64_t dropped;
	struct stall_node node;
	struct source_pages_found pages;
	struct stall_numbers *ranks; /* [STALL_RANKS_MAX] */
	uint32_t n_shown;
	struct verdicts verdicts; /* of its own lock */
};

/* --- options --- */

static int parse_share(const char *text, double *ret)
{
	uint64_t n;

	*ret = 0;
	if (strcmp(text, "off") == 0)
		return 0;
	if (strncmp(text, "1/", 2) != 0)
		return -EINVAL;
	if (text_to_u64(text + 2, &n) < 0 || n < 1 || n > 1000000000)
		return -EINVAL;
	*ret = 1.0 / (double)n;
	return 0;
}

/* Percent, also with its sign. */
static int parse_percent(const char *text, double *ret)
{
	size_t len = strlen(text);
	char number[32];
	double percent;

	*ret = 0;
	if (strcmp(text, "off") == 0)
		return 0;
	len -= len && text[len - 1] == '%';
	if (len >= sizeof(number))
		return -EINVAL;
	memcpy(number, text, len);
	number[len] = 0;
	if (text_to_real(number, &percent) < 0 || !(percent >= SWITCHBACK_PERCENT_MIN) ||
	    percent > 100 * SWITCHBACK_SHARE_MAX)
		return -EINVAL;
	*ret = percent / 100;
	return 0;
}

int accounting_parse(const struct mount_opts *opts, struct accounting_params *ret, struct err *err)
{
	/* An option without a value is NULL. */
	const char *control = opts->control_reads ? opts->control_reads : "";
	const char *switchback = opts->switchback ? opts->switchback : "";

	ret->crowded_share = (double)opts->cpu_pressure / 100;
	if (parse_share(control, &ret->control_share) < 0)
		return err_set(err, -EINVAL,
			       "option control_reads: '%s' is neither 1/N, one of N reads, nor off",
			       control);
	if (parse_percent(switchback, &ret->switchback_share) < 0)
		return err_set(err, -EINVAL,
			       "option switchback: '%s' is neither percent, 0.1 to 10, nor off",
			       switchback);
	ret->is_ghost_auto = opts->ghost_bytes == CONF_AUTO;
	ret->ghost_bytes = ret->is_ghost_auto ? ghost_bytes_auto() : opts->ghost_bytes;
	return 0;
}

/* --- life --- */

int accounting_new(const struct accounting_params *params, uint32_t n_samples,
		   struct metrics *metrics, struct accounting **ret, struct err *err)
{
	struct stall_params sp = { .n_samples = n_samples,
				   .ghost_bytes = params->ghost_bytes,
				   .switchback_share = params->switchback_share,
				   .crowded_share = params->crowded_share,
				   .cpus = cpus_allowed(),
				   .judged = verdicts_add };
	struct accounting *a = calloc(1, sizeof(*a));

	if (!a)
		return err_set_errno(err, -ENOMEM, "accounting");
	sp.judged_ctx = &a->verdicts;
	verdicts_init(&a->verdicts);
	a->params = *params;
	a->metrics = metrics;
	mutex_init(&a->mu);
	cond_init(&a->cv);
	a->ranks = calloc(STALL_RANKS_MAX, sizeof(*a->ranks));
	if (!a->ranks || stall_new(&sp, &a->stall) < 0) {
		accounting_free(a);
		return err_set_errno(err, -ENOMEM, "accounting");
	}
	stall_get_node(a->stall, &a->node);
	a->pages.warm_share = a->machine.pages.warm_share = -1;
	*ret = a;
	return 0;
}

static void told_free(struct told *t)
{
	free(t->note);
	free(t->step);
	free(t->order);
	*t = (struct told){ 0 };
}

void accounting_free(struct accounting *a)
{
	if (!a)
		return;
	stall_free(a->stall);
	source_pages_put(a->machine.asked);
	free(a->ranks);
	told_free(&a->told);
	told_free(&a->held);
	verdicts_fini(&a->verdicts);
	cond_fini(&a->cv);
	mutex_fini(&a->mu);
	free(a);
}

void accounting_ask_source(struct accounting *a, const struct dataset *ds)
{
	if (!a->params.is_ghost_auto)
		return;
	a->machine.dataset = ds;
	if (source_pages_new(ds, &a->machine.asked) < 0)
		log_warn("whether the source's client keeps pages is not known: out of memory");
}

/* --- what is told --- */

/* Room for n more, or for as many as there may be. */
static size_t room_for(void **list, size_t size_of_one, size_t used, size_t *size, size_t n,
		       size_t most)
{
	size_t want = MIN(used + n, most), grown = MAX(*size, 64);
	void *p;

	while (grown < want)
		grown *= 2;
	if (grown > *size) {
		p = realloc(*list, grown * size_of_one);
		if (!p)
			return *size - used;
		*list = p;
		*size = grown;
	}
	return want - used;
}

void accounting_reads(struct accounting *a, const struct cache_read_note *notes, uint32_t n)
{
	struct told *t = &a->told;
	size_t room;

	mutex_lock(&a->mu);
	room = room_for((void **)&t->note, sizeof(*t->note), t->n_notes, &t->notes_size, n,
			NOTES_MAX);
	room = MIN(room, n);
	if (room)
		memcpy(&t->note[t->n_notes], notes, room * sizeof(*notes));
	t->n_notes += room;
	a->dropped += n - room;
	mutex_unlock(&a->mu);
}

void accounting_settled(struct accounting *a, uint64_t before_ns)
{
	mutex_lock(&a->mu);
	a->told.settled_ns = before_ns;
	mutex_unlock(&a->mu);
}

void accounting_finished(struct accounting *a, bool is_finished)
{
	atomic_store_explicit(&a->is_finished, is_finished, memory_order_relaxed);
}

void accounting_steps(struct accounting *a, const struct clairfs_step_record *steps, size_t n)
{
	struct told *t = &a->told;
	size_t room;

	mutex_lock(&a->mu);
	room = room_for((void **)&t->step, sizeof(*t->step), t->n_steps, &t->steps_size, n,
			STEPS_MAX);
	room = MIN(room, n);
	if (room)
		memcpy(&t->step[t->n_steps], steps, room * sizeof(*steps));
	t->n_steps += room;
	a->dropped += n - room;
	mutex_unlock(&a->mu);
}

void accounting_load(struct accounting *a, const struct cache_load *load)
{
	mutex_lock(&a->mu);
	a->told.load = *load; /* about once a second, as often as the thread looks */
	mutex_unlock(&a->mu);
}

static uint32_t clamp(uint64_t n)
{
	return (uint32_t)MIN(n, 1u << 20);
}

/* With too many at once the last one gives way: nobody reads that much in between. */
static void push_order_locked(struct told *t, const struct told_order *order)
{
	uint64_t turn_ns = order->turn_ns;

	if (room_for((void **)&t->order, sizeof(*order), t->n_orders, &t->orders_size, 1,
		     STALL_ORDERS))
		t->n_orders++;
	else if (t->n_orders)
		turn_ns = MAX(turn_ns, t->order[t->n_orders - 1].turn_ns);
	if (t->n_orders) {
		t->order[t->n_orders - 1] = *order;
		t->order[t->n_orders - 1].turn_ns = turn_ns;
	}
}

static bool is_heard_of(const struct told *t, uint32_t generation)
{
	return t->has_heard && (int32_t)(generation - t->heard) <= 0;
}

static void hear_locked(struct told *t, uint32_t generation)
{
	if (is_heard_of(t, generation))
		return;
	t->heard = generation;
	t->has_heard = true;
}

void accounting_set_order(struct accounting *a, const struct order_info *info, uint32_t generation)
{
	struct told_order o = { .job.id = generation };

	if (info) {
		o.job.n_ranks = info->n_ranks;
		o.job.workers = clamp(info->workers);
		o.job.prefetch = clamp(info->prefetch_factor);
		o.job.batch = clamp(info->batch);
	}
	if (info && info->n_ranks <= STALL_RANKS_MAX)
		memcpy(o.ranks, info->ranks, info->n_ranks * sizeof(*o.ranks));
	mutex_lock(&a->mu);
	/* In force before it is accounted for: it was another job's until now. */
	if (info && is_heard_of(&a->told, generation))
		o.turn_ns = clock_now(clock_monotonic());
	hear_locked(&a->told, generation);
	push_order_locked(&a->told, &o);
	atomic_store(&a->readers, o.job.workers * o.job.n_ranks);
	a->has_order = o.job.n_ranks > 0;
	mutex_unlock(&a->mu);
}

void accounting_other_jobs(struct accounting *a, uint32_t generation)
{
	mutex_lock(&a->mu);
	hear_locked(&a->told, generation);
	mutex_unlock(&a->mu);
}

bool accounting_wants_control(struct accounting *a, uint64_t bytes)
{
	uint32_t bits = bytes ? 64 - (uint32_t)__builtin_clzll(bytes) : 0;

	return !(atomic_load_explicit(&a->full, memory_order_relaxed) >> MIN(bits, 63) & 1);
}

uint32_t accounting_readers(struct accounting *a)
{
	return atomic_load_explicit(&a->readers, memory_order_relaxed);
}

/* --- the thread --- */

static struct order_taken *taken_slot(struct accounting *a, uint32_t generation)
{
	return &a->taken[generation % STALL_ORDERS];
}

/* Ranks of that order; 0: it is none that was told. */
static uint32_t ranks_of(struct accounting *a, uint32_t generation)
{
	const struct order_taken *o = taken_slot(a, generation);

	return o->is_known && o->generation == generation ? o->n_ranks : 0;
}

/* Ranks of the order that it is a read of; 0: it has no place in what is accounted for. */
static uint32_t ranks_for(struct accounting *a, const struct cache_read_note *note)
{
	const struct order_taken *o = taken_slot(a, note->generation);
	uint64_t ended_ns = note->opened_ns + note->wait_ns;

	if (!note->has_use || note->opened_ns < o->from_ns ||
	    (o->until_ns && ended_ns > o->until_ns))
		return 0;
	return ranks_of(a, note->generation);
}

/* Positions run through the ranks: all ranks' first samples, then all ranks' second ones. */
static void feed_read(struct accounting *a, const struct cache_read_note *note)
{
	uint32_t ranks = ranks_for(a, note), n = MAX(ranks, 1);
	struct stall_read read = {
		.has_place = ranks > 0,
		.order = note->generation,
		.is_control = note->is_control,
		.is_switchback = note->is_switchback,
		.is_kernels = note->is_kernels,
		.is_loaded = note->is_loaded,
		.is_again = note->is_again,
		.again = note->again,
		.read_class = (uint8_t)note->read_class,
		.rank_index = (uint32_t)(note->use.position % n),
		.sample = note->sample,
		.pass = note->use.pass,
		.index = note->use.position / n,
		.bytes = note->bytes,
		.opened_ns = note->opened_ns,
		.wait_ns = note->wait_ns,
		.held_ns = note->held_ns,
		.reader = note->reader,
	};

	if (read.has_place)
		accounting_machine_saw(&a->machine, read.rank_index, note->reader);
	if (note->use.length > read.rank_index)
		read.length = DIV_ROUND_UP(note->use.length - read.rank_index, n);
	if (stall_read(a->stall, &read) < 0)
		log_limited(LOG_LEVEL_WARN, "accounting: out of memory");
	if (note->is_control && !stall_wants_control(a->stall, note->bytes)) {
		uint32_t bits = note->bytes ? 64 - (uint32_t)__builtin_clzll(note->bytes) : 0;

		atomic_fetch_or(&a->full, 1ull << MIN(bits, 63));
	}
}

static void end_orders(struct accounting *a, uint64_t until_ns)
{
	for (uint32_t i = 0; i < STALL_ORDERS; i++)
		if (a->taken[i].is_known && !a->taken[i].until_ns)
			a->taken[i].until_ns = until_ns;
}

static void take_order(struct accounting *a, struct told_order *o)
{
	o->job.ranks = o->ranks;
	o->job.is_another = o->turn_ns != 0;
	if (o->turn_ns)
		end_orders(a, o->turn_ns);
	/* A job that has read all it told leaves no order; its last reads are told after that. */
	if (o->job.n_ranks || !ranks_of(a, o->job.id))
		*taken_slot(a, o->job.id) = (struct order_taken){ .is_known = true,
								  .generation = o->job.id,
								  .n_ranks = o->job.n_ranks,
								  .from_ns = o->turn_ns };
	a->generation = o->job.id;
	if (stall_set_job(a->stall, &o->job) < 0)
		log_warn("GPU wait is not accounted for: %u ranks on this node", o->job.n_ranks);
}

/* Its order is in force in the cache, but was not told here yet. */
static bool is_early(const struct told *t, const struct cache_read_note *note)
{
	return note->has_use && !is_heard_of(t, note->generation);
}

static void take_read(struct accounting *a, const struct told *t,
		      const struct cache_read_note *note, uint64_t now_ns)
{
	struct told *h = &a->held;

	if (!is_early(t, note) || !room_for((void **)&h->note, sizeof(*h->note), h->n_notes,
					    &h->notes_size, 1, NOTES_MAX)) {
		feed_read(a, note);
		return;
	}
	if (!h->n_notes)
		a->held_ns = now_ns;
	h->note[h->n_notes++] = *note;
}

/* Those whose order was told by now; all of them when nobody is going to. */
static void feed_held(struct accounting *a, const struct told *t, uint64_t now_ns, bool is_final)
{
	struct told *h = &a->held;
	bool is_all = is_final || now_ns >= a->held_ns + HELD_NS;
	size_t n = h->n_notes;

	h->n_notes = 0;
	for (size_t i = 0; i < n; i++) {
		if (is_all || !is_early(t, &h->note[i]))
			feed_read(a, &h->note[i]);
		else
			h->note[h->n_notes++] = h->note[i];
	}
	if (!h->n_notes)
		told_free(h);
}

static void feed(struct accounting *a, const struct told *t, uint64_t now_ns, bool is_final)
{
	for (size_t i = 0; i < t->n_orders; i++)
		take_order(a, &t->order[i]);
	feed_held(a, t, now_ns, false);
	for (size_t i = 0; i < t->n_notes; i++)
		take_read(a, t, &t->note[i], now_ns);
	if (is_final)
		feed_held(a, t, now_ns, true);
	if (!a->held.n_notes)
		stall_settled(a->stall, t->settled_ns);
	if (t->load.took_ns)
		stall_load(a->stall, now_ns, t->load.took_ns, t->load.bytes);
	for (size_t i = 0; i < t->n_steps; i++)
		(void)stall_step(a->stall, &t->step[i]); /* it counts what it does not take */
}

static void publish_node(struct metrics *m, const struct stall_node *node)
{
	metrics_total_set(m, METRIC_CONTROL_READS, node->control_reads);
	metrics_total_set(m, METRIC_CONTROL_BYTES, node->control_bytes);
	metrics_total_set(m, METRIC_CONTROL_WAIT, node->control_cost_ns);
	metrics_total_set(m, METRIC_UNPLACED_READS, node->unplaced_reads);
	accounting_switch_publish(m, node);
}

static void publish_rank(struct metrics *m, const struct stall_numbers *n)
{
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_REMOVED, n->rank, n->lower_ns);
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_REPLAY, n->rank, n->estimate_ns);
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_HOOK, n->rank, n->estimate_hook_ns);
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_UPPER, n->rank, n->upper_ns);
	metrics_rank_set(m, METRIC_RANK_LATENCY_SAVED, n->rank, n->latency_saved_ns);
	metrics_rank_set(m, METRIC_RANK_JUDGED, n->rank, n->judged_ns);
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT, n->rank, n->gpu_wait_ns);
	metrics_rank_set(m, METRIC_RANK_GPU_COMPUTE, n->rank, n->compute_ns);
	metrics_rank_set(m, METRIC_RANK_STEPS, n->rank, n->steps);
	metrics_rank_set(m, METRIC_RANK_PREP_WAIT, n->rank, n->prep_wait_ns);
	accounting_switch_publish_rank(m, n);
}

/* Not told, but seen: by the passes of the order in force, not by those of one before it; and an
 * order that was told meanwhile says itself what is known of it. */
static void guess_readers_locked(struct accounting *a) REQUIRES(a->mu);
static void guess_readers_locked(struct accounting *a)
{
	uint32_t workers = stall_seen_workers(a->stall);

	if (workers && !a->told.n_orders && !atomic_load(&a->readers))
		atomic_store(&a->readers, workers * ranks_of(a, a->generation));
}

/* Metrics first: who has seen new numbers in stats.json finds them there as well. */
static void publish(struct accounting *a)
{
	uint32_t n = stall_n_ranks(a->stall);
	struct stall_numbers numbers;
	struct stall_node node;

	stall_get_node(a->stall, &node);
	publish_node(a->metrics, &node);
	for (uint32_t i = 0; i < n; i++) {
		stall_get_rank(a->stall, i, &numbers);
		publish_rank(a->metrics, &numbers);
	}
	mutex_lock(&a->mu);
	guess_readers_locked(a);
	a->node = node;
	a->n_shown = n;
	for (uint32_t i = 0; i < n; i++)
		stall_get_rank(a->stall, i, &a->ranks[i]);
	mutex_unlock(&a->mu);
}

void accounting_look(struct accounting *a, struct accounting_view *ret)
{
	*ret = (struct accounting_view){ .params = a->params,
					 .rank = calloc(STALL_RANKS_MAX, sizeof(*ret->rank)) };
	mutex_lock(&a->mu);
	ret->node = a->node;
	ret->dropped = a->dropped;
	ret->pages = a->pages;
	if (ret->rank) {
		ret->n_ranks = a->n_shown;
		memcpy(ret->rank, a->ranks, a->n_shown * sizeof(*ret->rank));
	}
	/* Told a moment ago, and not read yet. */
	if (ret->node.why == STALL_NO_ORDER && a->has_order)
		ret->node.why = STALL_NOTHING_READ;
	mutex_unlock(&a->mu);
}

const struct accounting_machine *accounting_machine_of(const struct accounting *a)
{
	return &a->machine;
}

struct verdicts *accounting_verdicts(struct accounting *a)
{
	return &a->verdicts;
}

static void show_pages(struct accounting *a)
{
	mutex_lock(&a->mu);
	a->pages = a->machine.pages;
	mutex_unlock(&a->mu);
}

static void round_once(struct accounting *a, struct told *t, bool is_final)
{
	uint64_t now = clock_now(clock_monotonic());

	if (accounting_machine_pages(&a->machine, a->stall))
		show_pages(a);
	feed(a, t, now, is_final);
	accounting_machine_feed(&a->machine, a->stall, now);
	stall_finished(a->stall, atomic_load(&a->is_finished));
	stall_judge(a->stall, now, is_final);
	publish(a);
}

static void *accounting_main(void *arg)
{
	struct accounting *a = arg;
	bool is_final = false;

	/* The thread's own number: niceness is per thread in Linux. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
	while (!is_final) {
		struct told t;

		mutex_lock(&a->mu);
		if (!a->is_stopping)
			cond_wait_for(&a->cv, &a->mu, NS_PER_S);
		is_final = a->is_stopping;
		t = a->told;
		a->told = (struct told){ .heard = t.heard, .has_heard = t.has_heard };
		mutex_unlock(&a->mu);
		round_once(a, &t, is_final);
		told_free(&t);
	}
	return NULL;
}

int accounting_start(struct accounting *a, struct err *err)
{
	return thr_start(&a->thr, "cl-stall", accounting_main, a, err);
}

void accounting_stop(struct accounting *a)
{
	if (!a)
		return;
	mutex_lock(&a->mu);
	a->is_stopping = true;
	cond_broadcast(&a->cv);
	mutex_unlock(&a->mu);
	thr_join(&a->thr);
}
