/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control reads: a few samples of each pass, chosen by a hash of sample and pass, are held out. The
 * plan asks for every use of a sample with a FETCH or a STAGE, so that is where they are caught:
 * the action is answered PLAN_HELD_OUT, copies in arena and kernel are dropped, and the read that
 * comes goes to the source like any read that nobody foresaw, past the store and past what the
 * source's own client has in the page cache. How long it takes is what the others would have taken,
 * as long as the source is no busier than the job alone makes it: gate.c sees to that.
 *
 * A sample that is read before its FETCH is due (the readers are faster than the plan) is a miss
 * anyhow. The choice is the same in every run and on every node; the only thing of time that it
 * depends on is that no sample is held out when prefetching was held back too much of late.
 *
 * control_hold_out runs on the planner, the rest on any thread.
 */
#include "cache_priv.h"

int control_init(struct cache *c)
{
	if (c->p.control_share <= 0 && c->p.switchback_share <= 0)
		return 0;
	c->held_out = calloc(dataset_n_samples(c->p.dataset) / 64 + 1, sizeof(*c->held_out));
	return c->held_out ? 0 : -ENOMEM;
}

void control_fini(struct cache *c)
{
	free(c->held_out);
}

/* splitmix64 */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

bool control_is_chosen(double share, uint32_t sample, uint64_t pass)
{
	double at = (double)(mix(mix(pass + 1) ^ sample) >> 11) / 9007199254740992.0;

	return at < share;
}

static bool is_wanted(const struct cache *c, struct entry_id entry)
{
	const struct cache_watch *w = c->p.watch;

	return !w || !w->wants_control ||
	       w->wants_control(w->ctx, dataset_size(c->p.dataset, entry));
}

bool control_hold_out(struct cache *c, const struct plan_action *action)
{
	struct entry_id entry = { action->sample };

	/* What a reader is at now is adopted for its next use: that use has its STAGE to be caught.
	 */
	if (!c->held_out || action->is_adopted || action->pass == UINT64_MAX)
		return false;
	if (!cache_switchback_chooses(c, action) &&
	    (!control_is_chosen(c->p.control_share, action->sample, action->pass) ||
	     !is_wanted(c, entry) || gate_is_worn(c))) {
		bits_clear(c->held_out, entry.v);
		return false;
	}
	control_set_aside(c, entry);
	return true;
}

void control_set_aside(struct cache *c, struct entry_id entry)
{
	bits_set(c->held_out, entry.v);
	change_drop_copies(c, entry);
}

bool control_is_held_out(struct cache *c, struct entry_id entry)
{
	return c->held_out && dataset_is_sample(c->p.dataset, entry) &&
	       bits_get(c->held_out, entry.v);
}

/* Not when the read is accounted for: that is a second later, and the next pass may have begun. */
void control_piece_done(struct cache *c, const struct tier_read *read)
{
	if (read->is_cold && read->key.piece + 1 >= piece_count(read->expect.size))
		bits_clear(c->held_out, read->key.entry.v);
}
