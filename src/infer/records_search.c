/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which the records of one file are read: a finder as of files (finder.c), with its looks, its budget and
 * its thread, that is told numbers of records. How many records a job numbers is part of a shuffle, so each
 * likely count is a numbering of its own: the first so many records.
 *
 * Where a file is mapped (numpy.memmap) the kernel reads around the page that is missing, from half of its read-ahead
 * before it on. Then all READs begin so much too early, and all numbers are too low by the records that this is. So
 * that is a numbering, too. Which of all was right, the answer says, and where record 0 begins with it.
 *
 *	numbers -> infer (cl-infer) -> found -> order of so many records -> follow: is the rest read so, too?
 *
 * A search of all seeds is not made: it takes minutes of a core, and nobody follows the order yet. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "clairfs/base/thr.h"
#include "records_priv.h"
#include "stride_priv.h"

#define MEMORY_SHARE 16u
#define BYTES_OF_EACH 2u /* records to a byte of bitmaps */

#define WAYS (2 * STRIDE_COUNTS)

/* Where record 0 is, of a mapped file whose READs begin so much too early: the number that they give it, and its
 * place. The place where READs begin is known to less than a page; where they come out at the end of a stride that
 * is a record that begins at 0, as files do that are nothing but records. */
struct around {
	uint64_t shift, origin;
};

static struct around around_of(const struct stride_view *v, uint64_t around)
{
	uint64_t at = v->origin + around;
	struct around ret = { at / v->stride, at % v->stride };

	if (ret.origin + STRIDE_PAGE > v->stride)
		ret = (struct around){ ret.shift + 1, 0 };
	return ret;
}

/* A way to number the records. */
struct way {
	uint64_t n, shift; /* records; what is added to numbers as they are told */
	bool is_around;    /* READs begin `around` before their records */
};

struct records_search {
	struct infer *infer;
	struct infer_numbers numbers;
	void (*news)(void *ctx); /* or NULL */
	void *news_ctx;
	struct way way[WAYS]; /* the likeliest first */
	size_t n_ways;
	uint64_t around, shift; /* shift: of ways with is_around */
	uint64_t most, memory; /* most: records of any of them; memory: of the finder, and of what follows, each */
	char name[INFER_NAME_MAX];
	struct follow *follow;          /* the one thread's */
	struct follow *_Atomic fresh;   /* of what was found; the one thread takes it */
	struct mutex mu;                /* a leaf */
	char spec[INFER_SPEC_MAX];      /* mu, like all below; "": nothing was found */
	bool is_around;
	uint64_t n;
	enum infer_plan plan;
	double match;
};

/* --- the numberings --- */

/* dir: number of the way, which no other field tells: what parts.c guesses has `first` as well. */
static size_t list_ways(void *ctx, const struct infer_opens *opens, struct infer_numbering *ret, size_t max)
{
	const struct records_search *s = ctx;
	size_t n = MIN(s->n_ways, max);

	(void)opens;
	for (size_t i = 0; i < n; i++) {
		memset(&ret[i], 0, sizeof(ret[i]));
		ret[i].dir = (uint32_t)i;
		ret[i].first = i ? s->way[i].n : 0;
		ret[i].of = i ? s->most : 0;
	}
	return n;
}

static int number_records(void *ctx, const struct infer_numbering *numbering, const struct infer_opens *opens,
			  struct infer_numbered *ret)
{
	const struct records_search *s = ctx;
	const struct way *way = &s->way[numbering->dir];

	ret->n = numbering->first ? numbering->first : way->n;
	ret->hash = way->shift << 32 | ret->n;
	ret->n_seen = 0;
	for (size_t i = 0; i < opens->n; i++)
		if (opens->sample[i] + way->shift < ret->n)
			ret->number[ret->n_seen++] = (uint32_t)(opens->sample[i] + way->shift);
	return ret->n_seen ? 0 : -ENOENT;
}

static bool has_record(void *ctx, const struct infer_numbering *way, uint32_t record)
{
	(void)ctx;
	(void)way;
	(void)record;
	return true; /* there are no parts */
}

/* --- what is found --- */

/* Without the key first=, which is the count of records and no choice of the job's. */
static void strip_first(char *spec)
{
	char *at = strstr(spec, ":first="), *end = at ? strchr(at + 1, ':') : NULL;

	if (at && end)
		memmove(at, end, strlen(end) + 1);
	else if (at)
		*at = 0;
}

/* What was found before is what the job reads: several workers look like as many ranks, which is the same shuffle by
 * another name. */
bool records_search_is_followed(struct records_search *s)
{
	bool is;

	mutex_lock(&s->mu);
	is = s->spec[0] && s->plan != INFER_PLAN_LOST;
	mutex_unlock(&s->mu);
	return is;
}

/* Of one: the last one that was found may be there beside the next. */
static uint64_t follow_memory(const struct records_search *s)
{
	return s->memory ? MAX(s->memory / 2, 1u) : 0;
}

/* The same shuffle has many names, of which the next epochs differ: the one that was found first stays. *follow is
 * the other's, and becomes that one's. */
static void keep_name(struct records_search *s, const struct way *way, char spec[INFER_SPEC_MAX],
		      struct follow **follow)
{
	struct follow *before = NULL;

	if (!s->spec[0] || s->n != way->n || strcmp(s->spec, spec) == 0 ||
	    follow_new(s->spec, way->n, way->shift, follow_memory(s), &before) < 0)
		return;
	if (!follow_is_alike(before, *follow)) {
		follow_free(before);
		return;
	}
	follow_free(*follow);
	*follow = before;
	memcpy(spec, s->spec, INFER_SPEC_MAX);
}

/* On the finder's thread. */
static int found(void *ctx, const char *text, uint64_t stamp)
{
	struct records_search *s = ctx;
	const struct way *way = &s->way[0];
	struct infer_answer answer;
	struct follow *follow = NULL;
	char spec[INFER_SPEC_MAX];
	int rc;

	(void)stamp;
	if (records_search_is_followed(s))
		return 0;
	snprintf(spec, sizeof(spec), "%s", text);
	if (infer_get_answer(s->infer, &answer) && answer.way.dir < s->n_ways && answer.way.dir > 0) {
		way = &s->way[answer.way.dir];
		strip_first(spec);
	}
	rc = follow_new(spec, way->n, way->shift, follow_memory(s), &follow);
	if (rc < 0)
		return rc;
	keep_name(s, way, spec, &follow);
	if (way->is_around)
		follow_loosely(follow);
	follow_free(atomic_exchange(&s->fresh, follow));
	if (strcmp(s->spec, spec) != 0) /* only this thread writes it */
		log_info("%s: its %" PRIu64 " records are read in the order %s", s->name, way->n, spec);
	mutex_lock(&s->mu);
	memcpy(s->spec, spec, sizeof(spec));
	s->n = way->n;
	s->is_around = way->is_around;
	s->plan = INFER_PLAN_BUSY;
	s->match = -1;
	mutex_unlock(&s->mu);
	if (s->news)
		s->news(s->news_ctx);
	return 0;
}

/* Where it is mapped, READs around a page of which the kernel has some pages begin where those end, which is no
 * record's place. In a small file soon most are such; nor are all those that are left, as the kernel reads on. */
static bool says_place(struct records_search *s, uint64_t length)
{
	bool is_around;

	mutex_lock(&s->mu);
	is_around = s->is_around;
	mutex_unlock(&s->mu);
	return !is_around || length >= MIN(2 * s->around, (uint64_t)INFER_READ_MOST);
}

uint64_t records_search_open(struct records_search *s, uint32_t record, uint64_t length)
{
	struct follow *fresh = atomic_exchange(&s->fresh, NULL);
	enum infer_plan plan;

	infer_note_open(s->infer, record);
	if (fresh) {
		follow_free(s->follow);
		s->follow = fresh;
	}
	if (!s->follow || !says_place(s, length))
		return 0;
	plan = follow_read(s->follow, record);
	infer_note_plan(s->infer, plan);
	mutex_lock(&s->mu);
	s->plan = plan;
	s->match = follow_match(s->follow);
	mutex_unlock(&s->mu);
	return follow_take_cpu(s->follow);
}

/* Of a mapped file the file's end says nothing of where READs begin. */
static void say_bounds(struct infer_record_file *ret)
{
	const struct stride_view *v = &ret->view;

	ret->low = ret->origin - MIN(v->origin - MIN(v->low, v->origin), ret->origin);
	ret->high = ret->origin + (MAX(v->high, v->origin) - v->origin);
	if (ret->around && v->low == v->high) {
		ret->low = ret->origin - MIN(ret->origin, STRIDE_PAGE);
		ret->high = ret->origin + STRIDE_PAGE - 1;
	}
	if (ret->around && !ret->origin)
		ret->high = 0;
}

void records_search_say(struct records_search *s, struct infer_record_file *ret)
{
	struct infer_status st;

	infer_get_status(s->infer, &st);
	ret->is_sought = true;
	ret->is_searching = st.is_searching;
	ret->searches = st.searches;
	ret->found_after = st.found_after;
	mutex_lock(&s->mu);
	memcpy(ret->spec, s->spec, sizeof(ret->spec));
	ret->n = s->n;
	ret->around = s->is_around ? s->around : 0;
	ret->origin = ret->around ? around_of(&ret->view, ret->around).origin : ret->view.origin;
	say_bounds(ret);
	ret->plan = s->plan;
	ret->match = s->match;
	mutex_unlock(&s->mu);
}

/* --- from start to end --- */

/* The same records, where all READs begin so much too early. */
static struct stride_view view_around(const struct stride_view *v, uint64_t around, uint64_t size)
{
	struct stride_view ret = *v;

	ret.origin = around_of(v, around).origin;
	ret.least = ret.origin - MIN(v->origin - v->least, ret.origin);
	ret.n = (size - ret.least) / v->stride;
	return ret;
}

static void add_way(struct records_search *s, uint64_t n, uint64_t shift, bool is_around)
{
	s->way[s->n_ways++] = (struct way){ n, shift, is_around };
	s->most = MAX(s->most, n);
}

bool records_search_fits(const struct records_search *s, const struct stride_view *view)
{
	return around_of(view, s->around).shift == s->shift;
}

/* Likely counts of both kinds come before less likely ones of any. */
static void make_ways(struct records_search *s, const struct stride_view *view, uint64_t size)
{
	const struct stride_view around = view_around(view, s->around, size);
	uint64_t plain[STRIDE_COUNTS], mapped[STRIDE_COUNTS];
	size_t n_plain = stride_counts(view, size, plain), n_mapped = stride_counts(&around, size, mapped);

	for (size_t i = 0; i < MAX(n_plain, n_mapped); i++) {
		if (i < n_plain)
			add_way(s, plain[i], 0, false);
		if (i < n_mapped)
			add_way(s, mapped[i], s->shift, true);
	}
}

static int start(struct records_search *s, const struct infer_records_params *p, const uint32_t *seen, size_t n_seen)
{
	const struct infer_params params = { .n = s->most,
					     .effort = MIN(p->effort, INFER_QUICK),
					     .memory = s->memory,
					     .threads = p->threads,
					     .world = p->world,
					     .is_silent = true,
					     .clock = p->clock,
					     .metrics = p->metrics,
					     .numbers = &s->numbers,
					     .found = found,
					     .ctx = s };
	struct err err = { 0 };
	int rc = infer_new(&params, &s->infer, &err);

	for (size_t i = 0; i < n_seen && rc == 0; i++)
		infer_note_open(s->infer, seen[i]);
	return rc == 0 ? infer_start(s->infer, &err) : rc;
}

int records_search_new(const struct infer_records_params *params, const struct stride_view *view, uint64_t size,
		       const char *name, const uint32_t *seen, size_t n_seen, struct records_search **ret)
{
	struct records_search *s = calloc(1, sizeof(*s));
	int rc = 0;

	*ret = NULL;
	if (!s)
		return -ENOMEM;
	mutex_init(&s->mu);
	s->memory = params->memory ? MAX(params->memory / RECORD_SEARCHES_MOST / 2, 1u) : 0;
	s->news = params->news;
	s->news_ctx = params->ctx;
	s->numbers = (struct infer_numbers){ .list = list_ways, .number = number_records, .has = has_record, .ctx = s };
	assert(params->around); /* else a mapped file is like any other */
	s->around = params->around;
	s->shift = around_of(view, s->around).shift;
	make_ways(s, view, size);
	snprintf(s->name, sizeof(s->name), "%s", name);
	if (s->most < INFER_SAMPLES_MIN)
		rc = -ENOENT;
	else if (s->most > follow_records_most(follow_memory(s)) || /* nobody could say if they are still read so */
		 (s->memory && s->most / BYTES_OF_EACH > s->memory / MEMORY_SHARE))
		rc = -E2BIG;
	if (rc == 0)
		rc = start(s, params, seen, n_seen);
	if (rc < 0) {
		records_search_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void records_search_quit(struct records_search *s)
{
	infer_quit(s->infer);
}

bool records_search_has_ended(const struct records_search *s)
{
	return infer_has_ended(s->infer);
}

void records_search_free(struct records_search *s)
{
	infer_stop(s->infer);
	infer_free(s->infer);
	follow_free(s->follow);
	follow_free(atomic_load(&s->fresh));
	mutex_fini(&s->mu);
	free(s);
}
