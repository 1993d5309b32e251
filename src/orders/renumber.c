/* SPDX-License-Identifier: Apache-2.0 */
/* When a job does not read in the order that was told, it may be the right order of files that are
 * numbered in another way: listed as timm does, or from a directory below the root. This thread
 * looks now and then whether the plan has lost its order; then it takes the last opens, computes
 * epochs of the same spec with other values of sort= and under=, and asks whether the opens stand
 * at one place of them. What fits replaces the order, and the plan verifies it like any other.
 *
 * The planner is asked for the opens and for how it does, no more: a trial costs a sort and some
 * permutations of n on this thread, which has the lowest priority, and after a search without
 * success the next one of this order waits for four times as many reads of one loss. Lists are left
 * alone, they name the files. It must never replace an order that was told meanwhile. A stop waits
 * for the sort or the permutation under way: up to a second per 10^7 samples. */
#include <errno.h>
#include <stdatomic.h>
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
#define PARTS_MAX 8u    /* directories that are tried */
#define PART_SHARE 10u  /* with at least a tenth of the samples */
#define TRIED_MAX (PARTS_MAX * 8u)
#define RENUMBER_NICE 19
#define EPOCH_BYTES 16u /* per sample, of an epoch that is tried */

struct renumber {
	struct orders *o;
	struct thr thread;
	struct mutex mu;
	struct cond cv;
	bool is_stopping; /* mu */
	atomic_bool is_cancelled;
	/* the thread's own */
	uint64_t spec, next_reads; /* hash of the spec looked at, and when to look again */
	bool is_large_said;
};

/* One search. */
struct search {
	struct renumber *r;
	struct order_spec *spec;
	struct plan_status plan;
	uint32_t opens[OPENS], n_opens;
	char *part[PARTS_MAX + 1]; /* paths; NULL is the root */
	uint32_t n_parts;
	uint64_t tried[TRIED_MAX]; /* hashes of numberings: several ways often agree */
	uint32_t n_tried;
	char *found; /* a spec */
};

static bool was_tried(struct search *s, const uint32_t *sample, uint32_t n)
{
	uint64_t hash = XXH3_64bits(sample, (size_t)n * sizeof(*sample));

	for (uint32_t i = 0; i < s->n_tried; i++)
		if (s->tried[i] == hash)
			return true;
	if (s->n_tried < TRIED_MAX)
		s->tried[s->n_tried++] = hash;
	return false;
}

/* Whether the opens stand in this epoch of the order. */
static bool epoch_fits(const struct search *s, const struct order *order, uint64_t epoch)
{
	struct order_epoch *ep;
	struct err err = { 0 };
	bool is_fit;

	if (atomic_load(&s->r->is_cancelled) || order_epoch_new(order, epoch, &ep, &err) < 0)
		return false;
	is_fit = plan_epoch_fits(order_info(order), ep, s->opens, s->n_opens);
	order_epoch_free(ep);
	return is_fit;
}

/* The epoch the job is in, or UINT64_MAX: the one that was followed last, the next, the one before,
 * and where a run starts. */
static uint64_t find_epoch(const struct search *s, const struct order *order)
{
	uint64_t now = s->plan.epoch, start = order_info(order)->start_epoch;
	uint64_t epochs[] = { now, now + 1, now ? now - 1 : 0, start, 0 };
	uint32_t n = order_info(order)->is_same_every_epoch ? 1 : ARRAY_LEN(epochs);

	for (uint32_t i = 0; i < n; i++) {
		bool is_new = true;

		for (uint32_t k = 0; k < i; k++)
			is_new = is_new && epochs[k] != epochs[i];
		if (is_new && epoch_fits(s, order, epochs[i]))
			return epochs[i];
	}
	return UINT64_MAX;
}

static void try_text(struct search *s, const char *text, const char *sort, const char *under)
{
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };
	uint64_t epoch = UINT64_MAX;

	/* A kind that cannot be with this many samples is no error here. */
	if (order_spec_parse(text, &spec, &err) == 0 &&
	    orders_make(s->r->o, spec, &order, &err) == 0)
		epoch = find_epoch(s, order);
	if (epoch != UINT64_MAX)
		s->found = order_spec_renumbered(s->spec, sort, under, epoch);
	order_free(order);
	order_spec_free(spec);
}

static void try_numbering(struct search *s, enum dataset_sort sort, const char *under)
{
	const char *name = sort == DATASET_SORT_INDEX ? NULL : dataset_sort_names[sort];
	AUTO_FREE uint32_t *sample = NULL;
	AUTO_FREE char *text = NULL;
	struct err err = { 0 };
	uint32_t n;

	if (atomic_load(&s->r->is_cancelled) ||
	    dataset_numbering(s->r->o->dataset, sort, under, &sample, &n, &err) < 0 ||
	    was_tried(s, sample, n))
		return;
	atomic_fetch_add(&s->r->o->numberings_tried, 1);
	text = order_spec_renumbered(s->spec, name, under, 0);
	if (text)
		try_text(s, text, name, under);
}

/* Directories with a good share of the samples, the root first: a part is a list of its own. */
static int find_parts(struct search *s)
{
	const struct dataset *ds = s->r->o->dataset;
	uint32_t n = dataset_n_samples(ds), entries = dataset_n_entries(ds);
	AUTO_FREE uint32_t *count = calloc((size_t)entries + 1, sizeof(*count));
	char path[4096];

	if (!count)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct entry_id e = dataset_parent(ds, (struct entry_id){ i });

		for (; !entry_eq(e, ENTRY_ROOT); e = dataset_parent(ds, e))
			count[e.v]++;
	}
	s->part[s->n_parts++] = NULL;
	for (uint32_t i = n; i < entries && s->n_parts <= PARTS_MAX; i++) {
		if (count[i] < n / PART_SHARE || !count[i] ||
		    dataset_path(ds, (struct entry_id){ i }, path, sizeof(path)) < 0)
			continue;
		s->part[s->n_parts] = strdup(path);
		if (!s->part[s->n_parts])
			return -ENOMEM;
		s->n_parts++;
	}
	return 0;
}

static void search_run(struct search *s)
{
	if (find_parts(s) < 0)
		return;
	for (uint32_t i = 0; i < s->n_parts && !s->found; i++)
		for (int sort = 0; dataset_sort_names[sort] && !s->found; sort++)
			try_numbering(s, (enum dataset_sort)sort, s->part[i]);
}

/* The order in force is `text`, and it is lost. */
static void search(struct renumber *r, const char *text, const struct plan_status *plan)
{
	struct search s = { .r = r, .plan = *plan };
	struct err err = { 0 };

	if (order_spec_parse(text, &s.spec, &err) < 0)
		return;
	s.n_opens = cache_last_opens(r->o->cache, s.opens, OPENS);
	if (s.n_opens >= FIRST_READS)
		search_run(&s);
	if (s.found && !atomic_load(&r->is_cancelled)) {
		if (orders_change(r->o, text, s.found, &err) == 0)
			log_info("%s: the files are numbered in another way than was told: %s",
				 r->o->mountpoint, s.found);
		else if (err.code)
			log_warn("%s: %s", s.found, err.msg);
	}
	for (uint32_t i = 1; i < s.n_parts; i++)
		free(s.part[i]);
	free(s.found);
	order_spec_free(s.spec);
}

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

static void look_for_numbers(struct renumber *r)
{
	AUTO_FREE char *text = orders_text(r->o);
	struct cache_status st;
	uint64_t spec;

	cache_get_status(r->o->cache, &st);
	if (!text || st.n_jobs > 1 || st.plan.state != PLAN_LOST ||
	    strncmp(text, "list:", strlen("list:")) == 0 || is_too_large(r))
		return;
	spec = XXH3_64bits(text, strlen(text));
	if (spec != r->spec) {
		r->spec = spec;
		r->next_reads = FIRST_READS;
	}
	if (st.plan.lost_reads < r->next_reads)
		return;
	r->next_reads = 4 * st.plan.lost_reads;
	search(r, text, &st.plan);
}

static void *renumber_main(void *arg)
{
	struct renumber *r = arg;

	/* The thread's own number: niceness is per thread in Linux. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), RENUMBER_NICE);
	mutex_lock(&r->mu);
	while (!r->is_stopping) {
		cond_wait_for(&r->cv, &r->mu, LOOK_NS);
		if (r->is_stopping)
			break;
		mutex_unlock(&r->mu);
		look_for_numbers(r);
		mutex_lock(&r->mu);
	}
	mutex_unlock(&r->mu);
	return NULL;
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
	cond_fini(&r->cv);
	mutex_fini(&r->mu);
	free(r);
	o->renumber = NULL;
}
