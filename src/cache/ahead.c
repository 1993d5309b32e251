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
 * and a run gets all of it at once. A file is begun at its beginning by most who read all of it, so
 * there a little is fetched at the first READ already; much, if files were read to their end so
 * far, or when the READ is as long as the kernel's can be: advice to read all of a file
 * (POSIX_FADV_WILLNEED) arrives here as one such READ and no other.
 *
 * Whatever is guessed, it is paid for: of each file no more is asked of the source than its readers
 * asked for, one part in AHEAD_SHARE of that, and AHEAD_FILE_CREDIT; and the same for all files
 * together. So a pattern that defeats all of the above costs the source what it would cost without
 * a cache, and a little; while a stream is given back what it spent with every READ of it.
 *
 * The exception is a file that fits into memory and is read again: all of it was read, and more was
 * asked for than it has, so that somebody has lost what he had. What is missing of it is fetched in
 * whole pieces, as each of them comes once. Not before that: in a first pass the kernel keeps what it
 * has read, and pieces would bring most of it once more.
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
#define BIN_NS (50 * NS_PER_MS)
#define BIN_IDLE_NS (500 * NS_PER_MS)
#define LATENCY_NS (5 * NS_PER_S)
#define REACH_LEAST (4ull << 20) /* of all streams: what a link of 1 Gbit/s and 30 ms holds */
#define REACH_EACH (256ull << 10)
enum { ENDS_MOST = 8, ENDS_SURE = 3, RUNS_KNOWN = 4, STREAMS_FRESH = 4 };
enum { ALONE_MOST = 32, ALONE_RUN = 8, ALONE_SURE = 12, ALONE_FEW = 6 };
enum { STREAM_SURE = 3, STREAM_IDLE = 256 }; /* READs: of it, of others meanwhile */
enum { GAPS_SHARE = 10 };
enum { WHOLE_AGAIN = 16, WHOLE_MORE = 16 };
enum { VAIN_MOST = 8, VAIN_SURE = 4, VAIN_PROBE = 16 };
enum { LATENCY_ODD = 8 }; /* so much faster than others: not the source, its client's memory */

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

static struct ahead_file *file_find(struct ahead *a, uint32_t file)
{
	struct ahead_file *set = set_of(a, file);

	for (int i = 0; i < AHEAD_WAYS; i++)
		if (set[i].is_used && set[i].file == file)
			return &set[i];
	return NULL;
}

/* A file that was begun at its beginning was read to its end, or was not. */
static void begun_ended(struct ahead *a, const struct ahead_file *f, const struct ahead_stream *s)
{
	if (s->n_reads && s->start == 0)
		a->ends = s->end == f->size ? MIN(a->ends + 1, ENDS_MOST) : MAX(a->ends - 2, 0);
}

/* What became of the last hint: nobody came for half of it, or somebody did. */
static void hint_ended(struct ahead *a, struct ahead_file *f)
{
	if (f->hint_bytes && f->hint > f->hint_bytes / 2)
		a->vain = MIN(a->vain + 1, (uint32_t)VAIN_MOST);
	else if (f->hint_bytes)
		a->vain -= MIN(a->vain, 2u);
	f->hint_bytes = f->hint = 0;
}

static void file_forget(struct ahead *a, struct ahead_file *f)
{
	hint_ended(a, f);
	for (int i = 0; f->is_used && i < AHEAD_STREAMS; i++)
		begun_ended(a, f, &f->stream[i]);
	if (f->is_whole)
		a->whole_bytes -= f->size;
	memset(f, 0, sizeof(*f));
}

/* Finds it, or makes it in place of the one in its set that was not read for longest. */
static struct ahead_file *file_of(struct ahead *a, const struct ahead_read *r)
{
	struct ahead_file *set = set_of(a, r->file), *f = file_find(a, r->file);

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
	struct ahead_file *f = file_find(a, file);

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
	struct ahead_file *f = file_find(a, file);

	if (is_whole && f)
		f->whole_spent -= MIN(bytes, f->whole_spent);
	if (is_whole)
		return;
	a->spent -= MIN(bytes, a->spent);
	if (f)
		f->spent -= MIN(bytes, f->spent);
}

void ahead_lost(struct ahead *a, uint32_t file, uint64_t at)
{
	struct ahead_file *f = file_find(a, file);

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

static void file_asked(struct ahead *a, struct ahead_file *f, const struct ahead_read *r)
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
 * times where that has not paid. */
static bool file_is_whole(struct ahead *a, struct ahead_file *f, uint64_t room)
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

/* --- runs --- */

/* What the run says of others: it is over, or seems to be. */
static void run_learn(struct ahead_file *f, struct ahead_stream *s)
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
	if (s->n_reads >= STREAM_SURE && s->end < f->size) {
		if (!f->n_runs)
			f->typical = s->run;
		else if (s->run < f->typical)
			f->typical -= (f->typical - s->run) / 4;
		else
			f->typical += (s->run - f->typical) / 8;
		f->n_runs = MIN(f->n_runs + 1, 1u << 16);
	}
}

static void run_ended(struct ahead *a, struct ahead_file *f, struct ahead_stream *s)
{
	begun_ended(a, f, s);
	run_learn(f, s);
	s->n_reads = 0;
}

/* A reader begins elsewhere: where it was it has most likely ended. A run is in the table until others
 * need its place, and that is long. */
static void reader_left(struct ahead_file *f, uint32_t reader)
{
	struct ahead_stream *last = NULL;

	for (int i = 0; reader && i < AHEAD_STREAMS; i++) {
		struct ahead_stream *s = &f->stream[i];

		if (s->n_reads && s->reader == reader && (!last || s->used_at > last->used_at))
			last = s;
	}
	if (last && last->n_reads > 1)
		run_learn(f, last);
}

/* READs of the kernel that overtake each other leave nothing out for long. Who does, reads parts: to
 * fetch what is between them as well is the cheaper way as long as that is little. */
static bool leaves_out(const struct ahead_file *f)
{
	return f->gaps > 2 * AHEAD_NEAR && f->gaps > f->asked / GAPS_SHARE;
}

/* The one that a READ at this place goes on with, or NULL. */
static struct ahead_stream *stream_find(const struct ahead *a, struct ahead_file *f,
					const struct ahead_read *r)
{
	struct ahead_stream *near = NULL;

	for (int i = 0; i < AHEAD_STREAMS; i++) {
		struct ahead_stream *s = &f->stream[i];

		if (s->n_reads && s->end == r->offset)
			return s;
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
	    f->n_runs >= RUNS_KNOWN || f->hint > f->hint_bytes / 2)
		return false;
	return a->vain < VAIN_SURE || ++a->n_vain % VAIN_PROBE == 0;
}

/* Where READs are random two may meet by chance: records side by side, or one over the other, of
 * which the kernel has the beginning. Or a record is two READs. The third one tells. */
static bool is_chance(const struct ahead_file *f, const struct ahead_stream *s)
{
	uint32_t n = f->alone + f->pairs;

	for (int i = 0; i < AHEAD_STREAMS; i++)
		n += f->stream[i].n_reads == 1 ||
		     (f->stream[i].n_reads == 2 && &f->stream[i] != s);
	return s->n_reads == 2 && s->start && n >= ALONE_FEW;
}

/* What should lie ahead of it now. */
static uint64_t stream_want(const struct ahead *a, const struct ahead_file *f,
			    const struct ahead_stream *s, const struct ahead_read *r)
{
	uint64_t reach = ahead_reach(a), run = s->run, want = 2 * run;

	if (s->n_reads == 1 && r->offset)
		return 0;
	if (s->n_reads == 1 && (r->is_sample || a->ends >= ENDS_SURE))
		return reach;
	if (is_chance(f, s))
		return 0;
	if (s->n_reads == 1 && f->is_hint)
		return AHEAD_MOST;
	if (s->n_reads == 1)
		return AHEAD_FIRST - MIN(r->length, (uint32_t)AHEAD_FIRST);
	if (f->n_runs >= RUNS_KNOWN)
		want = run < f->typical ? f->typical - run : 2 * (run - f->typical);
	if (s->since)
		want = MIN(want, 2 * (run - s->since));
	return MIN(want, reach);
}

static uint64_t left_of(uint64_t asked, uint64_t spent, uint64_t credit)
{
	uint64_t most = asked + asked / AHEAD_SHARE + credit;

	return most - MIN(spent, most);
}

/* What may be fetched now that nobody has asked for. The READ that is under way may have its own
 * bytes to pay. */
static uint64_t allowance(const struct ahead *a, const struct ahead_file *f,
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

static void stream_advise(struct ahead *a, struct ahead_file *f, struct ahead_stream *s,
			  const struct ahead_read *r, struct ahead_advice *ret)
{
	uint64_t want = stream_want(a, f, s, r), from = MAX(s->fetched, s->end);
	uint64_t to = MIN(s->end + want, f->size), enough = MIN(want / 2, (uint64_t)PIECE);
	uint64_t may = allowance(a, f, r);

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
		hint_ended(a, f);
		f->hint_bytes = f->hint = to - from;
		f->hint_end = to;
	}
}

void ahead_read(struct ahead *a, const struct ahead_read *r, struct ahead_advice *ret)
{
	struct ahead_file *f = file_of(a, r);
	struct ahead_stream *s = stream_find(a, f, r);
	uint64_t end = r->offset + r->length;

	*ret = (struct ahead_advice){ 0 };
	f->used_at = ++a->tick;
	f->is_hint = is_hint(a, f, r);
	file_asked(a, f, r);
	ret->is_whole = file_is_whole(a, f, r->room);
	if (!s) {
		reader_left(f, r->reader);
		s = stream_new(a, f);
		*s = (struct ahead_stream){ .start = r->offset, .end = r->offset };
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
	if (s->n_reads == 1 && f->is_hint && allowance(a, f, r) >= PIECE) {
		ret->is_whole = true;
		s->fetched = MIN((uint64_t)PIECE, f->size);
	}
	stream_advise(a, f, s, r, ret);
	if (s->end == f->size)
		run_ended(a, f, s);
}
