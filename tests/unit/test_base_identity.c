/* SPDX-License-Identifier: Apache-2.0 */
/* What tells a changed file from an unchanged one; and times, of which a filesystem may say any. */
#include <sys/stat.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/identity.h"

static void any_difference_is_another_version(void)
{
	static const struct file_identity a = { .ino = 1, .size = 2, .mtime_ns = 3, .ctime_ns = 4 };
	struct file_identity b = a;

	CHECK(file_identity_eq(&a, &b));
	b.ino++;
	CHECK(!file_identity_eq(&a, &b));
	b = a;
	b.size++;
	CHECK(!file_identity_eq(&a, &b));
	b = a;
	b.mtime_ns++;
	CHECK(!file_identity_eq(&a, &b));
	b = a;
	b.ctime_ns--; /* of a file whose time of change somebody has set back */
	CHECK(!file_identity_eq(&a, &b));
}

static void what_stat_says(void)
{
	struct stat st = { .st_ino = 7,
			   .st_size = 1 << 20,
			   .st_mtim = { .tv_sec = 5, .tv_nsec = 6 },
			   .st_ctim = { .tv_sec = 8, .tv_nsec = 999999999 } };
	struct file_identity id = file_identity_of(&st);

	CHECK_U64(id.ino, 7);
	CHECK_U64(id.size, 1 << 20);
	CHECK_INT(id.mtime_ns, 5000000006);
	CHECK_INT(id.ctime_ns, 8999999999);
}

static void check_time(int64_t sec, long nsec)
{
	struct timespec back = file_time_of(file_time_ns(sec, nsec));

	CHECK_INT(back.tv_sec, sec);
	CHECK_INT(back.tv_nsec, nsec);
}

static void times_come_back(void)
{
	check_time(0, 0);
	check_time(-1, 0);
	check_time(-1, 999999999); /* a moment before 1970 */
	check_time(1700000000, 123456789);
	check_time(FILE_TIME_FIRST_SEC, 0);
	check_time(FILE_TIME_FIRST_SEC, 999999999);
	check_time(9223372036, 854775807); /* 2262: the last that fits into 63 bits */
	check_time(9223372037, 0);
	check_time(FILE_TIME_LAST_SEC, 999999999);
}

static void other_times_are_the_nearest(void)
{
	struct timespec t = file_time_of(file_time_ns(INT64_MIN, 5));

	CHECK_INT(t.tv_sec, FILE_TIME_FIRST_SEC);
	CHECK_INT(t.tv_nsec, 5);
	t = file_time_of(file_time_ns(INT64_MAX, 7));
	CHECK_INT(t.tv_sec, FILE_TIME_LAST_SEC);
	CHECK_INT(t.tv_nsec, 7);
	t = file_time_of(file_time_ns(FILE_TIME_FIRST_SEC - 1, 0));
	CHECK_INT(t.tv_sec, FILE_TIME_FIRST_SEC);
	t = file_time_of(file_time_ns(FILE_TIME_LAST_SEC + 1, 0));
	CHECK_INT(t.tv_sec, FILE_TIME_LAST_SEC);
}

/* Two times that differ are two numbers, all over the range. */
static void no_two_times_are_one_number(void)
{
	uint64_t seed = check_seed(), range = (uint64_t)(FILE_TIME_LAST_SEC - FILE_TIME_FIRST_SEC);

	for (int i = 0; i < 20000; i++) {
		int64_t sec = FILE_TIME_FIRST_SEC + (int64_t)check_rand_below(&seed, range);
		long nsec = (long)check_rand_below(&seed, NS_PER_S);

		check_time(sec, nsec);
		CHECK(file_time_ns(sec, nsec) != file_time_ns(sec + 1, nsec));
	}
}

static const struct check_test tests[] = {
	{ "any_difference_is_another_version", any_difference_is_another_version },
	{ "what_stat_says", what_stat_says },
	{ "times_come_back", times_come_back },
	{ "other_times_are_the_nearest", other_times_are_the_nearest },
	{ "no_two_times_are_one_number", no_two_times_are_one_number },
};

CHECK_MAIN(tests)
