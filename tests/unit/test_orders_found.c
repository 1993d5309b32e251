/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of records that were found in a file, with the owner of the orders stepped by hand: what they are put in
 * force beside, what they give way to, and what is done to the file. */
#include <errno.h>
#include <string.h>

#include "clairfs/order/records.h"
#include "orders_kit.h"

#define STRIDE 100000u
#define N_RECORDS 300u
#define FOUND ONE ":records=1"
#define NEXT TWO ":records=1"

/* Of each test. */
static void open_bed(struct bed *b, const char *name)
{
	static const char *const paths[] = { "a", "big", "c", NULL };
	AUTO_FREE char *root = kit_tree(name, paths);

	kit_file(root, "big", (uint64_t)N_RECORDS * STRIDE);
	bed_open(b, root);
}

static int list_one(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	*ret = malloc(sizeof(**ret));
	CHECK(*ret);
	**ret = *(const struct order_shard *)ctx;
	*ret_n = 1;
	return 0;
}

static struct records_found found_in(struct bed *b)
{
	static const uint32_t begun[] = { 5, 17 };

	return (struct records_found){ .at = { .entry = dataset_resolve(b->ds, "big", 3),
					       .stride = STRIDE,
					       .n = N_RECORDS },
				       .n = N_RECORDS,
				       .begun = begun,
				       .n_begun = ARRAY_LEN(begun),
				       .id = DRIVE_NO_JOB };
}

static int found(struct bed *b, const char *text, struct records_found *f)
{
	struct order_shard all = { .sample = f->at.entry.v, .count = f->n };
	const struct order_params params = { .n = dataset_n_samples(b->ds),
					     .n_records = f->n,
					     .shards = list_one,
					     .shards_ctx = &all };
	struct message m = { .kind = MESSAGE_RECORDS, .records = f, .spec = spec_of(text) };
	struct err err = { 0 };

	CHECK_INT(order_new(m.spec, &params, &m.take_order, &err), 0);
	return say(b, m);
}

static bool is_cut(struct bed *b)
{
	return dataset_is_in_records(b->ds, dataset_resolve(b->ds, "big", 3));
}

static void order_of_records_is_a_job_that_nobody_told(void)
{
	struct records_found f;
	struct bed b;

	open_bed(&b, "found_put");
	f = found_in(&b);
	CHECK(!records_are_followed(b.o, f.id, NULL));
	CHECK_INT(found(&b, FOUND, &f), 0);
	check_jobs(&b, FOUND " told");
	CHECK(is_cut(&b) && records_are_followed(b.o, f.id, NULL) && orders_is_found(b.o));
	CHECK_U64(b.fake.n_cut, 1);
	CHECK_U64(b.fake.n_come, 2); /* the plan is shown what was read before */
	CHECK_U64(b.fake.last_come, dataset_n_file_units(b.ds) + 17);
	CHECK(b.fake.is_first_of_records);
	CHECK_U64(b.fake.first_batch, 0);
	/* The next one takes its place. Steps of a batch are of what is planned, which is records. */
	CHECK_INT(found(&b, TWO ":batch=16:records=1", &f), 0);
	CHECK(b.fake.is_first_of_records);
	CHECK_U64(b.fake.first_batch, 16);
	check_jobs(&b, TWO ":batch=16:records=1 told");
	CHECK(records_are_followed(b.o, f.id, NULL));
	CHECK_U64(b.fake.n_cut, 1); /* the file is in these since, and their sizes are known */
	fake_remove(&b.fake, 0); /* all its epochs were read */
	step(&b, 1);
	check_jobs(&b, "");
	CHECK(!records_are_followed(b.o, f.id, NULL));
	CHECK_INT(found(&b, FOUND, &f), 0);
	step(&b, 61); /* and nothing was read for a minute */
	check_jobs(&b, "");
	bed_free(&b);
}

static void order_that_was_told_wins(void)
{
	struct records_found f;
	struct bed b;

	open_bed(&b, "found_told");
	f = found_in(&b);
	CHECK_INT(tell(&b, 0, "sequential"), 0);
	CHECK_INT(found(&b, FOUND, &f), -EBUSY);
	check_jobs(&b, "sequential told");
	CHECK(!is_cut(&b));
	CHECK_U64(b.fake.n_cut, 0);
	fake_remove(&b.fake, 0); /* all its epochs were read */
	step(&b, 1);
	CHECK_INT(found(&b, FOUND, &f), 0);
	check_jobs(&b, FOUND " told");
	CHECK_INT(tell(&b, 1, "sequential"), 0);
	check_jobs(&b, "sequential told");
	CHECK(!records_are_followed(b.o, f.id, NULL));
	CHECK_INT(found(&b, NEXT, &f), -EBUSY);
	CHECK_INT(take_back(&b, 1, NULL), 0);
	CHECK_INT(found(&b, NEXT, &f), -EBUSY); /* none means none */
	check_jobs(&b, "");
	CHECK_INT(tell(&b, 1, "sequential"), 0);
	fake_remove(&b.fake, 0);
	step(&b, 1);
	CHECK_INT(found(&b, NEXT, &f), 0);
	bed_free(&b);
}

/* Records of two files, so two jobs that nobody told. */
static void find_two(struct bed *b)
{
	struct records_found f = found_in(b), g = found_in(b);

	CHECK_INT(found(b, FOUND, &f), 0);
	CHECK_INT(found(b, NEXT, &g), 0);
	check_jobs(b, FOUND " told, " NEXT " told");
}

static void order_that_was_told_wins_over_all_that_were_found(void)
{
	struct bed b;

	open_bed(&b, "found_all");
	find_two(&b);
	CHECK_INT(tell(&b, 0, "sequential"), 0);
	check_jobs(&b, "sequential told");
	CHECK_INT(take_back(&b, 0, NULL), 0);
	CHECK_INT(tell(&b, 0, "sequential"), 0);
	fake_remove(&b.fake, 0);
	step(&b, 1);
	find_two(&b);
	CHECK_INT(tell(&b, 0, NAMED), 0); /* nor does one with a name of its own stay beside them */
	check_jobs(&b, NAMED " told");
	fake_remove(&b.fake, 0);
	step(&b, 1);
	find_two(&b);
	CHECK_INT(take_back(&b, 1, "another"), -ENOENT);
	check_jobs(&b, FOUND " told, " NEXT " told");
	CHECK_INT(take_back(&b, 1, NULL), 0); /* and none means none of them */
	check_jobs(&b, "");
	bed_free(&b);
}

/* Whoever looks for orders of files hears of what is opened all the same. */
static void order_of_files_that_was_found_does_not_take_its_place(void)
{
	struct records_found f;
	struct bed b;

	open_bed(&b, "found_files");
	f = found_in(&b);
	CHECK_INT(found(&b, FOUND, &f), 0);
	CHECK_INT(find(&b, "sequential"), -ECANCELED);
	check_jobs(&b, FOUND " told");
	bed_free(&b);
}

static void what_cannot_be_cut_is_refused_for_good(void)
{
	struct records_found f;
	struct bed b;

	open_bed(&b, "found_bad");
	f = found_in(&b);
	f.n = f.at.n = N_RECORDS + 1; /* more than there are */
	CHECK_INT(found(&b, FOUND, &f), -EINVAL);
	check_jobs(&b, "");
	CHECK(!is_cut(&b));
	f = found_in(&b);
	CHECK_INT(found(&b, FOUND, &f), 0);
	fake_remove(&b.fake, 0);
	step(&b, 1);
	f = found_in(&b);
	f.at.stride = 2 * STRIDE;
	CHECK_INT(found(&b, FOUND, &f), -EEXIST); /* it is in the others since */
	f = found_in(&b);
	b.fake.refuses = -ENOSPC;
	CHECK_INT(found(&b, FOUND, &f), -ENOSPC);
	CHECK_U64(b.fake.n_come, 2);
	check_jobs(&b, "");
	bed_free(&b);
}

/* An answer of the owner's would be waited for here. */
static void what_is_known_to_be_in_vain_is_not_asked_for(void)
{
	struct err err = { 0 };
	struct records_found f;
	struct bed b;

	open_bed(&b, "found_before");
	f = found_in(&b);
	f.n = dataset_n_reserved(b.ds) + 1;
	CHECK_INT(records_follow(b.o, ONE, &f, &err), -E2BIG);
	f = found_in(&b);
	CHECK_INT(tell(&b, 0, "sequential"), 0);
	CHECK_INT(records_follow(b.o, ONE, &f, &err), -EBUSY);
	CHECK_INT(take_back(&b, 0, NULL), 0);
	CHECK_INT(records_follow(b.o, ONE, &f, &err), -EBUSY);
	bed_free(&b);
}

/* Of more than there are, so that there is no map of them. */
static void file_that_was_cut_in_vain_is_told_all_the_same(void)
{
	struct records_found f;
	struct bed b;

	open_bed(&b, "found_vain");
	f = found_in(&b);
	f.n++;
	CHECK_INT(found(&b, FOUND, &f), -EINVAL);
	check_jobs(&b, "");
	CHECK(is_cut(&b));
	CHECK_U64(b.fake.n_cut, 1);
	bed_free(&b);
}

/* Of any job: also of one that comes beside an order of files that was found. */
static void whether_any_order_is_told_is_said(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(find(&b, ONE), 0);
	CHECK(orders_is_found(b.o) && !b.fake.is_told);
	CHECK_INT(tell(&b, 0, NAMED), 0);
	CHECK_U64(b.fake.n, 2);
	CHECK(orders_is_found(b.o) && b.fake.is_told);
	CHECK_INT(take_back(&b, 0, "evaluation"), 0);
	CHECK_U64(b.fake.n, 1);
	CHECK(!b.fake.is_told);
	bed_free(&b);
}

static const struct check_test tests[] = {
	{ "whether_any_order_is_told_is_said", whether_any_order_is_told_is_said },
	{ "order_of_records_is_a_job_that_nobody_told", order_of_records_is_a_job_that_nobody_told },
	{ "order_that_was_told_wins", order_that_was_told_wins },
	{ "order_that_was_told_wins_over_all_that_were_found",
	  order_that_was_told_wins_over_all_that_were_found },
	{ "order_of_files_that_was_found_does_not_take_its_place",
	  order_of_files_that_was_found_does_not_take_its_place },
	{ "what_cannot_be_cut_is_refused_for_good", what_cannot_be_cut_is_refused_for_good },
	{ "what_is_known_to_be_in_vain_is_not_asked_for", what_is_known_to_be_in_vain_is_not_asked_for },
	{ "file_that_was_cut_in_vain_is_told_all_the_same", file_that_was_cut_in_vain_is_told_all_the_same },
};
CHECK_MAIN(tests)
