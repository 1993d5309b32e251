/* SPDX-License-Identifier: Apache-2.0 */
/* Stories in plan/NAME.txt: what happens ("> ..."), and below it everything the plan does about it.
 * A story is run and the transcript compared with the file line by line, so a change of the policy
 * shows as a story that reads differently. With CLAIRFS_TRACE_WRITE set the transcript replaces the
 * file instead; look at the difference before it is committed.
 *
 *	> plan samples=8 order=8 arena=4 store=0 stage=0 span=1 inflight=1 epochs=3 resume=0
 *	> order 0: 3 1 2 0
 *	> start
 *	> read 0:0-3		positions of an epoch, one after the other; each action answered
 *	> open 5		a sample, out of turn; 5-8: several
 *	> wait 100		milliseconds
 *	> lost 5		its copy; forgotten 5: by the store; slow: fetches stay unanswered;
 *	> answer 5 -5		the fetch of a sample; status: what the plan says about itself
 * All samples are one page. Lines that begin with '#' and empty ones are kept as they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/buf.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/ids.h"
#include "clairfs/plan.h"

#define N_MAX 128u
#define EPOCHS_MAX 64u

struct tale {
	uint64_t start; /* position in the first epoch */
	/* of each sample so many units; then all numbers are of units, but in the lines of orders */
	uint32_t each, workers, first[N_MAX + 1];
	uint64_t *bits;
	struct plan *plan;
	uint64_t now;
	uint32_t n, n_order, length[EPOCHS_MAX], sample[EPOCHS_MAX][N_MAX];
	uint64_t epoch; /* that is being read */
	bool is_slow;
	struct buf_writer out;
};

static struct order_epoch *tale_epoch(const struct tale *t, uint64_t epoch)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));

	CHECK(epoch < EPOCHS_MAX && t->length[epoch]);
	*ep = (struct order_epoch){ .epoch = epoch, .length = t->length[epoch], .n = t->n };
	ep->start = epoch ? 0 : t->start;
	ep->sample = calloc(ep->length, sizeof(uint32_t));
	ep->first = malloc(t->n * sizeof(uint32_t));
	memset(ep->first, 0xff, t->n * sizeof(uint32_t));
	for (uint32_t p = 0; p < ep->length; p++) {
		ep->sample[p] = t->sample[epoch][p];
		ep->first[ep->sample[p]] = p;
	}
	return ep;
}

static void tell(struct tale *t, struct plan_event ev)
{
	ev.latency_ns = NS_PER_MS;
	plan_event(t->plan, t->now, &ev);
}

static void say_use(struct tale *t, const struct plan_action *a, const char *before)
{
	if (a->position != UINT64_MAX) {
		buf_printf(&t->out, "%s%u:%u\n", before, (uint32_t)(a->position >> 32),
			   (uint32_t)a->position);
		return;
	}
	/* The plan says no more than that; the story knows. */
	if (a->unit.v >= t->n_order) {
		buf_printf(&t->out, ", nobody knows when it is needed again\n");
		return;
	}
	for (uint64_t epoch = t->epoch + 1; epoch < EPOCHS_MAX; epoch++)
		for (uint32_t p = 0; p < t->length[epoch]; p++)
			if (t->sample[epoch][p] == a->unit.v) {
				buf_printf(&t->out, ", next needed in epoch %u\n", (uint32_t)epoch);
				return;
			}
	buf_printf(&t->out, ", not needed again\n");
}

static void act(struct tale *t, const struct plan_action *a)
{
	switch (a->kind) {
	case PLAN_ACT_FETCH:
		if (a->is_adopted)
			buf_printf(&t->out, "keep %u, which its reader has", a->unit.v);
		else
			buf_printf(&t->out, "fetch %u%s", a->unit.v,
				   a->is_pinned ? " from the store" : "");
		say_use(t, a, " for ");
		if (!t->is_slow)
			tell(t,
			     (struct plan_event){ .kind = PLAN_EV_FETCHED, .unit = a->unit });
		break;
	case PLAN_ACT_STAGE:
		buf_printf(&t->out, "stage %u", a->unit.v);
		say_use(t, a, " for ");
		tell(t, (struct plan_event){ .kind = PLAN_EV_STAGED, .unit = a->unit });
		break;
	case PLAN_ACT_DROP:
		buf_printf(&t->out, "drop %u", a->unit.v);
		say_use(t, a, ", next needed at ");
		break;
	case PLAN_ACT_COME: /* nothing is pushed whole */
		CHECK(false);
		break;
	case PLAN_ACT_PIN:
		buf_printf(&t->out, "pin %u\n", a->unit.v);
		tell(t, (struct plan_event){ .kind = PLAN_EV_PINNED, .unit = a->unit });
		break;
	case PLAN_ACT_EPOCH:
		buf_printf(&t->out, "compute epoch %u\n", (uint32_t)a->epoch);
		tell(t, (struct plan_event){ .kind = PLAN_EV_EPOCH,
					     .epoch = a->epoch,
					     .order_epoch = tale_epoch(t, a->epoch) });
		break;
	}
}

static void step(struct tale *t)
{
	struct plan_action a;
	uint64_t wake;
	bool is_busy;

	do {
		is_busy = false;
		wake = plan_step(t->plan, t->now);
		while (plan_next_action(t->plan, &a)) {
			act(t, &a);
			is_busy = true;
		}
	} while (is_busy || wake <= t->now);
}

static void open_sample(struct tale *t, uint32_t sample)
{
	CHECK(sample < t->n);
	t->now += NS_PER_MS;
	tell(t, (struct plan_event){ .kind = sample % t->each ? PLAN_EV_REACHED : PLAN_EV_OPENED,
				     .unit = { sample } });
	step(t);
}

static uint64_t field(const char *line, const char *name, uint64_t other)
{
	const char *at = strstr(line, name);

	return at ? strtoull(at + strlen(name), NULL, 10) : other;
}

/* Every sample is so many units. */
static void cut(struct tale *t, struct order_info *info)
{
	struct order_info samples = *info;
	struct unit_map map = { .n_samples = (uint32_t)info->n, .first = t->first };

	for (uint32_t i = 0; i <= info->n; i++)
		t->first[i] = i * t->each;
	map.n_units = (uint32_t)info->n * t->each;
	t->workers = (uint32_t)info->workers;
	CHECK(map.n_units <= N_MAX);
	CHECK_INT(order_info_expand(&samples, &map, info, &t->bits), 0);
}

/* The epoch, as it was told in samples. */
static void expand(struct tale *t, uint64_t epoch)
{
	struct order_info info = { .n_ranks = 1, .batch = 1, .workers = t->workers };
	struct unit_map map = { .n_samples = t->n / t->each, .n_units = t->n, .first = t->first };
	struct order_epoch ep = { .length = t->length[epoch],
				  .n = map.n_samples,
				  .sample = t->sample[epoch] };
	struct order_epoch *units;

	CHECK_INT(order_epoch_expand(&ep, &info, &map, &units), 0);
	t->length[epoch] = (uint32_t)units->length;
	memcpy(t->sample[epoch], units->sample, units->length * sizeof(uint32_t));
	order_epoch_free(units);
}

static void begin(struct tale *t, const char *line)
{
	uint64_t size[N_MAX], arena = field(line, " arena=", 8);
	uint64_t n_order = field(line, " order=", N_MAX), outside[N_MAX / 64 + 1] = { 0 };
	struct order_info info = { .n = field(line, " samples=", 8),
				   .world = 1,
				   .n_ranks = 1,
				   .batch = 1,
				   .epochs = field(line, " epochs=", 0) };
	struct plan_params p = { .size = size,
				 .order = &info,
				 .arena_bytes = arena * 4096,
				 .stage_bytes = field(line, " stage=", 0) * 4096,
				 .store_bytes = field(line, " store=", 0) * 4096,
				 .inflight_min = (uint32_t)field(line, " inflight=", 1),
				 .span = (uint32_t)field(line, " span=", 1) };

	CHECK(!t->plan && info.n <= N_MAX);
	t->start = field(line, " resume=", 0);
	t->each = (uint32_t)field(line, " units=", 1);
	info.workers = field(line, " workers=", 0);
	if (t->each > 1)
		cut(t, &info);
	p.n = t->n = (uint32_t)info.n;
	p.inflight_max = p.inflight_min;
	t->n_order = (uint32_t)MIN(n_order, info.n);
	for (uint32_t i = t->n_order; i < t->n; i++)
		outside[i / 64] |= 1ull << i % 64;
	if (t->n_order < t->n)
		info.outside = outside;
	for (uint32_t i = 0; i < t->n; i++)
		size[i] = 4096;
	CHECK_INT(plan_new(&p, &t->plan), 0);
}

static void order_line(struct tale *t, const char *line)
{
	char *at;
	uint64_t epoch = strtoull(line, &at, 10);

	CHECK(epoch < EPOCHS_MAX && *at == ':');
	for (at++; *at; t->length[epoch]++) {
		CHECK(t->length[epoch] < N_MAX);
		t->sample[epoch][t->length[epoch]] = (uint32_t)strtoul(at, &at, 10);
	}
	if (t->each > 1)
		expand(t, epoch);
}

static void read_positions(struct tale *t, const char *text)
{
	unsigned epoch, from, to;
	int got = sscanf(text, "%u:%u-%u", &epoch, &from, &to);

	CHECK(got >= 2 && epoch < EPOCHS_MAX);
	t->epoch = epoch;
	for (to = got == 3 ? to : from; from <= to; from++) {
		CHECK(from < t->length[epoch]);
		open_sample(t, t->sample[epoch][from]);
	}
}

static void open_samples(struct tale *t, const char *text)
{
	unsigned from, to;
	int got = sscanf(text, "%u-%u", &from, &to);

	CHECK(got >= 1);
	for (to = got == 2 ? to : from; from <= to; from++)
		open_sample(t, from);
}

static void status(struct tale *t)
{
	struct plan_status s;

	plan_get_status(t->plan, &s);
	buf_printf(&t->out, "%s, epoch %u at %u, %u in memory, %u in the store\n",
		   plan_state_names[s.state], (uint32_t)s.epoch, (uint32_t)s.position,
		   (uint32_t)(s.arena_bytes / 4096), (uint32_t)(s.pinned_bytes / 4096));
	if (s.valid_length)
		buf_printf(&t->out, "%u validation samples are expected after epoch %u\n",
			   (uint32_t)s.valid_length, (uint32_t)s.valid_epoch);
}

static void command(struct tale *t, const char *line)
{
	const char *space = strchr(line, ' ');
	const char *rest = space ? space + 1 : "";
	uint32_t sample = (uint32_t)strtoul(rest, NULL, 10);
	char word[16] = "";

	snprintf(word, sizeof(word), "%.*s", (int)strcspn(line, " "), line);
	if (strcmp(word, "plan") == 0) {
		begin(t, line);
		return;
	}
	if (strcmp(word, "order") == 0) {
		order_line(t, rest);
		return;
	}
	if (strcmp(word, "read") == 0)
		read_positions(t, rest);
	else if (strcmp(word, "open") == 0)
		open_samples(t, rest);
	else if (strcmp(word, "wait") == 0)
		t->now += sample * NS_PER_MS;
	else if (strcmp(word, "slow") == 0)
		t->is_slow = true;
	else if (strcmp(word, "lost") == 0)
		tell(t, (struct plan_event){ .kind = PLAN_EV_LOST_COPY, .unit = { sample } });
	else if (strcmp(word, "forgotten") == 0)
		tell(t, (struct plan_event){ .kind = PLAN_EV_UNPINNED, .unit = { sample } });
	else if (strcmp(word, "answer") == 0)
		tell(t, (struct plan_event){ .kind = PLAN_EV_FETCHED,
					     .unit = { sample },
					     .status = strchr(rest, ' ') ? atoi(strchr(rest, ' '))
									 : 0 });
	else if (strcmp(word, "status") == 0)
		status(t);
	else
		CHECK_STR(word, "start");
	step(t);
}

static void run(const char *name)
{
	const char *source = getenv("CLAIRFS_SOURCE");
	char *path AUTO_FREE = NULL;
	struct tale *t = calloc(1, sizeof(*t));
	char line[1024], *at, want[65536];
	size_t size;
	FILE *file;

	CHECK(source && asprintf(&path, "%s/tests/golden/plan/%s.txt", source, name) > 0);
	file = fopen(path, "re");
	CHECK(file);
	size = fread(want, 1, sizeof(want) - 1, file);
	fclose(file);
	want[size] = 0;
	t->now = NS_PER_S;
	buf_writer_init(&t->out);
	for (at = want; *at; at += strcspn(at, "\n") + 1) {
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		if (*line == '#' || *line == '>' || !*line)
			buf_printf(&t->out, "%s\n", line);
		if (*line == '>')
			command(t, line + 2);
	}
	buf_put_u8(&t->out, 0);
	CHECK(!t->out.is_bad);
	if (getenv("CLAIRFS_TRACE_WRITE")) {
		file = fopen(path, "we");
		CHECK(file && fputs((const char *)t->out.data, file) >= 0 && fclose(file) == 0);
	} else {
		CHECK_STR((const char *)t->out.data, want);
	}
	buf_writer_fini(&t->out);
	plan_free(t->plan);
	free(t->bits);
	free(t);
}

static void one_node_keeps_what_is_needed_first(void)
{
	run("one_node");
}

static void a_node_of_many_keeps_what_is_needed_soonest(void)
{
	run("many_nodes");
}

static void the_store_is_written_once_and_shares_nothing_with_memory(void)
{
	run("store");
}

static void a_job_is_taken_up_where_it_was_left(void)
{
	run("resume");
}

static void samples_that_are_cut_are_read_in_turns_and_left(void)
{
	run("shards");
}

static void a_unit_may_be_reached_before_its_open_is_heard_of(void)
{
	run("early");
}

static void all_workers_may_be_many_units_further_before_their_opens_are_heard_of(void)
{
	run("early_many");
}

static void failures_are_tried_again_or_left_to_the_reader(void)
{
	run("failures");
}

static void a_validation_set_is_expected_when_it_was_read_once(void)
{
	run("validation");
}

static const struct check_test tests[] = {
	{ "one_node_keeps_what_is_needed_first", one_node_keeps_what_is_needed_first },
	{ "a_node_of_many_keeps_what_is_needed_soonest",
	  a_node_of_many_keeps_what_is_needed_soonest },
	{ "the_store_is_written_once_and_shares_nothing_with_memory",
	  the_store_is_written_once_and_shares_nothing_with_memory },
	{ "a_job_is_taken_up_where_it_was_left", a_job_is_taken_up_where_it_was_left },
	{ "samples_that_are_cut_are_read_in_turns_and_left",
	  samples_that_are_cut_are_read_in_turns_and_left },
	{ "a_unit_may_be_reached_before_its_open_is_heard_of",
	  a_unit_may_be_reached_before_its_open_is_heard_of },
	{ "all_workers_may_be_many_units_further_before_their_opens_are_heard_of",
	  all_workers_may_be_many_units_further_before_their_opens_are_heard_of },
	{ "failures_are_tried_again_or_left_to_the_reader",
	  failures_are_tried_again_or_left_to_the_reader },
	{ "a_validation_set_is_expected_when_it_was_read_once",
	  a_validation_set_is_expected_when_it_was_read_once },
};
CHECK_MAIN(tests)
