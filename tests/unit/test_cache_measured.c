/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of records of larger files, as they are told to who measures: which are measures of the source, and
 * when they began. Nothing plans. */
#include "probe_kit.h"
#include "units_rig.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE 4096u
#define NAME "class/000000.jpg"

/* Reads of the second of three records, as they are told to who measures. */
struct told_reads {
	uint64_t opened_ns[8], bytes[8];
	uint8_t mark[8];
	uint32_t n;
};

static void take_facts(void *ctx, const struct read_facts *facts, uint32_t n)
{
	struct told_reads *t = ctx;

	for (uint32_t i = 0; i < n; i++)
		if (facts[i].unit.v == 1) {
			CHECK(t->n < ARRAY_LEN(t->bytes));
			t->opened_ns[t->n] = facts[i].opened_ns;
			t->mark[t->n] = facts[i].traits.mark;
			t->bytes[t->n++] = facts[i].bytes;
		}
}

static const struct told_reads *told_of(struct rig *rig, const struct told_reads *t)
{
	account_sweep(rig->cache, clock_now(rig->cache->p.clock), true);
	return t;
}

/* Three records of 100000 bytes one behind the other; what is told of the second one. */
static struct rig *rig_that_tells(struct manual_clock *mc, struct probe *probe, struct told_reads *told)
{
	static const uint64_t size = 30 * MIB;

	*mc = (struct manual_clock){ .clock.now_ns = manual_now };
	atomic_store(&mc->now_ns, NS_PER_S);
	*told = (struct told_reads){ .n = 0 };
	*probe = probe_kit(told, take_facts, NULL);
	return rig_new(&(struct rig_options){
		.n = 1,
		.sizes = &size,
		.clock = &mc->clock,
		.is_not_started = true,
		.probe = probe,
		.records = NAME " 10000 100000\n" NAME " 110000 100000\n" NAME " 210000 100000\n" });
}

/* A record that is held back is asked of the source as its reader would ask for it, once, whatever is here of
 * it. A READ of some of it, or of more, is no measure. */
static void a_record_that_is_held_back_is_asked_for_alone(void)
{
	static const struct {
		uint64_t offset;
		uint32_t pages;
		uint8_t mark;
	} reads[] = { { 106496, 26, 1 }, { 110592, 24, 1 }, { 106496, 26, 0 },
		      { 114688, 24, 0 }, { 106496, 27, 0 }, { 106496, 26, 1 } };
	static const bool is_held[] = { true, true, false, true, true, true };
	struct told_reads told;
	struct manual_clock mc;
	struct probe probe;
	struct rig *rig = rig_that_tells(&mc, &probe, &told);

	probed_fini(rig->cache);
	rig->cache->p.sets_aside = true;
	CHECK_INT(probed_init(rig->cache), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(reads); i++) {
		uint64_t before;

		CHECK_INT(unit_hold(rig, 0), 0); /* has a page of it as well */
		if (is_held[i])
			cache_set_aside(rig->cache, (struct unit_id){ 1 }, 1);
		before = rig_source_bytes(rig);
		CHECK_INT(rig_read_check(rig, 0, reads[i].offset, reads[i].pages * PAGE), READ_MISS);
		if (is_held[i])
			CHECK_U64(rig_source_bytes(rig) - before, reads[i].pages * PAGE);
		unit_let_go(rig, 0);
		atomic_fetch_add(&mc.now_ns, 10 * NS_PER_S);
		CHECK_U64(told_of(rig, &told)->n, i + 1);
		CHECK_INT(told.mark[i], reads[i].mark);
	}
	rig_free(rig);
}

/* The kernel reads on into a record from the one before it. Whoever comes to it later waits for its own READ,
 * and from then on. */
static void what_was_read_on_before_is_no_part_of_a_read(void)
{
	struct told_reads told;
	struct manual_clock mc;
	struct probe probe;
	struct rig *rig = rig_that_tells(&mc, &probe, &told);

	rig_read_check(rig, 0, 110592, 3 * PAGE);
	CHECK_U64(told_of(rig, &told)->n, 0); /* nobody has come */
	for (uint32_t i = 0; i < 3; i++) {
		rig_read_check(rig, 0, 110592, 3 * PAGE);
		atomic_fetch_add(&mc.now_ns, NS_PER_S / 2);
		rig_read_check(rig, 0, 106496, 26 * PAGE);
		(void)cache_place_open(rig->cache, (struct unit_id){ 1 }, 0,
				       &(struct read_place){ .pass = i, .length = 3 });
	}
	CHECK_U64(told_of(rig, &told)->n, 3);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_U64(told.opened_ns[i], NS_PER_S + (i + 1) * (NS_PER_S / 2));
		CHECK_U64(told.bytes[i], 100000);
	}
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "a_record_that_is_held_back_is_asked_for_alone", a_record_that_is_held_back_is_asked_for_alone },
	{ "what_was_read_on_before_is_no_part_of_a_read", what_was_read_on_before_is_no_part_of_a_read },
};
CHECK_MAIN(tests)
