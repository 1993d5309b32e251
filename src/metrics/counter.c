/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and gauges, and the tables of their names.
 *
 * A counter is the sum of one cell in each of 16 slots; a thread adds to its own slot, so threads
 * that count the same thing do not pull one cache line from each other. Which slot is a thread's is
 * decided when it counts for the first time, round robin, and kept in a thread-local; two threads
 * may share a slot, therefore the cells are atomic. The order of memory does not matter: numbers
 * are never used to publish other data.
 *
 * A gauge has one value, set as a whole or moved by a difference, and is plain shared memory.
 *
 * Any thread; nothing here may lock or allocate, because it is called on every read. */
#include "metrics_priv.h"

#include <assert.h>
#include <string.h>

const char *const read_class_names[READ_CLASSES] = { "staged", "arena", "late",
						     "store",  "peer",  "miss" };

/* The keys are the identifiers of the list in lower case, made by the compiler so that the list
 * names each once. */
#define KEY_SIZE 32
#define LOWER(c) ((c) >= 'A' && (c) <= 'Z' ? (c) + ('a' - 'A') : (c))
#define KEY_CHAR(text, i)                                                                          \
	LOWER((text "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")[i])
#define KEY_4(text, i)                                                                             \
	KEY_CHAR(text, i), KEY_CHAR(text, i + 1), KEY_CHAR(text, i + 2), KEY_CHAR(text, i + 3)
#define KEY_16(text, i) KEY_4(text, i), KEY_4(text, i + 4), KEY_4(text, i + 8), KEY_4(text, i + 12)
#define KEY(text)                                                                                  \
	{                                                                                          \
		KEY_16(text, 0), KEY_4(text, 16), KEY_4(text, 20), KEY_4(text, 24),                \
			KEY_CHAR(text, 28)                                                         \
	}

static const char metric_keys[METRICS_COUNT][KEY_SIZE] = {
#define METRICS_KEY(id, kind, name, labels, help) KEY(#id),
	METRICS_LIST(METRICS_KEY)
#undef METRICS_KEY
};

const struct metric_info metric_infos[METRICS_COUNT] = {
#define METRICS_INFO(id, kind, name, labels, help)                                                 \
	{ metric_keys[METRIC_##id], METRIC_##kind, name, labels, help },
	METRICS_LIST(METRICS_INFO)
#undef METRICS_INFO
};

static const char rank_keys[METRIC_RANKS][KEY_SIZE] = {
#define METRICS_RANK_KEY(id, kind, name, labels, help) KEY(#id),
	METRICS_RANK_LIST(METRICS_RANK_KEY)
#undef METRICS_RANK_KEY
};

const struct metric_info metric_rank_infos[METRIC_RANKS] = {
#define METRICS_RANK_INFO(id, kind, name, labels, help)                                            \
	{ rank_keys[METRIC_RANK_##id], METRIC_##kind, name, labels, help },
	METRICS_RANK_LIST(METRICS_RANK_INFO)
#undef METRICS_RANK_INFO
};

static const char hist_keys[METRIC_HISTS][KEY_SIZE] = {
#define METRICS_HIST_KEY(id, name, labels, help) KEY(#id),
	METRICS_HIST_LIST(METRICS_HIST_KEY)
#undef METRICS_HIST_KEY
};

const struct metrics_hist_info metrics_hist_infos[METRIC_HISTS] = {
#define METRICS_HIST_INFO(id, name, labels, help)                                                  \
	{ hist_keys[METRIC_HIST_##id], name, labels, help },
	METRICS_HIST_LIST(METRICS_HIST_INFO)
#undef METRICS_HIST_INFO
};

/* A late read waits for what is on its way, nearly always from the source. */
const enum metric_hist metrics_hist_of_class[READ_CLASSES] = {
	[READ_STAGED] = METRIC_HIST_READ_RAM, [READ_ARENA] = METRIC_HIST_READ_RAM,
	[READ_LATE] = METRIC_HIST_READ_PFS,   [READ_STORE] = METRIC_HIST_READ_NVME,
	[READ_PEER] = METRIC_HIST_READ_PFS,   [READ_MISS] = METRIC_HIST_READ_PFS
};

#define METRICS_KEY_FITS(id, kind, name, labels, help)                                             \
	_Static_assert(sizeof(#id) <= 30, "key of " #id " is cut");
METRICS_LIST(METRICS_KEY_FITS)

struct metrics *metrics_new(void)
{
	struct metrics *m = aligned_alloc(64, ALIGN_UP(sizeof(*m), 64));

	if (!m)
		return NULL;
	memset(m, 0, sizeof(*m));
	trace_init(&m->trace);
	return m;
}

void metrics_free(struct metrics *m)
{
	if (!m)
		return;
	trace_fini(&m->trace);
	free(m->mount_labels);
	free(m);
}

static struct metrics_slot *slot_of_thread(struct metrics *m)
{
	static _Thread_local unsigned slot; /* 1 + index; 0 = none yet; the same for every object */

	if (slot == 0)
		slot = 1 + atomic_fetch_add_explicit(&m->next_slot, 1, memory_order_relaxed) %
				   METRICS_SLOTS;
	return &m->slots[slot - 1];
}

void metrics_add(struct metrics *m, enum metric id, uint64_t n)
{
	if (!m)
		return;
	assert(metric_is_counter(metric_infos[id].kind));
	atomic_fetch_add_explicit(&slot_of_thread(m)->cells[id], n, memory_order_relaxed);
}

void metrics_gauge_set(struct metrics *m, enum metric id, uint64_t value)
{
	if (!m)
		return;
	assert(!metric_is_counter(metric_infos[id].kind));
	atomic_store_explicit(&m->gauges[id], value, memory_order_relaxed);
}

void metrics_gauge_add(struct metrics *m, enum metric id, int64_t delta)
{
	if (!m)
		return;
	assert(!metric_is_counter(metric_infos[id].kind));
	atomic_fetch_add_explicit(&m->gauges[id], (uint64_t)delta, memory_order_relaxed);
}

void metrics_total_set(struct metrics *m, enum metric id, uint64_t value)
{
	if (!m)
		return;
	assert(metric_is_counter(metric_infos[id].kind));
	atomic_store_explicit(&m->slots[0].cells[id], value, memory_order_relaxed);
}

uint64_t metrics_get(const struct metrics *m, enum metric id)
{
	uint64_t sum = 0;
	unsigned i;

	if (!m)
		return 0;
	if (!metric_is_counter(metric_infos[id].kind))
		return atomic_load_explicit(&m->gauges[id], memory_order_relaxed);
	for (i = 0; i < METRICS_SLOTS; i++)
		sum += atomic_load_explicit(&m->slots[i].cells[id], memory_order_relaxed);
	return sum;
}

void metrics_rank_set(struct metrics *m, enum metric_rank id, uint32_t rank, uint64_t value)
{
	uint64_t want = (uint64_t)rank + 1;

	for (unsigned i = 0; m && i < METRICS_RANKS_MAX; i++) {
		struct metrics_rank *r = &m->ranks[i];
		uint64_t is = 0;

		/* Afterwards `is` tells whose it was, if it was somebody's. */
		if (atomic_compare_exchange_strong(&r->rank_plus_1, &is, want) || is == want) {
			atomic_store_explicit(&r->cells[id], value, memory_order_relaxed);
			return;
		}
	}
}

void metrics_observe(struct metrics *m, enum metric_hist id, uint64_t ns)
{
	if (m)
		hist_observe(&m->hists[id], ns);
}

void metrics_hist_get(const struct metrics *m, enum metric_hist id, struct metrics_hist_view *ret)
{
	struct hist_snapshot s;

	memset(ret, 0, sizeof(*ret));
	if (!m)
		return;
	hist_snapshot(&m->hists[id], &s);
	ret->count = s.count;
	ret->sum_ns = s.sum_ns;
	ret->p50_ns = hist_quantile(&s, 0.50);
	ret->p90_ns = hist_quantile(&s, 0.90);
	ret->p99_ns = hist_quantile(&s, 0.99);
	ret->max_ns = hist_quantile(&s, 1.0);
}
