/* SPDX-License-Identifier: Apache-2.0 */
/* Which directories a job is likely to read, from what it opens: those that are a part, not those
 * that chance fills; and the numbers that files have below them. */
#include <errno.h>
#include <string.h>

#include "clairfs/infer.h"
#include "clairfs/order.h"
#include "dataset_kit.h"

#define TRAIN 720
#define VAL 80
#define N (TRAIN + VAL)
#define WAYS 40
#define ROOM (20 * N * sizeof(uint32_t)) /* for all numberings that are asked about */

/* train/a, train/b, train/c, and val/a, val/b, val/c: the index has them in this order. */
static struct dataset *tree(const char *name)
{
	static const char classes[] = "abc";
	static char path[N][32];
	const char *list[N + 1];
	AUTO_FREE char *root = NULL;

	for (int i = 0; i < N; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/%c/%d.jpg", i < TRAIN ? "train" : "val",
			 classes[i % 3], i);
		list[i] = path[i];
	}
	list[N] = NULL;
	root = kit_tree(name, list);
	return kit_open(root, (struct kit_open){ .layout = LAYOUT_AUTO });
}

struct asked {
	struct infer_numberings *parts;
	struct infer_numbering way[WAYS];
	size_t n;
};

static void ask(struct asked *a, const struct dataset *ds, const struct infer_opens *opens)
{
	const struct infer_numbers *numbers;
	struct err err = { 0 };

	CHECK_INT(infer_numberings_new(ds, ROOM, &a->parts, &err), 0);
	numbers = infer_numberings_numbers(a->parts);
	a->n = numbers->list(numbers->ctx, opens, a->way, WAYS);
	CHECK(a->n > 0);
}

/* "train" or "train:timm" in their order, the whole dataset as ".". */
static char *ways_text(const struct asked *a)
{
	char *text = calloc(1, WAYS * 64);
	size_t at = 0;

	CHECK(text != NULL);
	for (size_t i = 0; i < a->n; i++)
		at += (size_t)snprintf(text + at, 64, "%s%s%s%s", i ? " " : "",
				       *a->way[i].under ? a->way[i].under : ".",
				       a->way[i].sort ? ":" : "",
				       a->way[i].sort ? a->way[i].sort : "");
	return text;
}

static void check_ways(const struct dataset *ds, const uint32_t *sample, size_t n, const char *want)
{
	const struct infer_opens opens = { sample, n, true };
	struct asked a;
	AUTO_FREE char *text = NULL;

	ask(&a, ds, &opens);
	text = ways_text(&a);
	CHECK_STR(text, want);
	infer_numberings_free(a.parts);
}

static void fill(uint32_t *sample, uint32_t n, uint32_t first, uint32_t of)
{
	for (uint32_t i = 0; i < n; i++)
		sample[i] = first + i * 277 % of;
}

static void a_directory_that_all_opens_are_of(void)
{
	struct dataset *ds = tree("all");
	uint32_t sample[96];

	fill(sample, 64, 0, TRAIN);
	check_ways(ds, sample, 64, "train . train:torchvision .:torchvision");
	fill(sample, 64, TRAIN, VAL);
	check_ways(ds, sample, 64, "val . val:torchvision .:torchvision");
	/* Both, as chance has it: then it is all of them that are read, though a part is asked. */
	fill(sample, 96, 0, N);
	check_ways(ds, sample, 96, ". train .:torchvision train:torchvision");
	dataset_free(ds);
}

static void the_part_that_is_read_now_comes_first(void)
{
	struct dataset *ds = tree("now");
	uint32_t sample[96];

	fill(sample, 32, TRAIN, VAL);
	fill(sample + 32, 64, 0, TRAIN);
	check_ways(ds, sample, 96,
		   "train . val train:torchvision .:torchvision val:torchvision");
	/* One file that somebody looked at. */
	sample[0] = TRAIN;
	fill(sample + 1, 63, 0, TRAIN);
	check_ways(ds, sample, 64, "train . train:torchvision .:torchvision");
	dataset_free(ds);
}

static void a_few_classes_are_a_part(void)
{
	struct dataset *ds = tree("class");
	uint32_t sample[64];

	fill(sample, 64, 0, TRAIN / 3);
	check_ways(ds, sample, 64,
		   "train/a train . train/a:torchvision train:torchvision .:torchvision");
	dataset_free(ds);
}

static void files_have_the_numbers_of_their_part(void)
{
	struct dataset *ds = tree("numbers");
	const uint32_t sample[] = { 3, TRAIN + 5, 0, TRAIN, 700 };
	const struct infer_opens opens = { sample, ARRAY_LEN(sample), true };
	struct infer_numbering way = { .under = "val" };
	uint32_t number[ARRAY_LEN(sample)];
	struct infer_numbered seen = { .number = number };
	const struct infer_numbers *numbers;
	struct asked a;

	ask(&a, ds, &opens);
	numbers = infer_numberings_numbers(a.parts);
	way.dir = kit_find(ds, "val").v - dataset_first_dir(ds);
	CHECK_INT(numbers->number(numbers->ctx, &way, &opens, &seen), 0);
	CHECK_U64(seen.n, VAL);
	CHECK_U64(seen.n_seen, 2);
	CHECK_U64(number[0], 5);
	CHECK_U64(number[1], 0);
	CHECK(numbers->has(numbers->ctx, &way, TRAIN + 5));
	CHECK(!numbers->has(numbers->ctx, &way, 3));
	snprintf(way.under, sizeof(way.under), "nowhere");
	CHECK_INT(numbers->number(numbers->ctx, &way, &opens, &seen), -ENOENT);
	infer_numberings_free(a.parts);
	dataset_free(ds);
}

/* A sort that turned out to number the files as the index does is not made again. */
static void sorts_that_agree_are_asked_once(void)
{
	struct dataset *ds = tree("sorts");
	uint32_t sample[128], number[128];
	const struct infer_opens opens = { sample, 128, false };
	AUTO_FREE char *text = NULL;
	const struct infer_numbers *numbers;
	struct asked a;

	fill(sample, 128, 0, TRAIN);
	ask(&a, ds, &opens);
	numbers = infer_numberings_numbers(a.parts);
	CHECK_U64(a.n, 14); /* seven sorts of two parts */
	for (size_t i = 0; i < a.n; i++) {
		struct infer_numbered seen = { .number = number };

		CHECK_INT(numbers->number(numbers->ctx, &a.way[i], &opens, &seen), 0);
	}
	a.n = numbers->list(numbers->ctx, &opens, a.way, WAYS);
	text = ways_text(&a);
	/* Names are not padded, so 10.jpg is behind 9.jpg where numbers count. */
	CHECK_STR(text, "train . train:timm .:timm train:natural .:natural");
	infer_numberings_free(a.parts);
	dataset_free(ds);
}

/* A dataset far down: as deep as a spec can say, and deeper. */
static void parts_far_below_the_source(void)
{
	static char deep[1300], path[100][1400];
	static const size_t lengths[] = { 799, 1199 };

	for (size_t d = 0; d < ARRAY_LEN(lengths); d++) {
		const char *list[ARRAY_LEN(path) + 1];
		AUTO_FREE char *root = NULL, *log = NULL;
		struct dataset *ds;
		uint32_t sample[64];
		struct asked a;
		int saved;
		const struct infer_opens opens = { sample, 64, true };

		memset(deep, 'a', sizeof(deep));
		for (size_t i = 199; i < sizeof(deep); i += 200)
			deep[i] = '/';
		deep[lengths[d]] = '\0';
		for (size_t i = 0; i < ARRAY_LEN(path); i++) {
			snprintf(path[i], sizeof(path[i]), "%s/%s/%zu.jpg", deep,
				 i < 80 ? "train" : "val", i);
			list[i] = path[i];
		}
		list[ARRAY_LEN(path)] = NULL;
		root = kit_tree(d ? "deeper" : "deep", list);
		ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_AUTO });
		fill(sample, 64, 0, 80);
		saved = kit_log_begin();
		ask(&a, ds, &opens);
		log = kit_log_end(saved);
		CHECK_U64(strlen(a.way[0].under), d == 0 ? lengths[d] + strlen("/train") : 0);
		CHECK_INT(strstr(log, "path is longer than 1023 bytes") != NULL, d == 1);
		infer_numberings_free(a.parts);
		dataset_free(ds);
	}
}

static void names_that_are_no_text_are_left_out(void)
{
	static char path[200][32];
	const char *list[ARRAY_LEN(path) + 1];
	AUTO_FREE char *root = NULL;
	struct dataset *ds;
	uint32_t sample[64];

	for (size_t i = 0; i < ARRAY_LEN(path); i++) {
		snprintf(path[i], sizeof(path[i]), "%s/a/%zu.jpg", i < 100 ? "b\nad\xff" : "good",
			 i);
		list[i] = path[i];
	}
	list[ARRAY_LEN(path)] = NULL;
	root = kit_tree("names", list);
	ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_AUTO });
	fill(sample, 64, 0, 100);
	check_ways(ds, sample, 64, ". .:torchvision");
	dataset_free(ds);
}

static uint32_t seeds[1024]; /* that a split is looked for by */
static size_t n_seeds;
static atomic_bool cancel;

static void use_seeds(const uint32_t *seed, size_t n)
{
	for (size_t i = 0; i < n; i++)
		seeds[i] = seed ? seed[i] : (uint32_t)i;
	n_seeds = n;
}

/* The narrower way for a job that reads these samples only, below train. */
static bool narrow(const struct asked *a, const struct dataset *ds, const uint32_t *sample, size_t n,
		   struct infer_numbering *ret)
{
	const struct infer_numbers *numbers = infer_numberings_numbers(a->parts);
	struct infer_numbering way = { .under = "train" };
	struct bitmap set;
	const struct infer_members members = { &set, seeds, n_seeds, &cancel };
	size_t found;

	CHECK_INT(bitmap_init(&set, N), 0);
	for (size_t i = 0; i < n; i++)
		(void)bitmap_set(&set, sample[i]);
	(void)bitmap_set(&set, TRAIN + 3); /* elsewhere */
	way.dir = kit_find(ds, "train").v - dataset_first_dir(ds);
	found = numbers->narrow(numbers->ctx, &way, &members, ret, 1);
	bitmap_fini(&set);
	return found == 1;
}

/* As torch's random_split shuffles TRAIN samples. */
static uint32_t *split_of(const char *text)
{
	const struct order_params params = { .n = TRAIN };
	struct order_spec *spec;
	struct order *order;
	struct err err = { 0 };
	uint32_t *sample;
	uint64_t length;

	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	CHECK_INT(order_new(spec, &params, &order, &err), 0);
	CHECK_INT(order_rank_epoch(order, 0, 0, &sample, &length, &err), 0);
	order_free(order);
	order_spec_free(spec);
	return sample;
}

static void some_samples_of_a_part_are_numbered_anew(void)
{
	struct dataset *ds = tree("narrow");
	AUTO_FREE uint32_t *split = split_of("torch-randperm:seed=42");
	AUTO_FREE uint32_t *other = split_of("torch-randperm:seed=4242");
	uint32_t sample[TRAIN], number[3];
	const struct infer_opens opens = { (uint32_t[]){ split[0], split[143], split[144] }, 3, true };
	struct infer_numbered seen = { .number = number };
	const struct infer_numbers *numbers;
	struct infer_numbering way;
	struct asked a;

	ask(&a, ds, &opens);
	use_seeds((uint32_t[]){ 0, 1, 42 }, 3);
	numbers = infer_numberings_numbers(a.parts);
	fill(sample, TRAIN, 0, TRAIN);
	CHECK(!narrow(&a, ds, sample, TRAIN, &way)); /* all of them */
	for (uint32_t i = 0; i < TRAIN / 5; i++)
		sample[i] = i;
	CHECK(narrow(&a, ds, sample, TRAIN / 5, &way));
	CHECK_U64(way.first, TRAIN / 5);
	CHECK_U64(way.of, TRAIN);
	CHECK(!way.is_split);
	CHECK(narrow(&a, ds, sample + 2, TRAIN / 5 - 2, &way)); /* two were not heard of */
	CHECK_U64(way.first, TRAIN / 5);
	CHECK(narrow(&a, ds, split, TRAIN / 5, &way));
	CHECK_U64(way.first, TRAIN / 5);
	CHECK(way.is_split && way.split == 42);
	CHECK_INT(numbers->number(numbers->ctx, &way, &opens, &seen), 0);
	CHECK_U64(seen.n, TRAIN / 5);
	CHECK_U64(seen.n_seen, 2); /* the third is not in it */
	CHECK_U64(number[0], 0);
	CHECK_U64(number[1], 143);
	CHECK(!narrow(&a, ds, other, TRAIN / 5, &way)); /* a seed that nobody asks about */
	CHECK(!narrow(&a, ds, split, 10, &way));
	infer_numberings_free(a.parts);
	dataset_free(ds);
}

/* Most of the part; also some samples of an incomplete batch were not read. */
static void large_splits(void)
{
	static const struct {
		uint32_t length, each; /* of so many one was not read, 0: of none */
	} splits[] = {
		{ TRAIN * 9 / 10, 0 },
		{ TRAIN * 9 / 10, 50 },
		{ TRAIN * 19 / 20, 0 },
		{ TRAIN * 19 / 20, 130 },
	};
	struct dataset *ds = tree("large");
	AUTO_FREE uint32_t *split = split_of("torch-randperm:seed=42");
	const struct infer_opens opens = { split, 64, true };
	struct infer_numbering way;
	struct asked a;

	ask(&a, ds, &opens);
	use_seeds(NULL, 64);
	for (size_t i = 0; i < ARRAY_LEN(splits); i++) {
		uint32_t sample[TRAIN], n = 0;

		for (uint32_t k = 0; k < splits[i].length; k++)
			if (splits[i].each == 0 || k % splits[i].each != 7)
				sample[n++] = split[k];
		CHECK(narrow(&a, ds, sample, n, &way));
		CHECK_U64(way.first, splits[i].length);
		CHECK(way.is_split && way.split == 42);
	}
	infer_numberings_free(a.parts);
	dataset_free(ds);
}

/* The fewer are left out by chance, the more of any permutation begins with members. */
static void chance_is_no_split(void)
{
	struct dataset *ds = tree("chance");
	uint64_t random = check_seed();
	uint32_t sample[TRAIN];
	const struct infer_opens opens = { sample, 64, true };
	struct asked a;

	fill(sample, TRAIN, 0, TRAIN);
	ask(&a, ds, &opens);
	use_seeds(NULL, ARRAY_LEN(seeds));
	for (uint32_t left_out = TRAIN / 32 + 1; left_out < TRAIN - 64; left_out += left_out / 4) {
		struct infer_numbering way;

		for (uint32_t i = 0; i < TRAIN; i++) {
			uint32_t k = (uint32_t)check_rand_below(&random, i + 1);

			sample[i] = sample[k];
			sample[k] = i;
		}
		CHECK(!narrow(&a, ds, sample, TRAIN - left_out, &way));
	}
	infer_numberings_free(a.parts);
	dataset_free(ds);
}

/* Behind a split nothing is read. Here every second one of the last is, so it is something else. */
static void a_beginning_of_a_permutation_is_no_split(void)
{
	struct dataset *ds = tree("beginning");
	AUTO_FREE uint32_t *split = split_of("torch-randperm:seed=42");
	const struct infer_opens opens = { split, 64, true };
	uint32_t sample[TRAIN], n = 0;
	struct infer_numbering way;
	struct asked a;

	for (uint32_t i = 0; i < TRAIN; i++)
		if (i < TRAIN - 50 || i % 2)
			sample[n++] = split[i];
	ask(&a, ds, &opens);
	use_seeds((uint32_t[]){ 42 }, 1);
	CHECK(!narrow(&a, ds, sample, n, &way));
	CHECK(narrow(&a, ds, sample, TRAIN - 50, &way)); /* without these */
	infer_numberings_free(a.parts);
	dataset_free(ds);
}

/* The mount ends, or the job goes on to another pass. */
static void splits_are_looked_for_until_that_is_cancelled(void)
{
	struct dataset *ds = tree("cancel");
	AUTO_FREE uint32_t *split = split_of("torch-randperm:seed=42");
	const struct infer_opens opens = { split, 64, true };
	struct infer_numbering way;
	struct asked a;

	ask(&a, ds, &opens);
	use_seeds((uint32_t[]){ 42 }, 1);
	atomic_store(&cancel, true);
	CHECK(!narrow(&a, ds, split, TRAIN / 5, &way));
	atomic_store(&cancel, false);
	CHECK(narrow(&a, ds, split, TRAIN / 5, &way));
	infer_numberings_free(a.parts);
	dataset_free(ds);
}

/* Sorting millions of names takes seconds, so it is not done again at each look. */
static void numberings_are_kept_while_there_is_room(void)
{
	struct dataset *ds = tree("kept");
	const uint64_t rooms[] = { ROOM, 0 };
	uint32_t sample[64], number[64];
	const struct infer_opens opens = { sample, 64, false };
	struct err err = { 0 };

	fill(sample, 64, 0, TRAIN);
	for (size_t i = 0; i < ARRAY_LEN(rooms); i++) {
		struct infer_numbering way[] = { { .under = "train" }, { .under = "val" } };
		struct infer_numberings *parts;
		const struct infer_numbers *numbers;

		CHECK_INT(infer_numberings_new(ds, rooms[i], &parts, &err), 0);
		numbers = infer_numberings_numbers(parts);
		for (int round = 0; round < 6; round++) {
			struct infer_numbered seen = { .number = number };

			CHECK_INT(numbers->number(numbers->ctx, &way[round % 2], &opens, &seen), 0);
			CHECK_U64(seen.n, round % 2 ? VAL : TRAIN);
			CHECK_U64(seen.n_seen, round % 2 ? 0 : 64);
		}
		CHECK_U64(infer_numberings_made(parts), rooms[i] ? 2 : 6);
		infer_numberings_free(parts);
	}
	dataset_free(ds);
}

static const struct check_test tests[] = {
	{ "some_samples_of_a_part_are_numbered_anew", some_samples_of_a_part_are_numbered_anew },
	{ "large_splits", large_splits },
	{ "chance_is_no_split", chance_is_no_split },
	{ "a_beginning_of_a_permutation_is_no_split", a_beginning_of_a_permutation_is_no_split },
	{ "splits_are_looked_for_until_that_is_cancelled",
	  splits_are_looked_for_until_that_is_cancelled },
	{ "numberings_are_kept_while_there_is_room", numberings_are_kept_while_there_is_room },
	{ "a_directory_that_all_opens_are_of", a_directory_that_all_opens_are_of },
	{ "the_part_that_is_read_now_comes_first", the_part_that_is_read_now_comes_first },
	{ "a_few_classes_are_a_part", a_few_classes_are_a_part },
	{ "files_have_the_numbers_of_their_part", files_have_the_numbers_of_their_part },
	{ "sorts_that_agree_are_asked_once", sorts_that_agree_are_asked_once },
	{ "parts_far_below_the_source", parts_far_below_the_source },
	{ "names_that_are_no_text_are_left_out", names_that_are_no_text_are_left_out },
};

CHECK_MAIN(tests)
