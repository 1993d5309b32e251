/* SPDX-License-Identifier: Apache-2.0 */
/* An order that a job does not follow: whether it is the right one of files that are numbered in another
 * way, from the last opens. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clairfs/orders.h"
#include "dataset_kit.h"

#define N 6000 /* in fewer, any opens seem to stand at one place */
#define OPENS 256
#define SPEC "torch-distributed:seed=9"

/* The index has train/10.jpg before train/2.jpg, and val beside train. */
static struct dataset *tree(void)
{
	static char path[N][24], *root;
	static const char *list[N + 1];

	for (int i = 0; i < N; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/%d.jpg", i % 6 ? "train" : "val", i);
		list[i] = path[i];
	}
	if (!root)
		root = kit_tree("files", list);
	return kit_open(root, (struct kit_open){ .layout = LAYOUT_AUTO });
}

static int make(void *ctx, const struct order_spec *spec, struct order **ret)
{
	struct order_params params;
	struct err err = { 0 };

	orders_dataset_params(ctx, &params);
	return order_new(spec, &params, ret, &err);
}

/* What a job opens from this position of an epoch on. */
static void read_by(struct dataset *ds, const char *text, uint64_t epoch, uint64_t from,
		    uint32_t opens[OPENS])
{
	struct order_epoch *ep;
	struct order_spec *spec;
	struct order *order;
	struct err err = { 0 };

	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	CHECK_INT(make(ds, spec, &order), 0);
	CHECK_INT(order_epoch_new(order, epoch, &ep, &err), 0);
	CHECK(from + OPENS <= ep->length);
	memcpy(opens, ep->sample + from, OPENS * sizeof(*opens));
	order_epoch_free(ep);
	order_free(order);
	order_spec_free(spec);
}

static char *renumber(struct dataset *ds, const uint32_t *opens, bool is_cancelled,
		      uint64_t *ret_tried)
{
	const atomic_bool cancel = is_cancelled;
	_Atomic uint64_t tried = 0;
	struct infer_lost lost = { .dataset = ds,
				   .epoch = 0,
				   .opens = opens,
				   .n_opens = OPENS,
				   .make = make,
				   .ctx = ds,
				   .tried = &tried,
				   .cancel = &cancel };
	struct order_spec *spec;
	struct err err = { 0 };
	char *found;

	CHECK_INT(order_spec_parse(SPEC, &spec, &err), 0);
	lost.spec = spec;
	found = infer_renumber(&lost);
	order_spec_free(spec);
	*ret_tried = atomic_load(&tried);
	return found;
}

static void check_found(struct dataset *ds, const char *job, uint64_t epoch, uint64_t from,
			const char *want)
{
	uint32_t opens[OPENS];
	AUTO_FREE char *found = NULL;
	uint64_t tried;

	read_by(ds, job, epoch, from, opens);
	found = renumber(ds, opens, false, &tried);
	CHECK_STR(found, want);
	CHECK(tried > 0);
}

static void other_listing_of_a_part_is_found(void)
{
	struct dataset *ds = tree();

	check_found(ds, SPEC ":sort=timm:under=train", 0, 100, SPEC ":sort=timm:under=train");
	check_found(ds, SPEC ":sort=timm:under=train", 1, 0,
		    SPEC ":start_epoch=1:sort=timm:under=train");
	check_found(ds, SPEC ":sort=timm", 0, 700, SPEC ":sort=timm");
	dataset_free(ds);
}

static void other_seed_is_explained_by_no_listing(void)
{
	struct dataset *ds = tree();
	uint32_t opens[OPENS];
	uint64_t tried;

	read_by(ds, "torch-distributed:seed=123456:sort=timm:under=train", 0, 100, opens);
	CHECK_STR(renumber(ds, opens, false, &tried), NULL);
	CHECK(tried >= 4);
	dataset_free(ds);
}

static void cancelled_at_once(void)
{
	struct dataset *ds = tree();
	uint32_t opens[OPENS];
	uint64_t tried;

	read_by(ds, SPEC ":sort=timm:under=train", 0, 100, opens);
	CHECK(renumber(ds, opens, true, &tried) == NULL);
	CHECK_U64(tried, 0);
	dataset_free(ds);
}

static const struct check_test tests[] = {
	{ "other_listing_of_a_part_is_found", other_listing_of_a_part_is_found },
	{ "other_seed_is_explained_by_no_listing", other_seed_is_explained_by_no_listing },
	{ "cancelled_at_once", cancelled_at_once },
};

CHECK_MAIN(tests)
