/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading records again in the background, as fast as one is allowed to, so that what a drive has
 * lost is found before a reader waits for it. Sealed segments, one after the other, record by
 * record as their footers list them, for ever. What is wrong is forgotten; what is right need not
 * be verified at its first read any more; what can't be read is left, and counted: a drive that
 * does not answer is switched off before all of its records are gone.
 *
 * The background thread only, with a buffer of its own; reads of the job go first as far as the
 * rate allows. Must never be the reason for a record to be served unverified: what it has not read
 * it does not mark.
 */
#include <errno.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "store_priv.h"
#include "store_scrub.h"

#define IDLE_NS NS_PER_S

static int gather(void *ctx, const struct store_entry *e)
{
	struct store_scrub *scrub = ctx;

	scrub->entries[scrub->n++] = *e;
	return 0;
}

static void leave_segment(struct store *s, struct store_scrub *scrub)
{
	if (scrub->segment)
		store_segment_put(s, scrub->segment);
	scrub->segment = NULL;
	free(scrub->entries);
	scrub->entries = NULL;
	scrub->n = scrub->at = 0;
}

static int read_entries(struct store *s, struct store_scrub *scrub)
{
	struct store_segment *segment = scrub->segment;
	uint64_t end = atomic_load(&segment->bytes);
	struct store_trailer trailer;
	void *bytes = NULL;
	size_t size;
	int rc =
		store_read_all(&s->dir, segment->fd, scrub->buffer, STORE_BLOCK, end - STORE_BLOCK);

	if (rc < 0)
		return rc;
	if (!store_trailer_decode(scrub->buffer, &segment->header, end / STORE_BLOCK, &trailer))
		return -EBADMSG;
	size = (size_t)trailer.footer_blocks * STORE_BLOCK;
	scrub->entries = calloc((size_t)trailer.n_records + 1, sizeof(*scrub->entries));
	if (!scrub->entries || posix_memalign(&bytes, STORE_BLOCK, size + STORE_BLOCK) != 0)
		return -ENOMEM;
	rc = store_read_all(&s->dir, segment->fd, bytes, size, end - STORE_BLOCK - size);
	if (rc == 0)
		rc = store_footer_decode(bytes, &trailer, gather, scrub);
	free(bytes);
	return rc;
}

/* The next sealed segment of this dataset, if any. */
static bool next_segment(struct store *s, struct store_scrub *scrub)
{
	leave_segment(s, scrub);
	mutex_lock(&s->mu);
	for (uint32_t i = 0; i < STORE_SEGMENTS_MAX && !scrub->segment; i++) {
		struct store_segment *segment;

		scrub->slot = (scrub->slot + 1) % STORE_SEGMENTS_MAX;
		segment = s->segments[scrub->slot];
		if (segment && atomic_load(&segment->is_sealed) &&
		    segment->header.fsid == s->p.fsid && store_segment_try_get(segment))
			scrub->segment = segment;
	}
	mutex_unlock(&s->mu);
	if (!scrub->segment)
		return false;
	if (read_entries(s, scrub) < 0)
		scrub->n = 0; /* its records are verified when they are read */
	return true;
}

static void check_record(struct store *s, struct store_scrub *scrub, const struct store_entry *e)
{
	struct store_segment *segment = scrub->segment;
	const struct store_seal want = { .what = *e,
					 .segment = segment->header.segment,
					 .fsid = segment->header.fsid };
	struct store_tag tag =
		store_tag_of(&s->index, segment->header.fsid, &e->identity, e->piece);
	uint32_t place = store_place(segment->slot, e->block), n = store_record_bytes(e->length);
	uint64_t at = (uint64_t)e->block * STORE_BLOCK;
	uint32_t round = atomic_load(&s->n_shared);
	struct store_found found;
	int rc;

	if (!store_index_find(&s->index, &tag, NULL, &found) || found.place != place)
		return; /* forgotten, or another segment's is used */
	rc = store_read_all(&s->dir, segment->fd, scrub->buffer, n, at);
	store_drop_cache(&s->dir, segment->fd, at, n);
	metrics_add(s->metrics, METRIC_STORE_SCRUB_BYTES, n);
	scrub->bytes += n;
	if (rc < 0) { /* of the drive, maybe for now only; a reader finds out for itself */
		metrics_add(s->metrics, METRIC_STORE_ERRORS, 1);
		log_limited(LOG_LEVEL_WARN, "store: a record could not be read");
		store_read_error(s);
		return;
	}
	store_read_answered(s);
	if (store_record_is(scrub->buffer, &want)) {
		store_segment_verified(s, segment, &tag, place, round);
		return;
	}
	metrics_add(s->metrics, METRIC_STORE_ERRORS, 1);
	log_limited(LOG_LEVEL_WARN, "store: a record was found damaged and is forgotten");
	store_drop_record(s, &tag, place, e->length);
}

uint64_t store_scrub_step(struct store *s, struct store_scrub *scrub)
{
	if (!s->p.scrub_bytes_per_s)
		return UINT64_MAX;
	if (!scrub->buffer && posix_memalign(&scrub->buffer, STORE_BLOCK, STORE_RECORD_MAX) != 0)
		return IDLE_NS;
	if (atomic_load(&s->is_read_off))
		return IDLE_NS;
	if (scrub->segment && atomic_load(&scrub->segment->is_retired))
		leave_segment(s, scrub);
	if (scrub->at == scrub->n && !next_segment(s, scrub))
		return IDLE_NS;
	scrub->bytes = STORE_BLOCK; /* a look at a footer is not for nothing */
	if (scrub->at < scrub->n)
		check_record(s, scrub, &scrub->entries[scrub->at++]);
	else
		return IDLE_NS;
	return (uint64_t)((double)scrub->bytes * 1e9 / (double)s->p.scrub_bytes_per_s);
}

void store_scrub_end(struct store *s, struct store_scrub *scrub)
{
	leave_segment(s, scrub);
	free(scrub->buffer);
}
