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
	bool is_late[8];
	uint32_t n, n_nobodys;
};

static void take_facts(void *ctx, const struct read_facts *facts, uint32_t n)
{
	struct told_reads *t = ctx;

	for (uint32_t i = 0; i < n; i++)
		if (facts[i].unit.v == 1 && facts[i].is_nobodys) {
			CHECK(!facts[i].has_use && facts[i].is_record);
			t->n_nobodys++;
		} else if (facts[i].unit.v == 1) {
			CHECK(t->n < ARRAY_LEN(t->bytes));
			t->opened_ns[t->n] = facts[i].opened_ns;
			t->mark[t->n] = facts[i].traits.mark;
			t->is_late[t->n] = facts[i].is_late;
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
	CHECK_U64(told.n_nobodys, 4); /* and those are no reads */
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_U64(told.opened_ns[i], NS_PER_S + (i + 1) * (NS_PER_S / 2));
		CHECK_U64(told.bytes[i], 100000);
		CHECK(!told.is_late[i]);
	}
	rig_free(rig);
}

/* Its range is shorter than what was asked for: the middle of that is in a gap, or in another record. */
static void a_short_record_at_the_end_of_its_file_is_held_back_once(void)
{
	static const uint64_t size = 2 * MIB + 3500 + 1096;
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 1,
		.sizes = &size,
		.is_not_started = true,
		.records = NAME " 10000 100000\n" NAME " 2100652 1096\n" });
	struct unit_id last = { 1 };

	probed_fini(rig->cache);
	rig->cache->p.sets_aside = true;
	CHECK_INT(probed_init(rig->cache), 0);
	cache_set_aside(rig->cache, (struct unit_id){ 0 }, 1);
	cache_set_aside(rig->cache, last, 1);
	CHECK_INT(rig_read_check(rig, 0, 2 * MIB, 2 * PAGE), READ_MISS);
	CHECK_INT(probed_mark(rig->cache, last), 0);
	CHECK_INT(probed_mark(rig->cache, (struct unit_id){ 0 }), 1);
	rig_free(rig);
}

/* Its reader is heard of at a later record: when it was opened is not known. */
static void what_is_known_by_a_later_read_is_late(void)
{
	struct told_reads told;
	struct manual_clock mc;
	struct probe probe;
	struct rig *rig = rig_that_tells(&mc, &probe, &told);
	struct cache_copy copy;
	struct cache_push p;

	CHECK_INT(unit_hold(rig, 1), 0);
	CHECK_INT(cache_push_begin(rig->cache, (struct unit_id){ 1 }, &p), 0);
	CHECK(cache_push_whole(rig->cache, &p));
	for (uint32_t i = p.first; i < p.end; i++) {
		CHECK_INT(cache_push_pin(rig->cache, &p, i, &copy), 0);
		cache_push_unpin(rig->cache, &p, &copy, true);
	}
	CHECK_INT(cache_push_end(rig->cache, &p, 0), 0);
	cache_come(rig->cache, (struct unit_id){ 1 });
	CHECK_U64(told_of(rig, &told)->n, 1);
	CHECK(told.is_late[0]);
	rig_read_check(rig, 0, 106496, 26 * PAGE);
	CHECK_U64(told_of(rig, &told)->n, 2);
	CHECK(!told.is_late[1]);
	unit_let_go(rig, 1);
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "a_short_record_at_the_end_of_its_file_is_held_back_once",
	  a_short_record_at_the_end_of_its_file_is_held_back_once },
	{ "what_is_known_by_a_later_read_is_late", what_is_known_by_a_later_read_is_late },
	{ "a_record_that_is_held_back_is_asked_for_alone", a_record_that_is_held_back_is_asked_for_alone },
	{ "what_was_read_on_before_is_no_part_of_a_read", what_was_read_on_before_is_no_part_of_a_read },
};
CHECK_MAIN(tests)
