/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source fails at its n-th read, for n = 0, 1, 2, ... until it is not asked often enough: the
 * one READ that was waiting for it gets the error (a prefetch's failure nobody notices), every
 * other READ gets its bytes, and nothing of the failure is remembered. Once, and for good until
 * repaired.
 */
#include <stdio.h>

#include "cache_rig.h"

#define MIB (1u << 20)

enum { FILES = 5, N_MAX = 200 };

static const uint64_t sizes[FILES] = { 100, 110000, MIB, 2 * MIB + 5, 30000 };

/* Reads everything in parts; returns how many READs failed. */
static uint32_t read_all(struct rig *rig, int status)
{
	uint32_t failed = 0;

	for (uint32_t f = 0; f < FILES; f++) {
		cache_note_open(rig->cache, (struct entry_id){ f });
		for (uint64_t at = 0; at < sizes[f]; at += 900000) {
			struct rig_read *r = rig_read_start(rig, f, at, 200000);

			rig_read_wait(r);
			if (r->status == 0) {
				rig_check_bytes(r, 0, sizes[f]);
			} else {
				CHECK_INT(r->status, status);
				failed++;
			}
			rig_read_free(r);
		}
	}
	return failed;
}

static struct rig *new_rig(const char *order, bool has_store, const struct fault_io_rule *rule)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = FILES,
							 .sizes = sizes,
							 .order = order,
							 .has_store = has_store,
							 .is_not_started = true });
	struct err err = { 0 };

	fault_io_set(rig->io, rule);
	CHECK_INT(drive_start(rig->drive, &err), 0);
	return rig;
}

static void fail_each_once(const char *order, bool has_store, enum fault_io_kind kind)
{
	bool has_fired = true;
	unsigned n;

	for (n = 0; n < N_MAX && has_fired; n++) {
		struct fault_io_rule rule = {
			.kind = kind, .countdown = n, .repeat = 1, .status = -EIO, .length = 50
		};
		struct rig *rig = new_rig(order, has_store, &rule);

		/* What a large file's READs ask for is not kept: it is asked for again. */
		CHECK(read_all(rig, -EIO) + read_all(rig, -EIO) <= 1);
		has_fired = fault_io_fired(rig->io) > 0;
		if (has_fired)
			CHECK_INT(read_all(rig, -EIO), 0);
		rig_free(rig);
	}
	printf("# %u reads of the source failed, one at a time\n", n - 1);
	CHECK(n > FILES);
	CHECK(n < N_MAX);
}

static void each_read_of_the_source_fails_once(void)
{
	fail_each_once(NULL, false, FAULT_IO_FAIL);
}

static void each_read_of_the_source_is_short_once(void)
{
	fail_each_once(NULL, false, FAULT_IO_SHORTEN);
}

static void each_read_fails_once_with_an_order_and_a_store(void)
{
	fail_each_once("sequential", true, FAULT_IO_FAIL);
}

static void source_fails_for_good_and_is_repaired(void)
{
	for (int i = 0; i < 6; i++) {
		struct fault_io_rule rule = { .kind = FAULT_IO_FAIL,
					      .countdown = (unsigned)i,
					      .status = -EIO };
		struct rig *rig = new_rig(i % 2 ? "sequential" : NULL, i % 3 == 0, &rule);
		struct cache_status st;

		CHECK(read_all(rig, -EIO) > 0);
		fault_io_set(rig->io, NULL);
		CHECK_INT(read_all(rig, -EIO), 0);
		cache_get_status(rig->cache, &st);
		CHECK(!st.is_degraded); /* it is the source that was ill */
		rig_free(rig);
	}
}

static const struct check_test tests[] = {
	{ "each_read_of_the_source_fails_once", each_read_of_the_source_fails_once },
	{ "each_read_of_the_source_is_short_once", each_read_of_the_source_is_short_once },
	{ "each_read_fails_once_with_an_order_and_a_store",
	  each_read_fails_once_with_an_order_and_a_store },
	{ "source_fails_for_good_and_is_repaired", source_fails_for_good_and_is_repaired },
};
CHECK_MAIN(tests)
