/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in which a job may number the files it opens, for the finder, which knows no files. A
 * directory is a likely part when nearly all opens are below it, or so many, or so few, that they
 * are no chance draw from the directory above: `train/` of a mount that has `val/` too, but no class of
 * a dataset that is read as a whole. Where a job looked at its validation set first, both are parts, and
 * the one that it opened files of last is the likelier.
 *
 * Each part can be sorted in several ways. What the index itself and torchvision do is asked at the first
 * look. Other sorts cost a comparison per file, so they are asked when a job has opened more, and those that
 * turned out to number the files alike are never made again. The numberings asked about last are kept, as
 * many as there is room for: each is four bytes a file.
 *
 * A job that reads some of a part only has numbered these: the first ones (torch's Subset of a range), or
 * a random split by a seed that people like. Other sets of samples have no name, so they are not found.
 *
 * list and number_opens run on the search thread only. has may be called from any; it reads what is
 * immutable in an open dataset. Names are the source's: a part whose path is no plain text, or is too
 * long for a spec, is left out. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "clairfs/dataset.h"
#include "clairfs/order.h"
#include "infer_priv.h"

#define PARTS_MAX 5u	     /* the whole dataset is one of them */
#define PART_SAMPLES 64u     /* fewer cannot be told apart by which come first; */
#define FEW_SAMPLES RECOVER_FEW_MAX /* in a dataset of no more they are asked about by their order */
#define PART_OPENS_MIN 8u    /* and an eighth of all */
#define RECENT 32u	     /* opens that show where the job reads now */
#define SORTS_SEEN 96u	     /* opens from which on all sorts are asked; */
#define SORTS_SEEN_MANY 256u /* of so many files: */
#define MANY_FILES 250000u   /* seconds to sort: */
#define TIMES_MANY 2u	     /* so not again and again */
#define SAME_MAX 128u
#define KEPT_MAX 16u
#define MISSING_SHARE 32u /* of the samples of a narrower numbering that were not read */
#define SPLIT_HEAD 64u    /* a seed is judged by as many of its first places, or more, */
#define SPLIT_BITS 30.0   /* so that chance passes once in 2^20 times 2^10 seeds */

/* A numbering that was made before. */
struct made {
	uint32_t dir;
	enum dataset_sort sort;
	uint64_t hash;
	uint32_t times;
};

/* A numbering that is kept. */
struct kept {
	struct infer_numbering way;
	uint32_t *number; /* [n_samples] of each sample, or SAMPLE_NONE; NULL: this one is free */
	uint64_t n, hash;
	uint64_t used; /* when it was asked about last */
};

struct infer_numberings {
	const struct dataset *ds;
	struct infer_numbers numbers;
	struct kept kept[KEPT_MAX];
	uint32_t n_kept; /* that there is room for */
	uint64_t asked;
	uint64_t numberings_made;
	/* The search thread: */
	uint32_t *size; /* [n_dirs + 1] samples below each directory; the root's comes last */
	struct made made[SAME_MAX];
	uint32_t n_made;
};

/* A directory that the opens are weighed for. */
struct part {
	uint32_t dir;
	uint32_t opens, recent;
	bool is_likely; /* the job reads there now */
	char path[INFER_UNDER_MAX];
};

/* Opens by directory. */
struct tally {
	const struct infer_numberings *parts;
	uint32_t *opens, *recent; /* [n_dirs + 1] */
	uint32_t n_opens, n_recent;
};

static uint32_t dir_of(const struct dataset *ds, struct entry_id e)
{
	return entry_eq(e, ENTRY_ROOT) ? dataset_n_dirs(ds) : e.v - dataset_first_dir(ds);
}

static struct entry_id dir_entry(const struct dataset *ds, uint32_t dir)
{
	return dir == dataset_n_dirs(ds) ? ENTRY_ROOT
					 : (struct entry_id){ dataset_first_dir(ds) + dir };
}

static void count_up(const struct dataset *ds, uint32_t sample, uint32_t *count)
{
	struct entry_id e = dataset_parent(ds, (struct entry_id){ sample });

	for (; !entry_eq(e, ENTRY_ROOT); e = dataset_parent(ds, e))
		count[dir_of(ds, e)]++;
	count[dataset_n_dirs(ds)]++;
}

/* How many samples are below each directory: once. */
static bool has_sizes(struct infer_numberings *parts)
{
	const struct dataset *ds = parts->ds;

	if (parts->size)
		return true;
	parts->size = calloc((size_t)dataset_n_dirs(ds) + 1, sizeof(*parts->size));
	for (uint32_t i = 0; i < dataset_n_samples(ds) && parts->size; i++)
		count_up(ds, i, parts->size);
	return parts->size != NULL;
}

/* Whether so many opens of those above are no chance: three deviations. */
static bool is_odd(double opens, double above, double share)
{
	double off = opens - above * share;

	return off * off > 9 * above * share * (1 - share);
}

static bool is_few(const struct dataset *ds)
{
	return dataset_n_samples(ds) <= FEW_SAMPLES;
}

/* A directory that is to be asked about; false: not this one. */
static bool weigh(const struct tally *t, uint32_t dir, struct part *ret)
{
	const struct dataset *ds = t->parts->ds;
	uint32_t above = dir_of(ds, dataset_parent(ds, dir_entry(ds, dir)));
	double opens = t->opens[dir], all = t->opens[above], strays = all - opens;
	double share = (double)t->parts->size[dir] / t->parts->size[above];
	char shown[INFER_UNDER_MAX + 1];

	*ret = (struct part){ .dir = dir, .opens = t->opens[dir], .recent = t->recent[dir] };
	if (opens < MAX(PART_OPENS_MIN, t->n_opens / 8) || share >= 1 ||
	    t->parts->size[dir] < (is_few(ds) ? INFER_SAMPLES_MIN : PART_SAMPLES))
		return false;
	if (strays * 16 > all && !is_odd(opens, all, share))
		return false;
	/* As many elsewhere as chance would put there: the directory above is what is read. */
	ret->is_likely = ret->recent * 10 >= t->n_recent * 9 &&
			 (strays == 0 || 2 * strays < all * (1 - share) || is_odd(opens, all, share));
	if (dataset_path(ds, dir_entry(ds, dir), ret->path, sizeof(ret->path)) < 0) {
		log_limited(LOG_LEVEL_WARN,
			    "orders of a directory whose path is longer than %d bytes are not "
			    "looked for",
			    INFER_UNDER_MAX - 1);
		return false;
	}
	text_escape(ret->path, strlen(ret->path), shown, sizeof(shown));
	return strcmp(shown, ret->path) == 0;
}

/* The likely ones first, of these the deepest; directories are numbered before what is in them. */
static bool is_before(const struct part *a, const struct part *b)
{
	if (a->is_likely != b->is_likely)
		return a->is_likely;
	return a->is_likely ? a->dir > b->dir : a->opens > b->opens;
}

static void put_part(struct part *part, uint32_t *n, const struct part *one)
{
	uint32_t at = *n;

	while (at > 0 && is_before(one, &part[at - 1]))
		at--;
	if (at == PARTS_MAX)
		return;
	*n = MIN(*n + 1, PARTS_MAX);
	memmove(&part[at + 1], &part[at], (*n - 1 - at) * sizeof(*part));
	part[at] = *one;
}

/* The root comes behind the parts that are likely and before the others. */
static uint32_t find_parts(const struct tally *t, struct part *part)
{
	uint32_t n_dirs = dataset_n_dirs(t->parts->ds), n = 0, at = 0;
	struct part one;

	for (uint32_t dir = 0; dir < n_dirs; dir++)
		if (t->opens[dir] >= PART_OPENS_MIN && weigh(t, dir, &one))
			put_part(part, &n, &one);
	while (at < n && part[at].is_likely)
		at++;
	at = MIN(at, PARTS_MAX - 1);
	n = MIN(n + 1, PARTS_MAX);
	memmove(&part[at + 1], &part[at], (n - 1 - at) * sizeof(*part));
	part[at] = (struct part){ .dir = n_dirs };
	return n;
}

static struct made *find_made(struct infer_numberings *parts, uint32_t dir, enum dataset_sort sort)
{
	for (uint32_t i = 0; i < parts->n_made; i++)
		if (parts->made[i].dir == dir && parts->made[i].sort == sort)
			return &parts->made[i];
	return NULL;
}

static void note_made(struct infer_numberings *parts, uint32_t dir, enum dataset_sort sort, uint64_t hash)
{
	struct made *made = find_made(parts, dir, sort);

	if (!made && parts->n_made < SAME_MAX) {
		made = &parts->made[parts->n_made++];
		*made = (struct made){ .dir = dir, .sort = sort, .hash = hash };
	}
	if (made)
		made->times++;
}

/* It was made before, and is what the index does. */
static bool is_same_way(struct infer_numberings *parts, uint32_t dir, enum dataset_sort sort)
{
	const struct made *one = find_made(parts, dir, sort),
			  *plain = find_made(parts, dir, DATASET_SORT_INDEX);

	return sort != DATASET_SORT_INDEX && one && plain && one->hash == plain->hash;
}

static bool is_asked(struct infer_numberings *parts, const struct infer_opens *opens,
		     const struct part *part, enum dataset_sort sort)
{
	bool is_many = parts->size[part->dir] > MANY_FILES;
	const struct made *made = find_made(parts, part->dir, sort);

	if (is_same_way(parts, part->dir, sort))
		return false;
	if (sort <= DATASET_SORT_TORCHVISION)
		return true;
	if (is_many && made && made->times >= TIMES_MANY)
		return false;
	if (is_few(parts->ds))
		return !opens->is_first;
	return !opens->is_first && opens->n >= (is_many ? SORTS_SEEN_MANY : SORTS_SEEN);
}

static size_t put_ways(struct infer_numberings *parts, const struct infer_opens *opens,
		       const struct tally *t, struct infer_numbering *ret, size_t max)
{
	struct part part[PARTS_MAX + 1];
	uint32_t n_parts = find_parts(t, part);
	size_t n = 0;

	for (int sort = 0; dataset_sort_names[sort]; sort++)
		for (uint32_t i = 0; i < n_parts && n < max; i++) {
			if (!is_asked(parts, opens, &part[i], (enum dataset_sort)sort))
				continue;
			ret[n] = (struct infer_numbering){ .dir = part[i].dir };
			ret[n].sort = sort ? dataset_sort_names[sort] : NULL;
			memcpy(ret[n].under, part[i].path, sizeof(ret[n].under));
			n++;
		}
	return n;
}

static size_t list(void *ctx, const struct infer_opens *opens, struct infer_numbering *ret, size_t max)
{
	struct infer_numberings *parts = ctx;
	uint32_t n_dirs = dataset_n_dirs(parts->ds);
	AUTO_FREE uint32_t *count = calloc((size_t)n_dirs + 1, sizeof(*count));
	AUTO_FREE uint32_t *recent = calloc((size_t)n_dirs + 1, sizeof(*recent));
	struct tally t = { .parts = parts, .opens = count, .recent = recent };

	if (!count || !recent || !has_sizes(parts))
		return 0;
	t.n_opens = (uint32_t)opens->n;
	t.n_recent = MIN(t.n_opens, RECENT);
	for (size_t i = 0; i < opens->n; i++) {
		count_up(parts->ds, opens->sample[i], count);
		if (i + t.n_recent >= opens->n)
			count_up(parts->ds, opens->sample[i], recent);
	}
	return put_ways(parts, opens, &t, ret, max);
}

/* --- numberings --- */

static bool is_way(const struct infer_numbering *a, const struct infer_numbering *b)
{
	bool is_sort = a->sort == b->sort || (a->sort && b->sort && strcmp(a->sort, b->sort) == 0);

	return is_sort && strcmp(a->under, b->under) == 0 && a->first == b->first &&
	       a->is_split == b->is_split && a->split == b->split;
}

/* The first places of a permutation, as random_split makes it. */
static int split_head(uint32_t seed, uint64_t n, uint64_t count, uint32_t **ret)
{
	const struct order_part part = { .count = count };
	const struct order_params params = { .n = n };
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };
	char text[64];
	uint64_t length;
	int rc;

	snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32, seed);
	rc = order_spec_parse(text, &spec, &err);
	if (rc == 0)
		rc = order_new(spec, &params, &order, &err);
	if (rc == 0)
		rc = order_head(order, &part, ret, &length, &err);
	order_free(order);
	order_spec_free(spec);
	return rc;
}

/* Leaves those of the samples that the way has. */
static int narrow_samples(const struct infer_numbering *way, uint32_t *sample, uint32_t *n)
{
	AUTO_FREE uint32_t *head = NULL, *was = NULL;
	int rc;

	if (!way->first || way->first > *n)
		return way->first ? -ENOENT : 0;
	if (way->is_split) {
		rc = split_head(way->split, *n, way->first, &head);
		was = malloc((size_t)*n * sizeof(*was));
		if (rc < 0 || !was)
			return rc < 0 ? rc : -ENOMEM;
		memcpy(was, sample, (size_t)*n * sizeof(*was));
		for (uint64_t i = 0; i < way->first; i++)
			sample[i] = was[head[i]];
	}
	*n = (uint32_t)way->first;
	return 0;
}

static int make_numbering(struct infer_numberings *parts, const struct infer_numbering *way,
			  struct kept *ret)
{
	uint32_t n_samples = dataset_n_samples(parts->ds), n;
	enum dataset_sort sort = DATASET_SORT_INDEX;
	AUTO_FREE uint32_t *sample = NULL;
	struct err err = { 0 };
	int rc = way->sort ? dataset_sort_parse(way->sort, &sort, &err) : 0;

	if (rc == 0)
		rc = dataset_numbering(parts->ds, sort, way->under[0] ? way->under : NULL, &sample,
				       &n, &err);
	if (rc == 0)
		rc = narrow_samples(way, sample, &n);
	if (rc < 0)
		return rc;
	*ret = (struct kept){ .way = *way, .n = n };
	ret->hash = XXH3_64bits(sample, (size_t)n * sizeof(*sample));
	ret->number = malloc((size_t)n_samples * sizeof(*ret->number));
	if (!ret->number)
		return -ENOMEM;
	memset(ret->number, 0xff, (size_t)n_samples * sizeof(*ret->number)); /* SAMPLE_NONE */
	for (uint32_t i = 0; i < n; i++)
		ret->number[sample[i]] = i;
	if (!way->first)
		note_made(parts, way->dir, sort, ret->hash);
	parts->numberings_made++;
	return 0;
}

/* In place of the one that was asked about the longest ago. */
static int get_numbering(struct infer_numberings *parts, const struct infer_numbering *way,
			 const struct kept **ret)
{
	struct kept *oldest = &parts->kept[0], one;
	int rc;

	for (uint32_t i = 0; i < parts->n_kept; i++) {
		struct kept *kept = &parts->kept[i];

		if (kept->number && is_way(&kept->way, way)) {
			kept->used = ++parts->asked;
			*ret = kept;
			return 0;
		}
		if (kept->used < oldest->used)
			oldest = kept;
	}
	free(TAKE(oldest->number)); /* first: there may be no room for both */
	oldest->used = 0;
	rc = make_numbering(parts, way, &one);
	if (rc < 0)
		return rc;
	*oldest = one;
	oldest->used = ++parts->asked;
	*ret = oldest;
	return 0;
}

static int number_opens(void *ctx, const struct infer_numbering *way,
			const struct infer_opens *opens, struct infer_numbered *ret)
{
	const struct kept *kept;
	int rc = get_numbering(ctx, way, &kept);

	if (rc < 0)
		return rc;
	ret->n = kept->n;
	ret->hash = kept->hash;
	ret->n_seen = 0;
	for (size_t i = 0; i < opens->n; i++)
		if (kept->number[opens->sample[i]] != SAMPLE_NONE)
			ret->number[ret->n_seen++] = kept->number[opens->sample[i]];
	return 0;
}

/* --- numberings of some samples of a part --- */

/* The members of a part, by its numbers. */
static uint64_t list_members(const struct kept *kept, const struct bitmap *set, struct bitmap *ret,
			     uint64_t *ret_end)
{
	*ret_end = 0;
	for (uint64_t s = 0; s < set->size; s++) {
		uint32_t number = kept->number[s];

		if (number == SAMPLE_NONE || !bitmap_get(set, s))
			continue;
		(void)bitmap_set(ret, number);
		*ret_end = MAX(*ret_end, (uint64_t)number + 1);
	}
	return ret->count;
}

/* What the first places by some seed are judged by. Where most of a part is read, they are nearly all members
 * for any seed: fewer have to be missing than of the whole part, and the more places it takes to tell that from
 * chance, the less of the part is left out. */
struct split_test {
	const struct bitmap *member;
	double holes;	 /* of the places of a split, the most that may not have been read */
	uint64_t places; /* a split is no longer than that */
	uint64_t head;	 /* by so many places nearly all seeds are told to be none */
};

static double log2_choose(uint64_t n, uint64_t k)
{
	int sign;

	return (lgamma_r((double)n + 1, &sign) - lgamma_r((double)k + 1, &sign) -
		lgamma_r((double)(n - k) + 1, &sign)) /
	       M_LN2;
}

static struct split_test split_test_of(const struct bitmap *member)
{
	double missing = 1 - (double)member->count / (double)member->size;
	double holes = MIN(1.0 / MISSING_SHARE, missing / 2);
	/* Of chance, per place, that no more of them are missing. */
	double bits = holes * log2(holes / missing) + (1 - holes) * log2((1 - holes) / (1 - missing));
	uint64_t head = MAX((uint64_t)(SPLIT_BITS / bits), SPLIT_HEAD);

	return (struct split_test){
		.member = member,
		.holes = holes,
		.places = MIN((uint64_t)((double)member->count / (1 - holes)) + 1, member->size),
		.head = MIN(head, member->count - member->count / MISSING_SHARE),
	};
}

/* The first places, as far as nearly all of them are members, and how many of these are. */
static uint64_t split_length(const struct split_test *t, const uint32_t *place, uint64_t count,
			     uint64_t *ret_found)
{
	uint64_t found = 0, length = 0, most = (uint64_t)(t->holes * (double)count);

	*ret_found = 0;
	for (uint64_t i = 0; i < count && i - found <= most; i++) {
		if (!bitmap_get(t->member, place[i]))
			continue;
		found++;
		if ((double)(i + 1 - found) > t->holes * (double)(i + 1))
			continue;
		length = i + 1;
		*ret_found = found;
	}
	return length;
}

/* Whether this is no chance: of all sets of so many members few have so many of them in the first places
 * and so few behind. Beginnings may have any length and any holes. */
static bool is_beginning(const struct bitmap *member, uint64_t length, uint64_t found)
{
	uint64_t behind = member->size - length, strays = member->count - found;
	double bits = log2_choose(member->size, member->count) -
		      log2_choose(length, length - found);

	if (length == 0 || strays * MISSING_SHARE > behind || strays * MISSING_SHARE > member->count)
		return false;
	return bits - log2_choose(behind, strays) >= SPLIT_BITS + 2 * log2((double)member->size);
}

/* Whether the members are the first part of a split by this seed. 0: they are not. */
static uint64_t try_split(const struct split_test *t, uint32_t seed)
{
	AUTO_FREE uint32_t *few = NULL, *all = NULL;
	uint64_t length, found, least = (uint64_t)((1 - t->holes) * (double)t->head);

	if (split_head(seed, t->member->size, t->head, &few) < 0 ||
	    split_length(t, few, t->head, &found) == 0 || found + 1 < least ||
	    split_head(seed, t->member->size, t->places, &all) < 0)
		return 0;
	length = split_length(t, all, t->places, &found);
	return is_beginning(t->member, length, found) ? length : 0;
}

static bool find_split(const struct bitmap *member, const struct infer_members *members,
		       struct infer_numbering *ret)
{
	const struct split_test test = split_test_of(member);

	for (size_t i = 0; i < members->n_seeds && !atomic_load(members->cancel); i++) {
		ret->first = try_split(&test, members->seed[i]);
		ret->split = members->seed[i];
		ret->is_split = ret->first > 0;
		if (ret->is_split)
			return true;
	}
	return false;
}

static size_t narrow(void *ctx, const struct infer_numbering *way,
		     const struct infer_members *members, struct infer_numbering *ret, size_t max)
{
	struct bitmap member = { 0 };
	const struct kept *kept;
	uint64_t n, end;
	bool is_found = false;

	if (max == 0 || way->first || get_numbering(ctx, way, &kept) < 0 ||
	    bitmap_init(&member, kept->n) < 0)
		return 0;
	n = list_members(kept, members->set, &member, &end);
	*ret = *way;
	ret->of = kept->n;
	/* All of them, but for an incomplete batch, is no part. */
	if (n >= PART_SAMPLES && (kept->n - n) * MISSING_SHARE > kept->n) {
		is_found = (end - n) * MISSING_SHARE <= end && is_beginning(&member, end, n);
		ret->first = is_found ? end : 0;
		is_found = is_found || find_split(&member, members, ret);
	}
	bitmap_fini(&member);
	return is_found;
}

static bool has(void *ctx, const struct infer_numbering *way, uint32_t sample)
{
	const struct infer_numberings *parts = ctx;
	const struct dataset *ds = parts->ds;
	struct entry_id e = dataset_parent(ds, (struct entry_id){ sample });

	while (dir_of(ds, e) != way->dir && !entry_eq(e, ENTRY_ROOT))
		e = dataset_parent(ds, e);
	return dir_of(ds, e) == way->dir;
}

int infer_numberings_new(const struct dataset *ds, uint64_t memory, struct infer_numberings **ret,
			 struct err *err)
{
	struct infer_numberings *parts = calloc(1, sizeof(*parts));

	*ret = parts;
	if (!parts)
		return err_set(err, -ENOMEM, "out of memory");
	parts->ds = ds;
	parts->n_kept = (uint32_t)MIN(
		MAX(memory / (sizeof(uint32_t) * MAX(dataset_n_samples(ds), 1u)), 1), KEPT_MAX);
	parts->numbers = (struct infer_numbers){
		.list = list, .number = number_opens, .narrow = narrow, .has = has, .ctx = parts
	};
	return 0;
}

void infer_numberings_free(struct infer_numberings *parts)
{
	if (!parts)
		return;
	for (uint32_t i = 0; i < KEPT_MAX; i++)
		free(parts->kept[i].number);
	free(parts->size);
	free(parts);
}

uint64_t infer_numberings_made(const struct infer_numberings *parts)
{
	return parts->numberings_made;
}

const struct infer_numbers *infer_numberings_numbers(const struct infer_numberings *parts)
{
	return &parts->numbers;
}
