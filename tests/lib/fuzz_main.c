/* SPDX-License-Identifier: Apache-2.0 */
/* main() of a fuzz target in builds without libFuzzer: replays the corpus, and variations of it, as
 * a test. The corpus of fuzz_x is tests/fuzz/corpus/x; files named on the command line are run
 * instead (that is how a finding is looked at). Variations are bytes changed, cut off, doubled or
 * joined from two inputs: no search for coverage, but enough that a parser broken by a change does
 * not pass. */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "check.h"

#define INPUT_MAX (64 << 10)
#define VARIATIONS 2000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	uint8_t *data;
	size_t size;
};

static struct input read_input(const char *path)
{
	FILE *file AUTO_FILE = fopen(path, "re");
	struct input input = { .data = malloc(INPUT_MAX) };

	if (!file)
		printf("# %s: %s\n", path, strerror(errno));
	CHECK(file && input.data);
	input.size = fread(input.data, 1, INPUT_MAX, file);
	CHECK(!ferror(file));
	return input;
}

/* A copy of exactly the input's size, so that a sanitizer sees a read behind its end. */
static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size);

	if (size > 0)
		memcpy(copy, data, size);
	CHECK_INT(LLVMFuzzerTestOneInput(copy, size), 0);
	free(copy);
}

static void vary(struct input *to, const struct input *a, const struct input *b, uint64_t *random)
{
	size_t cut = check_rand_below(random, a->size + 1);

	memcpy(to->data, a->data, a->size);
	to->size = a->size;
	switch (check_rand_below(random, 4)) {
	case 0:
		to->size = cut;
		break;
	case 1: /* the front of one, the back of the other */
		to->size = MIN(b->size, INPUT_MAX - cut);
		memcpy(to->data + cut, b->data + b->size - to->size, to->size);
		to->size += cut;
		break;
	case 2: /* a part twice */
		to->size = MIN(a->size + cut, INPUT_MAX);
		memcpy(to->data + cut, a->data, to->size - cut);
		break;
	}
	for (uint64_t n = check_rand_below(random, 4); n > 0 && to->size > 0; n--)
		to->data[check_rand_below(random, to->size)] = (uint8_t)check_rand_u64(random);
}

static size_t read_corpus(struct input *inputs, size_t max)
{
	const char *source = getenv("CLAIRFS_SOURCE");
	const char *name = strncmp(program_invocation_short_name, "fuzz_", 5) == 0
				   ? program_invocation_short_name + 5
				   : program_invocation_short_name;
	char *path AUTO_FREE = NULL;
	struct dirent *entry;
	size_t n = 0;
	DIR *dir;

	CHECK(source);
	CHECK(asprintf(&path, "%s/tests/fuzz/corpus/%s", source, name) > 0);
	dir = opendir(path);
	if (!dir)
		printf("# %s: %s\n", path, strerror(errno));
	CHECK(dir);
	while (n < max && (entry = readdir(dir))) {
		char *file AUTO_FREE = NULL;

		if (entry->d_name[0] == '.')
			continue;
		CHECK(asprintf(&file, "%s/%s", path, entry->d_name) > 0);
		inputs[n++] = read_input(file);
	}
	closedir(dir);
	CHECK(n > 0);
	return n;
}

static void replays_corpus_and_variations(void)
{
	static struct input inputs[1000];
	struct input varied = { .data = malloc(INPUT_MAX) };
	size_t n = read_corpus(inputs, ARRAY_LEN(inputs));
	uint64_t random = check_seed();

	run((const uint8_t *)"", 0);
	for (size_t i = 0; i < n; i++)
		run(inputs[i].data, inputs[i].size);
	for (int i = 0; i < VARIATIONS; i++) {
		vary(&varied, &inputs[check_rand_below(&random, n)],
		     &inputs[check_rand_below(&random, n)], &random);
		run(varied.data, varied.size);
	}
	for (size_t i = 0; i < n; i++)
		free(inputs[i].data);
	free(varied.data);
}

static const struct check_test tests[] = {
	{ "replays_corpus_and_variations", replays_corpus_and_variations },
};

int main(int argc, char **argv)
{
	if (argc < 2 || argv[1][0] == '-')
		return check_main(argc, argv, tests, ARRAY_LEN(tests));
	for (int i = 1; i < argc; i++) {
		struct input input = read_input(argv[i]);

		run(input.data, input.size);
		free(input.data);
	}
	return 0;
}
