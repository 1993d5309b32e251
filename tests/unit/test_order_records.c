/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that number the records of larger files: which kinds do, what a plan of files gets of
 * them, and what is said where an order cannot apply. That the records are those that the real
 * libraries read is for the golden vectors (tests/mount/test_records.py). */
#include "clairfs/order.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/ids.h"

/* Files 0 to 9: 1 is README, 3 an index; 100 records. 5 comes twice, and a part is no sample. */
static const struct order_shard shards[] = {
	{ 5, 10, 0 },	       { 0, 20, 0 }, { 2, 30, 0 }, { 5, 5, 0 },
	{ SAMPLE_NONE, 5, 0 }, { 4, 15, 0 }, { 4, 15, 0 },
};
#define N 10
#define N_RECORDS 100

static int list_shards(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	*ret = malloc(sizeof(shards));
	CHECK(*ret);
	memcpy(*ret, shards, sizeof(shards));
	*ret_n = ARRAY_LEN(shards);
	return 0;
}

/* How a test lays the files of the table out: a directory for each shard. NULL: all in one. */
static const char *const *dirs;

static int list_shards_in_dirs(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	int rc = list_shards(ctx, ret, ret_n);

	for (uint32_t i = 0; i < *ret_n; i++)
		(*ret)[i].dir = i;
	return rc;
}

static int dir_path(void *ctx, uint32_t dir, char *out, size_t size)
{
	CHECK(dir < ARRAY_LEN(shards));
	snprintf(out, size, "%s", dirs[dir]);
	return 0;
}

/* All but the index; below "part": 4 and 5. */
static int number(void *ctx, const char *sort, const char *under, uint32_t **ret_sample,
		  uint64_t *ret_n, struct err *err)
{
	static const uint32_t all[] = { 0, 1, 2, 4, 5, 6, 7, 8, 9 }, part[] = { 4, 5 };

	if (under && strcmp(under, "part") != 0)
		return err_set(err, -ENOENT, "no such directory");
	*ret_n = under ? ARRAY_LEN(part) : ARRAY_LEN(all);
	*ret_sample = malloc(*ret_n * sizeof(**ret_sample));
	CHECK(*ret_sample);
	memcpy(*ret_sample, under ? part : all, *ret_n * sizeof(**ret_sample));
	return 0;
}

static bool resolve(void *ctx, const char *path, size_t len, uint32_t *ret_sample)
{
	*ret_sample = 2;
	return len == 6 && memcmp(path, "file.2", 6) == 0;
}

static uint64_t memory_there;

static uint64_t memory(void)
{
	return memory_there;
}

static int make(const char *text, bool has_table, struct order **ret, struct err *err)
{
	struct order_params params = {
		.n = N, .number = number, .resolve = resolve, .memory = memory
	};
	struct order_spec *spec;
	int rc;

	if (has_table) {
		params.n_records = N_RECORDS;
		params.shards = dirs ? list_shards_in_dirs : list_shards;
		params.dir_path = dirs ? dir_path : NULL;
	}
	CHECK_INT(order_spec_parse(text, &spec, err), 0);
	rc = order_new(spec, &params, ret, err);
	order_spec_free(spec);
	return rc;
}

static struct order *order_of(const char *text)
{
	struct order *order = NULL;
	struct err err = { 0 };
	int rc = make(text, true, &order, &err);

	CHECK_STR(err.msg, "");
	CHECK_INT(rc, 0);
	return order;
}

static void refuses(const char *text, bool has_table, const char *part)
{
	struct order *order;
	struct err err = { 0 };

	CHECK_INT(make(text, has_table, &order, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, part);
	CHECK(!strchr(err.msg, '\n'));
}

/* The files of an epoch, one after the other. */
static char *files_of(const struct order *order, uint64_t epoch)
{
	struct order_epoch *e;
	struct err err = { 0 };
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	CHECK(f);
	CHECK_INT(order_epoch_new(order, epoch, &e, &err), 0);
	CHECK_U64(e->n, N);
	for (uint64_t i = 0; i < e->length; i++) {
		CHECK_U64(e->first[e->sample[i]], i);
		fprintf(f, "%u ", e->sample[i]);
	}
	CHECK(!e->next_same); /* each file once */
	order_epoch_free(e);
	fclose(f);
	return text;
}

static uint32_t file_of(uint32_t record)
{
	size_t i = 0;

	for (uint64_t end = shards[0].count; record >= end; end += shards[i].count)
		i++;
	return shards[i].sample;
}

/* The same from the records, by a plain search. */
static char *files_by_hand(const struct order *order, uint64_t epoch)
{
	const struct order_part all = { .epoch = epoch, .count = UINT64_MAX };
	AUTO_FREE uint32_t *record = NULL;
	bool seen[N] = { false };
	struct err err = { 0 };
	char *text = NULL;
	size_t size = 0;
	uint64_t n;
	FILE *f = open_memstream(&text, &size);

	CHECK(f);
	CHECK_INT(order_head(order, &all, &record, &n, &err), 0);
	for (uint64_t i = 0; i < n; i++) {
		uint32_t file = file_of(record[i]);

		CHECK(record[i] < N_RECORDS);
		if (file == SAMPLE_NONE || seen[file])
			continue;
		seen[file] = true;
		fprintf(f, "%u ", file);
	}
	fclose(f);
	return text;
}

static void files_come_where_their_first_record_is(void)
{
	static const char *const specs[] = {
		"torch-distributed:seed=1:records=1",
		"torch-distributed:seed=2:world=3:ranks=0-1:records=1",
		"numpy-generator:seed=5:records=1",
		"mosaic-py1s:seed=3",
		"mosaic-naive",
		"litdata:seed=9:world=2:rank=1:batch=4:workers=2",
		"grain:seed=5",
	};
	struct order *order = order_of("sequential:records=1");

	{
		AUTO_FREE char *files = files_of(order, 0);

		CHECK_STR(files, "5 0 2 4 ");
	}
	order_free(order);
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		order = order_of(specs[i]);
		CHECK_U64(order_n_records(order), N_RECORDS);
		CHECK_U64(order_info(order)->n, N);
		for (uint64_t epoch = 0; epoch < 3; epoch++) {
			AUTO_FREE char *files = files_of(order, epoch);
			AUTO_FREE char *by_hand = files_by_hand(order, epoch);

			CHECK_STR(files, by_hand);
		}
		order_free(order);
	}
}

/* What is shown of an order is of files: batches of records are not. */
static void info_is_of_files(void)
{
	struct order *order = order_of("sequential:records=1:batch=7:workers=2:prefetch_factor=3");
	const struct order_info *info = order_info(order);
	const uint64_t inside = 1u << 0 | 1u << 2 | 1u << 4 | 1u << 5;

	CHECK_U64(info->batch, 0);
	CHECK_U64(info->prefetch_factor, 0);
	CHECK_U64(info->workers, 2);
	CHECK_U64(~info->outside[0] & ((1u << N) - 1), inside);
	CHECK_CONTAINS(order_note(order), "it numbers 100 samples within files");
	order_free(order);
}

/* Shards of the table are the sizes that a shuffle within shards goes by. */
static void shards_follow_from_the_table(void)
{
	static const char *const same[][2] = {
		{ "mosaic-py1s:seed=3", "mosaic-py1s:seed=3:shards=10+20+30+5+5+30" },
		{ "litdata:seed=3", "litdata:seed=3:shards=10+20+30+5+5+30" },
		{ "mosaic-py1e:seed=3:under=part", "mosaic-py1e:seed=3:under=part:shards=10+5+30" },
	};

	for (size_t i = 0; i < ARRAY_LEN(same); i++) {
		const struct order_part all = { .count = UINT64_MAX };
		struct order *a = order_of(same[i][0]), *b = order_of(same[i][1]);
		AUTO_FREE uint32_t *x = NULL, *y = NULL;
		struct err err = { 0 };
		uint64_t n, m;

		CHECK_INT(order_head(a, &all, &x, &n, &err), 0);
		CHECK_INT(order_head(b, &all, &y, &m, &err), 0);
		CHECK_U64(n, m);
		CHECK_INT(memcmp(x, y, n * sizeof(*x)), 0);
		order_free(a);
		order_free(b);
	}
	refuses("mosaic-py1s:shards=10+20", true, "add up to 30, but the dataset has 100 samples");
	refuses("mosaic-py1s:first=30", true, "only some of the samples of the table");
}

static void parts_of_the_records_may_be_numbered(void)
{
	struct order *order = order_of("sequential:records=1:under=part");
	const struct order_part all = { .count = UINT64_MAX };
	AUTO_FREE uint32_t *record = NULL, *beginning = NULL;
	struct err err = { 0 };
	uint64_t n;

	CHECK_INT(order_head(order, &all, &record, &n, &err), 0);
	CHECK_U64(n, 10 + 5 + 30);
	for (uint64_t i = 0; i < n; i++)
		CHECK_U64(record[i], i < 10 ? i : i < 15 ? 50 + i : 55 + i);
	CHECK_U64(~order_info(order)->outside[0] & ((1u << N) - 1), 1u << 4 | 1u << 5);
	order_free(order);
	order = order_of("sequential:records=1:under=file.2");
	CHECK_U64(~order_info(order)->outside[0] & ((1u << N) - 1), 1u << 2);
	order_free(order);
	order = order_of("sequential:records=1:first=25");
	CHECK_INT(order_head(order, &all, &beginning, &n, &err), 0);
	CHECK_U64(n, 25);
	CHECK_U64(~order_info(order)->outside[0] & ((1u << N) - 1), 1u << 5 | 1u << 0);
	order_free(order);
	CHECK_INT(make("sequential:records=1:under=none", true, &order, &err), -ENOENT);
	CHECK_CONTAINS(err.msg, "key \"under\": no such directory");
}

/* A loader of such files reads one directory; the numbers of train and validation together are nobody's. */
static void a_table_of_several_directories_needs_to_be_told_which(void)
{
	static const struct {
		const char *dirs[ARRAY_LEN(shards)];
		const char *part; /* NULL: they are one */
	} cases[] = {
		{ { "a", "a", "a", "a", "a", "a", "a" }, NULL },
		{ { ".", ".", ".", ".", ".", ".", "." }, NULL },
		{ { "train", "train", "train", "train", "val", "val", "val" },
		  "the table has records in train and in val: under=train says which" },
		{ { "val", "train", "val", "train", "val", "train", "val" },
		  "in val and in train: under=val says which" },
		{ { "train/0", "train/1", "train/2", "train/3", "val/0", "val/1", "val/1" },
		  "in train and in val: under=train says which" },
		{ { "a/0", "a/0", "a/0", "a/0", "a/0", "a/0", "a/1" },
		  "in a/0 and in a/1: under=a/0 says which" },
		{ { ".", ".", ".", ".", ".", "val", "val" }, "in . and in val: under=val says which" },
		{ { "a", "a", "a", "a", "a", "a", "a/b" }, "in a and in a/b: under=a says which" },
		{ { "a/b/c", "a/b", "a/b", "a/b", "a/b", "a/b", "a/b" }, "in a/b/c and in a/b: " },
	};
	static const char *const kinds[] = { "mosaic-naive", "mosaic-py1e:seed=1", "litdata:seed=1",
					     "megatron:path=/none", "ffcv:seed=1" };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct order *order;

		dirs = cases[i].dirs;
		if (!cases[i].part)
			order_free(order_of("mosaic-py1e:seed=1"));
		for (size_t k = 0; cases[i].part && k < ARRAY_LEN(kinds); k++)
			refuses(kinds[k], true, cases[i].part);
		order = order_of("mosaic-py1e:seed=1:under=part");
		CHECK_U64(order_n_records(order), 10 + 5 + 30);
		order_free(order);
		order_free(order_of("mosaic-py1e:records=0:shards=10")); /* files */
		order_free(order_of("torch-distributed:seed=1:records=1")); /* as it was told */
		dirs = NULL;
	}
}

/* Numbers of sequences are those of one NAME.idx, which say nothing of another one's file. */
static void an_order_of_one_file_needs_to_be_told_which(void)
{
	static const char *const kinds[] = { "ffcv:seed=1", "megatron:path=/none" };
	const struct order_part all = { .count = UINT64_MAX };
	AUTO_FREE uint32_t *record = NULL;
	struct order *order = order_of("ffcv:seed=1:under=file.2");
	struct err err = { 0 };
	uint64_t n;

	CHECK_INT(order_head(order, &all, &record, &n, &err), 0);
	CHECK_U64(n, 30);
	for (uint64_t i = 0; i < n; i++)
		CHECK(record[i] >= 30 && record[i] < 60);
	order_free(order);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		char text[80];

		refuses(kinds[i], true, "records of several files, and this order is of one: under=NAME.b");
		snprintf(text, sizeof(text), "%s:under=part", kinds[i]);
		refuses(text, true, "records of several files, and this order is of one: under=NAME.b");
	}
	refuses("megatron:documents=3:under=file.2", true, "key \"path\" is missing");
}

/* A job that begins again within an epoch has files behind it that it does not open any more. */
static void a_start_within_the_epoch_is_counted_in_records(void)
{
	struct order *order = order_of("sequential:records=1:start_epoch=1:start_step=4:batch=10");

	CHECK_U64(order_info(order)->start_step, 0);
	CHECK(!order_info(order)->is_same_every_epoch); /* the first one is cut */
	{
		AUTO_FREE char *start = files_of(order, 1), *next = files_of(order, 2);

		CHECK_STR(start, "2 5 4 "); /* records 40 and on */
		CHECK_STR(next, "5 0 2 4 ");
	}
	order_free(order);
	order = order_of("sequential:records=1:start_step=0:batch=10");
	CHECK(order_info(order)->is_same_every_epoch);
	order_free(order);
	refuses("sequential:records=1:start_step=12:batch=10", true, "behind the end of the epoch");
}

/* Nothing is left of the epoch, and a plan takes one of length 0 for a failure. */
static void a_start_at_the_end_of_an_epoch_is_the_next_one(void)
{
	static const struct {
		const char *spec;
		uint64_t start, epochs;
		bool is_same;
	} cases[] = {
		{ "sequential:records=1:start_epoch=1:start_step=10:batch=10", 2, 0, true },
		{ "sequential:records=1:start_step=4:batch=30:epochs=3", 1, 2, true },
		{ "sequential:records=1:start_step=10:batch=10:epochs=1", 0, 1, true },
		{ "torch-distributed:seed=1:shuffle=0:records=1:world=4:ranks=0-1:start_step=5:batch=5", 1, 0,
		  true },
		{ "torch-distributed:seed=1:shuffle=0:records=1:world=4:ranks=0-1:start_step=4:batch=5", 0, 0,
		  false },
		{ "sequential:records=1:under=part:start_step=9:batch=5", 1, 0, true },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct order *order = order_of(cases[i].spec);
		const struct order_info *info = order_info(order);

		CHECK_U64(info->start_epoch, cases[i].start);
		CHECK_U64(info->epochs, cases[i].epochs);
		CHECK_U64(info->start_step, 0);
		CHECK_INT(info->is_same_every_epoch, cases[i].is_same);
		for (uint64_t epoch = 0; epoch < 3; epoch++) {
			AUTO_FREE char *files = files_of(order, epoch);

			CHECK(*files);
		}
		order_free(order);
	}
}

/* How many records there are is what a file claims. */
static void what_takes_more_memory_than_there_is_is_refused(void)
{
	static const struct {
		const char *spec;
		uint64_t bytes;
	} cases[] = {
		{ "sequential:records=1", 4 * N_RECORDS },
		{ "torch-distributed:seed=1:records=1:world=2:ranks=0", 4 * (N_RECORDS + 50) },
		{ "sequential:records=1:under=part", 4 * 45 },
		{ "sequential:records=1:first=1", 4 * N_RECORDS },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct order *order;
		struct err err = { 0 };

		memory_there = cases[i].bytes;
		CHECK_INT(make(cases[i].spec, true, &order, &err), -ENOMEM);
		CHECK_CONTAINS(err.msg, "MiB of memory and 0 MiB are available");
		memory_there++;
		order_free(order_of(cases[i].spec));
	}
	memory_there = 1;
	order_free(order_of("sequential")); /* as many files as there are */
	memory_there = 0;
	order_free(order_of("sequential:records=1")); /* not known */
}

/* Without records=1 most kinds number files, and that is said; an index is none of them, but with
 * records=0. */
static void files_are_numbered_with_a_word(void)
{
	static const struct {
		const char *spec;
		bool is_of_all;
	} cases[] = {
		{ "sequential", false },
		{ "torch-distributed:seed=1:shuffle=0", false },
		{ "sequential:records=0", true },
		{ "mosaic-naive:records=0:shuffle=0", true },
		{ "grain:seed=1:records=0:shuffle=0", true },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct order *order = order_of(cases[i].spec);

		CHECK_U64(order_n_records(order), 0);
		{
			AUTO_FREE char *files = files_of(order, 0);

			CHECK_STR(files, cases[i].is_of_all ? "0 1 2 3 4 5 6 7 8 9 "
							    : "0 1 2 4 5 6 7 8 9 ");
		}
		if (cases[i].is_of_all)
			CHECK(!order_info(order)->outside);
		else
			CHECK_U64(order_info(order)->outside[0] & ((1u << N) - 1), 1u << 3);
		if (!cases[i].is_of_all)
			CHECK_CONTAINS(order_note(order),
				       "numbers the 9 files: records=1 numbers the 100 samples within");
		else
			CHECK(!order_note(order));
		order_free(order);
	}
	{
		struct order *order = order_of("webdataset:seed=1:shardshuffle=4");

		CHECK(!order_note(order)); /* it is of files by nature */
		order_free(order);
	}
}

/* Who tells numbers has them from the index, where a file is counted whatever is in it. */
static void numbers_of_a_list_are_those_of_the_index(void)
{
	static const uint32_t told[] = { 1, 3, 9, 4 };
	struct order_params params = { .n = N,
				       .number = number,
				       .n_records = N_RECORDS,
				       .shards = list_shards,
				       .told = told,
				       .n_told = ARRAY_LEN(told) };
	struct order_spec *spec;
	struct order *order;
	struct err err = { 0 };

	CHECK_INT(order_spec_parse("list:path=told", &spec, &err), 0);
	CHECK_INT(order_new(spec, &params, &order, &err), 0);
	{
		AUTO_FREE char *files = files_of(order, 0);

		CHECK_STR(files, "1 3 9 4 ");
	}
	order_free(order);
	order_spec_free(spec);
}

/* A mount goes on without an order that only lacks the table, and with none that is wrong. */
static void what_lacks_a_table_is_told_from_what_is_wrong(void)
{
	static const struct {
		const char *spec;
		bool lacks;
	} cases[] = {
		{ "mosaic-py1e:seed=1", true },
		{ "litdata", true },
		{ "torch-distributed:seed=1:records=1", true },
		{ "list:path=/none:records=1", true },
		{ "mosaic-py1e:seed=1:records=0", false },
		{ "torch-distributed:seed=1", false },
		{ "grain:seed=1", false },
		{ "webdataset:seed=1:shardshuffle=4:records=1", false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct order_params params = { .n = N, .number = number };
		struct order_spec *spec;
		struct order *order;
		struct err err = { 0 };

		CHECK_INT(order_spec_parse(cases[i].spec, &spec, &err), 0);
		CHECK_INT(order_lacks_records(spec, &params), cases[i].lacks);
		if (cases[i].lacks)
			CHECK_INT(order_new(spec, &params, &order, &err), -EINVAL);
		params.n_records = N_RECORDS;
		CHECK(!order_lacks_records(spec, &params));
		order_spec_free(spec);
	}
}

static void what_cannot_apply_says_what_would(void)
{
	refuses("mosaic-py1e", false,
		"order mosaic-py1e: it numbers the samples within shards of MosaicML Streaming, and "
		"the dataset has no table of them: clairfs index --records mds makes it");
	refuses("litdata", false, "clairfs index --records litdata");
	refuses("ffcv:seed=1", false, "clairfs index --import");
	refuses("megatron:documents=3", false, "clairfs index --records megatron");
	refuses("torch-distributed:seed=1:records=1", false, "has no table of records");
	refuses("webdataset:seed=1:shardshuffle=4:records=1", true, "this kind numbers files");
	refuses("sequential:records=1:sort=path", true, "key \"sort\": records are numbered as");
}

static const struct check_test tests[] = {
	{ "files_come_where_their_first_record_is", files_come_where_their_first_record_is },
	{ "info_is_of_files", info_is_of_files },
	{ "shards_follow_from_the_table", shards_follow_from_the_table },
	{ "parts_of_the_records_may_be_numbered", parts_of_the_records_may_be_numbered },
	{ "a_table_of_several_directories_needs_to_be_told_which",
	  a_table_of_several_directories_needs_to_be_told_which },
	{ "an_order_of_one_file_needs_to_be_told_which",
	  an_order_of_one_file_needs_to_be_told_which },
	{ "numbers_of_a_list_are_those_of_the_index", numbers_of_a_list_are_those_of_the_index },
	{ "a_start_within_the_epoch_is_counted_in_records",
	  a_start_within_the_epoch_is_counted_in_records },
	{ "a_start_at_the_end_of_an_epoch_is_the_next_one",
	  a_start_at_the_end_of_an_epoch_is_the_next_one },
	{ "what_takes_more_memory_than_there_is_is_refused",
	  what_takes_more_memory_than_there_is_is_refused },
	{ "files_are_numbered_with_a_word", files_are_numbered_with_a_word },
	{ "what_lacks_a_table_is_told_from_what_is_wrong",
	  what_lacks_a_table_is_told_from_what_is_wrong },
	{ "what_cannot_apply_says_what_would", what_cannot_apply_says_what_would },
};

CHECK_MAIN(tests)
