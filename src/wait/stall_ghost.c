/* SPDX-License-Identifier: Apache-2.0 */
/* The page cache that Linux would have had: the files read last, as many as fit into its size. It
 * holds names, not bytes. What it has, a job would have had without this mount, so nothing is
 * claimed for it. Exact LRU by whole files; Linux is no exact LRU, and for reads in random order
 * that makes no difference to speak of.
 *
 * Two links and a size per unit, no allocation after the start. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "clairfs/base/ids.h"
#include "stall_priv.h"

#define PAGE 4096u
#define NOTHING UINT32_MAX

int stall_ghost_init(struct stall_ghost *g, uint32_t n, uint64_t bytes)
{
	*g = (struct stall_ghost){
		.limit = bytes / PAGE, .n = n, .head = NOTHING, .tail = NOTHING
	};
	if (!g->limit || !n)
		return 0;
	g->prev = calloc(n, sizeof(*g->prev));
	g->next = calloc(n, sizeof(*g->next));
	g->pages = calloc(n, sizeof(*g->pages));
	return g->prev && g->next && g->pages ? 0 : -ENOMEM;
}

void stall_ghost_fini(struct stall_ghost *g)
{
	free(g->prev);
	free(g->next);
	free(g->pages);
}

static void unlink_unit(struct stall_ghost *g, uint32_t at)
{
	uint32_t prev = g->prev[at], next = g->next[at];

	assert(g->pages[at] && g->used >= g->pages[at]);
	if (prev == NOTHING)
		g->head = next;
	else
		g->next[prev] = next;
	if (next == NOTHING)
		g->tail = prev;
	else
		g->prev[next] = prev;
	g->used -= g->pages[at];
	g->pages[at] = 0;
}

static void link_unit(struct stall_ghost *g, uint32_t at, uint32_t pages)
{
	assert(at < g->n && !g->pages[at]);
	g->prev[at] = NOTHING;
	g->next[at] = g->head;
	if (g->head == NOTHING)
		g->tail = at;
	else
		g->prev[g->head] = at;
	g->head = at;
	g->pages[at] = pages;
	g->used += pages;
}

bool stall_ghost_read(struct stall_ghost *g, struct unit_id unit, uint64_t bytes)
{
	uint64_t pages = MAX(DIV_ROUND_UP(bytes, PAGE), 1);
	bool is_hit;

	if (!g->pages || unit.v >= g->n)
		return false;
	is_hit = g->pages[unit.v] != 0;
	if (is_hit)
		unlink_unit(g, unit.v);
	if (pages > g->limit || pages > UINT32_MAX)
		return is_hit;
	while (g->used + pages > g->limit)
		unlink_unit(g, g->tail);
	link_unit(g, unit.v, (uint32_t)pages);
	assert(g->used <= g->limit);
	return is_hit;
}
