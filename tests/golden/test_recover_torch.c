/* SPDX-License-Identifier: Apache-2.0 */
/* Are seeds of PyTorch's own orders found from their beginnings? Each shuffled vector that
 * gen_torch.py made holds the first 64 samples of a rank; 24 of them (in small datasets all) must
 * lead back to seed + epoch, world and rank, among seeds around that one. Vectors that are too
 * short to single out a seed must be refused, never answered wrong. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "clairfs/recover.h"

#define SEEN_MAX 64
#define AROUND 1500

struct vector {
	uint32_t seed, world; /* seed: the epoch's */
	uint64_t n, rank;
	uint32_t seen[SEEN_MAX];
	size_t n_seen;
	bool is_shuffled;
};

/* The number behind `key` in a spec, or def. */
static uint64_t key_of(const char *spec, const char *key, uint64_t def)
{
	const char *at = strstr(spec, key);

	return at ? (uint64_t)strtoll(at + strlen(key), NULL, 10) : def;
}

static struct vector vector_split(char *line)
{
	struct vector v = { .world = 1 };
	const char *spec = strsep(&line, " ");
	uint64_t epoch;
	char *first, *word;

	v.n = strtoull(strsep(&line, " "), NULL, 10);
	epoch = strtoull(strsep(&line, " "), NULL, 10);
	v.rank = strtoull(strsep(&line, " "), NULL, 10);
	(void)strsep(&line, " ");
	(void)strsep(&line, " ");
	first = strsep(&line, " ");
	CHECK(first);
	v.is_shuffled = key_of(spec, ":shuffle=", 1);
	v.world = (uint32_t)key_of(spec, ":world=", 1);
	if (strncmp(spec, "torch-randperm:", 15) == 0)
		epoch = 0;
	/* Above 2^63 strtoll stops at the limit: read as unsigned. */
	word = strstr(spec, ":seed=");
	CHECK(word);
	word += strlen(":seed=");
	v.seed = (uint32_t)((*word == '-' ? (uint64_t)strtoll(word, NULL, 10)
					  : strtoull(word, NULL, 10)) + epoch);
	if (*first == '-')
		return v;
	while ((word = strsep(&first, ",")) && v.n_seen < SEEN_MAX)
		v.seen[v.n_seen++] = (uint32_t)strtoul(word, NULL, 10);
	return v;
}

/* 1: found, 0: refused. */
static int check_vector(const struct vector *v)
{
	struct recover_params params;
	struct recover_found found;
	struct err err = { 0 };
	int rc;

	recover_params_init(&params);
	params.n = v->n;
	params.seen = v->seen;
	params.n_seen = v->n <= 1000 ? v->n_seen : MIN(v->n_seen, 24);
	params.worlds = &v->world;
	params.n_worlds = 1;
	params.effort = RECOVER_RANGE;
	params.first_seed = v->seed < AROUND ? 0 : v->seed - AROUND;
	params.last_seed = v->seed > UINT32_MAX - AROUND ? UINT32_MAX : v->seed + AROUND;
	params.workers = 0;
	params.threads = 1;
	rc = recover_search(&params, &found, &err);
	if (rc == -EINVAL) {
		/* Only for one of these reasons. */
		if (!strstr(err.msg, "too few to tell"))
			CHECK_CONTAINS(err.msg, "are needed to single out a seed");
		CHECK(v->n <= 10 || v->n_seen < 8);
		return 0;
	}
	if (rc < 0 || found.seed != v->seed || found.rank[0] != v->rank)
		printf("# n %" PRIu64 " world %" PRIu32 " rank %" PRIu64 " seed %" PRIu32 ": %s\n",
		       v->n, v->world, v->rank, v->seed, err.msg);
	CHECK_INT(rc, 0);
	CHECK_U64(found.seed, v->seed);
	CHECK_U64(found.world, v->world);
	CHECK_U64(found.n_ranks, 1);
	CHECK_U64(found.rank[0], v->rank);
	return 1;
}

static void seeds_of_torch(void)
{
	char *path AUTO_FREE = NULL;
	FILE *file AUTO_FILE = NULL;
	char *line AUTO_FREE = NULL;
	size_t size = 0;
	unsigned n[2] = { 0 };

	CHECK(getenv("CLAIRFS_SOURCE"));
	CHECK(asprintf(&path, "%s/tests/golden/order/torch.txt", getenv("CLAIRFS_SOURCE")) > 0);
	file = fopen(path, "re");
	CHECK(file);
	while (getline(&line, &size, file) > 0) {
		struct vector v;

		if (line[0] == '#')
			continue;
		v = vector_split(line);
		/* A rank that reads everything twice over, or nothing: other tests' business. */
		if (v.is_shuffled && v.n >= 3 * v.world)
			n[check_vector(&v)]++;
	}
	printf("# %u seeds found, %u vectors too short\n", n[1], n[0]);
	CHECK(n[1] > 50 && n[0] > 50);
}

static const struct check_test tests[] = {
	{ "seeds_of_torch", seeds_of_torch },
};

CHECK_MAIN(tests)
