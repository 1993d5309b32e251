/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test kit's machinery. A failing check leaves its test with longjmp, so that functions it
 * calls may check too; that is only possible on the thread that called setjmp, hence the other rule
 * for other threads. stdout is line-buffered: the seed and the last finished test are known even if
 * the program dies. Uses nothing of what is under test.
 */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

static struct {
	jmp_buf leave;
	pthread_t main_thread;
	_Atomic bool is_failed;
	const char *skip_reason;
	uint64_t seed;
	char tmpdir[256];
	pid_t tmpdir_owner;
} check;

/* Tests ask for absurd amounts on purpose: that returns NULL, as it does without a sanitizer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "allocator_may_return_null=1";
}

const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
	return "halt_on_error=1:print_stacktrace=1";
}

static void check_failed(void)
{
	atomic_store(&check.is_failed, true);
	if (pthread_equal(pthread_self(), check.main_thread))
		longjmp(check.leave, 1);
}

void check_true_(bool ok, const char *file, int line, const char *text)
{
	if (ok)
		return;
	printf("# %s:%d: CHECK(%s) failed\n", file, line, text);
	check_failed();
}

void check_int_(int64_t a, int64_t b, const char *file, int line, const char *ta, const char *tb)
{
	if (a == b)
		return;
	printf("# %s:%d: CHECK_INT(%s, %s): got %" PRId64 ", want %" PRId64 "\n", file, line, ta,
	       tb, a, b);
	check_failed();
}

void check_u64_(uint64_t a, uint64_t b, const char *file, int line, const char *ta, const char *tb)
{
	if (a == b)
		return;
	printf("# %s:%d: CHECK_U64(%s, %s): got %" PRIu64 " (0x%" PRIx64 "), want %" PRIu64
	       " (0x%" PRIx64 ")\n",
	       file, line, ta, tb, a, a, b, b);
	check_failed();
}

/* Every line of a multi-line value is a comment of its own, or it would be taken for TAP. */
static void check_print_text(const char *label, const char *text)
{
	printf("#   %s ", label);
	if (!text) {
		puts("NULL");
		return;
	}
	putchar('"');
	for (; *text; text++) {
		if (*text == '\n')
			fputs(text[1] ? "\\n\n#        " : "\\n", stdout);
		else
			putchar(*text);
	}
	puts("\"");
}

void check_str_(const char *a, const char *b, const char *file, int line, const char *ta,
		const char *tb)
{
	if (a && b ? strcmp(a, b) == 0 : a == b)
		return;
	printf("# %s:%d: CHECK_STR(%s, %s)\n", file, line, ta, tb);
	check_print_text("got ", a);
	check_print_text("want", b);
	check_failed();
}

void check_contains_(const char *text, const char *part, const char *file, int line, const char *tt)
{
	if (text && strstr(text, part))
		return;
	printf("# %s:%d: CHECK_CONTAINS(%s)\n", file, line, tt);
	check_print_text("text", text);
	check_print_text("want", part);
	check_failed();
}

static void check_print_bytes(const char *label, const uint8_t *bytes, size_t from, size_t to)
{
	printf("#   %s at %zu:", label, from);
	for (size_t i = from; i < to; i++)
		printf(" %02x", bytes[i]);
	putchar('\n');
}

void check_bytes_(const void *a, const void *b, size_t size, const char *file, int line,
		  const char *ta, const char *tb)
{
	const uint8_t *pa = a, *pb = b;
	size_t at = 0, to;

	if (size == 0)
		return;
	while (pa && pb && at < size && pa[at] == pb[at])
		at++;
	if (at == size)
		return;
	printf("# %s:%d: CHECK_BYTES(%s, %s): %zu bytes differ from byte %zu on\n", file, line, ta,
	       tb, size, at);
	to = MIN(at + 16, size);
	if (pa && pb) {
		check_print_bytes("got ", pa, at, to);
		check_print_bytes("want", pb, at, to);
	} else {
		printf("#   got %s, want %s\n", pa ? "bytes" : "NULL", pb ? "bytes" : "NULL");
	}
	check_failed();
}

void check_skip(const char *reason)
{
	check.skip_reason = reason;
	longjmp(check.leave, 1);
}

uint64_t check_seed(void)
{
	return check.seed;
}

uint64_t check_rand_u64(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint64_t check_rand_below(uint64_t *state, uint64_t n)
{
	/* The bias is far below what a test could see. */
	return (uint64_t)(((__uint128_t)check_rand_u64(state) * n) >> 64);
}

static int check_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	if (remove(path) < 0)
		printf("# cannot remove %s: %s\n", path, strerror(errno));
	return 0;
}

static void check_remove_tmpdir(void)
{
	/* A forked child that calls exit must not take the directory away from its parent. */
	if (check.tmpdir_owner == getpid())
		nftw(check.tmpdir, check_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void check_die(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(99);
}

const char *check_tmpdir(void)
{
	const char *base = getenv("TMPDIR");

	if (check.tmpdir[0])
		return check.tmpdir;
	if (!base || !*base)
		base = "/tmp";
	snprintf(check.tmpdir, sizeof(check.tmpdir), "%s/%.60s.XXXXXX", base,
		 program_invocation_short_name);
	if (!mkdtemp(check.tmpdir))
		check_die(check.tmpdir);
	check.tmpdir_owner = getpid();
	atexit(check_remove_tmpdir);
	return check.tmpdir;
}

char *check_tmpfile(const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", check_tmpdir(), name) < 0)
		check_die(name);
	return path;
}

char *check_write_file(const char *name, const void *bytes, size_t size)
{
	char *path = check_tmpfile(name);
	FILE *file = fopen(path, "we");

	if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
		check_die(path);
	return path;
}

/* Runs one test and prints its line; true unless it failed. */
static bool check_run(const struct check_test *test, size_t number)
{
	const char *noskip = getenv("CLAIRFS_TEST_NOSKIP");
	bool is_failed;

	check.skip_reason = NULL;
	atomic_store(&check.is_failed, false);
	if (setjmp(check.leave) == 0)
		test->fn();
	is_failed = atomic_load(&check.is_failed);
	if (check.skip_reason && noskip && strcmp(noskip, "1") == 0) {
		printf("# skipped (%s), but CLAIRFS_TEST_NOSKIP=1\n", check.skip_reason);
		is_failed = true;
	}
	printf("%sok %zu - %s", is_failed ? "not " : "", number, test->name);
	if (check.skip_reason && !is_failed)
		printf(" # SKIP %s", check.skip_reason);
	putchar('\n');
	return !is_failed;
}

static bool check_is_wanted(const char *name, char **names, int n_names)
{
	for (int i = 0; i < n_names; i++) {
		if (strcmp(names[i], name) == 0)
			return true;
	}
	return n_names == 0;
}

/* Takes the options off argv and returns how many names follow; *ret_first is the first of them. */
static int check_options(int argc, char **argv, bool *ret_is_list, int *ret_first)
{
	int at = 1;

	if (getrandom(&check.seed, sizeof(check.seed), 0) != sizeof(check.seed))
		check_die("getrandom");
	for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
		if (strcmp(argv[at], "--seed") == 0 && at + 1 < argc) {
			check.seed = strtoull(argv[++at], NULL, 0);
		} else if (strcmp(argv[at], "--list") == 0) {
			*ret_is_list = true;
		} else {
			fprintf(stderr, "usage: %s [--seed N] [--list] [NAME...]\n",
				program_invocation_short_name);
			exit(2);
		}
	}
	*ret_first = at;
	return argc - at;
}

int check_main(int argc, char **argv, const struct check_test *tests, size_t n_tests)
{
	bool is_list = false, is_good = true;
	size_t number = 0, n_wanted = 0;
	int first, n_names;

	setvbuf(stdout, NULL, _IOLBF, 0);
	check.main_thread = pthread_self();
	n_names = check_options(argc, argv, &is_list, &first);
	for (size_t i = 0; i < n_tests; i++) {
		n_wanted += check_is_wanted(tests[i].name, argv + first, n_names);
		if (is_list)
			puts(tests[i].name);
	}
	if (is_list)
		return 0;
	if (n_wanted == 0) {
		puts("Bail out! no such test");
		return 99;
	}
	printf("1..%zu\n# seed %" PRIu64 "\n", n_wanted, check.seed);
	for (size_t i = 0; i < n_tests; i++) {
		if (check_is_wanted(tests[i].name, argv + first, n_names))
			is_good = check_run(&tests[i], ++number) && is_good;
	}
	return is_good ? 0 : 1;
}
