/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena: one range of address space of exactly the budget, divided into extents of whole pages.
 * What is resident can thus never pass the budget, holes included, whatever is allocated.
 *
 *	pages   |  extent (used)  | free extent  |    extent (used)    | free ...
 *	tags     ^span         ^span          (first and last page of an extent say its length)
 *	chunks  |------------ 2 MiB ------------|------------ 2 MiB ------------|
 *
 * Free extents are in bins, one per length up to a piece, so that the first bin with anything in it
 * is the best fit; neighbours are merged at release. All in constant time, with tags outside of the
 * memory handed out (12 bytes per page, not part of the budget). Mixes of sizes that are replaced
 *at random keep 91 to 99 % of 2 GiB in payload (82 to 99 % of 128 MiB); size classes of an eighth
 *would lose 6 % to rounding alone, and then chunks of classes that nobody wants now.
 *
 * Memory goes back to the system by chunks of 2 MiB, the size of a huge page. A chunk that becomes
 * empty stays resident if there are few such, else it is taken out of the free space, dropped
 * without the lock, and put back. Under a limit (arena_set_limit) that would not do: samples are
 * released in any order, and a chunk of twenty of them is seldom empty. Then every release gives
 * its own pages back. Any thread. Must never touch the memory it hands out.
 */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "clairfs/base/thr.h"
#include "clairfs/tier.h"

#define ARENA_PAGE 4096u
#define ARENA_CHUNK_BYTES (2u << 20)
#define ARENA_CHUNK (ARENA_CHUNK_BYTES / ARENA_PAGE) /* pages */
#define ARENA_EXACT (PIECE_BYTES / ARENA_PAGE)       /* bins of one length each */
#define ARENA_BINS (ARENA_EXACT + 24)                /* then powers of two */
#define ARENA_MAX_PAGES (1u << 30)
#define ARENA_FREE (1u << 31) /* in a tag */
#define ARENA_NONE UINT32_MAX
#define ARENA_KEEP_MIN 4u
#define ARENA_KEEP_MAX 64u

struct arena_page {
	uint32_t tag; /* of the first and the last page of an extent: its pages | ARENA_FREE */
	uint32_t next, prev; /* of the first page of a free extent: its bin */
};

struct arena_chunk {
	uint16_t used;    /* pages of it */
	bool is_resident; /* something was allocated in it since it was given back */
};

struct arena {
	struct mutex mu;
	uint8_t *base; /* at a multiple of ARENA_CHUNK_BYTES */
	uint32_t n_pages, n_chunks;
	uint32_t keep;                                  /* empty chunks that may stay resident */
	uint32_t n_empty;                               /* mu; resident and empty */
	struct arena_page *pages;                       /* mu */
	struct arena_chunk *chunks;                     /* mu */
	uint32_t bins[ARENA_BINS];                      /* mu; first free extent, or ARENA_NONE */
	uint64_t has_bin[DIV_ROUND_UP(ARENA_BINS, 64)]; /* mu */
	_Atomic uint64_t used;
	_Atomic uint64_t limit; /* of `used`; n_pages: none */
	void *map;
	size_t map_bytes, pages_bytes;
};

static uint32_t pages_of(uint32_t length)
{
	return length ? (uint32_t)DIV_ROUND_UP((uint64_t)length, ARENA_PAGE) : 1;
}

uint64_t arena_cost(uint32_t length)
{
	return (uint64_t)pages_of(length) * ARENA_PAGE;
}

uint64_t arena_table_bytes(const struct arena *arena)
{
	return arena->pages_bytes + arena->n_chunks * sizeof(arena->chunks[0]);
}

uint64_t arena_used(const struct arena *arena)
{
	return atomic_load_explicit(&arena->used, memory_order_relaxed);
}

static uint32_t bin_of(uint32_t span)
{
	if (span <= ARENA_EXACT)
		return span - 1;
	return ARENA_EXACT + (31 - (uint32_t)__builtin_clz(span)) - 8; /* 2^8 = ARENA_EXACT */
}

static void tag_locked(struct arena *a, uint32_t first, uint32_t span, uint32_t flag)
	REQUIRES(a->mu)
{
	a->pages[first].tag = span | flag;
	a->pages[first + span - 1].tag = span | flag;
}

static void bin_add_locked(struct arena *a, uint32_t first, uint32_t span) REQUIRES(a->mu)
{
	uint32_t bin = bin_of(span), head = a->bins[bin];

	tag_locked(a, first, span, ARENA_FREE);
	a->pages[first].next = head;
	a->pages[first].prev = ARENA_NONE;
	if (head != ARENA_NONE)
		a->pages[head].prev = first;
	a->bins[bin] = first;
	a->has_bin[bin / 64] |= 1ull << bin % 64;
}

static void bin_remove_locked(struct arena *a, uint32_t first, uint32_t span) REQUIRES(a->mu)
{
	uint32_t next = a->pages[first].next, prev = a->pages[first].prev, bin = bin_of(span);

	if (next != ARENA_NONE)
		a->pages[next].prev = prev;
	if (prev != ARENA_NONE) {
		a->pages[prev].next = next;
		return;
	}
	a->bins[bin] = next;
	if (next == ARENA_NONE)
		a->has_bin[bin / 64] &= ~(1ull << bin % 64);
}

/* First page of the smallest free extent that holds `span` pages, or ARENA_NONE. */
static uint32_t best_fit_locked(const struct arena *a, uint32_t span) REQUIRES(a->mu)
{
	uint32_t bin = bin_of(span), word = bin / 64;
	uint64_t bits = a->has_bin[word] & (~0ull << bin % 64);

	while (!bits) {
		if (++word == ARRAY_LEN(a->has_bin))
			return ARENA_NONE;
		bits = a->has_bin[word];
	}
	return a->bins[word * 64 + (uint32_t)__builtin_ctzll(bits)];
}

/* Takes pages [first, first + span) out of the free extent [extent, extent + extent_span). */
static void carve_locked(struct arena *a, uint32_t extent, uint32_t extent_span, uint32_t first,
			 uint32_t span) REQUIRES(a->mu)
{
	uint32_t end = extent + extent_span, after = first + span;

	assert(span > 0 && first >= extent && after <= end);
	assert(a->pages[extent].tag == (extent_span | ARENA_FREE));
	bin_remove_locked(a, extent, extent_span);
	if (first > extent)
		bin_add_locked(a, extent, first - extent);
	if (end > after)
		bin_add_locked(a, after, end - after);
	tag_locked(a, first, span, 0);
}

/* Puts pages back, merged with free neighbours; the merged extent is returned. */
static void join_locked(struct arena *a, uint32_t *first, uint32_t *span) REQUIRES(a->mu)
{
	uint32_t after = *first + *span;

	if (*first > 0 && (a->pages[*first - 1].tag & ARENA_FREE)) {
		uint32_t before = a->pages[*first - 1].tag & ~ARENA_FREE;

		*first -= before;
		*span += before;
		assert(a->pages[*first].tag == (before | ARENA_FREE));
		bin_remove_locked(a, *first, before);
	}
	if (after < a->n_pages && (a->pages[after].tag & ARENA_FREE)) {
		uint32_t behind = a->pages[after].tag & ~ARENA_FREE;

		bin_remove_locked(a, after, behind);
		*span += behind;
	}
	assert(*first + *span <= a->n_pages);
	bin_add_locked(a, *first, *span);
}

static uint32_t chunk_pages(const struct arena *a, uint32_t chunk)
{
	return MIN(ARENA_CHUNK, a->n_pages - chunk * ARENA_CHUNK);
}

/* Adds (or, with is_used false, takes off) the pages of an extent from the counts of its chunks. */
static void count_chunks_locked(struct arena *a, uint32_t first, uint32_t span, bool is_used)
	REQUIRES(a->mu)
{
	while (span > 0) {
		struct arena_chunk *chunk = &a->chunks[first / ARENA_CHUNK];
		uint32_t n = MIN(span, ARENA_CHUNK - first % ARENA_CHUNK);

		assert(is_used ? chunk->used + n <= ARENA_CHUNK : chunk->used >= n);
		if (is_used && chunk->used == 0) {
			if (chunk->is_resident)
				a->n_empty--;
			chunk->is_resident = true;
		}
		chunk->used = (uint16_t)(is_used ? chunk->used + n : chunk->used - n);
		if (chunk->used == 0)
			a->n_empty++;
		first += n;
		span -= n;
	}
}

static bool is_limited(const struct arena *a)
{
	return atomic_load_explicit(&a->limit, memory_order_relaxed) <
	       (uint64_t)a->n_pages * ARENA_PAGE;
}

static bool is_beyond_limit(const struct arena *a, uint32_t span)
{
	return is_limited(a) && arena_used(a) + (uint64_t)span * ARENA_PAGE >
					atomic_load_explicit(&a->limit, memory_order_relaxed);
}

void *arena_alloc(struct arena *arena, uint32_t length)
{
	uint32_t span = pages_of(length), first;

	if (length > PIECE_BYTES)
		return NULL;
	mutex_lock(&arena->mu);
	first = is_beyond_limit(arena, span) ? ARENA_NONE : best_fit_locked(arena, span);
	if (first != ARENA_NONE) {
		carve_locked(arena, first, arena->pages[first].tag & ~ARENA_FREE, first, span);
		count_chunks_locked(arena, first, span, true);
		atomic_fetch_add_explicit(&arena->used, (uint64_t)span * ARENA_PAGE,
					  memory_order_relaxed);
	}
	mutex_unlock(&arena->mu);
	if (first == ARENA_NONE)
		return NULL;
	return arena->base + (size_t)first * ARENA_PAGE;
}

/* Of the chunks first..last that a release has touched and that lie in the free extent, takes those
 * out that are empty and too many to stay. Others were looked at when they became empty. */
static unsigned take_empty_locked(struct arena *a, uint32_t extent, uint32_t span,
				  const uint32_t touched[2], uint32_t ret_taken[2]) REQUIRES(a->mu)
{
	uint32_t end = extent + span;
	unsigned n = 0;

	for (uint32_t chunk = touched[0]; chunk <= touched[1]; chunk++) {
		uint32_t first = chunk * ARENA_CHUNK, pages = chunk_pages(a, chunk);

		if (a->chunks[chunk].used > 0 || a->n_empty <= a->keep)
			continue;
		carve_locked(a, extent, end - extent, first, pages);
		extent = first + pages;
		assert(n < 2 && a->n_empty > 0);
		a->n_empty--;
		ret_taken[n++] = chunk;
	}
	return n;
}

static void drop_pages(struct arena *a, uint32_t first, uint32_t span)
{
	int rc = madvise(a->base + (size_t)first * ARENA_PAGE, (size_t)span * ARENA_PAGE,
			 MADV_DONTNEED);

	assert(rc == 0); /* our own mapping, whole pages */
}

/* Drops the memory of a chunk that was taken out of the free space, and puts it back there. */
static void give_back(struct arena *a, uint32_t chunk)
{
	uint32_t first = chunk * ARENA_CHUNK, span = chunk_pages(a, chunk);

	drop_pages(a, first, span);
	mutex_lock(&a->mu);
	assert(a->chunks[chunk].used == 0); /* nobody could be given any of it */
	a->chunks[chunk].is_resident = false;
	join_locked(a, &first, &span);
	mutex_unlock(&a->mu);
}

void arena_release(struct arena *arena, void *mem, uint32_t length)
{
	size_t offset = (size_t)((uint8_t *)mem - arena->base);
	uint32_t span = pages_of(length), first = (uint32_t)(offset / ARENA_PAGE);
	uint32_t touched[2] = { first / ARENA_CHUNK, (first + span - 1) / ARENA_CHUNK };
	uint32_t taken[2]; /* an extent is no longer than a chunk: it is in two of them at most */
	unsigned n;

	if (is_limited(arena))
		drop_pages(arena, first, span);
	mutex_lock(&arena->mu);
	assert(offset % ARENA_PAGE == 0 && offset / ARENA_PAGE < arena->n_pages);
	assert(arena->pages[first].tag == span); /* else released twice, or another length */
	atomic_fetch_sub_explicit(&arena->used, arena_cost(length), memory_order_relaxed);
	count_chunks_locked(arena, first, span, false);
	join_locked(arena, &first, &span);
	n = take_empty_locked(arena, first, span, touched, taken);
	mutex_unlock(&arena->mu);
	for (unsigned i = 0; i < n; i++)
		give_back(arena, taken[i]);
}

/* Drops the memory of all free extents, one at a time. The one that is being dropped is taken out
 * of the free space, so that where it ends an extent begins, whatever else changes meanwhile. */
static void arena_trim(struct arena *a)
{
	uint32_t at = 0, first = 0, span = 0;

	mutex_lock(&a->mu);
	for (;;) {
		uint32_t last = first, last_span = span;

		while (at < a->n_pages && !(a->pages[at].tag & ARENA_FREE))
			at += a->pages[at].tag;
		first = at;
		span = at < a->n_pages ? a->pages[at].tag & ~ARENA_FREE : 0;
		if (span > 0) {
			carve_locked(a, first, span, first, span);
			count_chunks_locked(a, first, span, true);
		}
		if (last_span > 0) {
			count_chunks_locked(a, last, last_span, false);
			join_locked(a, &last, &last_span);
		}
		if (span == 0)
			break;
		at += span;
		mutex_unlock(&a->mu);
		drop_pages(a, first, span);
		mutex_lock(&a->mu);
	}
	mutex_unlock(&a->mu);
}

void arena_set_limit(struct arena *arena, uint64_t bytes)
{
	atomic_store(&arena->limit, bytes);
	if (is_limited(arena))
		arena_trim(arena);
}

static int arena_map(struct arena *a, uint64_t bytes, struct err *err)
{
	uintptr_t at;

	a->map_bytes = bytes + ARENA_CHUNK_BYTES;
	a->map = mmap(NULL, a->map_bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a->map == MAP_FAILED)
		return err_set_errno(err, -errno, "arena: address space for %llu bytes",
				     (unsigned long long)bytes);
	at = ALIGN_UP((uintptr_t)a->map, (uintptr_t)ARENA_CHUNK_BYTES);
	a->base = (uint8_t *)at;
	/* Both are advice: without huge pages it works the same, and a core dump without samples is
	 * only smaller. */
	(void)madvise(a->base, bytes, MADV_HUGEPAGE);
	(void)madvise(a->base, bytes, MADV_DONTDUMP);
	return 0;
}

static int arena_set_up(struct arena *a, uint64_t bytes, struct err *err)
{
	int rc = arena_map(a, bytes, err);

	if (rc < 0)
		return rc;
	a->pages_bytes = a->n_pages * sizeof(a->pages[0]);
	a->pages = mmap(NULL, a->pages_bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	a->chunks = calloc(a->n_chunks, sizeof(a->chunks[0]));
	if (a->pages == MAP_FAILED || !a->chunks) {
		if (a->pages != MAP_FAILED)
			munmap(a->pages, a->pages_bytes);
		munmap(a->map, a->map_bytes);
		free(a->chunks);
		return err_set_errno(err, -ENOMEM, "arena: tables");
	}
	return 0;
}

int arena_new(uint64_t limit_bytes, struct arena **ret, struct err *err)
{
	AUTO_FREE struct arena *a = calloc(1, sizeof(*a));
	uint64_t n_pages = limit_bytes / ARENA_PAGE;
	int rc;

	if (!a)
		return err_set_errno(err, -ENOMEM, "arena");
	if (n_pages == 0 || n_pages > ARENA_MAX_PAGES)
		return err_set(err, -EINVAL, "arena: %llu bytes: want 4 KiB to 4 TiB",
			       (unsigned long long)limit_bytes);
	a->n_pages = (uint32_t)n_pages;
	a->n_chunks = DIV_ROUND_UP(a->n_pages, ARENA_CHUNK);
	a->keep = MAX(ARENA_KEEP_MIN, MIN(ARENA_KEEP_MAX, a->n_chunks / 64));
	rc = arena_set_up(a, n_pages * ARENA_PAGE, err);
	if (rc < 0)
		return rc;
	atomic_init(&a->limit, n_pages * ARENA_PAGE);
	mutex_init(&a->mu);
	for (uint32_t i = 0; i < ARENA_BINS; i++)
		a->bins[i] = ARENA_NONE;
	mutex_lock(&a->mu);
	bin_add_locked(a, 0, a->n_pages);
	mutex_unlock(&a->mu);
	*ret = TAKE(a);
	return 0;
}

void arena_free(struct arena *arena)
{
	if (!arena)
		return;
	munmap(arena->map, arena->map_bytes);
	munmap(arena->pages, arena->pages_bytes);
	free(arena->chunks);
	mutex_fini(&arena->mu);
	free(arena);
}
