/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tier is asked for a piece. Copies are asked before the source, the cheapest first. A copy is
 * of a version of the file, and nobody but the source can say whether the file is that version
 * still; so unless it has said so lately it is asked that first, which costs no bytes. A copy that
 * fails, for whatever reason, is no answer: the next tier is asked. What the source says is the
 * answer, whatever it is, as there is nobody behind it.
 *
 * A new tier is a new table of functions in the array: nothing here knows who they are.
 */
#include "clairfs/tier/chain.h"

#include <assert.h>
#include <errno.h>

/* Copies stay in front of the source, and in the order of what a whole piece costs. */
static void chain_add(struct chain *chain, struct tier *tier)
{
	uint64_t cost = tier->ops->cost(tier, PIECE_BYTES);
	uint32_t at = chain->n++;

	for (; at > 0; at--) {
		struct tier *before = chain->tiers[at - 1];

		if (before->ops->verifies_identity < tier->ops->verifies_identity ||
		    (before->ops->verifies_identity == tier->ops->verifies_identity &&
		     before->ops->cost(before, PIECE_BYTES) <= cost))
			break;
		chain->tiers[at] = before;
	}
	chain->tiers[at] = tier;
}

int chain_init(struct chain *chain, struct tier *const *tiers, size_t n, struct err *err)
{
	uint32_t n_sources = 0;

	*chain = (struct chain){ 0 };
	for (size_t i = 0; i < n; i++) {
		if (!tiers[i])
			continue;
		if (chain->n == CHAIN_MAX)
			return err_set(err, -EINVAL, "more than %d tiers", CHAIN_MAX);
		chain_add(chain, tiers[i]);
		n_sources += tiers[i]->ops->verifies_identity;
	}
	if (n_sources != 1 || chain_source(chain)->ops->keep)
		return err_set(err, -EINVAL, "%u tiers are the source", n_sources);
	assert(chain_source(chain)->ops->verifies_identity);
	return 0;
}

struct tier *chain_keeper(const struct chain *chain)
{
	for (uint32_t i = 0; i < chain->n; i++)
		if (chain->tiers[i]->ops->keep)
			return chain->tiers[i];
	return NULL;
}

/* --- a walk --- */

static void walk_move(struct walk *w, enum walk_state to, uint32_t at)
{
	static const bool allowed[WALK_STATES][WALK_STATES] = {
		[WALK_NEW] = { [WALK_CHECK] = true, [WALK_COPY] = true, [WALK_SOURCE] = true },
		[WALK_CHECK] = { [WALK_COPY] = true, [WALK_SOURCE] = true, [WALK_OVER] = true },
		[WALK_COPY] = { [WALK_COPY] = true, [WALK_SOURCE] = true, [WALK_OVER] = true },
		[WALK_SOURCE] = { [WALK_OVER] = true },
	};

	assert(allowed[w->state][to]);
	assert(at < w->chain->n);
	assert(to != WALK_COPY || (w->may_copy && w->is_verified));
	assert(to != WALK_COPY || w->state != WALK_COPY || at > w->at); /* nobody is asked twice */
	w->state = to;
	w->at = at;
	assert((to == WALK_COPY) != walk_tier(w)->ops->verifies_identity || to == WALK_OVER);
}

/* The next copy there is; the source when there is none. */
static uint32_t walk_find(struct walk *w)
{
	uint32_t source = w->chain->n - 1;

	if (!w->may_copy)
		return source;
	while (w->next < source && !tier_has(w->chain->tiers[w->next], w->want.key, &w->kept))
		w->next++;
	return w->next;
}

static void walk_go(struct walk *w)
{
	uint32_t source = w->chain->n - 1, at = walk_find(w);

	if (at == source)
		walk_move(w, WALK_SOURCE, source);
	else if (w->is_verified)
		walk_move(w, WALK_COPY, at);
	else
		walk_move(w, WALK_CHECK, source);
	w->read = (struct tier_read){ .ask = w->want, .done = w->read.done, .ctx = w->read.ctx };
	if (w->state == WALK_COPY)
		w->read.ask.expect = w->kept;
	if (w->state == WALK_CHECK)
		w->read.ask.length = 0;
}

void walk_begin(struct walk *w, const struct chain *chain)
{
	assert(chain->n > 0);
	w->chain = chain;
	w->state = WALK_NEW;
	w->at = w->next = 0;
	walk_go(w);
}

int walk_status(const struct walk *w)
{
	const struct tier_answer *answer = &w->read.answer;

	return answer->status == 0 && answer->got != w->read.ask.length ? -EIO : answer->status;
}

bool walk_answered(struct walk *w, int status)
{
	assert(w->state == WALK_CHECK || w->state == WALK_COPY || w->state == WALK_SOURCE);
	if (w->state == WALK_SOURCE || (w->state == WALK_COPY ? status == 0 : status != 0)) {
		walk_move(w, WALK_OVER, w->at);
		return false;
	}
	if (w->state == WALK_CHECK)
		w->is_verified = true;
	else
		w->next = w->at + 1;
	walk_go(w);
	return true;
}
