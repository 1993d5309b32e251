/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens when a file of the source turns out to be another one, or gone: its attributes are
 * replaced, its pieces leave the arena and the store, who plans is told, and the kernel's copies are
 * invalidated by a thread that may block.
 *
 * The kernel cuts what it reads at the size that it
 * knows, so no READ is answered before it knows the new one ("settled"): READs wait in attr_waiters
 * for the attribute thread, which does nothing that waits for pages. (To drop the old attributes is
 * not enough: the reader then asks for new ones, and the kernel throws its answer away when pages
 * are invalidated meanwhile. One read in six was cut that way.) Pages are invalidated after the
 * READs that were in flight have been answered: the kernel has their pages locked, and a
 * notification waits for the lock.
 *
 * Who has read pages of one version must not get the rest of another one. Where that may be (the
 * kernel may have pages of it), the entry is renewed: its name leads to a new inode from now on.
 * Those who have the old one open keep the pages that the kernel has of it, and whatever else they
 * ask for is refused with ESTALE, as a file server does. Nor would it do to change the size under
 * old pages: the last one would show its zeros. But where the only READs under way are at the
 * beginning, they have most likely found the change themselves: they get the new file through the
 * old inode, once the pages behind them are dropped (by a thread of its own, as that waits for READs
 * of other readers; those are refused). If only the time of change is another (permissions, links),
 * the bytes are the same to all who have it open.
 *
 * Any thread. It must never call an operation of the stage itself.
 */
#include "cache_priv.h"

static void queue_inval_locked(struct cache *c, struct entry_state *es)
{
	if (es->is_inval_queued)
		return; /* not taken up yet: it comes after this change as well */
	es->is_inval_queued = true;
	es->refs++;
	queue_push(c->p.pages, &es->inval_job.node);
}

void change_queue_attr_locked(struct cache *c, struct shard *s, struct entry_state *es)
{
	if (es->is_attr_queued)
		return; /* it looks again at what there is to do before it ends */
	es->is_attr_queued = true;
	es->refs++;
	queue_push(&c->attr_jobs, &es->attr_job.node);
}

static bool has_other_bytes(const struct file_identity *old, const struct file_identity *now)
{
	return old->ino != now->ino || old->size != now->size || old->mtime_ns != now->mtime_ns;
}

/* What those who have the file open read on must not be of the new one. */
static bool must_renew_locked(struct cache *c, struct shard *s, const struct entry_state *es,
			      const struct file_identity *old, const struct file_identity *now)
	REQUIRES(s->mu)
{
	if (!c->stage || !has_other_bytes(old, now))
		return false;
	if (es->pushers) /* old pages may come at any moment */
		return true;
	return bits_get(c->paged, es->entry.v) &&
	       (es->head_readers == 0 || es->readers > es->head_readers || es->is_drop_queued);
}

static void renew_locked(struct cache *c, struct shard *s, struct entry_state *es) REQUIRES(s->mu)
{
	bits_clear(c->paged, es->entry.v);
	if (!es->is_name_queued) {
		es->is_name_queued = true;
		es->refs++;
		queue_push(&c->name_jobs, &es->name_job.node);
	}
	change_queue_attr_locked(c, s, es); /* who waits has to be refused */
}

void change_unsettled_locked(struct cache *c, struct shard *s, struct entry_state *es)
{
	dataset_renew(c->p.dataset, es->entry, NULL);
	renew_locked(c, s, es);
}

/* The kernel's copies. now NULL: the file is gone; there is no other size to be known. */
static void change_kernel_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 const struct file_identity *old, const struct file_identity *now)
	REQUIRES(s->mu)
{
	bool is_paged = bits_get(c->paged, es->entry.v);

	if (!c->stage) /* nothing is mounted */
		return;
	if (now) {
		es->is_unsettled = true;
		if (is_paged && has_other_bytes(old, now) &&
		    es->head_end < MAX(old->size, now->size)) {
			es->is_drop_queued = true;
			es->drop_renewal = dataset_renewal(c->p.dataset, es->entry);
			es->refs++;
			queue_push(&c->drop_jobs, &es->drop_job.node);
		}
		change_queue_attr_locked(c, s, es);
		if (!is_paged || has_other_bytes(old, now))
			return; /* no old page stays, and the attributes are seen to */
	}
	es->inval_version = es->version;
	es->inval_renewal = dataset_renewal(c->p.dataset, es->entry);
	es->inval_wait = es->readers;
	if (es->readers == 0)
		queue_inval_locked(c, es);
}

void change_read_ended_locked(struct cache *c, struct shard *s, struct entry_state *es,
			      uint32_t begin_version)
{
	/* Nothing of it may stay where nobody is asked who reads. */
	if (access_is_narrowed(c, es->entry) && es->readers == 0 && c->stage) {
		es->inval_renewal = dataset_renewal(c->p.dataset, es->entry);
		queue_inval_locked(c, es);
	}
	if (es->inval_wait == 0 || (int32_t)(begin_version - es->inval_version) >= 0)
		return;
	if (--es->inval_wait == 0)
		queue_inval_locked(c, es);
}

/* Takes every piece of another version out of the table (all of them when now is NULL). The end of
 * a unit's fetch drops pieces as well, so it must not come before the loop over them is over: fetches
 * are held meanwhile. */
static void drop_pieces_locked(struct cache *c, struct shard *s, struct entry_state *es,
			       const struct file_identity *now, struct list *dead) REQUIRES(s->mu)
{
	static const struct fetch_result stale = { .status = -ESTALE };
	struct list *node = es->objects.next, *next;

	unit_fetches_hold_locked(s, es);
	for (; node != &es->objects; node = next) {
		struct object *obj = container_of(node, struct object, in_entry);
		bool is_queued = obj->state == OBJECT_QUEUED;

		next = node->next;
		if (now && file_identity_eq(&obj->identity, now))
			continue;
		obj->refs++;
		object_drop_locked(c, s, obj, dead);
		if (is_queued && obj->job) /* one in flight tells its job when it ends */
			unit_fetch_piece_locked(c, s, obj, &stale, dead);
		object_put_locked(c, s, obj, dead);
	}
	unit_fetches_release_locked(c, s, es, dead);
}

static void lose_unit_locked(struct cache *c, struct shard *s, struct entry_state *es,
			     struct unit_id unit) REQUIRES(s->mu)
{
	if (hold_of(c, unit) != HOLD_HELD)
		return;
	note_unit(c, NEWS_LOST_COPY, unit);
	hold_lost_locked(c, s, es, unit); /* not the last reference: who calls has one */
}

/* Told with the lock held, so that who plans hears of a loss before anything that comes after it. */
static void change_plan_locked(struct cache *c, struct shard *s, struct entry_state *es)
	REQUIRES(s->mu)
{
	struct unit_id unit, old;
	uint32_t n = dataset_units_of(c->p.dataset, es->entry, &unit);
	uint32_t n_old = dataset_old_units(c->p.dataset, es->entry, &old);

	for (struct list *node = es->fetches.next; node != &es->fetches; node = node->next)
		container_of(node, struct cache_fetch, node)->status =
			-ESTALE; /* pieces of two versions would make no sample */
	for (; n > 0; n--, unit.v++)
		lose_unit_locked(c, s, es, unit);
	for (; n_old > 0; n_old--, old.v++)
		lose_unit_locked(c, s, es, old);
}

static void change_store(struct cache *c, struct entry_id entry, const struct file_identity *old)
{
	struct file_identity kept;

	if (!c->keeper)
		return;
	if (dataset_kept_identity(c->p.dataset, entry, old, &kept) == 0)
		tier_forget(c->keeper, &kept, 0, piece_count(old->size));
	note_units(c, NEWS_UNPINNED, entry);
}

/* The kernel has none of its pages any more. */
static void unstage(struct cache *c, struct unit_id unit, uint32_t n)
{
	for (; n > 0; n--, unit.v++) {
		account_unpushed(c, unit);
		if (!bits_clear(c->staged, unit.v))
			continue;
		note_unit(c, NEWS_UNSTAGED, unit);
		tracer_lost(c, unit);
	}
}

static void change_unstage(struct cache *c, struct entry_id entry)
{
	struct unit_id unit, old;

	uint32_t n = dataset_units_of(c->p.dataset, entry, &unit);
	uint32_t n_old = dataset_old_units(c->p.dataset, entry, &old);

	unstage(c, unit, n);
	unstage(c, old, n_old);
}

/* What a look at the file has found: now NULL, it is gone. */
struct change {
	const struct file_identity *old, *now;
	bool is_same, is_renewed, is_narrower;
};

/* Copies of a file of which something is here or under way. */
static void change_copies_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 const struct change *change, struct list *dead) REQUIRES(s->mu)
{
	es->version++;
	drop_pieces_locked(c, s, es, change->is_same ? NULL : change->now, dead);
	change_plan_locked(c, s, es);
	if (change->is_renewed)
		renew_locked(c, s, es);
	else
		change_kernel_locked(c, s, es, change->old, change->now);
	if (change->is_narrower && c->stage && es->readers == 0) { /* else the last of them does */
		es->inval_renewal = dataset_renewal(c->p.dataset, es->entry);
		queue_inval_locked(c, es);
	}
}

void change_file(struct cache *c, struct entry_id entry, const struct file_identity *known,
		 const struct stat *st)
{
	struct shard *s = shard_of(c, entry);
	struct file_identity old, now = { 0 };
	struct entry_state *es;
	bool is_same, is_renewed, is_narrower;
	struct list dead;

	list_init(&dead);
	if (st)
		now = file_identity_of(st);
	mutex_lock(&s->mu);
	dataset_identity(c->p.dataset, entry, &old);
	is_same = st && file_identity_eq(&old, &now);
	/* Somebody else has noticed; what the source said to us may be older than what it said to
	 * them. */
	if (st && (!file_identity_eq(&old, known) || (is_same && !access_differs(c, entry, st)))) {
		mutex_unlock(&s->mu);
		return;
	}
	is_narrower = st && access_note(c, entry, st);
	es = entry_get_locked(c, s, entry);
	/* Narrower: what others get of it from now on the kernel keeps in an inode that nobody has
	 * opened who may not. */
	is_renewed = st && es &&
		     ((is_narrower && c->stage) || must_renew_locked(c, s, es, &old, &now));
	if (is_renewed)
		dataset_renew(c->p.dataset, entry, st);
	else if (st)
		dataset_update(c->p.dataset, entry, st);
	if (!st) /* nobody holds anything of it after this */
		entry_untouch(c, entry);
	if (es) {
		struct change change = { &old, st ? &now : NULL, is_same, is_renewed, is_narrower };

		change_copies_locked(c, s, es, &change, &dead);
		entry_put_locked(c, s, es);
	}
	if (st && now.size != old.size)
		note_resized(c, entry, old.size, now.size);
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
	if (!es)
		cache_degrade(c, "out of memory: the kernel may keep pages of a changed file");
	metrics_add(c->p.metrics, METRIC_SOURCE_CHANGED, 1);
	if (st && !has_other_bytes(&old, &now))
		metrics_add(c->p.metrics, METRIC_SOURCE_TOUCHED, 1);
	if (!is_same)
		change_store(c, entry, &old);
	change_unstage(c, entry);
}

/* Copies of one unit, in the table. */
static void drop_unit_locked(struct cache *c, struct shard *s, struct entry_state *es,
			     struct unit_id unit, struct list *dead) REQUIRES(s->mu)
{
	struct dataset_extent extent = dataset_unit_extent(c->p.dataset, unit);
	struct list *node = es->objects.next, *next;

	for (; node != &es->objects; node = next) {
		struct object *obj = container_of(node, struct object, in_entry);

		next = node->next;
		if (obj->is_record && !unit_eq(records_unit(c, obj), unit))
			continue; /* it shares a page with this one */
		if (obj->state == OBJECT_RESIDENT && obj->start < extent.offset + extent.length &&
		    extent.offset < obj->start + obj->length)
			object_drop_locked(c, s, obj, dead);
	}
}

/* Nobody reads it: a READ that is under way fills the pages again. Of a file of several units only
 * its own pages go, as readers of such a file are always there. */
static void drop_pages_locked(struct cache *c, struct shard *s, struct entry_state *es,
			      struct unit_id unit) REQUIRES(s->mu)
{
	if (!c->stage)
		return;
	if (unit_is_traced(c, unit)) {
		push_drop_part(c, unit);
	} else if (es->readers == 0) {
		es->inval_renewal = dataset_renewal(c->p.dataset, es->entry);
		queue_inval_locked(c, es);
	}
}

/* Some of what its fetch waits for has gone. */
static void fail_fetch_locked(struct shard *s, struct entry_state *es, struct unit_id unit)
	REQUIRES(s->mu)
{
	(void)s;
	for (struct list *node = es->fetches.next; node != &es->fetches; node = node->next) {
		struct cache_fetch *job = container_of(node, struct cache_fetch, node);

		if (unit_eq(job->unit, unit))
			job->status = -ESTALE;
	}
}

/* All that is here of the unit goes. A fetch of it that is under way would lack what was here. */
static void forget_unit_locked(struct cache *c, struct shard *s, struct entry_state *es,
			       struct unit_id unit, struct list *dead) REQUIRES(s->mu)
{
	drop_unit_locked(c, s, es, unit, dead);
	fail_fetch_locked(s, es, unit);
	lose_unit_locked(c, s, es, unit);
}

void change_drop_copies(struct cache *c, struct unit_id unit)
{
	struct entry_id entry = dataset_unit_entry(c->p.dataset, unit);
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	es = entry_get_locked(c, s, entry);
	if (es) {
		if (hold_of(c, unit) == HOLD_NONE && bits_get(c->staged, unit.v))
			note_unit(c, NEWS_LOST_COPY, unit); /* the kernel's was the only one */
		forget_unit_locked(c, s, es, unit, &dead);
		if (bits_get(c->touched, entry.v))
			drop_pages_locked(c, s, es, unit);
		entry_put_locked(c, s, es);
	}
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
	bits_clear(c->staged, unit.v);
	account_unpushed(c, unit);
}

void change_drop_pages(struct cache *c, struct unit_id unit)
{
	struct entry_id entry = dataset_unit_entry(c->p.dataset, unit);
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	es = c->stage ? entry_get_locked(c, s, entry) : NULL;
	if (es && (es->readers == 0 || unit_is_traced(c, unit))) {
		tracer_drop_locked(c, s, es, unit, &dead);
		drop_pages_locked(c, s, es, unit);
		account_unpushed(c, unit);
	}
	if (es)
		entry_put_locked(c, s, es);
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
}

void cache_fetch_again(struct cache *c, struct unit_id unit)
{
	struct entry_id entry = dataset_unit_entry(c->p.dataset, unit);
	struct shard *s = shard_of(c, entry);
	struct entry_state *es;
	struct list dead;

	list_init(&dead);
	mutex_lock(&s->mu);
	es = entry_find_locked(c, s, entry);
	if (es) {
		es->refs++;
		forget_unit_locked(c, s, es, unit, &dead);
		entry_put_locked(c, s, es);
	}
	mutex_unlock(&s->mu);
	objects_free(c, &dead);
}

void cache_note_forget(struct cache *c, struct entry_id entry)
{
	struct shard *s = shard_of(c, entry);

	if (entry.v >= dataset_n_entries(c->p.dataset))
		return;
	mutex_lock(&s->mu);
	if (!entry_find_locked(c, s, entry)) {
		entry_untouch(c, entry);
		bits_clear(c->paged, entry.v);
	}
	mutex_unlock(&s->mu);
	change_unstage(c, entry);
}
