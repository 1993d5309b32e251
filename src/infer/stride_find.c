/* SPDX-License-Identifier: Apache-2.0 */
/* Records of one length, from the pages where readers began. Record k begins at origin + k * stride, and its READ
 * at the page that this is in. So modulo the stride all beginnings are within a page of each other, and by
 * chance one of them is there once in stride / 4096 times:
 *
 *	0                       stride
 *	|......[page]............|      beginnings modulo the right stride; modulo any other they are everywhere
 *
 * Strides are whole numbers, so all that are possible are tried: those about as long as what was read at
 * once, multiples of 4096 and 512, and longer ones (who reads a part of each record). Most are given up after a
 * few beginnings. Evidence is the bound of that chance, less the price of the stride and the place chosen. Footers,
 * trees of a format and beginnings that were in the page cache are strays, of which there may be as many as not.
 *
 * If several strides fit, the longest ones say most: of records read every other time a multiple is found, until one
 * between them comes. Where readers saw a small part of the file its neighbours fit as well: taken is one by which
 * records end with the file, then the roundest. Pure; half a second where nothing is found. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stride_priv.h"

#define LEAST 16u    /* beginnings; of fewer all may be multiples of something */
#define SKETCH 24u   /* that a stride is looked at with */
#define SKETCH_FIT 12u
#define ANCHORS 6u   /* one of them is a record's, if half of all are: nearly always */
#define ROUND 6755399441055744.0 /* added to a number below 2^51, it leaves no place for its fraction */
#define ENOUGH_BITS 24.0
#define CLASS_MAX (1u << 20) /* strides of a kind that are tried */
#define BIG_PAGES 32u        /* what is read at once may be longer than a record: read-ahead, also around a page */
#define AHEAD_PAGES 257u
#define SPARSE 4u            /* who reads a quarter of each */
#define TIMES_MAX 8u
#define MULTIPLES_MAX 256u
#define STRAYS_OF 32 /* records: one of so many may be a stray, beside where they begin */
#define COUNT_PAGES 512u /* of strides up to that long beginnings are counted before they are sorted */
#define UNHEARD 64u /* strides that are tried before it is asked whether to go on */

/* A kind of strides: from, from + step, ... */
struct kind {
	uint64_t from, to, step;
};

struct fit {
	uint64_t stride, phase; /* phase: where the page begins, modulo the stride */
	uint32_t hits;
	double bits;
};

struct starts {
	uint64_t at[STRIDE_STARTS_MAX]; /* distinct, in the order of the READs */
	uint64_t phase[2 * STRIDE_STARTS_MAX];
	uint16_t in_page[COUNT_PAGES];
	uint32_t n, pages; /* pages: that are read at once, in the middle */
	uint64_t span;
	double sketch[SKETCH];
	const atomic_bool *cancel; /* NULL: never */
};

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Beginnings evenly from all that there are, so that strides show that fit the first few only. */
static void take_starts(const struct stride *s, struct starts *ret)
{
	uint64_t low = UINT64_MAX, high = 0;
	uint32_t n_pages = 0;

	ret->n = 0;
	for (uint32_t i = 0; i < s->n_starts; i++) {
		const struct stride_start *start = &s->start[i];

		if (start->is_over && start->pages)
			ret->phase[n_pages++] = start->pages;
		if (!start->is_new)
			continue;
		low = MIN(low, start->at);
		high = MAX(high, start->at);
		ret->at[ret->n++] = start->at;
	}
	qsort(ret->phase, n_pages, sizeof(ret->phase[0]), compare_u64);
	ret->pages = n_pages ? (uint32_t)MIN(ret->phase[n_pages / 2], 1u << 24) : 0;
	ret->span = ret->n ? high - low : 0;
	for (uint32_t i = 0; i < MIN(ret->n, SKETCH); i++)
		ret->sketch[i] = (double)ret->at[(uint64_t)i * ret->n / SKETCH];
}

/* Whether enough of a few are within a page of one of the anchors. Places are below 2^53, so this is exact. */
static bool is_worth_it(const struct starts *s, double stride)
{
	const double inverse = 1 / stride;
	const uint32_t n = MIN(s->n, SKETCH), fit = MIN(SKETCH_FIT, n / 2);

	for (uint32_t a = 0; a < ANCHORS; a++) {
		uint32_t hits = 0;

		for (uint32_t i = 0; i < n && 3 * hits + 5 >= i; i++) {
			double off = s->sketch[i] - s->sketch[a * n / ANCHORS];

			off -= stride * (off * inverse + ROUND - ROUND);
			hits += off < STRIDE_PAGE && off > -(double)STRIDE_PAGE;
		}
		if (hits >= fit)
			return true;
	}
	return false;
}

/* Of those that chance would not have there: where records are short it has many there, and beginnings that are
 * no records' need not be everywhere alike (read-ahead ends at powers of two). */
static bool explains_half(const struct starts *s, uint64_t stride, uint32_t hits)
{
	double chance = (double)STRIDE_PAGE / (double)stride * s->n;

	return 2 * (hits - chance) >= s->n - chance;
}

/* No less than the hits of fit_of, without sorting: what is within a page is in two pages that are side by side. */
static uint32_t hits_at_most(struct starts *s, uint64_t stride)
{
	uint32_t pages = (uint32_t)DIV_ROUND_UP(stride, STRIDE_PAGE), most;

	memset(s->in_page, 0, pages * sizeof(s->in_page[0]));
	for (uint32_t i = 0; i < s->n; i++)
		s->in_page[s->at[i] % stride / STRIDE_PAGE]++;
	/* The last one may be short: then what is within a page may be in three. */
	most = s->in_page[MAX(pages, 2u) - 2] + s->in_page[pages - 1] + s->in_page[0];
	for (uint32_t i = 1; i < pages; i++)
		most = MAX(most, s->in_page[i - 1] + s->in_page[i]);
	return most;
}

/* The page of the stride that most beginnings are in; n of s->at, all of them. */
static struct fit fit_of(struct starts *s, uint64_t stride)
{
	struct fit best = { .stride = stride };
	uint32_t first = 0;

	for (uint32_t i = 0; i < s->n; i++)
		s->phase[i] = s->at[i] % stride;
	qsort(s->phase, s->n, sizeof(s->phase[0]), compare_u64);
	for (uint32_t i = 0; i < s->n; i++)
		s->phase[s->n + i] = s->phase[i] + stride;
	for (uint32_t last = 0; last < 2 * s->n; last++) {
		while (s->phase[last] - s->phase[first] >= STRIDE_PAGE)
			first++;
		if (last - first + 1 > best.hits && last - first < s->n) {
			best.hits = last - first + 1;
			best.phase = s->phase[last] % stride;
		}
	}
	best.bits = evidence_chance_bits(best.hits - 1, s->n - 1, (double)STRIDE_PAGE / (double)stride) -
		    log2(s->n);
	return best;
}

static void try_stride(struct starts *s, uint64_t stride, double price, struct fit *best)
{
	struct fit one;

	if (stride <= COUNT_PAGES * STRIDE_PAGE && !explains_half(s, stride, hits_at_most(s, stride)))
		return;
	one = fit_of(s, stride);
	one.bits -= price;
	if (explains_half(s, stride, one.hits) && one.bits > best->bits)
		*best = one;
}

/* After so many strides: nobody wants the answer any more. */
static bool is_cancelled(const struct starts *s, uint64_t tried)
{
	return s->cancel && tried % UNHEARD == 0 && atomic_load_explicit(s->cancel, memory_order_relaxed);
}

static void try_kind(struct starts *s, struct kind k, double price, struct fit *best)
{
	uint64_t from = DIV_ROUND_UP(MAX(k.from, STRIDE_LEAST), k.step) * k.step, to = MIN(k.to, s->span);

	for (uint64_t i = 0, stride = from; stride <= to && i < CLASS_MAX && !is_cancelled(s, i); i++, stride += k.step)
		if (is_worth_it(s, (double)stride))
			try_stride(s, stride, price, best);
}

/* Multiples of what was found: they explain more, if they fit. */
static void try_multiples(struct starts *s, struct fit *best)
{
	const struct fit one = *best;
	uint64_t off = STRIDE_PAGE * one.stride / MAX(s->span, 1) + 1;

	/* There are few, so none is given up by a few beginnings that are strays. */
	for (uint64_t times = 2; times <= TIMES_MAX; times++)
		for (uint64_t k = 0; k <= 2 * times * off && k < MULTIPLES_MAX && !is_cancelled(s, k); k++)
			try_stride(s, times * (one.stride - off) + k, 2.3 + 20, best);
}

/* Five kinds, each at the price of one of them and of the strides it has. */
static struct fit find_kind(struct starts *s)
{
	uint64_t read = (uint64_t)s->pages * STRIDE_PAGE, page = STRIDE_PAGE;
	struct fit best = { .bits = 0 };

	try_kind(s, (struct kind){ read - MIN(read, 2 * page), read + page, 1 }, 2.3 + log2(3 * page), &best);
	try_kind(s, (struct kind){ page, (uint64_t)CLASS_MAX / 64 * page, page }, 2.3 + 14, &best);
	try_kind(s, (struct kind){ 512, (uint64_t)CLASS_MAX / 64 * 512, 512 }, 2.3 + 14, &best);
	if (best.bits >= ENOUGH_BITS)
		return best;
	if (s->pages >= BIG_PAGES)
		try_kind(s, (struct kind){ read - MIN(read, AHEAD_PAGES * page), read, 1 }, 2.3 + 20, &best);
	if (best.bits < ENOUGH_BITS)
		try_kind(s, (struct kind){ read, SPARSE * read, 1 }, 2.3 + 20, &best);
	return best;
}

/* --- which of the strides that fit, and from where --- */

/* The records that were read: their beginnings, and numbers by the first stride. */
struct read_records {
	uint64_t *at;
	int64_t *number;
	uint32_t n;
	int64_t first, reach; /* the lowest number, and the highest */
};

/* READs of records begin in [low, low + 4095] + k * stride. */
static void list_records(const struct starts *s, const struct fit *fit, struct read_records *ret)
{
	/* Below 0, where record 0 begins in the first page. */
	int64_t low = (int64_t)fit->phase - (int64_t)(STRIDE_PAGE - 1), stride = (int64_t)fit->stride;

	for (uint32_t i = 0; i < s->n; i++) {
		int64_t off = (int64_t)s->at[i] - low;

		if (off < 0 || off % stride >= (int64_t)STRIDE_PAGE)
			continue;
		ret->at[ret->n] = s->at[i];
		ret->number[ret->n] = off / stride;
		ret->first = ret->n ? MIN(ret->first, ret->number[ret->n]) : ret->number[0];
		ret->reach = MAX(ret->reach, ret->number[ret->n]);
		ret->n++;
	}
}

/* Whether what is taken for record 0 is number 1, though a few were read that begin too low for that. They are
 * strays: of a header that ends just before record 1 many were. */
static bool is_moved(const struct read_records *r, int64_t stride, int64_t low)
{
	uint32_t below = 0;

	if (low + (int64_t)STRIDE_PAGE <= stride)
		return false;
	for (uint32_t i = 0; i < r->n; i++)
		below += (int64_t)r->at[i] - r->number[i] * stride + (int64_t)STRIDE_PAGE <= stride;
	return below * STRAYS_OF <= r->n;
}

/* Where record 0 may begin by this stride: all that were read begin in their pages. Where it may be behind the
 * first stride, what is taken for it is number 1. False: nowhere. */
static bool origins_of(const struct read_records *r, uint64_t stride, int64_t *low, int64_t *high)
{
	*low = INT64_MIN;
	*high = INT64_MAX;
	for (uint32_t i = 0; i < r->n; i++) {
		int64_t zero = (int64_t)r->at[i] - r->number[i] * (int64_t)stride;

		*low = MAX(*low, zero);
		*high = MIN(*high, zero + (int64_t)STRIDE_PAGE - 1);
	}
	if (*low > *high)
		return false;
	if (*high >= (int64_t)stride || is_moved(r, (int64_t)stride, *low)) {
		*low -= (int64_t)stride;
		*high = MAX(*high - (int64_t)stride, 0);
	}
	return *high >= 0;
}

/* The roundest number of low..high, of [0, stride). */
static int64_t roundest(int64_t low, int64_t high, int64_t stride)
{
	int64_t unit = 1ll << 40;

	low = MAX(low, 0);
	high = MIN(high, stride - 1);
	while (unit > 1 && DIV_ROUND_UP(low, unit) * unit > high)
		unit /= 2;
	return DIV_ROUND_UP(low, unit) * unit;
}

#define ROUND_BYTES 512
#define NICE_END 256 /* records end with the file */
/* How much speaks for a stride among those that fit. Lower 8 bits: how round it is. ret_origin: of it. */
static int niceness(uint64_t stride, int64_t low, int64_t high, uint64_t size, uint64_t *ret_origin)
{
	/* The last record may end with the file, if 0 begins there: */
	uint64_t rest = (size - (uint64_t)MAX(low, 0)) % stride, ends = (uint64_t)MAX(low, 0) + rest;
	bool is_end = (int64_t)ends <= high && ends < stride && ends % 64 == 0;

	*ret_origin = is_end ? ends : (uint64_t)roundest(low, high, (int64_t)stride);
	return (is_end ? NICE_END : 0) + __builtin_ctzll(stride);
}

static bool choose_stride(const struct read_records *r, const struct fit *fit, uint64_t size,
			  struct stride_view *ret)
{
	/* A page of drift over all that was read is as far as either can be off the right one. */
	uint64_t off = 2 * STRIDE_PAGE / (uint64_t)MAX(r->reach - r->first, 1) + 1;
	uint64_t least = MAX(fit->stride, off) - off, n_end = 0;
	int best = -1;

	for (uint64_t stride = MAX(least, STRIDE_LEAST); stride <= fit->stride + off; stride++) {
		uint64_t origin;
		int64_t low, high;
		int nice;

		if (!origins_of(r, stride, &low, &high))
			continue;
		nice = niceness(stride, low, high, size, &origin);
		ret->stride_least = best < 0 ? stride : ret->stride_least;
		ret->stride_most = stride;
		n_end += nice >= NICE_END;
		if (nice <= best)
			continue;
		best = nice;
		ret->stride = stride;
		ret->origin = origin;
		/* A stray near a record's beginning may have moved it by a page. */
		ret->least = (uint64_t)MAX(low - (int64_t)STRIDE_PAGE, 0);
		ret->low = nice >= NICE_END ? origin : (uint64_t)MAX(low, 0);
		ret->high = nice >= NICE_END ? origin : (uint64_t)MIN(high, (int64_t)stride - 1);
	}
	/* Of round lengths no number of reads tells the neighbours apart; of others one may end so by chance. */
	if (n_end == 1 && ret->stride % ROUND_BYTES == 0)
		ret->stride_least = ret->stride_most = ret->stride;
	return best >= 0;
}

static struct fit find_fit(struct starts *s)
{
	struct fit best = find_kind(s);
	uint64_t before = 0;

	/* Where all anchors are strays, a short divisor was found: the stride may be a multiple of its multiple. */
	while (best.bits >= ENOUGH_BITS && best.stride != before) {
		before = best.stride;
		try_multiples(s, &best);
	}
	return best;
}

bool stride_find(const struct stride *s, const atomic_bool *cancel, struct stride_view *ret)
{
	AUTO_FREE struct starts *starts = malloc(sizeof(*starts));
	AUTO_FREE uint64_t *at = malloc(STRIDE_STARTS_MAX * sizeof(*at));
	AUTO_FREE int64_t *number = malloc(STRIDE_STARTS_MAX * sizeof(*number));
	struct read_records records = { .at = at, .number = number };
	struct fit fit;

	if (!starts || !at || !number || s->size >= 1ull << 53)
		return false;
	starts->cancel = cancel;
	take_starts(s, starts);
	if (starts->n < LEAST)
		return false;
	fit = find_fit(starts);
	if (fit.bits < ENOUGH_BITS || is_cancelled(starts, 0))
		return false;
	list_records(starts, &fit, &records);
	if (!choose_stride(&records, &fit, s->size, ret))
		return false;
	ret->bits = fit.bits - ENOUGH_BITS;
	ret->n = (s->size - ret->least) / ret->stride;
	ret->reach = 0;
	for (uint32_t i = 0; i < records.n; i++)
		ret->reach = MAX(ret->reach, (at[i] + STRIDE_PAGE - 1 - ret->origin) / ret->stride + 1);
	return true;
}
