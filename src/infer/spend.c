/* SPDX-License-Identifier: Apache-2.0 */
/* What looks for an order may cost that find nothing. Most jobs are found by one of the first two
 * looks, which may be made at once, as may the first search of all seeds. A job that is not found by
 * these draws its samples in some way that is not looked for, most likely, and must not pay for that
 * as long as it lives: what comes after them takes a hundredth of its time at most, as
 *
 *	CPU time spent so far + what the last one of its kind took
 *		<= (time since the first open) / 100 * CPUs that a search may use
 *
 * Brief looks, at the likeliest hypotheses only, have two seconds more once, as a node with many
 * ranks is found by more opens than a first look has. And of the passes over the dataset only number
 * 0, 1, 3, 7, 15... have any.
 *
 * What was cancelled is paid for, and is none of the free ones: it may be begun again and again.
 *
 * Where an order was found, or more is known to ask about, the first ones may be made at once again;
 * what was spent is not forgotten. Pure; the caller locks. */
#include "infer_priv.h"

#define SHARE 100
#define ONCE_NS (2 * NS_PER_S) /* for brief looks */
#define SKIP_MAX 64u           /* passes */

void spend_open(struct budget *b, uint64_t now_ns)
{
	if (b->began_ns == 0)
		b->began_ns = MAX(now_ns, 1);
}

uint64_t spend_wall_ns(const struct budget *b, uint64_t now_ns)
{
	return b->began_ns && now_ns > b->began_ns ? now_ns - b->began_ns : 0;
}

static bool is_free(const struct budget *b, enum budget_kind kind)
{
	return kind == BUDGET_FULL ? b->fulls == 0 : b->looks < BUDGET_FREE;
}

static bool is_pass_left_out(const struct budget *b, uint64_t pass)
{
	return b->skip > 0 && pass != b->pass && pass < b->next_pass;
}

bool spend_allows(const struct budget *b, enum budget_kind kind, uint64_t pass, uint64_t now_ns)
{
	uint64_t may_ns = spend_wall_ns(b, now_ns) / SHARE * MAX(b->cpus, 1);

	if (is_free(b, kind))
		return true;
	if (kind != BUDGET_FULL && is_pass_left_out(b, pass))
		return false;
	if (kind == BUDGET_BRIEF)
		may_ns += ONCE_NS;
	return b->spent_ns + b->price_ns[kind] <= may_ns;
}

/* A pass in which there was a look in vain. */
static void note_pass(struct budget *b, uint64_t pass)
{
	if (b->skip > 0 && pass == b->pass)
		return;
	b->skip = b->skip ? MIN(2 * b->skip, SKIP_MAX) : 1;
	b->pass = pass;
	b->next_pass = pass + b->skip;
}

void spend_charge(struct budget *b, enum budget_kind kind, uint64_t pass, uint64_t cpu_ns)
{
	b->price_ns[kind] = cpu_ns;
	if (!is_free(b, kind))
		b->spent_ns += cpu_ns;
	if (kind == BUDGET_FULL) {
		b->fulls++;
		return;
	}
	b->looks++;
	note_pass(b, pass);
}

void spend_waste(struct budget *b, uint64_t cpu_ns)
{
	b->spent_ns += cpu_ns;
}

void spend_renew(struct budget *b, bool has_full)
{
	b->looks = b->skip = 0;
	if (has_full)
		b->fulls = 0;
}
