/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines as they arrive on stderr, which is sent to a file for the time of a test: the format,
 * the levels, one line per call whatever the text, and the rate limit.
 */
#include "clairfs/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/thr.h"

static struct {
	int saved_fd;
	char *path;
	char text[65536];
} capture;

static void capture_begin(void)
{
	int fd;

	fflush(stderr);
	capture.path = check_tmpfile("stderr");
	capture.saved_fd = dup(STDERR_FILENO);
	fd = open(capture.path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && capture.saved_fd >= 0);
	dup2(fd, STDERR_FILENO);
	close(fd);
}

static const char *capture_end(void)
{
	ssize_t n;
	int fd;

	dup2(capture.saved_fd, STDERR_FILENO);
	close(capture.saved_fd);
	fd = open(capture.path, O_RDONLY | O_CLOEXEC);
	n = read(fd, capture.text, sizeof(capture.text) - 1);
	close(fd);
	free(TAKE(capture.path));
	CHECK(n >= 0);
	capture.text[n] = '\0';
	return capture.text;
}

static void lines_name_program_and_level(void)
{
	log_set_level(LOG_LEVEL_DEBUG);
	capture_begin();
	log_error("one %d", 1);
	log_warn("two");
	log_info("three");
	log_debug("four");
	CHECK_STR(capture_end(), "clairfs: error: one 1\n"
				 "clairfs: warning: two\n"
				 "clairfs: info: three\n"
				 "clairfs: debug: four\n");
}

static void level_hides_what_is_below(void)
{
	capture_begin();
	log_set_level(LOG_LEVEL_WARN);
	log_info("hidden");
	log_warn("shown");
	log_set_level(LOG_LEVEL_ERROR);
	log_warn("hidden");
	log_error("shown");
	CHECK_STR(capture_end(), "clairfs: warning: shown\nclairfs: error: shown\n");
	log_set_level(LOG_LEVEL_INFO);
}

/* The last test: there is no way back. What syslog gets is not seen here. */
static void warnings_are_shown_beside_syslog(void)
{
	log_use_syslog();
	capture_begin();
	log_warn("nobody is there");
	log_show_warnings(true);
	log_error("what is an error is told by whoever fails");
	log_warn("somebody is there");
	log_info("who wants to know less");
	log_show_warnings(false);
	log_warn("nobody is there");
	CHECK_STR(capture_end(), "clairfs: warning: somebody is there\n");
}

static void a_name_cannot_forge_a_line(void)
{
	capture_begin();
	log_warn("file %s", "a\nclairfs: error: b\r\x1b[2J");
	CHECK_STR(capture_end(), "clairfs: warning: file a?clairfs: error: b??[2J\n");
}

static void a_long_line_is_cut_but_ended(void)
{
	char text[5000];
	const char *got;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	capture_begin();
	log_warn("%s", text);
	log_warn("next");
	got = capture_end();
	CHECK(strlen(got) > 1000 && strlen(got) < 1500);
	CHECK_CONTAINS(got, "xxx\nclairfs: warning: next\n");
}

static void errno_is_preserved(void)
{
	capture_begin();
	errno = ENOTDIR;
	log_warn("x");
	CHECK_INT(errno, ENOTDIR);
	close(STDERR_FILENO); /* the write fails with EBADF */
	errno = ENOTDIR;
	log_warn("x");
	CHECK_INT(errno, ENOTDIR);
	capture_end();
}

static void *log_many(void *arg)
{
	for (int i = 0; i < 100; i++)
		log_warn("thread %s line %d end", (const char *)arg, i);
	return NULL;
}

static void lines_of_threads_do_not_mix(void)
{
	struct thr threads[4];
	size_t n_lines = 0;
	const char *at;
	char *save = NULL, *line;

	capture_begin();
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		CHECK_INT(thr_start(&threads[i], "log", log_many, (void *)(uintptr_t) "abc", NULL),
			  0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		thr_join(&threads[i]);
	at = capture_end();
	for (line = strtok_r((char *)(uintptr_t)at, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		int number = -1, end = 0;

		CHECK_INT(sscanf(line, "clairfs: warning: thread abc line %d end%n", &number, &end),
			  1);
		CHECK_U64((size_t)end, strlen(line));
		n_lines++;
	}
	CHECK_U64(n_lines, 400);
}

static void limited_logs_once_per_second_and_site(void)
{
	capture_begin();
	for (int i = 0; i < 50; i++) {
		log_limited(LOG_LEVEL_WARN, "first %d", i);
		log_limited(LOG_LEVEL_WARN, "second %d", i);
	}
	CHECK_STR(capture_end(), "clairfs: warning: first 0\nclairfs: warning: second 0\n");
}

static void may_again_after_a_second(void)
{
	_Atomic uint64_t state = 0;

	CHECK(log_may(&state));
	CHECK(!log_may(&state));
	atomic_fetch_sub(&state, 1000000000);
	CHECK(log_may(&state));
	CHECK(!log_may(&state));
}

static const struct check_test tests[] = {
	{ "lines_name_program_and_level", lines_name_program_and_level },
	{ "level_hides_what_is_below", level_hides_what_is_below },
	{ "a_name_cannot_forge_a_line", a_name_cannot_forge_a_line },
	{ "a_long_line_is_cut_but_ended", a_long_line_is_cut_but_ended },
	{ "errno_is_preserved", errno_is_preserved },
	{ "lines_of_threads_do_not_mix", lines_of_threads_do_not_mix },
	{ "limited_logs_once_per_second_and_site", limited_logs_once_per_second_and_site },
	{ "may_again_after_a_second", may_again_after_a_second },
	{ "warnings_are_shown_beside_syslog", warnings_are_shown_beside_syslog },
};

CHECK_MAIN(tests)
