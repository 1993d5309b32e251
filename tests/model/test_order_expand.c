/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs in units against the naive meaning of order_epoch_expand: every worker of every rank has a
 * list of all units that it reads in a round, and at each tick every worker that has one left reads
 * the next one of its list. */
#include "clairfs/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/mem.h"

#define SAMPLES_MAX 400u
#define UNITS_EACH 9u

struct world {
	uint64_t rnd;
	uint32_t first[SAMPLES_MAX + 1], past[SAMPLES_MAX];
	struct unit_map map;
	struct order_info info;
	uint64_t outside[SAMPLES_MAX / 64 + 1];
	struct order_epoch ep;
	uint32_t sample[2 * SAMPLES_MAX], sample_first[SAMPLES_MAX];
};

static uint64_t below(struct world *w, uint64_t n)
{
	return check_rand_below(&w->rnd, n);
}

static void make_map(struct world *w, uint32_t n)
{
	uint64_t large = below(w, 4); /* none, few, half, all */

	w->map = (struct unit_map){ .n_samples = n, .first = w->first };
	w->first[0] = 0;
	for (uint32_t i = 0; i < n; i++) {
		bool is_large = large == 3 || (large && below(w, large == 1 ? 20 : 2) == 0);

		w->first[i + 1] = w->first[i] + 1 + (is_large ? (uint32_t)below(w, UNITS_EACH) : 0);
	}
	w->map.n_units = w->first[n];
	for (uint32_t i = 0; i < n; i++)
		w->past[i] = w->first[i + 1];
}

/* As of records: in another sequence than their files, some units are of none, and some of two. */
static void scatter(struct world *w)
{
	uint32_t n = w->map.n_samples, at = 0, order[SAMPLES_MAX];

	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	for (uint32_t i = n - 1; i > 0; i--) {
		uint32_t k = (uint32_t)below(w, i + 1), x = order[i];

		order[i] = order[k];
		order[k] = x;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t s = order[i], count = w->past[s] - w->first[s], last = i ? order[i - 1] : s;

		if (i && below(w, 20) == 0) {
			w->first[s] = w->first[last];
			w->past[s] = w->past[last];
			continue;
		}
		at += below(w, 8) == 0;
		w->first[s] = at;
		w->past[s] = at += count;
	}
	w->map.n_units = at + (uint32_t)below(w, 3);
	w->map.past = w->past;
}

/* Samples may be left out, and some come twice. */
static void make_world(struct world *w, uint64_t seed)
{
	uint32_t n;
	uint64_t length, start;

	memset(w, 0, sizeof(*w));
	w->rnd = seed;
	n = 1 + (uint32_t)below(w, below(w, 2) ? SAMPLES_MAX : 12);
	make_map(w, n);
	if (below(w, 3) == 0)
		scatter(w);
	w->info = (struct order_info){ .n = n,
				       .world = 64,
				       .n_ranks = 1 + (uint32_t)below(w, 5),
				       .batch = below(w, 8),
				       .workers = below(w, 6),
				       .outside = below(w, 2) ? w->outside : NULL };
	length = below(w, 4) ? 1 + below(w, n) : below(w, 2 * SAMPLES_MAX + 1);
	for (uint64_t i = 0; i < length; i++)
		w->sample[i] = (uint32_t)below(w, n);
	for (uint32_t i = 0; i < n / 3; i++)
		w->outside[below(w, n) / 64] |= 1ull << below(w, 64);
	if (n % 64) /* nothing beyond the samples */
		w->outside[n / 64] &= ~(~0ull << n % 64);
	start = MAX(w->info.batch, 1) * w->info.n_ranks * below(w, 6);
	w->ep = (struct order_epoch){ .epoch = below(w, 9),
				      .length = length,
				      .n = n,
				      .sample = w->sample,
				      .first = w->sample_first,
				      .start = MIN(length, start) };
}

/* The units of one worker in the round that begins at `from`; returns how many. */
static uint32_t list_of(const struct world *w, uint64_t from, uint64_t end, uint64_t worker,
			uint64_t rank, uint32_t *list)
{
	uint64_t ranks = w->info.n_ranks, batch = MAX(w->info.batch, 1);
	uint32_t n = 0;

	for (uint64_t i = worker * batch; i < (worker + 1) * batch; i++) {
		uint64_t pos = from + i * ranks + rank;

		if (pos >= end)
			break;
		for (uint32_t u = w->first[w->sample[pos]]; u < w->past[w->sample[pos]]; u++)
			list[n++] = u;
	}
	return n;
}

/* One round, appended at `at`. */
static uint64_t naive_round(const struct world *w, uint64_t from, uint64_t end, uint32_t *out,
			    uint64_t at)
{
	static uint32_t list[SAMPLES_MAX * UNITS_EACH];
	uint64_t before = at, units = 0;

	for (uint64_t pos = from; pos < end; pos++)
		units += w->past[w->sample[pos]] - w->first[w->sample[pos]];
	if (units == end - from) { /* as batches are taken */
		for (uint64_t pos = from; pos < end; pos++)
			out[at++] = w->first[w->sample[pos]];
		return at;
	}
	for (uint32_t tick = 0; at - before < units; tick++)
		for (uint64_t worker = 0; worker < MAX(w->info.workers, 1); worker++)
			for (uint64_t rank = 0; rank < w->info.n_ranks; rank++)
				if (tick < list_of(w, from, end, worker, rank, list))
					out[at++] = list[tick];
	return at;
}

static uint64_t naive_part(const struct world *w, uint64_t from, uint64_t end, uint32_t *out,
			   uint64_t at)
{
	uint64_t round = w->info.n_ranks * MAX(w->info.batch, 1) * MAX(w->info.workers, 1);

	for (; from < end; from += round)
		at = naive_round(w, from, MIN(from + round, end), out, at);
	return at;
}

/* first and next_same lead through every position once. */
static void check_chains(const struct order_epoch *e)
{
	uint64_t visited = 0;

	for (uint32_t u = 0; u < e->n; u++)
		for (uint32_t pos = e->first[u], last = 0; pos != SAMPLE_NONE;
		     pos = e->next_same ? e->next_same[pos] : SAMPLE_NONE) {
			CHECK(pos < e->length && (pos > last || pos == e->first[u]));
			CHECK_U64(e->sample[pos], u);
			last = pos;
			visited++;
		}
	CHECK_U64(visited, e->length);
}

/* Each unit knows where its sample stands, and each place has all units of its sample. */
static void check_places(const struct world *w, const struct order_epoch *got)
{
	uint32_t *n = calloc(w->ep.length + 1, sizeof(*n));

	CHECK_U64(got->places, w->ep.length);
	for (uint64_t pos = 0; pos < got->length; pos++) {
		struct unit_id unit = { got->sample[pos] };

		CHECK(got->place[pos] < w->ep.length);
		CHECK(w->first[w->ep.sample[got->place[pos]]] <= unit.v);
		CHECK(unit.v < w->past[w->ep.sample[got->place[pos]]]);
		n[got->place[pos]]++;
	}
	for (uint64_t place = 0; place < w->ep.length; place++)
		CHECK_U64(n[place], unit_count(&w->map, (struct sample_id){ w->ep.sample[place] }));
	free(n);
}

static void expansion_is_what_workers_read_in_turns(void)
{
	uint64_t seed = check_seed();
	static uint32_t want[2 * SAMPLES_MAX * UNITS_EACH];

	for (int run = 0; run < 1500; run++) {
		struct world w;
		struct order_epoch *got;
		uint64_t start, length;

		make_world(&w, seed + (uint64_t)run * 7919);
		start = naive_part(&w, 0, w.ep.start, want, 0);
		length = naive_part(&w, w.ep.start, w.ep.length, want, start);
		CHECK_INT(order_epoch_expand(&w.ep, &w.info, &w.map, &got), 0);
		CHECK_U64(got->length, length);
		CHECK_U64(got->start, start);
		CHECK_U64(got->epoch, w.ep.epoch);
		CHECK_U64(got->n, w.map.n_units);
		CHECK(memcmp(got->sample, want, length * sizeof(*want)) == 0);
		check_chains(got);
		check_places(&w, got);
		order_epoch_free(got);
	}
}

static bool is_out(const struct world *w, uint32_t sample)
{
	return w->info.outside && w->outside[sample / 64] >> sample % 64 & 1;
}

/* The samples that a unit is of: whether it is not the first of one, and of none that is numbered. */
static void ask_all(const struct world *w, uint32_t unit, bool *ret_inner, bool *ret_out)
{
	*ret_inner = false;
	*ret_out = true;
	for (uint32_t i = 0; i < w->map.n_samples; i++) {
		if (unit < w->first[i] || unit >= w->past[i])
			continue;
		*ret_inner |= unit != w->first[i];
		*ret_out &= is_out(w, i);
	}
}

static void what_is_said_of_an_order_is_said_of_its_units(void)
{
	uint64_t seed = check_seed();

	for (int run = 0; run < 300; run++) {
		uint64_t samples = 0, units = 0, *bits;
		bool is_inner, is_outside, has_outside;
		struct order_info info;
		struct world w;

		make_world(&w, seed + (uint64_t)run * 104729);
		CHECK_INT(order_info_expand(&w.info, &w.map, &info, &bits), 0);
		CHECK(info.n == w.map.n_units && info.batch == w.info.batch);
		for (uint32_t i = 0; i < w.map.n_samples; i++) {
			samples += !is_out(&w, i);
			units += is_out(&w, i) ? 0 : w.past[i] - w.first[i];
		}
		has_outside = w.info.outside && !w.map.past;
		for (uint32_t u = 0; u < w.map.n_units; u++) {
			ask_all(&w, u, &is_inner, &is_outside);
			has_outside |= is_outside;
			if (info.inner)
				CHECK_INT(info.inner[u / 64] >> u % 64 & 1, is_inner);
			if (info.outside)
				CHECK_INT(info.outside[u / 64] >> u % 64 & 1, is_outside);
		}
		CHECK_INT(info.outside != NULL, has_outside);
		/* Where nothing of it is cut, all is as if nothing were. */
		CHECK_INT(info.inner != NULL, units > samples);
		CHECK_U64(info.samples, units > samples ? samples : 0);
		CHECK_U64(info.units, units > samples ? units : 0);
		free(bits);
	}
}

/* Numbers of a spec may be anything. */
static void a_round_may_be_larger_than_any_epoch(void)
{
	uint32_t first[] = { 0, 3, 4, 6 }, sample[] = { 2, 0, 1 }, in[] = { 4, 0, 3, 5, 1, 2 };
	struct unit_map map = { .n_samples = 3, .n_units = 6, .first = first };
	struct order_info info = { .n = 3,
				   .n_ranks = 1,
				   .workers = UINT64_MAX,
				   .batch = 1 };
	struct order_epoch ep = { .length = 3, .n = 3, .sample = sample }, *got;

	CHECK_INT(order_epoch_expand(&ep, &info, &map, &got), 0);
	CHECK(got->length == 6 && memcmp(got->sample, in, sizeof(in)) == 0);
	order_epoch_free(got);
	info.batch = UINT64_MAX;
	CHECK_INT(order_epoch_expand(&ep, &info, &map, &got), 0);
	CHECK(got->length == 6 && got->sample[0] == 4 && got->sample[1] == 5 && got->sample[5] == 3);
	order_epoch_free(got);
}

static const struct check_test tests[] = {
	{ "expansion_is_what_workers_read_in_turns", expansion_is_what_workers_read_in_turns },
	{ "what_is_said_of_an_order_is_said_of_its_units",
	  what_is_said_of_an_order_is_said_of_its_units },
	{ "a_round_may_be_larger_than_any_epoch", a_round_may_be_larger_than_any_epoch },
};
CHECK_MAIN(tests)
