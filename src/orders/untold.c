/* SPDX-License-Identifier: Apache-2.0 */
/* Several jobs that told no order. One finder (module infer) hears of everybody's opens, as it always
 * did, so one job is found as fast as ever, however many processes it has. When that has looked in
 * vain and there are several readers (readers.c), or when a reader that is none of a known job's reads
 * something else, each of them gets a finder of its own, which is told what was kept of its opens. They
 * may be one job all the same, whose seed is an unlikely one: until the first order is found, that of
 * everybody hears of all and looks on, and whoever finds it first wins.
 *
 *	opens (planner) -> ring -> whose READ was it? -> finder of that reader -> found -> one more job
 *	      |                                                                     ranks of another
 *	      +-> finder of everybody, while there is no other                      one: they are one job
 *
 * What a finder finds is a job in the table of jobs.c, with the processes that read by it; when
 * these are gone the job is over, and so is its finder.
 *
 * An open is looked at up to a tenth of a second late: by then it is known which thread has READ the
 * sample. Where it had no READ (the kernel has the pages), it is an open of the job whose order has it
 * there, or of the only reader that no order explains, or else, beside other jobs, of nobody.
 *
 * All of it is the owner's (orders.c), but for the ring, which the planner fills. Finders have threads
 * of their own, which send what they find to the owner and wait: so it must never wait for one. A finder
 * that goes is told so and left alone until its search has ended. Nor may /proc be asked for anything
 * but what /proc/PID/stat and status have, as everything else may wait for that process. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "untold_priv.h"

#define LOOK_NS (50 * NS_PER_MS)
#define IDLE_NS (200 * NS_PER_MS)
#define PRUNE_NS NS_PER_S
#define NEVER UINT64_MAX
#define ASKED_MOST 8     /* threads that /proc is asked about in one look */
#define APART_OPENS 128  /* of readers that are told apart, before there is any order */
#define LOOKED_LEAST 2   /* that many looks at all of them were in vain */
#define READS_LEAST 8    /* opens of a process that reads by an order */
#define PLACED_SHARE 16  /* of the opens that an order has, where nothing else is asked of them */
#define MEMORY_SHARE 64u /* of ram, for finders */
#define FINDER_BYTES 65536u

static enum infer_plan plan_of(enum plan_state state)
{
	static const enum infer_plan plans[] = {
		[PLAN_NO_ORDER] = INFER_PLAN_NONE,      [PLAN_WAITING] = INFER_PLAN_BUSY,
		[PLAN_CHECKING] = INFER_PLAN_BUSY,      [PLAN_SLOWED] = INFER_PLAN_BUSY,
		[PLAN_FOLLOWING] = INFER_PLAN_FOLLOWED, [PLAN_LOST] = INFER_PLAN_LOST,
		[PLAN_FINISHED] = INFER_PLAN_ENDED,
	};

	return plans[state];
}

/* --- the table of finders --- */

static uint32_t count_finders(const struct untold *u)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < FINDERS; i++)
		n += u->finder[i] != NULL;
	return n;
}

bool untold_has_room(const struct untold *u)
{
	uint32_t n = count_finders(u);

	for (const struct finder *f = u->leaving; f; f = f->next)
		n++;
	return n < u->most;
}

/* NULL: there is no room, or no memory, for one more. */
static struct finder *finder_add(struct untold *u, const struct teller *who)
{
	struct err err = { 0 };
	struct finder *f;
	uint32_t at = 0;

	if (!untold_has_room(u))
		return NULL;
	while (u->finder[at])
		at++;
	assert(at < u->most);
	if (finder_new(u, at, who, &f, &err) < 0)
		return NULL;
	if (infer_start(f->infer, &err) < 0) {
		finder_free(f);
		return NULL;
	}
	assert(f->index == at && !u->finder[at]);
	mutex_lock(&u->mu);
	u->finder[at] = f;
	mutex_unlock(&u->mu);
	return f;
}

static void finder_remove(struct untold *u, uint32_t at)
{
	struct finder *f = u->finder[at];

	assert(at != EVERYBODY && f->is_over && f->joins != at);
	for (uint32_t i = 0; i < READERS_MAX; i++) {
		if (u->readers.reader[i].owner != at)
			continue;
		u->readers.reader[i].owner = f->joins;
		u->readers.reader[i].is_explained = f->is_joined;
		u->readers.reader[i].n_kept = 0;
	}
	mutex_lock(&u->mu);
	u->finder[at] = NULL;
	mutex_unlock(&u->mu);
	inbox_refuse(&u->o->inbox, f); /* it may be waiting for us */
	infer_quit(f->infer);
	f->next = u->leaving;
	u->leaving = f;
}

static void free_left(struct untold *u)
{
	struct finder **at = &u->leaving;

	while (*at) {
		struct finder *f = *at;

		if (!infer_has_ended(f->infer)) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		infer_stop(f->infer);
		finder_free(f);
	}
}

/* --- whose opens are these? --- */

static uint32_t reader_of_sample(const struct untold *u, struct sample_id sample)
{
	return u->o->carrier->reader_of(u->o->carrier_ctx, sample);
}

static uint32_t reader_of(struct untold *u, const struct drive_open *open, uint64_t now_ns,
			  uint32_t *asked)
{
	uint32_t tid = open->reader ? open->reader : reader_of_sample(u, open->sample);
	uint32_t at = readers_find(&u->readers, tid, now_ns);
	struct teller who;

	if (at != READER_NONE || !tid || *asked >= ASKED_MOST)
		return at;
	++*asked;
	teller_find_reader((int)tid, &who);
	return readers_learn(&u->readers, tid, &who, now_ns);
}

static void feed(struct untold *u, const struct opening *opening, uint32_t reader)
{
	const struct drive_open *open = &opening->open;
	uint32_t number = open->sample.v; /* what an order may have it as: base/ids.h */
	struct finder *to;

	if (reader != READER_NONE)
		readers_opened(&u->readers, reader, number, open->job != DRIVE_NO_JOB);
	else if (open->job == DRIVE_NO_JOB && u->is_followed)
		reader = readers_opened_unseen(&u->readers, number);
	to = reader == READER_NONE ? finder_of(u, open->job)
				   : u->finder[u->readers.reader[reader].owner];
	if (!to && reader == READER_NONE && open->job == DRIVE_NO_JOB && !opening->is_heard &&
	    !u->is_whole)
		return; /* of any of several */
	if (!to)
		to = u->finder[EVERYBODY];
	assert(to);
	if (to->index != EVERYBODY || !opening->is_heard)
		infer_note_open(to->infer, number);
	if (to->index != EVERYBODY && !opening->is_heard && u->is_whole)
		infer_note_open(u->finder[EVERYBODY]->infer, number);
}

/* Those that are old enough. */
static void drain(struct untold *u, uint64_t now_ns)
{
	uint32_t tail = atomic_load(&u->tail), head = atomic_load(&u->head), asked = 0;

	assert(head - tail <= RING && u->due - tail <= head - tail);
	for (; tail != u->due; tail++) {
		const struct opening *opening = &u->ring[tail % RING];

		feed(u, opening, reader_of(u, &opening->open, now_ns, &asked));
	}
	atomic_store(&u->tail, tail);
	/* Who reads is asked while they are there. */
	for (u->due = head; tail != head; tail++)
		(void)reader_of(u, &u->ring[tail % RING].open, now_ns, &asked);
}

/* --- who gets a finder? --- */

static bool has_own(const struct untold *u, const struct reader *r)
{
	return !r->who.id.pid || r->owner != EVERYBODY;
}

/* Of whom nothing is known that says what they read. */
struct apart {
	uint32_t reader[READERS_MAX], n, opens;
	bool is_first; /* nobody's order is known */
};

static void find_apart(struct untold *u, struct apart *ret)
{
	*ret = (struct apart){ .n = 0 };
	ret->is_first = !atomic_load(&u->is_sorted) && !u->o->jobs.n;
	for (uint32_t i = 0; i < READERS_MAX; i++) {
		const struct reader *r = &u->readers.reader[i];

		if (has_own(u, r) || !readers_is_apart(&u->readers, i) ||
		    !jobs_is_stranger(u->o, &r->who))
			continue;
		ret->reader[ret->n++] = i;
		ret->opens += r->n_kept;
	}
}

/* Where nobody's order is known there must be several readers, and no order of all of them. */
static bool is_worth_it(struct untold *u, const struct apart *apart)
{
	struct infer_status st;

	if (!apart->is_first)
		return apart->n > 0;
	if (apart->n < 2 || apart->opens < APART_OPENS)
		return false;
	infer_get_status(u->finder[EVERYBODY]->infer, &st);
	return st.searches >= u->searched + LOOKED_LEAST && (st.is_full || !st.is_searching);
}

static void give_finder(struct untold *u, struct reader *r)
{
	struct finder *f = finder_add(u, &r->who);

	if (!f)
		return;
	log_info("%s: process %d reads something else than the others: its order is looked for by "
		 "itself",
		 u->o->mountpoint, r->who.id.pid);
	r->owner = f->index;
	for (uint32_t i = 0; i < r->n_kept; i++)
		infer_note_open(f->infer, r->kept[i]);
}

/* Looks so far were for what is known by now. */
static void note_searched(struct untold *u)
{
	struct infer_status st;

	infer_get_status(u->finder[EVERYBODY]->infer, &st);
	u->searched = st.searches;
}

static void tell_apart(struct untold *u)
{
	struct apart apart;

	find_apart(u, &apart);
	if (!apart.is_first)
		note_searched(u);
	if (!is_worth_it(u, &apart))
		return;
	for (uint32_t i = 0; i < apart.n; i++)
		give_finder(u, &u->readers.reader[apart.reader[i]]);
	if (count_finders(u) < 2)
		return;
	u->is_whole |= apart.is_first; /* they may be one job */
	atomic_store(&u->is_sorted, true);
}

/* The first order was found, or told. */
static void be_whole_no_more(struct untold *u)
{
	u->is_whole = false;
	if (atomic_load(&u->finder[EVERYBODY]->id) == DRIVE_NO_JOB)
		infer_note_apart(u->finder[EVERYBODY]->infer);
}

/* --- what else there is to do --- */

/* Whether it may read by what this one found: its own, or a reader whose own finder found nothing. */
static bool is_candidate(const struct untold *u, const struct finder *f, const struct reader *r)
{
	const struct finder *own = u->finder[r->owner];

	if (!r->who.id.pid || r->n_opens < READS_LEAST)
		return false;
	return own == f || (f->index == EVERYBODY && own && atomic_load(&own->id) == DRIVE_NO_JOB &&
			    !own->is_over);
}

static void join(struct untold *u, const struct finder *f, const struct reader *r)
{
	struct finder *own = u->finder[r->owner];

	assert(own);
	if (own == f)
		return;
	own->joins = f->index;
	own->is_joined = own->is_over = true;
}

/* The processes that read by what was found. */
static void add_readers(struct untold *u, struct finder *f)
{
	bool is_fresh = f->epoch && f->is_fresh > 0;

	for (uint32_t i = 0; i < READERS_MAX; i++) {
		struct reader *r = &u->readers.reader[i];

		if (!is_candidate(u, f, r))
			continue;
		if (f->index == EVERYBODY && !r->is_explained &&
		    !readers_is_placed(&u->readers, i) &&
		    !(is_fresh && readers_fits(&u->readers, i, f->epoch, f->ranks)))
			continue;
		r->is_explained = true;
		join(u, f, r);
		jobs_add_reader(u->o, atomic_load(&f->id), &r->who);
	}
	if (is_fresh && --f->is_fresh == 0)
		order_epoch_free(TAKE(f->epoch));
}

static void see_followed(struct untold *u, const struct drive_job *views, uint32_t n)
{
	bool is_followed = n > 0;

	for (uint32_t i = 0; i < n; i++)
		is_followed = is_followed && views[i].plan.state == PLAN_FOLLOWING;
	u->is_followed = is_followed && u->was_followed;
	u->was_followed = is_followed;
}

/* How the plans of several do. */
static void note_plans(struct untold *u, const struct drive_job *views, uint32_t n)
{
	for (uint32_t i = 0; i < FINDERS; i++) {
		uint32_t id = u->finder[i] ? atomic_load(&u->finder[i]->id) : DRIVE_NO_JOB;
		enum infer_plan plan = INFER_PLAN_ENDED; /* it has left by itself */

		if (!u->finder[i])
			continue;
		for (uint32_t k = 0; k < n; k++)
			if (views[k].id == id)
				plan = plan_of(views[k].plan.state);
		if (id == DRIVE_NO_JOB) /* the opens of nobody are no job's */
			plan = i == EVERYBODY && !u->is_whole ? INFER_PLAN_BUSY : INFER_PLAN_NONE;
		infer_note_plan(u->finder[i]->infer, plan);
	}
}

static void look_at_jobs(struct untold *u)
{
	struct drive_job views[PLAN_JOBS];
	uint32_t n;

	n = u->o->carrier->get_jobs(u->o->carrier_ctx, views);
	see_followed(u, views, n);
	for (uint32_t i = 0; i < FINDERS; i++)
		if (u->finder[i] && atomic_load(&u->finder[i]->id) != DRIVE_NO_JOB)
			add_readers(u, u->finder[i]);
	if (u->is_whole && n)
		be_whole_no_more(u);
	if (atomic_load(&u->is_sorted))
		note_plans(u, views, n);
}

static bool is_in_force(const struct untold *u, uint32_t id)
{
	const struct jobs *jobs = &u->o->jobs;

	for (uint32_t i = 0; i < jobs->n; i++)
		if (jobs->job[i].id == id)
			return true;
	return false;
}

/* It has no reader any more, and no job whose end would be heard of: it never found anything, or the
 * order has left by itself, all read. */
static bool is_left_alone(const struct untold *u, const struct finder *f)
{
	for (uint32_t i = 0; i < READERS_MAX; i++)
		if (u->readers.reader[i].who.id.pid && u->readers.reader[i].owner == f->index)
			return false;
	return !is_in_force(u, atomic_load(&f->id));
}

static void prune(struct untold *u, uint64_t now_ns)
{
	if (now_ns < u->pruned_ns + PRUNE_NS)
		return;
	u->pruned_ns = now_ns;
	for (uint32_t i = 0; i < READERS_MAX; i++) {
		const struct reader *r = &u->readers.reader[i];

		if (r->who.id.pid && !process_is_alive(&r->who.id))
			readers_remove(&u->readers, i);
	}
	for (uint32_t i = 1; i < FINDERS; i++)
		if (u->finder[i] && is_left_alone(u, u->finder[i]))
			u->finder[i]->is_over = true;
}

/* The finder of everybody is the only one again, and hears of the opens from the planner: those that
 * are on their way come first. */
static void sort_no_more(struct untold *u, uint64_t now_ns)
{
	if (atomic_load(&u->finder[EVERYBODY]->id) == DRIVE_NO_JOB)
		infer_note_plan(u->finder[EVERYBODY]->infer, INFER_PLAN_NONE);
	u->due = atomic_load(&u->head);
	drain(u, now_ns);
	u->is_whole = false;
	atomic_store(&u->is_sorted, false);
	drain(u, now_ns);
}

static void remove_over(struct untold *u, uint64_t now_ns)
{
	for (uint32_t i = 1; i < FINDERS; i++)
		if (u->finder[i] && u->finder[i]->is_over)
			finder_remove(u, i);
	if (atomic_load(&u->is_sorted) && count_finders(u) == 1)
		sort_no_more(u, now_ns);
}

/* It has told an order, or may be about to, as one of several ranks. */
static bool is_told(const struct untold *u, const struct teller *who)
{
	for (uint32_t i = 0; i < u->o->jobs.n; i++)
		if (teller_is_related(who, &u->o->jobs.job[i].by.process))
			return true;
	return !jobs_is_stranger(u->o, who);
}

/* Somebody told an order: nobody looks for it in what was opened before. */
static void forget_told(struct untold *u)
{
	for (uint32_t i = 0; i < READERS_MAX; i++) {
		struct reader *r = &u->readers.reader[i];

		if (r->who.id.pid && r->owner == EVERYBODY && is_told(u, &r->who))
			r->n_kept = 0;
	}
}

static void untold_look(struct untold *u, uint64_t now_ns)
{
	if (u->is_over)
		readers_begin_again(&u->readers);
	if (u->is_told)
		forget_told(u);
	u->is_over = u->is_told = false;
	drain(u, now_ns);
	look_at_jobs(u);
	tell_apart(u);
	prune(u, now_ns);
	remove_over(u, now_ns);
	free_left(u);
}

uint64_t untold_step(struct untold *u, uint64_t now_ns)
{
	bool is_busy;

	if (u->params.effort == INFER_OFF)
		return NEVER;
	if (!atomic_exchange(&u->is_woken, false) && now_ns < u->look_ns)
		return u->look_ns;
	atomic_store(&u->is_idle, false);
	untold_look(u, now_ns);
	is_busy = atomic_load(&u->head) != atomic_load(&u->tail) || atomic_load(&u->is_sorted);
	u->look_ns = now_ns + (is_busy ? LOOK_NS : IDLE_NS);
	atomic_store(&u->is_idle, !is_busy);
	return u->look_ns;
}

/* --- what is told by others --- */

void untold_opened(struct untold *u, const struct drive_open *open)
{
	uint32_t head = atomic_load_explicit(&u->head, memory_order_relaxed);
	bool is_sorted = atomic_load_explicit(&u->is_sorted, memory_order_acquire);

	if (u->params.effort == INFER_OFF)
		return;
	if (!is_sorted)
		infer_note_open(u->finder[EVERYBODY]->infer, open->sample.v);
	if (!is_sorted && open->job != DRIVE_NO_JOB && u->skipped++ % PLACED_SHARE)
		return;
	if (head - atomic_load_explicit(&u->tail, memory_order_acquire) == RING)
		return; /* some opens are not heard of, as where the watch lost them */
	u->ring[head % RING] = (struct opening){ .open = *open, .is_heard = !is_sorted };
	atomic_store_explicit(&u->head, head + 1, memory_order_release);
	if (atomic_load_explicit(&u->is_idle, memory_order_relaxed) &&
	    atomic_exchange(&u->is_idle, false)) {
		atomic_store(&u->is_woken, true);
		inbox_wake(&u->o->inbox);
	}
}

void untold_planned(struct untold *u, enum plan_state state)
{
	if (!atomic_load_explicit(&u->is_sorted, memory_order_relaxed))
		infer_note_plan(u->finder[EVERYBODY]->infer, plan_of(state));
}

/* Its order gave way; or it looks for that of a process which has told one. The others, who told
 * nothing, are looked for still. */
static bool is_unwanted(const struct untold *u, const struct finder *f)
{
	uint32_t id = atomic_load(&f->id);

	return id == DRIVE_NO_JOB ? is_told(u, &f->who) : !is_in_force(u, id);
}

void untold_told(struct untold *u, const char *text)
{
	struct finder *all = u->finder[EVERYBODY];

	bool is_none = !text && !u->o->jobs.n;

	for (uint32_t i = 1; i < FINDERS; i++)
		if (u->finder[i] && (is_none || is_unwanted(u, u->finder[i])))
			u->finder[i]->is_over = true;
	if (!text && !is_none)
		return;
	if (text && is_in_force(u, atomic_load(&all->id)))
		return; /* one more's */
	if (is_none || atomic_load(&all->id) != DRIVE_NO_JOB)
		u->is_over = true;
	else
		u->is_told = true;
	atomic_store(&all->id, DRIVE_NO_JOB);
	infer_note_told(all->infer, text);
}

void untold_replaced(struct untold *u, const char *text)
{
	struct finder *f = u->o->jobs.n == 1 ? u->finder[EVERYBODY] : NULL;

	if (!f)
		return;
	if (atomic_load(&f->id) != DRIVE_NO_JOB)
		atomic_store(&f->id, u->o->jobs.job[0].id);
	infer_note_replaced(f->infer, text);
}

void untold_gone(struct untold *u, uint32_t id, const char *why)
{
	struct finder *f = finder_of(u, id);
	struct infer_status st;

	if (!f)
		return;
	infer_get_status(f->infer, &st);
	mutex_lock(&u->mu);
	memcpy(u->gone, st.found, sizeof(u->gone));
	mutex_unlock(&u->mu);
	atomic_store(&f->id, DRIVE_NO_JOB);
	if (f->index != EVERYBODY) {
		f->is_over = true;
		return;
	}
	infer_note_gone(f->infer, why);
	u->is_over = true;
}

/* --- from start to end --- */

int untold_new(struct orders *o, const struct infer_params *params, struct untold **ret,
	       struct err *err)
{
	uint64_t each = params->n / 2 + FINDER_BYTES; /* four bits a sample */
	struct untold *u = calloc(1, sizeof(*u));
	int rc;

	*ret = NULL;
	if (!u)
		return err_set(err, -ENOMEM, "out of memory");
	u->o = o;
	u->params = *params;
	u->most = (uint32_t)MIN(MAX(o->search.ram / MEMORY_SHARE / each, 1), (uint64_t)FINDERS);
	mutex_init(&u->mu);
	rc = finder_new(u, EVERYBODY, NULL, &u->finder[EVERYBODY], err);
	u->params.told = NULL;
	if (rc < 0) {
		untold_free(u);
		return rc;
	}
	*ret = u;
	return 0;
}

int untold_start(struct untold *u, struct err *err)
{
	return infer_start(u->finder[EVERYBODY]->infer, err);
}

void untold_stop(struct untold *u)
{
	if (!u)
		return;
	for (uint32_t i = 0; i < FINDERS; i++)
		if (u->finder[i])
			infer_stop(u->finder[i]->infer);
	for (struct finder *f = u->leaving; f; f = f->next)
		infer_stop(f->infer);
}

void untold_free(struct untold *u)
{
	if (!u)
		return;
	for (uint32_t i = 0; i < FINDERS; i++)
		finder_free(u->finder[i]);
	while (u->leaving) {
		struct finder *f = u->leaving;

		u->leaving = f->next;
		finder_free(f);
	}
	mutex_fini(&u->mu);
	free(u);
}
