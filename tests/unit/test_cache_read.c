/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The read path: where bytes come from, what is joined, what a reader gets when something fails.
 */
#include "cache_rig.h"
#include "src/cache/cache_priv.h"

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

/* From the beginning to the end, as the kernel reads: each byte comes once, and few by a READ that
 * had to ask for them itself. */
static void stream_of_a_large_file_is_fetched_ahead(void)
{
	const uint64_t size = 9 * MIB + 17;
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 100, .other_size = size });
	uint32_t missed = 0;

	for (uint64_t at = 0, step = 16384; at < size; at += step, step = MIN(2 * step, 131072u))
		missed += rig_read_check(rig, 1, at, (uint32_t)step) == READ_MISS;
	CHECK(missed <= 2);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_BYTES), size);
	CHECK(rig_metric(rig, METRIC_SOURCE_READS) <= 24);
	CHECK_U64(atomic_load(&rig->cache->ahead_bytes), 0);
	rig_free(rig);
}

static void random_reads_of_a_large_file_fetch_what_is_asked_for(void)
{
	static const struct {
		uint64_t at;
		uint32_t length;
	} reads[] = { { 6 * MIB, 4096 },
		      { 2 * MIB, 100000 },
		      { 8 * MIB + 77, 4096 },
		      { 4 * MIB - 2048, 4096 }, /* two pieces, one request */
		      { 5 * MIB - 700000, MIB } };
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 1, .size = 100, .other_size = 9 * MIB });
	uint64_t asked = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(reads); i++) {
		CHECK_INT(rig_read_check(rig, 1, reads[i].at, reads[i].length), READ_MISS);
		asked += reads[i].length;
	}
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), ARRAY_LEN(reads));
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_BYTES), asked);
	RIG_UNTIL(arena_used(rig->arena) == 0); /* the kernel has them now */
	rig_free(rig);
}

/* A READ that is partly there asks for the rest only. */
static void read_is_put_together_of_what_is_there_and_what_is_not(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 1, .size = 100, .other_size = 40 * MIB });
	uint64_t before;

	rig_read_check(rig, 1, 20 * MIB, 65536);
	rig_read_check(rig, 1, 20 * MIB + 65536, 65536); /* 256 KiB behind it come ahead */
	rig_wait_metric(rig, METRIC_SOURCE_BYTES, 131072 + 262144);
	before = rig_metric(rig, METRIC_SOURCE_BYTES);
	CHECK_U64(before, 131072 + 262144);
	CHECK_U64(atomic_load(&rig->cache->ahead_bytes), 262144);
	rig_read_check(rig, 1, 20 * MIB + 131072 - 8192, 262144 + 16384);
	CHECK(rig_metric(rig, METRIC_SOURCE_BYTES) - before >= 16384);
	CHECK_U64(atomic_load(&rig->cache->ahead_bytes) & (1ull << 63), 0);
	rig_free(rig);
}

static uint32_t n_ahead(struct rig *rig)
{
	struct prefetch_queue *queue = &rig->cache->prefetch;
	uint32_t n;

	mutex_lock(&queue->mu);
	n = queue->inflight;
	mutex_unlock(&queue->mu);
	return n;
}

/* Two readers of O_DIRECT at the same half of what was fetched ahead: the other half stays. */
static void bytes_that_are_read_twice_are_not_all_of_it(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 1, .size = 100, .other_size = 40 * MIB });
	uint64_t before;

	rig_read_check(rig, 1, 20 * MIB, 65536);
	rig_read_check(rig, 1, 20 * MIB + 65536, 65536); /* 256 KiB behind it come ahead */
	rig_wait_metric(rig, METRIC_SOURCE_BYTES, 131072 + 262144);
	RIG_UNTIL(n_ahead(rig) == 0);
	for (int i = 0; i < 2; i++) /* no stream goes on there, nor in what follows */
		CHECK_INT(rig_read_check(rig, 1, 20 * MIB + 131072 + 4096, 131072), READ_ARENA);
	before = rig_metric(rig, METRIC_SOURCE_READS);
	CHECK_INT(rig_read_check(rig, 1, 20 * MIB + 262144, 131072), READ_ARENA);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS) - before, 0);
	CHECK(arena_used(rig->arena) > 0); /* one page of it is left to be read */
	rig_read_check(rig, 1, 20 * MIB + 131072 - 4096, 8192);
	RIG_UNTIL(arena_used(rig->arena) == 0);
	rig_free(rig);
}

/* READs in flight take no place of those that were fetched ahead. */
static void ranges_of_reads_in_flight_are_no_places_taken(void)
{
	enum { N = RANGES_MAX };
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 1, .size = 100, .other_size = 40 * MIB });
	struct rig_read *reads[N];

	rig_read_check(rig, 1, 20 * MIB, 65536);
	rig_read_check(rig, 1, 20 * MIB + 65536, 65536);
	rig_wait_metric(rig, METRIC_SOURCE_BYTES, 131072 + 262144);
	RIG_UNTIL(n_ahead(rig) == 0);
	fault_io_pause(rig->io);
	for (uint32_t i = 0; i < N; i++)
		reads[i] = rig_read_start(rig, 1, i * 65536 * 3 + 4096, 4096);
	CHECK_INT(rig_read_check(rig, 1, 20 * MIB + 131072, 131072), READ_ARENA);
	CHECK(n_ahead(rig) > 0); /* the stream goes on */
	fault_io_resume(rig->io);
	for (uint32_t i = 0; i < N; i++) {
		rig_read_wait(reads[i]);
		rig_check_bytes(reads[i], 0, 40 * MIB);
		rig_read_free(reads[i]);
	}
	rig_free(rig);
}

/* Every second prefetch fails for a while: readers notice nothing, and nothing is owed afterwards. */
static void fetches_ahead_that_fail_are_not_charged(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 1, .size = 100, .other_size = 40 * MIB });
	struct fault_io_rule fail = { .kind = FAULT_IO_FAIL, .status = -EIO };

	rig_read_check(rig, 1, 20 * MIB, 65536);
	for (uint64_t at = 20 * MIB + 65536; at < 30 * MIB; at += 65536) {
		struct rig_read *read;

		fault_io_pause(rig->io);
		read = rig_read_start(rig, 1, at, 65536);
		/* The READ itself is let through if it has to ask, what it started ahead fails. */
		fail.countdown = read->n_done ? 0 : 1;
		fault_io_set(rig->io, &fail);
		fault_io_resume(rig->io);
		rig_read_wait(read);
		rig_check_bytes(read, 0, 40 * MIB);
		rig_read_free(read);
		RIG_UNTIL(n_ahead(rig) == 0);
		fault_io_set(rig->io, NULL);
	}
	CHECK(rig_metric(rig, METRIC_SOURCE_ERRORS) > 0);
	CHECK_U64(rig->cache->ahead->spent, rig_metric(rig, METRIC_SOURCE_BYTES));
	CHECK_U64(atomic_load(&rig->cache->ahead_bytes), 0);
	rig_free(rig);
}

/* A file of one piece is fetched whole by any READ of it, as ever. */
static void file_of_one_piece_is_fetched_whole(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = MIB });

	CHECK_INT(rig_read_check(rig, 0, 500000, 4096), READ_MISS);
	CHECK_INT(rig_read_check(rig, 0, 0, 4096), READ_ARENA);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 1);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_BYTES), MIB);
	CHECK_U64(rig->cache->ahead->tick, 0); /* nobody looked what its readers do */
	rig_free(rig);
}

static bool is_pushed(struct rig *rig, uint64_t piece)
{
	bool is_there = false;

	mutex_lock(&rig->mu);
	for (uint32_t i = 0; i < rig->n_log; i++)
		is_there |= rig->log[i].event == RIG_STORE && rig->log[i].offset == piece * MIB;
	mutex_unlock(&rig->mu);
	return is_there;
}

/* As if a READ of the second piece were under way all the time. */
static void pushes_pass_over_the_piece_that_is_being_read(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 1, .size = 3 * MIB, .order = "sequential", .is_not_started = true });
	struct entry_id entry = { 0 };
	struct cache_read read = { .entry = entry, .offset = MIB + 4096, .length = 4096 };
	struct shard *s = shard_of(rig->cache, entry);
	struct entry_state *es;
	struct err err;

	mutex_lock(&s->mu);
	es = entry_get_locked(rig->cache, s, entry);
	es->readers = es->n_listed = 1;
	list_push_tail(&es->reads, &read.in_entry);
	mutex_unlock(&s->mu);
	CHECK_INT(drive_start(rig->drive, &err), 0);
	RIG_UNTIL(is_pushed(rig, 0) && is_pushed(rig, 2));
	drive_stop(rig->drive);
	CHECK(!is_pushed(rig, 1));
	CHECK_U64(rig_metric(rig, METRIC_STAGE_PUSHED), 0); /* not all of it */
	mutex_lock(&s->mu);
	list_remove(&read.in_entry);
	es->readers = es->n_listed = 0;
	entry_put_locked(rig->cache, s, es);
	mutex_unlock(&s->mu);
	rig_free(rig);
}

/* How many of n pushes would be refused. */
static uint32_t refused(struct rig *rig, uint32_t sample, uint32_t n)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n; i++)
		count += cache_expects_direct(rig->cache, (struct entry_id){ sample });
	return count;
}

static void readers_of_o_direct_are_noticed_and_forgotten(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 100, .size = 100 });
	struct cache *c = rig->cache;

	/* One file again and again says nothing of the others. */
	for (uint32_t i = 0; i < 100; i++)
		direct_read(c, (struct entry_id){ 0 }, true, false);
	CHECK_U64(refused(rig, 50, 16), 0);
	CHECK_U64(refused(rig, 0, 16), 15);
	for (uint32_t i = 0; i < 40; i++)
		direct_read(c, (struct entry_id){ i }, true, false);
	CHECK_U64(refused(rig, 50, 160), 150);
	/* Another job, which reads others: none is lost for it, not even those. */
	for (uint32_t i = 60; i < 84; i++)
		direct_read(c, (struct entry_id){ i }, false, false);
	CHECK_U64(refused(rig, 0, 16) + refused(rig, 39, 16) + refused(rig, 50, 16), 0);
	/* The first one comes back: it is seen at what was pushed for nothing. */
	for (uint32_t i = 0; i < 8; i++)
		direct_read(c, (struct entry_id){ i }, true, true);
	CHECK_U64(refused(rig, 39, 16), 15);
	/* What is read from pages counts as well as what is read into them. */
	for (uint32_t i = 0; i < 8; i++)
		direct_used_pages(c);
	CHECK_U64(refused(rig, 39, 16), 0);
	rig_free(rig);
}

/* However many READs it takes, a shard weighs as much as a small file. */
static void shard_of_many_reads_weighs_as_much_as_any_sample(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 100, .size = 100 });
	struct cache *c = rig->cache;

	for (uint32_t i = 0; i < 40; i++)
		direct_read(c, (struct entry_id){ i }, true, false);
	for (uint32_t i = 0; i < 1000; i++)
		direct_read(c, (struct entry_id){ 60 }, false, false);
	CHECK_U64(refused(rig, 50, 160), 150);
	for (uint32_t i = 0; i < 1000; i++) /* by two jobs */
		direct_read(c, (struct entry_id){ 61 }, i % 2, false);
	CHECK_U64(refused(rig, 50, 160), 150);
	rig_free(rig);
}

/* A header through pages, the data past them. */
static void samples_that_are_read_in_both_ways_do_not_flip(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 100, .size = 100 });
	struct cache *c = rig->cache;

	/* Nothing was pushed: nobody has said that it would be for nothing. */
	for (uint32_t i = 0; i < 300; i++) {
		direct_read(c, (struct entry_id){ i % 100 }, false, false);
		direct_read(c, (struct entry_id){ i % 100 }, true, false);
		CHECK_U64(refused(rig, i % 100, 16) + refused(rig, (i + 7) % 100, 16), 0);
	}
	/* All of it was, and was passed by but for the header. */
	for (uint32_t i = 0; i < 100; i++) {
		direct_pushed(c, (struct entry_id){ i });
		direct_read(c, (struct entry_id){ i }, true, true);
	}
	CHECK_U64(refused(rig, 50, 160), 150);
	/* A dozen readers at once, each epoch: it stays so. */
	for (uint32_t i = 0; i < 300; i += 12) {
		for (uint32_t k = i; k < i + 12; k++)
			direct_read(c, (struct entry_id){ k % 100 }, false, false);
		CHECK_U64(refused(rig, i % 100, 16), 15);
		for (uint32_t k = i; k < i + 12; k++)
			direct_read(c, (struct entry_id){ k % 100 }, true, false);
	}
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
	drive_stop(rig->drive);
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
	{ "stream_of_a_large_file_is_fetched_ahead", stream_of_a_large_file_is_fetched_ahead },
	{ "random_reads_of_a_large_file_fetch_what_is_asked_for",
	  random_reads_of_a_large_file_fetch_what_is_asked_for },
	{ "read_is_put_together_of_what_is_there_and_what_is_not",
	  read_is_put_together_of_what_is_there_and_what_is_not },
	{ "bytes_that_are_read_twice_are_not_all_of_it",
	  bytes_that_are_read_twice_are_not_all_of_it },
	{ "ranges_of_reads_in_flight_are_no_places_taken",
	  ranges_of_reads_in_flight_are_no_places_taken },
	{ "fetches_ahead_that_fail_are_not_charged", fetches_ahead_that_fail_are_not_charged },
	{ "file_of_one_piece_is_fetched_whole", file_of_one_piece_is_fetched_whole },
	{ "pushes_pass_over_the_piece_that_is_being_read",
	  pushes_pass_over_the_piece_that_is_being_read },
	{ "readers_of_o_direct_are_noticed_and_forgotten",
	  readers_of_o_direct_are_noticed_and_forgotten },
	{ "shard_of_many_reads_weighs_as_much_as_any_sample",
	  shard_of_many_reads_weighs_as_much_as_any_sample },
	{ "samples_that_are_read_in_both_ways_do_not_flip",
	  samples_that_are_read_in_both_ways_do_not_flip },
	{ "stop_answers_the_reads_in_flight", stop_answers_the_reads_in_flight },
};
CHECK_MAIN(tests)
