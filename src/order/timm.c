/* SPDX-License-Identifier: Apache-2.0 */
/* timm's RepeatAugSampler (that of DeiT): each sample of a permutation stands num_repeats times in
 * a row, rank r takes every world-th of that, and of what it could read only as much that an epoch
 * has as many steps as without repeats. The generator is seeded with the epoch alone, there is no
 * seed.
 *
 * selected_ratio and num_repeats may be fractions in timm; they are whole numbers here. n below
 * 2^32 and these limits keep timm's floating point divisions exact, so integers give its numbers.
 * Pure; any thread. */
#include "seeded.h"

struct repeataug {
	struct seeded seeded;
	uint64_t repeats, length; /* samples of a rank */
};

static const struct order_key repeataug_keys[] = {
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "shuffle", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = "num_repeats", .type = ORDER_KEY_U64, .def = 3, .min = 1, .max = 1 << 16 },
	{ .name = "selected_round", .type = ORDER_KEY_U64, .def = 256, .max = UINT32_MAX },
	{ .name = "selected_ratio", .type = ORDER_KEY_U64, .max = UINT32_MAX },
	{ .name = "large", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = NULL },
};

static uint64_t selected(const struct order_spec *spec, uint64_t n, uint64_t repeats)
{
	uint64_t ratio = order_spec_u64(spec, "selected_ratio");
	uint64_t round = order_spec_u64(spec, "selected_round");
	uint64_t length;

	if (ratio == 0)
		ratio = spec->world;
	if (round > 0 && n >= round)
		length = n / round * round / ratio;
	else
		length = DIV_ROUND_UP(n, ratio);
	return MIN(length, DIV_ROUND_UP(n * repeats, spec->world));
}

static int repeataug_open(struct order *order, const struct order_spec *spec,
			  const struct order_params *params, struct err *err)
{
	struct repeataug *r;
	struct seeded *s;
	int rc = seeded_new(order, sizeof(*r), &s, err);

	if (rc < 0)
		return rc;
	seeded_read_keys(order, spec);
	r = order->state;
	r->repeats = order_spec_u64(spec, "num_repeats");
	r->length = selected(spec, params->n, r->repeats);
	return 0;
}

static uint64_t repeataug_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				      uint64_t rank)
{
	return ((const struct repeataug *)order->state)->length;
}

static void repeataug_rank_read(const struct order *order, const struct order_span *common,
				uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	const struct repeataug *r = order->state;
	uint64_t world = order->info.world, place = rank + from * world;
	uint64_t at = place / r->repeats % common->length, repeat = place % r->repeats;

	/* Divisions once, not for each sample. */
	for (uint32_t i = 0; i < count; i++) {
		out[i] = common->sample[at];
		at += world / r->repeats;
		repeat += world % r->repeats;
		if (repeat >= r->repeats) {
			repeat -= r->repeats;
			at++;
		}
		if (at >= common->length)
			at %= common->length;
	}
}

static uint64_t repeataug_head_reach(const struct order *order, uint64_t length, uint64_t rows)
{
	const struct repeataug *r = order->state;

	return DIV_ROUND_UP(rows * order->info.world, r->repeats);
}

const struct order_kind order_kind_timm_repeataug = {
	.help = "timm's RepeatAugSampler with set_epoch; keys: world(1) rank or ranks=0-3+6(all) "
		"shuffle(1) num_repeats(3) selected_round(256) selected_ratio(world) "
		"large(1)" ORDER_HELP_COMMON,
	.keys = repeataug_keys,
	.open = repeataug_open,
	.common_fill = seeded_fill,
	.head_fill = seeded_head,
	.head_reach = repeataug_head_reach,
	.rank_length = repeataug_rank_length,
	.rank_read = repeataug_rank_read,
};
