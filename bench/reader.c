/* SPDX-License-Identifier: Apache-2.0 */
/* reader: open + fstat + read + close of samples in a given order, with some threads; prints one
 * JSON line. reader --index FILE --order FILE [--threads T] [--head K] DIRECTORY Thread t takes
 * positions t, t+T, ...: together they read the order as a data loader's workers do.
 * The first S positions are left out. */
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "files.h"

struct reader {
	const struct files *files;
	const struct sequence *seq;
	uint32_t first, step, length;
	int dirfd;
	uint64_t bytes, *ns; /* ns: [length / step + 1] */
	uint32_t count;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *run(void *arg)
{
	struct reader *r = arg;
	char *buf = malloc(r->files->max_bytes + 1);

	if (!buf)
		die("memory");
	for (uint32_t p = r->first; p < r->length; p += r->step) {
		uint64_t start = now_ns();

		r->bytes += files_read(r->dirfd, r->files->paths[r->seq->sample[p]], buf,
				       r->files->max_bytes + 1);
		r->ns[r->count++] = now_ns() - start;
	}
	free(buf);
	return NULL;
}

static void report(struct reader *readers, int threads, uint64_t wall_ns)
{
	uint64_t bytes = 0, *all, n = 0;

	for (int t = 0; t < threads; t++)
		n += readers[t].count;
	all = malloc((n + 1) * sizeof(*all));
	if (!all)
		die("memory");
	n = 0;
	for (int t = 0; t < threads; t++) {
		bytes += readers[t].bytes;
		for (uint32_t i = 0; i < readers[t].count; i++)
			all[n++] = readers[t].ns[i];
	}
	printf("{\"files\": %llu, \"bytes\": %llu, \"threads\": %d, \"seconds\": %.6f, \"files_per_s\": %.1f, "
	       "\"us_per_file\": %.2f, \"p50_us\": %.2f, \"p90_us\": %.2f, \"p99_us\": %.2f}\n",
	       (unsigned long long)n, (unsigned long long)bytes, threads, (double)wall_ns / 1e9,
	       (double)n * 1e9 / (double)wall_ns, (double)wall_ns / 1e3 * threads / (double)n,
	       (double)percentile(all, n, 0.5) / 1e3, (double)percentile(all, n, 0.9) / 1e3,
	       (double)percentile(all, n, 0.99) / 1e3);
	free(all);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "index", required_argument, NULL, 'i' },
					       { "order", required_argument, NULL, 'o' },
					       { "threads", required_argument, NULL, 't' },
					       { "head", required_argument, NULL, 'h' },
					       { "skip", required_argument, NULL, 's' },
					       { NULL, 0, NULL, 0 } };
	struct files files = { 0 };
	struct sequence seq = { 0 };
	const char *order = NULL;
	uint32_t head = UINT32_MAX, skip = 0;
	int c, threads = 1, dirfd;
	uint64_t start;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'i')
			files_load(&files, optarg);
		else if (c == 'o')
			order = optarg;
		else if (c == 't')
			threads = atoi(optarg);
		else if (c == 'h')
			head = (uint32_t)atoi(optarg);
		else if (c == 's')
			skip = (uint32_t)atoi(optarg);
		else
			return 2;
	}
	if (!files.n || !order || threads < 1 || optind != argc - 1)
		return fprintf(stderr, "usage: reader --index FILE --order FILE [--threads T] "
				       "[--head K] [--skip S] DIRECTORY\n"),
		       2;
	sequence_load(&seq, order, files.n);
	dirfd = open(argv[optind], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		die(argv[optind]);
	struct reader *readers = calloc((size_t)threads, sizeof(*readers));
	pthread_t *ids = calloc((size_t)threads, sizeof(*ids));

	if (!readers || !ids)
		die("memory");
	for (int t = 0; t < threads; t++) {
		uint32_t length = seq.length < head ? seq.length : head;

		readers[t] = (struct reader){
			&files, &seq, skip + (uint32_t)t, (uint32_t)threads, length, dirfd, 0,
			NULL,   0
		};
		readers[t].ns = malloc((length / (uint32_t)threads + 1) * sizeof(uint64_t));
		if (!readers[t].ns)
			die("memory");
	}
	start = now_ns();
	for (int t = 0; t < threads; t++)
		if (pthread_create(&ids[t], NULL, run, &readers[t]))
			die("thread");
	for (int t = 0; t < threads; t++)
		pthread_join(ids[t], NULL);
	report(readers, threads, now_ns() - start);
	return 0;
}
