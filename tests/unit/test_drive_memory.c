/* SPDX-License-Identifier: Apache-2.0 */
/* A cache that is given less memory, and more again, while it runs: what is plain leaves at once,
 * what is planned a little later, the next plan keeps to it as well, and every byte stays right. */
#include <stdio.h>

#include "cache_rig.h"

#define KIB (1u << 10)
#define MIB (1u << 20)

static struct plan_status status(struct rig *rig)
{
	struct drive_status st;

	drive_get_status(rig->drive, &st);
	return st.plan;
}

static void read_files(struct rig *rig, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		rig_read_check(rig, i, 0, rig->options.size);
}

static void plain_copies_leave_at_once(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 100, .size = 256 * KIB });
	const uint64_t most = 8 * MIB + cache_spare_bytes(8 * MIB);

	read_files(rig, 100);
	CHECK_U64(arena_used(rig->arena), 100 * 256 * KIB);
	drive_set_memory(rig->drive, 8 * MIB, MIB);
	CHECK(arena_used(rig->arena) <= most && arena_used(rig->arena) > 7 * MIB);
	CHECK_INT(rig_read_check(rig, 99, 0, 256 * KIB), READ_ARENA); /* the oldest went */
	CHECK_INT(rig_read_check(rig, 0, 0, 256 * KIB), READ_MISS);
	read_files(rig, 100);
	CHECK(arena_used(rig->arena) <= most);
	drive_set_memory(rig->drive, 64 * MIB, 16 * MIB);
	read_files(rig, 100);
	for (uint32_t i = 0; i < 100; i++)
		CHECK_INT(rig_read_check(rig, i, 0, 256 * KIB), READ_ARENA);
	rig_free(rig);
}

/* Until the order is confirmed, half of what the plan has is filled. */
static void planned_copies_leave_and_the_next_plan_has_no_more(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 200,
							 .size = 100 * KIB,
							 .arena_limit = 32 * MIB,
							 .arena_bytes = 28 * MIB,
							 .stage_bytes = 2 * MIB, /* pushed: stays */
							 .order = "sequential" });

	RIG_UNTIL(status(rig).arena_bytes > 13 * MIB);
	drive_set_memory(rig->drive, 8 * MIB, MIB);
	RIG_UNTIL(status(rig).arena_bytes <= 8 * MIB && arena_used(rig->arena) <= 8 * MIB);
	RIG_UNTIL(status(rig).stage_limit_bytes <= MIB);
	CHECK_INT(drive_set_order(rig->drive, rig_order(rig->options.n, "torch-randperm:seed=7")), 0);
	RIG_UNTIL(status(rig).stage_limit_bytes <= MIB);
	read_files(rig, 200);
	CHECK(arena_used(rig->arena) <= 8 * MIB + cache_spare_bytes(8 * MIB));
	drive_set_memory(rig->drive, 32 * MIB, 2 * MIB);
	CHECK_INT(drive_set_order(rig->drive, rig_order(rig->options.n, "sequential")), 0);
	RIG_UNTIL(status(rig).arena_bytes > 13 * MIB);
	read_files(rig, 200);
	rig_free(rig);
}

/* The planner waits between two fetches until the arena has become smaller. */
struct shrinking {
	struct drive_probe probe;
	struct rig *_Atomic rig;
	_Atomic bool waits, is_small;
};

static uint8_t wait_for_the_smaller_arena(void *ctx, const struct probe_use *use)
{
	struct shrinking *s = ctx;

	(void)use;
	RIG_UNTIL(atomic_load(&s->rig));
	if (arena_used(atomic_load(&s->rig)->arena) > 12 * MIB && !atomic_load(&s->waits)) {
		atomic_store(&s->waits, true);
		RIG_UNTIL(atomic_load(&s->is_small));
	}
	return 0;
}

/* The refusal was taken for holes: a part of the memory that came back stayed unused for minutes. The
 * clock stands, so that nothing comes back with time. */
static void what_a_smaller_arena_refuses_costs_nothing_when_it_is_large_again(void)
{
	struct shrinking s = { .probe = { .ctx = &s, .hold_back = wait_for_the_smaller_arena } };
	struct manual_clock mc = { .clock = { manual_now }, .now_ns = 1000 * NS_PER_S };
	struct rig *rig = rig_new(&(struct rig_options){ .n = 200,
							 .size = 100 * KIB,
							 .arena_limit = 32 * MIB,
							 .arena_bytes = 28 * MIB,
							 .stage_bytes = 2 * MIB,
							 .clock = &mc.clock,
							 .drive_probe = &s.probe,
							 .order = "sequential" });

	atomic_store(&s.rig, rig);
	RIG_UNTIL(atomic_load(&s.waits));
	drive_set_memory(rig->drive, 8 * MIB, MIB);
	atomic_store(&s.is_small, true);
	rig_wait_metric(rig, METRIC_PREFETCH_FAILED, 1);
	RIG_UNTIL(status(rig).arena_bytes <= 8 * MIB && arena_used(rig->arena) <= 8 * MIB);
	drive_set_memory(rig->drive, 32 * MIB, 2 * MIB);
	RIG_UNTIL(status(rig).arena_bytes > 13 * MIB);
	read_files(rig, 200);
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "plain_copies_leave_at_once", plain_copies_leave_at_once },
	{ "planned_copies_leave_and_the_next_plan_has_no_more",
	  planned_copies_leave_and_the_next_plan_has_no_more },
	{ "what_a_smaller_arena_refuses_costs_nothing_when_it_is_large_again",
	  what_a_smaller_arena_refuses_costs_nothing_when_it_is_large_again },
};
CHECK_MAIN(tests)
