/* SPDX-License-Identifier: Apache-2.0 */
/* Test kit: TAP on stdout, one line per test. A failing CHECK prints file, line and both values as
 * comments, ends its test (also from inside a function it calls) and the next test runs; what the
 * test held is leaked, so keep nothing in a test that the next one needs. On another thread than
 * the main one a failing CHECK marks the test and goes on.
 *
 *	./test_x                 all tests
 *	./test_x NAME...         these tests
 *	./test_x --seed N        repeats a random test
 *	./test_x --list          names only
 */
#ifndef CLAIRFS_TESTS_CHECK_H
#define CLAIRFS_TESTS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"

struct check_test {
	const char *name; /* the behaviour, e.g. "close_wakes_waiters" */
	void (*fn)(void);
};

int check_main(int argc, char **argv, const struct check_test *tests, size_t n_tests);

#define CHECK_MAIN(tests)                                                                          \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return check_main(argc, argv, tests, ARRAY_LEN(tests));                            \
	}

/* Got first, wanted second. Each argument is evaluated once. */
#define CHECK(cond) check_true_((cond), __FILE__, __LINE__, #cond)
#define CHECK_INT(a, b) check_int_((a), (b), __FILE__, __LINE__, #a, #b)
#define CHECK_U64(a, b) check_u64_((a), (b), __FILE__, __LINE__, #a, #b)
/* NULL equals NULL only. */
#define CHECK_STR(a, b) check_str_((a), (b), __FILE__, __LINE__, #a, #b)
#define CHECK_BYTES(a, b, size) check_bytes_((a), (b), (size), __FILE__, __LINE__, #a, #b)
/* True if `text` contains `part`; prints both otherwise. */
#define CHECK_CONTAINS(text, part) check_contains_((text), (part), __FILE__, __LINE__, #text)

/* Ends this test as skipped; a failure when CLAIRFS_TEST_NOSKIP=1. Main thread only. */
void check_skip(const char *reason) __attribute__((noreturn));

/* The seed of this run: from --seed, else different in each run. Printed as "# seed N". */
uint64_t check_seed(void);
/* splitmix64: any start value will do. */
uint64_t check_rand_u64(uint64_t *state);
/* 0 .. n-1, n > 0. */
uint64_t check_rand_below(uint64_t *state, uint64_t n);

/* A private directory of this program, made at the first call and removed with everything in it at
 * exit. */
const char *check_tmpdir(void);
/* "<tmpdir>/<name>", heap. */
char *check_tmpfile(const char *name);
/* Makes or replaces a file below the private directory and returns its path, heap. */
char *check_write_file(const char *name, const void *bytes, size_t size);

void check_true_(bool ok, const char *file, int line, const char *text);
void check_int_(int64_t a, int64_t b, const char *file, int line, const char *ta, const char *tb);
void check_u64_(uint64_t a, uint64_t b, const char *file, int line, const char *ta, const char *tb);
void check_str_(const char *a, const char *b, const char *file, int line, const char *ta,
		const char *tb);
void check_bytes_(const void *a, const void *b, size_t size, const char *file, int line,
		  const char *ta, const char *tb);
void check_contains_(const char *text, const char *part, const char *file, int line,
		     const char *tt);

#endif
