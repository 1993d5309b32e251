/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be believed of the structs that jobs send by ioctl. The sizes come from the number of
 * the ioctl, which is the sender's own; the kernel has copied so many bytes and no more. Runs on
 * the reactor before anything is kept or queued.
 */
#include "hint_check.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

const char *hint_text(const struct clairfs_hint *hint)
{
	return (const char *)hint + offsetof(struct clairfs_hint, text);
}

const char *hint_job(const struct clairfs_hint *hint)
{
	return hint->version == CLAIRFS_HINT_VERSION_NAMELESS ? "" : hint->job;
}

/* Of version 1 the text goes on where the name is since. */
static bool has_end(const struct clairfs_hint *hint)
{
	return memchr(hint_text(hint), 0, sizeof(*hint) - offsetof(struct clairfs_hint, text));
}

static bool has_ends(const char *text, size_t size, const char job[CLAIRFS_HINT_JOB])
{
	return memchr(text, 0, size) && memchr(job, 0, CLAIRFS_HINT_JOB);
}

int hint_check(const void *in, size_t in_size, size_t out_size, struct clairfs_hint *ret)
{
	if (in_size < sizeof(*ret) || out_size < sizeof(*ret))
		return -ENOTTY;
	memcpy(ret, in, sizeof(*ret));
	if (ret->version == CLAIRFS_HINT_VERSION_NAMELESS)
		return has_end(ret) ? 0 : -EPROTO;
	if (ret->version != CLAIRFS_HINT_VERSION)
		return -EPROTO;
	return has_ends(ret->text, sizeof(ret->text), ret->job) ? 0 : -EPROTO;
}

static bool is_list_right(const struct clairfs_list *list)
{
	const uint32_t raw = CLAIRFS_LIST_U32 | CLAIRFS_LIST_U64;
	const uint32_t any = CLAIRFS_LIST_LAST | CLAIRFS_LIST_NAMED;

	if (list->version == CLAIRFS_LIST_VERSION)
		return !(list->flags & ~any) && list->count <= CLAIRFS_LIST_SAMPLES;
	return list->version == CLAIRFS_LIST_VERSION_BYTES && list->flags & CLAIRFS_LIST_BYTES &&
	       !(list->flags & ~(any | CLAIRFS_LIST_BYTES | raw)) &&
	       (list->flags & raw) != raw && list->count <= sizeof(list->sample);
}

int hint_check_list(const void *in, size_t in_size, size_t out_size, struct clairfs_list *ret)
{
	if (in_size < sizeof(*ret) || out_size < sizeof(*ret))
		return -ENOTTY;
	memcpy(ret, in, sizeof(*ret));
	if (!(ret->flags & CLAIRFS_LIST_NAMED))
		ret->job[0] = '\0';
	return is_list_right(ret) && has_ends(ret->text, sizeof(ret->text), ret->job) ? 0 : -EPROTO;
}

int hint_check_steps(const void *in, size_t in_size, struct clairfs_steps *ret)
{
	if (in_size < sizeof(*ret))
		return -ENOTTY;
	memcpy(ret, in, sizeof(*ret));
	if (ret->magic != CLAIRFS_STEPS_MAGIC || ret->version != CLAIRFS_STEPS_VERSION ||
	    ret->count > CLAIRFS_STEPS)
		return -EPROTO;
	return 0;
}
