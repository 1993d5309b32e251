/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by reader and loader: see files.h. Names with escapes are refused: benchmark datasets have
 * plain ones. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "not as expected");
	exit(1);
}

void files_load(struct files *files, const char *index_path)
{
	FILE *f = fopen(index_path, "re");
	char *line = NULL;
	size_t size = 0;
	ssize_t len;

	memset(files, 0, sizeof(*files));
	if (!f)
		die(index_path);
	while ((len = getline(&line, &size, f)) > 0) {
		char *path = strchr(line, '\t'), *end = path ? strchr(path + 1, '\t') : NULL,
		     *bytes = end ? strchr(end + 1, '\t') : NULL;
		uint64_t length;

		if (!bytes || memchr(line, '\\', (size_t)len)) {
			errno = EINVAL;
			die(index_path);
		}
		*end = 0;
		length = strtoull(bytes + 1, NULL, 10);
		if (length > files->max_bytes)
			files->max_bytes = length;
		if (files->n % 4096 == 0) {
			files->paths =
				realloc(files->paths, (files->n + 4096) * sizeof(*files->paths));
			if (!files->paths)
				die("memory");
		}
		files->paths[files->n] = strdup(path + 1);
		if (!files->paths[files->n++])
			die("memory");
	}
	free(line);
	fclose(f);
}

void sequence_load(struct sequence *seq, const char *order_path, uint32_t n)
{
	int fd = open(order_path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		die(order_path);
	seq->length = (uint32_t)(st.st_size / 4);
	seq->sample = malloc((size_t)st.st_size + 1);
	if (!seq->sample || read(fd, seq->sample, (size_t)st.st_size) != st.st_size)
		die(order_path);
	close(fd);
	for (uint32_t i = 0; i < seq->length; i++)
		if (seq->sample[i] >= n) {
			errno = ERANGE;
			die(order_path);
		}
}

uint64_t files_read(int dirfd, const char *path, char *buf, size_t size)
{
	int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	size_t got = 0;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		die(path);
	errno = 0;
	if ((size_t)st.st_size > size)
		die(path);
	while (got < (size_t)st.st_size && (n = read(fd, buf + got, (size_t)st.st_size - got)) > 0)
		got += (size_t)n;
	if (got != (size_t)st.st_size)
		die(path);
	close(fd);
	return got;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

uint64_t percentile(uint64_t *values, size_t n, double p)
{
	if (!n)
		return 0;
	qsort(values, n, sizeof(*values), compare);
	return values[(size_t)(p * (double)(n - 1))];
}
