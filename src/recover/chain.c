/* SPDX-License-Identifier: Apache-2.0 */
/* The cheap hypotheses: seeds people type, seeds the caller knows and their neighbours (the epoch
 * before and after), and the first words drawn after manual_seed(s) for seeds people type. A loader
 * with shuffle=True takes its epoch's seed from that stream: four words an epoch, of which the last
 * is the seed (reference: src/recover/README.md), as long as nothing else draws; the first words
 * are all tried, since a few draws in between move everything along.
 *
 * About 1.4 million seeds, a fraction of a second. The list is in the order of likelihood, as the
 * first seed that fits is taken. Set-up code; immutable afterwards. */
#include <errno.h>

#include "recover_priv.h"

#define SEEDS_TYPED 65536
#define MANUAL_TYPED 10000
#define HINTS_MAX 64
#define HINT_BEFORE 64
#define HINT_AFTER 512
#define MANUAL_BEFORE 2
#define MANUAL_AFTER 8

/* Larger numbers people like. */
static const uint32_t liked[] = { 10086,    10101,    11111,	12345,	   12321,     16384,
				  19260817, 20200101, 20210101, 20220101,  20230101,  20240101,
				  20250101, 20260101, 22222,	31337,	   32768,     33333,
				  42424242, 43690,    54321,	65535,	   65536,     65537,
				  88888,    99999,    100000,	101010,	   111111,    114514,
				  123123,   123321,   123456,	142857,	   161803,    271828,
				  314159,   424242,   654321,	666666,	   888888,    999999,
				  1000000,  1234567,  2718281,	3141592,   3141593,   8675309,
				  12345678, 27182818, 31415926, 123456789, 987654321, 1000000007,
				  1234567890, 2147483647, 2147483648, 4294967295 };

static size_t put_range(uint32_t *out, uint32_t from, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		out[i] = from + i; /* wraps, as seeds do */
	return count;
}

static void fill(struct chain *chain, const struct recover_params *p, size_t n_hints)
{
	size_t n = 0, n_manual = 0;

	for (size_t i = 0; i < n_hints; i++) {
		n += put_range(chain->seed + n, p->hints[i] - HINT_BEFORE,
			       HINT_BEFORE + HINT_AFTER);
		n_manual += put_range(chain->manual + n_manual, p->hints[i] - MANUAL_BEFORE,
				      MANUAL_BEFORE + MANUAL_AFTER);
	}
	n += put_range(chain->seed + n, 0, SEEDS_TYPED);
	n_manual += put_range(chain->manual + n_manual, 0, MANUAL_TYPED);
	for (size_t i = 0; i < ARRAY_LEN(liked); i++) {
		chain->seed[n++] = liked[i];
		chain->manual[n_manual++] = liked[i];
	}
	chain->n_plain = n;
	for (size_t i = 0; i < n_manual; i++) {
		struct mt mt;

		mt_seed(&mt, chain->manual[i]);
		for (int word = 0; word < CHAIN_WORDS; word++)
			chain->seed[n++] = mt_u32(&mt);
	}
	chain->n = n;
}

int chain_new(const struct recover_params *p, struct chain **ret, struct err *err)
{
	struct chain *chain = calloc(1, sizeof(*chain));
	size_t n_hints = MIN(p->n_hints, HINTS_MAX);
	size_t n_manual = n_hints * (MANUAL_BEFORE + MANUAL_AFTER) + MANUAL_TYPED +
			  ARRAY_LEN(liked);
	size_t n_plain = n_hints * (HINT_BEFORE + HINT_AFTER) + SEEDS_TYPED + ARRAY_LEN(liked);

	*ret = NULL;
	if (chain) {
		chain->manual = malloc(n_manual * sizeof(*chain->manual));
		chain->seed = malloc((n_plain + n_manual * CHAIN_WORDS) * sizeof(*chain->seed));
	}
	if (!chain || !chain->manual || !chain->seed) {
		chain_free(chain);
		return err_set(err, -ENOMEM, "out of memory");
	}
	fill(chain, p, n_hints);
	*ret = chain;
	return 0;
}

void chain_free(struct chain *chain)
{
	if (!chain)
		return;
	free(chain->seed);
	free(chain->manual);
	free(chain);
}

void chain_name(const struct chain *chain, size_t at, struct recover_found *ret)
{
	if (at < chain->n_plain)
		return;
	ret->is_chain = true;
	ret->manual_seed = chain->manual[(at - chain->n_plain) / CHAIN_WORDS];
	ret->word = (uint32_t)((at - chain->n_plain) % CHAIN_WORDS);
}
