/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main() of a fuzz target where there is no libFuzzer: feeds it each file of the directories given,
 * one TAP line per file. The corpus is thus replayed as a test in every build.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clairfs/base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* False when the file cannot be read. */
static bool feed(const char *path)
{
	AUTO_FILE FILE *f = fopen(path, "rb");
	AUTO_FREE uint8_t *data = NULL;
	long size;

	if (!f || fseek(f, 0, SEEK_END) < 0 || (size = ftell(f)) < 0)
		return false;
	rewind(f);
	data = malloc((size_t)size + 1);
	if (!data || fread(data, 1, (size_t)size, f) != (size_t)size)
		return false;
	LLVMFuzzerTestOneInput(data, (size_t)size);
	return true;
}

/* Returns how many files were bad; counts all of them. */
static unsigned feed_dir(const char *dir, unsigned *count)
{
	struct dirent **names;
	int n = scandir(dir, &names, NULL, alphasort);
	unsigned bad = 0;
	char path[4096];

	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.') {
			bool is_good;

			snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
			is_good = feed(path);
			bad += !is_good;
			printf("%s %u - %s\n", is_good ? "ok" : "not ok", ++*count,
			       names[i]->d_name);
			fflush(stdout);
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return bad;
}

int main(int argc, char **argv)
{
	unsigned count = 0, bad = 0;

	for (int i = 1; i < argc; i++)
		bad += feed_dir(argv[i], &count);
	printf("1..%u\n", count);
	/* An empty corpus proves nothing. */
	return bad > 0 || count == 0;
}
