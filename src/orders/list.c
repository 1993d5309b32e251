/* SPDX-License-Identifier: Apache-2.0 */
/* A list of samples that a job hands over in parts, because of its container nothing but the mount
 * can be seen, or because the file is one that the daemon does not read for others: sample numbers,
 * or the bytes of a list file. Of each lane (fs.h) one is in the making: who begins another one
 * gets it, so what was left behind by a job that died is freed at the next, and a loop of
 * beginnings takes no memory. A list may be longer than the dataset (samples drawn with
 * replacement, many epochs), but not by any factor.
 *
 * Runs on the lane's thread only. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/hint.h"
#include "orders_priv.h"

#define MORE_THAN_ALL 4
#define ALWAYS_ALLOWED (1u << 20)
#define BYTES_OF_SAMPLE 64
#define BYTES_ALWAYS_ALLOWED (64u << 20)

void told_list_fini(struct told_list *list)
{
	free(list->data);
	list->data = NULL;
	list->size = list->capacity = 0;
	list->width = 0;
	list->is_begun = false;
}

void told_list_params(const struct told_list *list, struct order_params *params)
{
	if (list->is_bytes) {
		params->bytes = list->data;
		params->n_bytes = list->size;
		params->bytes_width = list->width;
	} else {
		params->told = (const uint32_t *)(const void *)list->data;
		params->n_told = list->size / sizeof(uint32_t);
	}
}

static int too_long(const struct told_list *list, uint64_t limit, struct err *err)
{
	if (list->is_bytes)
		return err_set(err, -EFBIG,
			       "the list has more than %" PRIu64 " bytes: put it beneath the "
			       "source, or give it to the mount as option order",
			       limit);
	return err_set(err, -EFBIG, "the list has more than %" PRIu64 " samples",
		       limit / sizeof(uint32_t));
}

static int list_reserve(struct told_list *list, uint64_t size, uint64_t limit, struct err *err)
{
	uint64_t capacity = MIN(MAX(list->capacity * 2, 1u << 18), limit);
	uint8_t *more;

	if (size > limit)
		return too_long(list, limit, err);
	if (list->data && size <= list->capacity)
		return 0;
	more = realloc(list->data, capacity);
	if (!more)
		return err_set(err, -ENOMEM, "out of memory for a list of %" PRIu64 " bytes",
			       capacity);
	assert(size <= capacity); /* a part is smaller than what is added */
	list->data = more;
	list->capacity = capacity;
	return 0;
}

static int check_numbers(const struct told_list *list, const struct clairfs_list *part,
			 uint32_t n_samples, struct err *err)
{
	for (uint32_t i = 0; i < part->count; i++)
		if (part->sample[i] >= n_samples)
			return err_set(err, -EINVAL,
				       "entry %" PRIu64
				       ": sample %u is out of range, the dataset has %u",
				       list->size / sizeof(uint32_t) + i + 1, part->sample[i],
				       n_samples);
	return 0;
}

static void begin(struct told_list *list, const struct clairfs_list *part)
{
	told_list_fini(list);
	list->is_begun = true;
	list->is_bytes = part->flags & CLAIRFS_LIST_BYTES;
	list->token++;
}

static int add_part(struct told_list *list, const struct clairfs_list *part, uint32_t n_samples,
		    struct err *err)
{
	bool is_bytes = part->flags & CLAIRFS_LIST_BYTES;
	uint64_t limit, size = part->count;
	int rc = 0;

	if (part->token == 0)
		begin(list, part);
	else if (!list->is_begun || part->token != list->token)
		return err_set(err, -ESTALE, "another list was begun meanwhile");
	if (is_bytes) {
		limit = (uint64_t)n_samples * BYTES_OF_SAMPLE + BYTES_ALWAYS_ALLOWED;
	} else {
		limit = ((uint64_t)n_samples * MORE_THAN_ALL + ALWAYS_ALLOWED) * sizeof(uint32_t);
		size *= sizeof(uint32_t);
		rc = check_numbers(list, part, n_samples, err);
	}
	if (is_bytes != list->is_bytes)
		rc = err_set(err, -EINVAL, "a list is of numbers or of bytes, not of both");
	if (rc == 0)
		rc = list_reserve(list, list->size + size, limit, err);
	if (rc < 0) {
		told_list_fini(list);
		return rc;
	}
	memcpy(list->data + list->size, part->sample, size);
	list->size += size;
	return 0;
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
	if (part->flags & (CLAIRFS_LIST_U32 | CLAIRFS_LIST_U64))
		list->width = part->flags & CLAIRFS_LIST_U32 ? 4 : 8;
	if (asprintf(&text, "list:path=told%s%s", part->text[0] ? ":" : "", part->text) < 0)
		rc = err_set(err, -ENOMEM, "out of memory");
	else
		rc = order_spec_parse(text, ret, err);
	if (rc < 0)
		told_list_fini(list);
	return rc;
}
