/* SPDX-License-Identifier: Apache-2.0 */
/* The search thread: waits until a look is worth it, copies the opens, searches without any lock
 *held, and hands over what it finds. Whoever notes opens only ever takes the lock for a few dozen
 * instructions, so a search that takes minutes is in nobody's way.
 *
 *	opens (planner) -> trail -> aim? -> wake -> search -> known -> found(spec) -> plan verifies
 *
 * A search is about one beginning. When somebody tells an order meanwhile it is cancelled and its
 * answer dropped; when the job has gone on to another pass it is still worth something (the seed is
 * a hint for this one), but is put in force only if it says how later passes go.
 *
 * A search of all seeds steps aside, without losing its place: while nothing is opened, while
 * others wait for a CPU, and for the cheap questions when another beginning shows. These are asked
 * on this thread from within the search's progress.
 *
 * It must never hold the lock over found() (which waits for the planner, which notes opens), and
 * never keep a search going after infer_stop. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "clairfs/base/log.h"
#include "clairfs/base/thr.h"
#include "infer_priv.h"

#define OWN_NICE 5
#define CPUS_SHARE 8
#define QUIET_NS (10 * NS_PER_S) /* without an open: nobody waits for what is searched for */
#define EPOCH_BYTES 16u /* per sample, of an epoch that is computed whole */

struct infer {
	struct infer_params p;
	struct thr thr;
	struct mutex mu;
	struct cond changed;
	struct trail trail; /* mu, like all below but for atomics */
	struct known known;
	struct part_watch part;
	_Atomic int plan; /* enum infer_plan; written under mu */
	uint64_t lost_at;
	/* How often an order was told; and that, or one that is followed was found elsewhere. */
	uint64_t told, version;
	bool is_told, is_suspended, is_stopping, is_quick, is_full, was_full;
	bool is_offering; /* a search that may end in another order, until it is in force */
	double share, left_s;
	uint32_t full_failed;
	struct budget budget;
	bool is_read_known, is_narrow; /* which samples the job reads, and how it numbers these */
	bool is_idle; /* the look under way takes a CPU that nobody wants, so it may take long */
	uint64_t searches, orders_found, found_after;
	char found[INFER_SPEC_MAX], gone[INFER_SPEC_MAX]; /* gone: of the job that has ended, or "" */
	const char *gone_why;
	bool is_widened; /* ranks were added to what was found */
	atomic_bool cancel;
	atomic_bool hold;
	atomic_bool has_ended; /* the thread */
	const char *held;     /* why, or NULL */
	uint64_t cpu_told_ns; /* search thread: to the metrics */
	struct desk {         /* search thread: the question being asked, and one in its midst */
		uint32_t seen[TRAIL_MAX], hints[KNOWN_HINTS];
		struct recover_place places[INFER_PLACES];
		struct infer_numbering way;
		struct tail_marks marks;
		struct bitmap members; /* a copy, while the question is asked */
		struct trail_pass last[RECOVER_FEW_PASSES]; /* copies, like what they are named in */
		struct recover_pass before[RECOVER_FEW_PASSES];
		atomic_uint_least64_t cpu_ns; /* spent on its questions so far */
	} desk[2];
};

/* What a search was about, to settle it afterwards. */
struct errand {
	struct aim aim;
	struct infer_question q;
	uint64_t pass, version, noted;
	uint64_t cpu_ns; /* that it took */
	uint64_t began_ns; /* of the budget that pays for it */
};

static unsigned threads_of(const struct infer *infer)
{
	cpu_set_t cpus;
	unsigned n = 1;

	if (infer->p.threads)
		return infer->p.threads;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		n = (unsigned)CPU_COUNT(&cpus) / CPUS_SHARE;
	return MAX(n, 1);
}

/* Another job, as far as anybody knows: it pays for itself. */
static void begin_budget(struct infer *infer)
{
	infer->budget = (struct budget){ .cpus = threads_of(infer) };
	infer->is_narrow = infer->is_read_known = false;
}

int infer_new(const struct infer_params *params, struct infer **ret, struct err *err)
{
	struct infer *infer = calloc(1, sizeof(*infer));
	bool is_wanted = params->effort != INFER_OFF && params->n >= INFER_SAMPLES_MIN;

	*ret = NULL;
	if (!infer)
		return err_set(err, -ENOMEM, "out of memory");
	infer->p = *params;
	if (!infer->p.searches)
		infer->p.searches = &infer_searches_real;
	mutex_init(&infer->mu);
	cond_init(&infer->changed);
	begin_budget(infer);
	atomic_init(&infer->plan, params->told ? INFER_PLAN_BUSY : INFER_PLAN_NONE);
	atomic_init(&infer->cancel, false);
	atomic_init(&infer->hold, false);
	infer->is_told = params->told != NULL;
	known_told(&infer->known, params->told);
	infer->trail.n = params->n;
	if (is_wanted && trail_init(&infer->trail, params->n) < 0) {
		infer_free(infer);
		return err_set(err, -ENOMEM, "out of memory");
	}
	*ret = infer;
	return 0;
}

void infer_free(struct infer *infer)
{
	if (!infer)
		return;
	trail_fini(&infer->trail);
	bitmap_fini(&infer->desk[0].members);
	bitmap_fini(&infer->desk[1].members);
	cond_fini(&infer->changed);
	mutex_fini(&infer->mu);
	free(infer);
}

static bool is_active(const struct infer *infer)
{
	return infer->trail.seen.words != NULL;
}

static uint64_t cpu_ns_of(const struct infer *infer)
{
	return atomic_load(&infer->desk[0].cpu_ns) + atomic_load(&infer->desk[1].cpu_ns);
}

static struct aim_facts facts_of(const struct infer *infer)
{
	return (struct aim_facts){ .trail = &infer->trail,
				   .known = &infer->known,
				   .effort = infer->p.effort,
				   .plan = (enum infer_plan)atomic_load(&infer->plan),
				   .full_failed = infer->full_failed,
				   .is_told = infer->is_told,
				   .is_left = infer->part.is_left,
				   .lost_at = infer->lost_at,
				   .budget = &infer->budget,
				   .now_ns = clock_now(infer->p.clock) };
}

static struct aim aim_of(const struct infer *infer)
{
	const struct aim_facts facts = facts_of(infer);
	const struct aim nothing = { AIM_NOTHING, 0, false };

	return infer->is_suspended || !is_active(infer) ? nothing : aim_at(&facts);
}

/* --- what is noted, by other threads --- */

void infer_note_open(struct infer *infer, uint32_t sample)
{
	struct aim_facts facts;
	uint64_t now_ns;

	if (!is_active(infer) || sample >= infer->p.n)
		return;
	mutex_lock(&infer->mu);
	now_ns = clock_now(infer->p.clock);
	if (now_ns - infer->trail.last_ns >= JOB_PAUSE_NS) { /* another job: a new chance */
		infer->full_failed = 0;
		infer->known.no_streams = false;
		begin_budget(infer);
	}
	spend_open(&infer->budget, now_ns);
	/* A new pass is asked about at once. */
	if (trail_open(&infer->trail, sample, now_ns) && infer->is_idle)
		atomic_store(&infer->cancel, true);
	if (infer->trail.has_before && !infer->is_read_known) { /* which samples the job reads */
		infer->is_read_known = true;
		spend_renew(&infer->budget, false);
	}
	if (part_open(&infer->part, &infer->known, infer->p.numbers, infer->p.n, sample))
		trail_restart(&infer->trail, infer->trail.noted - MIN(infer->trail.noted, infer->part.stretch));
	facts = facts_of(infer);
	if (aim_is_refuted(&facts))
		trail_restart(&infer->trail, infer->known.noted);
	if (!infer->is_quick && !infer->is_full && aim_of(infer).kind != AIM_NOTHING)
		cond_signal(&infer->changed);
	mutex_unlock(&infer->mu);
}

/* Whatever is being looked for is no longer wanted. */
static void supersede_locked(struct infer *infer) REQUIRES(infer->mu);
static void supersede_locked(struct infer *infer)
{
	infer->version++;
	atomic_store(&infer->cancel, true);
}

static void set_plan_locked(struct infer *infer, enum infer_plan plan) REQUIRES(infer->mu);
static void set_plan_locked(struct infer *infer, enum infer_plan plan)
{
	if (plan == INFER_PLAN_LOST && atomic_load(&infer->plan) != INFER_PLAN_LOST)
		infer->lost_at = infer->trail.opens;
	/* It is followed after all (another epoch, other numbers of the files): what is being
	 * looked for would only get in the way. */
	if (plan == INFER_PLAN_FOLLOWED && infer->is_offering && !infer->part.is_left)
		supersede_locked(infer);
	atomic_store(&infer->plan, plan);
}

void infer_note_plan(struct infer *infer, enum infer_plan plan)
{
	if (atomic_load(&infer->plan) == (int)plan)
		return;
	mutex_lock(&infer->mu);
	set_plan_locked(infer, plan);
	cond_signal(&infer->changed);
	mutex_unlock(&infer->mu);
}

static void replaced_locked(struct infer *infer, const char *spec) REQUIRES(infer->mu);
static void replaced_locked(struct infer *infer, const char *spec)
{
	infer->known.is_found = false;
	infer->known.no_streams = false;
	infer->known.n_places = 0;
	infer->found[0] = infer->gone[0] = 0;
	infer->is_widened = false;
	infer->full_failed = 0;
	begin_budget(infer);
	known_told(&infer->known, spec);
	set_plan_locked(infer, spec ? INFER_PLAN_BUSY : INFER_PLAN_NONE);
	supersede_locked(infer);
}

void infer_note_told(struct infer *infer, const char *spec)
{
	mutex_lock(&infer->mu);
	infer->told++;
	infer->is_told = spec != NULL;
	infer->is_suspended = spec == NULL;
	replaced_locked(infer, spec);
	mutex_unlock(&infer->mu);
}

void infer_note_replaced(struct infer *infer, const char *spec)
{
	mutex_lock(&infer->mu);
	replaced_locked(infer, spec);
	mutex_unlock(&infer->mu);
}

/* Another beginning: none of the opens so far is of it. */
static void begin_again_locked(struct infer *infer) REQUIRES(infer->mu);
static void begin_again_locked(struct infer *infer)
{
	if (is_active(infer))
		trail_restart(&infer->trail, infer->trail.noted);
	infer->part = (struct part_watch){ 0 };
}

void infer_note_gone(struct infer *infer, const char *why)
{
	char gone[INFER_SPEC_MAX];

	mutex_lock(&infer->mu);
	snprintf(gone, sizeof(gone), "%s", infer->found);
	known_told(&infer->known, gone); /* it may be started again */
	replaced_locked(infer, NULL);
	memcpy(infer->gone, gone, sizeof(gone));
	infer->gone_why = why;
	infer->is_told = false;
	begin_again_locked(infer);
	mutex_unlock(&infer->mu);
}

void infer_note_apart(struct infer *infer)
{
	mutex_lock(&infer->mu);
	infer->full_failed = 0;
	begin_budget(infer);
	supersede_locked(infer);
	begin_again_locked(infer);
	mutex_unlock(&infer->mu);
}

bool infer_get_answer(struct infer *infer, struct infer_answer *ret)
{
	bool is_found;

	mutex_lock(&infer->mu);
	is_found = infer->known.is_found;
	*ret = infer->known.last;
	mutex_unlock(&infer->mu);
	return is_found;
}

bool infer_add_ranks(struct infer *infer, const struct infer_answer *more)
{
	bool has_them, is_added;

	mutex_lock(&infer->mu);
	has_them = infer->known.is_found && known_has_ranks(&infer->known, more);
	is_added = infer->known.is_found && known_add_ranks(&infer->known, more);
	infer->is_widened |= is_added;
	cond_signal(&infer->changed);
	mutex_unlock(&infer->mu);
	return has_them || is_added;
}

bool infer_is_current(struct infer *infer, uint64_t stamp)
{
	bool is_current;

	mutex_lock(&infer->mu);
	is_current = stamp == infer->version && !infer->is_stopping;
	mutex_unlock(&infer->mu);
	return is_current;
}

/* --- the search thread --- */

static void note_progress(void *ctx, double share, double left_s);

static bool is_too_large(const struct infer *infer)
{
	return infer->p.memory && infer->p.n > infer->p.memory / EPOCH_BYTES;
}

/* Files in their order were found, and then the job read something else. */
static bool is_no_sequence(const struct infer *infer)
{
	return infer->known.is_found && infer->known.last.spec[0] &&
	       atomic_load(&infer->plan) == INFER_PLAN_LOST;
}

/* What the job reads is some of the samples: which, for who asks without the lock. */
static const struct bitmap *take_members(struct infer *infer, struct desk *desk)
{
	const struct bitmap *before = &infer->trail.before;

	if (!infer->trail.has_before || before->count == infer->p.n)
		return NULL;
	if (!desk->members.words && bitmap_init(&desk->members, infer->p.n) < 0)
		return NULL;
	memcpy(desk->members.words, before->words, DIV_ROUND_UP(infer->p.n, 64) * sizeof(uint64_t));
	desk->members.count = before->count;
	return &desk->members;
}

/* The passes before the one that is asked about, of few samples. */
static size_t take_passes(const struct infer *infer, const struct errand *e, struct desk *desk)
{
	const struct trail *trail = &infer->trail;

	if (e->aim.start != TRAIL_PASS)
		return 0;
	memcpy(desk->last, trail->last, sizeof(desk->last));
	for (uint32_t i = 0; i < trail->n_last; i++)
		desk->before[i] = (struct recover_pass){ desk->last[i].seen, desk->last[i].n };
	return trail->n_last;
}

/* What is asked, of copies: the answer takes a while. */
static void put_question_locked(struct infer *infer, struct errand *e, struct desk *desk) REQUIRES(infer->mu);
static void put_question_locked(struct infer *infer, struct errand *e, struct desk *desk)
{
	const struct trail_start *s = &infer->trail.start[e->aim.start];
	bool is_full = e->aim.kind == AIM_FULL;
	/* The words of likely seeds: once for a beginning, and with a few opens more. */
	bool has_tried = infer->is_full || s->looked >= TRAIL_FEW;
	bool is_brief = e->aim.is_brief, is_vain = infer->budget.looks >= BUDGET_FREE;

	memcpy(desk->seen, s->seen, s->n * sizeof(*s->seen));
	desk->way = infer->known.last.way;
	e->q = (struct infer_question){ .n = infer->p.n,
				      .seen = desk->seen,
				      .n_seen = s->n,
				      .world = infer->p.world,
				      .hints = desk->hints,
				      .n_hints = known_hints(&infer->known, desk->hints),
				      .members = take_members(infer, desk),
				      .before = desk->before,
				      .n_before = take_passes(infer, e, desk),
				      .no_kinds = is_too_large(infer),
				      .not_sequential = is_no_sequence(infer),
				      .is_first = is_brief || (s->looked == 0 && s->n < TRAIL_FEW),
				      .is_modest = is_vain,
				      /* Not in the midst of a search of all seeds, which would end with it. */
				      .is_idle = is_vain && e->aim.kind == AIM_QUICK && !is_brief &&
						 !infer->is_full,
				      .no_streams = infer->known.no_streams || (!is_full && has_tried),
				      .places = desk->places,
				      .n_places = known_places(&infer->known, desk->places),
				      .seed = infer->known.last.seed,
				      .way = &desk->way,
				      .numbers = infer->p.numbers,
				      .threads = threads_of(infer),
				      .cancel = &infer->cancel,
				      .hold = is_full ? &infer->hold : NULL,
				      .marks = &desk->marks,
				      .cpu_ns = &desk->cpu_ns,
				      .progress = is_full ? note_progress : NULL,
				      .progress_ctx = infer };
}

static void prepare_locked(struct infer *infer, struct errand *e) REQUIRES(infer->mu);
static void prepare_locked(struct infer *infer, struct errand *e)
{
	struct trail_start *s = &infer->trail.start[e->aim.start];
	struct desk *desk = &infer->desk[infer->is_full];
	bool is_full = e->aim.kind == AIM_FULL;

	e->pass = infer->trail.pass;
	e->version = infer->version;
	e->noted = infer->trail.noted;
	put_question_locked(infer, e, desk);
	e->cpu_ns = atomic_load(&desk->cpu_ns);
	e->began_ns = infer->budget.began_ns;
	if (e->aim.kind != AIM_REFINE)
		s->looked = s->n;
	if (e->aim.kind == AIM_QUICK)
		s->is_brief = e->aim.is_brief && s->n >= TRAIL_FEW;
	infer->is_idle = e->q.is_idle;
	s->is_searched |= e->aim.kind == AIM_FULL;
	infer->is_quick = e->aim.kind == AIM_QUICK;
	atomic_store(&infer->cancel, false);
	if (!is_full)
		return;
	infer->is_full = true;
	infer->share = infer->left_s = 0;
	infer->held = NULL;
	atomic_store(&infer->hold, false);
}

static int ask_errand(const struct infer *infer, const struct errand *e,
		      struct infer_answer *answer)
{
	const struct infer_searches *s = infer->p.searches;

	memset(answer, 0, sizeof(*answer));
	switch (e->aim.kind) {
	case AIM_QUICK:
		return e->q.is_idle ? aside_run(s->quick, &e->q, answer) : s->quick(&e->q, answer);
	case AIM_FULL:
		return s->full(&e->q, answer);
	case AIM_REFINE:
		return s->refine(&e->q, answer);
	default:
		return -ENOENT;
	}
}

static void publish_cpu(struct infer *infer)
{
	uint64_t ns = cpu_ns_of(infer);

	metrics_add(infer->p.metrics, METRIC_RECOVER_CPU, ns - infer->cpu_told_ns);
	infer->cpu_told_ns = ns;
}

/* No lock held. */
static int search(struct infer *infer, struct errand *e, struct infer_answer *answer)
{
	int rc = ask_errand(infer, e, answer);

	e->cpu_ns = atomic_load(e->q.cpu_ns) - e->cpu_ns;
	metrics_add(infer->p.metrics, METRIC_RECOVER_SEARCHES, 1);
	publish_cpu(infer);
	return rc;
}

/* Puts what is known in force. */
static void hand_over_locked(struct infer *infer, uint64_t opens) REQUIRES(infer->mu);
static void hand_over_locked(struct infer *infer, uint64_t opens)
{
	bool is_guess = infer->known.is_guess;
	uint64_t told = infer->told, version = infer->version;
	char spec[INFER_SPEC_MAX];
	int rc;

	if (!known_spec(&infer->known, infer->p.n, spec)) {
		log_warn("the order found has a spec that is too long");
		return;
	}
	mutex_unlock(&infer->mu);
	if (infer->p.is_silent)
		;
	else if (is_guess)
		log_info("the order %s is expected next", spec);
	else
		log_info("found the order %s after %" PRIu64 " opens", spec, opens);
	rc = infer->p.found(infer->p.ctx, spec, version);
	mutex_lock(&infer->mu);
	if (rc < 0 || told != infer->told) {
		infer->known.is_found = false;
		return;
	}
	snprintf(infer->found, sizeof(infer->found), "%s", spec);
	infer->gone[0] = 0;
	infer->found_after = opens;
	infer->orders_found++;
	metrics_add(infer->p.metrics, METRIC_RECOVER_FOUND, 1);
	infer->is_told = false;
	part_begin(&infer->part, &infer->known, infer->p.numbers, &infer->trail);
	if (version == infer->version) /* until the new plan has been heard of */
		set_plan_locked(infer, INFER_PLAN_BUSY);
}

static bool is_news(const struct infer_answer *a, const struct infer_answer *b)
{
	return a->world != b->world || a->n_ranks != b->n_ranks ||
	       memcmp(a->rank, b->rank, a->n_ranks * sizeof(a->rank[0])) != 0;
}

static void settle_refine_locked(struct infer *infer, const struct errand *e, int rc,
				 const struct infer_answer *answer) REQUIRES(infer->mu);
static void settle_refine_locked(struct infer *infer, const struct errand *e, int rc,
				 const struct infer_answer *answer)
{
	struct infer_answer better = infer->known.last;
	const uint64_t opens = infer->trail.start[e->aim.start].opens;

	infer->known.n_seen = (uint32_t)e->q.n_seen;
	if (rc < 0 || e->pass != infer->known.pass || !is_news(answer, &better))
		return;
	better.world = answer->world;
	better.n_ranks = answer->n_ranks;
	memcpy(better.rank, answer->rank, sizeof(better.rank));
	infer->known.last = better;
	hand_over_locked(infer, opens);
}

/* It did not come to its end, so it may be made again; unless it was another job's, this one pays. */
static void settle_ended_locked(struct infer *infer, const struct errand *e) REQUIRES(infer->mu);
static void settle_ended_locked(struct infer *infer, const struct errand *e)
{
	if (e->began_ns == infer->budget.began_ns)
		spend_waste(&infer->budget, e->cpu_ns);
}

static void settle_budget_locked(struct infer *infer, const struct errand *e, int rc) REQUIRES(infer->mu);
static void settle_budget_locked(struct infer *infer, const struct errand *e, int rc)
{
	enum budget_kind kind = e->aim.kind == AIM_FULL ? BUDGET_FULL
				: e->q.is_first		? BUDGET_BRIEF
							: BUDGET_LOOK;

	if (rc == 0)
		spend_renew(&infer->budget, true);
	else if (rc == -ECANCELED && kind == BUDGET_FULL)
		settle_ended_locked(infer, e);
	else
		spend_charge(&infer->budget, kind, e->pass, e->cpu_ns);
}

/* The job reads some of the samples only, and numbers these: a search of all seeds for an order of
 * all of them is in vain, and another one is worth it, also of the beginnings that had one. */
static void be_narrow_locked(struct infer *infer) REQUIRES(infer->mu);
static void be_narrow_locked(struct infer *infer)
{
	infer->is_narrow = true;
	spend_renew(&infer->budget, true);
	infer->full_failed = 0;
	for (uint32_t i = 0; i < TRAIL_STARTS; i++)
		infer->trail.start[i].is_searched = false;
	if (infer->is_full)
		atomic_store(&infer->cancel, true);
}

static void settle_locked(struct infer *infer, const struct errand *e, int rc,
			  const struct infer_answer *answer) REQUIRES(infer->mu);
static void settle_locked(struct infer *infer, const struct errand *e, int rc,
			  const struct infer_answer *answer)
{
	bool is_full = e->aim.kind == AIM_FULL;

	if (infer->is_stopping || e->version != infer->version) {
		if (is_full)
			infer->trail.start[e->aim.start].is_searched = false;
		settle_ended_locked(infer, e);
		return;
	}
	if (e->aim.kind == AIM_REFINE) {
		settle_refine_locked(infer, e, rc, answer);
		return;
	}
	infer->searches++;
	infer->was_full = is_full && (rc == 0 || rc == -ENOENT);
	if (is_full && rc == 0)
		infer->full_failed = 0;
	else if (is_full && rc == -ENOENT)
		infer->full_failed++;
	if (rc < 0 && rc != -ENOENT && rc != -ECANCELED)
		log_limited(LOG_LEVEL_WARN, "a search for the order failed: %s", strerror(-rc));
	settle_budget_locked(infer, e, rc);
	if (rc < 0 && answer->is_narrow && !infer->is_narrow)
		be_narrow_locked(infer);
	if (rc < 0)
		return;
	known_found(&infer->known, answer, e->pass, (uint32_t)e->q.n_seen);
	infer->known.no_streams |= is_full && !infer->known.last.is_chain;
	infer->known.noted = e->noted;
	if (e->pass != infer->trail.pass) /* look at this pass again with what is known now */
		infer->trail.start[TRAIL_PASS].looked = 0;
	if (e->pass == infer->trail.pass || known_goes_on(&infer->known))
		hand_over_locked(infer, infer->trail.start[e->aim.start].opens);
}

static void run_errand_locked(struct infer *infer, struct errand *e) REQUIRES(infer->mu);
static void run_errand_locked(struct infer *infer, struct errand *e)
{
	struct infer_answer answer;
	int rc;

	infer->is_offering = e->aim.kind != AIM_REFINE;
	if (e->aim.kind == AIM_NEXT) {
		known_advance(&infer->known);
		hand_over_locked(infer, 0);
		infer->is_offering = false;
		return;
	}
	prepare_locked(infer, e);
	mutex_unlock(&infer->mu);
	rc = search(infer, e, &answer);
	mutex_lock(&infer->mu);
	settle_locked(infer, e, rc, &answer);
	infer->is_quick = infer->is_full = infer->is_offering = infer->is_idle = false;
}

/* The cheap questions, in the midst of a search of all seeds that is held. What they find ends it.
 */
static void look_meanwhile_locked(struct infer *infer) REQUIRES(infer->mu);
static void look_meanwhile_locked(struct infer *infer)
{
	struct errand e = { .aim = aim_of(infer) };
	uint64_t found = infer->orders_found;
	struct infer_answer answer;
	int rc;

	if (e.aim.kind != AIM_QUICK || atomic_load(&infer->cancel) || infer->is_stopping)
		return;
	atomic_store(&infer->hold, true);
	prepare_locked(infer, &e);
	mutex_unlock(&infer->mu);
	rc = search(infer, &e, &answer);
	mutex_lock(&infer->mu);
	settle_locked(infer, &e, rc, &answer);
	infer->is_quick = infer->is_idle = false;
	if (infer->orders_found > found)
		supersede_locked(infer);
}

/* On the search thread, a few times a second while a full search is under way. */
static void note_progress(void *ctx, double share, double left_s)
{
	struct infer *infer = ctx;
	const char *until = infer->p.waits_until ? infer->p.waits_until(infer->p.ctx) : NULL;
	uint64_t quiet_ns;

	mutex_lock(&infer->mu);
	infer->share = share;
	infer->left_s = left_s;
	look_meanwhile_locked(infer);
	quiet_ns = clock_now(infer->p.clock) - infer->trail.last_ns;
	infer->held = quiet_ns >= QUIET_NS ? "samples are opened again" : until;
	atomic_store(&infer->hold, infer->held != NULL);
	if (quiet_ns >= JOB_PAUSE_NS) /* that job is gone */
		atomic_store(&infer->cancel, true);
	mutex_unlock(&infer->mu);
}

static void *infer_main(void *arg)
{
	struct infer *infer = arg;

	if (is_too_large(infer))
		log_info("shuffles of numpy and Python are not looked for: that takes more than a "
			 "quarter of ram");
	/* Fails only where nothing may be changed. */
	(void)setpriority(PRIO_PROCESS, 0, MIN(getpriority(PRIO_PROCESS, 0) + OWN_NICE, 19));
	mutex_lock(&infer->mu);
	while (!infer->is_stopping) {
		struct errand e = { .aim = aim_of(infer) };

		if (infer->is_widened) {
			infer->is_widened = false;
			hand_over_locked(infer, infer->found_after);
		} else if (e.aim.kind == AIM_NOTHING) {
			cond_wait(&infer->changed, &infer->mu);
		} else {
			run_errand_locked(infer, &e);
		}
	}
	mutex_unlock(&infer->mu);
	atomic_store(&infer->has_ended, true);
	return NULL;
}

int infer_start(struct infer *infer, struct err *err)
{
	return is_active(infer) ? thr_start(&infer->thr, "cl-infer", infer_main, infer, err) : 0;
}

void infer_quit(struct infer *infer)
{
	mutex_lock(&infer->mu);
	infer->is_stopping = true;
	atomic_store(&infer->cancel, true);
	cond_signal(&infer->changed);
	mutex_unlock(&infer->mu);
}

bool infer_has_ended(const struct infer *infer)
{
	return !infer->thr.is_started || atomic_load(&infer->has_ended);
}

void infer_stop(struct infer *infer)
{
	if (!infer)
		return;
	infer_quit(infer);
	thr_join(&infer->thr);
}

/* What would be looked at is too dear yet. */
static bool is_saving(const struct infer *infer)
{
	struct aim_facts facts = facts_of(infer);

	if (infer->is_suspended || !is_active(infer) || aim_of(infer).kind != AIM_NOTHING)
		return false;
	facts.budget = NULL;
	return aim_at(&facts).kind != AIM_NOTHING;
}

void infer_get_status(struct infer *infer, struct infer_status *ret)
{
	mutex_lock(&infer->mu);
	*ret = (struct infer_status){ .is_searching = infer->is_quick || infer->is_full,
				    .is_full = infer->is_full,
				    .is_held = infer->is_full && infer->held,
				    .progress = infer->is_full ? infer->share : 0,
				    .left_s = infer->is_full ? infer->left_s : 0,
				    .cpu_s = (double)cpu_ns_of(infer) / 1e9,
				    .vain_cpu_s = (double)infer->budget.spent_ns / 1e9,
				    .job_s = (double)spend_wall_ns(&infer->budget,
								    clock_now(infer->p.clock)) /
					     1e9,
				    .is_saving = is_saving(infer),
				    .searches = infer->searches,
				    .orders_found = infer->orders_found,
				    .found_after = infer->found_after };
	snprintf(ret->found, sizeof(ret->found), "%s", infer->found);
	words_say(&(struct words_facts){ .known = &infer->known,
					 .trail = &infer->trail,
					 .effort = infer->p.effort,
					 .plan = (enum infer_plan)atomic_load(&infer->plan),
					 .is_suspended = infer->is_suspended,
					 .is_quick = infer->is_quick,
					 .is_full = infer->is_full,
					 .was_full = infer->was_full,
					 .is_left = infer->part.is_left,
					 .is_saving = ret->is_saving,
					 .held = infer->held,
					 .full_failed = infer->full_failed,
					 .share = infer->share,
					 .left_s = infer->left_s,
					 .searches = infer->searches,
					 .found_after = infer->found_after,
					 .found = infer->found,
					 .gone = infer->gone,
					 .gone_why = infer->gone_why },
		  ret->words);
	mutex_unlock(&infer->mu);
}
