/* SPDX-License-Identifier: Apache-2.0 */
/* One node of many reads another part of the samples in each epoch: hits of the plan, cold start
 * included, against exact MIN over the same reads, and against the best that is known from
 * elsewhere (NoPFS: the samples this node reads most often, never evicted). Everything is answered
 * at once, so this is about what is kept and nothing else. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/ids.h"
#include "clairfs/plan.h"

struct node {
	uint32_t n, world, epochs, capacity, store;
	uint64_t seed;
	uint32_t per_epoch, *reads; /* [epochs * per_epoch] */
	struct plan *plan;
	uint64_t now, fetched, missed, pins;
	uint8_t *is_there, *is_stored;
};

static void node_init(struct node *nd)
{
	uint32_t *all = calloc(nd->n, sizeof(*all));
	uint64_t state = nd->seed;

	nd->per_epoch = nd->n / nd->world;
	nd->reads = calloc((size_t)nd->epochs * nd->per_epoch, sizeof(*nd->reads));
	nd->is_there = calloc(nd->n, 1);
	nd->is_stored = calloc(nd->n, 1);
	for (uint32_t i = 0; i < nd->n; i++)
		all[i] = i;
	for (uint32_t e = 0; e < nd->epochs; e++) {
		/* the first so many of a shuffle are as random as every world-th of it */
		for (uint32_t i = 0; i < nd->per_epoch; i++) {
			uint32_t j = i + (uint32_t)check_rand_below(&state, nd->n - i), t = all[i];

			all[i] = all[j];
			all[j] = t;
		}
		memcpy(&nd->reads[(size_t)e * nd->per_epoch], all, nd->per_epoch * sizeof(*all));
	}
	free(all);
}

static void node_fini(struct node *nd)
{
	free(nd->reads);
	free(nd->is_there);
	free(nd->is_stored);
}

static struct order_epoch *node_epoch(const struct node *nd, uint64_t epoch)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));

	CHECK(epoch < nd->epochs);
	*ep = (struct order_epoch){ .epoch = epoch, .length = nd->per_epoch, .n = nd->n };
	ep->sample = calloc(nd->per_epoch, sizeof(uint32_t));
	ep->first = malloc(nd->n * sizeof(uint32_t));
	memset(ep->first, 0xff, nd->n * sizeof(uint32_t));
	for (uint32_t i = 0; i < nd->per_epoch; i++) {
		ep->sample[i] = nd->reads[epoch * nd->per_epoch + i];
		ep->first[ep->sample[i]] = i;
	}
	return ep;
}

static void node_step(struct node *nd)
{
	uint64_t wake;

	do {
		struct plan_action a;

		wake = plan_step(nd->plan, nd->now);
		while (plan_next_action(nd->plan, &a)) {
			struct plan_event ev = { .unit = a.unit, .latency_ns = NS_PER_MS };

			switch (a.kind) {
			case PLAN_ACT_FETCH:
				CHECK_INT(a.is_pinned, nd->is_stored[a.unit.v]);
				nd->fetched += !a.is_pinned && !a.is_adopted;
				nd->is_there[a.unit.v] = 1;
				ev.kind = PLAN_EV_FETCHED;
				break;
			case PLAN_ACT_EPOCH:
				ev.kind = PLAN_EV_EPOCH;
				ev.epoch = a.epoch;
				ev.order_epoch = node_epoch(nd, a.epoch);
				break;
			case PLAN_ACT_DROP:
				nd->is_there[a.unit.v] = 0;
				continue;
			case PLAN_ACT_PIN:
				nd->pins++;
				nd->is_stored[a.unit.v] = 1;
				ev.kind = PLAN_EV_PINNED;
				break;
			default:
				CHECK(!"asked for");
			}
			plan_event(nd->plan, nd->now, &ev);
			wake = nd->now;
		}
	} while (wake <= nd->now);
}

/* Hits of the plan: reads for which the source was not asked. */
static double hits_of_plan(struct node *nd)
{
	struct order_info info = {
		.n = nd->n, .world = nd->world, .n_ranks = 1, .epochs = nd->epochs
	};
	uint64_t *size = calloc(nd->n, sizeof(*size)), reads = (uint64_t)nd->epochs * nd->per_epoch;
	struct plan_params p = { .n = nd->n,
				 .size = size,
				 .order = &info,
				 .arena_bytes = nd->capacity * 4096ull,
				 .store_bytes = nd->store * 4096ull,
				 .inflight_min = 4,
				 .inflight_max = 4,
				 .span = 8 };

	CHECK_INT(plan_new(&p, &nd->plan), 0);
	nd->now = NS_PER_S;
	nd->fetched = nd->missed = nd->pins = 0;
	node_step(nd);
	for (uint64_t i = 0; i < reads; i++) {
		nd->now += NS_PER_MS / 10;
		nd->missed += !nd->is_there[nd->reads[i]] && !nd->is_stored[nd->reads[i]];
		plan_event(nd->plan, nd->now,
			   &(struct plan_event){ .kind = PLAN_EV_OPENED, .unit = { nd->reads[i] } });
		node_step(nd);
	}
	plan_free(nd->plan);
	free(size);
	return 1 - (double)(nd->fetched + nd->missed) / (double)reads;
}

/* A heap of what stands last first; entries of the past are never on top of one of the future. */
static void heap_push(uint64_t *heap, uint64_t *count, uint64_t key)
{
	uint64_t i = (*count)++;

	for (; i && heap[(i - 1) / 2] < key; i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = key;
}

static uint64_t heap_pop(uint64_t *heap, uint64_t *count)
{
	uint64_t top = heap[0], last = heap[--*count], i = 0, c;

	for (; (c = 2 * i + 1) < *count; i = c) {
		c += c + 1 < *count && heap[c + 1] > heap[c];
		if (heap[c] <= last)
			break;
		heap[i] = heap[c];
	}
	heap[i] = last;
	return top;
}

/* Belady's MIN with bypass, positions exact: what has just been read stays if it is needed before
 * the last of those that are there. */
static double hits_of_min(const struct node *nd)
{
	uint64_t reads = (uint64_t)nd->epochs * nd->per_epoch, hits = 0, there = 0, in_heap = 0;
	uint64_t *next = calloc(reads, sizeof(*next)), *heap = calloc(reads, sizeof(*heap));
	uint64_t *last = malloc(nd->n * sizeof(*last));
	uint8_t *is_kept = calloc(reads, 1); /* the read at this place finds its sample */

	memset(last, 0xff, nd->n * sizeof(*last));
	for (uint64_t i = reads; i-- > 0;) {
		next[i] = last[nd->reads[i]];
		last[nd->reads[i]] = i;
	}
	for (uint64_t i = 0; i < reads; i++) {
		hits += is_kept[i];
		there -= is_kept[i];
		if (next[i] == UINT64_MAX)
			continue;
		heap_push(heap, &in_heap, next[i]);
		is_kept[next[i]] = 1;
		if (++there > nd->capacity) {
			is_kept[heap_pop(heap, &in_heap)] = 0;
			there--;
		}
	}
	free(next);
	free(heap);
	free(last);
	free(is_kept);
	return (double)hits / (double)reads;
}

/* Every way to keep and drop, for the few reads of a tiny job. */
static uint32_t most_hits(const struct node *nd, uint32_t at, uint32_t kept)
{
	uint32_t bit, hit, best;

	if (at == nd->per_epoch)
		return 0;
	bit = 1u << nd->reads[at];
	hit = (kept & bit) != 0;
	best = most_hits(nd, at + 1, kept); /* as it is: it stays, or it is not taken in */
	if (!hit && (uint32_t)__builtin_popcount(kept) < nd->capacity)
		best = MAX(best, most_hits(nd, at + 1, kept | bit));
	for (uint32_t out = 0; !hit && out < nd->n; out++)
		if (kept >> out & 1)
			best = MAX(best, most_hits(nd, at + 1, (kept | bit) & ~(1u << out)));
	return hit + best;
}

static void min_is_the_best_there_is(void)
{
	uint64_t state = check_seed();

	for (int run = 0; run < 300; run++) {
		uint32_t reads[11], n = 2 + (uint32_t)check_rand_below(&state, 5);
		struct node nd = { .n = n,
				   .epochs = 1,
				   .per_epoch = ARRAY_LEN(reads),
				   .reads = reads,
				   .capacity = 1 + (uint32_t)check_rand_below(&state, n - 1) };

		nd.capacity = MIN(nd.capacity, 3);
		for (uint32_t i = 0; i < ARRAY_LEN(reads); i++)
			reads[i] = (uint32_t)check_rand_below(&state, n);
		CHECK_U64((uint64_t)(hits_of_min(&nd) * ARRAY_LEN(reads) + .5),
			  most_hits(&nd, 0, 0));
	}
}

static double hits_of_frequency(const struct node *nd)
{
	uint64_t reads = (uint64_t)nd->epochs * nd->per_epoch, hits = 0;
	uint32_t *uses = calloc(nd->n, sizeof(*uses)), left = nd->capacity;

	for (uint64_t i = 0; i < reads; i++)
		uses[nd->reads[i]]++;
	for (uint32_t most = nd->epochs; most > 1 && left; most--)
		for (uint32_t s = 0; s < nd->n && left; s++)
			if (uses[s] == most) {
				hits += most - 1;
				left--;
			}
	free(uses);
	return (double)hits / (double)reads;
}

static void check_node(uint32_t world, uint32_t epochs, double fraction, double at_least_nopfs)
{
	struct node nd = { .n = 24000, .world = world, .epochs = epochs, .seed = check_seed() };
	double plan, min, nopfs;

	nd.capacity = (uint32_t)(fraction * nd.n);
	node_init(&nd);
	plan = hits_of_plan(&nd);
	min = hits_of_min(&nd);
	nopfs = hits_of_frequency(&nd);
	node_fini(&nd);
	printf("# world %u, %u epochs, cache %.2f: hits %.4f, MIN %.4f, by frequency %.4f\n", world,
	       epochs, fraction, plan, min, nopfs);
	CHECK(plan <= min);
	CHECK(plan >= min - 0.01);
	CHECK(plan >= at_least_nopfs * nopfs);
}

static void four_nodes_hit_as_min_does(void)
{
	check_node(4, 40, .25, 1.5);
}

static void sixteen_nodes_hit_as_min_does(void)
{
	check_node(16, 90, .10, 2);
	check_node(16, 90, .25, 1.5);
}

static void sixty_four_nodes_hit_as_min_does(void)
{
	check_node(64, 200, .05, 2);
}

/* Little memory and a store: written once, with what is read most often; the rest is up to the
 * memory. Exact simulation of the same rule with all epochs known: .453. */
static void check_store(double memory, double store, double at_least)
{
	struct node nd = { .n = 24000, .world = 16, .epochs = 90, .seed = check_seed() };
	double hits;

	nd.capacity = (uint32_t)(memory * nd.n);
	nd.store = (uint32_t)(store * nd.n);
	node_init(&nd);
	hits = hits_of_plan(&nd);
	printf("# world 16, 90 epochs, memory %.2f, store %.2f: hits %.4f\n", memory, store, hits);
	CHECK(hits >= at_least);
	CHECK(nd.pins <= nd.store);
	CHECK(nd.pins >= nd.store * 98 / 100);
	node_fini(&nd);
}

static void the_store_takes_what_a_node_reads_most_often(void)
{
	check_store(.02, .25, .453 - .02);
}

static const struct check_test tests[] = {
	{ "the_store_takes_what_a_node_reads_most_often",
	  the_store_takes_what_a_node_reads_most_often },
	{ "min_is_the_best_there_is", min_is_the_best_there_is },
	{ "four_nodes_hit_as_min_does", four_nodes_hit_as_min_does },
	{ "sixteen_nodes_hit_as_min_does", sixteen_nodes_hit_as_min_does },
	{ "sixty_four_nodes_hit_as_min_does", sixty_four_nodes_hit_as_min_does },
};
CHECK_MAIN(tests)
