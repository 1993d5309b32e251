/* SPDX-License-Identifier: Apache-2.0 */
/* Which directories a job is likely to read, from what it opens: those that are a part, not those
 * that chance fills; and the numbers that files have below them. */
#include <string.h>

#include "dataset_kit.h"
#include "src/daemon/daemon_priv.h"

#define TRAIN 720
#define VAL 80
#define N (TRAIN + VAL)
#define WAYS 40

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
	struct job_parts *parts;
	struct job_numbering way[WAYS];
	size_t n;
};

static void ask(struct asked *a, const struct dataset *ds, const struct job_opens *opens)
{
	const struct job_numbers *numbers;
	struct err err = { 0 };

	CHECK_INT(job_parts_new(ds, &a->parts, &err), 0);
	numbers = job_parts_numbers(a->parts);
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
	const struct job_opens opens = { sample, n, true };
	struct asked a;
	AUTO_FREE char *text = NULL;

	ask(&a, ds, &opens);
	text = ways_text(&a);
	CHECK_STR(text, want);
	job_parts_free(a.parts);
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
	const struct job_opens opens = { sample, ARRAY_LEN(sample), true };
	struct job_numbering way = { .under = "val" };
	uint32_t number[ARRAY_LEN(sample)];
	struct job_numbered seen = { .number = number };
	const struct job_numbers *numbers;
	struct asked a;

	ask(&a, ds, &opens);
	numbers = job_parts_numbers(a.parts);
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
	job_parts_free(a.parts);
	dataset_free(ds);
}

/* A sort that turned out to number the files as the index does is not made again. */
static void sorts_that_agree_are_asked_once(void)
{
	struct dataset *ds = tree("sorts");
	uint32_t sample[128], number[128];
	const struct job_opens opens = { sample, 128, false };
	AUTO_FREE char *text = NULL;
	const struct job_numbers *numbers;
	struct asked a;

	fill(sample, 128, 0, TRAIN);
	ask(&a, ds, &opens);
	numbers = job_parts_numbers(a.parts);
	CHECK_U64(a.n, 14); /* seven sorts of two parts */
	for (size_t i = 0; i < a.n; i++) {
		struct job_numbered seen = { .number = number };

		CHECK_INT(numbers->number(numbers->ctx, &a.way[i], &opens, &seen), 0);
	}
	a.n = numbers->list(numbers->ctx, &opens, a.way, WAYS);
	text = ways_text(&a);
	/* Names are not padded, so 10.jpg is behind 9.jpg where numbers count. */
	CHECK_STR(text, "train . train:timm .:timm train:natural .:natural");
	job_parts_free(a.parts);
	dataset_free(ds);
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

static const struct check_test tests[] = {
	{ "a_directory_that_all_opens_are_of", a_directory_that_all_opens_are_of },
	{ "the_part_that_is_read_now_comes_first", the_part_that_is_read_now_comes_first },
	{ "a_few_classes_are_a_part", a_few_classes_are_a_part },
	{ "files_have_the_numbers_of_their_part", files_have_the_numbers_of_their_part },
	{ "sorts_that_agree_are_asked_once", sorts_that_agree_are_asked_once },
	{ "names_that_are_no_text_are_left_out", names_that_are_no_text_are_left_out },
};

CHECK_MAIN(tests)
