/* SPDX-License-Identifier: Apache-2.0 */
/* The cheap hypotheses: seeds people type, seeds the caller knows and their neighbours (the epoch
 * before and after), and the first words drawn after manual_seed(s) for seeds people type. A loader
 * with shuffle=True takes its epoch's seed from that stream: four words an epoch, of which the last
 * is the seed (reference: src/recover/README.md), as long as nothing else draws; the first words
 * are all tried, since a few draws in between move everything along; of larger manual seeds only
 * the words of the first epochs.
 *
 * About 1.6 million seeds, a fraction of a second. The list is in the order of likelihood, as the
 * first seed that fits is taken. Set-up code; immutable afterwards. */
#include <errno.h>

#include "recover_priv.h"

#define HINTS_MAX 64
#define HINT_BEFORE 64
#define HINT_AFTER 512
#define MANUAL_BEFORE 2
#define MANUAL_AFTER 8

/* Larger numbers people like. */
static const uint32_t liked[] = {
	10086,      10101,     11111,    12345,     12321,     16384,      19260817,   20200101,
	20210101,   20220101,  20230101, 20240101,  20250101,  20260101,   22222,      31337,
	32768,      33333,     42424242, 43690,     54321,     65535,      65536,      65537,
	88888,      99999,     100000,   101010,    111111,    114514,     123123,     123321,
	123456,     142857,    161803,   271828,    314159,    424242,     654321,     666666,
	888888,     999999,    1000000,  1234567,   2718281,   3141592,    3141593,    8675309,
	12345678,   27182818,  31415926, 123456789, 987654321, 1000000007, 1234567890, 2147483647,
	2147483648, 4294967295
};

static uint32_t typed_of(const struct recover_params *p)
{
	return MIN(p->typed, RECOVER_TYPED);
}

static size_t count_plain(const struct recover_params *p)
{
	return MIN(p->n_hints, HINTS_MAX) * (HINT_BEFORE + HINT_AFTER) + typed_of(p) +
	       ARRAY_LEN(liked);
}

static size_t count_manual(const struct recover_params *p)
{
	if (p->is_plain)
		return 0;
	return MIN(p->n_hints, HINTS_MAX) * (MANUAL_BEFORE + MANUAL_AFTER) +
	       MIN(typed_of(p), CHAIN_MANUAL) + ARRAY_LEN(liked);
}

/* Manual seeds that have only the words of the first epochs tried. */
static size_t count_shallow(const struct recover_params *p)
{
	return p->is_plain || typed_of(p) < CHAIN_MANUAL ? 0 : typed_of(p) - CHAIN_MANUAL;
}

size_t chain_count(const struct recover_params *p)
{
	return count_plain(p) + count_manual(p) * CHAIN_WORDS + count_shallow(p) * CHAIN_EPOCHS;
}

static size_t put_range(uint32_t *out, uint32_t from, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		out[i] = from + i; /* wraps, as seeds do */
	return count;
}

static void fill_plain(struct chain *chain, const struct recover_params *p)
{
	for (size_t i = 0; i < MIN(p->n_hints, HINTS_MAX); i++)
		chain->n += put_range(chain->seed + chain->n, p->hints[i] - HINT_BEFORE,
				      HINT_BEFORE + HINT_AFTER);
	chain->n += put_range(chain->seed + chain->n, 0, typed_of(p));
	for (size_t i = 0; i < ARRAY_LEN(liked); i++)
		chain->seed[chain->n++] = liked[i];
	chain->n_plain = chain->n;
}

static void fill_manual(struct chain *chain, const struct recover_params *p)
{
	for (size_t i = 0; i < MIN(p->n_hints, HINTS_MAX); i++)
		chain->n_manual +=
			put_range(chain->manual + chain->n_manual, p->hints[i] - MANUAL_BEFORE,
				  MANUAL_BEFORE + MANUAL_AFTER);
	chain->n_manual +=
		put_range(chain->manual + chain->n_manual, 0, MIN(typed_of(p), CHAIN_MANUAL));
	for (size_t i = 0; i < ARRAY_LEN(liked); i++)
		chain->manual[chain->n_manual++] = liked[i];
	for (size_t i = 0; i < chain->n_manual; i++) {
		struct mt mt;

		mt_seed(&mt, chain->manual[i]);
		for (int word = 0; word < CHAIN_WORDS; word++)
			chain->seed[chain->n++] = mt_u32(&mt);
	}
	for (uint32_t i = 0; i < count_shallow(p); i++) {
		struct mt mt;

		mt_seed(&mt, CHAIN_MANUAL + i);
		for (uint32_t word = 0; word < 3 + 2 * CHAIN_EPOCHS - 1; word++) {
			uint32_t value = mt_u32(&mt);

			if (word >= 3 && word % 2 == 1)
				chain->seed[chain->n++] = value;
		}
	}
}

int chain_new(const struct recover_params *p, struct chain **ret, struct err *err)
{
	struct chain *chain = calloc(1, sizeof(*chain));

	*ret = NULL;
	if (chain) {
		chain->manual = malloc(MAX(count_manual(p), 1) * sizeof(*chain->manual));
		chain->seed = malloc(chain_count(p) * sizeof(*chain->seed));
	}
	if (!chain || !chain->manual || !chain->seed) {
		chain_free(chain);
		return err_set(err, -ENOMEM, "out of memory");
	}
	fill_plain(chain, p);
	if (!p->is_plain)
		fill_manual(chain, p);
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
	size_t shallow = chain->n_plain + chain->n_manual * CHAIN_WORDS;

	if (at < chain->n_plain)
		return;
	ret->is_chain = true;
	if (at < shallow) {
		ret->manual_seed = chain->manual[(at - chain->n_plain) / CHAIN_WORDS];
		ret->word = (uint32_t)((at - chain->n_plain) % CHAIN_WORDS);
	} else {
		ret->manual_seed = CHAIN_MANUAL + (uint32_t)((at - shallow) / CHAIN_EPOCHS);
		ret->word = 3 + 2 * (uint32_t)((at - shallow) % CHAIN_EPOCHS);
	}
}

uint32_t recover_word(uint32_t manual_seed, uint32_t word)
{
	struct recover_place place = { RECOVER_TORCH, manual_seed, word };

	return recover_place_word(&place);
}

bool recover_find_word(uint32_t manual_seed, uint32_t value, uint32_t words, uint32_t *ret_word)
{
	struct mt mt;

	mt_seed(&mt, manual_seed);
	for (uint32_t word = 0; word < words; word++)
		if (mt_u32(&mt) == value) {
			*ret_word = word;
			return true;
		}
	return false;
}
