/* SPDX-License-Identifier: Apache-2.0 */
/* Random events against an independent book-keeping: whatever happens, budgets hold, nothing is
 * fetched that is there or was read, nothing is dropped that is in use, and every figure of the
 * status adds up. Answers come late and in any order, some are failures. In honest runs reads
 * follow the order within a window, in wild ones anything is read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/ids.h"
#include "clairfs/plan.h"

#define N_MAX 700
#define OUTSTANDING 3000

enum where { ABSENT, FETCHING, ARENA };

struct book {
	struct plan_params p;
	struct order_info info;
	uint64_t size[N_MAX], rnd, now, outside[N_MAX / 64 + 1], inner[N_MAX / 64 + 1];
	struct plan *plan;
	enum where where[N_MAX];
	bool is_staging[N_MAX], is_pinning[N_MAX], is_pinned[N_MAX], is_pushed[N_MAX];
	struct plan_action todo[OUTSTANDING];
	uint32_t n_todo, n_epochs_asked, n_pinning, n_fetching;
	uint64_t opened, issued, failed, pins_ever;
	uint32_t n_order; /* samples of the order, the first ones; the rest is outside of it */
	uint64_t opened_outside;
	bool is_full, is_honest, is_strict; /* strict: nothing is opened twice */
	/* honest reading */
	uint64_t epoch, low;
	bool is_read[N_MAX];
	uint64_t read_until[64]; /* passes wholly read */
};

static uint64_t cost(uint64_t bytes)
{
	return bytes ? (bytes + 4095) / 4096 * 4096 : 4096;
}

static uint64_t below(struct book *b, uint64_t n)
{
	return check_rand_below(&b->rnd, n);
}

static struct order_epoch *epoch_of(const struct book *b, uint64_t epoch)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));
	uint64_t state = epoch * 77 + b->p.n;
	uint32_t n = b->n_order;

	*ep = (struct order_epoch){ .epoch = epoch, .length = n, .n = b->p.n };
	ep->sample = calloc(n, sizeof(uint32_t));
	ep->first = malloc(b->p.n * sizeof(uint32_t));
	memset(ep->first, 0xff, b->p.n * sizeof(uint32_t));
	for (uint32_t i = 0; i < n; i++)
		ep->sample[i] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t j = (uint32_t)check_rand_below(&state, i), t = ep->sample[j];

		ep->sample[j] = ep->sample[i - 1];
		ep->sample[i - 1] = t;
	}
	for (uint32_t i = 0; i < n; i++)
		ep->first[ep->sample[i]] = i;
	return ep;
}

static void check_sums(const struct book *b)
{
	struct plan_status s;
	char text[PLAN_TEXT];
	uint64_t arena = 0, pinned = 0, pushed = 0;

	plan_get_status(b->plan, &s);
	for (uint32_t i = 0; i < b->p.n; i++) {
		arena += b->where[i] == ABSENT ? 0 : cost(b->size[i]);
		pinned += b->is_pinned[i] || b->is_pinning[i] ? cost(b->size[i]) : 0;
		pushed += b->is_staging[i] || b->is_pushed[i] ? cost(b->size[i]) : 0;
	}
	CHECK_U64(s.arena_bytes, arena);
	CHECK(arena <= b->p.arena_bytes);
	CHECK_U64(s.pinned_bytes, pinned);
	CHECK(pinned <= b->p.store_bytes);
	CHECK(s.stage_bytes <= pushed && s.stage_bytes <= b->p.stage_bytes);
	CHECK_U64(s.inflight, b->n_fetching);
	CHECK(s.inflight <= b->p.inflight_max);
	CHECK(s.inflight_limit >= b->p.inflight_min && s.inflight_limit <= b->p.inflight_max);
	CHECK_U64(s.opened, b->opened);
	CHECK_U64(s.outside, b->opened_outside);
	CHECK(s.outside_run <= s.outside);
	CHECK(s.other_percent <= 100 && s.match_percent <= 100);
	CHECK((s.state == PLAN_LOST) || !s.lost_reads);
	CHECK(s.state != PLAN_LOST || s.lost >= 1);
	plan_status_text(&s, text);
	CHECK(strlen(text) > 0 && strlen(text) + 1 < sizeof(text));
	CHECK_U64(s.issued, b->issued);
	CHECK_U64(s.failed, b->failed);
	CHECK(s.position <= s.length || s.length == 0);
	CHECK(s.useful + s.late + s.wasted <= s.issued && s.failed <= s.issued);
}

static void take_fetch(struct book *b, const struct plan_action *a)
{
	CHECK_INT(b->where[a->unit.v], ABSENT);
	CHECK(!b->is_staging[a->unit.v] && !b->is_pinning[a->unit.v]);
	CHECK_INT(a->is_pinned, b->is_pinned[a->unit.v]);
	CHECK(b->size[a->unit.v] <= b->p.arena_bytes / 4);
	b->where[a->unit.v] = FETCHING;
	b->n_fetching += !a->is_adopted;
	b->issued++;
	if (b->is_strict) {
		uint64_t pass = a->position >> 32;

		CHECK(pass >= b->epoch && pass <= b->epoch + 1);
		if (pass == b->epoch)
			CHECK(!b->is_read[a->position & UINT32_MAX]);
	}
}

static void take(struct book *b, const struct plan_action *a)
{
	switch (a->kind) {
	case PLAN_ACT_FETCH:
		take_fetch(b, a);
		break;
	case PLAN_ACT_STAGE:
		CHECK_INT(b->where[a->unit.v], ARENA);
		CHECK(!b->is_staging[a->unit.v]);
		b->is_staging[a->unit.v] = true;
		break;
	case PLAN_ACT_DROP:
		CHECK_INT(b->where[a->unit.v], ARENA);
		CHECK(!b->is_staging[a->unit.v] && !b->is_pinning[a->unit.v]);
		b->where[a->unit.v] = ABSENT;
		return;
	case PLAN_ACT_PIN:
		CHECK_INT(b->where[a->unit.v], ARENA);
		CHECK(!b->is_pinned[a->unit.v] && !b->is_pinning[a->unit.v] && !b->is_full);
		b->is_pinning[a->unit.v] = true;
		CHECK(++b->n_pinning <= 16);
		break;
	case PLAN_ACT_EPOCH:
		CHECK(++b->n_epochs_asked == 1);
		break;
	case PLAN_ACT_COME:
		CHECK(!"nothing is pushed whole");
		return;
	}
	CHECK(b->n_todo < OUTSTANDING);
	b->todo[b->n_todo++] = *a;
}

static void step(struct book *b)
{
	struct plan_action a;
	uint64_t wake = plan_step(b->plan, b->now);
	uint32_t n = 0;

	while (plan_next_action(b->plan, &a)) {
		take(b, &a);
		CHECK(++n <= 4096);
	}
	CHECK(wake >= b->now);
	check_sums(b);
}

static void event(struct book *b, struct plan_event ev)
{
	plan_event(b->plan, b->now, &ev);
}

static void answer(struct book *b, struct plan_action a, bool may_fail)
{
	struct plan_event ev = { .unit = a.unit,
				 .epoch = a.epoch,
				 .bytes = b->size[a.unit.v % N_MAX] };
	uint64_t dice = may_fail ? below(b, 100) : 50;

	ev.latency_ns = 100000 + below(b, 5 * NS_PER_MS);
	switch (a.kind) {
	case PLAN_ACT_FETCH:
		ev.kind = PLAN_EV_FETCHED;
		ev.status = dice < 5 ? -EIO : 0;
		b->n_fetching -= !a.is_adopted;
		b->failed += ev.status != 0 && !a.is_adopted;
		b->where[a.unit.v] = ev.status ? ABSENT : ARENA;
		break;
	case PLAN_ACT_STAGE:
		ev.kind = PLAN_EV_STAGED;
		ev.status = dice < 5 ? -ENOENT : dice < 10 ? -EAGAIN : dice < 15 ? PLAN_NO_INODES : 0;
		b->is_staging[a.unit.v] = false;
		b->is_pushed[a.unit.v] = ev.status == 0;
		break;
	case PLAN_ACT_PIN:
		ev.kind = PLAN_EV_PINNED;
		ev.status = dice < 3 ? -EIO : dice == 99 && b->pins_ever > 50 ? -ENOSPC : 0;
		b->is_full = b->is_full || ev.status == -ENOSPC;
		b->is_pinning[a.unit.v] = false;
		b->is_pinned[a.unit.v] = ev.status == 0;
		b->n_pinning--;
		b->pins_ever++;
		break;
	default:
		ev.kind = PLAN_EV_EPOCH;
		ev.status = dice < 2 ? -ENOMEM : 0;
		ev.order_epoch = ev.status ? NULL : epoch_of(b, a.epoch);
		b->n_epochs_asked--;
	}
	event(b, ev);
}

static void answer_some(struct book *b, bool may_fail)
{
	for (uint64_t k = below(b, 6); k && b->n_todo; k--) {
		uint64_t i = below(b, b->n_todo);
		struct plan_action a = b->todo[i];

		b->todo[i] = b->todo[--b->n_todo];
		answer(b, a, may_fail);
	}
}

static void open_sample(struct book *b, uint32_t sample)
{
	b->opened++;
	b->opened_outside += sample >= b->n_order;
	b->is_pushed[sample] = false;
	event(b, (struct plan_event){ .kind = PLAN_EV_OPENED, .unit = { sample } });
}

/* Between two epochs: what the order does not number, or a part of it. */
static void validate(struct book *b)
{
	uint32_t n = b->p.n - b->n_order;

	if (!below(b, 3))
		n = (uint32_t)below(b, n + 1);
	for (uint32_t i = 0; i < n; i++) {
		b->now += below(b, NS_PER_MS);
		open_sample(b, b->n_order + i);
		if (!below(b, 4))
			step(b);
	}
}

/* A read within the window of the epoch that is due, sometimes one that was just made. */
static void honest_read(struct book *b, uint64_t window, struct order_epoch **ep)
{
	uint64_t pos = b->low + below(b, MIN(window, b->n_order - b->low));

	if (b->is_read[pos] && (b->is_strict || below(b, 4)))
		while (pos < b->n_order && b->is_read[pos])
			pos++;
	if (pos >= MIN(b->low + window, b->n_order))
		pos = b->low; /* the first one not read */
	open_sample(b, (*ep)->sample[pos]);
	b->is_read[pos] = true;
	while (b->low < b->n_order && b->is_read[b->low])
		b->low++;
	if (b->low < b->n_order)
		return;
	if (below(b, 4))
		validate(b);
	b->epoch++;
	b->low = 0;
	memset(b->is_read, 0, sizeof(b->is_read));
	order_epoch_free(*ep);
	*ep = epoch_of(b, b->epoch);
}

static void wild_event(struct book *b)
{
	uint32_t s = (uint32_t)below(b, b->p.n);

	switch (below(b, 12)) {
	case 7:
	case 8: /* within a sample, where they are cut */
		event(b, (struct plan_event){ .kind = PLAN_EV_REACHED, .unit = { s } });
		break;
	case 0:
		b->is_pushed[s] = false;
		event(b, (struct plan_event){ .kind = PLAN_EV_UNSTAGED, .unit = { s } });
		break;
	case 1:
		b->is_pinned[s] = false;
		event(b, (struct plan_event){ .kind = PLAN_EV_UNPINNED, .unit = { s } });
		break;
	case 2:
		if (b->where[s] == ARENA)
			b->where[s] = ABSENT;
		b->is_pushed[s] = false;
		event(b, (struct plan_event){ .kind = PLAN_EV_LOST_COPY, .unit = { s } });
		break;
	case 3:
		/* a file shrinks: one that grows may exceed a budget for a moment, that has a test
		 * of its own */
		b->size[s] = below(b, b->size[s] + 1);
		event(b, (struct plan_event){
				 .kind = PLAN_EV_RESIZED, .unit = { s }, .bytes = b->size[s] });
		break;
	case 4:
		event(b, (struct plan_event){ .kind = PLAN_EV_DEMAND,
					      .bytes = below(b, 100000),
					      .latency_ns = 1000 });
		break;
	case 5:
		if (!below(b, 20))
			event(b, (struct plan_event){ .kind = PLAN_EV_BLIND });
		break;
	case 6:
		if (!below(b, 20))
			plan_set_memory(b->plan, below(b, 2 * b->p.arena_bytes + 1),
					below(b, 2 * b->p.stage_bytes + 1));
		break;
	default:
		break;
	}
}

/* Some units continue samples. */
static void cut(struct book *b)
{
	b->info.inner = b->inner;
	for (uint32_t i = 0; i < b->n_order; i++) {
		bool is_inner = i && below(b, 4);

		b->inner[i / 64] |= (uint64_t)is_inner << i % 64;
		b->info.samples += !is_inner;
	}
	b->info.units = b->n_order;
}

static void book_init(struct book *b, uint64_t seed, bool is_honest)
{
	uint32_t n;

	memset(b, 0, sizeof(*b));
	b->rnd = seed;
	b->is_honest = is_honest;
	b->now = below(b, NS_PER_S);
	n = 1 + (uint32_t)below(b, below(b, 2) ? N_MAX : 12);
	for (uint32_t i = 0; i < n; i++)
		b->size[i] = below(b, 8) ? below(b, 40000) : below(b, 200000);
	b->is_strict = is_honest && n >= 200 &&
		       below(b, 2); /* in small ones passes cannot be told apart */
	b->n_order = b->is_strict || below(b, 2) ? n : 1 + (uint32_t)below(b, n);
	for (uint32_t i = b->n_order; i < n; i++)
		b->outside[i / 64] |= 1ull << i % 64;
	b->info = (struct order_info){ .outside = b->n_order < n ? b->outside : NULL,
				       .n = n,
				       .world = 1,
				       .n_ranks = 1,
				       .epochs = is_honest ? 0 : below(b, 4) };
	if (!is_honest && below(b, 2))
		cut(b);
	b->p = (struct plan_params){ .n = n,
				     .size = b->size,
				     .order = &b->info,
				     .arena_bytes = (1 + below(b, 400)) * 50000,
				     .stage_bytes = below(b, 3000000),
				     .inflight_min = 1 + (uint32_t)below(b, 4),
				     .inflight_max = 5 + (uint32_t)below(b, 60),
				     .store_bytes = below(b, 2) ? below(b, 6000000) : 0,
				     .source_bytes_per_s = below(b, 3) ? 0 : 10000000,
				     .span = 64 };
	CHECK_INT(plan_new(&b->p, &b->plan), 0);
	step(b);
}

static void book_fini(struct book *b)
{
	struct plan_action a;

	/* what was asked is still answered */
	while (b->n_todo) {
		a = b->todo[--b->n_todo];
		answer(b, a, false);
		while (plan_next_action(b->plan, &a))
			take(b, &a);
		check_sums(b);
	}
	plan_free(b->plan);
}

static void budgets_and_states_hold_when_the_order_is_right(void)
{
	uint64_t seed = check_seed(), foreseen = 0;

	for (int run = 0; run < 30 || (!foreseen && run < 300); run++) { /* until all was seen */
		struct plan_status s;
		struct book b;
		struct order_epoch *ep;

		book_init(&b, seed + (uint64_t)run * 7919, true);
		ep = epoch_of(&b, 0);
		for (int i = 0; i < 3000; i++) {
			b.now += below(&b, 3 * NS_PER_MS);
			/* epochs always come before they are needed, or the test would have to
			 * guess passes */
			for (uint32_t k = 0; k < b.n_todo; k++) {
				struct plan_action a = b.todo[k];

				if (a.kind != PLAN_ACT_EPOCH)
					continue;
				b.todo[k] = b.todo[--b.n_todo];
				answer(&b, a, false);
				step(&b);
				k = (uint32_t)-1;
			}
			if (b.n_order < b.p.n && !below(&b, 5)) /* validation */
				open_sample(&b, b.n_order + (uint32_t)below(&b, b.p.n - b.n_order));
			else if (!b.is_strict && !below(&b, 20)) /* another reader */
				open_sample(&b, (uint32_t)below(&b, b.p.n));
			else if (below(&b, 3))
				honest_read(&b, MIN(32, b.n_order), &ep);
			else
				answer_some(&b, true);
			if (below(&b, 4))
				step(&b);
		}
		order_epoch_free(ep);
		plan_get_status(b.plan, &s);
		foreseen += s.valid_foreseen;
		book_fini(&b);
	}
	CHECK(foreseen > 0);
}

static void budgets_and_states_hold_whatever_is_read(void)
{
	uint64_t seed = check_seed() ^ 0x5555;

	for (int run = 0; run < 60; run++) {
		struct book b;

		book_init(&b, seed + (uint64_t)run * 7919, false);
		for (int i = 0; i < 3000; i++) {
			uint64_t mode = (uint64_t)(i / 300) % 3;

			b.now += below(&b, 50) ? below(&b, 3 * NS_PER_MS) : below(&b, 5 * NS_PER_S);
			wild_event(&b);
			answer_some(&b, true);
			if (mode == 0)
				open_sample(&b, (uint32_t)below(&b, b.p.n));
			if (mode == 1 && b.p.n > 1) {
				struct order_epoch *ep = epoch_of(&b, below(&b, 2));

				open_sample(&b, ep->sample[i % (int)b.n_order]);
				order_epoch_free(ep);
			}
			if (mode == 2) {
				struct order_epoch *ep = epoch_of(&b, (uint64_t)(i / 900));

				open_sample(&b, ep->sample[i % (int)b.n_order]);
				order_epoch_free(ep);
			}
			step(&b);
		}
		book_fini(&b);
	}
}

static const struct check_test tests[] = {
	{ "budgets_and_states_hold_when_the_order_is_right",
	  budgets_and_states_hold_when_the_order_is_right },
	{ "budgets_and_states_hold_whatever_is_read", budgets_and_states_hold_whatever_is_read },
};
CHECK_MAIN(tests)
