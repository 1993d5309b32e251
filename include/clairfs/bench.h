/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs bench: a training job's loader with real reads, against a directory, a mount, or a
 * directory in three ways side by side, and what was measured as text, JSON and HTML. Starts
 * processes of its own and a mount; one at a time in a process. */
#ifndef CLAIRFS_BENCH_H
#define CLAIRFS_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/err.h"

/* What is read. "directory" and "mount" stand alone; the others are what --compare takes. */
enum bench_side { SIDE_DIRECTORY, SIDE_MOUNT, SIDE_SOURCE, SIDE_PAGECACHE, SIDE_CLAIRFS, SIDES };
extern const char *const bench_side_names[SIDES + 1]; /* ends with NULL */

/* How a sample is read. */
enum bench_access {
	BENCH_WHOLE,  /* a file, in large reads */
	BENCH_STREAM, /* a file from its beginning to its end, a record after the other */
	BENCH_RANDOM, /* a record of a file */
};
extern const char *const bench_access_names[]; /* "whole" "stream" "random", NULL */

struct bench_args {
	const char *target;        /* SOURCE or MOUNTPOINT */
	const char *spec;          /* NULL: the mount's, or the default */
	const char *mount_options; /* NULL: none */
	const char *workload, *html, *trace;
	const char *switchback; /* percent; NULL: not asked for */
	bool is_json, is_comparing;
	bool is_untold; /* the mount of side clairfs does not know the order */
	enum bench_access access;
	uint64_t record_bytes; /* 0: not said */
	enum bench_side side[SIDES];
	uint32_t n_sides;
	/* Said on the command line, so an order may not say something else. */
	bool has_epochs, has_ranks, has_workers, has_prefetch, has_batch;
	uint64_t epochs, ranks, workers, prefetch, batch;
	double compute_ms, decode_ms;
	bool is_decode_asleep; /* decoding sleeps instead of burning CPU time */
};

/* The job: checked, nothing about it can be wrong any more. */
struct bench_setup;
/* Scans the dataset, makes the order. -EINVAL: the caller was wrong. */
int bench_setup_new(const struct bench_args *args, struct bench_setup **ret,
		    struct err *err) MUST_USE;
void bench_setup_free(struct bench_setup *s);

/* Whether text is a share of steps that --switchback takes. */
bool bench_switchback_is_share(const char *text);

/* What was measured. */
struct bench_report;
/* Runs all of it; blocks the signals that end it, for good. */
int bench_run(struct bench_setup *s, struct bench_report **ret, struct err *err) MUST_USE;
void bench_report_free(struct bench_report *r); /* NULL is fine */
void bench_print_text(const struct bench_report *r);
void bench_print_json(const struct bench_report *r);
/* Checked before anything is run: -EINVAL, -ENOTSUP. */
int bench_html_check(const char *path, struct err *err) MUST_USE;
int bench_html_write(const struct bench_report *r, const char *path, struct err *err) MUST_USE;

#endif
