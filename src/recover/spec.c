/* SPDX-License-Identifier: Apache-2.0 */
/* A found seed as specs of orders. What one epoch cannot tell is left open: a plain permutation may
 * come back every epoch or never, and a DistributedSampler's seed + epoch is printed as seed, with
 * this epoch as number 0. Where the seed is a word of a manual_seed's stream, the later epochs are
 * known too, and that spec comes first; it is left out when module order has no such kind. Pure. */
#include <inttypes.h>
#include <string.h>

#include "clairfs/order.h"
#include "recover_priv.h"

/* From this many samples on, torch >= 2.6 shuffles in another way, whose first places are known
 * only at the end: what was found is the old way. */
#define TORCH_LARGE 214748364

static bool has_kind(const char *name)
{
	for (const char *const *k = order_kinds(); *k; k++)
		if (strcmp(*k, name) == 0)
			return true;
	return false;
}

/* "0-3+6" */
static void found_put_ranks(const struct recover_found *f, FILE *out)
{
	uint32_t end;

	for (uint32_t i = 0; i < f->n_ranks; i = end) {
		for (end = i + 1; end < f->n_ranks && f->rank[end] == f->rank[end - 1] + 1;)
			end++;
		fprintf(out, "%s%" PRIu32, i ? "+" : "", f->rank[i]);
		if (end - i > 1)
			fprintf(out, "-%" PRIu32, f->rank[end - 1]);
	}
}

/* Words before the first epoch of a loader, which is this one. */
static void put_later_loader(const struct recover_found *f, FILE *out)
{
	fprintf(out, "torch-loader:seed=%" PRIu32 ":before=%" PRIu32, f->manual_seed, f->word - 3);
}

static void put_loader(const struct recover_found *f, const char *key, uint32_t epoch, FILE *out)
{
	fprintf(out, "torch-loader:seed=%" PRIu32 "%s", f->manual_seed, key);
	if (epoch)
		fprintf(out, ":start_epoch=%" PRIu32, epoch);
}

static void put_permutation(const struct recover_found *f, uint64_t n, FILE *out)
{
	if (f->world == 1) {
		fprintf(out, "torch-randperm:seed=%" PRIu32, f->seed);
	} else {
		fprintf(out,
			"torch-distributed:seed=%" PRIu32 ":world=%" PRIu32 ":rank%s=", f->seed,
			f->world, f->n_ranks > 1 ? "s" : "");
		found_put_ranks(f, out);
	}
	if (n >= TORCH_LARGE)
		fputs(":large=0", out);
}

bool recover_spec(const struct recover_found *f, uint64_t n, unsigned which, char *out, size_t size)
{
	bool is_loader = f->is_chain && f->draw == RECOVER_TORCH && f->world == 1 &&
			 n < TORCH_LARGE && has_kind("torch-loader");
	bool is_first = is_loader && f->word < CHAIN_WORDS;
	FILE *file AUTO_FILE = NULL;
	unsigned i = 0;

	memset(out, 0, size);
	file = fmemopen(out, size - 1, "w");
	if (!file)
		return false;
	if (is_loader && !is_first && i++ == which)
		put_later_loader(f, file);
	else if (is_first && f->word % 4 == 3 && i++ == which)
		put_loader(f, "", (f->word - 3) / 4, file);
	else if (is_first && f->word % 2 == 1 && f->word >= 5 && i++ == which)
		put_loader(f, ":persistent=1", (f->word - 3) / 2, file);
	else if (i == which)
		put_permutation(f, n, file);
	else
		return false;
	return true;
}
