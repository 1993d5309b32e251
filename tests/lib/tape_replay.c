/* SPDX-License-Identifier: Apache-2.0 */
/* A tape is a file, so nothing in it is believed: numbers are checked where they index something.
 * What a plan would call a bug of its caller (an answer that nobody asked for) is not: it asserts
 * as the daemon's would have. */
#include "tape_replay.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "clairfs/base/ids.h"
#include "clairfs/base/mem.h"
#include "clairfs/base/text.h"
#include "clairfs/tape.h"

enum { PLANS_MAX = 4096 };

struct replayed {
	struct plan *plan;
	uint64_t *size;
	uint64_t n_sizes;
	struct order_info order;
	uint32_t *ranks;
	uint64_t *outside, *inner;
	bool has_order;
	uint64_t now;
	uint32_t n;
};

struct replay {
	struct replayed *plan[PLANS_MAX];
	struct tape_counts counts;
	uint64_t line;
	char *at; /* what is left of it */
	bool is_bad;
	struct err *err;
};

/* --- a line's words --- */

static const char *word(struct replay *r)
{
	char *w = strsep(&r->at, " ");

	if (!w || !*w)
		r->is_bad = true;
	return w ? w : "";
}

static uint64_t number(struct replay *r)
{
	uint64_t value = 0;

	if (text_to_u64(word(r), &value) < 0)
		r->is_bad = true;
	return value;
}

static uint64_t number_below(struct replay *r, uint64_t end)
{
	uint64_t value = number(r);

	if (value >= end)
		r->is_bad = true;
	return value < end ? value : 0;
}

static int status(struct replay *r)
{
	const char *w = word(r);
	uint64_t value = 0;

	if (text_to_u64(w + (*w == '-'), &value) < 0 || value > 4096)
		r->is_bad = true;
	return *w == '-' ? -(int)value : (int)value;
}

static int kind_of(struct replay *r, const char *const *names)
{
	const char *w = word(r);

	for (int i = 0; names[i]; i++)
		if (strcmp(names[i], w) == 0)
			return i;
	r->is_bad = true;
	return 0;
}

/* --- plans --- */

static struct replayed *plan_of(struct replay *r)
{
	uint64_t id = number_below(r, PLANS_MAX);

	if (!r->plan[id])
		r->plan[id] = calloc(1, sizeof(*r->plan[id]));
	return r->plan[id];
}

static struct replayed *made_plan_of(struct replay *r)
{
	struct replayed *p = plan_of(r);

	if (p && p->plan)
		return p;
	r->is_bad = true;
	return NULL;
}

static uint64_t now(struct replay *r, struct replayed *p)
{
	uint64_t at = number(r);

	if (at < p->now)
		r->is_bad = true;
	p->now = at;
	return at;
}

static int do_sizes(struct replay *r)
{
	struct replayed *p = plan_of(r);
	uint64_t count = number_below(r, UINT32_MAX), bytes = number(r);
	uint64_t *more;

	if (r->is_bad || p->n_sizes + count > UINT32_MAX)
		return -EINVAL;
	more = realloc(p->size, (p->n_sizes + count) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	p->size = more;
	for (uint64_t i = 0; i < count; i++)
		p->size[p->n_sizes++] = bytes;
	return 0;
}

/* NULL: there are none. */
static int read_bits(struct replay *r, uint64_t **ret, uint64_t n)
{
	uint64_t words = number(r);

	free(*ret);
	*ret = NULL;
	if (r->is_bad || (words && words != n / 64 + 1))
		return -EINVAL;
	*ret = words ? calloc(words, sizeof(**ret)) : NULL;
	if (words && !*ret)
		return -ENOMEM;
	for (uint64_t i = 0; i < words; i++)
		(*ret)[i] = number(r);
	return 0;
}

static int do_order(struct replay *r)
{
	struct replayed *p = plan_of(r);
	struct order_info *o = &p->order;
	int rc;

	o->n = number_below(r, UINT32_MAX);
	o->start_epoch = number(r);
	o->epochs = number(r);
	o->start_step = number(r);
	o->world = number(r);
	o->batch = number(r);
	o->workers = number(r);
	o->prefetch_factor = number(r);
	o->is_same_every_epoch = number_below(r, 2);
	o->may_be_left = number_below(r, 2);
	o->n_ranks = (uint32_t)number_below(r, 1u << 20);
	free(p->ranks);
	p->ranks = calloc(o->n_ranks + 1, sizeof(*p->ranks));
	if (!p->ranks)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->n_ranks; i++)
		p->ranks[i] = (uint32_t)number_below(r, UINT32_MAX);
	o->ranks = p->ranks;
	rc = read_bits(r, &p->outside, o->n);
	o->outside = p->outside;
	o->samples = number(r);
	o->units = number(r);
	if (rc == 0)
		rc = read_bits(r, &p->inner, o->n);
	o->inner = p->inner;
	p->has_order = true;
	return rc;
}

static uint64_t param(struct replay *r, const char *name)
{
	size_t length = strlen(name);
	uint64_t value = 0;
	const char *w = word(r);

	if (strncmp(w, name, length) != 0 || w[length] != '=' ||
	    text_to_u64(w + length + 1, &value) < 0)
		r->is_bad = true;
	return value;
}

static int do_plan(struct replay *r)
{
	struct replayed *p = plan_of(r);
	struct plan_params params = { .size = p->size,
				      .order = p->has_order ? &p->order : NULL };

	params.n = p->n = (uint32_t)number_below(r, UINT32_MAX);
#define PARAM(name) params.name = (__typeof__(params.name))param(r, #name);
	TAPE_PARAMS(PARAM)
#undef PARAM
	if (r->is_bad || p->plan || params.n != p->n_sizes)
		return -EINVAL;
	r->counts.plans++;
	return plan_new(&params, &p->plan);
}

/* --- what it is told --- */

static int do_event(struct replay *r)
{
	struct replayed *p = made_plan_of(r);
	struct plan_event ev = { 0 };
	uint64_t at;

	if (!p)
		return -EINVAL;
	at = now(r, p);
	ev.kind = (enum plan_event_kind)kind_of(r, tape_event_names);
	ev.unit.v = (uint32_t)number_below(r, UINT32_MAX);
	ev.status = status(r);
	ev.bytes = number(r);
	ev.latency_ns = number(r);
	ev.epoch = number(r);
	ev.job = (uint32_t)number_below(r, PLAN_JOBS);
	if (r->is_bad || ev.kind == PLAN_EV_EPOCH ||
	    (ev.unit.v >= MAX(p->n, 1) && ev.kind != PLAN_EV_DEMAND))
		return -EINVAL;
	r->counts.events++;
	plan_event(p->plan, at, &ev);
	return 0;
}

/* From what is left of the line; the index of positions is made from it. */
static struct order_epoch *read_epoch(struct replay *r, uint32_t n, uint64_t epoch)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));
	bool is_twice = false;

	if (!ep)
		return NULL;
	*ep = (struct order_epoch){ .epoch = epoch,
				    .n = n,
				    .length = number_below(r, UINT32_MAX),
				    .start = number(r) };
	ep->sample = calloc(ep->length + 1, sizeof(*ep->sample));
	ep->first = malloc(((size_t)n + 1) * sizeof(*ep->first));
	ep->next_same = malloc((ep->length + 1) * sizeof(*ep->next_same));
	if (!ep->sample || !ep->first || !ep->next_same) {
		order_epoch_free(ep);
		return NULL;
	}
	for (uint64_t i = 0; i < ep->length; i++)
		ep->sample[i] = (uint32_t)number_below(r, n);
	memset(ep->first, 0xff, (size_t)n * sizeof(*ep->first)); /* SAMPLE_NONE */
	for (uint64_t i = ep->length; i-- > 0;) {
		ep->next_same[i] = ep->first[ep->sample[i]];
		is_twice |= ep->next_same[i] != SAMPLE_NONE;
		ep->first[ep->sample[i]] = (uint32_t)i;
	}
	if (!is_twice) {
		free(ep->next_same);
		ep->next_same = NULL;
	}
	return ep;
}

static int do_epoch(struct replay *r)
{
	struct replayed *p = made_plan_of(r);
	struct plan_event ev = { .kind = PLAN_EV_EPOCH };
	uint64_t at;

	if (!p)
		return -EINVAL;
	at = now(r, p);
	ev.status = status(r);
	ev.epoch = number(r);
	ev.job = (uint32_t)number_below(r, PLAN_JOBS);
	ev.version = (uint32_t)number_below(r, UINT32_MAX);
	if (r->at && strcmp(r->at, "-") != 0) {
		ev.order_epoch = read_epoch(r, p->n, ev.epoch);
		if (!ev.order_epoch)
			return -ENOMEM;
	}
	if (r->is_bad || (ev.status == 0 && !ev.order_epoch)) {
		order_epoch_free(ev.order_epoch);
		return -EINVAL;
	}
	r->counts.events++;
	plan_event(p->plan, at, &ev);
	return 0;
}

static int do_other(struct replay *r, const char *what)
{
	struct replayed *p = made_plan_of(r);
	uint64_t a, b;

	if (!p)
		return -EINVAL;
	if (strcmp(what, "memory") == 0) {
		a = number(r);
		b = number(r);
		plan_set_memory(p->plan, a, b);
	} else if (strcmp(what, "leave") == 0) {
		plan_end_job(p->plan, (uint32_t)number_below(r, PLAN_JOBS));
	} else if (strcmp(what, "free") == 0) {
		plan_free(TAKE(p->plan));
	} else {
		return -EINVAL;
	}
	return 0;
}

/* --- what it decides --- */

static int do_join(struct replay *r)
{
	struct replayed *p = made_plan_of(r);
	int was, is;

	if (!p || !p->has_order)
		return -EINVAL;
	was = status(r);
	is = plan_add_job(p->plan, &p->order);
	return is == was ? 0 : err_set(r->err, -EBADE, "job %d joined, it was %d", is, was);
}

static int do_change(struct replay *r)
{
	struct replayed *p = made_plan_of(r);
	uint32_t job;
	int was, is;

	if (!p || !p->has_order)
		return -EINVAL;
	job = (uint32_t)number_below(r, PLAN_JOBS);
	was = status(r);
	if (r->is_bad)
		return -EINVAL;
	is = plan_change_job(p->plan, job, &p->order);
	return is == was ? 0 : err_set(r->err, -EBADE, "change gives %d, it was %d", is, was);
}

static int do_step(struct replay *r)
{
	struct replayed *p = made_plan_of(r);
	uint64_t was, is, at;

	if (!p)
		return -EINVAL;
	at = now(r, p);
	was = number(r);
	if (r->is_bad)
		return -EINVAL;
	r->counts.steps++;
	is = plan_step(p->plan, at);
	return is == was ? 0
			 : err_set(r->err, -EBADE,
				   "wants to be called again at %" PRIu64 ", it was %" PRIu64, is,
				   was);
}

static void write_action(char out[256], const struct plan_action *a)
{
	bool is_come = a->kind == PLAN_ACT_COME; /* see tape.c */

	snprintf(out, 256,
		 "%s %" PRIu32 " %d %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32
		 " %d %d",
		 tape_action_names[a->kind], a->unit.v, a->is_pinned, a->is_adopted,
		 is_come ? 0 : a->position, a->pass, is_come ? 0 : a->epoch, a->job, a->version, a->is_left,
		 a->may_be_whole);
}

/* `was` NULL: none was handed out. Compared as text: all that the tape says of an action. */
static int compare_action(struct replay *r, const char *was)
{
	struct replayed *p = made_plan_of(r);
	struct plan_action a;
	char is[256];

	if (!p)
		return -EINVAL;
	if (!was)
		was = r->at ? r->at : "nothing";
	if (plan_next_action(p->plan, &a))
		write_action(is, &a);
	else
		snprintf(is, sizeof(is), "nothing");
	if (strcmp(is, "nothing") != 0)
		r->counts.actions++;
	return strcmp(is, was) == 0
		       ? 0
		       : err_set(r->err, -EBADE, "decides \"%s\", it was \"%s\"", is, was);
}

static int do_line(struct replay *r)
{
	const char *what = word(r);

	if (strcmp(what, "event") == 0)
		return do_event(r);
	if (strcmp(what, "step") == 0)
		return do_step(r);
	if (strcmp(what, "action") == 0)
		return compare_action(r, NULL);
	if (strcmp(what, "enough") == 0)
		return compare_action(r, "nothing");
	if (strcmp(what, "epoch") == 0)
		return do_epoch(r);
	if (strcmp(what, "sizes") == 0)
		return do_sizes(r);
	if (strcmp(what, "order") == 0)
		return do_order(r);
	if (strcmp(what, "plan") == 0)
		return do_plan(r);
	if (strcmp(what, "join") == 0)
		return do_join(r);
	if (strcmp(what, "change") == 0)
		return do_change(r);
	return do_other(r, what);
}

static int do_file(struct replay *r, FILE *file)
{
	AUTO_FREE char *line = NULL;
	size_t capacity = 0;
	ssize_t length;
	int rc = 0;

	while (rc == 0 && (length = getline(&line, &capacity, file)) > 0) {
		if (line[length - 1] != '\n')
			break; /* a daemon that was killed */
		line[length - 1] = 0;
		r->line++;
		r->at = line;
		if (r->line == 1)
			rc = strcmp(line, TAPE_MAGIC) == 0 ? 0 : -EINVAL;
		else
			rc = do_line(r);
		if (rc == 0 && r->is_bad)
			rc = -EINVAL;
	}
	if (rc == -EINVAL || (rc == 0 && !r->line))
		return err_set(r->err, -EINVAL, "line %" PRIu64 ": not of a tape", r->line);
	if (rc < 0 && rc != -EBADE)
		return err_set_errno(r->err, rc, "line %" PRIu64, r->line);
	if (rc < 0)
		err_prefix(r->err, "line %" PRIu64, r->line);
	return rc;
}

int tape_replay(const char *path, struct tape_counts *ret, struct err *err)
{
	AUTO_FREE struct replay *r = calloc(1, sizeof(*r));
	AUTO_FILE FILE *file = fopen(path, "re");
	int rc;

	if (!r || !file)
		return err_set_errno(err, r ? -errno : -ENOMEM, "%s", path);
	r->err = err;
	rc = do_file(r, file);
	for (uint32_t i = 0; i < PLANS_MAX; i++) {
		if (!r->plan[i])
			continue;
		plan_free(r->plan[i]->plan);
		free(r->plan[i]->size);
		free(r->plan[i]->ranks);
		free(r->plan[i]->outside);
		free(r->plan[i]->inner);
		free(r->plan[i]);
	}
	*ret = r->counts;
	return rc;
}
