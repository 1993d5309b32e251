/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small parts of large files that are asked for again and again (src/cache/hot.c): they stay, whatever
 * passes by; what is asked for once does not; and there are never many of them.
 */
#include <stdio.h>

#include "cache_rig.h"
#include "src/cache/cache_priv.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE 4096u

static struct rig *rig_of(uint32_t n, uint64_t arena_bytes)
{
	return rig_new(&(struct rig_options){ .n = n,
					      .size = 38 * MIB + 1000,
					      .arena_limit = 2 * arena_bytes,
					      .arena_bytes = arena_bytes,
					      .is_not_started = true });
}

static uint64_t hot_bytes(struct rig *rig)
{
	return atomic_load(&rig->cache->hot_bytes);
}

/* A READ counts as under way, and has what it asked for, for a moment after its answer. */
static void reads_are_over(struct rig *rig)
{
	for (int i = 0; i < SHARDS; i++) {
		struct shard *s = &rig->cache->shards[i];
		bool is_over = false;

		while (!is_over) {
			mutex_lock(&s->mu);
			is_over = s->busy == 0;
			if (!is_over)
				(void)cond_wait_for(&s->idle, &s->mu, NS_PER_S);
			mutex_unlock(&s->mu);
		}
	}
}

static enum read_class ask(struct rig *rig, uint32_t file, uint64_t at, uint32_t length)
{
	enum read_class got = rig_read_check(rig, file, at, length);

	reads_are_over(rig);
	return got;
}

static void what_is_asked_for_again_stays(void)
{
	struct rig *rig = rig_of(1, 64 * MIB);
	uint64_t footer = 38 * MIB - 8192, before;

	CHECK_INT(ask(rig, 0, footer, 8192), READ_MISS);
	CHECK_U64(hot_bytes(rig), 0);
	CHECK_U64(arena_used(rig->arena), 0); /* it went with its READ */
	CHECK_INT(ask(rig, 0, footer, 8192), READ_MISS);
	CHECK_U64(hot_bytes(rig), 8192);
	before = rig_metric(rig, METRIC_SOURCE_BYTES);
	for (int i = 0; i < 5; i++)
		CHECK_INT(ask(rig, 0, footer, 8192), READ_ARENA);
	CHECK_INT(ask(rig, 0, footer + PAGE, PAGE), READ_ARENA); /* a part of it */
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_BYTES), before);
	CHECK_U64(hot_bytes(rig), 8192);
	rig_free(rig);
}

static void what_is_asked_for_once_goes(void)
{
	struct rig *rig = rig_of(1, 64 * MIB);

	for (uint32_t i = 0; i < 400; i++) /* no two of them meet */
		CHECK_INT(ask(rig, 0, MIB + (uint64_t)(i * 37 % 400) * 90112, PAGE), READ_MISS);
	CHECK_U64(hot_bytes(rig), 0);
	CHECK_U64(arena_used(rig->arena), 0);
	/* And what is as long as a record is no table. */
	for (int i = 0; i < 3; i++)
		CHECK_INT(ask(rig, 0, 37 * MIB, AHEAD_HOT + PAGE), READ_MISS);
	CHECK_U64(hot_bytes(rig), 0);
	rig_free(rig);
}

static void streams_that_pass_by_leave_it(void)
{
	struct rig *rig = rig_of(3, 8 * MIB);

	for (int i = 0; i < 2; i++)
		CHECK_INT(ask(rig, 0, 20 * MIB, PAGE), READ_MISS);
	for (uint32_t file = 1; file < 3; file++)
		for (uint64_t at = 0; at < 38 * MIB; at += 131072)
			(void)rig_read_check(rig, file, at, 131072);
	reads_are_over(rig);
	CHECK_INT(ask(rig, 0, 20 * MIB, PAGE), READ_ARENA);
	rig_free(rig);
}

/* Of one file so many that looking for them costs nothing, of all a part of the arena. */
static void there_are_few_of_them(void)
{
	enum { FILES = 16, PLACES = 40 };
	struct rig *rig = rig_of(FILES, 16 * MIB);
	uint64_t most = 0;

	for (int round = 0; round < 2; round++)
		for (uint64_t i = 0; i < PLACES; i++)
			(void)ask(rig, 0, i * 300000 / PAGE * PAGE, PAGE);
	CHECK_U64(hot_bytes(rig), 32ull * PAGE);
	for (uint32_t file = 1; file < FILES; file++)
		for (int round = 0; round < 2; round++) {
			(void)ask(rig, file, 9 * MIB, 65536);
			most = MAX(most, hot_bytes(rig));
		}
	CHECK(most <= 16 * MIB / 64);
	CHECK(most >= 65536);
	rig_free(rig);
}

/* Whatever was asked for again when the job began, what is asked for now is kept. */
static void what_is_asked_for_now_takes_the_place_of_what_was(void)
{
	enum { FILES = 40 };
	struct rig *rig = rig_of(FILES, 16 * MIB);
	uint64_t n_kept = 0;

	for (int round = 0; round < 2; round++)
		for (uint64_t i = 0; i < 32; i++)
			(void)ask(rig, 0, i * 300000 / PAGE * PAGE, PAGE);
	for (int i = 0; i < 10; i++)
		n_kept += ask(rig, 0, 30 * MIB, PAGE) == READ_ARENA;
	CHECK_U64(n_kept, 8);
	/* Under each lock there is room for some, also when others came first. */
	for (uint32_t file = 0; file < FILES; file++)
		for (int round = 0; round < 2; round++)
			(void)ask(rig, file, 9 * MIB, 65536);
	for (uint32_t file = 0; file < FILES; file++)
		for (int round = 0; round < 3; round++)
			n_kept += ask(rig, file, 20 * MIB, PAGE) == READ_ARENA;
	CHECK_U64(n_kept, 8 + FILES);
	rig_free(rig);
}

/* What a second pass through a file costs that fits, after 60 READs of it: of 30 places, or of as many. */
static uint64_t second_pass_bytes(bool is_hot)
{
	struct rig *rig = rig_of(1, 128 * MIB);
	uint64_t bytes = 0;

	for (uint64_t round = 0; round < 2; round++)
		for (uint64_t i = 0; i < 30; i++)
			(void)ask(rig, 0, MIB + i * MIB + i * 20480 + (is_hot ? 0 : round * 409600), PAGE);
	CHECK_U64(hot_bytes(rig), is_hot ? 30ull * PAGE : 0);
	for (int pass = 0; pass < 2; pass++) {
		bytes = rig_metric(rig, METRIC_SOURCE_BYTES);
		for (uint64_t at = 0; at < 38 * MIB; at += 131072)
			(void)rig_read_check(rig, 0, at, 131072);
		reads_are_over(rig);
	}
	bytes = rig_metric(rig, METRIC_SOURCE_BYTES) - bytes;
	CHECK(!is_hot || hot_bytes(rig) <= 4 * PAGE); /* pieces have taken their places */
	rig_free(rig);
	return bytes;
}

static void streams_through_it_are_as_others(void)
{
	uint64_t others = second_pass_bytes(false), hot = second_pass_bytes(true);

	printf("# second pass: %llu bytes, after hot ranges %llu\n", (unsigned long long)others,
	       (unsigned long long)hot);
	CHECK(hot <= others + MIB);
}

static void memory_that_is_wanted_comes_back(void)
{
	struct rig *rig = rig_of(2, 64 * MIB);

	for (uint64_t i = 0; i < 30; i++) {
		(void)ask(rig, 0, i * MIB, 32768);
		(void)ask(rig, 0, i * MIB, 32768);
	}
	CHECK(hot_bytes(rig) > 400 << 10);
	cache_set_memory(rig->cache, 256 << 10);
	CHECK(arena_used(rig->arena) <= (256 << 10) + cache_spare_bytes(256 << 10));
	/* A 64th of it is less than one of them: the next one that is to stay finds no room, and that is
	 * made by those before it. */
	for (int i = 0; i < 3; i++)
		CHECK_INT(ask(rig, 0, 35 * MIB, 32768), READ_MISS);
	CHECK_U64(hot_bytes(rig), 0);
	rig_free(rig);
}

static void a_change_takes_it(void)
{
	struct rig *rig = rig_of(1, 64 * MIB);

	for (int i = 0; i < 3; i++)
		(void)ask(rig, 0, 30 * MIB, PAGE);
	CHECK_U64(hot_bytes(rig), PAGE);
	rig_replace(rig, 0, 35 * MIB);
	CHECK_INT(ask(rig, 0, 10 * MIB, PAGE), READ_MISS); /* it is seen here */
	CHECK_U64(hot_bytes(rig), 0);
	CHECK_INT(ask(rig, 0, 30 * MIB, PAGE), READ_MISS); /* bytes of the new one: checked */
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "what_is_asked_for_again_stays", what_is_asked_for_again_stays },
	{ "what_is_asked_for_once_goes", what_is_asked_for_once_goes },
	{ "streams_that_pass_by_leave_it", streams_that_pass_by_leave_it },
	{ "there_are_few_of_them", there_are_few_of_them },
	{ "what_is_asked_for_now_takes_the_place_of_what_was",
	  what_is_asked_for_now_takes_the_place_of_what_was },
	{ "streams_through_it_are_as_others", streams_through_it_are_as_others },
	{ "memory_that_is_wanted_comes_back", memory_that_is_wanted_comes_back },
	{ "a_change_takes_it", a_change_takes_it },
};
CHECK_MAIN(tests)
