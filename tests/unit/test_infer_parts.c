/* SPDX-License-Identifier: Apache-2.0 */
/* A job that reads a part of the dataset, or has sorted it in another way: the same questions, in
 * the numbers that the job has for the files. And when a part has been left. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "clairfs/order.h"
#include "src/infer/infer_priv.h"

/* Samples 0..VAL-1 are below val, the others below train. */
#define N 9000
#define VAL 1000
#define TRAIN (N - VAL)
#define SEEN 96

enum { DIR_ROOT, DIR_TRAIN, DIR_VAL };

static atomic_bool never;
static atomic_uint_least64_t cpu_ns;
static unsigned n_listed; /* of the ways below */
static size_t most_seeds; /* that a split was to be looked for by */

static const struct infer_numbering ways[] = {
	{ .under = "train", .dir = DIR_TRAIN },
	{ .under = "val", .dir = DIR_VAL },
	{ .dir = DIR_ROOT },
	{ .sort = "timm", .under = "train", .dir = DIR_TRAIN },
	{ .sort = "timm", .under = "val", .dir = DIR_VAL },
	{ .sort = "timm", .dir = DIR_ROOT },
};

static size_t list(void *ctx, const struct infer_opens *opens, struct infer_numbering *ret, size_t max)
{
	CHECK(max >= ARRAY_LEN(ways));
	memcpy(ret, ways, n_listed * sizeof(*ways));
	return n_listed;
}

/* timm: from the back. */
static uint32_t number_of(const struct infer_numbering *way, uint32_t sample)
{
	uint32_t first = way->dir == DIR_TRAIN ? VAL : 0, end = way->dir == DIR_VAL ? VAL : N;

	if (sample < first || sample >= end)
		return UINT32_MAX;
	return way->sort ? end - 1 - sample : sample - first;
}

static int number(void *ctx, const struct infer_numbering *way, const struct infer_opens *opens,
		  struct infer_numbered *ret)
{
	ret->n = way->dir == DIR_ROOT ? N : way->dir == DIR_VAL ? VAL : TRAIN;
	ret->n = way->first ? way->first : ret->n;
	ret->hash = ((uint64_t)way->dir * 2 + (way->sort != NULL)) << 32 | way->first;
	for (size_t i = 0; i < opens->n; i++)
		if (number_of(way, opens->sample[i]) != UINT32_MAX)
			ret->number[ret->n_seen++] = number_of(way, opens->sample[i]);
	return 0;
}

/* Of those below train the first ones, where that is all that was read. */
static size_t narrow(void *ctx, const struct infer_numbering *way, const struct infer_members *members,
		     struct infer_numbering *ret, size_t max)
{
	uint64_t count = members->set->count;

	CHECK(max > 0 && (members->n_seeds == 0 || members->seed[1] == 42));
	CHECK(members->cancel == &never);
	most_seeds = MAX(most_seeds, members->n_seeds);
	*ret = *way;
	ret->first = count;
	ret->of = TRAIN;
	return way->dir == DIR_TRAIN && !way->sort && count < TRAIN &&
	       bitmap_next_clear(members->set, VAL) == VAL + count;
}

static bool has(void *ctx, const struct infer_numbering *way, uint32_t sample)
{
	return number_of(way, sample) != UINT32_MAX;
}

static const struct infer_numbers numbers = {
	.list = list, .number = number, .narrow = narrow, .has = has
};

/* The first samples that a job reads by this spec, which is of a part, as four workers with batches
 * of 8 read them; behind `before` others. */
static struct infer_question read_by(const char *text, const struct infer_numbering *way,
				   uint32_t before, uint32_t *seen)
{
	struct infer_numbered part = { 0 };
	struct infer_opens none = { 0 };
	struct order_params params;
	struct order_epoch *epoch = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };
	uint32_t sample;

	CHECK_INT(number(NULL, way, &none, &part), 0);
	params = (struct order_params){ .n = part.n };
	if (order_spec_parse(text, &spec, &err) < 0 || order_new(spec, &params, &order, &err) < 0 ||
	    order_epoch_new(order, order_info(order)->start_epoch, &epoch, &err) < 0)
		CHECK_STR(err.msg, "");
	for (uint32_t i = before; i < SEEN; i++) {
		uint32_t nth = (i - before) / 4, batch = nth / 8 * 4 + (i - before) % 4;

		for (sample = 0; number_of(way, sample) != epoch->sample[batch * 8 + nth % 8];)
			sample++;
		seen[i] = sample;
	}
	order_epoch_free(epoch);
	order_free(order);
	order_spec_free(spec);
	return (struct infer_question){ .n = N,
				      .seen = seen,
				      .n_seen = SEEN,
				      .numbers = &numbers,
				      .cancel = &never,
				      .cpu_ns = &cpu_ns };
}

static void check_found(const struct infer_question *q, const char *want)
{
	struct infer_answer a = { 0 };
	struct known known = { 0 };
	char text[INFER_SPEC_MAX];

	CHECK_INT(infer_searches_real.quick(q, &a), 0);
	known_found(&known, &a, 0, SEEN);
	CHECK(known_spec(&known, N, text));
	CHECK_STR(text, want);
}

static void orders_of_a_part(void)
{
	uint32_t seen[SEEN];
	struct infer_question q;

	n_listed = ARRAY_LEN(ways);
	q = read_by("torch-distributed:seed=3", &ways[0], 0, seen);
	check_found(&q, "torch-distributed:seed=3:under=train");
	q = read_by("torch-loader:seed=42", &ways[0], 0, seen);
	check_found(&q, "torch-loader:seed=42:draws=6:under=train");
	q = read_by("torch-distributed:seed=5:world=4:rank=2", &ways[0], 0, seen);
	check_found(&q, "torch-distributed:seed=5:world=4:rank=2:under=train");
	q = read_by("sequential", &ways[0], 0, seen);
	check_found(&q, "sequential:under=train");
	/* The first files of all of them. */
	q = read_by("sequential", &ways[1], 0, seen);
	check_found(&q, "sequential");
	q = read_by("numpy-legacy:seed=1", &ways[0], 0, seen);
	check_found(&q, "numpy-legacy:seed=1:under=train");
	q = read_by("torch-distributed:seed=70000", &ways[0], 0, seen);
	q.hints = (uint32_t[]){ 69999 };
	q.n_hints = 1;
	check_found(&q, "torch-randperm:seed=70000:epochs=1:under=train");
}

/* A model was built before the loader; also in the last of the numberings that more is asked of. */
static void words_of_a_generator(void)
{
	/* A seed that nobody would try. */
	const struct recover_place place = { RECOVER_TORCH, 3456789012, 500003 };
	uint32_t seen[SEEN];
	struct infer_question q;

	n_listed = ARRAY_LEN(ways);
	q = read_by("torch-loader:seed=42:before=102720", &ways[0], 0, seen);
	check_found(&q, "torch-loader:seed=42:before=102720:draws=6:under=train");
	q = read_by("torch-loader:seed=42:before=102720", &ways[3], 0, seen);
	check_found(&q, "torch-loader:seed=42:before=102720:draws=6:sort=timm:under=train");
	q = read_by("torch-loader:seed=3456789012:before=500006", &ways[3], 0, seen);
	q.places = &place;
	q.n_places = 1;
	check_found(&q, "torch-loader:seed=3456789012:before=500006:draws=6:sort=timm:under=train");
}

static void orders_of_all_samples_are_found_as_ever(void)
{
	uint32_t seen[SEEN];
	struct infer_question q;

	n_listed = ARRAY_LEN(ways);
	q = read_by("torch-distributed:seed=3", &ways[2], 0, seen);
	check_found(&q, "torch-distributed:seed=3");
	n_listed = 0; /* nothing is known of parts */
	check_found(&q, "torch-distributed:seed=3");
	q.numbers = NULL;
	check_found(&q, "torch-distributed:seed=3");
}

static void other_sorts(void)
{
	uint32_t seen[SEEN];
	struct infer_question q;

	n_listed = ARRAY_LEN(ways);
	q = read_by("torch-distributed:seed=3", &ways[3], 0, seen);
	check_found(&q, "torch-distributed:seed=3:sort=timm:under=train");
	q = read_by("sequential", &ways[5], 0, seen);
	check_found(&q, "sequential:sort=timm");
}

/* A look at the validation set before the first epoch. */
static void reads_elsewhere_do_no_harm(void)
{
	uint64_t random = check_seed();
	uint32_t seen[SEEN];
	struct infer_question q;

	n_listed = ARRAY_LEN(ways);
	q = read_by("torch-distributed:seed=3", &ways[0], 32, seen);
	for (uint32_t i = 0; i < 32; i++)
		seen[i] = (uint32_t)check_rand_below(&random, VAL);
	check_found(&q, "torch-distributed:seed=3:under=train");
}

static void chance_is_no_order_of_any_part(void)
{
	uint64_t random = check_seed();

	n_listed = ARRAY_LEN(ways);
	for (int round = 0; round < 3; round++) {
		uint32_t seen[SEEN], first = round ? VAL : 0;
		struct infer_answer a;
		struct infer_question q =
			read_by("torch-distributed:seed=3000000000", &ways[0], 0, seen);

		for (uint32_t i = 0; i < SEEN; i++)
			seen[i] = first + (uint32_t)check_rand_below(&random, N - first);
		CHECK_INT(infer_searches_real.quick(&q, &a), -ENOENT);
	}
}

/* A shuffled beginning of train: who knows what was read in the pass before finds its order. */
static void the_first_samples_of_a_part_once_they_were_read(void)
{
	const struct infer_numbering first = { .under = "train", .dir = DIR_TRAIN, .first = 1637 };
	uint32_t seen[SEEN];
	struct bitmap members;
	struct infer_answer a = { 0 };
	struct infer_question q;

	n_listed = ARRAY_LEN(ways);
	CHECK_INT(bitmap_init(&members, N), 0);
	for (uint32_t i = 0; i < 1637; i++)
		(void)bitmap_set(&members, VAL + i);
	q = read_by("torch-loader:seed=42:draws=6:start_epoch=1", &first, 0, seen);
	CHECK_INT(infer_searches_real.quick(&q, &a), -ENOENT);
	CHECK(!a.is_narrow);
	q.members = &members;
	check_found(&q, "torch-loader:seed=42:before=6:draws=6:first=1637:under=train");
	/* With another seed it is said that all seeds may be worth it. */
	q = read_by("torch-randperm:seed=3456789012", &first, 0, seen);
	q.members = &members;
	CHECK_INT(infer_searches_real.quick(&q, &a), -ENOENT);
	CHECK(a.is_narrow);
	CHECK(most_seeds >= 1000);
	/* Of these a glance tries none: it is weighed as cheap. */
	most_seeds = 0;
	q.is_first = true;
	CHECK_INT(infer_searches_real.quick(&q, &a), -ENOENT);
	CHECK_U64(most_seeds, 0);
	q.is_first = false;
	/* A job that reads others as well. */
	(void)bitmap_clear(&members, seen[0] % 2 ? VAL : VAL + 1);
	for (uint32_t i = 0; i < SEEN / 8; i++)
		(void)bitmap_clear(&members, seen[i]);
	CHECK_INT(infer_searches_real.quick(&q, &a), -ENOENT);
	CHECK(!a.is_narrow);
	bitmap_fini(&members);
}

/* A fifth, a thousand, a power of two, 80 %: before the first epoch is over. */
static void round_numbers_of_samples_of_a_part(void)
{
	static const uint64_t counts[] = { TRAIN / 5, 1000, 2048, TRAIN * 4 / 5 };
	uint32_t seen[SEEN];
	char want[INFER_SPEC_MAX];

	n_listed = ARRAY_LEN(ways);
	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		struct infer_numbering first = { .under = "train", .dir = DIR_TRAIN };
		struct infer_question q;

		first.first = counts[i];
		q = read_by("torch-distributed:seed=7", &first, 0, seen);
		snprintf(want, sizeof(want), "torch-distributed:seed=7:first=%d:under=train",
			 (int)counts[i]);
		check_found(&q, want);
	}
}

/* The world is judged again in the numbers that the order was found with. */
static void the_world_of_a_part_is_refined(void)
{
	uint32_t seen[SEEN];
	struct infer_answer a = { 0 };
	struct infer_question q =
		read_by("torch-distributed:seed=5:world=4:rank=2", &ways[0], 0, seen);

	q.seed = 5;
	q.way = &ways[0];
	CHECK_INT(infer_searches_real.refine(&q, &a), 0);
	CHECK_U64(a.world, 4);
	CHECK_U64(a.rank[0], 2);
	q.way = &ways[2];
	CHECK_INT(infer_searches_real.refine(&q, &a), -ENOENT);
}

static struct known found_in(const struct infer_numbering *way, uint64_t n)
{
	return (struct known){ .is_found = true, .last = { .way = *way, .n = n } };
}

/* Opens samples first, first + 1 ... ; returns after how many the part was left, 0: it was not. */
static uint32_t open_run(struct part_watch *watch, const struct known *known, uint32_t first,
			 uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (part_open(watch, known, &numbers, N, first + i % (N - first)))
			return i + 1;
	return 0;
}

static void a_small_part_is_left_at_once(void)
{
	struct known known = found_in(&ways[1], VAL);
	struct part_watch watch = { 0 };

	CHECK_U64(open_run(&watch, &known, 0, VAL), 0);
	CHECK_U64(open_run(&watch, &known, VAL, PART_OPENS - 1), 0);
	CHECK_U64(open_run(&watch, &known, 0, 1), 0); /* not at a stretch */
	CHECK_U64(open_run(&watch, &known, VAL, N), PART_OPENS);
	CHECK(watch.is_left);
	CHECK_U64(open_run(&watch, &known, VAL, N), 0); /* said once */
	CHECK_U64(open_run(&watch, &known, 0, 1), 0);
	CHECK(!watch.is_left);
}

/* Trainers look at a few batches of the validation set, whose workers read ahead while the training
 * begins: that has begun with its first open. */
static void a_part_is_left_with_the_first_open_elsewhere(void)
{
	struct known known = found_in(&ways[1], VAL);
	struct part_watch watch = { 0 };

	CHECK_U64(open_run(&watch, &known, 0, VAL), 0);
	for (uint32_t i = 0; i < 50; i++)
		CHECK_U64(open_run(&watch, &known, VAL + 3 * i, 3) + open_run(&watch, &known, i, 1), 0);
	CHECK_U64(open_run(&watch, &known, VAL + 150, N), PART_OPENS);
	CHECK_U64(watch.stretch, 200 + PART_OPENS);
	/* Unless the part was gone on with in between. */
	watch = (struct part_watch){ 0 };
	CHECK_U64(open_run(&watch, &known, VAL, 5) + open_run(&watch, &known, 0, PART_OPENS), 0);
	CHECK_U64(open_run(&watch, &known, VAL, N), PART_OPENS);
	CHECK_U64(watch.stretch, PART_OPENS);
}

/* The order of the part is found when the job is already elsewhere. */
static void a_part_that_was_left_before_it_was_found(void)
{
	struct known known = found_in(&ways[1], VAL);
	struct part_watch watch;
	struct trail trail;

	CHECK_INT(trail_init(&trail, N), 0);
	for (uint32_t i = 0; i < 60; i++)
		(void)trail_open(&trail, i, i);
	for (uint32_t i = 0; i < 40; i++) {
		(void)trail_open(&trail, VAL + i, 100 + i);
		(void)trail_open(&trail, 60 + i, 100 + i);
	}
	part_begin(&watch, &known, &numbers, &trail);
	CHECK_U64(watch.stretch, 80);
	CHECK_U64(open_run(&watch, &known, VAL + 40, N), PART_OPENS);
	CHECK_U64(watch.stretch, 80 + PART_OPENS);
	trail_fini(&trail);
}

static void a_validation_leaves_nothing(void)
{
	struct known known = found_in(&ways[0], TRAIN);
	struct part_watch watch = { 0 };

	for (int epoch = 0; epoch < 3; epoch++) {
		CHECK_U64(open_run(&watch, &known, VAL, TRAIN), 0);
		CHECK_U64(open_run(&watch, &known, 0, VAL), 0);
		CHECK_U64(open_run(&watch, &known, 0, VAL), 0); /* another rank */
	}
	/* Another job, which reads nothing else. */
	CHECK_U64(open_run(&watch, &known, 0, VAL) + open_run(&watch, &known, 0, VAL), 0);
	for (uint32_t i = 0; i < PART_OPENS; i++)
		CHECK(part_open(&watch, &known, &numbers, N, i % VAL) == (i + 1 == PART_OPENS));
	CHECK(watch.is_left);
}

static void an_order_of_all_samples_has_no_part_to_leave(void)
{
	struct known known = found_in(&ways[2], N), none = { 0 };
	struct part_watch watch = { 0 };

	CHECK_U64(open_run(&watch, &known, 0, 4 * N), 0);
	CHECK_U64(open_run(&watch, &none, 0, 4 * N), 0);
}

/* Shards: 0-7 are for validation, 24 behind them for training; or 10 of these. */
enum { FEW_VAL = 8, FEW_TRAIN = 24 };
static uint32_t few_train; /* how many */

static size_t list_few(void *ctx, const struct infer_opens *opens, struct infer_numbering *ret, size_t max)
{
	ret[0] = (struct infer_numbering){ .under = "train", .dir = DIR_TRAIN };
	ret[1] = (struct infer_numbering){ .dir = DIR_ROOT };
	return 2;
}

static int number_few(void *ctx, const struct infer_numbering *way, const struct infer_opens *opens,
		      struct infer_numbered *ret)
{
	uint32_t first = way->dir == DIR_TRAIN ? FEW_VAL : 0;

	ret->n = FEW_VAL + few_train - first;
	ret->hash = way->dir;
	for (size_t i = 0; i < opens->n; i++)
		if (opens->sample[i] >= first)
			ret->number[ret->n_seen++] = opens->sample[i] - first;
	return 0;
}

static const struct infer_numbers few_numbers = { .list = list_few, .number = number_few, .has = has };

/* One epoch of the shards for training. */
static void open_few(const char *text, uint64_t number, uint32_t *seen)
{
	struct order_params params = { .n = few_train };
	struct order_epoch *epoch = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };

	if (order_spec_parse(text, &spec, &err) < 0 || order_new(spec, &params, &order, &err) < 0 ||
	    order_epoch_new(order, number, &epoch, &err) < 0)
		CHECK_STR(err.msg, "");
	for (uint32_t i = 0; i < few_train; i++)
		seen[i] = FEW_VAL + epoch->sample[i];
	order_epoch_free(epoch);
	order_free(order);
	order_spec_free(spec);
}

static void shards_below_a_directory_are_found_by_their_order(void)
{
	uint32_t seen[FEW_TRAIN];
	struct infer_question q = { .n = FEW_VAL + FEW_TRAIN, .seen = seen, .n_seen = 12, .numbers = &few_numbers,
				    .is_first = true, .cancel = &never, .cpu_ns = &cpu_ns };

	few_train = FEW_TRAIN;
	open_few("torch-distributed:seed=42", 0, seen);
	check_found(&q, "torch-distributed:seed=42:under=train");
	q.n_seen = 4; /* too few to say so */
	CHECK_INT(infer_searches_real.quick(&q, &(struct infer_answer){ 0 }), -ENOENT);
	for (uint32_t i = 0; i < FEW_TRAIN; i++) /* files in their order are not looked for here */
		seen[i] = FEW_VAL + i;
	q.n_seen = FEW_TRAIN;
	CHECK_INT(infer_searches_real.quick(&q, &(struct infer_answer){ 0 }), -ENOENT);
}

/* Of 10 shards one epoch says too little. */
static void passes_before_count(void)
{
	uint32_t seen[3][FEW_TRAIN];
	const struct recover_pass before[] = { { seen[0], 10 }, { seen[1], 10 } };
	struct infer_question q = { .n = FEW_VAL + 10, .seen = seen[2], .n_seen = 10, .numbers = &few_numbers,
				    .is_first = true, .cancel = &never, .cpu_ns = &cpu_ns };

	few_train = 10;
	for (uint32_t i = 0; i < 3; i++)
		open_few("torch-distributed:seed=42", i, seen[i]);
	CHECK_INT(infer_searches_real.quick(&q, &(struct infer_answer){ 0 }), -ENOENT);
	q.before = before;
	q.n_before = 2;
	check_found(&q, "torch-distributed:seed=44:under=train");
}

static const struct check_test tests[] = {
	{ "orders_of_a_part", orders_of_a_part },
	{ "words_of_a_generator", words_of_a_generator },
	{ "orders_of_all_samples_are_found_as_ever", orders_of_all_samples_are_found_as_ever },
	{ "other_sorts", other_sorts },
	{ "the_first_samples_of_a_part_once_they_were_read",
	  the_first_samples_of_a_part_once_they_were_read },
	{ "round_numbers_of_samples_of_a_part", round_numbers_of_samples_of_a_part },
	{ "reads_elsewhere_do_no_harm", reads_elsewhere_do_no_harm },
	{ "chance_is_no_order_of_any_part", chance_is_no_order_of_any_part },
	{ "the_world_of_a_part_is_refined", the_world_of_a_part_is_refined },
	{ "a_small_part_is_left_at_once", a_small_part_is_left_at_once },
	{ "a_part_is_left_with_the_first_open_elsewhere",
	  a_part_is_left_with_the_first_open_elsewhere },
	{ "a_part_that_was_left_before_it_was_found", a_part_that_was_left_before_it_was_found },
	{ "a_validation_leaves_nothing", a_validation_leaves_nothing },
	{ "an_order_of_all_samples_has_no_part_to_leave",
	  an_order_of_all_samples_has_no_part_to_leave },
	{ "shards_below_a_directory_are_found_by_their_order", shards_below_a_directory_are_found_by_their_order },
	{ "passes_before_count", passes_before_count },
};

CHECK_MAIN(tests)
