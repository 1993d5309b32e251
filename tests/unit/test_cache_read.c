/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The read path: where bytes come from, what is joined, what a reader gets when something fails.
 */
#include "cache_rig.h"

#define MIB (1u << 20)

static void bytes_are_those_of_the_source_around_pieces(void)
{
	static const uint64_t sizes[] = { 0,   1,       4095,        4096,    4097,       MIB - 1,
					  MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 3 * MIB + 5 };
	static const uint32_t lengths[] = { 1, 4096, 131072, MIB };
	struct rig *rig = rig_new(&(struct rig_options){ .n = ARRAY_LEN(sizes), .sizes = sizes });

	for (uint32_t f = 0; f < ARRAY_LEN(sizes); f++)
		for (uint32_t l = 0; l < ARRAY_LEN(lengths); l++)
			for (uint64_t at = 0; at <= sizes[f] + 4096; at += MIB / 2 - 1) {
				rig_read_check(rig, f, at, lengths[l]);
				rig_read_check(rig, f, at / 4096 * 4096, lengths[l]);
			}
	rig_free(rig);
}

static void second_read_is_from_the_arena(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 110 << 10 });

	CHECK_INT(rig_read_check(rig, 0, 0, 4096), READ_MISS);
	CHECK_INT(rig_read_check(rig, 0, 65536, 65536), READ_ARENA);
	CHECK_INT(rig_read_check(rig, 0, 1 << 20, 4096), READ_ARENA);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 1);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_BYTES), 110 << 10);
	rig_free(rig);
}

static void hundred_readers_make_one_source_read(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 110 << 10 });
	struct rig_read *reads[100];

	fault_io_pause(rig->io);
	for (int i = 0; i < 100; i++)
		reads[i] = rig_read_start(rig, 0, (uint64_t)i * 1000, 131072);
	fault_io_wait_held(rig->io, 1);
	CHECK_U64(fault_io_seen(rig->io), 1);
	fault_io_resume(rig->io);
	for (int i = 0; i < 100; i++) {
		rig_read_wait(reads[i]);
		rig_check_bytes(reads[i], 0, 110 << 10);
		CHECK_INT(reads[i]->read.read_class, READ_MISS);
		rig_read_free(reads[i]);
	}
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 1);
	rig_free(rig);
}

static void reader_gets_the_error_of_the_source_and_it_is_not_cached(void)
{
	static const int errors[] = { -EIO, -EACCES, -ENOENT, -ENXIO };
	struct rig *rig = rig_new(&(struct rig_options){ .n = 5, .size = 5000 });

	for (uint32_t i = 0; i < ARRAY_LEN(errors); i++) {
		fault_io_set(rig->io, &(struct fault_io_rule){ .kind = FAULT_IO_FAIL,
							       .repeat = 1,
							       .status = errors[i] });
		CHECK_INT(rig_read_status(rig, i, 0, 4096), errors[i]);
		CHECK_U64(rig_metric(rig, METRIC_READ_ERRORS), i + 1);
		rig_read_check(rig, 4, 0, 4096);
		CHECK_INT(rig_read_check(rig, i, 0, 4096), READ_MISS);
	}
	rig_free(rig);
}

static void failure_reaches_everybody_who_waited_and_nobody_else(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 2, .size = 5000 });
	struct rig_read *reads[10], *other;

	fault_io_pause(rig->io);
	for (int i = 0; i < 10; i++)
		reads[i] = rig_read_start(rig, 0, 0, 4096);
	fault_io_set(rig->io,
		     &(struct fault_io_rule){ .kind = FAULT_IO_FAIL, .repeat = 1, .status = -EIO });
	other = rig_read_start(rig, 1, 0, 4096);
	fault_io_wait_held(rig->io, 2);
	fault_io_resume(rig->io);
	for (int i = 0; i < 10; i++) {
		rig_read_wait(reads[i]);
		CHECK_INT(reads[i]->status, -EIO);
		rig_read_free(reads[i]);
	}
	rig_read_wait(other);
	rig_check_bytes(other, 0, 5000);
	rig_read_free(other);
	rig_read_check(rig, 0, 0, 4096);
	rig_free(rig);
}

static void full_arena_costs_memory_not_reads(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 20, .size = MIB, .arena_limit = 4 * MIB, .arena_bytes = 4 * MIB });
	struct rig_read *reads[20];

	fault_io_pause(rig->io);
	for (uint32_t i = 0; i < 20; i++)
		reads[i] = rig_read_start(rig, i, 0, MIB);
	fault_io_wait_held(rig->io, 20);
	fault_io_resume(rig->io);
	for (uint32_t i = 0; i < 20; i++) {
		rig_read_wait(reads[i]);
		rig_check_bytes(reads[i], 0, MIB);
		rig_read_free(reads[i]);
	}
	CHECK(arena_used(rig->arena) <= 4 * MIB);
	/* What is kept now gives way to what is read next. */
	for (uint32_t round = 0; round < 3; round++)
		for (uint32_t i = 0; i < 20; i++)
			rig_read_check(rig, i, 4096, 4096);
	CHECK_INT(rig_read_check(rig, 19, 0, 4096), READ_ARENA);
	CHECK(arena_used(rig->arena) <= 4 * MIB);
	rig_free(rig);
}

static void large_file_is_read_one_piece_ahead_when_in_order(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 1, .size = 100, .other_size = 5 * MIB + 17 });
	enum read_class class;

	CHECK_INT(rig_read_check(rig, 1, 0, 131072), READ_MISS);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_BYTES), MIB);
	CHECK_INT(rig_read_check(rig, 1, 131072, 131072), READ_ARENA);
	rig_wait_metric(rig, METRIC_SOURCE_BYTES, 2 * MIB);
	class = rig_read_check(rig, 1, MIB - 4096, 8192); /* a jump: nothing more */
	CHECK_INT(class, READ_ARENA);
	for (uint64_t at = MIB; at < 5 * MIB + 17; at += 131072) {
		class = rig_read_check(rig, 1, at, 131072);
		CHECK(class == READ_ARENA || class == READ_LATE);
	}
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_BYTES), 5 * MIB + 17);
	rig_free(rig);
}

static void random_reads_of_a_large_file_fetch_what_is_asked_for(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 1, .size = 100, .other_size = 9 * MIB });

	rig_read_check(rig, 1, 6 * MIB, 4096);
	rig_read_check(rig, 1, 2 * MIB, 4096);
	rig_read_check(rig, 1, 8 * MIB, 4096);
	rig_read_check(rig, 1, 4 * MIB - 2048, 4096); /* two pieces */
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 5);
	rig_free(rig);
}

static void stop_answers_the_reads_in_flight(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 8, .size = 3 * MIB });
	struct rig_read *reads[8];

	fault_io_set(rig->io,
		     &(struct fault_io_rule){ .kind = FAULT_IO_DELAY, .delay_ns = 20 * NS_PER_MS });
	for (uint32_t i = 0; i < 8; i++)
		reads[i] = rig_read_start(rig, i, MIB - 4096, 131072);
	cache_stop(rig->cache);
	for (uint32_t i = 0; i < 8; i++) {
		CHECK_INT(reads[i]->n_done, 1);
		rig_check_bytes(reads[i], 0, 3 * MIB);
		rig_read_free(reads[i]);
	}
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "bytes_are_those_of_the_source_around_pieces",
	  bytes_are_those_of_the_source_around_pieces },
	{ "second_read_is_from_the_arena", second_read_is_from_the_arena },
	{ "hundred_readers_make_one_source_read", hundred_readers_make_one_source_read },
	{ "reader_gets_the_error_of_the_source_and_it_is_not_cached",
	  reader_gets_the_error_of_the_source_and_it_is_not_cached },
	{ "failure_reaches_everybody_who_waited_and_nobody_else",
	  failure_reaches_everybody_who_waited_and_nobody_else },
	{ "full_arena_costs_memory_not_reads", full_arena_costs_memory_not_reads },
	{ "large_file_is_read_one_piece_ahead_when_in_order",
	  large_file_is_read_one_piece_ahead_when_in_order },
	{ "random_reads_of_a_large_file_fetch_what_is_asked_for",
	  random_reads_of_a_large_file_fetch_what_is_asked_for },
	{ "stop_answers_the_reads_in_flight", stop_answers_the_reads_in_flight },
};
CHECK_MAIN(tests)
