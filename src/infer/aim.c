/* SPDX-License-Identifier: Apache-2.0 */
/* What to do now, from what was seen, what is known and how the order in force is doing. A look is
 * cheap and made at every doubling of the opens; a search of all seeds costs minutes of a CPU, so
 * it waits until looks have had good evidence and found nothing, is made once per beginning, and is
 * given up after two that were in vain: such a job draws its samples some other way.
 *
 * What was in vain is weighed against the job's time (spend.c): then a look is brief, or is made later.
 *
 * An order that is followed is left alone, but for one check: a few dozen opens may fit two worlds
 * or miss a rank that starts late, so its world is judged again with more. Pure. */
#include "infer_priv.h"

#define FULL_OPENS 128 /* a beginning that all seeds are tried with, looked at with TRAIL_FEW */
#define REFINE_FACTOR 4
/* A plan that is lost finds its place by itself in most cases (another epoch, a resume). */
#define LOST_OPENS 64
#define LOST_OPENS_TOLD 256
#define LOST_PASSES 2u /* of few samples */

static bool may_look(const struct aim_facts *f)
{
	uint64_t patience = f->is_told ? LOST_OPENS_TOLD : LOST_OPENS;

	if (f->is_left)
		return true;
	if (f->plan == INFER_PLAN_LOST)
		return f->trail->opens - f->lost_at >= MIN(patience, LOST_PASSES * f->trail->n);
	/* Who told an order told its end, too; reads that come after it lose the plan. */
	return f->plan == INFER_PLAN_NONE || (f->plan == INFER_PLAN_ENDED && !f->is_told);
}

bool aim_is_refuted(const struct aim_facts *f)
{
	const struct known *k = f->known;

	return f->plan == INFER_PLAN_LOST && k->is_found && !k->is_guess &&
	       k->pass == f->trail->pass &&
	       f->trail->opens - f->lost_at >= MIN(LOST_OPENS, LOST_PASSES * f->trail->n);
}

/* The order of this pass is known: where it is not followed, something else is being read. */
static bool is_explained(const struct aim_facts *f, uint32_t start)
{
	const struct known *k = f->known;

	return start == TRAIL_PASS && k->is_found && !k->is_guess && k->pass == f->trail->pass;
}

static bool is_worth_all_seeds(const struct aim_facts *f, uint32_t start)
{
	const struct trail_start *s = &f->trail->start[start];
	uint32_t quarter = (uint32_t)MIN(f->trail->n / 4, FULL_OPENS);

	return s->is_used && !s->is_searched && s->n >= quarter &&
	       s->looked >= MIN(quarter, TRAIL_FEW) && !is_explained(f, start);
}

static bool may_pay(const struct aim_facts *f, enum budget_kind kind)
{
	return !f->budget || spend_allows(f->budget, kind, f->trail->pass, f->now_ns);
}

/* More opens were reached, or all that is cheap was not tried with them yet. */
static struct aim aim_look_at(const struct aim_facts *f, uint32_t start)
{
	const struct trail_start *s = &f->trail->start[start];
	uint32_t due = trail_due(f->trail, start);

	if (is_explained(f, start))
		return (struct aim){ AIM_NOTHING, 0, false };
	if ((due || (s->is_used && s->is_brief)) && may_pay(f, BUDGET_LOOK))
		return (struct aim){ AIM_QUICK, start, false };
	if (due && may_pay(f, BUDGET_BRIEF))
		return (struct aim){ AIM_QUICK, start, true };
	return (struct aim){ AIM_NOTHING, 0, false };
}

static bool is_refinable(const struct aim_facts *f)
{
	const struct trail_start *s = &f->trail->start[TRAIL_PASS];
	const struct known *k = f->known;

	return f->trail->n >= INFER_MANY && k->is_found && !k->is_guess && !k->last.spec[0] &&
	       k->pass == f->trail->pass &&
	       s->n >= MIN((uint64_t)REFINE_FACTOR * k->n_seen, TRAIL_MAX) && s->n > k->n_seen;
}

struct aim aim_at(const struct aim_facts *f)
{
	const struct aim nothing = { AIM_NOTHING, 0, false };
	struct aim aim;

	if (f->effort == INFER_OFF || f->trail->n < INFER_SAMPLES_MIN)
		return nothing;
	if (f->plan == INFER_PLAN_ENDED && known_can_advance(f->known))
		return (struct aim){ AIM_NEXT, TRAIL_PASS, false };
	if (f->plan != INFER_PLAN_ENDED && is_refinable(f))
		return (struct aim){ AIM_REFINE, TRAIL_PASS, false };
	if (!may_look(f))
		return nothing;
	for (uint32_t i = 0; i < TRAIL_STARTS; i++) {
		aim = aim_look_at(f, i);
		if (aim.kind != AIM_NOTHING)
			return aim;
	}
	if (f->trail->n < INFER_MANY)
		return nothing;
	if (f->effort != INFER_FULL || f->full_failed >= FULL_FAILED_MAX || !may_pay(f, BUDGET_FULL))
		return nothing;
	for (uint32_t i = 0; i < TRAIL_STARTS; i++)
		if (is_worth_all_seeds(f, i))
			return (struct aim){ AIM_FULL, i, false };
	return nothing;
}
