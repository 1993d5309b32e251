/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that number records, where these are units, a step at a time: to come to a record is what an open of
 * a file is for others. Every request is answered at once by the test. */
#include <stdlib.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/ids.h"
#include "clairfs/order/records.h"
#include "clairfs/step.h"

enum { PAGE = 4096, QUEUE = 4096 };
enum { FILES = 4, EACH = 50, WITH_RECORDS = 3, RECORDS = 150, UNITS = 151 }; /* one file is a unit */

struct world {
	struct step step;
	struct step_hands hands;
	uint64_t now;
	struct plan_action asked[QUEUE];
	struct order_ref *ref[QUEUE];
	uint32_t n_asked;
	struct step_place place; /* of the last open */
	bool has_place;
	uint32_t n_opened, n_measured, n_placed;
	const struct order_epoch *ep; /* that places are of, or NULL */
	bool is_of_files, is_beside; /* nothing else of it may be measured; nothing at all */
	bool may_be_whole, pushes_whole, is_whole[UNITS]; /* with their tracer pages */
	uint32_t n_come;
};

static int ask(void *ctx, const struct plan_action *a)
{
	struct world *w = ctx;

	CHECK(w->n_asked < QUEUE);
	CHECK(a->kind != PLAN_ACT_STAGE || !a->may_be_whole || w->may_be_whole);
	w->ref[w->n_asked] = NULL;
	w->asked[w->n_asked++] = *a;
	return 0;
}

static int ask_epoch(void *ctx, const struct plan_action *a, struct order_ref *take_order)
{
	struct world *w = ctx;
	int rc = ask(ctx, a);

	w->ref[w->n_asked - 1] = take_order;
	return rc;
}

static void drop(void *ctx, const struct plan_action *a)
{
	CHECK(a->unit.v < UNITS);
}

static void come(void *ctx, struct unit_id unit)
{
	struct world *w = ctx;

	CHECK(w->is_whole[unit.v]);
	w->is_whole[unit.v] = false;
	w->n_come++;
}

static void opened(void *ctx, struct unit_id unit, const struct step_place *place)
{
	struct world *w = ctx;

	w->n_opened++;
	w->has_place = place != NULL;
	w->place = place ? *place : (struct step_place){ .length = 0 };
	if (!w->ep || !place || !place->is_measured || !place->length)
		return;
	CHECK(place->pass == 0 && place->length == w->ep->length);
	CHECK_U64(w->ep->sample[place->position], unit.v);
	w->n_placed++;
}

/* Of a job of records these are measured, and of one of files no record is. */
static bool hold_back(void *ctx, const struct step_use *use)
{
	struct world *w = ctx;

	CHECK(!w->is_beside && w->is_of_files == (use->unit.v >= RECORDS));
	CHECK(!use->order); /* blocks are of files */
	w->n_measured++;
	return false;
}

static void answer(struct world *w, uint32_t at)
{
	static const enum plan_event_kind kinds[] = { [PLAN_ACT_FETCH] = PLAN_EV_FETCHED,
						      [PLAN_ACT_STAGE] = PLAN_EV_STAGED,
						      [PLAN_ACT_EPOCH] = PLAN_EV_EPOCH };
	const struct plan_action *a = &w->asked[at];
	struct plan_event ev = { .kind = kinds[a->kind],
				 .unit = a->unit,
				 .bytes = PAGE,
				 .latency_ns = NS_PER_MS,
				 .epoch = a->epoch,
				 .job = a->job,
				 .version = a->version };
	struct err err = { 0 };

	if (a->kind == PLAN_ACT_EPOCH)
		ev.status = order_ref_epoch(w->ref[at], a->epoch, &ev.order_epoch, &err);
	CHECK_INT(ev.status, 0);
	if (a->kind == PLAN_ACT_STAGE && a->may_be_whole && w->pushes_whole) {
		w->is_whole[a->unit.v] = true;
		ev.status = PLAN_STAGED_WHOLE;
	}
	order_ref_put(w->ref[at]);
	step_event(&w->step, w->now, &ev);
}

static void settle(struct world *w)
{
	do {
		uint32_t n = w->n_asked;

		for (uint32_t i = 0; i < n; i++)
			answer(w, i);
		w->n_asked = 0;
		w->now += NS_PER_MS;
		(void)step_round(&w->step, w->now);
		step_look(&w->step, w->now);
	} while (w->n_asked);
}

static struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof(*w));
	uint64_t size[UNITS];
	struct plan_params pp = { .n = UNITS,
				  .size = size,
				  .arena_bytes = 300 * PAGE,
				  .stage_bytes = 64 * PAGE,
				  .inflight_min = 8,
				  .inflight_max = 8,
				  .span = 16 };
	struct step_params params = { .n = UNITS,
				      .arena_bytes = pp.arena_bytes,
				      .stage_bytes = pp.stage_bytes };

	for (uint32_t i = 0; i < UNITS; i++)
		size[i] = PAGE;
	CHECK(w != NULL);
	w->now = NS_PER_S;
	w->hands = (struct step_hands){ .ctx = w,
					.fetch = ask,
					.stage = ask,
					.pin = ask,
					.epoch = ask_epoch,
					.drop = drop,
					.come = come,
					.opened = opened,
					.hold_back = hold_back };
	params.hands = &w->hands;
	CHECK_INT(plan_new(&pp, &params.plan), 0);
	CHECK_INT(step_init(&w->step, &params, w->now), 0);
	return w;
}

static void world_free(struct world *w)
{
	for (uint32_t i = 0; i < w->n_asked; i++)
		order_ref_put(w->ref[i]);
	step_fini(&w->step);
	free(w);
}

static int list_shards(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	*ret = calloc(WITH_RECORDS, sizeof(**ret));
	CHECK(*ret);
	for (uint32_t i = 0; i < WITH_RECORDS; i++)
		(*ret)[i] = (struct order_shard){ .sample = i, .count = EACH };
	*ret_n = WITH_RECORDS;
	return 0;
}

static struct order_ref *order_of(const char *text)
{
	static const uint32_t first_of_file[] = { 0, 50, 100, 150, 151 };
	static const uint64_t in_records[] = { 7 };
	static uint32_t first[RECORDS], past[RECORDS];
	static struct unit_map records, files;
	struct order_params params = { .n = FILES, .n_records = RECORDS, .shards = list_shards };
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };
	struct order_ref *ref;

	for (uint32_t i = 0; i < RECORDS; i++) {
		first[i] = i;
		past[i] = i + 1;
	}
	records = (struct unit_map){
		.n_samples = RECORDS, .n_units = UNITS, .first = first, .past = past
	};
	files = (struct unit_map){ .n_samples = FILES,
				   .n_units = UNITS,
				   .first = first_of_file,
				   .in_records = in_records,
				   .of_records = &records };
	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	CHECK_INT(order_new(spec, &params, &order, &err), 0);
	order_spec_free(spec);
	ref = order_ref_new(order, &files, true);
	CHECK(ref != NULL);
	return ref;
}

static void tell(struct world *w, enum plan_event_kind kind, uint32_t unit)
{
	struct plan_event ev = { .kind = kind, .unit = { unit } };

	step_event(&w->step, w->now, &ev);
}

/* To come to a record is what an open is of a file; that of a file with records says whose it is. */
static void job_that_reads_records_is_followed_by_what_it_comes_to(void)
{
	struct order_ref *ref = order_of("torch-randperm:seed=5:records=1:epochs=2");
	struct order_epoch *ep = NULL;
	struct world *w = world_new();
	struct err err = { 0 };
	uint32_t id = 0;

	CHECK(ref->is_of_records);
	w->may_be_whole = true; /* and nothing is */
	CHECK_U64(ref->info.n, UNITS);
	CHECK_INT(ref->info.outside[RECORDS / 64] >> RECORDS % 64 & 1, 1); /* of no record */
	CHECK_INT(order_ref_epoch(ref, 0, &ep, &err), 0);
	CHECK_U64(ep->length, RECORDS);
	CHECK_INT(step_add_order(&w->step, &ref, STEP_NO_JOB, w->now, &id), 0);
	settle(w);
	for (uint32_t i = 0; i < 120; i++) {
		tell(w, PLAN_EV_OPENED, ep->sample[i] / EACH * EACH);
		CHECK(w->has_place && w->place.job == id && !w->place.length);
		tell(w, PLAN_EV_REACHED, ep->sample[i]);
		CHECK(w->has_place && w->place.job == id && w->place.is_measured);
		CHECK(w->place.pass == 0 && w->place.position == i && w->place.length == RECORDS);
		settle(w);
	}
	CHECK(w->n_measured > 0);
	CHECK_INT(step_state(&w->step), PLAN_FOLLOWING);
	CHECK_U64(w->step.first.placed, 120);
	CHECK_U64(w->step.first.mismatches, 0);
	CHECK_U64(w->step.all.opened, 120);
	CHECK_U64(w->n_come, 0);
	CHECK_U64(w->n_opened, 240);
	order_epoch_free(ep);
	world_free(w);
}

/* Of such a job, when it is alone and followed, most need not be heard of; all are measured. */
static void most_records_are_pushed_whole(void)
{
	struct order_ref *ref = order_of("torch-randperm:seed=5:records=1:epochs=2");
	struct order_epoch *ep = NULL;
	struct world *w = world_new();
	struct err err = { 0 };
	uint32_t id = 0, n_silent = 0;

	w->may_be_whole = w->pushes_whole = true;
	CHECK_INT(order_ref_epoch(ref, 0, &ep, &err), 0);
	w->ep = ep;
	CHECK_INT(step_add_order(&w->step, &ref, STEP_NO_JOB, w->now, &id), 0);
	settle(w);
	for (uint32_t i = 0; i < RECORDS; i++) {
		if (w->is_whole[ep->sample[i]])
			n_silent++;
		else
			tell(w, PLAN_EV_REACHED, ep->sample[i]);
		settle(w);
	}
	CHECK(n_silent >= 20);
	CHECK_U64(w->n_come, n_silent);
	CHECK_U64(w->n_placed, RECORDS); /* those that nobody was heard of at as well */
	CHECK_U64(w->step.first.placed, RECORDS);
	CHECK_U64(w->step.first.mismatches, 0);
	CHECK_U64(w->step.all.opened, RECORDS - n_silent);
	order_epoch_free(ep);
	world_free(w);
}

/* A job that reads the files one after the other: the open of each, and what it comes to behind that. */
static void job_that_numbers_files_has_their_records_as_units(void)
{
	struct order_ref *ref = order_of("sequential:records=0:epochs=2");
	struct world *w = world_new();
	uint32_t id = 0;

	CHECK(!ref->is_of_records);
	CHECK_U64(ref->info.samples, FILES);
	CHECK_U64(ref->info.units, UNITS);
	CHECK_INT(step_add_order(&w->step, &ref, STEP_NO_JOB, w->now, &id), 0);
	settle(w);
	for (uint32_t i = 0; i < 120; i++) {
		if (i % EACH == 0)
			tell(w, PLAN_EV_OPENED, i);
		tell(w, PLAN_EV_REACHED, i);
		settle(w);
	}
	CHECK_U64(w->step.first.mismatches, 0);
	CHECK_U64(w->step.first.position, 120);
	world_free(w);
}

/* A mark of a record would never go: nothing of it is measured, not even where few files are cut. */
static void records_are_not_measured_for_a_job_of_files(void)
{
	struct order_ref *ref = order_of("sequential:records=0:epochs=2");
	struct world *w = world_new();
	uint32_t id = 0;

	ref->info.samples = UNITS; /* as of many files that are not cut beside these */
	CHECK(!order_is_cut(&ref->info));
	w->is_of_files = true;
	CHECK_INT(step_add_order(&w->step, &ref, STEP_NO_JOB, w->now, &id), 0);
	settle(w);
	for (uint32_t i = 0; i < UNITS; i++) {
		tell(w, i % EACH ? PLAN_EV_REACHED : PLAN_EV_OPENED, i);
		CHECK(!w->has_place || w->place.is_measured == (i >= RECORDS));
		settle(w);
	}
	CHECK(w->n_measured >= 1); /* the file that is a unit */
	world_free(w);
}

/* Beside a job of files: where another one's reader goes within them is no evidence against its order. */
static void records_say_nothing_of_a_job_of_files(void)
{
	struct order_ref *records = order_of("torch-randperm:seed=5:records=1:epochs=2");
	struct order_ref *files = order_of("sequential:records=0:epochs=2");
	struct world *w = world_new();
	struct order_epoch *ep = NULL;
	struct err err = { 0 };
	uint32_t id = 0;

	w->is_beside = true; /* whose read of a record it is, is not known */
	CHECK_INT(order_ref_epoch(records, 0, &ep, &err), 0);
	CHECK_INT(step_add_order(&w->step, &records, STEP_NO_JOB, w->now, &id), 0);
	CHECK_INT(step_add_order(&w->step, &files, STEP_NO_JOB, w->now, &id), 0);
	settle(w);
	for (uint32_t i = 0; i < 120; i++) {
		uint32_t unit = ep->sample[RECORDS - 1 - i]; /* expected by nobody */

		if (unit % EACH) /* the first one of a file may be an open of it */
			tell(w, PLAN_EV_REACHED, unit);
		settle(w);
	}
	CHECK_U64(w->step.n_jobs, 2);
	CHECK(w->step.job[0].plan.mismatches > 0);
	CHECK_U64(w->step.job[1].plan.mismatches, 0);
	CHECK_INT(w->step.job[1].plan.resyncs, 0);
	order_epoch_free(ep);
	world_free(w);
}

/* --- records that are found while the mount runs --- */

enum { OLD = 31, FOUND = 100 }; /* 31 units before, of which file 1 has ten; then 100 records of that */

static int list_found(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	*ret = calloc(1, sizeof(**ret));
	CHECK(*ret);
	(*ret)[0] = (struct order_shard){ .sample = 1, .count = FOUND };
	*ret_n = 1;
	return 0;
}

/* The map that such an order has with it. */
static struct unit_map *found_map(void)
{
	struct unit_map *map = malloc(sizeof(*map) + 2 * FOUND * sizeof(uint32_t));
	uint32_t *first;

	CHECK(map != NULL);
	first = (uint32_t *)(map + 1);
	for (uint32_t i = 0; i < FOUND; i++) {
		first[i] = OLD + i;
		first[FOUND + i] = OLD + i + 1;
	}
	*map = (struct unit_map){
		.n_samples = FOUND, .n_units = UNITS, .first = first, .past = first + FOUND
	};
	return map;
}

static struct units_later later;
static const struct unit_map *files_with_room(void)
{
	static const uint32_t first[] = { 0, 10, 20, 30, 31 };
	static struct unit_map files;

	later = (struct units_later){ .from = OLD };
	files = (struct unit_map){
		.n_samples = FILES, .n_units = UNITS, .first = first, .later = &later
	};
	return &files;
}

static void cut_file(void)
{
	later.file[0] = (struct units_later_file){ .sample = 1, .first = OLD, .end = OLD + FOUND };
	atomic_store(&later.n, 1);
}

static struct order_ref *order_in(const struct unit_map *files, const char *text, bool is_found)
{
	struct order_params params = { .n = FILES };
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };
	struct order_ref *ref;

	if (is_found) {
		params.n_records = FOUND;
		params.shards = list_found;
	}
	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	CHECK_INT(order_new(spec, &params, &order, &err), 0);
	order_spec_free(spec);
	if (is_found)
		order_set_units(order, found_map());
	ref = order_ref_new(order, files, true);
	CHECK(ref != NULL);
	return ref;
}

static void job_that_was_found_to_read_records_is_followed(void)
{
	const struct unit_map *files = files_with_room();
	struct order_ref *ref = order_in(files, "torch-randperm:seed=5:records=1:epochs=2", true);
	struct order_epoch *ep = NULL;
	struct world *w = world_new();
	struct err err = { 0 };
	uint32_t id = 0;

	CHECK(ref->is_of_records);
	CHECK_U64(ref->info.n, UNITS);
	cut_file();
	w->is_beside = true; /* nothing is measured of such a job */
	w->may_be_whole = true; /* and nothing is */
	CHECK_INT(order_ref_epoch(ref, 0, &ep, &err), 0);
	CHECK_U64(ep->length, FOUND);
	CHECK_INT(step_add_order(&w->step, &ref, STEP_NO_JOB, w->now, &id), 0);
	/* It had begun: these are shown to it before its epoch is there. */
	for (uint32_t i = 0; i < 60; i++)
		tell(w, PLAN_EV_REACHED, ep->sample[i]);
	settle(w);
	CHECK_INT(step_state(&w->step), PLAN_FOLLOWING);
	CHECK_U64(w->step.first.position, 60);
	for (uint32_t i = 60; i < 90; i++) {
		tell(w, PLAN_EV_REACHED, 10 + i % 10); /* of what the file was before */
		tell(w, PLAN_EV_OPENED, OLD);
		tell(w, PLAN_EV_REACHED, ep->sample[i]);
		settle(w);
	}
	CHECK_U64(w->step.first.position, 90);
	CHECK_U64(w->step.first.mismatches, 0);
	CHECK_U64(w->step.all.opened, 90);
	order_epoch_free(ep);
	world_free(w);
}

/* A file may be cut while an epoch is computed: it is of the units that there were. */
static void order_of_files_has_the_units_of_its_beginning(void)
{
	const struct unit_map *files = files_with_room();
	struct order_ref *before = order_in(files, "sequential:epochs=2", false), *after;
	struct order_epoch *ep = NULL;
	struct err err = { 0 };

	cut_file();
	after = order_in(files, "sequential:epochs=2", false);
	CHECK_INT(order_ref_epoch(before, 0, &ep, &err), 0);
	CHECK_U64(ep->length, OLD);
	CHECK_U64(ep->n, UNITS);
	CHECK_U64(ep->sample[10], 10);
	CHECK_U64(before->info.units, OLD);
	CHECK_INT(before->info.outside[OLD / 64] >> OLD % 64 & 1, 1);
	order_epoch_free(ep);
	CHECK_INT(order_ref_epoch(after, 0, &ep, &err), 0);
	CHECK_U64(ep->length, OLD - 10 + FOUND);
	CHECK_U64(ep->sample[10], OLD);
	CHECK_U64(ep->sample[10 + FOUND], 20);
	CHECK_U64(after->info.units, OLD - 10 + FOUND);
	CHECK_INT(after->info.outside[0] >> 10 & 1, 1); /* nobody comes to these any more */
	CHECK_INT(after->info.inner[0] >> OLD & 1, 0);
	CHECK_INT(after->info.inner[0] >> (OLD + 1) & 1, 1);
	order_epoch_free(ep);
	order_ref_put(before);
	order_ref_put(after);
}

static const struct check_test tests[] = {
	{ "job_that_was_found_to_read_records_is_followed",
	  job_that_was_found_to_read_records_is_followed },
	{ "order_of_files_has_the_units_of_its_beginning",
	  order_of_files_has_the_units_of_its_beginning },
	{ "most_records_are_pushed_whole", most_records_are_pushed_whole },
	{ "records_say_nothing_of_a_job_of_files", records_say_nothing_of_a_job_of_files },
	{ "records_are_not_measured_for_a_job_of_files", records_are_not_measured_for_a_job_of_files },
	{ "job_that_reads_records_is_followed_by_what_it_comes_to",
	  job_that_reads_records_is_followed_by_what_it_comes_to },
	{ "job_that_numbers_files_has_their_records_as_units",
	  job_that_numbers_files_has_their_records_as_units },
};

CHECK_MAIN(tests)
