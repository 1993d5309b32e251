/* SPDX-License-Identifier: Apache-2.0 */
/* The runner. The cache tells reads a few times a second (on the planner's thread), the reactor
 * tells steps of the job; both are only copied here (told.c). A thread of its own, at low priority,
 * takes them once a second, feeds the statistics (feed.c), has passes judged that are over, and
 * leaves a copy of the numbers for whoever asks. Judging a pass of a million reads takes a tenth of
 * a second: it must never happen on the planner or the reactor. The lock is a leaf. */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/cpus.h"
#include "clairfs/base/log.h"
#include "clairfs/base/thr.h"
#include "feed.h"
#include "wait_priv.h"

enum { NICE = 10 };

struct wait {
	struct wait_params params;
	struct metrics *metrics;
	struct stall *stall;    /* the thread's, like the next two; of nobody when it does not run */
	struct feeder feed;
	struct machine machine;
	struct sampling sampling;
	_Atomic uint32_t last_reader;
	_Atomic bool is_finished; /* the job has read all of its order */
	struct thr thr;
	struct mutex mu;
	struct cond cv;
	struct told told; /* mu, like all below */
	bool is_stopping;
	bool has_order; /* as told, whether or not it was taken yet */
	bool is_cut;    /* and nothing is said of it */
	uint64_t dropped;
	struct stall_node node;
	struct wait_pages pages;
	struct stall_numbers *ranks; /* [STALL_RANKS_MAX] */
	uint32_t n_shown;
	struct verdicts verdicts; /* of its own lock */
};

/* --- what the probe tells --- */

void wait_reads(void *wait, const struct read_facts *facts, uint32_t n)
{
	struct wait *a = wait;

	for (uint32_t i = 0; i < n; i++)
		if (facts[i].reader)
			atomic_store_explicit(&a->last_reader, facts[i].reader,
					      memory_order_relaxed);
	mutex_lock(&a->mu);
	a->dropped += n - told_reads(&a->told, facts, n);
	mutex_unlock(&a->mu);
}

void wait_settled(void *wait, uint64_t before_ns)
{
	struct wait *a = wait;

	mutex_lock(&a->mu);
	a->told.settled_ns = before_ns;
	mutex_unlock(&a->mu);
}

static void on_load(void *wait, const struct gate_load *load)
{
	struct wait *a = wait;

	mutex_lock(&a->mu);
	a->told.load = *load; /* about once a second, as often as the thread looks */
	mutex_unlock(&a->mu);
}

/* --- life --- */

static void make_sampling(struct wait *a, uint32_t n_units)
{
	sampling_init(&a->sampling,
		      &(struct sampling_params){ .control_share = a->params.control_share,
						 .switchback_share = a->params.switchback_share,
						 .n_samples = n_units,
						 .clock = clock_monotonic() });
	a->sampling.observed = wait_reads;
	a->sampling.settled = wait_settled;
	a->sampling.load = on_load;
	a->sampling.ctx = a;
}

int wait_new(const struct wait_params *params, uint32_t n_units, struct metrics *metrics,
	     struct wait **ret, struct err *err)
{
	struct stall_params sp = { .n_units = n_units,
				   .ghost_bytes = params->ghost_bytes,
				   .switchback_share = params->switchback_share,
				   .crowded_share = params->crowded_share,
				   .cpus = cpus_allowed(),
				   .judged = verdicts_add };
	struct wait *a = calloc(1, sizeof(*a));

	if (!a)
		return err_set_errno(err, -ENOMEM, "accounting");
	sp.judged_ctx = &a->verdicts;
	verdicts_init(&a->verdicts);
	a->params = *params;
	a->metrics = metrics;
	make_sampling(a, n_units);
	mutex_init(&a->mu);
	cond_init(&a->cv);
	a->ranks = calloc(STALL_RANKS_MAX, sizeof(*a->ranks));
	if (!a->ranks || stall_new(&sp, &a->stall) < 0) {
		wait_free(a);
		return err_set_errno(err, -ENOMEM, "accounting");
	}
	a->feed = (struct feeder){ .stall = a->stall,
				 .sampling = &a->sampling,
				 .machine = &a->machine };
	stall_get_node(a->stall, &a->node);
	a->pages.warm_share = a->machine.pages.warm_share = -1;
	*ret = a;
	return 0;
}

void wait_free(struct wait *a)
{
	if (!a)
		return;
	stall_free(a->stall);
	source_pages_put(a->machine.asked);
	free(a->ranks);
	told_free(&a->told);
	feeder_fini(&a->feed);
	verdicts_fini(&a->verdicts);
	sampling_fini(&a->sampling);
	cond_fini(&a->cv);
	mutex_fini(&a->mu);
	free(a);
}

void wait_ask_source(struct wait *a, const struct dataset *ds)
{
	if (!a->params.is_ghost_auto)
		return;
	a->machine.dataset = ds;
	if (source_pages_new(ds, &a->machine.asked) < 0)
		log_warn("whether the source's client keeps pages is not known: out of memory");
}

/* --- what is told --- */

void wait_finished(struct wait *a, bool is_finished)
{
	atomic_store_explicit(&a->is_finished, is_finished, memory_order_relaxed);
}

void wait_steps(struct wait *a, const struct clairfs_step_record *steps, size_t n)
{
	mutex_lock(&a->mu);
	a->dropped += n - told_steps(&a->told, steps, n);
	mutex_unlock(&a->mu);
}

void wait_set_order(struct wait *a, const struct order_info *info, uint32_t generation,
		    bool is_measured)
{
	mutex_lock(&a->mu);
	a->is_cut = info && info->n_ranks > 0 && !is_measured;
	told_set_order(&a->told, is_measured ? info : NULL, generation,
		       clock_now(clock_monotonic()));
	sampling_set_readers(&a->sampling, told_readers(info));
	atomic_store(&a->sampling.is_idle, a->is_cut);
	a->has_order = info && info->n_ranks > 0;
	mutex_unlock(&a->mu);
}

void wait_other_jobs(struct wait *a, uint32_t generation)
{
	mutex_lock(&a->mu);
	told_hear(&a->told, generation);
	mutex_unlock(&a->mu);
}

uint32_t wait_last_reader(const struct wait *a)
{
	return atomic_load_explicit(&a->last_reader, memory_order_relaxed);
}

const struct probe *wait_probe(const struct wait *a)
{
	return &a->sampling.probe;
}

const struct drive_probe *wait_drive_probe(const struct wait *a)
{
	return &a->sampling.drive_probe;
}

struct sampling *wait_sampling(struct wait *a)
{
	return &a->sampling;
}

/* --- the thread --- */

/* Not told, but seen: by the passes of the order in force, not by those of one before it; and an
 * order that was told meanwhile says itself what is known of it. */
static void guess_readers_locked(struct wait *a) REQUIRES(a->mu)
{
	uint32_t readers = feeder_seen_readers(&a->feed);

	if (readers && !a->told.n_orders && !sampling_readers(&a->sampling))
		sampling_set_readers(&a->sampling, readers);
}

/* Metrics first: who has seen new numbers in stats.json finds them there as well. */
static void publish_numbers(struct wait *a)
{
	uint32_t n = stall_n_ranks(a->stall);

	assert(n <= STALL_RANKS_MAX);
	wait_publish(a->metrics, a->stall);
	mutex_lock(&a->mu);
	guess_readers_locked(a);
	stall_get_node(a->stall, &a->node);
	a->n_shown = n;
	for (uint32_t i = 0; i < n; i++)
		stall_get_rank(a->stall, i, &a->ranks[i]);
	mutex_unlock(&a->mu);
}

void wait_look(struct wait *a, struct wait_view *ret)
{
	*ret = (struct wait_view){ .params = a->params,
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
	if (ret->node.why == STALL_NO_ORDER && a->has_order && a->is_cut)
		ret->node.why = STALL_CUT;
	else if (ret->node.why == STALL_NO_ORDER && a->has_order)
		ret->node.why = STALL_NOTHING_READ;
	mutex_unlock(&a->mu);
}

const struct machine *wait_machine(const struct wait *a)
{
	return &a->machine;
}

json_t *wait_replay_json(struct wait *a, uint32_t rank)
{
	return verdicts_replay_json(&a->verdicts, rank);
}

struct verdicts *wait_verdicts(struct wait *a)
{
	return &a->verdicts;
}

static void show_pages(struct wait *a)
{
	mutex_lock(&a->mu);
	a->pages = a->machine.pages;
	mutex_unlock(&a->mu);
}

static void round_once(struct wait *a, struct told *t, bool is_final)
{
	uint64_t now = clock_now(clock_monotonic());

	if (machine_pages(&a->machine, a->stall))
		show_pages(a);
	feeder_take(&a->feed, t, now, is_final);
	machine_feed(&a->machine, a->stall, now);
	stall_finished(a->stall, atomic_load(&a->is_finished));
	stall_judge(a->stall, now, is_final);
	publish_numbers(a);
}

static void *wait_main(void *arg)
{
	struct wait *a = arg;
	bool is_final = false;

	/* The thread's own number: niceness is per thread in Linux. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
	while (!is_final) {
		struct told t;

		mutex_lock(&a->mu);
		if (!a->is_stopping)
			cond_wait_for(&a->cv, &a->mu, NS_PER_S);
		is_final = a->is_stopping;
		t = told_take(&a->told);
		mutex_unlock(&a->mu);
		assert(t.n_reads <= t.reads_size && t.n_steps <= t.steps_size);
		round_once(a, &t, is_final);
		told_free(&t);
	}
	return NULL;
}

int wait_start(struct wait *a, struct err *err)
{
	return thr_start(&a->thr, "cl-stall", wait_main, a, err);
}

void wait_stop(struct wait *a)
{
	if (!a)
		return;
	mutex_lock(&a->mu);
	a->is_stopping = true;
	cond_broadcast(&a->cv);
	mutex_unlock(&a->mu);
	thr_join(&a->thr);
}
