/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes of any size as the structs that jobs send by ioctl. What is accepted has
 * texts that end, and counts within its arrays; nothing behind the size that was sent is read. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "src/fs/hint_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_hint(const struct clairfs_hint *hint)
{
	bool is_nameless = hint->version == CLAIRFS_HINT_VERSION_NAMELESS;
	size_t most = sizeof(hint->text) + (is_nameless ? sizeof(hint->job) : 0);

	assert(is_nameless || hint->version == CLAIRFS_HINT_VERSION);
	assert(memchr(hint_text(hint), 0, most));
	assert(is_nameless || memchr(hint->job, 0, sizeof(hint->job)));
	assert(strlen(hint_job(hint)) <= (is_nameless ? 0 : sizeof(hint->job)));
}

static void check_list(const struct clairfs_list *list)
{
	size_t width = list->flags & CLAIRFS_LIST_BYTES ? 1 : sizeof(list->sample[0]);

	assert(memchr(list->text, 0, sizeof(list->text)));
	assert(memchr(list->job, 0, sizeof(list->job)));
	assert(list->flags & CLAIRFS_LIST_NAMED || !list->job[0]);
	assert(list->count * width <= sizeof(list->sample));
	assert((list->version == CLAIRFS_LIST_VERSION_BYTES) ==
	       !!(list->flags & CLAIRFS_LIST_BYTES));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct clairfs_steps steps;
	static struct clairfs_hint hint;
	static struct clairfs_list list;
	int rc = hint_check(data, size, size, &hint);

	assert((rc == -ENOTTY) == (size < sizeof(hint)));
	if (rc == 0)
		check_hint(&hint);
	rc = hint_check_list(data, size, size, &list);
	assert((rc == -ENOTTY) == (size < sizeof(list)));
	if (rc == 0)
		check_list(&list);
	rc = hint_check_steps(data, size, &steps);
	assert((rc == -ENOTTY) == (size < sizeof(steps)));
	assert(rc < 0 || steps.count <= CLAIRFS_STEPS);
	/* A size of the answer that is too small is refused whatever was sent. */
	assert(hint_check(data, size, sizeof(hint) - 1, &hint) == -ENOTTY);
	assert(hint_check_list(data, size, sizeof(list) - 1, &list) == -ENOTTY);
	return 0;
}
