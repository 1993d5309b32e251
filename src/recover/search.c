/* SPDX-License-Identifier: Apache-2.0 */
/* Threads over a range or a list of seeds, or over the words of streams. Pieces of 16384 seeds (a
 * millisecond) are claimed in ascending order from one counter; after each the thread looks whether
 * it is to stop. The first seed in the range that is accepted wins whatever the threads do: nothing
 * is claimed after a find, and pieces claimed before it are finished. Of streams a whole one is
 * claimed at a time, since to begin somewhere in one takes as long as ten pieces; there any find
 * wins.
 *
 * The caller's thread computes nothing: it waits, reports progress and joins. Search threads share
 * the counter (atomic) and, under the lock, what was found; each has a judge and buffers of its
 * own. They take nobody's time if asked so: `nice` and SCHED_IDLE are set per thread, which Linux
 * allows, and never on the caller's. On a node without an idle CPU a SCHED_IDLE thread takes seconds
 * to notice that it is to end, so the caller takes that back first (a process without privileges
 * may not, by default: then its end takes that long). */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clairfs/base/thr.h"
#include "recover_priv.h"

#define PIECE 16384
#define THREADS_MAX 1024
#define TESTS_AT_ONCE 65536 /* of the sieve, between two looks at `cancel`: a millisecond */
#define REPORT_NS (NS_PER_S / 5)
#define HOLD_NS (50 * NS_PER_MS) /* between two looks at `hold` */

struct crew {
	const struct search *search;
	struct clock *clock;
	atomic_uint_fast64_t claimed, done; /* seeds; claimed: or streams */
	atomic_bool is_over;                /* found or failed: claim nothing more */
	struct mutex mu;
	struct cond changed;
	struct cond ended;          /* nobody signals it but who ends the search early */
	pid_t *tid;                 /* mu; of the threads that run, 0: none any more */
	unsigned n_tids;            /* mu */
	unsigned running;           /* mu */
	int rc;                     /* mu; 1 found, else negative errno */
	uint64_t found_at;          /* mu */
	struct recover_found found; /* mu */
};

/* What a thread needs of its own. */
struct desk {
	struct judge *judge;
	uint32_t *seed, *left; /* [PIECE] */
	struct feed feed;
	uint64_t words_before; /* of all streams before the one that was claimed last */
	size_t stream;         /* number of that one, from 1; 0: none yet */
	uint32_t words_left;   /* of it */
};

/* Some seeds, and the number of the first. */
struct piece {
	uint64_t from;
	size_t count;
};

static int desk_init(struct desk *desk, const struct problem *problem)
{
	desk->seed = malloc(PIECE * sizeof(*desk->seed));
	desk->left = malloc(PIECE * sizeof(*desk->left));
	if (!desk->seed || !desk->left)
		return -ENOMEM;
	return problem ? judge_new(problem, &desk->judge) : 0;
}

static void desk_fini(struct desk *desk)
{
	judge_free(desk->judge);
	feed_fini(&desk->feed);
	free(desk->seed);
	free(desk->left);
}

static bool search_is_cancelled(const struct search *s)
{
	return s->params->cancel && atomic_load(s->params->cancel);
}

static void crew_note(struct crew *crew, int rc, uint64_t at, const struct recover_found *found)
{
	mutex_lock(&crew->mu);
	if (rc == 1 && (crew->rc != 1 || at < crew->found_at)) {
		crew->found = *found;
		crew->found_at = at;
		crew->rc = 1;
	} else if (crew->rc == 0) {
		crew->rc = rc;
	}
	mutex_unlock(&crew->mu);
	atomic_store(&crew->is_over, true);
}

/* Where in the piece a seed that passed stands. Lists may repeat seeds: the first counts. */
static uint64_t find_seed(const struct desk *desk, uint32_t seed)
{
	uint64_t i = 0;

	while (desk->seed[i] != seed)
		i++;
	return i;
}

static bool is_held(const struct search *s)
{
	return s->params->hold && atomic_load(s->params->hold) && !search_is_cancelled(s);
}

static void rest(struct crew *crew)
{
	const struct search *s = crew->search;

	if (!is_held(s))
		return;
	mutex_lock(&crew->mu);
	while (is_held(s) && !atomic_load(&crew->is_over))
		(void)cond_wait_for(&crew->ended, &crew->mu, HOLD_NS);
	mutex_unlock(&crew->mu);
}

/* In slices: a seed takes a thousand times as long when a thousand ranks are asked. */
static size_t scan_piece(struct crew *crew, const struct desk *desk, size_t count)
{
	const struct search *s = crew->search;
	size_t slice = MAX(TESTS_AT_ONCE / s->sieve->n_tests, 64), n = 0;

	for (size_t at = 0; at < count && !search_is_cancelled(s); at += slice) {
		rest(crew);
		n += scan_seeds(s->isa, s->sieve, desk->seed + at, MIN(slice, count - at),
				desk->left + n);
	}
	return n;
}

/* The stream that is to be worked on next. False: there is none. */
static bool claim_stream(struct crew *crew, struct desk *desk, int *ret_rc)
{
	const struct search *s = crew->search;
	uint64_t mine = atomic_fetch_add(&crew->claimed, 1);

	if (mine >= s->n_streams)
		return false;
	for (; desk->stream < mine + 1; desk->stream++)
		desk->words_before += desk->stream ? s->streams[desk->stream - 1].count : 0;
	desk->words_left = s->streams[mine].count;
	*ret_rc = feed_seek(&desk->feed, &s->streams[mine].from);
	return *ret_rc == 0;
}

/* The next piece, its seeds in desk->seed. False: nothing is left, or *ret_rc < 0. */
static bool claim(struct crew *crew, struct desk *desk, struct piece *ret, int *ret_rc)
{
	const struct search *s = crew->search;

	if (s->streams) {
		const struct recover_stream *stream;

		if (desk->words_left == 0 && !claim_stream(crew, desk, ret_rc))
			return false;
		stream = &s->streams[desk->stream - 1];
		ret->from = desk->words_before + stream->count - desk->words_left;
		ret->count = MIN(desk->words_left, PIECE);
		desk->words_left -= (uint32_t)ret->count;
		feed_take(&desk->feed, desk->seed, ret->count);
		return true;
	}
	ret->from = atomic_fetch_add(&crew->claimed, PIECE);
	if (ret->from >= s->total)
		return false;
	ret->count = (size_t)MIN(s->total - ret->from, PIECE);
	if (s->list)
		memcpy(desk->seed, s->list + ret->from, ret->count * sizeof(*desk->seed));
	else
		for (size_t i = 0; i < ret->count; i++)
			desk->seed[i] = s->first + (uint32_t)(ret->from + i);
	return true;
}

/* Number `i` of the piece in the stream that the feed is in. */
static struct recover_place place_of(const struct desk *desk, const struct piece *piece, size_t i)
{
	struct recover_place place = desk->feed.at;

	place.word -= (uint32_t)(piece->count - i);
	return place;
}

/* Keeps the first `max`. */
static void crew_note_place(struct crew *crew, uint64_t at, const struct recover_place *place)
{
	struct places *p = crew->search->places;
	size_t i;

	mutex_lock(&crew->mu);
	i = p->n < p->max ? p->n++ : p->max;
	for (; i > 0 && p->at[i - 1] > at; i--)
		if (i < p->max) {
			p->at[i] = p->at[i - 1];
			p->place[i] = p->place[i - 1];
		}
	if (i < p->max) {
		p->at[i] = at;
		p->place[i] = *place;
	}
	mutex_unlock(&crew->mu);
}

static void look_up(struct crew *crew, const struct desk *desk, const struct piece *piece)
{
	uint32_t value = crew->search->first, is_there = 0;

	rest(crew);
	for (size_t i = 0; i < piece->count; i++)
		is_there |= desk->seed[i] == value;
	for (size_t i = 0; is_there && i < piece->count; i++)
		if (desk->seed[i] == value) {
			struct recover_place place = place_of(desk, piece, i);

			crew_note_place(crew, piece->from + i, &place);
		}
}

static void work_piece(struct crew *crew, struct desk *desk, const struct piece *piece)
{
	const struct search *s = crew->search;
	struct recover_found found;
	size_t n_left = scan_piece(crew, desk, piece->count), at;

	for (size_t i = 0; i < n_left; i++) {
		/* In a small dataset the sieve lets much through. */
		if (i % 32 == 31 && search_is_cancelled(s))
			return;
		if (!judge_seed(desk->judge, desk->left[i], s->hypotheses, &found))
			continue;
		at = find_seed(desk, desk->left[i]);
		if (s->streams) {
			struct recover_place place = place_of(desk, piece, at);

			found.is_chain = true;
			found.draw = place.draw;
			found.manual_seed = place.manual_seed;
			found.word = place.word;
		}
		crew_note(crew, 1, piece->from + at, &found);
		return;
	}
}

/* Both fail only where nothing may be changed; then there is no harm in what is asked for. */
static void be_modest(const struct recover_params *p)
{
	const struct sched_param none = { 0 };

	if (p->nice > 0)
		(void)setpriority(PRIO_PROCESS, 0, MIN(getpriority(PRIO_PROCESS, 0) + p->nice, 19));
	if (p->is_idle)
		(void)sched_setscheduler(0, SCHED_IDLE, &none);
}

static unsigned sign_in(struct crew *crew)
{
	unsigned me;

	mutex_lock(&crew->mu);
	me = crew->n_tids++;
	crew->tid[me] = (pid_t)syscall(SYS_gettid);
	mutex_unlock(&crew->mu);
	return me;
}

/* Lets threads that nobody waits for but us have a CPU, so that they see that they are to end. */
static void hurry_locked(struct crew *crew) REQUIRES(crew->mu)
{
	const struct sched_param none = { 0 };

	cond_broadcast(&crew->ended);
	for (unsigned i = 0; i < crew->n_tids && crew->search->params->is_idle; i++)
		if (crew->tid[i])
			(void)sched_setscheduler(crew->tid[i], SCHED_OTHER, &none);
}

/* Adds what this thread has used since the last time. */
static void note_cpu(const struct recover_params *p, uint64_t *counted_ns)
{
	struct timespec now;
	uint64_t ns;

	if (!p->cpu_ns || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) < 0)
		return;
	ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
	atomic_fetch_add(p->cpu_ns, ns - *counted_ns);
	*counted_ns = ns;
}

static void *crew_main(void *arg)
{
	struct crew *crew = arg;
	const struct search *s = crew->search;
	struct desk desk = { 0 };
	struct piece piece;
	uint64_t counted_ns = 0;
	unsigned me = sign_in(crew);
	int rc;

	be_modest(s->params);
	rc = desk_init(&desk, s->problem);
	while (rc == 0 && !atomic_load(&crew->is_over) && !search_is_cancelled(s) &&
	       claim(crew, &desk, &piece, &rc)) {
		if (s->places)
			look_up(crew, &desk, &piece);
		else
			work_piece(crew, &desk, &piece);
		atomic_fetch_add(&crew->done, piece.count);
		note_cpu(s->params, &counted_ns);
	}
	if (rc < 0)
		crew_note(crew, rc, 0, NULL);
	desk_fini(&desk);
	mutex_lock(&crew->mu);
	crew->tid[me] = 0;
	crew->running--;
	cond_signal(&crew->changed);
	mutex_unlock(&crew->mu);
	return NULL;
}

static void report(struct crew *crew, uint64_t start_ns)
{
	const struct recover_params *p = crew->search->params;
	struct recover_progress progress = { .is_full = crew->search->is_full,
					     .is_streams = crew->search->streams != NULL,
					     .total = crew->search->total,
					     .done = atomic_load(&crew->done) };
	uint64_t ns = clock_now(crew->clock) - start_ns;

	if (!p->progress)
		return;
	if (ns > 0)
		progress.seeds_per_s = (double)progress.done * NS_PER_S / (double)ns;
	p->progress(p->progress_ctx, &progress);
}

/* Reports until all threads are through, the last time when they are. */
static void wait_for_crew(struct crew *crew)
{
	uint64_t start_ns = clock_now(crew->clock);
	bool is_running = true;

	while (is_running) {
		report(crew, start_ns);
		mutex_lock(&crew->mu);
		if (crew->running > 0)
			(void)cond_wait_for(&crew->changed, &crew->mu, REPORT_NS);
		is_running = crew->running > 0;
		if (is_running &&
		    (search_is_cancelled(crew->search) || atomic_load(&crew->is_over)))
			hurry_locked(crew);
		mutex_unlock(&crew->mu);
	}
	report(crew, start_ns);
}

static unsigned threads_of(const struct search *s)
{
	unsigned threads = s->params->threads;
	cpu_set_t cpus;

	if (threads == 0 && sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		threads = (unsigned)CPU_COUNT(&cpus);
	threads = MAX(threads, 1);
	return (unsigned)MIN(MIN(threads, THREADS_MAX),
			     s->streams ? s->n_streams : DIV_ROUND_UP(s->total, PIECE));
}

/* Starts what it can; fails only without any thread. */
static int crew_start(struct crew *crew, struct thr *thr, unsigned n, struct err *err)
{
	int rc = 0;

	for (unsigned i = 0; i < n && rc == 0; i++) {
		mutex_lock(&crew->mu);
		crew->running++;
		mutex_unlock(&crew->mu);
		rc = thr_start(&thr[i], "recover", crew_main, crew, err);
		if (rc == 0)
			continue;
		mutex_lock(&crew->mu);
		crew->running--;
		mutex_unlock(&crew->mu);
		if (i > 0)
			rc = 0;
		break;
	}
	return rc;
}

int search_run(const struct search *search, struct recover_found *ret, uint64_t *ret_at,
	       struct err *err)
{
	unsigned n = threads_of(search);
	struct crew crew = { .search = search,
			     .clock = search->params->clock ? search->params->clock
							    : clock_monotonic() };
	struct thr *thr AUTO_FREE = calloc(n, sizeof(*thr));
	pid_t *tid AUTO_FREE = calloc(n, sizeof(*tid));
	int rc;

	crew.tid = tid;
	if (!thr || !tid)
		return err_set(err, -ENOMEM, "out of memory");
	mutex_init(&crew.mu);
	cond_init(&crew.changed);
	cond_init(&crew.ended);
	rc = crew_start(&crew, thr, n, err);
	if (rc == 0) {
		wait_for_crew(&crew);
		for (unsigned i = 0; i < n; i++)
			thr_join(&thr[i]);
		rc = crew.rc;
		if (rc < 0)
			err_set(err, rc, "out of memory");
	}
	cond_fini(&crew.changed);
	cond_fini(&crew.ended);
	mutex_fini(&crew.mu);
	if (rc == 0 && search_is_cancelled(search))
		return err_set(err, -ECANCELED, "the search was cancelled");
	if (rc == 1) {
		*ret = crew.found;
		*ret_at = crew.found_at;
	}
	return rc;
}
