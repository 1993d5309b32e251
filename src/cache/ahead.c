/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a miss fetches of a file of more than one piece, decided from the READs of that file alone:
 * opens are not seen, so nothing is kept per open, and several readers of one file are told apart by
 * where they are.
 *
 * A READ that begins where one of the last ones ended belongs to that one's run. One READ alone gets
 * its own bytes: nobody knows what comes next. From the second on a run is a stream, and what
 * follows is fetched ahead of it, twice as much as was read so far, up to four times bandwidth x
 * latency of the source, shared by all streams that are read at the time. Where runs of this file
 * end at about the same length (a record, a row group, a value of LMDB) that length is the bound,
 * and a run gets all of it at once. Where a reader reads parts (a column here, one there), a run
 * whose length is not known gets a quarter of what it has so far, or what those of other files had.
 * A file is begun at its beginning by most who read all of it, so there a little is fetched at the
 * first READ already, unless parts of it were read before. It is much, if files were read to their end
 * so far, or when the READ is as long as the kernel's can be: advice to read all of a file
 * (POSIX_FADV_WILLNEED) arrives here as one such READ and no other.
 *
 * Whatever is guessed, it is paid for out of what was asked for; and a file that fits and is read again
 * comes in whole pieces: ahead_files.c, which has the accounts.
 *
 * Pure: no clock, no lock, no memory of its own.
 */
#include "ahead_priv.h"

#include <stddef.h>
#include <string.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"

#define PAGE 4096u
#define PIECE (1u << 20)
#define ROUND_NS (250 * NS_PER_MS)
enum { ENDS_SURE = 3, RUNS_KNOWN = 4, RUNS_MOST = 1 << 16, STREAMS_FRESH = 4 };
enum { ALONE_MOST = 32, ALONE_RUN = 8, ALONE_SURE = 12, ALONE_FEW = 6, PARTS_FEW = 2 };
enum { STREAM_SURE = 3, STREAM_IDLE = 256 }; /* READs: of it, of others meanwhile */
enum { GAPS_SHARE = 10 };
enum { VAIN_SURE = 4, VAIN_PROBE = 16 };

/* --- runs --- */

/* One more run of this length: a mean, rather too short, which soon forgets the oldest. */
static void lengths_add(struct ahead_lengths *l, uint64_t run)
{
	l->n = MIN(l->n + 1, (uint32_t)RUNS_MOST);
	if (run < l->typical)
		l->typical -= (l->typical - run) / MIN(l->n, 4u);
	else
		l->typical += (run - l->typical) / MIN(l->n, 8u);
}

/* What the run says of others: it is over, or seems to be. */
static void run_learn(struct ahead *a, struct ahead_file *f, struct ahead_stream *s)
{
	if (s->n_reads == s->n_learned)
		return;
	s->n_learned = s->n_reads;
	if (s->n_reads == 1)
		f->alone = MIN(f->alone + 1, (uint32_t)ALONE_MOST);
	else if (s->n_reads >= STREAM_SURE)
		f->alone -= MIN(f->alone, (uint32_t)ALONE_RUN);
	if (s->n_reads == 2)
		f->pairs = MIN(f->pairs + 1, (uint32_t)ALONE_MOST);
	else if (s->n_reads >= STREAM_SURE)
		f->pairs -= MIN(f->pairs, (uint32_t)ALONE_RUN);
	/* Two READs may meet by chance; what ends with the file was cut short. */
	if (s->n_reads < STREAM_SURE || s->end == f->size)
		return;
	lengths_add(&f->runs, s->run);
	if (s->start)
		lengths_add(&a->runs, s->run);
}

static void run_ended(struct ahead *a, struct ahead_file *f, struct ahead_stream *s)
{
	ahead_begun_ended(a, f, s);
	run_learn(a, f, s);
	s->n_reads = 0;
}

/* A reader begins elsewhere, or goes on with what another one began (a library's threads): where it was
 * it has most likely ended. A run is in the table until others need its place, and that is long. */
static void reader_left(struct ahead *a, struct ahead_file *f, uint32_t reader,
			const struct ahead_stream *now)
{
	struct ahead_stream *last = NULL;

	for (int i = 0; reader && i < AHEAD_STREAMS; i++) {
		struct ahead_stream *s = &f->stream[i];

		if (s->n_reads && s != now && s->reader == reader &&
		    (!last || s->used_at > last->used_at))
			last = s;
	}
	if (last && last->n_reads > 1)
		run_learn(a, f, last);
}

/* READs of the kernel that overtake each other leave nothing out for long. Who does, reads parts: to
 * fetch what is between them as well is the cheaper way as long as that is little. */
static bool leaves_out(const struct ahead_file *f)
{
	return f->gaps > 2 * AHEAD_NEAR && f->gaps > f->asked / GAPS_SHARE;
}

/* A READ goes on where this one ended, which stayed alone. A stream that has come to where that one
 * began has only left out what the kernel had of it: then it is that stream's. */
static struct ahead_stream *stream_over(struct ahead_file *f, struct ahead_stream *alone)
{
	for (int i = 0; alone->n_reads == 1 && i < AHEAD_STREAMS; i++) {
		struct ahead_stream *s = &f->stream[i];

		if (s->n_reads > 1 && s->used_at > alone->used_at && s->end >= alone->start &&
		    s->end < alone->end)
			return s;
	}
	return alone;
}

/* The one that a READ at this place goes on with, or NULL. */
static struct ahead_stream *stream_find(const struct ahead *a, struct ahead_file *f,
					const struct ahead_read *r)
{
	struct ahead_stream *near = NULL;

	for (int i = 0; i < AHEAD_STREAMS; i++) {
		struct ahead_stream *s = &f->stream[i];

		if (s->n_reads && s->end == r->offset)
			return stream_over(f, s);
		/* Near, but not there: that may be by chance, unless it is a stream that goes on. A
		 * READ further on than the kernel's can be apart is another reader's: it must not
		 * take the stream from its own. */
		if (s->n_reads >= STREAM_SURE && a->tick - s->used_at < STREAM_IDLE &&
		    r->offset < s->end + AHEAD_NEAR && r->offset + AHEAD_NEAR >= s->end &&
		    (!near || s->used_at > near->used_at))
			near = s;
	}
	if (near && r->offset > near->end) {
		f->gaps += r->offset - near->end;
		near = leaves_out(f) ? NULL : near;
	}
	return near;
}

/* A new one: in place of a READ that stayed alone, as long as there are some of these. */
static struct ahead_stream *stream_new(struct ahead *a, struct ahead_file *f)
{
	struct ahead_stream *alone = NULL, *oldest = NULL;
	int n_alone = 0;

	for (int i = 0; i < AHEAD_STREAMS; i++) {
		struct ahead_stream *s = &f->stream[i];

		if (!s->n_reads)
			return s;
		n_alone += s->n_reads == 1;
		if (s->n_reads == 1 && (!alone || s->used_at < alone->used_at))
			alone = s;
		if (s->n_reads > 1 && (!oldest || s->used_at < oldest->used_at))
			oldest = s;
	}
	if (!oldest || n_alone >= STREAMS_FRESH)
		oldest = alone;
	run_ended(a, f, oldest);
	return oldest;
}

static void stream_count(struct ahead *a, struct ahead_stream *s, uint64_t now_ns)
{
	uint64_t since = now_ns - MIN(a->round_ns, now_ns);

	if (since >= ROUND_NS) {
		a->n_streams_before = since >= 2 * ROUND_NS ? 0 : a->n_streams;
		a->n_streams = 0;
		a->round++;
		a->round_ns = now_ns;
	}
	if (s->round == a->round)
		return;
	s->round = a->round;
	a->n_streams++;
}

/* As long as READs of the kernel are: who reads all of it, or advises to. But not where it is known
 * better, of this file or of hints in general; of these a few are taken all the same. */
static bool is_hint(struct ahead *a, struct ahead_file *f, const struct ahead_read *r)
{
	if (r->offset || r->length < AHEAD_FIRST || f->alone >= (uint32_t)ALONE_SURE ||
	    f->runs.n >= RUNS_KNOWN || f->hint > f->hint_bytes / 2)
		return false;
	return a->vain < VAIN_SURE || ++a->n_vain % VAIN_PROBE == 0;
}

/* READs and pairs of them that belong to no run, other than this one. */
static uint32_t n_short(const struct ahead_file *f, const struct ahead_stream *s)
{
	uint32_t n = f->alone + f->pairs;

	for (int i = 0; i < AHEAD_STREAMS; i++)
		n += f->stream[i].n_reads && f->stream[i].n_reads <= 2 && &f->stream[i] != s;
	return n;
}

/* Where READs are random two may meet by chance: records side by side, or one over the other, of
 * which the kernel has the beginning. Or a record is two READs. The third one tells; sooner than that
 * nothing does where no length is known. */
static bool is_chance(const struct ahead *a, const struct ahead_file *f,
		      const struct ahead_stream *s)
{
	bool is_known = f->runs.n || a->runs.n;

	return s->n_reads == 2 && s->start &&
	       (n_short(f, s) >= ALONE_FEW || (!is_known && s->is_part));
}

/* How much may lie ahead of a run where others have ended at about the same length: the rest of that.
 * Part of a READ beyond it the run is one like the others still; later it begins anew. */
static uint64_t bounded(uint64_t want, const struct ahead_lengths *l, const struct ahead_stream *s)
{
	uint64_t beyond = s->run - MIN(l->typical, s->run);

	if (!beyond)
		return MIN(want, l->typical - s->run);
	return beyond < s->run / s->n_reads ? 0 : MIN(want, 2 * beyond);
}

/* The run has gone on: what should lie ahead of it for that. */
static uint64_t run_want(const struct ahead *a, const struct ahead_file *f,
			 const struct ahead_stream *s)
{
	bool is_one = s->is_part;

	if (f->runs.n >= RUNS_KNOWN)
		return bounded(UINT64_MAX, &f->runs, s);
	if (f->runs.n)
		return bounded(is_one ? s->run : 2 * s->run, &f->runs, s);
	if (is_one && a->runs.n)
		return bounded(s->run, &a->runs, s);
	return is_one ? s->run / 4 : 2 * s->run;
}

/* What should lie ahead of it now. */
static uint64_t stream_want(const struct ahead *a, const struct ahead_file *f,
			    const struct ahead_stream *s, const struct ahead_read *r)
{
	uint64_t reach = ahead_reach(a), want;

	if (s->n_reads == 1 && r->offset)
		return 0;
	if (s->n_reads == 1 && (r->is_sample || a->ends >= ENDS_SURE))
		return reach;
	if (is_chance(a, f, s))
		return 0;
	if (s->n_reads == 1 && f->is_hint)
		return AHEAD_MOST;
	if (s->n_reads == 1 && n_short(f, s) + f->runs.n > PARTS_FEW)
		return 0;
	if (s->n_reads == 1)
		return AHEAD_FIRST - MIN(r->length, (uint32_t)AHEAD_FIRST);
	want = run_want(a, f, s);
	if (s->since)
		want = MIN(want, 2 * (s->run - s->since));
	return MIN(want, reach);
}

static void stream_advise(struct ahead *a, struct ahead_file *f, struct ahead_stream *s,
			  const struct ahead_read *r, struct ahead_advice *ret)
{
	uint64_t want = stream_want(a, f, s, r), from = MAX(s->fetched, s->end);
	uint64_t to = MIN(s->end + want, f->size), enough = MIN(want / 2, (uint64_t)PIECE);
	uint64_t may = ahead_allowance(a, f, r);

	if (to <= from)
		return;
	if (f->is_hint) /* the READ brings a piece, or itself only */
		may -= MIN(may, from - s->end);
	to = MIN(to, from + may);
	/* Few requests: not before half of it is to be had and may be asked for, unless little is
	 * there. */
	if (to - from < enough && to < f->size && from > s->end && from - s->end >= enough)
		return;
	if (to < f->size)
		to -= to % (to - from >= PIECE ? PIECE : PAGE);
	if (to <= from)
		return;
	ret->from = from;
	ret->to = to;
	s->fetched = to;
	if (f->is_hint) { /* it takes nothing from other readers of the file */
		ahead_hint_ended(a, f);
		f->hint_bytes = f->hint = to - from;
		f->hint_end = to;
	}
}

/* Whether a reader that begins a run has read parts of the file before. Others may only have begun with
 * theirs. */
static bool reads_parts(const struct ahead_file *f, uint32_t reader)
{
	uint32_t n = f->alone + f->pairs;

	for (int i = 0; reader && i < AHEAD_STREAMS; i++)
		n += f->stream[i].n_reads && f->stream[i].n_reads <= 2 &&
		     f->stream[i].reader == reader;
	return n >= PARTS_FEW;
}

void ahead_lost(struct ahead *a, uint32_t file, uint64_t at)
{
	struct ahead_file *f = ahead_file_find(a, file);

	for (int i = 0; f && i < AHEAD_STREAMS; i++) {
		struct ahead_stream *s = &f->stream[i];

		if (!s->n_reads || s->fetched <= at || s->end > at)
			continue;
		s->fetched = at;
		s->since = s->run;
	}
	if (f && f->hint_end > at) /* nobody can come for that */
		f->hint_bytes = f->hint = 0;
}

void ahead_read(struct ahead *a, const struct ahead_read *r, struct ahead_advice *ret)
{
	struct ahead_file *f = ahead_file_of(a, r);
	struct ahead_stream *s = stream_find(a, f, r);
	uint64_t end = r->offset + r->length;

	*ret = (struct ahead_advice){ 0 };
	f->used_at = ++a->tick;
	f->is_hint = is_hint(a, f, r);
	ahead_file_asked(a, f, r);
	ret->is_whole = ahead_file_is_whole(a, f, r->room);
	if (!s || s->reader != r->reader)
		reader_left(a, f, r->reader, s);
	if (!s) {
		bool is_part = r->offset && reads_parts(f, r->reader);

		ret->is_again = ahead_file_again(f, r);
		s = stream_new(a, f);
		*s = (struct ahead_stream){ .start = r->offset,
					     .end = r->offset,
					     .is_part = is_part };
	}
	s->used_at = a->tick;
	s->reader = r->reader;
	if (end <= s->end) { /* it was overtaken */
		f->gaps -= MIN(f->gaps, r->length);
		return;
	}
	s->run += end - MAX(s->end, r->offset);
	s->end = end;
	s->n_reads++;
	if (s->n_reads > 1)
		stream_count(a, s, r->now_ns);
	/* All of it is expected to be read, and pieces are kept for the next time. */
	if (s->n_reads == 1 && f->is_hint && ahead_allowance(a, f, r) >= PIECE) {
		ret->is_whole = true;
		s->fetched = MIN((uint64_t)PIECE, f->size);
	}
	stream_advise(a, f, s, r, ret);
	if (s->end == f->size)
		run_ended(a, f, s);
}
