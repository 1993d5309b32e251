/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate before the source: what a control read waits for, what it holds back meanwhile, and that
 * nobody waits for ever. The gate alone, with a clock of our own and a source that notes what it is
 * sent; nothing here depends on threads. How it works within the cache: test_cache_control.c.
 */
#include <string.h>

#include "check.h"
#include "src/cache/cache_priv.h"

enum { FETCHES = 16 };

struct kit {
	struct tier tier; /* first: the tier is the kit */
	struct clock clock;
	uint64_t now_ns;
	struct cache_watch watch;
	uint32_t readers;
	struct cache_load load;
	uint32_t n_loads;
	struct cache cache;
	struct fetch *fetch[FETCHES];
	struct object object[FETCHES];
	bool is_sent[FETCHES];
};

static void on_tier_read(struct tier *tier, struct tier_read *read)
{
	struct kit *k = container_of(tier, struct kit, tier);

	for (int i = 0; i < FETCHES; i++)
		if (read == &k->fetch[i]->read)
			k->is_sent[i] = true;
}

static const struct tier_ops tier_ops = { .name = "kit", .read = on_tier_read };

static uint64_t on_now(struct clock *clock)
{
	return container_of(clock, struct kit, clock)->now_ns;
}

static uint32_t on_readers(void *ctx)
{
	return ((struct kit *)ctx)->readers;
}

static void on_load(void *ctx, const struct cache_load *load)
{
	struct kit *k = ctx;

	k->load = *load;
	k->n_loads++;
}

static struct kit *kit_new(uint32_t readers)
{
	struct kit *k = calloc(1, sizeof(*k));

	k->tier.ops = &tier_ops;
	k->clock.now_ns = on_now;
	k->now_ns = 100 * NS_PER_S;
	k->readers = readers;
	k->watch = (struct cache_watch){ .readers = on_readers, .load = on_load, .ctx = k };
	k->cache.p.clock = &k->clock;
	k->cache.p.source = &k->tier;
	k->cache.p.watch = &k->watch;
	prefetch_init(&k->cache);
	gate_init(&k->cache);
	for (int i = 0; i < FETCHES; i++) {
		k->fetch[i] = calloc(1, sizeof(*k->fetch[i]) + 1);
		k->fetch[i]->object = &k->object[i];
	}
	return k;
}

static void kit_free(struct kit *k)
{
	gate_fini(&k->cache);
	mutex_fini(&k->cache.prefetch.mu);
	for (int i = 0; i < FETCHES; i++)
		free(k->fetch[i]);
	free(k);
}

/* What the cache does with a request of the source. */
static void enter(struct kit *k, int i, bool is_demand, bool is_control)
{
	k->object[i].is_demand = is_demand;
	k->fetch[i]->is_control = is_control;
	if (gate_enter(&k->cache, k->fetch[i]))
		k->is_sent[i] = true;
}

static void control(struct kit *k, int i)
{
	enter(k, i, true, true);
}

static void leave(struct kit *k, int i, uint64_t latency_ns)
{
	CHECK(k->is_sent[i]);
	k->fetch[i]->read.latency_ns = latency_ns;
	k->fetch[i]->read.got = 1000;
	gate_leave(&k->cache, k->fetch[i]);
}

static void control_read_waits_for_its_turn(void)
{
	struct kit *k = kit_new(4);

	for (int i = 0; i < 8; i++)
		enter(k, i, false, false);
	control(k, 8);
	CHECK(!k->is_sent[8]);
	CHECK(!gate_lets_prefetch(&k->cache));
	k->now_ns += 7 * NS_PER_MS;
	for (int i = 0; i < 4; i++)
		leave(k, i, NS_PER_MS);
	CHECK(!k->is_sent[8]); /* four are still there */
	leave(k, 4, NS_PER_MS);
	CHECK(k->is_sent[8]);
	CHECK_U64(k->object[8].held_ns, 7 * NS_PER_MS);
	CHECK(!gate_lets_prefetch(&k->cache)); /* four again */
	leave(k, 5, NS_PER_MS);
	CHECK(gate_lets_prefetch(&k->cache)); /* what another reader would have asked for */
	enter(k, 9, false, false);
	CHECK(!gate_lets_prefetch(&k->cache));
	leave(k, 8, NS_PER_MS);
	CHECK(!k->object[8].is_loaded);
	CHECK(gate_lets_prefetch(&k->cache));
	leave(k, 6, NS_PER_MS);
	leave(k, 7, NS_PER_MS);
	leave(k, 9, NS_PER_MS);
	kit_free(k);
}

static void control_read_of_an_unknown_job_is_alone(void)
{
	struct kit *k = kit_new(0);

	enter(k, 0, false, false);
	control(k, 1);
	CHECK(!k->is_sent[1]);
	leave(k, 0, NS_PER_MS);
	CHECK(k->is_sent[1] && !gate_lets_prefetch(&k->cache));
	leave(k, 1, NS_PER_MS);
	CHECK(gate_lets_prefetch(&k->cache));
	kit_free(k);
}

static void readers_never_wait_but_are_marked(void)
{
	struct kit *k = kit_new(2);

	enter(k, 0, false, false);
	enter(k, 1, true, false);
	enter(k, 2, true, false);
	CHECK(k->is_sent[1] && !k->object[1].is_loaded);
	CHECK(k->is_sent[2] && k->object[2].is_loaded); /* beside two others */
	for (int i = 0; i < 3; i++)
		leave(k, i, NS_PER_MS);
	kit_free(k);
}

static void further_pieces_of_a_sample_follow_at_once(void)
{
	struct kit *k = kit_new(2);

	k->object[1].piece = 1;
	k->object[2].piece = 2;
	control(k, 0);
	enter(k, 1, false, true); /* read ahead */
	CHECK(k->is_sent[0] && k->is_sent[1] && !k->object[1].is_loaded);
	leave(k, 0, NS_PER_MS);
	CHECK(gate_lets_prefetch(&k->cache)); /* one, as of the other reader */
	enter(k, 3, false, false);
	CHECK(!gate_lets_prefetch(&k->cache));
	enter(k, 2, true, true);
	CHECK(k->is_sent[2] && !k->object[2].is_loaded);
	enter(k, 4, true, false);
	k->object[5].piece = 3;
	enter(k, 5, true, true);
	CHECK(k->is_sent[5] && k->object[5].is_loaded); /* too much is there by now */
	for (int i = 1; i <= 5; i++)
		leave(k, i, NS_PER_MS);
	CHECK(gate_lets_prefetch(&k->cache));
	kit_free(k);
}

static void nobody_waits_for_ever(void)
{
	struct kit *k = kit_new(1);

	enter(k, 0, false, false); /* of a server that does not answer */
	control(k, 1);
	k->now_ns += NS_PER_S / 2;
	gate_tick(&k->cache, k->now_ns);
	CHECK(!k->is_sent[1]);
	k->now_ns += NS_PER_S;
	gate_tick(&k->cache, k->now_ns);
	CHECK(k->is_sent[1] && k->object[1].is_loaded); /* no control read any more */
	/* Nor does prefetching wait for a control read that hangs. */
	CHECK(!gate_lets_prefetch(&k->cache));
	k->now_ns += 6 * NS_PER_S;
	gate_tick(&k->cache, k->now_ns);
	CHECK(gate_lets_prefetch(&k->cache));
	control(k, 2);
	CHECK(k->is_sent[2]);
	leave(k, 1, NS_PER_S);
	leave(k, 2, NS_PER_S);
	CHECK(k->object[2].is_loaded);
	leave(k, 0, NS_PER_S);
	/* Afterwards all is as before. */
	enter(k, 3, false, false);
	control(k, 4);
	CHECK(!k->is_sent[4]);
	leave(k, 3, NS_PER_MS);
	leave(k, 4, NS_PER_MS);
	CHECK(!k->object[4].is_loaded);
	kit_free(k);
}

static void stopping_lets_everybody_go(void)
{
	struct kit *k = kit_new(1);

	enter(k, 0, false, false);
	control(k, 1);
	control(k, 2);
	CHECK(!k->is_sent[1] && !k->is_sent[2]);
	gate_open(&k->cache);
	CHECK(k->is_sent[1] && k->is_sent[2]);
	control(k, 3);
	CHECK(k->is_sent[3]);
	for (int i = 0; i < 4; i++)
		leave(k, i, NS_PER_MS);
	CHECK(k->object[1].is_loaded && k->object[3].is_loaded);
	kit_free(k);
}

static void fewer_readers_strand_nobody(void)
{
	struct kit *k = kit_new(8);

	for (int i = 0; i < 8; i++)
		enter(k, i, false, false);
	control(k, 8);
	k->readers = 1;
	for (int i = 0; i < 8; i++) {
		CHECK(!k->is_sent[8]);
		leave(k, i, NS_PER_MS);
	}
	CHECK(k->is_sent[8]);
	leave(k, 8, NS_PER_MS);
	kit_free(k);
}

/* A twentieth of the time, and half a second at once. */
static void holding_back_wears_out_and_recovers(void)
{
	struct kit *k = kit_new(1);
	uint64_t held = 0;

	for (int i = 0; i < 1000 && !gate_is_worn(&k->cache); i++) {
		enter(k, 0, false, false);
		control(k, 1);
		k->now_ns += 10 * NS_PER_MS;
		held += 10 * NS_PER_MS;
		leave(k, 0, NS_PER_MS);
		leave(k, 1, NS_PER_MS);
	}
	CHECK(held > NS_PER_S / 2 && held < NS_PER_S);
	k->now_ns += NS_PER_S;
	CHECK(!gate_is_worn(&k->cache));
	kit_free(k);
}

static void control_reads_that_nobody_waits_for_wear_nothing_out(void)
{
	struct kit *k = kit_new(2);

	for (int i = 0; i < 1000; i++) {
		control(k, 0);
		k->now_ns += 10 * NS_PER_MS;
		leave(k, 0, NS_PER_MS);
	}
	CHECK(!gate_is_worn(&k->cache));
	kit_free(k);
}

static void load_is_told_when_it_is_more_than_the_jobs(void)
{
	struct kit *k = kit_new(2);

	for (int i = 0; i < 12; i++) {
		enter(k, i, false, false);
		leave(k, i, NS_PER_S / 4); /* 3 seconds of latency in a second */
	}
	k->now_ns += NS_PER_S;
	gate_tick(&k->cache, k->now_ns);
	CHECK_INT((int)k->n_loads, 1);
	CHECK_U64(k->load.answers, 12);
	CHECK_U64(k->load.bytes, 12000);
	CHECK_U64(k->load.took_ns, NS_PER_S);
	CHECK_U64(k->load.latency_ns, 12 * NS_PER_S / 4);
	for (int i = 0; i < 11; i++) {
		enter(k, i, false, false);
		leave(k, i, NS_PER_S / 4); /* 2.75: hardly more than the job */
	}
	k->now_ns += NS_PER_S;
	gate_tick(&k->cache, k->now_ns);
	CHECK_INT((int)k->n_loads, 1);
	kit_free(k);
}

static const struct check_test tests[] = {
	{ "a_control_read_waits_for_its_turn", control_read_waits_for_its_turn },
	{ "a_control_read_of_an_unknown_job_is_alone", control_read_of_an_unknown_job_is_alone },
	{ "readers_never_wait_but_are_marked", readers_never_wait_but_are_marked },
	{ "further_pieces_of_a_sample_follow_at_once", further_pieces_of_a_sample_follow_at_once },
	{ "nobody_waits_for_ever", nobody_waits_for_ever },
	{ "stopping_lets_everybody_go", stopping_lets_everybody_go },
	{ "fewer_readers_strand_nobody", fewer_readers_strand_nobody },
	{ "holding_back_wears_out_and_recovers", holding_back_wears_out_and_recovers },
	{ "control_reads_that_nobody_waits_for_wear_nothing_out",
	  control_reads_that_nobody_waits_for_wear_nothing_out },
	{ "load_is_told_when_it_is_more_than_the_jobs", load_is_told_when_it_is_more_than_the_jobs },
};

CHECK_MAIN(tests)
