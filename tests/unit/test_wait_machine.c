/* SPDX-License-Identifier: Apache-2.0 */
/* What the statistics hear of the page cache as it was before: a share of the units, whatever the
 * samples that they are cut from. Whoever looks at the source is the test. */
#include <string.h>

#include "../../src/wait/machine.h"
#include "check.h"
#include "clairfs/dataset/units.h"
#include "clairfs/wait/stall.h"
#include "dataset_kit.h"

#define MIB (UINT64_C(1) << 20)

static struct wait_pages answer;
static bool has_answer;
static unsigned n_put;

bool __wrap_source_pages_look(struct source_pages *pages, struct wait_pages *ret);
void __wrap_source_pages_put(struct source_pages *pages);
void __wrap_stall_had_pages(struct stall *s, struct unit_id unit, uint64_t bytes);

bool __wrap_source_pages_look(struct source_pages *pages, struct wait_pages *ret)
{
	(void)pages;
	if (has_answer)
		*ret = answer;
	return has_answer;
}

void __wrap_source_pages_put(struct source_pages *pages)
{
	n_put += pages != NULL;
}

static struct {
	uint32_t n;
	uint64_t bytes;
	uint8_t seen[64];
} had;

void __wrap_stall_had_pages(struct stall *s, struct unit_id unit, uint64_t bytes)
{
	(void)s;
	had.n++;
	had.bytes += bytes;
	had.seen[unit.v % sizeof(had.seen)]++;
}

struct bed {
	struct dataset *ds;
	struct machine machine;
	struct stall *stall;
};

/* A file of ten units between two small ones: twelve units. */
static void bed_open(struct bed *bed, const char *name)
{
	static const char *const none[] = { NULL };
	AUTO_FREE char *root = kit_tree(name, none);
	struct stall_params params = { .ghost_bytes = 1024 * MIB };

	kit_file(root, "a", 1000);
	kit_file(root, "b", 38 * MIB + 5);
	kit_file(root, "c", 3000);
	memset(&had, 0, sizeof(had));
	n_put = 0;
	bed->ds = kit_open(root, (struct kit_open){ 0 });
	CHECK_U64(dataset_n_units(bed->ds), 12);
	params.n_units = dataset_n_units(bed->ds);
	CHECK_INT(stall_new(&params, &bed->stall), 0);
	bed->machine = (struct machine){ .dataset = bed->ds,
					 .asked = (struct source_pages *)(uintptr_t)&had };
}

static void bed_close(struct bed *bed)
{
	stall_free(bed->stall);
	dataset_free(bed->ds);
}

static void all_units_of_a_warm_source(void)
{
	struct bed bed;

	bed_open(&bed, "warm");
	answer = (struct wait_pages){ .pages = STALL_PAGES_KEPT, .warm_share = 1 };
	has_answer = true;
	CHECK(machine_pages(&bed.machine, bed.stall));
	CHECK_U64(had.n, 12);
	CHECK_U64(had.bytes, 1000 + 3000 + 38 * MIB + 5); /* each its own bytes */
	for (uint32_t i = 0; i < 12; i++)
		CHECK_U64(had.seen[i], 1);
	CHECK_U64(n_put, 1);
	CHECK(!machine_pages(&bed.machine, bed.stall)); /* once */
	CHECK_U64(had.n, 12);
	bed_close(&bed);
}

static void none_of_a_cold_one(void)
{
	struct bed bed;

	bed_open(&bed, "cold");
	answer = (struct wait_pages){ .pages = STALL_PAGES_KEPT, .warm_share = 0 };
	has_answer = true;
	CHECK(machine_pages(&bed.machine, bed.stall));
	CHECK_U64(had.n, 0);
	bed_close(&bed);
}

/* The next reader would not have found them. */
static void none_where_the_client_keeps_nothing(void)
{
	struct bed bed;

	bed_open(&bed, "forgetful");
	answer = (struct wait_pages){ .pages = STALL_PAGES_NOT_KEPT, .warm_share = 1 };
	has_answer = true;
	CHECK(machine_pages(&bed.machine, bed.stall));
	CHECK_U64(had.n, 0);
	bed_close(&bed);
}

static void nothing_before_the_source_has_answered(void)
{
	struct bed bed;

	bed_open(&bed, "silent");
	has_answer = false;
	CHECK(!machine_pages(&bed.machine, bed.stall));
	CHECK(had.n == 0 && n_put == 0);
	bed_close(&bed);
}

/* A share is told before the first read, or not at all: later it would take hits for what was
 * there before. */
static void an_answer_that_comes_late_tells_no_share(void)
{
	struct stall_read read = { .read_class = READ_MISS, .bytes = 1000 };
	struct bed bed;

	bed_open(&bed, "late");
	CHECK_INT(stall_read(bed.stall, &read), 0);
	answer = (struct wait_pages){ .pages = STALL_PAGES_KEPT, .warm_share = 1 };
	has_answer = true;
	CHECK(machine_pages(&bed.machine, bed.stall));
	CHECK_U64(had.n, 0);
	CHECK_INT(bed.machine.pages.pages, STALL_PAGES_KEPT);
	bed_close(&bed);
}

static const struct check_test tests[] = {
	{ "all_units_of_a_warm_source", all_units_of_a_warm_source },
	{ "none_of_a_cold_one", none_of_a_cold_one },
	{ "none_where_the_client_keeps_nothing", none_where_the_client_keeps_nothing },
	{ "nothing_before_the_source_has_answered", nothing_before_the_source_has_answered },
	{ "an_answer_that_comes_late_tells_no_share", an_answer_that_comes_late_tells_no_share },
};

CHECK_MAIN(tests)
