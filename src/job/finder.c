/* SPDX-License-Identifier: Apache-2.0 */
/* The job's thread: waits until a look is worth it, copies the opens, searches without any lock
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
 * never keep a search going after job_stop. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "clairfs/base/log.h"
#include "clairfs/base/thr.h"
#include "job_priv.h"

#define OWN_NICE 5
#define CPUS_SHARE 8
#define QUIET_NS (10 * NS_PER_S) /* without an open: nobody waits for what is searched for */
#define EPOCH_BYTES 16u /* per sample, of an epoch that is computed whole */

struct job {
	struct job_params p;
	struct thr thr;
	struct mutex mu;
	struct cond changed;
	struct trail trail; /* mu, like all below but for atomics */
	struct known known;
	struct part_watch part;
	_Atomic int plan; /* enum job_plan; written under mu */
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
	char found[JOB_SPEC_MAX], gone[JOB_SPEC_MAX]; /* gone: of the job that has ended, or "" */
	const char *gone_why;
	bool is_widened; /* ranks were added to what was found */
	atomic_bool cancel;
	atomic_bool hold;
	const char *held;     /* why, or NULL */
	uint64_t cpu_told_ns; /* job's thread: to the metrics */
	struct desk {         /* job's thread: the question being asked, and one in its midst */
		uint32_t seen[TRAIL_MAX], hints[KNOWN_HINTS];
		struct recover_place places[JOB_PLACES];
		struct job_numbering way;
		struct tail_marks marks;
		struct bitmap members; /* a copy, while the question is asked */
		atomic_uint_least64_t cpu_ns; /* spent on its questions so far */
	} desk[2];
};

/* What a search was about, to settle it afterwards. */
struct errand {
	struct aim aim;
	struct job_question q;
	uint64_t pass, version, noted;
	uint64_t cpu_ns; /* that it took */
	uint64_t began_ns; /* of the budget that pays for it */
};

static unsigned threads_of(const struct job *job)
{
	cpu_set_t cpus;
	unsigned n = 1;

	if (job->p.threads)
		return job->p.threads;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		n = (unsigned)CPU_COUNT(&cpus) / CPUS_SHARE;
	return MAX(n, 1);
}

/* Another job, as far as anybody knows: it pays for itself. */
static void begin_budget(struct job *job)
{
	job->budget = (struct budget){ .cpus = threads_of(job) };
	job->is_narrow = job->is_read_known = false;
}

int job_new(const struct job_params *params, struct job **ret, struct err *err)
{
	struct job *job = calloc(1, sizeof(*job));
	bool is_wanted = params->effort != JOB_OFF && params->n >= JOB_SAMPLES_MIN;

	*ret = NULL;
	if (!job)
		return err_set(err, -ENOMEM, "out of memory");
	job->p = *params;
	if (!job->p.searches)
		job->p.searches = &job_searches_real;
	mutex_init(&job->mu);
	cond_init(&job->changed);
	begin_budget(job);
	atomic_init(&job->plan, params->told ? JOB_PLAN_BUSY : JOB_PLAN_NONE);
	atomic_init(&job->cancel, false);
	atomic_init(&job->hold, false);
	job->is_told = params->told != NULL;
	known_told(&job->known, params->told);
	job->trail.n = params->n;
	if (is_wanted && trail_init(&job->trail, params->n) < 0) {
		job_free(job);
		return err_set(err, -ENOMEM, "out of memory");
	}
	*ret = job;
	return 0;
}

void job_free(struct job *job)
{
	if (!job)
		return;
	trail_fini(&job->trail);
	bitmap_fini(&job->desk[0].members);
	bitmap_fini(&job->desk[1].members);
	cond_fini(&job->changed);
	mutex_fini(&job->mu);
	free(job);
}

static bool is_active(const struct job *job)
{
	return job->trail.seen.words != NULL;
}

static uint64_t cpu_ns_of(const struct job *job)
{
	return atomic_load(&job->desk[0].cpu_ns) + atomic_load(&job->desk[1].cpu_ns);
}

static struct aim_facts facts_of(const struct job *job)
{
	return (struct aim_facts){ .trail = &job->trail,
				   .known = &job->known,
				   .effort = job->p.effort,
				   .plan = (enum job_plan)atomic_load(&job->plan),
				   .full_failed = job->full_failed,
				   .is_told = job->is_told,
				   .is_left = job->part.is_left,
				   .lost_at = job->lost_at,
				   .budget = &job->budget,
				   .now_ns = clock_now(job->p.clock) };
}

static struct aim aim_of(const struct job *job)
{
	const struct aim_facts facts = facts_of(job);
	const struct aim nothing = { AIM_NOTHING, 0, false };

	return job->is_suspended || !is_active(job) ? nothing : aim_at(&facts);
}

/* --- what is noted, by other threads --- */

void job_note_open(struct job *job, uint32_t sample)
{
	struct aim_facts facts;
	uint64_t now_ns;

	if (!is_active(job) || sample >= job->p.n)
		return;
	mutex_lock(&job->mu);
	now_ns = clock_now(job->p.clock);
	if (now_ns - job->trail.last_ns >= JOB_PAUSE_NS) { /* another job: a new chance */
		job->full_failed = 0;
		job->known.no_streams = false;
		begin_budget(job);
	}
	spend_open(&job->budget, now_ns);
	/* A new pass is asked about at once. */
	if (trail_open(&job->trail, sample, now_ns) && job->is_idle)
		atomic_store(&job->cancel, true);
	if (job->trail.has_before && !job->is_read_known) { /* which samples the job reads */
		job->is_read_known = true;
		spend_renew(&job->budget, false);
	}
	if (part_open(&job->part, &job->known, job->p.numbers, job->p.n, sample))
		trail_restart(&job->trail, job->trail.noted - MIN(job->trail.noted, job->part.stretch));
	facts = facts_of(job);
	if (aim_is_refuted(&facts))
		trail_restart(&job->trail, job->known.noted);
	if (!job->is_quick && !job->is_full && aim_of(job).kind != AIM_NOTHING)
		cond_signal(&job->changed);
	mutex_unlock(&job->mu);
}

/* Whatever is being looked for is no longer wanted. */
static void supersede_locked(struct job *job) REQUIRES(job->mu);
static void supersede_locked(struct job *job)
{
	job->version++;
	atomic_store(&job->cancel, true);
}

static void set_plan_locked(struct job *job, enum job_plan plan) REQUIRES(job->mu);
static void set_plan_locked(struct job *job, enum job_plan plan)
{
	if (plan == JOB_PLAN_LOST && atomic_load(&job->plan) != JOB_PLAN_LOST)
		job->lost_at = job->trail.opens;
	/* It is followed after all (another epoch, other numbers of the files): what is being
	 * looked for would only get in the way. */
	if (plan == JOB_PLAN_FOLLOWED && job->is_offering && !job->part.is_left)
		supersede_locked(job);
	atomic_store(&job->plan, plan);
}

void job_note_plan(struct job *job, enum job_plan plan)
{
	if (atomic_load(&job->plan) == (int)plan)
		return;
	mutex_lock(&job->mu);
	set_plan_locked(job, plan);
	cond_signal(&job->changed);
	mutex_unlock(&job->mu);
}

static void replaced_locked(struct job *job, const char *spec) REQUIRES(job->mu);
static void replaced_locked(struct job *job, const char *spec)
{
	job->known.is_found = false;
	job->known.no_streams = false;
	job->known.n_places = 0;
	job->found[0] = job->gone[0] = 0;
	job->is_widened = false;
	job->full_failed = 0;
	begin_budget(job);
	known_told(&job->known, spec);
	set_plan_locked(job, spec ? JOB_PLAN_BUSY : JOB_PLAN_NONE);
	supersede_locked(job);
}

void job_note_told(struct job *job, const char *spec)
{
	mutex_lock(&job->mu);
	job->told++;
	job->is_told = spec != NULL;
	job->is_suspended = spec == NULL;
	replaced_locked(job, spec);
	mutex_unlock(&job->mu);
}

void job_note_replaced(struct job *job, const char *spec)
{
	mutex_lock(&job->mu);
	replaced_locked(job, spec);
	mutex_unlock(&job->mu);
}

/* Another beginning: none of the opens so far is of it. */
static void begin_again_locked(struct job *job) REQUIRES(job->mu);
static void begin_again_locked(struct job *job)
{
	if (is_active(job))
		trail_restart(&job->trail, job->trail.noted);
	job->part = (struct part_watch){ 0 };
}

void job_note_gone(struct job *job, const char *why)
{
	char gone[JOB_SPEC_MAX];

	mutex_lock(&job->mu);
	snprintf(gone, sizeof(gone), "%s", job->found);
	known_told(&job->known, gone); /* it may be started again */
	replaced_locked(job, NULL);
	memcpy(job->gone, gone, sizeof(gone));
	job->gone_why = why;
	job->is_told = false;
	begin_again_locked(job);
	mutex_unlock(&job->mu);
}

void job_note_apart(struct job *job)
{
	mutex_lock(&job->mu);
	job->full_failed = 0;
	begin_budget(job);
	supersede_locked(job);
	begin_again_locked(job);
	mutex_unlock(&job->mu);
}

bool job_get_answer(struct job *job, struct job_answer *ret)
{
	bool is_found;

	mutex_lock(&job->mu);
	is_found = job->known.is_found;
	*ret = job->known.last;
	mutex_unlock(&job->mu);
	return is_found;
}

bool job_add_ranks(struct job *job, const struct job_answer *more)
{
	bool has_them, is_added;

	mutex_lock(&job->mu);
	has_them = job->known.is_found && known_has_ranks(&job->known, more);
	is_added = job->known.is_found && known_add_ranks(&job->known, more);
	job->is_widened |= is_added;
	cond_signal(&job->changed);
	mutex_unlock(&job->mu);
	return has_them || is_added;
}

bool job_is_current(struct job *job, uint64_t stamp)
{
	bool is_current;

	mutex_lock(&job->mu);
	is_current = stamp == job->version && !job->is_stopping;
	mutex_unlock(&job->mu);
	return is_current;
}

/* --- the job's thread --- */

static void note_progress(void *ctx, double share, double left_s);

static bool is_too_large(const struct job *job)
{
	return job->p.memory && job->p.n > job->p.memory / EPOCH_BYTES;
}

/* Files in their order were found, and then the job read something else. */
static bool is_no_sequence(const struct job *job)
{
	return job->known.is_found && job->known.last.spec[0] &&
	       atomic_load(&job->plan) == JOB_PLAN_LOST;
}

/* What the job reads is some of the samples: which, for who asks without the lock. */
static const struct bitmap *take_members(struct job *job, struct desk *desk)
{
	const struct bitmap *before = &job->trail.before;

	if (!job->trail.has_before || before->count == job->p.n)
		return NULL;
	if (!desk->members.words && bitmap_init(&desk->members, job->p.n) < 0)
		return NULL;
	memcpy(desk->members.words, before->words, DIV_ROUND_UP(job->p.n, 64) * sizeof(uint64_t));
	desk->members.count = before->count;
	return &desk->members;
}

static void prepare_locked(struct job *job, struct errand *e) REQUIRES(job->mu);
static void prepare_locked(struct job *job, struct errand *e)
{
	struct trail_start *s = &job->trail.start[e->aim.start];
	struct desk *desk = &job->desk[job->is_full];
	bool is_full = e->aim.kind == AIM_FULL;
	/* The words of likely seeds: once for a beginning, and with a few opens more. */
	bool has_tried = job->is_full || s->looked >= TRAIL_FEW;
	bool is_brief = e->aim.is_brief, is_vain = job->budget.looks >= BUDGET_FREE;
	/* Not in the midst of a search of all seeds, which would end with it. */
	bool is_idle = is_vain && e->aim.kind == AIM_QUICK && !is_brief && !job->is_full;

	e->pass = job->trail.pass;
	e->version = job->version;
	e->noted = job->trail.noted;
	memcpy(desk->seen, s->seen, s->n * sizeof(*s->seen));
	desk->way = job->known.last.way;
	e->q = (struct job_question){ .n = job->p.n,
				      .seen = desk->seen,
				      .n_seen = s->n,
				      .world = job->p.world,
				      .hints = desk->hints,
				      .n_hints = known_hints(&job->known, desk->hints),
				      .members = take_members(job, desk),
				      .no_kinds = is_too_large(job),
				      .not_sequential = is_no_sequence(job),
				      .is_first = is_brief || (s->looked == 0 && s->n < TRAIL_FEW),
				      .is_modest = is_vain,
				      .is_idle = is_idle,
				      .no_streams = job->known.no_streams || (!is_full && has_tried),
				      .places = desk->places,
				      .n_places = known_places(&job->known, desk->places),
				      .seed = job->known.last.seed,
				      .way = &desk->way,
				      .numbers = job->p.numbers,
				      .threads = threads_of(job),
				      .cancel = &job->cancel,
				      .hold = is_full ? &job->hold : NULL,
				      .marks = &desk->marks,
				      .cpu_ns = &desk->cpu_ns,
				      .progress = is_full ? note_progress : NULL,
				      .progress_ctx = job };
	e->cpu_ns = atomic_load(&desk->cpu_ns);
	e->began_ns = job->budget.began_ns;
	if (e->aim.kind != AIM_REFINE)
		s->looked = s->n;
	if (e->aim.kind == AIM_QUICK)
		s->is_brief = is_brief && s->n >= TRAIL_FEW;
	job->is_idle = e->q.is_idle;
	s->is_searched |= e->aim.kind == AIM_FULL;
	job->is_quick = e->aim.kind == AIM_QUICK;
	atomic_store(&job->cancel, false);
	if (!is_full)
		return;
	job->is_full = true;
	job->share = job->left_s = 0;
	job->held = NULL;
	atomic_store(&job->hold, false);
}

static int ask(const struct job *job, const struct errand *e, struct job_answer *answer)
{
	const struct job_searches *s = job->p.searches;

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

static void publish_cpu(struct job *job)
{
	uint64_t ns = cpu_ns_of(job);

	metrics_add(job->p.metrics, METRIC_RECOVER_CPU, ns - job->cpu_told_ns);
	job->cpu_told_ns = ns;
}

/* No lock held. */
static int search(struct job *job, struct errand *e, struct job_answer *answer)
{
	int rc = ask(job, e, answer);

	e->cpu_ns = atomic_load(e->q.cpu_ns) - e->cpu_ns;
	metrics_add(job->p.metrics, METRIC_RECOVER_SEARCHES, 1);
	publish_cpu(job);
	return rc;
}

/* Puts what is known in force. */
static void hand_over_locked(struct job *job, uint64_t opens) REQUIRES(job->mu);
static void hand_over_locked(struct job *job, uint64_t opens)
{
	bool is_guess = job->known.is_guess;
	uint64_t told = job->told, version = job->version;
	char spec[JOB_SPEC_MAX];
	int rc;

	if (!known_spec(&job->known, job->p.n, spec)) {
		log_warn("the order found has a spec that is too long");
		return;
	}
	mutex_unlock(&job->mu);
	if (is_guess)
		log_info("the order %s is expected next", spec);
	else
		log_info("found the order %s after %" PRIu64 " opens", spec, opens);
	rc = job->p.found(job->p.ctx, spec, version);
	mutex_lock(&job->mu);
	if (rc < 0 || told != job->told) {
		job->known.is_found = false;
		return;
	}
	snprintf(job->found, sizeof(job->found), "%s", spec);
	job->gone[0] = 0;
	job->found_after = opens;
	job->orders_found++;
	metrics_add(job->p.metrics, METRIC_RECOVER_FOUND, 1);
	job->is_told = false;
	part_begin(&job->part, &job->known, job->p.numbers, &job->trail);
	if (version == job->version) /* until the new plan has been heard of */
		set_plan_locked(job, JOB_PLAN_BUSY);
}

static bool is_news(const struct job_answer *a, const struct job_answer *b)
{
	return a->world != b->world || a->n_ranks != b->n_ranks ||
	       memcmp(a->rank, b->rank, a->n_ranks * sizeof(a->rank[0])) != 0;
}

static void settle_refine_locked(struct job *job, const struct errand *e, int rc,
				 const struct job_answer *answer) REQUIRES(job->mu);
static void settle_refine_locked(struct job *job, const struct errand *e, int rc,
				 const struct job_answer *answer)
{
	struct job_answer better = job->known.last;
	const uint64_t opens = job->trail.start[e->aim.start].opens;

	job->known.n_seen = (uint32_t)e->q.n_seen;
	if (rc < 0 || e->pass != job->known.pass || !is_news(answer, &better))
		return;
	better.world = answer->world;
	better.n_ranks = answer->n_ranks;
	memcpy(better.rank, answer->rank, sizeof(better.rank));
	job->known.last = better;
	hand_over_locked(job, opens);
}

/* It did not come to its end, so it may be made again; unless it was another job's, this one pays. */
static void settle_ended_locked(struct job *job, const struct errand *e) REQUIRES(job->mu);
static void settle_ended_locked(struct job *job, const struct errand *e)
{
	if (e->began_ns == job->budget.began_ns)
		spend_waste(&job->budget, e->cpu_ns);
}

static void settle_budget_locked(struct job *job, const struct errand *e, int rc) REQUIRES(job->mu);
static void settle_budget_locked(struct job *job, const struct errand *e, int rc)
{
	enum budget_kind kind = e->aim.kind == AIM_FULL ? BUDGET_FULL
				: e->q.is_first		? BUDGET_BRIEF
							: BUDGET_LOOK;

	if (rc == 0)
		spend_renew(&job->budget, true);
	else if (rc == -ECANCELED && kind == BUDGET_FULL)
		settle_ended_locked(job, e);
	else
		spend_charge(&job->budget, kind, e->pass, e->cpu_ns);
}

/* The job reads some of the samples only, and numbers these: a search of all seeds for an order of
 * all of them is in vain, and another one is worth it, also of the beginnings that had one. */
static void be_narrow_locked(struct job *job) REQUIRES(job->mu);
static void be_narrow_locked(struct job *job)
{
	job->is_narrow = true;
	spend_renew(&job->budget, true);
	job->full_failed = 0;
	for (uint32_t i = 0; i < TRAIL_STARTS; i++)
		job->trail.start[i].is_searched = false;
	if (job->is_full)
		atomic_store(&job->cancel, true);
}

static void settle_locked(struct job *job, const struct errand *e, int rc,
			  const struct job_answer *answer) REQUIRES(job->mu);
static void settle_locked(struct job *job, const struct errand *e, int rc,
			  const struct job_answer *answer)
{
	bool is_full = e->aim.kind == AIM_FULL;

	if (job->is_stopping || e->version != job->version) {
		if (is_full)
			job->trail.start[e->aim.start].is_searched = false;
		settle_ended_locked(job, e);
		return;
	}
	if (e->aim.kind == AIM_REFINE) {
		settle_refine_locked(job, e, rc, answer);
		return;
	}
	job->searches++;
	job->was_full = is_full && (rc == 0 || rc == -ENOENT);
	if (is_full && rc == 0)
		job->full_failed = 0;
	else if (is_full && rc == -ENOENT)
		job->full_failed++;
	if (rc < 0 && rc != -ENOENT && rc != -ECANCELED)
		log_limited(LOG_LEVEL_WARN, "a search for the order failed: %s", strerror(-rc));
	settle_budget_locked(job, e, rc);
	if (rc < 0 && answer->is_narrow && !job->is_narrow)
		be_narrow_locked(job);
	if (rc < 0)
		return;
	known_found(&job->known, answer, e->pass, (uint32_t)e->q.n_seen);
	job->known.no_streams |= is_full && !job->known.last.is_chain;
	job->known.noted = e->noted;
	if (e->pass != job->trail.pass) /* look at this pass again with what is known now */
		job->trail.start[TRAIL_PASS].looked = 0;
	if (e->pass == job->trail.pass || known_goes_on(&job->known))
		hand_over_locked(job, job->trail.start[e->aim.start].opens);
}

static void run_errand_locked(struct job *job, struct errand *e) REQUIRES(job->mu);
static void run_errand_locked(struct job *job, struct errand *e)
{
	struct job_answer answer;
	int rc;

	job->is_offering = e->aim.kind != AIM_REFINE;
	if (e->aim.kind == AIM_NEXT) {
		known_advance(&job->known);
		hand_over_locked(job, 0);
		job->is_offering = false;
		return;
	}
	prepare_locked(job, e);
	mutex_unlock(&job->mu);
	rc = search(job, e, &answer);
	mutex_lock(&job->mu);
	settle_locked(job, e, rc, &answer);
	job->is_quick = job->is_full = job->is_offering = job->is_idle = false;
}

/* The cheap questions, in the midst of a search of all seeds that is held. What they find ends it.
 */
static void look_meanwhile_locked(struct job *job) REQUIRES(job->mu);
static void look_meanwhile_locked(struct job *job)
{
	struct errand e = { .aim = aim_of(job) };
	uint64_t found = job->orders_found;
	struct job_answer answer;
	int rc;

	if (e.aim.kind != AIM_QUICK || atomic_load(&job->cancel) || job->is_stopping)
		return;
	atomic_store(&job->hold, true);
	prepare_locked(job, &e);
	mutex_unlock(&job->mu);
	rc = search(job, &e, &answer);
	mutex_lock(&job->mu);
	settle_locked(job, &e, rc, &answer);
	job->is_quick = job->is_idle = false;
	if (job->orders_found > found)
		supersede_locked(job);
}

/* On the job's thread, a few times a second while a full search is under way. */
static void note_progress(void *ctx, double share, double left_s)
{
	struct job *job = ctx;
	const char *until = job->p.waits_until ? job->p.waits_until(job->p.ctx) : NULL;
	uint64_t quiet_ns;

	mutex_lock(&job->mu);
	job->share = share;
	job->left_s = left_s;
	look_meanwhile_locked(job);
	quiet_ns = clock_now(job->p.clock) - job->trail.last_ns;
	job->held = quiet_ns >= QUIET_NS ? "samples are opened again" : until;
	atomic_store(&job->hold, job->held != NULL);
	if (quiet_ns >= JOB_PAUSE_NS) /* that job is gone */
		atomic_store(&job->cancel, true);
	mutex_unlock(&job->mu);
}

static void *job_main(void *arg)
{
	struct job *job = arg;

	if (is_too_large(job))
		log_info("shuffles of numpy and Python are not looked for: that takes more than a "
			 "quarter of ram");
	/* Fails only where nothing may be changed. */
	(void)setpriority(PRIO_PROCESS, 0, MIN(getpriority(PRIO_PROCESS, 0) + OWN_NICE, 19));
	mutex_lock(&job->mu);
	while (!job->is_stopping) {
		struct errand e = { .aim = aim_of(job) };

		if (job->is_widened) {
			job->is_widened = false;
			hand_over_locked(job, job->found_after);
		} else if (e.aim.kind == AIM_NOTHING) {
			cond_wait(&job->changed, &job->mu);
		} else {
			run_errand_locked(job, &e);
		}
	}
	mutex_unlock(&job->mu);
	return NULL;
}

int job_start(struct job *job, struct err *err)
{
	return is_active(job) ? thr_start(&job->thr, "cl-job", job_main, job, err) : 0;
}

void job_stop(struct job *job)
{
	if (!job)
		return;
	mutex_lock(&job->mu);
	job->is_stopping = true;
	atomic_store(&job->cancel, true);
	cond_signal(&job->changed);
	mutex_unlock(&job->mu);
	thr_join(&job->thr);
}

/* What would be looked at is too dear yet. */
static bool is_saving(const struct job *job)
{
	struct aim_facts facts = facts_of(job);

	if (job->is_suspended || !is_active(job) || aim_of(job).kind != AIM_NOTHING)
		return false;
	facts.budget = NULL;
	return aim_at(&facts).kind != AIM_NOTHING;
}

void job_get_status(struct job *job, struct job_status *ret)
{
	mutex_lock(&job->mu);
	*ret = (struct job_status){ .is_searching = job->is_quick || job->is_full,
				    .is_full = job->is_full,
				    .is_held = job->is_full && job->held,
				    .progress = job->is_full ? job->share : 0,
				    .left_s = job->is_full ? job->left_s : 0,
				    .cpu_s = (double)cpu_ns_of(job) / 1e9,
				    .vain_cpu_s = (double)job->budget.spent_ns / 1e9,
				    .job_s = (double)spend_wall_ns(&job->budget,
								    clock_now(job->p.clock)) /
					     1e9,
				    .is_saving = is_saving(job),
				    .searches = job->searches,
				    .orders_found = job->orders_found,
				    .found_after = job->found_after };
	snprintf(ret->found, sizeof(ret->found), "%s", job->found);
	words_say(&(struct words_facts){ .known = &job->known,
					 .trail = &job->trail,
					 .effort = job->p.effort,
					 .plan = (enum job_plan)atomic_load(&job->plan),
					 .is_suspended = job->is_suspended,
					 .is_quick = job->is_quick,
					 .is_full = job->is_full,
					 .was_full = job->was_full,
					 .is_left = job->part.is_left,
					 .is_saving = ret->is_saving,
					 .held = job->held,
					 .full_failed = job->full_failed,
					 .share = job->share,
					 .left_s = job->left_s,
					 .searches = job->searches,
					 .found_after = job->found_after,
					 .found = job->found,
					 .gone = job->gone,
					 .gone_why = job->gone_why },
		  ret->words);
	mutex_unlock(&job->mu);
}
