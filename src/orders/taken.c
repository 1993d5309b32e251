/* SPDX-License-Identifier: Apache-2.0 */
/* An order is tried once. One that was in force and is over is tried again when enough of its records were read, as
 * it may be another epoch; one that was refused for what may pass, a while later. Another order of the file is tried
 * at once, whatever became of the one before. An entry goes to another file when nobody reads its own, which was
 * never cut.
 *
 *	nobody's -> tried -> followed -> over: come again TAKEN_COME_AGAIN times -> tried
 *	                  -> refused: after TAKEN_RETRY_NS, or never             -> tried */
#include "taken.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "clairfs/base/cleanup.h"

struct taken *taken_of(struct taken_list *list, uint32_t file)
{
	for (uint32_t i = 0; i < ARRAY_LEN(list->one); i++)
		if (list->one[i].tried.n && list->one[i].file == file)
			return &list->one[i];
	return NULL;
}

bool taken_is_same(const struct taken_order *order, const struct infer_record_file *f)
{
	return order->n == f->n && strcmp(order->spec, f->spec) == 0;
}

/* None is in force any more. */
static void note_over(struct taken *t)
{
	t->id = TAKEN_NO_JOB;
	t->come = 0;
}

struct taken *taken_to_try(struct taken_list *list, const struct infer_record_file *f, bool is_followed,
			   const bool *is_free, uint64_t now_ns)
{
	struct taken *t = taken_of(list, f->file);

	assert(f->n > 0 && f->spec[0]);
	for (uint32_t i = 0; !t && i < ARRAY_LEN(list->one); i++)
		if (!list->one[i].tried.n || is_free[i])
			return &list->one[i];
	if (!t)
		return NULL;
	if (!is_followed && t->id != TAKEN_NO_JOB)
		note_over(t);
	if (taken_is_same(&t->followed, f) && (is_followed || t->come < TAKEN_COME_AGAIN))
		return NULL;
	if (!taken_is_same(&t->tried, f))
		return t;
	if (t->around != f->around) /* another job, which maps the file or does not */
		return t;
	return t->is_refused || now_ns < t->retry_ns ? NULL : t;
}

bool taken_is_passing(int rc)
{
	return rc == -EBUSY || rc == -ENOSPC || rc == -ECANCELED;
}

void taken_note(struct taken *t, const struct infer_record_file *f, const struct taken_outcome *outcome)
{
	if (t->file != f->file) /* it was another's */
		*t = (struct taken){ .file = f->file };
	t->id = outcome->id;
	t->around = f->around;
	t->tried.n = (uint32_t)f->n;
	memcpy(t->tried.spec, f->spec, sizeof(t->tried.spec));
	t->retry_ns = outcome->now_ns + TAKEN_RETRY_NS;
	t->is_refused = outcome->rc < 0 && !taken_is_passing(outcome->rc);
	t->why_not = outcome->why_not;
	if (outcome->rc == 0) {
		t->followed = t->tried;
		t->come = 0;
	}
}
