/* SPDX-License-Identifier: Apache-2.0 */
/* What is going on, in words for a person, and no more than is known. Pure. */
#include <inttypes.h>

#include "clairfs/order.h"
#include "infer_priv.h"

#define GONE_MAX (INFER_SPEC_MAX + 64)

const char *const infer_effort_names[] = { "off", "quick", "full", NULL };

static void say_searching(const struct words_facts *f, const char *why, char out[INFER_WORDS_MAX])
{
	if (f->is_full && f->held && f->share > 0)
		snprintf(out, INFER_WORDS_MAX,
			 "%s; looking for one: %.0f %% of all seeds tried, waiting until %s", why,
			 f->share * 100, f->held);
	else if (f->is_full && f->held)
		snprintf(out, INFER_WORDS_MAX, "%s; looking for one, waiting until %s", why, f->held);
	else if (f->is_full && f->left_s > 0)
		snprintf(out, INFER_WORDS_MAX,
			 "%s; looking for one: %.0f %% of all seeds tried, at most %.0f s more",
			 why, f->share * 100, f->left_s);
	else if (f->is_full)
		snprintf(out, INFER_WORDS_MAX, "%s; looking for one: less likely seeds are being tried",
			 why);
	else
		snprintf(out, INFER_WORDS_MAX, "%s; trying likely seeds", why);
}

static void say_in_vain(const struct words_facts *f, const char *why, char out[INFER_WORDS_MAX])
{
	const char *more = f->effort == INFER_QUICK ? " (recover=full tries all seeds)" : "";

	snprintf(out, INFER_WORDS_MAX, "%s; no likely order among %" PRIu64 " searches%s%s", why,
		 f->searches, more,
		 f->is_saving ? "; the next one when they take less than 1 % of the job's time" : "");
}

static void say_waiting(const struct words_facts *f, const char *why, char out[INFER_WORDS_MAX])
{
	const struct trail_start *s = &f->trail->start[TRAIL_PASS];

	if (s->n == 0)
		snprintf(out, INFER_WORDS_MAX, "%s; nothing was read yet", why);
	else if (f->searches == 0)
		snprintf(out, INFER_WORDS_MAX, "%s; watching the first %" PRIu32 " opens", why, s->n);
	else if (f->full_failed >= FULL_FAILED_MAX)
		snprintf(out, INFER_WORDS_MAX,
			 "%s; all seeds were tried %" PRIu32 " times in vain: given up until an "
			 "order is told or another job comes",
			 why, f->full_failed);
	else if (f->trail->start[TRAIL_PASS].is_searched ||
		 f->trail->start[TRAIL_PAUSED].is_searched)
		snprintf(out, INFER_WORDS_MAX,
			 "%s; all seeds were tried, reads follow no order that is known", why);
	else
		say_in_vain(f, why, out);
}

static void say_gone(const struct words_facts *f, char out[GONE_MAX])
{
	char gone[INFER_SPEC_MAX];

	order_spec_show(f->gone, gone, sizeof(gone));
	snprintf(out, GONE_MAX, "the job that read %s has ended: %s", gone, f->gone_why);
}

static void say_found(const struct words_facts *f, const char *found, char out[INFER_WORDS_MAX])
{
	const struct infer_answer *last = &f->known->last;
	int n = snprintf(out, INFER_WORDS_MAX, "found %s after %" PRIu64 " opens (%s)", found,
			 f->found_after, f->was_full ? "all seeds" : "quick");

	if (!f->known->is_found || n <= 0 || n >= INFER_WORDS_MAX)
		return;
	if (last->way.first)
		snprintf(out + n, (size_t)(INFER_WORDS_MAX - n),
			 "; the job reads %s%" PRIu64 " of the %" PRIu64 " samples%s%s%s",
			 last->way.is_split ? "a random split, " : "the first ", last->n,
			 last->way.of, last->way.under[0] ? " below " : "", last->way.under,
			 last->way.under[0] ? "/" : "");
	else if (last->way.under[0])
		snprintf(out + n, (size_t)(INFER_WORDS_MAX - n),
			 "; the job reads the %" PRIu64 " samples below %s/, of %" PRIu64, last->n,
			 last->way.under, f->trail->n);
}

void words_say(const struct words_facts *f, char out[INFER_WORDS_MAX])
{
	const char *why = "no order told";
	char found[INFER_SPEC_MAX], gone[GONE_MAX];

	order_spec_show(f->found, found, sizeof(found));
	if (f->gone[0]) {
		say_gone(f, gone);
		why = gone;
	}
	if (f->is_left)
		why = "reads have left the part that the order is of";
	else if (f->plan == INFER_PLAN_LOST)
		why = "reads do not follow the order";
	else if (f->plan == INFER_PLAN_ENDED)
		why = "the order has ended";
	if (f->effort == INFER_OFF)
		snprintf(out, INFER_WORDS_MAX, "not looking for orders (recover=off)");
	else if (f->is_suspended)
		snprintf(out, INFER_WORDS_MAX, "told to follow no order");
	else if (f->trail->n < INFER_SAMPLES_MIN)
		snprintf(out, INFER_WORDS_MAX, "too few samples to tell orders apart");
	else if (f->is_quick || f->is_full)
		say_searching(f, why, out);
	else if (f->is_left || f->plan == INFER_PLAN_NONE || f->plan == INFER_PLAN_LOST ||
		 f->plan == INFER_PLAN_ENDED)
		say_waiting(f, why, out);
	else if (f->found[0] && f->known->is_guess)
		snprintf(out, INFER_WORDS_MAX, "expected %s, after the epochs before", found);
	else if (f->found[0])
		say_found(f, found, out);
	else
		snprintf(out, INFER_WORDS_MAX, "the order was told");
}
