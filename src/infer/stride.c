/* SPDX-License-Identifier: Apache-2.0 */
/* READs of one large file, cut into runs: a run goes on where the same reader's last READ ended, as long records
 * are READ in pieces of the kernel's read-ahead. Where one begins somewhere else is a jump, and says where
 * something begins. Streams are runs with next to no jumps. Where jumps come to places that were jumped to
 * before, and to hardly any others, these places are a table of what is there.
 *
 * A table needs that chance would not do it: k of n jumps to m of M pages. Records are found in stride_find.c.
 *
 * Memory is bounded whatever is read: runs that nobody goes on with make room for others, the first 1024 jumps are
 * kept in their order, and places up to a limit, beyond which there is no table. Pure; the caller locks. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stride_priv.h"

#define SLOTS_FIRST 256u
#define TABLE_LEAST 64u  /* places */
#define TABLE_FRESH 4    /* of the last 64 jumps, to places that are in no table yet */
#define TABLE_BITS 24.0
#define STREAM_READS 16u
#define STREAM_SHARE 8u /* of the READs one may be a jump */

int stride_new(uint64_t size, struct stride **ret)
{
	struct stride *s = calloc(1, sizeof(*s));

	*ret = NULL;
	if (s)
		s->slot = calloc(SLOTS_FIRST, sizeof(*s->slot));
	if (!s || !s->slot) {
		stride_free(s);
		return -ENOMEM;
	}
	s->size = size;
	s->n_slots = SLOTS_FIRST;
	*ret = s;
	return 0;
}

void stride_free(struct stride *s)
{
	if (!s)
		return;
	free(s->slot);
	free(s);
}

/* --- places --- */

static uint64_t *slot_of(uint64_t *slot, uint32_t n_slots, uint64_t page)
{
	uint64_t h = (page * 0x9e3779b97f4a7c15) >> 40;

	while (slot[h & (n_slots - 1)] && slot[h & (n_slots - 1)] != page + 1)
		h++;
	return &slot[h & (n_slots - 1)];
}

/* Room for one more. False: there is none, or no memory; then nothing is lost but that place. */
static bool grow(struct stride *s)
{
	uint64_t *more;

	if (2 * s->n_places < s->n_slots)
		return true;
	if (s->n_slots >= 2 * STRIDE_TABLE_MAX)
		return false;
	more = calloc(2 * (size_t)s->n_slots, sizeof(*more));
	if (!more)
		return false;
	for (uint32_t i = 0; i < s->n_slots; i++)
		if (s->slot[i])
			*slot_of(more, 2 * s->n_slots, s->slot[i] - 1) = s->slot[i];
	free(s->slot);
	s->slot = more;
	s->n_slots *= 2;
	return true;
}

/* True: nobody began there before. */
static bool note_place(struct stride *s, uint64_t page)
{
	bool is_ripe = s->n_places >= TABLE_LEAST;
	uint64_t *slot = slot_of(s->slot, s->n_slots, page);

	s->tried += is_ripe;
	s->fresh <<= 1;
	if (*slot) {
		s->again += is_ripe;
		return false;
	}
	s->fresh |= 1;
	if (grow(s)) {
		*slot_of(s->slot, s->n_slots, page) = page + 1;
		s->n_places++;
	}
	return true;
}

/* --- runs --- */

static bool goes_on(const struct stride_run *r, uint64_t offset, uint64_t end, uint32_t reader)
{
	return r->used && (r->reader == reader || !r->reader || !reader) && offset > r->begin &&
	       offset <= r->end && end > r->end;
}

/* The run that this READ goes on with, or NULL; ret_free: else the one that makes room for it. The runs that
 * its reader has left are over. */
static struct stride_run *find_run(struct stride *s, uint64_t offset, uint64_t end, uint32_t reader,
				   struct stride_run **ret_free)
{
	struct stride_run *oldest = &s->run[0];

	for (uint32_t i = 0; i < STRIDE_RUNS; i++) {
		if (goes_on(&s->run[i], offset, end, reader))
			return &s->run[i];
		if (s->run[i].used < oldest->used)
			oldest = &s->run[i];
	}
	*ret_free = oldest;
	return NULL;
}

static void leave_runs(struct stride *s, uint32_t reader)
{
	for (uint32_t i = 0; i < STRIDE_RUNS; i++)
		if (s->run[i].used && s->run[i].reader == reader && s->run[i].start != STRIDE_NONE)
			s->start[s->run[i].start].is_over = true;
}

static void jump(struct stride *s, struct stride_run *run, uint64_t offset, uint64_t end, uint32_t reader)
{
	uint64_t at = offset - offset % STRIDE_PAGE;
	bool is_new = note_place(s, at / STRIDE_PAGE);

	leave_runs(s, reader);
	s->jumps++;
	*run = (struct stride_run){ offset, end, reader, STRIDE_NONE, s->reads };
	if (s->n_starts == STRIDE_STARTS_MAX)
		return;
	run->start = s->n_starts++;
	s->start[run->start] = (struct stride_start){ .at = at, .is_new = is_new };
}

bool stride_read(struct stride *s, uint64_t offset, uint64_t length, uint32_t reader)
{
	struct stride_run *run, *room = NULL; /* room: of one that begins here */
	uint64_t end, pages;

	if (offset >= s->size || length == 0)
		return false;
	end = offset + MIN(length, s->size - offset);
	s->reads++;
	run = find_run(s, offset, end, reader, &room);
	if (run) {
		s->chained++;
		run->end = end;
		run->used = s->reads;
	} else {
		run = room;
		jump(s, run, offset, end, reader);
	}
	if (run->start == STRIDE_NONE)
		return room;
	pages = DIV_ROUND_UP(run->end, STRIDE_PAGE) - run->begin / STRIDE_PAGE;
	s->start[run->start].pages = (uint32_t)MIN(pages, UINT32_MAX);
	return room;
}

uint64_t stride_jumps(const struct stride *s)
{
	return s->jumps;
}

/* --- what is known --- */

static bool is_table(const struct stride *s, double *ret_bits)
{
	double pages = (double)DIV_ROUND_UP(s->size, STRIDE_PAGE);

	*ret_bits = 0;
	if (s->n_places < TABLE_LEAST || s->n_places >= STRIDE_TABLE_MAX || s->tried < 64 ||
	    __builtin_popcountll(s->fresh) > TABLE_FRESH)
		return false;
	*ret_bits = evidence_chance_bits((double)s->again, (double)s->tried, s->n_places / pages) - TABLE_BITS;
	return *ret_bits >= 0;
}

/* Runs that somebody goes on with. */
static uint32_t count_streams(const struct stride *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < STRIDE_RUNS; i++)
		n += s->run[i].used && s->run[i].used + STREAM_READS * STRIDE_RUNS > s->reads &&
		     s->run[i].end - s->run[i].begin > STRIDE_PAGE;
	return n;
}

void stride_judge(const struct stride *s, const atomic_bool *cancel, struct stride_view *ret)
{
	double bits;

	*ret = (struct stride_view){ .kind = STRIDE_NOTHING };
	if (stride_find(s, cancel, ret)) {
		ret->kind = STRIDE_RECORDS;
	} else if (cancel && atomic_load(cancel)) {
		*ret = (struct stride_view){ .kind = STRIDE_NOTHING };
	} else if (is_table(s, &bits)) {
		*ret = (struct stride_view){ .kind = STRIDE_TABLE, .n = s->n_places, .bits = bits };
		ret->reach = ret->n;
	} else if (s->reads >= STREAM_READS && s->jumps * STREAM_SHARE <= s->reads) {
		*ret = (struct stride_view){ .kind = STRIDE_STREAMS, .streams = count_streams(s) };
	}
}

void stride_say(const struct stride_view *v, char *out, size_t size)
{
	switch (v->kind) {
	case STRIDE_RECORDS:
		snprintf(out, size, "reads records of %s%" PRIu64 " bytes",
			 v->stride_most > v->stride_least ? "about " : "", v->stride);
		break;
	case STRIDE_TABLE:
		snprintf(out, size, "reads at %" PRIu64 " places again and again", v->n);
		break;
	case STRIDE_STREAMS:
		snprintf(out, size, v->streams == 1 ? "reads it from front to back"
						    : "reads %" PRIu32 " streams side by side",
			 v->streams);
		break;
	default:
		snprintf(out, size, "reads here and there");
	}
}
