/* SPDX-License-Identifier: Apache-2.0 */
/* Kind "sequential": samples 0..n-1 in every epoch, as torch's SequentialSampler and everything
 * else that does not shuffle. It has no ranks: several ranks without shuffling are
 * torch-distributed with shuffle=0, which also knows how the end is padded. Pure; any thread. It
 * must stay the simplest kind: it is the example to copy from. */
#include "order_priv.h"
#include "perm.h"

static const struct order_key sequential_keys[] = { { .name = NULL } };

static int sequential_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
				  uint32_t *out, struct err *err)
{
	perm_identity(out, (uint32_t)length);
	return 0;
}

static int sequential_head_fill(const struct order *order, const struct order_span *common,
				uint64_t count, uint32_t *out, struct err *err)
{
	perm_identity(out, (uint32_t)count);
	return 0;
}

const struct order_kind order_kind_sequential = {
	.help = "samples in ascending order, every epoch; keys:" ORDER_HELP_COMMON,
	.keys = sequential_keys,
	.common_fill = sequential_common_fill,
	.head_fill = sequential_head_fill,
};
