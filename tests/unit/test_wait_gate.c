/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate before the source: what a control read waits for, what it holds back meanwhile, and that
 * nobody waits for ever. The gate alone, with a clock of our own and a source that notes what it is
 * sent; nothing here depends on threads. How it works with a cache: test_wait_control.c.
 */
#include <stdlib.h>

#include "check.h"
#include "clairfs/base/cleanup.h"
#include "src/wait/sampling.h"

enum { FETCHES = 16 };

struct kit {
	struct clock clock;
	uint64_t now_ns;
	struct gate gate;
	struct gate_load load;
	uint32_t n_loads;
	struct probe_request request[FETCHES];
	bool is_sent[FETCHES];
};

static uint64_t on_now(struct clock *clock)
{
	return container_of(clock, struct kit, clock)->now_ns;
}

static struct kit *kit_new(uint32_t readers)
{
	struct kit *k = calloc(1, sizeof(*k));

	k->clock.now_ns = on_now;
	k->now_ns = 100 * NS_PER_S;
	gate_init(&k->gate, &k->clock);
	atomic_store(&k->gate.readers, readers);
	return k;
}

static void kit_free(struct kit *k)
{
	gate_fini(&k->gate);
	free(k);
}

static void send_all(struct kit *k, struct list *go)
{
	struct list *node;

	while ((node = list_pop_head(go)))
		k->is_sent[container_of(node, struct probe_request, node) - k->request] = true;
}

/* What the cache does with a request of the source. */
static void enter(struct kit *k, int i, bool is_demand, bool is_control)
{
	k->request[i].is_demand = is_demand;
	k->request[i].mark = is_control ? WAIT_CONTROL : 0;
	if (gate_enter(&k->gate, &k->request[i]))
		k->is_sent[i] = true;
}

static void control(struct kit *k, int i)
{
	enter(k, i, true, true);
}

static void leave(struct kit *k, int i, uint64_t latency_ns)
{
	struct list go;

	list_init(&go);
	CHECK(k->is_sent[i]);
	k->request[i].latency_ns = latency_ns;
	k->request[i].bytes = 1000;
	(void)gate_leave(&k->gate, &k->request[i], &go);
	send_all(k, &go);
}

static void tick(struct kit *k)
{
	struct list go;

	list_init(&go);
	if (gate_take_load(&k->gate, k->now_ns, &k->load))
		k->n_loads++;
	(void)gate_tick(&k->gate, k->now_ns, &go);
	send_all(k, &go);
}

static void control_read_waits_for_its_turn(void)
{
	struct kit *k = kit_new(4);

	for (int i = 0; i < 8; i++)
		enter(k, i, false, false);
	control(k, 8);
	CHECK(!k->is_sent[8]);
	CHECK(!gate_lets_prefetch(&k->gate));
	k->now_ns += 7 * NS_PER_MS;
	for (int i = 0; i < 4; i++)
		leave(k, i, NS_PER_MS);
	CHECK(!k->is_sent[8]); /* four are still there */
	leave(k, 4, NS_PER_MS);
	CHECK(k->is_sent[8]);
	CHECK_U64(k->request[8].traits.held_ns, 7 * NS_PER_MS);
	CHECK(!gate_lets_prefetch(&k->gate)); /* four again */
	leave(k, 5, NS_PER_MS);
	CHECK(gate_lets_prefetch(&k->gate)); /* what another reader would have asked for */
	enter(k, 9, false, false);
	CHECK(!gate_lets_prefetch(&k->gate));
	leave(k, 8, NS_PER_MS);
	CHECK(!k->request[8].traits.is_loaded);
	CHECK(gate_lets_prefetch(&k->gate));
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
	CHECK(k->is_sent[1] && !gate_lets_prefetch(&k->gate));
	leave(k, 1, NS_PER_MS);
	CHECK(gate_lets_prefetch(&k->gate));
	kit_free(k);
}

static void readers_never_wait_but_are_marked(void)
{
	struct kit *k = kit_new(2);

	enter(k, 0, false, false);
	enter(k, 1, true, false);
	enter(k, 2, true, false);
	CHECK(k->is_sent[1] && !k->request[1].traits.is_loaded);
	CHECK(k->is_sent[2] && k->request[2].traits.is_loaded); /* beside two others */
	for (int i = 0; i < 3; i++)
		leave(k, i, NS_PER_MS);
	kit_free(k);
}

static void further_pieces_of_a_sample_follow_at_once(void)
{
	struct kit *k = kit_new(2);

	k->request[1].piece = 1;
	k->request[2].piece = 2;
	control(k, 0);
	enter(k, 1, false, true); /* read ahead */
	CHECK(k->is_sent[0] && k->is_sent[1] && !k->request[1].traits.is_loaded);
	leave(k, 0, NS_PER_MS);
	CHECK(gate_lets_prefetch(&k->gate)); /* one, as of the other reader */
	enter(k, 3, false, false);
	CHECK(!gate_lets_prefetch(&k->gate));
	enter(k, 2, true, true);
	CHECK(k->is_sent[2] && !k->request[2].traits.is_loaded);
	enter(k, 4, true, false);
	k->request[5].piece = 3;
	enter(k, 5, true, true);
	CHECK(k->is_sent[5] && k->request[5].traits.is_loaded); /* too much is there by now */
	for (int i = 1; i <= 5; i++)
		leave(k, i, NS_PER_MS);
	CHECK(gate_lets_prefetch(&k->gate));
	kit_free(k);
}

static void piece_read_ahead_waits_with_the_first_one(void)
{
	struct kit *k = kit_new(1);

	enter(k, 0, false, false);
	enter(k, 1, false, false);
	control(k, 2);
	k->request[3].piece = 1;
	enter(k, 3, false, true);
	CHECK(!k->is_sent[2] && !k->is_sent[3]);
	k->now_ns += 5 * NS_PER_MS;
	leave(k, 0, NS_PER_MS);
	CHECK(!k->is_sent[2] && !k->is_sent[3]);
	leave(k, 1, NS_PER_MS);
	CHECK(k->is_sent[2] && k->is_sent[3]);
	CHECK(!k->request[2].traits.is_loaded && !k->request[3].traits.is_loaded);
	CHECK_U64(k->request[2].traits.held_ns, 5 * NS_PER_MS);
	leave(k, 2, NS_PER_MS);
	leave(k, 3, NS_PER_MS);
	kit_free(k);
}

static void nobody_waits_for_ever(void)
{
	struct kit *k = kit_new(1);

	enter(k, 0, false, false); /* of a server that does not answer */
	control(k, 1);
	k->now_ns += NS_PER_S / 2;
	tick(k);
	CHECK(!k->is_sent[1]);
	k->now_ns += NS_PER_S;
	tick(k);
	CHECK(k->is_sent[1] && k->request[1].traits.is_loaded); /* no control read any more */
	/* Nor does prefetching wait for a control read that hangs. */
	CHECK(!gate_lets_prefetch(&k->gate));
	k->now_ns += 6 * NS_PER_S;
	tick(k);
	CHECK(gate_lets_prefetch(&k->gate));
	control(k, 2);
	CHECK(k->is_sent[2]);
	leave(k, 1, NS_PER_S);
	leave(k, 2, NS_PER_S);
	CHECK(k->request[2].traits.is_loaded);
	leave(k, 0, NS_PER_S);
	/* Afterwards all is as before. */
	enter(k, 3, false, false);
	control(k, 4);
	CHECK(!k->is_sent[4]);
	leave(k, 3, NS_PER_MS);
	leave(k, 4, NS_PER_MS);
	CHECK(!k->request[4].traits.is_loaded);
	kit_free(k);
}

static void stopping_lets_everybody_go(void)
{
	struct kit *k = kit_new(1);
	struct list go;

	enter(k, 0, false, false);
	control(k, 1);
	control(k, 2);
	CHECK(!k->is_sent[1] && !k->is_sent[2]);
	list_init(&go);
	gate_open(&k->gate, &go);
	send_all(k, &go);
	CHECK(k->is_sent[1] && k->is_sent[2]);
	control(k, 3);
	CHECK(k->is_sent[3]);
	for (int i = 0; i < 4; i++)
		leave(k, i, NS_PER_MS);
	CHECK(k->request[1].traits.is_loaded && k->request[3].traits.is_loaded);
	kit_free(k);
}

static void fewer_readers_strand_nobody(void)
{
	struct kit *k = kit_new(8);

	for (int i = 0; i < 8; i++)
		enter(k, i, false, false);
	control(k, 8);
	atomic_store(&k->gate.readers, 1);
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

	for (int i = 0; i < 1000 && !gate_is_worn(&k->gate); i++) {
		enter(k, 0, false, false);
		control(k, 1);
		k->now_ns += 10 * NS_PER_MS;
		held += 10 * NS_PER_MS;
		leave(k, 0, NS_PER_MS);
		leave(k, 1, NS_PER_MS);
	}
	CHECK(held > NS_PER_S / 2 && held < NS_PER_S);
	k->now_ns += NS_PER_S;
	CHECK(!gate_is_worn(&k->gate));
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
	CHECK(!gate_is_worn(&k->gate));
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
	tick(k);
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
	tick(k);
	CHECK_INT((int)k->n_loads, 1);
	kit_free(k);
}

static const struct check_test tests[] = {
	{ "a_control_read_waits_for_its_turn", control_read_waits_for_its_turn },
	{ "a_control_read_of_an_unknown_job_is_alone", control_read_of_an_unknown_job_is_alone },
	{ "readers_never_wait_but_are_marked", readers_never_wait_but_are_marked },
	{ "further_pieces_of_a_sample_follow_at_once", further_pieces_of_a_sample_follow_at_once },
	{ "a_piece_read_ahead_waits_with_the_first_one",
	  piece_read_ahead_waits_with_the_first_one },
	{ "nobody_waits_for_ever", nobody_waits_for_ever },
	{ "stopping_lets_everybody_go", stopping_lets_everybody_go },
	{ "fewer_readers_strand_nobody", fewer_readers_strand_nobody },
	{ "holding_back_wears_out_and_recovers", holding_back_wears_out_and_recovers },
	{ "control_reads_that_nobody_waits_for_wear_nothing_out",
	  control_reads_that_nobody_waits_for_wear_nothing_out },
	{ "load_is_told_when_it_is_more_than_the_jobs",
	  load_is_told_when_it_is_more_than_the_jobs },
};

CHECK_MAIN(tests)
