/* SPDX-License-Identifier: Apache-2.0 */
/* Are our torch orders PyTorch's? Compares every vector that gen_torch.py made from the real
 *library: the length, the first and last 64 samples (for a person to look at when it fails) and a
 *hash over all of them. The vectors with n >= 214748364 are in a file of their own, which wants 2
 *GB of memory and a minute with sanitizers:
 *
 *	CLAIRFS_ORDER_VECTORS=tests/golden/order/torch_large.txt ./test_order_torch
 */
#include <inttypes.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "clairfs/order.h"

#define SHOWN 64

struct vector {
	const char *spec, *first, *last;
	uint64_t n, epoch, rank, length, hash;
};

static FILE *open_vectors(void)
{
	const char *path = getenv("CLAIRFS_ORDER_VECTORS");
	char *made AUTO_FREE = NULL;
	FILE *file;

	if (!path) {
		CHECK(getenv("CLAIRFS_SOURCE"));
		CHECK(asprintf(&made, "%s/tests/golden/order/torch.txt", getenv("CLAIRFS_SOURCE")) >
		      0);
		path = made;
	}
	file = fopen(path, "re");
	if (!file)
		printf("# cannot open %s\n", path);
	CHECK(file);
	return file;
}

static struct vector vector_split(char *line)
{
	struct vector v = { .spec = strsep(&line, " ") };

	v.n = strtoull(strsep(&line, " "), NULL, 10);
	v.epoch = strtoull(strsep(&line, " "), NULL, 10);
	v.rank = strtoull(strsep(&line, " "), NULL, 10);
	v.length = strtoull(strsep(&line, " "), NULL, 10);
	v.hash = strtoull(strsep(&line, " "), NULL, 16);
	v.first = strsep(&line, " ");
	v.last = strsep(&line, "\n");
	CHECK(v.last);
	return v;
}

/* The same text as gen_torch.py's show(). */
static void show(const uint32_t *sample, uint64_t n, char *out, size_t size)
{
	size_t at = 0;

	snprintf(out, size, "-");
	for (uint64_t i = 0; i < n; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%u", i ? "," : "", sample[i]);
}

static void check_vector(const struct vector *v)
{
	struct err err = { 0 };
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	uint32_t *sample = NULL;
	uint64_t length = 0, shown, hash;
	char text[SHOWN * 12];

	if (order_spec_parse(v->spec, &spec, &err) < 0 ||
	    order_new(spec, &(struct order_params){ .n = v->n }, &order, &err) < 0 ||
	    order_rank_epoch(order, v->epoch, v->rank, &sample, &length, &err) < 0)
		CHECK_STR(err.msg, "");

	/* The vectors are hashed as little-endian u32, which is how every machine we build for
	 * keeps them. */
	hash = XXH3_64bits(sample, length * sizeof(*sample));
	if (length != v->length || hash != v->hash)
		printf("# %s n %" PRIu64 " epoch %" PRIu64 " rank %" PRIu64 "\n", v->spec, v->n,
		       v->epoch, v->rank);
	CHECK_U64(length, v->length);
	shown = length < SHOWN ? length : SHOWN;
	show(sample, shown, text, sizeof(text));
	CHECK_STR(text, v->first);
	show(sample + length - shown, shown, text, sizeof(text));
	CHECK_STR(text, v->last);
	CHECK_U64(hash, v->hash);
	free(sample);
	order_free(order);
	order_spec_free(spec);
}

static void vectors_of_torch(void)
{
	FILE *file AUTO_FILE = open_vectors();
	char *line AUTO_FREE = NULL;
	size_t size = 0;
	unsigned n = 0;

	while (getline(&line, &size, file) > 0) {
		char *copy AUTO_FREE = strdup(line);
		struct vector v;

		if (line[0] == '#')
			continue;
		v = vector_split(copy);
		check_vector(&v);
		n++;
	}
	printf("# %u vectors\n", n);
	CHECK(n > 0);
}

static const struct check_test tests[] = {
	{ "vectors_of_torch", vectors_of_torch },
};

CHECK_MAIN(tests)
