/* SPDX-License-Identifier: Apache-2.0 */
/* Do files have the numbers that torchvision's and timm's ImageFolder and Python's own ways of
 * listing give them? dataset/numbering.txt, made by gen_numbering.py with the real ones, holds a
 * tree and how each of them lists it and parts of it. */
#include <stdlib.h>
#include <string.h>

#include "dataset_kit.h"

#define FILES_MAX 4096

struct golden {
	FILE *file;
	char *line;
	size_t capacity;
	char *path[FILES_MAX];
	uint32_t n;
};

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c - 'A' + 10;
}

static char *unquoted(const char *text)
{
	char *out = calloc(strlen(text) + 1, 1), *to = out;

	for (; *text; text++) {
		if (*text == '%') {
			*to++ = (char)(hex(text[1]) << 4 | hex(text[2]));
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	return out;
}

/* The next line that is no comment; false at the end. */
static bool golden_next(struct golden *g)
{
	do {
		if (getline(&g->line, &g->capacity, g->file) < 0)
			return false;
		g->line[strcspn(g->line, "\n")] = '\0';
	} while (*g->line == '#');
	return true;
}

static void golden_open(struct golden *g)
{
	const char *source = getenv("CLAIRFS_SOURCE");
	char path[4096];

	snprintf(path, sizeof(path), "%s/tests/golden/dataset/numbering.txt",
		 source ? source : ".");
	g->file = fopen(path, "r");
	CHECK(g->file != NULL);
	while (golden_next(g) && strncmp(g->line, "file ", 5) == 0) {
		CHECK(g->n < FILES_MAX - 1);
		g->path[g->n++] = unquoted(g->line + 5);
	}
	CHECK(g->n > 300);
}

/* The line is "SORT UNDER I,I,...". */
static void check_way(const struct golden *g, const struct dataset *ds)
{
	char *rest = g->line, *name = strsep(&rest, " "), *under = strsep(&rest, " "), *number;
	AUTO_FREE uint32_t *sample = NULL;
	enum dataset_sort sort;
	struct err err = { 0 };
	uint32_t n, i = 0;

	CHECK_INT(dataset_sort_parse(name, &sort, &err), 0);
	CHECK_INT(dataset_numbering(ds, sort, strcmp(under, "-") == 0 ? NULL : under, &sample, &n,
				    &err),
		  0);
	while ((number = strsep(&rest, ",")) && *number) {
		CHECK(i < n);
		if (sample[i] != strtoul(number, NULL, 10))
			printf("# %s below %s: number %u is %s, not %s\n", name, under, i,
			       g->path[sample[i]], g->path[strtoul(number, NULL, 10)]);
		CHECK_U64(sample[i], strtoul(number, NULL, 10));
		i++;
	}
	CHECK_U64(i, n);
}

static void files_have_the_numbers_the_frameworks_give_them(void)
{
	struct golden g = { 0 };
	AUTO_FREE char *root = NULL;
	struct dataset *ds;
	uint32_t ways = 0;

	golden_open(&g);
	root = kit_tree("golden", (const char *const *)g.path);
	ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	CHECK_U64(dataset_n_samples(ds), g.n);
	do {
		check_way(&g, ds);
		ways++;
	} while (golden_next(&g));
	CHECK_U64(ways, 24);
	dataset_free(ds);
	for (uint32_t i = 0; i < g.n; i++)
		free(g.path[i]);
	free(g.line);
	fclose(g.file);
}

static const struct check_test tests[] = {
	{ "files_have_the_numbers_the_frameworks_give_them",
	  files_have_the_numbers_the_frameworks_give_them },
};
CHECK_MAIN(tests)
