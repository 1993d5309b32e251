/* SPDX-License-Identifier: Apache-2.0 */
/* The sequence of all reads that exact MIN is told, against a search for the next use; and the list
 * that policies of arrival are made of, against an array. */
#include <stdlib.h>
#include <string.h>

#include "../../src/sim/cached.h"
#include "../../src/sim/future.h"
#include "check.h"
#include "sim_kit.h"

static void check_next_uses(const struct future *u)
{
	for (uint64_t i = 0; i < u->length; i++) {
		uint64_t next = i + 1;

		if (u->sample[i] == NONE)
			continue;
		while (next < u->length && u->sample[next] != u->sample[i])
			next++;
		CHECK_U64(u->next[i], next < u->length ? next : future_never(u, u->sample[i]));
	}
}

static void a_trace_by_hand(void)
{
	static const uint32_t trace[] = { 0, 1, 2, 0, 1, 0 };
	static const uint32_t next[] = { 3, 4, 8, 5, 7, 6 }; /* 6, 7, 8: never again */
	char path[SIM_KIT_PATH];
	struct sim_kit kit;
	struct future u;

	sim_kit_open(&kit,
		     "samples=3,sample_bytes=4K,cache_bytes=8K,epochs=1,batch=1,workers=1,"
		     "prefetch_factor=1,order=list:path=%s",
		     sim_kit_trace(trace, ARRAY_LEN(trace), path));
	CHECK_INT(future_init(&u, kit.setup, NULL), 0);
	CHECK_U64(u.length, 6);
	CHECK_BYTES(u.sample, trace, sizeof(trace));
	CHECK_BYTES(u.next, next, sizeof(next));
	for (uint32_t i = 0; i < 3; i++)
		CHECK_U64(future_sample(&u, future_never(&u, i)), i);
	CHECK_U64(future_sample(&u, 4), 1);
	future_fini(&u);
	sim_kit_close(&kit);
}

static void epochs_follow_each_other(void)
{
	struct sim_kit kit;
	struct future u;

	sim_kit_open(&kit,
		     "samples=50,sample_bytes=4K,epochs=4,batch=5,order=torch-distributed:seed=3");
	CHECK_INT(future_init(&u, kit.setup, NULL), 0);
	CHECK_U64(u.length, 200);
	for (uint64_t e = 0; e <= 4; e++)
		CHECK_U64(u.start[e], 50 * e);
	check_next_uses(&u);
	/* Each epoch has every sample: the next use is in the next one, or never. */
	for (uint64_t i = 0; i < 150; i++)
		CHECK(u.next[i] >= u.start[i / 50 + 1] && u.next[i] < u.start[i / 50 + 1] + 50);
	for (uint64_t i = 150; i < 200; i++)
		CHECK_U64(u.next[i], future_never(&u, u.sample[i]));
	future_fini(&u);
	sim_kit_close(&kit);
}

/* Position p of all jobs stands before p + 1 of any. */
static void jobs_are_in_step(void)
{
	struct sim_kit kit;
	struct future u;

	sim_kit_open(&kit, "samples=20,sample_bytes=4K,epochs=2,batch=2,jobs=3");
	CHECK_INT(future_init(&u, kit.setup, NULL), 0);
	CHECK_U64(u.n_jobs, 3);
	CHECK_U64(u.length, 3 * 40);
	for (uint32_t j = 0; j < 3; j++)
		CHECK_U64(future_at(&u, j, 1, 5), (20 + 5) * 3 + j);
	check_next_uses(&u);
	future_fini(&u);
	sim_kit_close(&kit);
}

static void a_job_that_resumes_leaves_holes(void)
{
	struct sim_kit kit;
	struct future u;
	uint64_t holes = 0;

	sim_kit_open(&kit, "samples=30,sample_bytes=4K,epochs=2,"
			   "order=torch-distributed:seed=1:start_step=2:batch=5");
	CHECK_INT(future_init(&u, kit.setup, NULL), 0);
	for (uint64_t i = 0; i < u.length; i++)
		holes += u.sample[i] == NONE;
	CHECK_U64(holes, 10);
	for (uint64_t i = 0; i < 10; i++)
		CHECK_U64(u.sample[i], NONE);
	check_next_uses(&u);
	future_fini(&u);
	sim_kit_close(&kit);
}

/* --- arrivals --- */

/* What an array says that is searched from its beginning. */
struct line_of {
	uint32_t at[64], n;
};

static void take_out(struct line_of *l, uint32_t sample)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->at[i] == sample) {
			memmove(l->at + i, l->at + i + 1, (l->n - i - 1) * sizeof(*l->at));
			l->n--;
			return;
		}
	CHECK(false);
}

static void check_line(struct arrivals *c, const struct line_of *want)
{
	uint32_t sample = arrivals_first(c);

	for (uint32_t i = 0; i < want->n; i++, sample = c->link[sample].next)
		CHECK_U64(sample, want->at[i]);
	CHECK_U64(want->n ? sample : c->n, c->n); /* round to the beginning */
}

static void arrivals_keep_their_sequence(void)
{
	enum { N = 40 };
	uint64_t seed = check_seed();
	struct line_of want = { .n = 0 };
	bool is_in[N] = { false };
	void *list;

	CHECK_INT(arrivals_new(N, &list), 0);
	CHECK_U64(arrivals_first(list), NONE);
	for (int i = 0; i < 3000; i++) {
		uint32_t sample = (uint32_t)check_rand_below(&seed, N);

		if (is_in[sample]) {
			arrivals_remove(list, sample);
			take_out(&want, sample);
		} else {
			arrivals_append(list, sample);
			want.at[want.n++] = sample;
		}
		is_in[sample] = !is_in[sample];
		CHECK_U64(arrivals_first(list), want.n ? want.at[0] : NONE);
		check_line(list, &want);
	}
	arrivals_free(list);
	arrivals_free(NULL);
}

static const struct check_test tests[] = {
	{ "a_trace_by_hand", a_trace_by_hand },
	{ "epochs_follow_each_other", epochs_follow_each_other },
	{ "jobs_are_in_step", jobs_are_in_step },
	{ "a_job_that_resumes_leaves_holes", a_job_that_resumes_leaves_holes },
	{ "arrivals_keep_their_sequence", arrivals_keep_their_sequence },
};

CHECK_MAIN(tests)
