/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at the source for a reader who waits for a file's size. For a file that is empty as far as
 * the index knows the kernel never sends a READ, so nothing would find out that it has grown since:
 * its size is not told before the source was asked, each time. Such files are few, and who reads
 * one at the source asks as often.
 *
 * A look is a cache_read without bytes. It holds no pages, so nothing ever waits for it; it waits,
 * as READs do, until the kernel knows the attributes of a changed file.
 *
 * Runs on the caller of cache_look, on I/O threads and on the attribute thread; it must never block.
 */
#include "cache_priv.h"

#include <string.h>

struct look {
	struct tier_read read;
	struct cache_read *r;
	char path[];
};

bool cache_must_look(struct cache *c, struct entry_id entry)
{
	return dataset_size(c->p.dataset, entry) == 0;
}

static void look_end(struct cache *c, struct cache_read *r, int status)
{
	struct shard *s = shard_of(c, r->entry);
	struct entry_state *es = r->state;

	r->done(r, status, NULL, 0); /* r may be gone now */
	mutex_lock(&s->mu);
	entry_put_locked(c, s, es);
	busy_end_locked(s);
	mutex_unlock(&s->mu);
}

static void look_done(struct tier_read *read)
{
	struct look *look = read->ctx;
	struct cache_read *r = look->r;
	struct cache *c = r->cache;
	struct entry_id entry = r->entry;
	bool is_file = read->answer.is_changed && S_ISREG(read->answer.st.st_mode);
	int rc = access_learn(c, entry, read),
	    status = rc && rc != -ESTALE ? rc : read->answer.status;

	if (rc == 0 && is_file)
		change_file(c, entry, &read->ask.expect, &read->answer.st);
	else if (rc == 0 && (read->answer.is_changed || status == -ENOENT || status == -ENOTDIR))
		change_file(c, entry, NULL, NULL);
	free(look);
	if (rc != -ESTALE && status != 0 && !is_file) {
		look_end(c, r, status);
		return;
	}
	entry_touch(c, entry);
	r->is_looked = rc == 0 && !is_file;
	look_begin(c, r); /* a changed file is to be settled first */
}

/* NULL when there is no memory. */
static struct look *look_new(struct cache *c, struct cache_read *r)
{
	char path[4096];
	struct look *look;
	size_t size;

	if (dataset_path(c->p.dataset, r->entry, path, sizeof(path)) != 0)
		return NULL;
	size = strlen(path) + 1;
	look = calloc(1, sizeof(*look) + size);
	if (!look)
		return NULL;
	memcpy(look->path, path, size);
	look->r = r;
	look->read = (struct tier_read){ .ask = { .key = { r->entry, 0 },
						  .path = look->path,
						  .is_urgent = true },
					 .done = look_done,
					 .ctx = look };
	dataset_identity(c->p.dataset, r->entry, &look->read.ask.expect);
	return look;
}

void look_begin(struct cache *c, struct cache_read *r)
{
	struct shard *s = shard_of(c, r->entry);
	struct look *look;
	bool is_waiting;

	mutex_lock(&s->mu);
	is_waiting = r->state->is_unsettled;
	if (is_waiting)
		list_push_tail(&r->state->attr_waiters, &r->node);
	mutex_unlock(&s->mu);
	if (is_waiting)
		return;
	/* One that keeps changing is told as it was a moment ago. */
	if (r->is_looked || !cache_must_look(c, r->entry) || r->n_tries++ >= READ_TRIES) {
		look_end(c, r, 0);
		return;
	}
	look = look_new(c, r);
	if (look)
		tier_read(chain_source(&c->chain), &look->read);
	else
		look_end(c, r, -ENOMEM);
}

void cache_look(struct cache *c, struct cache_read *r)
{
	struct shard *s = shard_of(c, r->entry);
	struct entry_state *es;

	r->cache = c;
	r->n_tries = 0;
	r->is_look = true;
	r->is_looked = false;
	mutex_lock(&s->mu);
	es = entry_get_locked(c, s, r->entry);
	if (es)
		s->busy++;
	r->state = es;
	mutex_unlock(&s->mu);
	if (es)
		look_begin(c, r);
	else
		r->done(r, -ENOMEM, NULL, 0);
}
