/* SPDX-License-Identifier: Apache-2.0 */
/* Strict parsing of numbers and names that people type, and printing of names that came from a
 * disk. */
#ifndef CLAIRFS_BASE_TEXT_H
#define CLAIRFS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"

/* Whole string, decimal, no sign, no blanks. -EINVAL, -ERANGE. */
int text_to_u64(const char *text, uint64_t *ret) MUST_USE;
/* Decimal with an optional '-'; accepts the range of torch seeds, [-2^63, 2^64): negative v is
 * returned as v + 2^64. */
int text_to_seed(const char *text, uint64_t *ret) MUST_USE;
/* Number with an optional K, M, G or T (powers of 1024), e.g. "16G". */
int text_to_bytes(const char *text, uint64_t *ret) MUST_USE;
/* Decimal with an optional fraction and exponent, not negative, finite: "0.25", "1e-3". */
int text_to_real(const char *text, double *ret) MUST_USE;
/* "1", "yes", "true", "on" / "0", "no", "false", "off". */
int text_to_bool(const char *text, bool *ret) MUST_USE;

/* The candidate nearest to `word` by edit distance, or NULL if none is near. candidates ends with
 * NULL. */
const char *text_nearest(const char *word, const char *const *candidates);

/* Writes `name` with control characters, backslash and bytes that are no valid UTF-8 as \n, \t,
 * \\ or \xHH, always terminated, cut at `size` with "...". Returns out. */
char *text_escape(const char *name, size_t len, char *out, size_t size);
/* 16777216 -> "16 MiB", exact or with one decimal. */
char *text_from_bytes(uint64_t bytes, char *out, size_t size);

#endif
