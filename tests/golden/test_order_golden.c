/* SPDX-License-Identifier: Apache-2.0 */
/* Are our orders the frameworks'? Each file of order/ holds vectors that a gen_*.py made with the
 * real framework (the format is in vectors.py), and is a test here: the length, the first and last
 * 64 samples (for a person to look at when it fails) and a hash over all of them. "@golden@" in a
 * spec stands for the directory of the files.
 *
 * Files whose name ends in _large.txt are too large for every day, see src/order/README.md:
 *
 *	CLAIRFS_ORDER_VECTORS=tests/golden/order/torch_large.txt ./test_order_golden by_hand
 */
#include <dirent.h>
#include <inttypes.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "clairfs/base/buf.h"
#include "clairfs/order.h"

#define SHOWN 64

struct vector {
	const char *spec, *first, *last;
	uint64_t n, epoch, rank, length, hash;
};

/* One row per file. */
#define FILES(ROW)                                                                                 \
	ROW(accelerate)                                                                            \
	ROW(dali)                                                                                  \
	ROW(dali_old)                                                                              \
	ROW(datasets)                                                                              \
	ROW(detectron2)                                                                            \
	ROW(dlio)                                                                                  \
	ROW(dlio_read)                                                                             \
	ROW(ffcv)                                                                                  \
	ROW(grain)                                                                                 \
	ROW(libstdcxx)                                                                             \
	ROW(lightning)                                                                             \
	ROW(litdata)                                                                               \
	ROW(megatron)                                                                              \
	ROW(mosaic)                                                                                \
	ROW(numpy)                                                                                 \
	ROW(python)                                                                                \
	ROW(tensorflow)                                                                            \
	ROW(timm)                                                                                  \
	ROW(torch)                                                                                 \
	ROW(torch_loader)                                                                          \
	ROW(torchdata)                                                                             \
	ROW(transformers)                                                                          \
	ROW(webdataset)

/* Of order/, or of a file in it; heap. */
static char *golden_path(const char *file)
{
	const char *source = getenv("CLAIRFS_SOURCE");
	char *path;

	CHECK(source);
	CHECK(asprintf(&path, "%s/tests/golden/order%s%s", source, *file ? "/" : "", file) > 0);
	return path;
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
	if (!v.last)
		printf("# not a vector: %s\n", v.spec);
	CHECK(v.last);
	return v;
}

/* The spec with the directory in the place of "@golden@", as a value; heap. */
static char *spec_expand(const char *spec)
{
	static const char mark[] = "@golden@";
	const char *at = strstr(spec, mark);
	char *dir AUTO_FREE = golden_path("");
	struct buf_writer w;

	buf_writer_init(&w);
	if (at) {
		buf_printf(&w, "%.*s", (int)(at - spec), spec);
		for (const char *c = dir; *c; c++)
			buf_printf(&w, strchr(":,%", *c) ? "%%%02X" : "%c", (unsigned char)*c);
		spec = at + strlen(mark);
	}
	buf_printf(&w, "%s", spec);
	buf_put_u8(&w, 0);
	CHECK(!w.is_bad);
	return (char *)w.data;
}

/* The same text as show() of vectors.py. */
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
	char *expanded AUTO_FREE = spec_expand(v->spec);

	if (order_spec_parse(expanded, &spec, &err) < 0 ||
	    order_new(spec, &(struct order_params){ .n = v->n }, &order, &err) < 0 ||
	    order_rank_epoch(order, v->epoch, v->rank, &sample, &length, &err) < 0)
		printf("# %s n %" PRIu64 " epoch %" PRIu64 " rank %" PRIu64 "\n", v->spec, v->n,
		       v->epoch, v->rank);
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

static void check_file(const char *path)
{
	FILE *file AUTO_FILE = fopen(path, "re");
	char *line AUTO_FREE = NULL;
	size_t size = 0;
	unsigned n = 0;

	if (!file)
		printf("# cannot open %s\n", path);
	CHECK(file);
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

#define AS_TEST(name)                                                                              \
	static void vectors_of_##name(void)                                                        \
	{                                                                                          \
		char *path AUTO_FREE = golden_path(#name ".txt");                                  \
                                                                                                   \
		check_file(path);                                                                  \
	}
FILES(AS_TEST)

/* A file without a row would never be looked at. */
static void every_file_has_a_row(void)
{
#define AS_NAME(name) #name ".txt",
	static const char *const names[] = { FILES(AS_NAME) };
	char *path AUTO_FREE = golden_path("");
	DIR *dir = opendir(path);
	const struct dirent *entry;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		const char *dot = strrchr(entry->d_name, '.');
		size_t i = 0;

		if (!dot || strcmp(dot, ".txt") != 0 || strstr(entry->d_name, "_large.txt"))
			continue;
		while (i < ARRAY_LEN(names) && strcmp(names[i], entry->d_name) != 0)
			i++;
		if (i == ARRAY_LEN(names))
			printf("# no row for %s\n", entry->d_name);
		CHECK(i < ARRAY_LEN(names));
	}
	closedir(dir);
}

static const struct check_test tests[] = {
#define AS_ROW(name) { "vectors_of_" #name, vectors_of_##name },
	FILES(AS_ROW){ "every_file_has_a_row", every_file_has_a_row },
};

/* A file given by hand instead. */
static void by_hand(void)
{
	check_file(getenv("CLAIRFS_ORDER_VECTORS"));
}

int main(int argc, char **argv)
{
	static const struct check_test one[] = { { "by_hand", by_hand } };

	return getenv("CLAIRFS_ORDER_VECTORS") ? check_main(argc, argv, one, ARRAY_LEN(one))
					       : check_main(argc, argv, tests, ARRAY_LEN(tests));
}
