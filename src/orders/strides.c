/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that looks for records in files that are cut into units. It takes notes of READs from the cache's ring and
 * gives them to module infer, which judges on this thread (up to half a second) and searches on others. What that may
 * cost infer weighs; a low priority would make unmounting and readers of status wait for a busy CPU. While it judges,
 * READs that find the ring full are not heard of. Where nothing is read it sleeps.
 *
 *	READ -> ring (cache/reads.h) -> cl-strides, twenty times a second -> infer/records.h -> status */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/cache/reads.h"
#include "clairfs/dataset/units.h"
#include "clairfs/infer/records.h"
#include "orders_priv.h"

#define REST_NS (50 * NS_PER_MS)
#define IDLE_ROUNDS 20u
#define NOTES 256u
#define MEMORY_SHARE 16u /* of ram, for all searches together */

struct strides {
	struct orders *o;
	struct reads *reads;
	struct infer_records *records;
	struct thr thr;
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

int strides_new(struct orders *o, struct strides **ret, struct err *err)
{
	struct strides *s;
	const struct orders_search *search = &o->search;
	struct infer_records_params params = { .effort = search->effort,
					       .memory = search->ram / MEMORY_SHARE,
					       .threads = search->threads,
					       .world = search->world,
					       .clock = o->clock,
					       .metrics = search->metrics,
					       .name = name_of };
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
	rc = reads_new(&s->reads);
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
	cond_fini(&s->cv);
	mutex_fini(&s->mu);
	free(s);
}

struct reads *strides_reads(const struct strides *s)
{
	return s ? s->reads : NULL;
}

/* Returns how many there were. */
static uint32_t drain(struct strides *s)
{
	struct read_note note[NOTES];
	uint32_t n, all = 0;

	do {
		n = reads_take(s->reads, note, NOTES);
		for (uint32_t i = 0; i < n; i++) {
			const struct infer_record_read read = {
				.file = note[i].entry.v,
				.reader = note[i].reader,
				.size = dataset_size(s->o->dataset, note[i].entry),
				.offset = note[i].offset,
				.length = note[i].length,
				.at_ns = note[i].at_ns,
			};

			infer_records_read(s->records, &read);
		}
		all += n;
	} while (n == NOTES && all < READS_MAX); /* what comes meanwhile has time until the next round */
	return all;
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
		if (idle >= IDLE_ROUNDS)
			reads_wait(s->reads);
		idle = drain(s) ? 0 : idle + 1;
		infer_records_step(s->records, clock_now(s->o->clock));
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

json_t *strides_json(struct strides *s)
{
	AUTO_FREE struct infer_record_file *file = NULL;
	json_t *json = json_array();
	size_t n;

	if (!s)
		return json;
	file = calloc(INFER_RECORD_FILES, sizeof(*file));
	n = file ? infer_records_get(s->records, file) : 0;
	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(json, strides_say(s->o, &file[i]));
	return json;
}
