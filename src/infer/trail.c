/* SPDX-License-Identifier: Apache-2.0 */
/* The stream of opens, cut into passes over the dataset. In a shuffled epoch no sample comes twice,
 * so a new pass shows by samples that come again; a file opened several times in a row (an echo:
 * size first, then bytes; or an index that goes with every sample) says nothing. Samples that the
 * job leaves out, or another rank reads, make repeats rarer, so the bar follows how much of the
 * dataset was seen.
 *
 * A pause is the other sign: somebody looks at a few files, and minutes later the job starts. But a
 * job may pause as well, after its loader has filled up and while it compiles. So the opens after a
 * pause are a second beginning beside that of the pass, not instead of it, unless there was next to
 * nothing before.
 *
 * What was seen in a pass that is over is what the job reads, all of the dataset or some of it.
 *
 * Of few samples (shards) a handful of repeats is a new pass, looks come sooner, and a few passes are kept:
 * one alone may say too little.
 *
 * It must stay cheap: it runs for every open, on the planner's thread. Memory is two bits per sample
 * and the first opens of two beginnings. Pure; the caller locks. */
#include <errno.h>
#include <string.h>

#include "infer_priv.h"

#define WINDOW 32   /* opens by which a new pass is judged */
#define AGAIN_MIN 8 /* of them seen before */
#define STRAY_OPENS 16
#define FRESH_SHARE 16

/* Numbers of opens that are worth a look. */
static const uint32_t looks[] = { 32, TRAIL_FEW, 256, TRAIL_MAX };
#define FEW_LOOK 8 /* the first one of few samples, */
#define FEW_STEP 4 /* and the next ones */

int trail_init(struct trail *t, uint64_t n)
{
	*t = (struct trail){ .n = n };
	t->start[TRAIL_PASS].is_used = true;
	return bitmap_init(&t->seen, n) < 0 ? -ENOMEM : bitmap_init(&t->before, n);
}

void trail_fini(struct trail *t)
{
	bitmap_fini(&t->seen);
	bitmap_fini(&t->before);
}

/* The open `ago` opens before the last one, 0: the last. */
static uint32_t tail_at(const struct trail *t, uint32_t ago)
{
	return (t->tail_head + 2 * TRAIL_TAIL - 1 - ago) % TRAIL_TAIL;
}

static void tail_push(struct trail *t, uint32_t sample, bool is_again)
{
	t->tail[t->tail_head].sample = sample;
	t->tail[t->tail_head].is_again = is_again;
	t->tail_head = (t->tail_head + 1) % TRAIL_TAIL;
	t->tail_count = MIN(t->tail_count + 1, TRAIL_TAIL);
}

static bool is_echo(const struct trail *t, uint32_t sample)
{
	uint32_t far = (uint32_t)MIN(t->tail_count, t->n / 8);

	for (uint32_t ago = 0; ago < far; ago++)
		if (t->tail[tail_at(t, ago)].sample == sample)
			return true;
	return false;
}

static void start_begin(struct trail_start *s)
{
	memset(s, 0, sizeof(*s));
	s->is_used = true;
}

static void start_add(struct trail_start *s, uint32_t sample)
{
	s->opens++;
	if (s->n < TRAIL_MAX)
		s->seen[s->n++] = sample;
}

static void pause_over(struct trail *t)
{
	if (t->start[TRAIL_PASS].opens <= STRAY_OPENS) {
		bitmap_clear_all(&t->seen);
		start_begin(&t->start[TRAIL_PASS]);
		t->tail_count = 0;
	} else {
		start_begin(&t->start[TRAIL_PAUSED]);
	}
}

static uint32_t window_of(const struct trail *t)
{
	return t->n < INFER_MANY ? (uint32_t)t->n / 2 : WINDOW;
}

static bool has_turned(const struct trail *t)
{
	uint32_t window = window_of(t);
	uint64_t bar = window / 2 * t->seen.count / t->n, again = 0;

	for (uint32_t ago = 0; ago < MIN(t->tail_count, window); ago++)
		again += t->tail[tail_at(t, ago)].is_again;
	return again >= MAX(MAX(bar, window * AGAIN_MIN / WINDOW), 2);
}

/* A pass is over, though it may not have been heard of from its beginning: who uses it looks whether
 * the opens of this one are among what it read. Loaders leave out an incomplete batch of an epoch, each
 * time another: where this one had next to nothing new, both together are what the job reads. */
static void keep_seen(struct trail *t)
{
	uint64_t n_words = DIV_ROUND_UP(t->n, 64), fresh = 0;
	struct bitmap was = t->before;

	for (uint64_t i = 0; i < n_words; i++)
		fresh += (uint64_t)__builtin_popcountll(t->seen.words[i] & ~was.words[i]);
	if (t->has_before && fresh * FRESH_SHARE <= t->seen.count) {
		for (uint64_t i = 0; i < n_words; i++)
			t->before.words[i] |= t->seen.words[i];
		t->before.count += fresh;
	} else {
		t->before = t->seen;
		t->seen = was;
	}
	t->has_before = true;
}

/* One more of few samples; the oldest one is forgotten. */
static void keep_pass(struct trail *t)
{
	const struct trail_start *s = &t->start[TRAIL_PASS];
	struct trail_pass *last;

	if (t->n >= INFER_MANY)
		return;
	if (t->n_last == ARRAY_LEN(t->last))
		memmove(&t->last[0], &t->last[1], --t->n_last * sizeof(t->last[0]));
	last = &t->last[t->n_last++];
	last->n = MIN(s->n, (uint32_t)ARRAY_LEN(last->seen));
	memcpy(last->seen, s->seen, last->n * sizeof(*last->seen));
}

/* The pass begins with the first repeat within the window. */
static void turn(struct trail *t)
{
	uint32_t sample[WINDOW], n = 0, first = 0;

	for (uint32_t ago = 0; ago < MIN(t->tail_count, window_of(t)); ago++)
		if (t->tail[tail_at(t, ago)].is_again)
			first = ago;
	for (uint32_t ago = first + 1; ago-- > 0;)
		sample[n++] = t->tail[tail_at(t, ago)].sample;
	keep_seen(t);
	keep_pass(t);
	bitmap_clear_all(&t->seen);
	start_begin(&t->start[TRAIL_PASS]);
	memset(&t->start[TRAIL_PAUSED], 0, sizeof(t->start[TRAIL_PAUSED]));
	t->tail_count = 0;
	t->pass++;
	for (uint32_t i = 0; i < n; i++) {
		tail_push(t, sample[i], false);
		if (bitmap_set(&t->seen, sample[i]))
			start_add(&t->start[TRAIL_PASS], sample[i]);
	}
}

void trail_restart(struct trail *t, uint64_t after)
{
	uint64_t oldest = t->noted - MIN(t->noted, TRAIL_RECENT);

	t->has_before = false; /* that was not what it was taken for */
	t->n_last = 0;
	bitmap_clear_all(&t->seen);
	start_begin(&t->start[TRAIL_PASS]);
	memset(&t->start[TRAIL_PAUSED], 0, sizeof(t->start[TRAIL_PAUSED]));
	t->tail_count = 0;
	t->pass++;
	for (uint64_t i = MAX(after, oldest); i < t->noted; i++) {
		uint32_t sample = t->recent[i % TRAIL_RECENT];

		if (is_echo(t, sample))
			continue;
		tail_push(t, sample, false);
		if (bitmap_set(&t->seen, sample))
			start_add(&t->start[TRAIL_PASS], sample);
	}
}

bool trail_open(struct trail *t, uint32_t sample, uint64_t now_ns)
{
	bool has_paused = t->opens > 0 && now_ns - t->last_ns >= TRAIL_PAUSE_NS, is_again;

	t->last_ns = now_ns;
	t->opens++;
	if (has_paused)
		pause_over(t);
	if (is_echo(t, sample))
		return false;
	t->recent[t->noted++ % TRAIL_RECENT] = sample;
	is_again = !bitmap_set(&t->seen, sample);
	tail_push(t, sample, is_again);
	if (t->start[TRAIL_PAUSED].is_used)
		start_add(&t->start[TRAIL_PAUSED], sample);
	if (!is_again) {
		start_add(&t->start[TRAIL_PASS], sample);
		return false;
	}
	if (!has_turned(t))
		return false;
	turn(t);
	return true;
}

/* The last ones are at nearly all of them: some opens at a pass' beginning pass for echoes of the last one's end. */
static uint32_t due_of_few(const struct trail *t, const struct trail_start *s)
{
	uint32_t due = s->n < FEW_LOOK ? 0 : s->n - s->n % FEW_STEP;

	if (s->n + t->n / 8 >= t->n)
		due = s->n;
	return s->looked < due ? due : 0;
}

uint32_t trail_due(const struct trail *t, uint32_t start)
{
	const struct trail_start *s = &t->start[start];
	/* Of a small dataset a few opens are most of it. */
	uint32_t least = (uint32_t)MIN(looks[0], MAX(t->n / 8, 1)), due = 0;

	if (!s->is_used)
		return 0;
	if (t->n < INFER_MANY)
		return due_of_few(t, s);
	if (s->n >= least && s->looked < least)
		due = least;
	for (size_t i = 0; i < ARRAY_LEN(looks); i++)
		if (s->n >= looks[i] && s->looked < looks[i])
			due = looks[i];
	return due;
}
