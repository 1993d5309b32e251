/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of descriptors kept open. A file of many pieces would be opened once per piece, which
 * on a parallel filesystem is a round trip to the metadata server each time; so the descriptor of
 * the first read is kept, least recently used ones are closed, and one that is older than
 * twice max_age_ns is not trusted: it may be a file that has been replaced under its name.
 *
 * A descriptor that a read uses is never closed: it is detached from the table and dies with its
 * last user. Any thread; one lock, held for a few pointer moves, never over open() or close(): dead
 * files are collected in a list of the caller, who reaps it after having answered the read.
 */
#include "source_priv.h"

#include <assert.h>
#include <errno.h>

#include "clairfs/base/clock.h"

int kept_files_init(struct kept_files *files, const struct source_params *params)
{
	uint32_t n = 16;

	while (n < params->open_files && n < (1u << 20))
		n *= 2;
	files->buckets = calloc(n, sizeof(files->buckets[0]));
	if (!files->buckets)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		list_init(&files->buckets[i]);
	mutex_init(&files->mu);
	list_init(&files->by_use);
	files->n_buckets = n;
	files->n_files = 0;
	files->limit = params->open_files;
	files->max_age_ns = params->reopen_ns;
	files->clock = params->clock ? params->clock : clock_monotonic();
	return 0;
}

static struct list *kept_bucket(struct kept_files *files, struct entry_id entry)
{
	uint32_t hash = entry.v * 0x9e3779b1u; /* entries are dense numbers: any mixing will do */

	return &files->buckets[(hash >> 12) & (files->n_buckets - 1)];
}

static struct kept_file *kept_find_locked(struct kept_files *files, struct entry_id entry)
	REQUIRES(files->mu)
{
	struct list *bucket = kept_bucket(files, entry);

	for (struct list *node = bucket->next; node != bucket; node = node->next) {
		struct kept_file *file = container_of(node, struct kept_file, bucket);

		if (entry_eq(file->entry, entry))
			return file;
	}
	return NULL;
}

static void detach_locked(struct kept_files *files, struct kept_file *file, struct list *dead)
	REQUIRES(files->mu)
{
	assert(!file->is_detached && files->n_files > 0);
	list_remove(&file->bucket);
	list_remove(&file->use);
	file->is_detached = true;
	files->n_files--;
	if (file->users == 0)
		list_push_tail(dead, &file->use);
}

static enum kept_state kept_state_of(const struct kept_files *files, const struct kept_file *file,
				     uint64_t now)
{
	uint64_t age = file ? now - file->opened_ns : 0;

	if (!file || age / 2 >= files->max_age_ns)
		return KEPT_NONE;
	return age >= files->max_age_ns ? KEPT_DUE : KEPT_GOOD;
}

struct kept_file *kept_file_get(struct kept_files *files, struct entry_id entry,
				const struct file_identity *identity, struct list *dead)
{
	uint64_t now = clock_now(files->clock);
	struct kept_file *file;

	mutex_lock(&files->mu);
	file = kept_find_locked(files, entry);
	if (file && (kept_state_of(files, file, now) == KEPT_NONE ||
		     !file_identity_eq(&file->identity, identity))) {
		detach_locked(files, file, dead);
		file = NULL;
	}
	if (file) {
		file->users++;
		list_remove(&file->use);
		list_push_tail(&files->by_use, &file->use);
	}
	mutex_unlock(&files->mu);
	return file;
}

enum kept_state kept_file_state(struct kept_files *files, struct entry_id entry)
{
	uint64_t now = clock_now(files->clock);
	enum kept_state state;

	mutex_lock(&files->mu);
	state = kept_state_of(files, kept_find_locked(files, entry), now);
	mutex_unlock(&files->mu);
	return state;
}

void kept_file_put(struct kept_files *files, struct kept_file *file, bool is_bad, struct list *dead)
{
	mutex_lock(&files->mu);
	assert(file->users > 0);
	file->users--;
	if (file->is_detached) {
		if (file->users == 0)
			list_push_tail(dead, &file->use);
	} else if (is_bad) {
		detach_locked(files, file, dead);
	}
	mutex_unlock(&files->mu);
}

/* Makes room for one more; files nobody will get any more because of their age go first. */
static void shrink_locked(struct kept_files *files, uint64_t now, struct list *dead)
	REQUIRES(files->mu)
{
	while (!list_is_empty(&files->by_use)) {
		struct kept_file *file = container_of(files->by_use.next, struct kept_file, use);

		if (files->n_files < files->limit && kept_state_of(files, file, now) != KEPT_NONE)
			break;
		detach_locked(files, file, dead);
	}
}

void kept_file_add(struct kept_files *files, struct entry_id entry,
		   const struct file_identity *identity, int take_descriptor, struct list *dead)
{
	struct kept_file *file = calloc(1, sizeof(*file)), *old;

	assert(take_descriptor >= 0);
	if (!file || files->limit == 0) {
		free(file);
		close(take_descriptor);
		return;
	}
	file->entry = entry;
	file->identity = *identity;
	file->fd = take_descriptor;
	file->opened_ns = clock_now(files->clock);
	mutex_lock(&files->mu);
	old = kept_find_locked(files, entry);
	if (old) /* of a read that ran beside ours; ours is younger */
		detach_locked(files, old, dead);
	shrink_locked(files, file->opened_ns, dead);
	list_push_tail(kept_bucket(files, entry), &file->bucket);
	list_push_tail(&files->by_use, &file->use);
	files->n_files++;
	assert(files->n_files <= files->limit);
	mutex_unlock(&files->mu);
}

void kept_file_forget(struct kept_files *files, struct entry_id entry, struct list *dead)
{
	struct kept_file *file;

	mutex_lock(&files->mu);
	file = kept_find_locked(files, entry);
	if (file)
		detach_locked(files, file, dead);
	mutex_unlock(&files->mu);
}

void kept_files_reap(struct list *dead)
{
	struct list *node;

	while ((node = list_pop_head(dead))) {
		struct kept_file *file = container_of(node, struct kept_file, use);

		assert(file->is_detached && file->users == 0);
		close(file->fd);
		free(file);
	}
}

void kept_files_fini(struct kept_files *files)
{
	struct list dead;

	list_init(&dead);
	mutex_lock(&files->mu);
	while (!list_is_empty(&files->by_use))
		detach_locked(files, container_of(files->by_use.next, struct kept_file, use),
			      &dead);
	assert(files->n_files == 0);
	mutex_unlock(&files->mu);
	kept_files_reap(&dead);
	mutex_fini(&files->mu);
	free(files->buckets);
}
