/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a generator that a job seeded, for module recover, which looks for a loader's draw
 * among tens of millions of them. Made 624 at a time and copied in runs; the start is jumped to
 * where that is faster than making what lies before it. One thread per struct. */
#include <errno.h>
#include <string.h>

#include "clairfs/order.h"
#include "rng_mt19937.h"

struct order_words {
	struct mt19937 rng;
};

int order_words_new(uint32_t seed, bool is_python, uint64_t first, struct order_words **ret)
{
	struct order_words *w = calloc(1, sizeof(*w));

	*ret = w;
	if (!w)
		return -ENOMEM;
	if (is_python)
		mt19937_seed_python(&w->rng, seed);
	else
		mt19937_seed(&w->rng, seed);
	mt19937_skip(&w->rng, first, 1);
	return 0;
}

void order_words_take(struct order_words *w, uint32_t *out, size_t count)
{
	while (count > 0) {
		size_t run;
		const uint32_t *from = mt19937_take(&w->rng, count, &run);

		memcpy(out, from, run * sizeof(*out));
		out += run;
		count -= run;
	}
}

void order_words_free(struct order_words *w)
{
	free(w);
}
