/* SPDX-License-Identifier: Apache-2.0 */
/* Looks now and then whether the plan has lost the order that was told, and has it tried with other
 * numbers of the files (infer/renumber.c). What fits replaces the order, and the plan verifies it like
 * any other.
 *
 * The owner looks; trials take a thread of their own, which has the lowest priority. After a search
 * without success the next one of this order waits for four times as many reads of one loss. Lists are
 * left alone, they name the files. An order that was told meanwhile is never replaced. A stop waits for
 * the trial under way. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include "clairfs/base/log.h"
#include "orders_priv.h"

#define LOOK_NS (NS_PER_S / 2)
#define OPENS 256u      /* that are compared */
#define FIRST_READS 96u /* of a lost order before the first search */
#define RENUMBER_NICE 19
#define EPOCH_BYTES 16u /* per sample, of an epoch that is tried */

struct renumber {
	struct orders *o;
	struct thr thread;
	struct mutex mu;
	struct cond cv;
	bool is_stopping; /* mu */
	atomic_bool is_cancelled;
	/* What to try: the owner's while text is NULL, else the thread's. */
	char *text; /* mu: NULL or not */
	uint64_t epoch;
	uint32_t opens[OPENS], n_opens;
	/* the owner's: */
	uint64_t look_ns;          /* when to look again */
	uint64_t spec, next_reads; /* hash of the spec looked at, and when to try it */
	bool is_large_said;
};

/* --- the thread --- */

static int make_quietly(void *orders, const struct order_spec *spec, struct order **ret)
{
	struct err err = { 0 }; /* a kind that cannot be with this many samples is no error here */

	return orders_make(orders, spec, ret, &err);
}

/* In place of the order in force, if that is `before` still. */
static int offer_order(struct renumber *r, const char *before, const char *text, struct err *err)
{
	struct order_spec *spec = NULL;
	struct message m = { .kind = MESSAGE_RENUMBERED, .before = before };
	int rc = order_spec_parse(text, &spec, &m.err);

	m.spec = spec;
	if (rc == 0)
		rc = orders_make(r->o, spec, &m.take_order, &m.err);
	if (rc == 0) {
		inbox_post(&r->o->inbox, &m);
		rc = inbox_await(&r->o->inbox, &m);
	}
	order_spec_free(spec);
	*err = m.err;
	return rc;
}

static void try_numbers(struct renumber *r)
{
	struct infer_lost lost = { .dataset = r->o->dataset,
				   .epoch = r->epoch,
				   .opens = r->opens,
				   .n_opens = r->n_opens,
				   .make = make_quietly,
				   .ctx = r->o,
				   .tried = &r->o->numberings_tried,
				   .cancel = &r->is_cancelled };
	AUTO_FREE char *found = NULL;
	struct order_spec *spec = NULL;
	struct err err = { 0 };
	int rc;

	assert(r->n_opens >= FIRST_READS && r->n_opens <= OPENS);
	if (order_spec_parse(r->text, &spec, &err) < 0)
		return;
	lost.spec = spec;
	found = infer_renumber(&lost);
	if (found && !atomic_load(&r->is_cancelled)) {
		rc = offer_order(r, r->text, found, &err);
		if (rc == 0)
			log_info("%s: the files are numbered in another way than was told: %s",
				 r->o->mountpoint, found);
		else if (err.code && rc != -ECANCELED)
			log_warn("%s: %s", found, err.msg);
	}
	order_spec_free(spec);
}

static void *renumber_main(void *arg)
{
	struct renumber *r = arg;

	/* The thread's own number: niceness is per thread in Linux. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), RENUMBER_NICE);
	mutex_lock(&r->mu);
	while (!r->is_stopping) {
		if (!r->text) {
			cond_wait(&r->cv, &r->mu);
			continue;
		}
		mutex_unlock(&r->mu);
		try_numbers(r);
		mutex_lock(&r->mu);
		free(TAKE(r->text));
	}
	mutex_unlock(&r->mu);
	return NULL;
}

/* --- the owner --- */

/* Epochs are computed whole, outside of what the planner may use. */
static bool is_too_large(struct renumber *r)
{
	const struct orders *o = r->o;

	if ((uint64_t)dataset_n_samples(o->dataset) * EPOCH_BYTES <= o->search.ram / 4)
		return false;
	if (!r->is_large_said)
		log_info("%s: other ways to number the files are not tried: that takes more than a "
			 "quarter of ram",
			 o->mountpoint);
	r->is_large_said = true;
	return true;
}

static bool is_at_work(struct renumber *r)
{
	bool is_at_work;

	mutex_lock(&r->mu);
	is_at_work = r->text;
	mutex_unlock(&r->mu);
	return is_at_work;
}

static void give_to_thread(struct renumber *r, char *take_text)
{
	mutex_lock(&r->mu);
	assert(!r->text);
	r->text = take_text;
	cond_signal(&r->cv);
	mutex_unlock(&r->mu);
}

static void take_opens(struct renumber *r)
{
	struct sample_id last[OPENS];

	r->n_opens = r->o->carrier->last_opens(r->o->carrier_ctx, last, OPENS);
	assert(r->n_opens <= OPENS);
	for (uint32_t i = 0; i < r->n_opens; i++)
		r->opens[i] = last[i].v;
}

static void look_for_loss(struct renumber *r)
{
	AUTO_FREE char *text = orders_text(r->o);
	struct drive_job views[PLAN_JOBS];
	const struct plan_status *plan = &views[0].plan;
	uint64_t spec;

	if (r->o->jobs.n && r->o->jobs.job[0].is_of_records)
		return; /* there are no files to be numbered */
	if (r->o->carrier->get_jobs(r->o->carrier_ctx, views) != 1 || !text ||
	    plan->state != PLAN_LOST || strncmp(text, "list:", strlen("list:")) == 0 ||
	    is_too_large(r))
		return;
	spec = XXH3_64bits(text, strlen(text));
	if (spec != r->spec) {
		r->spec = spec;
		r->next_reads = FIRST_READS;
	}
	if (plan->lost_reads < r->next_reads)
		return;
	r->next_reads = 4 * plan->lost_reads;
	r->epoch = plan->epoch;
	take_opens(r);
	if (r->n_opens >= FIRST_READS)
		give_to_thread(r, TAKE(text));
}

uint64_t renumber_step(struct renumber *r, uint64_t now_ns)
{
	if (!r)
		return UINT64_MAX;
	if (now_ns >= r->look_ns) {
		if (!is_at_work(r))
			look_for_loss(r);
		r->look_ns = now_ns + LOOK_NS;
	}
	return r->look_ns;
}

int renumber_start(struct orders *o, struct err *err)
{
	struct renumber *r = calloc(1, sizeof(*r));

	if (!r)
		return err_set(err, -ENOMEM, "out of memory");
	r->o = o;
	mutex_init(&r->mu);
	cond_init(&r->cv);
	o->renumber = r;
	return thr_start(&r->thread, "cl-renumber", renumber_main, r, err);
}

void renumber_stop(struct orders *o)
{
	struct renumber *r = o->renumber;

	if (!r)
		return;
	atomic_store(&r->is_cancelled, true);
	mutex_lock(&r->mu);
	r->is_stopping = true;
	cond_signal(&r->cv);
	mutex_unlock(&r->mu);
	thr_join(&r->thread);
	free(r->text);
	cond_fini(&r->cv);
	mutex_fini(&r->mu);
	free(r);
	o->renumber = NULL;
}
