/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes on beside the plan when orders come and go. Samples in the store are told to the plan a
 * share at a time, again with every order, as only who is there decides what is wanted of it, and once
 * more when the store has found something of other daemons. Pages that were pushed for jobs that are
 * over are given back to the kernel, a share at a time. PURE.
 */
#include "step_priv.h"

#include <assert.h>

/* --- pages --- */

/* Pages that were pushed stay with the kernel; when the last job is over nobody will read them, and
 * they are given back, a share at a time: there may be millions. What is left of that when the next
 * order comes stays, and is of no interest to a plan that has forgotten it (which it has of all of
 * them before the first is given back). */
void step_pages(struct step *s, bool is_over)
{
	if (!s->hands->give_back)
		return;
	if (!is_over && s->give_back_at != UINT32_MAX && !s->all.stage_bytes)
		s->hands->forget_pushed(s->hands->ctx, s->give_back_at);
	s->give_back_at = is_over ? 0 : UINT32_MAX;
}

bool step_give_back(struct step *s)
{
	uint32_t at = s->give_back_at;

	if (s->give_back_at == UINT32_MAX)
		return false;
	if (s->all.stage_bytes) /* not before the plan has forgotten them */
		return true;
	assert(!s->n_jobs);
	if (s->hands->give_back(s->hands->ctx, &s->give_back_at)) {
		assert(s->give_back_at >= at && s->give_back_at != UINT32_MAX);
		return true;
	}
	s->give_back_at = UINT32_MAX;
	return false;
}

/* --- the store --- */

/* By the orders of all jobs: they do not read it as far as they say, or beside the order. Then it is
 * wanted again with its first read. */
static bool is_outside(const struct step *s, struct unit_id unit)
{
	bool is_outside = s->n_jobs > 0;

	for (uint32_t i = 0; i < s->n_jobs && is_outside; i++) {
		const uint64_t *outside = s->job[i].order->info.outside;

		is_outside = outside && outside[unit.v / 64] >> unit.v % 64 & 1;
	}
	return is_outside;
}

static void tell_kept(struct step *s, struct unit_id unit, bool may_unwant, uint64_t now_ns)
{
	struct plan_event ev = { .kind = PLAN_EV_KEPT, .unit = unit };

	assert(unit.v < s->n && s->hands->keeps);
	if (is_outside(s, unit)) {
		if (!may_unwant)
			return;
		s->hands->unwant(s->hands->ctx, unit);
		ev.kind = PLAN_EV_UNPINNED; /* its room is for what is read by now */
		plan_event(s->plan, now_ns, &ev);
	} else if (s->hands->keeps(s->hands->ctx, unit)) {
		plan_event(s->plan, now_ns, &ev);
	}
}

bool step_keeps_any(const struct step *s)
{
	return s->hands->keeps_any && s->hands->keeps_any(s->hands->ctx);
}

void step_look_again(struct step *s, bool is_first)
{
	if (!step_keeps_any(s))
		return;
	s->kept_at = 0;
	s->kept_next_ns = is_first ? 0 : MAX(s->kept_next_ns, 1);
}

/* One look at a time, and not one after the other: all get their turn. */
static void look_for_found(struct step *s, uint64_t now_ns)
{
	uint32_t n_found = s->hands->n_found ? s->hands->n_found(s->hands->ctx) : s->kept_found;

	if (n_found == s->kept_found || now_ns < s->kept_next_ns)
		return;
	s->kept_found = n_found;
	s->kept_next_ns = now_ns + STEP_KEPT_REST_NS;
	s->kept_at = 0;
}

bool step_tell_kept(struct step *s, uint64_t now_ns)
{
	if (s->n <= s->kept_at)
		look_for_found(s, now_ns);
	for (uint32_t i = 0; i < STEP_KEPT_EACH && s->kept_at < s->n; i++)
		tell_kept(s, (struct unit_id){ s->kept_at++ }, !s->kept_next_ns, now_ns); /* later it may be read */
	return s->kept_at < s->n;
}
