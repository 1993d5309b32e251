/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cache puts into the store, and what not: files that changed just before they were read,
 * halves of samples, and again when a store that was full has room. Epochs are read until it has
 * come to what a test waits for: how soon is up to the machine.
 */
#include <stdio.h>

#include "cache_rig.h"

#define MIB (1u << 20)
#define SIZE 50000u

static struct file_identity kept_identity(struct rig *rig, uint32_t file)
{
	struct file_identity id, kept;

	dataset_identity(rig->dataset, rig_entry(rig, file), &id);
	CHECK_INT(dataset_kept_identity(rig->dataset, rig_entry(rig, file), &id, &kept), 0);
	return kept;
}

static bool is_kept(struct rig *rig, uint32_t file, uint32_t piece)
{
	struct file_identity kept = kept_identity(rig, file);

	return store_has(rig->store, (struct piece_key){ rig_entry(rig, file), piece }, &kept);
}

static bool are_all_kept(struct rig *rig)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rig->options.n; i++)
		n += is_kept(rig, i, 0);
	return n == rig->options.n;
}

static void read_epoch(struct rig *rig)
{
	for (uint32_t i = 0; i < rig->options.n; i++) {
		cache_note_open(rig->cache, rig_entry(rig, i));
		rig_read_check(rig, i, 0, 131072);
	}
}

static bool is_pinning_over(struct rig *rig)
{
	struct cache_status st;

	cache_get_status(rig->cache, &st);
	return st.plan.is_pinning_over;
}

#define READ_UNTIL(rig, cond)                                                                      \
	do {                                                                                       \
		uint64_t end_ = rig_deadline();                                                    \
		bool is_met_;                                                                      \
		do                                                                                 \
			read_epoch(rig);                                                           \
		while (!(is_met_ = (cond)) && rig_pause(end_));                                    \
		check_true_(is_met_, __FILE__, __LINE__, #cond);                                   \
	} while (0)

static struct rig *young_rig(uint64_t grain_ns)
{
	return rig_new(&(struct rig_options){ .n = 12,
					      .size = SIZE,
					      .order = "sequential",
					      .has_store = true,
					      .source_grain_ns = grain_ns });
}

static void files_that_have_just_changed_are_not_kept(void)
{
	struct rig *rig = young_rig(3600 * NS_PER_S);
	struct store_status st;

	READ_UNTIL(rig, rig_metric(rig, METRIC_STORE_YOUNG) >= 12);
	store_get_status(rig->store, &st);
	CHECK_U64(st.records, 0);
	CHECK_U64(rig_metric(rig, METRIC_STORE_BYTES_WRITTEN), 0);
	rig_free(rig);
}

/* All of them are in memory from the first epoch on, and would stay there as they are. */
static void they_are_fetched_again_and_kept_when_they_are_older(void)
{
	struct rig *rig = young_rig(NS_PER_S);

	READ_UNTIL(rig, are_all_kept(rig));
	CHECK(!is_pinning_over(rig));
	rig_free(rig);
}

/* The first piece was there already; others use it. */
static void a_pin_that_fails_forgets_only_what_it_has_put(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 2,
							 .sizes = (uint64_t[]){ 2 * MIB, 100 },
							 .order = "sequential",
							 .has_store = true,
							 .pin_rule = PLAN_PIN_SMALLEST,
							 .store_limit = 3 * MIB / 2,
							 .is_not_started = true });
	struct file_identity kept = kept_identity(rig, 0);
	struct piece_key key = { rig_entry(rig, 0), 0 };
	uint8_t *bytes = aligned_alloc(4096, MIB);
	struct err err = { 0 };

	rig_fill(bytes, 0, 0, 0, MIB);
	CHECK_INT(store_put(rig->store, key, &kept, bytes, MIB), 0);
	free(bytes);
	CHECK_INT(cache_start(rig->cache, &err), 0);
	READ_UNTIL(rig, is_pinning_over(rig)); /* for want of room for the second piece */
	CHECK(is_kept(rig, 0, 0) && !is_kept(rig, 0, 1));
	rig_free(rig);
}

/* The number of files of nobody that fill it. */
static uint32_t fill(struct rig *rig)
{
	uint8_t *bytes = aligned_alloc(4096, 65536);
	uint32_t n = 0;
	int rc = 0;

	rig_fill(bytes, 0, 0, 0, 65536);
	while (rc == 0) {
		struct file_identity id = { .ino = ++n, .size = 65536 };

		rc = store_put(rig->store, (struct piece_key){ { 0 }, 0 }, &id, bytes, 65536);
	}
	free(bytes);
	CHECK_INT(rc, -ENOSPC);
	return n;
}

static void a_store_that_was_full_is_used_when_it_has_room(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 10,
							 .size = SIZE,
							 .order = "sequential",
							 .has_store = true,
							 .store_limit = 2 * MIB,
							 .store_retry_ns = 2 * NS_PER_MS,
							 .is_not_started = true });
	struct err err = { 0 };
	uint32_t n = fill(rig);

	CHECK_INT(cache_start(rig->cache, &err), 0);
	READ_UNTIL(rig, is_pinning_over(rig));
	CHECK(!are_all_kept(rig));
	for (uint32_t i = 1; i <= n; i++)
		store_forget(rig->store, &(struct file_identity){ .ino = i, .size = 65536 }, 1);
	READ_UNTIL(rig, are_all_kept(rig));
	CHECK(!is_pinning_over(rig));
	rig_free(rig);
}

/* The job numbers the first half of the samples. */
static int number_half(void *ctx, const char *sort, const char *under, uint32_t **ret_sample,
		       uint64_t *ret_n, struct err *err)
{
	struct rig *rig = ctx;
	uint32_t n = rig->options.n / 2, *sample = calloc(n, sizeof(*sample));

	(void)sort;
	(void)under;
	(void)err;
	CHECK(sample);
	for (uint32_t i = 0; i < n; i++)
		sample[i] = i;
	*ret_sample = sample;
	*ret_n = n;
	return 0;
}

static void order_of_half(struct rig *rig)
{
	struct order_params params = { .n = rig->options.n,
				       .number = number_half,
				       .number_ctx = rig };
	struct order_spec *spec;
	struct order *order;
	struct err err = { 0 };

	CHECK_INT(order_spec_parse("sequential:under=half", &spec, &err), 0);
	CHECK_INT(order_new(spec, &params, &order, &err), 0);
	order_spec_free(spec);
	CHECK_INT(cache_set_order(rig->cache, order), 0);
}

/* Samples in the order of their numbers, a few in each segment. */
static void put_all(struct rig *rig)
{
	uint8_t *bytes = aligned_alloc(4096, ALIGN_UP(SIZE, 4096u));

	for (uint32_t i = 0; i < rig->options.n; i++) {
		struct piece_key key = { rig_entry(rig, i), 0 };
		struct file_identity kept = kept_identity(rig, i);

		rig_fill(bytes, i, 0, 0, SIZE);
		CHECK_INT(store_put(rig->store, key, &kept, bytes, SIZE), 0);
	}
	free(bytes);
}

static void what_an_order_leaves_out_makes_room(void)
{
	enum { N = 20 };
	struct rig *rig = rig_new(&(struct rig_options){ .n = N,
							 .size = SIZE,
							 .order = "sequential",
							 .has_store = true,
							 .store_limit = N * (SIZE + 8192),
							 .store_segment = 5 * SIZE,
							 .store_retry_ns = 2 * NS_PER_MS,
							 .is_not_started = true });
	struct err err = { 0 };

	put_all(rig);
	(void)fill(rig); /* what is left */
	CHECK_INT(cache_start(rig->cache, &err), 0);
	CHECK(store_is_full(rig->store) && are_all_kept(rig));
	order_of_half(rig);
	RIG_UNTIL(!store_is_full(rig->store));
	for (uint32_t i = 0; i < N / 2; i++)
		CHECK(is_kept(rig, i, 0));
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "files_that_have_just_changed_are_not_kept", files_that_have_just_changed_are_not_kept },
	{ "they_are_fetched_again_and_kept_when_they_are_older",
	  they_are_fetched_again_and_kept_when_they_are_older },
	{ "a_pin_that_fails_forgets_only_what_it_has_put",
	  a_pin_that_fails_forgets_only_what_it_has_put },
	{ "what_an_order_leaves_out_makes_room", what_an_order_leaves_out_makes_room },
	{ "a_store_that_was_full_is_used_when_it_has_room",
	  a_store_that_was_full_is_used_when_it_has_room },
};
CHECK_MAIN(tests)
