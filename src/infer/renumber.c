/* SPDX-License-Identifier: Apache-2.0 */
/* When a job does not read in the order that was told, it may be the right order of files that are
 * numbered in another way: listed as timm does, or from a directory below the root. Epochs of the same
 * spec are computed with other values of sort= and under=, and asked whether the last opens stand at
 * one place of them.
 *
 * Each trial costs a sort and some permutations of n on the caller's thread; a cancel waits for the sort
 * or the permutation under way: up to a second per 10^7 samples. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "clairfs/dataset.h"
#include "clairfs/plan.h"
#include "infer_priv.h"

#define PARTS_MAX 8u   /* directories that are tried */
#define PART_SHARE 10u /* with at least a tenth of the samples */
#define TRIED_MAX (PARTS_MAX * 8u)

struct search {
	const struct infer_lost *p;
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

	if (atomic_load(s->p->cancel) || order_epoch_new(order, epoch, &ep, &err) < 0)
		return false;
	is_fit = plan_epoch_fits(order_info(order), ep, s->p->opens, s->p->n_opens);
	order_epoch_free(ep);
	return is_fit;
}

/* The epoch the job is in, or UINT64_MAX: the one that was followed last, the next, the one before,
 * and where a run starts. */
static uint64_t find_epoch(const struct search *s, const struct order *order)
{
	uint64_t now = s->p->epoch, start = order_info(order)->start_epoch;
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
	    s->p->make(s->p->ctx, spec, &order) == 0)
		epoch = find_epoch(s, order);
	if (epoch != UINT64_MAX)
		s->found = order_spec_renumbered(s->p->spec, sort, under, epoch);
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

	if (atomic_load(s->p->cancel) ||
	    dataset_numbering(s->p->dataset, sort, under, &sample, &n, &err) < 0 ||
	    was_tried(s, sample, n))
		return;
	atomic_fetch_add(s->p->tried, 1);
	text = order_spec_renumbered(s->p->spec, name, under, 0);
	if (text)
		try_text(s, text, name, under);
}

/* Directories with a good share of the samples, the root first: a part is a list of its own. */
static int find_parts(struct search *s)
{
	const struct dataset *ds = s->p->dataset;
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

char *infer_renumber(const struct infer_lost *lost)
{
	struct search s = { .p = lost };

	search_run(&s);
	for (uint32_t i = 1; i < s.n_parts; i++)
		free(s.part[i]);
	return s.found;
}
