/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ahead.c decides from: what the source can do, the table of files, and their accounts. Whatever
 * is guessed, it is paid for: of each file no more is asked of the source than its readers asked for,
 * one part in AHEAD_SHARE of that, and AHEAD_FILE_CREDIT; and the same for all files together. So a
 * pattern that defeats all of ahead.c costs the source what it would cost without a cache, and a
 * little; while a stream is given back what it spent with every READ of it.
 *
 * The exception is a file that fits into memory and is read again: all of it was read, and more was
 * asked for than it has, so that somebody has lost what he had. What is missing of it is fetched in
 * whole pieces, as each of them comes once. Not before that: in a first pass the kernel keeps what it
 * has read, and pieces would bring most of it once more.
 *
 * Pure: no clock, no lock, no memory of its own.
 */
#include <stddef.h>
#include <string.h>

#include "ahead_priv.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"

#define PAGE 4096u
#define BIN_NS (50 * NS_PER_MS)
#define BIN_IDLE_NS (500 * NS_PER_MS)
#define LATENCY_NS (5 * NS_PER_S)
#define REACH_LEAST (4ull << 20) /* of all streams: what a link of 1 Gbit/s and 30 ms holds */
#define REACH_EACH (256ull << 10)
enum { LATENCY_ODD = 8 }; /* so much faster than others: not the source, its client's memory */
enum { ENDS_MOST = 8, VAIN_MOST = 8 };
enum { WHOLE_AGAIN = 16, WHOLE_MORE = 16 };

/* --- what the source can do --- */

void ahead_answered(struct ahead *a, uint64_t now_ns, uint64_t bytes, uint64_t latency_ns)
{
	uint64_t took = now_ns - MIN(a->bin_ns, now_ns), rate;

	if (now_ns - MIN(a->latency_at_ns, now_ns) >= LATENCY_NS) {
		a->latency_before_ns = a->latency_ns;
		a->latency_ns = 0;
		a->latency_at_ns = now_ns;
	}
	a->mean_ns += latency_ns / 16 - a->mean_ns / 16;
	if (latency_ns >= a->mean_ns / LATENCY_ODD)
		a->latency_ns = a->latency_ns ? MIN(a->latency_ns, latency_ns)
					      : MAX(latency_ns, 1u);
	a->bin_bytes += bytes;
	if (took < BIN_NS)
		return;
	rate = (uint64_t)((double)a->bin_bytes * 1e9 / (double)took);
	/* The most that was seen, for a while: readers may want less than the link can do. */
	if (took < BIN_IDLE_NS)
		a->bytes_per_s = rate > a->bytes_per_s
					 ? rate
					 : a->bytes_per_s - (a->bytes_per_s - rate) / 16;
	a->bin_ns = now_ns;
	a->bin_bytes = 0;
}

uint64_t ahead_reach(const struct ahead *a)
{
	uint32_t n = MAX(MAX(a->n_streams, a->n_streams_before), 1u);
	uint64_t latency = a->latency_ns, all;

	if (a->latency_before_ns && (!latency || a->latency_before_ns < latency))
		latency = a->latency_before_ns;
	all = (uint64_t)(4.0 * (double)a->bytes_per_s * (double)latency / 1e9);
	all = MAX(all, REACH_LEAST);
	return MIN(MAX(all / n, REACH_EACH), (uint64_t)AHEAD_MOST);
}

/* --- files --- */

static struct ahead_file *set_of(struct ahead *a, uint32_t file)
{
	return a->file[(file * 2654435761u >> 16) % AHEAD_SETS];
}

struct ahead_file *ahead_file_find(struct ahead *a, uint32_t file)
{
	struct ahead_file *set = set_of(a, file);

	for (int i = 0; i < AHEAD_WAYS; i++)
		if (set[i].is_used && set[i].file == file)
			return &set[i];
	return NULL;
}

bool ahead_file_again(struct ahead_file *f, const struct ahead_read *r)
{
	uint32_t place = (uint32_t)(r->offset / PAGE) + 1; /* beyond 16 TiB two may look the same */

	if (r->length > AHEAD_HOT)
		return false;
	for (uint32_t i = 0; i < AHEAD_PLACES; i++)
		if (f->place[i] == place)
			return true;
	f->place[f->n_places++ % AHEAD_PLACES] = place;
	return false;
}

void ahead_begun_ended(struct ahead *a, const struct ahead_file *f, const struct ahead_stream *s)
{
	if (s->n_reads && s->start == 0)
		a->ends = s->end == f->size ? MIN(a->ends + 1, ENDS_MOST) : MAX(a->ends - 2, 0);
}

void ahead_hint_ended(struct ahead *a, struct ahead_file *f)
{
	if (f->hint_bytes && f->hint > f->hint_bytes / 2)
		a->vain = MIN(a->vain + 1, (uint32_t)VAIN_MOST);
	else if (f->hint_bytes)
		a->vain -= MIN(a->vain, 2u);
	f->hint_bytes = f->hint = 0;
}

static void file_forget(struct ahead *a, struct ahead_file *f)
{
	ahead_hint_ended(a, f);
	for (int i = 0; f->is_used && i < AHEAD_STREAMS; i++)
		ahead_begun_ended(a, f, &f->stream[i]);
	if (f->is_whole)
		a->whole_bytes -= f->size;
	memset(f, 0, sizeof(*f));
}

struct ahead_file *ahead_file_of(struct ahead *a, const struct ahead_read *r)
{
	struct ahead_file *set = set_of(a, r->file), *f = ahead_file_find(a, r->file);

	if (f && f->size == r->size)
		return f;
	for (int i = 0; !f && i < AHEAD_WAYS; i++)
		if (!set[i].is_used)
			f = &set[i];
	if (!f) {
		f = &set[0];
		for (int i = 1; i < AHEAD_WAYS; i++)
			if (set[i].used_at < f->used_at)
				f = &set[i];
	}
	file_forget(a, f); /* or it has another size: another file */
	f->file = r->file;
	f->size = r->size;
	f->is_used = true;
	return f;
}

bool ahead_spend(struct ahead *a, uint32_t file, uint64_t bytes)
{
	struct ahead_file *f = ahead_file_find(a, file);

	if (f && f->is_whole) {
		f->whole_spent += bytes;
		return true;
	}
	a->spent += bytes;
	if (f)
		f->spent += bytes;
	return false;
}

void ahead_refund(struct ahead *a, uint32_t file, uint64_t bytes, bool is_whole)
{
	struct ahead_file *f = ahead_file_find(a, file);

	if (is_whole && f)
		f->whole_spent -= MIN(bytes, f->whole_spent);
	if (is_whole)
		return;
	a->spent -= MIN(bytes, a->spent);
	if (f)
		f->spent -= MIN(bytes, f->spent);
}

void ahead_file_asked(struct ahead *a, struct ahead_file *f, const struct ahead_read *r)
{
	uint64_t part = f->size / 64 + 1;

	if (f->is_whole) {
		f->whole_asked += r->length;
	} else {
		/* What is read from memory for hours pays for no guesses afterwards. */
		a->asked = MIN(a->asked + r->length, a->spent + AHEAD_CREDIT);
		f->asked += r->length;
	}
	if (r->offset < f->hint_end)
		f->hint -= MIN(f->hint, r->length);
	for (uint64_t i = r->offset / part; i <= (r->offset + r->length - 1) / part; i++)
		f->parts |= 1ull << i;
}

/* Its pieces were dropped before they were used: other readers need the room, too. */
static bool whole_is_vain(const struct ahead_file *f)
{
	return f->whole_spent > f->whole_asked + f->size + f->size / 8;
}

/* Who reads it once more reads all of it: as long as it and all of its kind fit, and while no more is
 * fetched of it than its readers ask for, and once all of it. Else it has to be read whole again; many
 * times (WHOLE_AGAIN) where that has not paid. Those many are on purpose, also for a file that was only
 * crowded out: where the plan takes the room and gives it back, its pieces are lost each time before
 * they are used. Tried with room that comes and goes: 1.55 times what is asked for when it may begin
 * again after one pass, 1.03 after 16. A file that would fit for good pays for that with passes in which
 * misses bring no more than they ask for, as they do without a cache. */
bool ahead_file_is_whole(struct ahead *a, struct ahead_file *f, uint64_t room)
{
	bool has_paid = f->whole_spent <= f->whole_asked;

	if (f->is_whole && (a->whole_bytes > room || whole_is_vain(f))) {
		f->is_whole = false;
		f->whole_asked = f->whole_spent = f->parts = 0;
		f->whole_from = f->asked + f->size * (has_paid ? 1 : WHOLE_AGAIN);
		a->whole_bytes -= f->size;
	} else if (!f->is_whole && f->parts == UINT64_MAX &&
		   f->asked >= MAX(f->size + f->size / WHOLE_MORE, f->whole_from) &&
		   f->size <= room && a->whole_bytes <= room - f->size) {
		f->is_whole = true;
		f->whole_asked = f->whole_spent = 0;
		a->whole_bytes += f->size;
	}
	return f->is_whole;
}

static uint64_t left_of(uint64_t asked, uint64_t spent, uint64_t credit)
{
	uint64_t most = asked + asked / AHEAD_SHARE + credit;

	return most - MIN(spent, most);
}

uint64_t ahead_allowance(const struct ahead *a, const struct ahead_file *f,
			 const struct ahead_read *r)
{
	uint64_t credit = MIN((uint64_t)AHEAD_CREDIT, r->room / 4);
	uint64_t own = f->is_whole ? 0 : r->length;
	uint64_t of_file = left_of(f->asked - MIN(own, f->asked), f->spent,
				   f->is_hint ? AHEAD_MOST : AHEAD_FILE_CREDIT + f->hint);
	uint64_t of_all = left_of(a->asked - MIN(own, a->asked), a->spent, credit);
	uint64_t of_room = r->room / 2 - MIN(r->unused, r->room / 2);

	return MIN(MIN(of_file, of_all), of_room);
}
