/* SPDX-License-Identifier: Apache-2.0 */
/* Has the job left the part of the dataset that its order is of? A training set that is left for
 * the validation set between two epochs is none of it: the order goes on, and the plan foresees
 * such reads once it has seen them. But a job may begin with a look at its validation set, or go
 * over to another dataset below the same mount. So the part is left when what lies outside is the
 * larger one, or when so much was read there at a stretch that all of it must have come several
 * times: ranks may each go through the whole validation set. What came outside while workers were still
 * reading ahead in the part belongs to the beginning elsewhere.
 *
 * Pure; the caller locks. */
#include "infer_priv.h"

#define PART_TIMES 4 /* of the same: as many as the plan takes for reads beside the order */

static bool is_elsewhere(const struct part_watch *watch, const struct known *known, uint64_t n)
{
	uint64_t part = known->last.way.of ? known->last.way.of : known->last.n;
	uint64_t outside = n - MIN(part, n);

	return watch->run >= PART_OPENS + (outside > part ? 0 : PART_TIMES * outside);
}

void part_begin(struct part_watch *watch, const struct known *known,
		const struct infer_numbers *numbers, const struct trail *trail)
{
	*watch = (struct part_watch){ 0 };
	for (uint64_t i = trail->noted - MIN(trail->noted, TRAIL_RECENT); i < trail->noted; i++)
		(void)part_open(watch, known, numbers, trail->n,
				trail->recent[i % TRAIL_RECENT]);
	watch->run = 0;
	watch->is_left = false;
}

bool part_open(struct part_watch *watch, const struct known *known,
	       const struct infer_numbers *numbers, uint64_t n, uint32_t sample)
{
	bool is_part = known->is_found && known->last.way.under[0] && numbers;

	if (!is_part || numbers->has(numbers->ctx, &known->last.way, sample)) {
		watch->run = 0;
		watch->is_left = false;
		if (!is_part || ++watch->in_run >= PART_OPENS)
			watch->stretch = 0;
		watch->stretch += watch->stretch > 0;
		return false;
	}
	watch->in_run = 0;
	watch->stretch++;
	watch->run++;
	if (watch->is_left || !is_elsewhere(watch, known, n))
		return false;
	watch->is_left = true;
	return true;
}
