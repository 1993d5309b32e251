/* SPDX-License-Identifier: Apache-2.0 */
/* loader: a data loader as PyTorch's, with real worker processes and a sleeping "GPU"; prints one
 * JSON line per epoch. loader --index FILE --order FILE [--order FILE]... [--batch B] [--workers W]
 * [--prefetch-factor P] [--compute-ms C]
 *          [--skip S] [--progress] [--step] DIRECTORY
 * One --order file per epoch. Batch b goes to worker b % W; P * W batches are handed out at the
 * start, one more each time the trainer takes one; batches are taken in order. --step waits for a
 * line on stdin after each epoch. --progress adds
 * lines with the samples taken so far. Stall = time the trainer waits for a batch. Figures named
 * after_skip leave out the first S samples of the run, during which nothing could have been known
 * yet. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "files.h"

struct loader {
	struct files files;
	struct sequence epochs[64];
	int n_epochs;
	uint32_t batch, workers, prefetch_factor, skip;
	uint64_t compute_ns;
	int dirfd;
	int show_progress, is_stepped;
};

struct worker {
	pid_t pid;
	int ask, tell; /* parent's ends: batch numbers out, bytes read in */
};

struct request {
	uint32_t epoch, batch;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void work(const struct loader *l, int in, int out)
{
	char *buf = malloc(l->files.max_bytes + 1);
	struct request r;

	if (!buf)
		die("memory");
	while (read(in, &r, sizeof(r)) == (ssize_t)sizeof(r)) {
		const struct sequence *seq = &l->epochs[r.epoch];
		uint64_t bytes = 0;

		for (uint32_t p = r.batch * l->batch;
		     p < (r.batch + 1) * l->batch && p < seq->length; p++)
			bytes += files_read(l->dirfd, l->files.paths[seq->sample[p]], buf,
					    l->files.max_bytes + 1);
		if (write(out, &bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
			die("pipe");
	}
	_exit(0);
}

static void spawn(const struct loader *l, struct worker *workers, uint32_t i)
{
	int down[2], up[2];

	if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC))
		die("pipe");
	workers[i].pid = fork();
	if (workers[i].pid < 0)
		die("fork");
	if (workers[i].pid == 0) {
		for (uint32_t j = 0; j < i; j++)
			close(workers[j].ask);
		close(down[1]);
		work(l, down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	workers[i].ask = down[1];
	workers[i].tell = up[0];
}

static void ask(const struct worker *w, uint32_t epoch, uint32_t batch)
{
	struct request r = { epoch, batch };

	if (write(w->ask, &r, sizeof(r)) != (ssize_t)sizeof(r))
		die("worker");
}

static uint64_t take(const struct worker *w)
{
	uint64_t bytes;

	errno = 0;
	if (read(w->tell, &bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
		die("worker");
	return bytes;
}

static void compute(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u),
			      .tv_nsec = (long)(ns % 1000000000u) };

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

static void run_epoch(const struct loader *l, const struct worker *workers, uint32_t epoch)
{
	uint32_t samples = l->epochs[epoch].length, batches = (samples + l->batch - 1) / l->batch,
		 asked = 0;
	uint64_t start = now_ns(), stall = 0, stall_late = 0, compute_late = 0, bytes = 0;

	for (; asked < batches && asked < l->workers * l->prefetch_factor; asked++)
		ask(&workers[asked % l->workers], epoch, asked);
	for (uint32_t b = 0; b < batches; b++) {
		uint64_t want = now_ns(), got, end;

		bytes += take(&workers[b % l->workers]);
		got = now_ns();
		if (asked < batches) {
			ask(&workers[asked % l->workers], epoch, asked);
			asked++;
		}
		compute(l->compute_ns);
		if (l->show_progress && (b + 1) * 50 / batches != b * 50 / batches) {
			printf("{\"progress\": %u, \"total\": %u}\n", epoch * batches + b + 1,
			       (uint32_t)l->n_epochs * batches);
			fflush(stdout);
		}
		end = now_ns();
		stall += got - want;
		if (epoch > 0 || b * l->batch >= l->skip) {
			stall_late += got - want;
			compute_late += end - got;
		}
	}
	printf("{\"epoch\": %u, \"samples\": %u, \"bytes\": %llu, \"seconds\": %.4f, \"samples_per_s\": %.1f, "
	       "\"stall_seconds\": %.4f, \"stall_percent_after_skip\": %.4f}\n",
	       epoch, samples, (unsigned long long)bytes, (double)(now_ns() - start) / 1e9,
	       samples * 1e9 / (double)(now_ns() - start), (double)stall / 1e9,
	       compute_late ? 100.0 * (double)stall_late / (double)compute_late : 0.0);
	fflush(stdout);
}

static int parse(struct loader *l, int argc, char **argv)
{
	static const struct option longs[] = { { "index", required_argument, NULL, 'i' },
					       { "order", required_argument, NULL, 'o' },
					       { "batch", required_argument, NULL, 'b' },
					       { "workers", required_argument, NULL, 'w' },
					       { "prefetch-factor", required_argument, NULL, 'p' },
					       { "compute-ms", required_argument, NULL, 'c' },
					       { "skip", required_argument, NULL, 's' },
					       { "progress", no_argument, NULL, 'P' },
					       { "step", no_argument, NULL, 'S' },
					       { NULL, 0, NULL, 0 } };
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'i')
			files_load(&l->files, optarg);
		else if (c == 'o' && l->files.n && l->n_epochs < 64)
			sequence_load(&l->epochs[l->n_epochs++], optarg, l->files.n);
		else if (c == 'b')
			l->batch = (uint32_t)atoi(optarg);
		else if (c == 'w')
			l->workers = (uint32_t)atoi(optarg);
		else if (c == 'p')
			l->prefetch_factor = (uint32_t)atoi(optarg);
		else if (c == 'c')
			l->compute_ns = (uint64_t)(atof(optarg) * 1e6);
		else if (c == 's')
			l->skip = (uint32_t)atoi(optarg);
		else if (c == 'P')
			l->show_progress = 1;
		else if (c == 'S')
			l->is_stepped = 1;
		else
			return -1;
	}
	return l->n_epochs && l->batch && l->workers && l->prefetch_factor && optind == argc - 1
		       ? optind
		       : -1;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: loader --index FILE --order FILE [--order FILE]... [--batch B]\n"
		"              [--workers W] [--prefetch-factor P] [--compute-ms C] [--skip S]\n"
		"              [--progress] [--step] DIRECTORY\n");
	return 2;
}

int main(int argc, char **argv)
{
	static struct loader l = {
		.batch = 16, .workers = 4, .prefetch_factor = 2, .compute_ns = 10000000, .skip = 200
	};
	int at = parse(&l, argc, argv);
	struct worker *workers;
	int c;

	if (at < 0)
		return usage();
	l.dirfd = open(argv[at], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	workers = calloc(l.workers, sizeof(*workers));
	if (l.dirfd < 0 || !workers)
		die(argv[at]);
	for (uint32_t i = 0; i < l.workers; i++)
		spawn(&l, workers, i);
	for (int e = 0; e < l.n_epochs; e++) {
		run_epoch(&l, workers, (uint32_t)e);
		while (l.is_stepped && (c = getchar()) != '\n' && c != EOF)
			;
	}
	for (uint32_t i = 0; i < l.workers; i++) {
		close(workers[i].ask);
		waitpid(workers[i].pid, NULL, 0);
	}
	return 0;
}
