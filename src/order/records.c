/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that number the records of larger files. A kind computes with the number of records and
 * never hears of files; here its numbers become places in the dataset's table, and an epoch of
 * records becomes what a plan of files can carry out: the files, each once, in the sequence in
 * which the reader comes to the first record of each.
 *
 *   records    0 1 2 | 3 4 | 5 6 7        files A B C
 *   the job    6 7 5 | 1 0 2 | 4 3        the plan: C A B
 *
 * Which of the two a spec numbers is never guessed without a word: it is the kind's nature, or key
 * records=, and where it could be taken for the other one the order has a note. Set-up code of one
 * thread, but for order_records_fold and order_records_file, which any thread may call. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "clairfs/base/bitmap.h"
#include "clairfs/base/text.h"
#include "order_priv.h"

#define SHOWN 200 /* bytes of a path in a message */

/* The dataset is known and has no table. */
static int refuse_files(const struct order_spec *spec, struct err *err)
{
	return err_set(err, -EINVAL,
		       "it numbers the samples within %s, and the dataset has no table of them: "
		       "%s makes it (records=0: each file is a sample)",
		       spec->kind->records_of, spec->kind->records_by);
}

bool order_lacks_records(const struct order_spec *spec, const struct order_params *params)
{
	uint64_t asked = order_spec_u64(spec, "records");

	if (params->n_records > 0 || spec->kind->numbers == ORDER_NUMBERS_SHARDS)
		return false;
	return asked == 1 || (asked == ORDER_RECORDS_AUTO &&
			      spec->kind->numbers == ORDER_NUMBERS_RECORDS && params->number &&
			      params->n > 0);
}

int order_records_choose(const struct order_spec *spec, const struct order_params *params,
			 bool *ret, struct err *err)
{
	enum order_numbers numbers = spec->kind->numbers;
	uint64_t asked = order_spec_u64(spec, "records");
	bool has_table = params->n_records > 0;

	*ret = has_table && (asked == 1 || (asked == ORDER_RECORDS_AUTO &&
					    numbers != ORDER_NUMBERS_FILES &&
					    numbers != ORDER_NUMBERS_SHARDS));
	if (asked == 1 && numbers == ORDER_NUMBERS_SHARDS)
		return err_set(err, -EINVAL,
			       "key \"records\": this kind numbers files, each read from front to back; "
			       "a torch or numpy kind numbers records");
	if (asked == 1 && order_lacks_records(spec, params))
		return err_set(err, -EINVAL,
			       "key \"records\": the dataset has no table of records: clairfs index "
			       "--records auto, or --import, makes it");
	if (order_lacks_records(spec, params))
		return refuse_files(spec, err);
	if (*ret && order_spec_path(spec, "sort"))
		return err_set(err, -EINVAL,
			       "key \"sort\": records are numbered as their table has them "
			       "(records=0: the files)");
	return 0;
}

int order_check_memory(uint64_t (*memory)(void), uint64_t bytes, struct err *err)
{
	uint64_t there = memory ? memory() : 0;

	if (there == 0 || bytes < there)
		return 0;
	return err_set(err, -ENOMEM,
		       "it takes %" PRIu64 " MiB of memory and %" PRIu64 " MiB are available",
		       bytes >> 20, there >> 20);
}

int order_check_room(const struct order_params *params, uint64_t bytes, struct err *err)
{
	return order_check_memory(params->memory, bytes, err);
}

int order_records_check_room(const struct order *order, const struct order_params *params,
			     struct err *err)
{
	const struct order_part all = { .epoch = order->shown.start_epoch, .count = UINT64_MAX };

	return order_check_room(params, order_head_bytes(order, &all), err);
}

/* Which samples of the index are the spec's: those below a directory, or one file. */
static int mark_under(const struct order_params *params, const char *under, struct bitmap *ret,
		      struct err *err)
{
	uint32_t *sample AUTO_FREE = NULL;
	uint64_t n = 0;
	uint32_t one;
	int rc = 0;

	if (bitmap_init(ret, params->n) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	if (params->resolve && params->resolve(params->resolve_ctx, under, strlen(under), &one) &&
	    one < params->n) {
		bitmap_set(ret, one);
		return 0;
	}
	if (!params->number)
		return err_set(err, -EINVAL, "key \"under\" needs the files of a dataset");
	rc = params->number(params->number_ctx, NULL, under, &sample, &n, err);
	if (rc < 0) {
		err_prefix(err, "key \"under\"");
		return rc;
	}
	for (uint64_t i = 0; i < n; i++)
		bitmap_set(ret, sample[i]);
	return 0;
}

/* The numbers of the records of these files. */
static int map_under(struct order_numbering *num, const struct bitmap *is_under, struct err *err)
{
	const struct order_records *r = &num->records;
	uint64_t n = 0, at = 0;

	for (size_t i = 0; i < r->n; i++)
		if (r->sample[i] != SAMPLE_NONE && bitmap_get(is_under, r->sample[i]))
			n += r->first[i + 1] - r->first[i];
	if (n == 0)
		return err_set(err, -EINVAL, "key \"under\": there is no record below it");
	if (order_check_room(num->params, n * sizeof(*num->map), err) < 0)
		return err->code;
	num->map = order_alloc_u32(n);
	if (!num->map)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < r->n; i++)
		if (r->sample[i] != SAMPLE_NONE && bitmap_get(is_under, r->sample[i]))
			for (uint64_t k = r->first[i]; k < r->first[i + 1]; k++)
				num->map[at++] = (uint32_t)k;
	num->inner.n = n;
	return 0;
}

/* Two directories of a table, as far down as they differ. */
struct two_dirs {
	char first[PATH_MAX], other[PATH_MAX];
	size_t common; /* bytes of the path that they share, with its '/' */
	bool are_two;
};

static size_t common_part(const char *a, const char *b)
{
	size_t common = 0;

	for (size_t i = 0; a[i] && a[i] == b[i]; i++)
		if (a[i] == '/')
			common = i + 1;
	return common;
}

/* Of all directories with records the first one, and the one that has least in common with it. */
static void find_two_dirs(const struct order_params *params, const struct order_shard *shard,
			  size_t n, struct two_dirs *ret)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < n; i++) {
		size_t common;

		if (i > 0 && shard[i].dir == shard[i - 1].dir)
			continue;
		if (params->dir_path(params->shards_ctx, shard[i].dir, path, sizeof(path)) < 0)
			continue; /* UNTESTED: no path of the index is longer */
		common = common_part(ret->first, path);
		if (!*ret->first)
			strcpy(ret->first, path);
		else if (strcmp(ret->first, path) != 0 && (!ret->are_two || common < ret->common)) {
			strcpy(ret->other, path);
			ret->common = common;
			ret->are_two = true;
		}
	}
}

/* A directory as far as it takes to tell it from the other one. */
static void show_dir(const char *path, size_t common, const char *from, char out[SHOWN])
{
	size_t len = common + strcspn(path + common, "/");

	if (strncmp(path, from, len) == 0 && (from[len] == '/' || !from[len]))
		len = strlen(path);
	text_escape(path, len, out, SHOWN);
}

/* A framework reads one directory of such files. The numbers of all of them, train and validation,
 * are never the job's. */
static int check_dirs(const struct order_params *params, const struct order_shard *shard, size_t n,
		      struct err *err)
{
	struct two_dirs *two AUTO_FREE = params->dir_path ? calloc(1, sizeof(*two)) : NULL;
	char first[SHOWN], other[SHOWN];
	const char *say = first;

	if (!params->dir_path)
		return 0;
	if (!two)
		return err_set(err, -ENOMEM, "out of memory");
	find_two_dirs(params, shard, n, two);
	if (!two->are_two)
		return 0;
	show_dir(two->first, two->common, two->other, first);
	show_dir(two->other, two->common, two->first, other);
	if (strcmp(first, ".") == 0)
		say = other;
	return err_set(err, -EINVAL,
		       "the table has records in %s and in %s: under=%s says which are meant (under=.: all)",
		       first, other, say);
}

/* The table's files; neighbours that are one file become one. */
static int take_shards(struct order_numbering *num, bool is_of_one_dir, struct err *err)
{
	const struct order_params *params = num->params;
	struct order_records *r = &num->records;
	struct order_shard *shard AUTO_FREE = NULL;
	size_t n = 0;
	int rc = params->shards(params->shards_ctx, &shard, &n);

	if (rc == 0 && is_of_one_dir && check_dirs(params, shard, n, err) < 0)
		return err->code;

	if (rc == 0) {
		r->sample = order_alloc_u32(n);
		r->first = malloc((n + 1) * sizeof(*r->first));
	}
	if (rc < 0 || !r->sample || !r->first)
		return err_set(err, -ENOMEM, "out of memory");
	r->first[0] = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t sample = shard[i].sample < params->n ? shard[i].sample : SAMPLE_NONE;

		if (r->n == 0 || r->sample[r->n - 1] != sample) {
			r->sample[r->n++] = sample;
			r->first[r->n] = r->first[r->n - 1];
		}
		r->first[r->n] += shard[i].count;
	}
	assert(r->first[r->n] == params->n_records);
	return 0;
}

/* Where the numbers of a file begin with 0, two files are no order. */
static int check_one_file(const struct order_spec *spec, const struct order_numbering *num,
			  const struct bitmap *is_under, struct err *err)
{
	const struct order_records *r = &num->records;
	const uint32_t *one = NULL;

	for (size_t i = 0; spec->kind->one_file && i < r->n; i++) {
		if (is_under && (r->sample[i] == SAMPLE_NONE || !bitmap_get(is_under, r->sample[i])))
			continue;
		if (one && *one != r->sample[i])
			return err_set(err, -EINVAL,
				       "the table has records of several files, and this order is of one: "
				       "under=%s says of which",
				       spec->kind->one_file);
		one = &r->sample[i];
	}
	return 0;
}

/* How many records each of the files has that are numbered, for kinds that shuffle by shards. */
static int list_sizes(struct order_numbering *num, const struct bitmap *is_under, struct err *err)
{
	const struct order_records *r = &num->records;

	num->sizes.size = order_alloc_u32(r->n);
	if (!num->sizes.size)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < r->n; i++)
		if (!is_under || (r->sample[i] != SAMPLE_NONE && bitmap_get(is_under, r->sample[i])))
			num->sizes.size[num->sizes.n++] = (uint32_t)(r->first[i + 1] - r->first[i]);
	return 0;
}

int order_records_number(const struct order_spec *spec, struct order_numbering *num,
			 struct err *err)
{
	const char *under = order_spec_path(spec, "under");
	bool is_of_one_dir = spec->kind->numbers == ORDER_NUMBERS_RECORDS && !under;
	struct bitmap is_under = { 0 };
	int rc = take_shards(num, is_of_one_dir, err);

	num->inner.n = num->params->n_records;
	num->inner.resolve = NULL; /* a path names a file, not a record */
	if (rc == 0 && under)
		rc = mark_under(num->params, under, &is_under, err);
	if (rc == 0)
		rc = check_one_file(spec, num, under ? &is_under : NULL, err);
	if (rc == 0 && under)
		rc = map_under(num, &is_under, err);
	if (rc == 0 && spec->kind->numbers == ORDER_NUMBERS_RECORDS)
		rc = list_sizes(num, under ? &is_under : NULL, err);
	bitmap_fini(&is_under);
	return rc;
}

uint32_t order_records_file(const struct order_records *r, uint32_t record)
{
	size_t low = 0, high = r->n;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (r->first[middle] <= record)
			low = middle;
		else
			high = middle;
	}
	return r->sample[low];
}

int order_records_outside(const struct order_numbering *num, uint64_t **ret)
{
	const struct order_records *r = &num->records;
	uint64_t words = DIV_ROUND_UP(num->params->n, 64);
	uint64_t *outside = malloc(MAX(words, 1) * sizeof(*outside));

	if (!outside)
		return -ENOMEM;
	memset(outside, 0xff, words * sizeof(*outside));
	for (size_t i = 0; !num->map && i < r->n; i++)
		if (r->sample[i] != SAMPLE_NONE)
			outside[r->sample[i] / 64] &= ~(1ull << r->sample[i] % 64);
	for (uint64_t i = 0; num->map && i < num->inner.n; i++) {
		uint32_t file = order_records_file(r, num->map[i]);

		if (file != SAMPLE_NONE)
			outside[file / 64] &= ~(1ull << file % 64);
	}
	*ret = outside;
	return 0;
}

/* Positions of this epoch that were read before the job began again (start_step). */
static uint64_t positions_before(const struct order_info *info, uint64_t epoch)
{
	uint64_t each = info->n_ranks;

	if (info->start_step == 0 || epoch != info->start_epoch)
		return 0;
	return __builtin_mul_overflow(each, info->batch, &each) ||
			       __builtin_mul_overflow(each, info->start_step, &each)
		       ? UINT64_MAX
		       : each;
}

/* The files of the records from this position on, to the front of e->sample; returns how many. */
static uint64_t fold_from(const struct order *order, struct order_epoch *e, uint64_t from,
			  struct bitmap *seen)
{
	uint64_t n = 0;

	for (uint64_t i = from; i < e->length; i++) {
		uint32_t file = order_records_file(&order->records, e->sample[i]);

		if (file == SAMPLE_NONE || bitmap_get(seen, file))
			continue;
		bitmap_set(seen, file);
		e->sample[n++] = file;
	}
	return n;
}

int order_records_fold(const struct order *order, struct order_epoch *e, struct err *err)
{
	uint64_t from = positions_before(&order->info, e->epoch), n;
	struct bitmap seen = { 0 };
	uint32_t *smaller;

	if (bitmap_init(&seen, MAX(e->n, 1)) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	n = fold_from(order, e, from, &seen);
	if (n == 0 && from > 0) /* a plan has no epoch without files: all of it, read again */
		n = fold_from(order, e, 0, &seen);
	bitmap_fini(&seen);
	e->length = n;
	smaller = realloc(e->sample, MAX(n, 1) * sizeof(*smaller));
	if (smaller)
		e->sample = smaller;
	return 0;
}

uint64_t order_n_records(const struct order *order)
{
	return order->records.n > 0 ? order->info.n : 0;
}

/* Whether nothing is left of the epoch in which the job begins again. */
static bool is_through(const struct order *order)
{
	const struct order_info *info = &order->info;
	struct order_span common = { .epoch = info->start_epoch };
	struct err ignored = { 0 };
	uint64_t all = 0;

	if (info->start_step == 0 ||
	    order_common_length(order, common.epoch, &common.length, &ignored) < 0)
		return false;
	for (uint32_t i = 0; i < info->n_ranks; i++)
		all += order_rank_length(order, &common, info->ranks[i]);
	return positions_before(info, common.epoch) >= all;
}

void order_records_show(const struct order *order, struct order_info *shown)
{
	if (!is_through(order)) {
		/* The first epoch is cut, those behind it are not. */
		shown->is_same_every_epoch &= shown->start_step == 0;
	} else if (shown->epochs != 1 && shown->start_epoch < UINT64_MAX) {
		shown->start_epoch++;
		shown->epochs -= shown->epochs > 0;
	}
	/* These are of records; the plan's positions are files. */
	shown->start_step = shown->batch = shown->prefetch_factor = 0;
}

/* Appends to what the kind says. */
static int add_note(struct order *order, const char *text)
{
	char *note;

	if (asprintf(&note, "%s%s%s", order->note ? order->note : "", order->note ? "; " : "",
		     text) < 0)
		return -ENOMEM;
	free(order->note);
	order->note = note;
	return 0;
}

int order_records_note(struct order *order, const struct order_params *params,
		       const struct order_spec *spec)
{
	char text[200];

	if (order->records.n > 0)
		snprintf(text, sizeof(text),
			 "it numbers %" PRIu64 " samples within files; where a mount fetches the files, "
			 "these come in the sequence in which the job comes to them",
			 order->info.n);
	else if (params->n_records > 0 && order_spec_u64(spec, "records") == ORDER_RECORDS_AUTO &&
		 spec->kind->numbers != ORDER_NUMBERS_SHARDS)
		snprintf(text, sizeof(text),
			 "it numbers the %" PRIu64 " files: records=1 numbers the %" PRIu64
			 " samples within files that the dataset has a table of",
			 order->info.n, params->n_records);
	else
		return 0;
	return add_note(order, text);
}

void order_records_fini(struct order_records *r)
{
	free(r->sample);
	free(r->first);
	*r = (struct order_records){ 0 };
}
