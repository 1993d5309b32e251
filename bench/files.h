/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmark clients share: the list of samples (output of `clairfs index`), an order
 * (output of `clairfs order
 * --binary u32`), one read the way a data loader does it, and percentiles. Errors end the program:
 * a benchmark that goes on after one would print a number that means nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct files {
	char **paths; /* [n] relative to the directory */
	uint32_t n;
	uint64_t max_bytes;
};

struct sequence {
	uint32_t *sample;
	uint32_t length;
};

void files_load(struct files *files, const char *index_path);
void sequence_load(struct sequence *seq, const char *order_path, uint32_t n);
/* open + fstat + read + close; returns the bytes read, which must be those fstat promised. */
uint64_t files_read(int dirfd, const char *path, char *buf, size_t size);
void die(const char *what) __attribute__((noreturn));
/* Sorts in place. */
uint64_t percentile(uint64_t *values, size_t n, double p);
