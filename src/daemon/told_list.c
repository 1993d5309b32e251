/* SPDX-License-Identifier: Apache-2.0 */
/* A list of samples that a job hands over in parts, because of its container nothing but the mount
 * can be seen. One at a time is in the making: who begins another one gets it, so what was left
 * behind by a job that died is freed at the next, and a loop of beginnings takes no memory. A list
 * may be longer than the dataset (samples drawn with replacement), but not by any factor.
 *
 * Runs on the announce thread only. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/hint.h"
#include "daemon_priv.h"

#define MORE_THAN_ALL 4
#define ALWAYS_ALLOWED (1u << 20)

void told_list_fini(struct told_list *list)
{
	free(list->sample);
	list->sample = NULL;
	list->n = list->capacity = 0;
	list->is_begun = false;
}

static int reserve(struct told_list *list, uint64_t n, uint64_t limit, struct err *err)
{
	uint64_t capacity = MIN(MAX(list->capacity * 2, 65536), limit);
	uint32_t *more;

	if (n > limit)
		return err_set(err, -EFBIG, "the list has more than %" PRIu64 " samples", limit);
	if (list->sample && n <= list->capacity)
		return 0;
	more = realloc(list->sample, capacity * sizeof(*more));
	if (!more)
		return err_set(err, -ENOMEM, "out of memory for %" PRIu64 " samples", capacity);
	list->sample = more;
	list->capacity = capacity;
	return 0;
}

static int add_part(struct told_list *list, const struct clairfs_list *part, uint32_t n_samples,
		    struct err *err)
{
	uint64_t limit = (uint64_t)n_samples * MORE_THAN_ALL + ALWAYS_ALLOWED;
	int rc;

	if (part->token == 0) {
		told_list_fini(list);
		list->is_begun = true;
		list->token++;
	} else if (!list->is_begun || part->token != list->token) {
		return err_set(err, -ESTALE, "another list was begun meanwhile");
	}
	rc = reserve(list, list->n + part->count, limit, err);
	for (uint32_t i = 0; rc == 0 && i < part->count; i++) {
		if (part->sample[i] >= n_samples)
			rc = err_set(err, -EINVAL,
				     "entry %" PRIu64
				     ": sample %u is out of range, the dataset has %u",
				     list->n + i + 1, part->sample[i], n_samples);
		else
			list->sample[list->n + i] = part->sample[i];
	}
	if (rc < 0)
		told_list_fini(list);
	else
		list->n += part->count;
	return rc;
}

int told_list_add(struct told_list *list, struct clairfs_list *part, uint32_t n_samples,
		  struct order_spec **ret, struct err *err)
{
	AUTO_FREE char *text = NULL;
	int rc = add_part(list, part, n_samples, err);

	*ret = NULL;
	if (rc == 0) /* nobody is told the token of somebody else's list */
		part->token = list->token;
	if (rc < 0 || !(part->flags & CLAIRFS_LIST_LAST))
		return rc;
	if (asprintf(&text, "list:path=told%s%s", part->text[0] ? ":" : "", part->text) < 0)
		rc = err_set(err, -ENOMEM, "out of memory");
	else
		rc = order_spec_parse(text, ret, err);
	if (rc < 0)
		told_list_fini(list);
	return rc;
}
