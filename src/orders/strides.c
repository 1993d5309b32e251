/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that looks for records in files that are cut into units. It takes notes of READs from the cache's ring and
 * gives them to module infer, which judges on this thread (up to half a second) and searches on others. What that may
 * cost infer weighs; a low priority would make unmounting and readers of status wait for a busy CPU. While it judges,
 * READs that find the ring full are not heard of. Where nothing is read it sleeps, until a search has found something.
 *
 *	READ -> ring (cache/reads.h) -> cl-strides, twenty times a second -> infer/records.h -> status
 *	                                                                     found -> records_found.c
 *
 * Once the records of a file are units the planner notes those that are come to, in place of READs. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "clairfs/cache/reads.h"
#include "clairfs/dataset/units.h"
#include "clairfs/infer/records.h"
#include "orders_priv.h"
#include "taken.h"

#define REST_NS (50 * NS_PER_MS)
#define IDLE_ROUNDS 20u
#define NOTES 256u
#define MEMORY_SHARE 16u /* of ram, for all searches together */
#define LAST 1024u  /* READs that are known */
#define BEGUN 256u  /* records of these that the plan is shown */
#define PAGE 4096u

static_assert(TAKEN_NO_JOB == DRIVE_NO_JOB, "no job is no job");

struct last_read {
	uint32_t file;
	uint64_t offset;
};

struct strides {
	struct orders *o;
	struct reads *reads;
	struct infer_records *records;
	struct thr thr;
	struct taken_list taken; /* the thread's; changed under mu */
	struct last_read last[LAST]; /* the thread's; ring */
	uint32_t n_last;
	struct infer_record_file *known; /* likewise; [INFER_RECORD_FILES], of which it has n_known */
	size_t n_known;
	struct mutex mu; /* a leaf */
	struct cond cv;
	bool is_stopping; /* mu */
};

static void name_of(void *ctx, uint32_t file, char out[INFER_NAME_MAX])
{
	const struct strides *s = ctx;
	char path[PATH_MAX];

	if (dataset_path(s->o->dataset, (struct entry_id){ file }, path, sizeof(path)) < 0)
		snprintf(out, INFER_NAME_MAX, "file %" PRIu32, file);
	else
		(void)text_escape(path, strlen(path), out, INFER_NAME_MAX);
}

/* An order was found. The job may compute just now, and read nothing. */
static void wake(void *ctx)
{
	const struct strides *s = ctx;

	reads_wake(s->reads);
}

int strides_new(struct orders *o, struct strides **ret, struct err *err)
{
	struct strides *s;
	const struct orders_search *search = &o->search;
	struct infer_records_params params = { .effort = search->effort,
					       .memory = search->ram / MEMORY_SHARE,
					       .threads = search->threads,
					       .world = search->world,
					       .around = search->around,
					       .clock = o->clock,
					       .metrics = search->metrics,
					       .name = name_of,
					       .news = wake };
	int rc;

	*ret = NULL;
	if (search->effort == INFER_OFF || !dataset_unit_map(o->dataset)->first)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	s->o = o;
	mutex_init(&s->mu);
	cond_init(&s->cv);
	params.ctx = s;
	s->known = calloc(INFER_RECORD_FILES, sizeof(*s->known));
	rc = s->known ? reads_new(&s->reads) : -ENOMEM;
	if (rc == 0)
		rc = infer_records_new(&params, &s->records);
	if (rc < 0) {
		strides_free(s);
		return err_set_errno(err, rc, "looking for records");
	}
	*ret = s;
	return 0;
}

void strides_free(struct strides *s)
{
	if (!s)
		return;
	infer_records_free(s->records);
	reads_free(s->reads);
	free(s->known);
	cond_fini(&s->cv);
	mutex_fini(&s->mu);
	free(s);
}

struct reads *strides_reads(const struct strides *s)
{
	return s ? s->reads : NULL;
}

/* As a READ of the record would be, so that it has the number that it always had. */
static void note_record(struct strides *s, struct infer_record_read *read)
{
	struct taken *t = taken_of(&s->taken, read->file);

	read->offset = ALIGN_DOWN(read->offset, (uint64_t)PAGE);
	if (!t)
		return;
	t->come++;
	if (!t->around)
		return;
	read->offset -= MIN(read->offset, t->around);
	read->length = MAX(read->length, 2 * t->around);
}

static void take_note(struct strides *s, const struct read_note *note)
{
	struct infer_record_read read = {
		.file = note->entry.v,
		.reader = note->reader,
		.size = dataset_size(s->o->dataset, note->entry),
		.offset = note->offset,
		.length = note->length,
		.at_ns = note->at_ns,
	};

	if (note->is_record)
		note_record(s, &read);
	s->last[s->n_last++ % LAST] = (struct last_read){ read.file, read.offset };
	infer_records_read(s->records, &read);
}

/* Returns how many there were. */
static uint32_t drain(struct strides *s)
{
	struct read_note note[NOTES];
	uint32_t n, all = 0;

	do {
		n = reads_take(s->reads, note, NOTES);
		for (uint32_t i = 0; i < n; i++)
			take_note(s, &note[i]);
		all += n;
	} while (n == NOTES && all < READS_MAX); /* what comes meanwhile has time until the next round */
	return all;
}

/* --- what was found is followed --- */

/* The number, by the order, of the record that a READ from there on begins; or false. */
static bool number_of(const struct infer_record_file *f, uint64_t offset, uint32_t *ret)
{
	uint64_t at = offset + f->around, k;

	if (at + PAGE - 1 < f->low)
		return false;
	k = (at + PAGE - 1 - f->low) / f->view.stride;
	*ret = (uint32_t)MIN(k, (uint64_t)UINT32_MAX);
	return k < f->n && at <= f->high + k * f->view.stride;
}

/* The records that were read last, each once in a row. */
static size_t list_begun(const struct strides *s, const struct infer_record_file *f, uint32_t ret[BEGUN])
{
	uint32_t back = MIN(s->n_last, LAST), number, from = BEGUN;

	for (uint32_t i = 1; i <= back && from > 0; i++) {
		const struct last_read *r = &s->last[(s->n_last - i) % LAST];

		if (r->file == f->file && number_of(f, r->offset, &number) &&
		    (from == BEGUN || ret[from] != number))
			ret[--from] = number;
	}
	memmove(ret, &ret[from], (BEGUN - from) * sizeof(*ret));
	return BEGUN - from;
}

/* Its order and its records are known for sure, and worth requests of their own. */
static bool is_known(const struct infer_record_file *f)
{
	return f->view.kind == STRIDE_RECORDS && f->view.stride_least == f->view.stride_most &&
	       f->view.stride >= UNIT_RECORD_LEAST && f->spec[0] && f->n >= 2 && f->n < UINT32_MAX &&
	       f->plan != INFER_PLAN_LOST && !f->is_over && f->low <= f->origin &&
	       f->origin <= f->high;
}

/* There is nothing to remember: of a file that is not looked at any more and was never cut. */
static bool is_free(const struct strides *s, const struct taken *t)
{
	for (size_t i = 0; i < s->n_known; i++)
		if (s->known[i].file == t->file)
			return false;
	return !dataset_is_in_records(s->o->dataset, (struct entry_id){ t->file });
}

/* Its entry, or NULL: it is not to be tried now. */
static struct taken *entry_to_try(struct strides *s, const struct infer_record_file *f)
{
	struct taken *t = taken_of(&s->taken, f->file);
	bool is_followed = t && records_are_followed(s->o, t->id, NULL);
	uint64_t now_ns = clock_now(s->o->clock);
	bool free_ones[INFER_RECORD_FILES];

	for (uint32_t i = 0; i < INFER_RECORD_FILES; i++)
		free_ones[i] = is_free(s, &s->taken.one[i]);
	mutex_lock(&s->mu);
	t = taken_to_try(&s->taken, f, is_followed, free_ones, now_ns);
	mutex_unlock(&s->mu);
	return t;
}

static const char *say_why_not(int rc)
{
	switch (rc) {
	case 0:
		return NULL;
	case -EBUSY:
		return "another order is in force, or none is to be";
	case -ENOSPC:
		return "as many jobs are at work as there may be";
	case -ENOTSUP:
		return "who goes through a file is better off with that";
	default:
		return "there is no room for its records, or they do not fit";
	}
}

/* Where it was refused, the job that there is has the order that it had. */
static void note_tried(struct strides *s, struct taken *t, const struct infer_record_file *f, uint32_t id,
		       int rc, const char *why_not)
{
	const struct taken_outcome outcome = { id, rc, why_not, clock_now(s->o->clock) };

	mutex_lock(&s->mu);
	taken_note(t, f, &outcome);
	mutex_unlock(&s->mu);
}

static void try_to_follow(struct strides *s, struct taken *t, const struct infer_record_file *f)
{
	uint32_t begun[BEGUN];
	struct records_found found = {
		.at = { .entry = { f->file },
			.stride = f->view.stride,
			.low = f->low,
			.at = f->origin,
			.high = f->high,
			.n = (uint32_t)f->n,
			.around = (uint32_t)f->around },
		.n = (uint32_t)f->n,
		.begun = begun,
		.n_begun = list_begun(s, f, begun),
		.id = t->tried.n && t->file == f->file ? t->id : DRIVE_NO_JOB,
	};
	struct err err = { 0 };
	char name[INFER_NAME_MAX];
	int rc;

	if (dataset_has_records(s->o->dataset) && !strides_has_table(s->o->dataset, f)) {
		note_tried(s, t, f, found.id, -ENOTSUP, "there is a table of other records");
		return;
	}
	if (2 * f->around > INFER_READ_MOST) { /* several READs, any of which may have the page */
		note_tried(s, t, f, found.id, -ENOTSUP,
			   "the file is mapped, and the kernel reads much around each page");
		return;
	}
	rc = records_follow(s->o, f->spec, &found, &err);
	name_of(s, f->file, name);
	if (rc == 0)
		log_info("%s: its records are fetched ahead, in the order that was found", name);
	else if (!taken_is_passing(rc))
		log_info("%s: its records are not fetched ahead: %s", name, err.msg);
	note_tried(s, t, f, found.id, rc, say_why_not(rc));
}

static void follow_found(struct strides *s)
{
	s->n_known = infer_records_get(s->records, s->known);
	for (size_t i = 0; i < s->n_known; i++) {
		const struct infer_record_file *f = &s->known[i];
		struct taken *t = is_known(f) ? entry_to_try(s, f) : NULL;

		if (t)
			try_to_follow(s, t, f);
	}
}

/* False: it is to end. */
static bool rest(struct strides *s, uint64_t ns)
{
	bool is_stopping;

	mutex_lock(&s->mu);
	if (ns && !s->is_stopping)
		(void)cond_wait_for(&s->cv, &s->mu, ns);
	is_stopping = s->is_stopping;
	mutex_unlock(&s->mu);
	return !is_stopping;
}

static void *strides_main(void *arg)
{
	struct strides *s = arg;
	uint32_t idle = IDLE_ROUNDS;

	do {
		if (idle >= IDLE_ROUNDS) {
			reads_wait(s->reads);
			idle = 0;
			if (!rest(s, 0))
				break;
		}
		idle = drain(s) ? 0 : idle + 1;
		infer_records_step(s->records, clock_now(s->o->clock));
		if (idle < IDLE_ROUNDS && dataset_n_reserved(s->o->dataset))
			follow_found(s);
	} while (rest(s, REST_NS));
	return NULL;
}

int strides_start(struct strides *s, struct err *err)
{
	return s ? thr_start(&s->thr, "cl-strides", strides_main, s, err) : 0;
}

void strides_quit(struct strides *s)
{
	if (s)
		infer_records_quit(s->records);
}

void strides_stop(struct strides *s)
{
	if (!s)
		return;
	strides_quit(s);
	mutex_lock(&s->mu);
	s->is_stopping = true;
	cond_signal(&s->cv);
	mutex_unlock(&s->mu);
	reads_wake(s->reads);
	thr_join(&s->thr);
}

uint64_t strides_lost(const struct strides *s)
{
	return s ? reads_lost(s->reads) : 0;
}

static struct strides_state state_of(struct strides *s, const struct infer_record_file *f)
{
	struct strides_state ret = { .is_followed = false };
	const struct taken *t;
	struct drive_job job;
	uint32_t id = DRIVE_NO_JOB;

	mutex_lock(&s->mu);
	t = taken_of(&s->taken, f->file);
	if (t) {
		id = t->id;
		memcpy(ret.spec, t->followed.spec, sizeof(ret.spec));
		ret.why_not = taken_is_same(&t->followed, f) ? "it was, until it was over or another came" : t->why_not;
	}
	mutex_unlock(&s->mu);
	ret.is_followed = records_are_followed(s->o, id, &job);
	ret.is_lost = ret.is_followed && job.plan.state == PLAN_LOST;
	if (ret.is_followed)
		ret.why_not = NULL;
	return ret;
}

json_t *strides_json(struct strides *s)
{
	AUTO_FREE struct infer_record_file *file = NULL;
	json_t *json = json_array();
	size_t n;

	if (!s)
		return json;
	file = calloc(INFER_RECORD_FILES, sizeof(*file));
	n = file ? infer_records_get(s->records, file) : 0;
	for (size_t i = 0; i < n; i++) {
		struct strides_state state = state_of(s, &file[i]);

		(void)json_array_append_new(json, strides_say(s->o, &file[i], &state));
	}
	return json;
}
