/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders told through the mount: by ioctl and by lookup, exactly once each, with their answer, and
 * without anybody else waiting for one that takes its time.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "clairfs/hint.h"
#include "fake_cache.h"
#include "fs_kit.h"
#include "src/fs/hint_check.h"

struct teller {
	struct mutex mu;
	struct cond cv;
	unsigned n_told; /* mu, like all below */
	uint32_t uid;
	char last[8192], last_job[8192];
	bool is_held;
	const _Atomic bool *is_gone;
};

static struct teller teller;

static int tell(void *ctx, const struct fs_told *told, struct buf_writer *answer)
{
	struct teller *t = ctx;
	const char *spec = told->text;

	mutex_lock(&t->mu);
	t->n_told++;
	t->uid = told->uid;
	t->is_gone = told->is_gone;
	snprintf(t->last, sizeof(t->last), "%s", spec);
	snprintf(t->last_job, sizeof(t->last_job), "%s", told->job);
	cond_broadcast(&t->cv);
	while (t->is_held)
		cond_wait(&t->cv, &t->mu);
	mutex_unlock(&t->mu);
	if (strncmp(spec, "bad", 3) == 0) {
		buf_printf(answer, "%s is no order", spec);
		return -EINVAL;
	}
	buf_printf(answer, "in force: %s", spec);
	return 0;
}

static int render_order(void *ctx, struct buf_writer *out)
{
	buf_printf(out, "the order\n");
	return 0;
}

static const struct fs_vfile vfiles[] = { { "control", render_order, NULL }, { NULL, NULL, NULL } };
static const struct kit_options options = {
	.vfiles = vfiles, .announce = tell, .announce_ctx = &teller
};

static void start(struct kit *k, const struct kit_options *o)
{
	memset(&teller, 0, sizeof(teller));
	mutex_init(&teller.mu);
	cond_init(&teller.cv);
	kit_init(k);
	kit_add_samples(k, 1, 4, 5000);
	kit_mount(k, o);
}

static void finish(struct kit *k)
{
	kit_fini(k);
	cond_fini(&teller.cv);
	mutex_fini(&teller.mu);
}

static unsigned told(void)
{
	unsigned n;

	mutex_lock(&teller.mu);
	n = teller.n_told;
	mutex_unlock(&teller.mu);
	return n;
}

/* What was told last, for which job, and that it was us. */
static void last_is(const char *spec, const char *job)
{
	mutex_lock(&teller.mu);
	CHECK_STR(teller.last, spec);
	CHECK_STR(teller.last_job, job);
	CHECK_U64(teller.uid, getuid());
	mutex_unlock(&teller.mu);
}

static void hold(bool is_held)
{
	mutex_lock(&teller.mu);
	teller.is_held = is_held;
	cond_broadcast(&teller.cv);
	mutex_unlock(&teller.mu);
}

static void wait_told(unsigned n)
{
	mutex_lock(&teller.mu);
	while (teller.n_told < n)
		cond_wait(&teller.cv, &teller.mu);
	mutex_unlock(&teller.mu);
}

static struct {
	_Atomic uint32_t uid, calls, steps, bad;
} heard;

static int hear(void *ctx, uint32_t uid, const struct clairfs_steps *steps)
{
	(void)ctx;
	heard.uid = uid;
	heard.calls++;
	for (uint32_t i = 0; i < steps->count; i++)
		if (steps->step[i].step != heard.steps++ || steps->step[i].rank != 3)
			heard.bad++;
	return steps->world == 4 && strcmp(steps->job, "job") == 0 ? 0 : -EINVAL;
}

/* Runs a child and compares what it prints. */
static void says(struct kit *k, const char *operation, const char *a, const char *b,
		 const char *want)
{
	struct kit_child child;
	char line[8192];

	kit_child_start(&child, operation, a, b);
	kit_child_line(k, &child, line, sizeof(line));
	CHECK_INT(kit_child_wait(k, &child), 0);
	CHECK_STR(line, want);
}

static void test_ioctl_announces_once_with_status_and_line(void)
{
	char longest[CLAIRFS_HINT_TEXT];
	static struct kit k;

	start(&k, &options);
	says(&k, "announce", k.mountpoint, "good:a=1", "0 in force: good:a=1");
	CHECK_U64(told(), 1);
	last_is("good:a=1", "train");
	says(&k, "announce", k.mountpoint, "bad:a=1", "-22 bad:a=1 is no order");
	says(&k, "announce", k.mountpoint, "", "0 in force: ");
	CHECK_U64(told(), 3);
	memset(longest, 'p', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	CHECK_INT(kit_child(&k, "announce", k.mountpoint, longest), 0);
	last_is(longest, "train");
	atomic_store(&k.cache->may_refuse_open, true);
	CHECK_INT(kit_child(&k, "print", k.mountpoint, NULL), EISDIR);
	says(&k, "announce", k.mountpoint, "good:b=2", "0 in force: good:b=2");
	CHECK_U64(told(), 5);
	finish(&k);
}

/* As clients of version 1 send them: there the text goes on where the name is since. */
static void test_texts_of_version_1_are_longer(void)
{
	struct { /* as it was */
		uint32_t version;
		int32_t status;
		char text[4088];
	} old = { .version = CLAIRFS_HINT_VERSION_NAMELESS };
	struct clairfs_hint hint;

	CHECK_U64(sizeof(old), sizeof(hint));
	for (size_t length = CLAIRFS_HINT_TEXT - 1; length < sizeof(old.text); length += 16) {
		memset(old.text, 0, sizeof(old.text));
		memset(old.text, 'a', length);
		CHECK_INT(hint_check(&old, sizeof(old), sizeof(old), &hint), 0);
		CHECK_STR(hint_text(&hint), old.text);
		CHECK_STR(hint_job(&hint), "");
	}
	memset(old.text, 'a', sizeof(old.text));
	CHECK_INT(hint_check(&old, sizeof(old), sizeof(old), &hint), -EPROTO);
}

static void test_other_versions_and_texts_without_end_are_refused(void)
{
	static struct kit k;

	start(&k, &options);
	CHECK_INT(kit_child(&k, "announce", k.mountpoint, "version=0"), EPROTO);
	CHECK_INT(kit_child(&k, "announce", k.mountpoint, "version=3"), EPROTO);
	CHECK_INT(kit_child(&k, "announce", k.mountpoint, "unterminated"), EPROTO);
	CHECK_INT(kit_child(&k, "announce", k.mountpoint, "unterminated-job"), EPROTO);
	CHECK_U64(told(), 0);
	CHECK_INT(kit_child(&k, "announce", k.mountpoint, "version=1"), 0); /* that says no name */
	last_is("version=1", "");
	finish(&k);
}

static void test_lookup_announces_once_and_gives_the_answer(void)
{
	AUTO_FREE char *good = NULL;
	AUTO_FREE char *bad = NULL;
	AUTO_FREE char *dir = NULL;
	static struct kit k;

	start(&k, &options);
	good = kit_path(&k, ".clairfs/announce/good:a=1");
	bad = kit_path(&k, ".clairfs/announce/bad");
	dir = kit_path(&k, ".clairfs/announce");
	/* The second time the kernel knows the name already and asks twice. */
	for (unsigned i = 1; i <= 3; i++) {
		says(&k, "print", good, NULL, "in force: good:a=1");
		CHECK_U64(told(), i);
	}
	says(&k, "print", bad, NULL, "error: bad is no order");
	says(&k, "list", dir, NULL, ". .. ");
	CHECK_U64(told(), 4);
	finish(&k);
}

static void test_nobody_waits_for_an_order_that_takes_its_time(void)
{
	AUTO_FREE char *path = NULL;
	AUTO_FREE char *order = NULL;
	AUTO_FREE char *lookup = NULL;
	struct kit_child children[3];
	char line[256];
	static struct kit k;

	start(&k, &options);
	hold(true);
	path = kit_path(&k, "d0/s1");
	order = kit_path(&k, ".clairfs/control");
	lookup = kit_path(&k, ".clairfs/announce/third");
	kit_child_start(&children[0], "announce", k.mountpoint, "first");
	wait_told(1);
	kit_child_start(&children[1], "announce", k.mountpoint, "second");
	kit_child_start(&children[2], "print", lookup, NULL);
	CHECK_INT(kit_child(&k, "print", path, NULL), 0);
	says(&k, "print", order, NULL, "the order");
	CHECK_U64(told(), 1); /* one at a time */
	hold(false);
	for (unsigned i = 0; i < 3; i++) {
		kit_child_line(&k, &children[i], line, sizeof(line));
		CHECK_INT(kit_child_wait(&k, &children[i]), 0);
		CHECK_CONTAINS(line, "in force");
	}
	CHECK_U64(told(), 3);
	finish(&k);
}

/* Each with a name of its own, as of a job that tells one for every epoch. */
static void test_thousands_of_names_leave_room_for_the_next(void)
{
	static struct kit k;

	start(&k, &options);
	for (unsigned i = 0; i < 600; i++) {
		AUTO_FREE char *name = NULL;
		AUTO_FREE char *path = NULL;

		CHECK(asprintf(&name, ".clairfs/announce/good:epoch=%u", i) > 0);
		path = kit_path(&k, name);
		CHECK_INT(kit_child(&k, "print", path, NULL), 0);
	}
	CHECK_U64(told(), 600);
	says(&k, "announce", k.mountpoint, "good:a=1", "0 in force: good:a=1");
	finish(&k);
}

static void test_interrupted_ones_are_answered_at_once(void)
{
	struct kit_child child;
	char line[256];
	static struct kit k;

	start(&k, &options);
	hold(true);
	kit_child_start(&child, "announce-interrupted", k.mountpoint, "first");
	wait_told(1); /* it runs, and the others wait behind it */
	CHECK_INT(kill(child.pid, SIGALRM), 0);
	CHECK_INT(kit_child_wait(&k, &child), EINTR);
	CHECK(teller.is_gone && atomic_load(teller.is_gone));
	CHECK_INT(kit_child(&k, "announce-interrupted", k.mountpoint, "timed"), EINTR);
	kit_child_start(&child, "announce", k.mountpoint, "third");
	hold(false);
	kit_child_line(&k, &child, line, sizeof(line));
	CHECK_INT(kit_child_wait(&k, &child), 0);
	CHECK_STR(line, "0 in force: third");
	CHECK_U64(told(), 2); /* the second one never began */
	finish(&k);
}

/* One runs, 64 wait, and the others are told so: which they are is chance. */
static void test_those_who_wait_are_bounded(void)
{
	struct kit_child children[80];
	char line[256];
	unsigned refused = 0;
	static struct kit k;

	start(&k, &options);
	hold(true);
	kit_child_start(&children[0], "announce", k.mountpoint, "first");
	wait_told(1);
	for (unsigned i = 1; i < ARRAY_LEN(children); i++)
		kit_child_start(&children[i], "announce", k.mountpoint, "more");
	/* All have asked when that many have an answer. */
	while (refused < ARRAY_LEN(children) - 1 - 64) {
		struct pollfd fds[ARRAY_LEN(children)];

		refused = 0;
		for (unsigned i = 0; i < ARRAY_LEN(children); i++)
			fds[i] = (struct pollfd){ .fd = children[i].out, .events = POLLIN };
		CHECK(poll(fds, ARRAY_LEN(children), 60000) > 0);
		for (unsigned i = 0; i < ARRAY_LEN(children); i++)
			refused += fds[i].revents != 0;
	}
	hold(false);
	refused = 0;
	for (unsigned i = 0; i < ARRAY_LEN(children); i++) {
		kit_child_line(&k, &children[i], line, sizeof(line));
		CHECK_INT(kit_child_wait(&k, &children[i]), 0);
		refused += strncmp(line, "-11 64 orders", 13) == 0;
	}
	CHECK_U64(refused, ARRAY_LEN(children) - 1 - 64);
	CHECK_U64(told(), 65);
	finish(&k);
}

static void test_unmounting_answers_those_who_wait(void)
{
	struct kit_child children[4];
	static struct kit k;

	start(&k, &options);
	for (unsigned i = 0; i < 4; i++)
		kit_child_start(&children[i], "announce", k.mountpoint, "good");
	wait_told(1);
	finish(&k);
	for (unsigned i = 0; i < 4; i++) {
		int rc = kit_child_wait(&k, &children[i]);

		CHECK(rc == 0 || rc == ENOTCONN || rc == ECONNABORTED || rc == ENOENT ||
		      rc == ENOTTY);
	}
}

static void test_mount_that_takes_no_orders_says_so(void)
{
	static const struct kit_options deaf = { .vfiles = vfiles };
	AUTO_FREE char *lookup = NULL;
	static struct kit k;

	start(&k, &deaf);
	lookup = kit_path(&k, ".clairfs/announce/x");
	CHECK_INT(kit_child(&k, "announce", k.mountpoint, "good"), ENOTTY);
	CHECK_INT(kit_child(&k, "print", lookup, NULL), ENOENT);
	finish(&k);
}

static void test_steps_of_a_loop_come_whole_and_in_order(void)
{
	static const struct kit_options listening = { .steps = hear };
	static struct kit k;

	start(&k, &listening);
	CHECK_INT(kit_child(&k, "steps", k.mountpoint, NULL), 0);
	CHECK_U64(heard.steps, CLAIRFS_STEPS + 1);
	CHECK(heard.calls >= 2 && heard.bad == 0);
	CHECK_U64(heard.uid, getuid());
	heard.calls = 0;
	CHECK_INT(kit_child(&k, "steps", k.mountpoint, "magic"), EPROTO);
	CHECK_INT(kit_child(&k, "steps", k.mountpoint, "version"), EPROTO);
	CHECK_INT(kit_child(&k, "steps", k.mountpoint, "count"), EPROTO);
	CHECK_U64(heard.calls, 3); /* the call before the one that was changed */
	finish(&k);
}

static void test_mount_that_takes_no_steps_says_so(void)
{
	static struct kit k;

	start(&k, &options);
	CHECK_INT(kit_child(&k, "steps", k.mountpoint, NULL), ENOTTY);
	finish(&k);
}

static const struct check_test tests[] = {
	{ "ioctl_announces_once_with_status_and_line",
	  test_ioctl_announces_once_with_status_and_line },
	{ "texts_of_version_1_are_longer", test_texts_of_version_1_are_longer },
	{ "other_versions_and_texts_without_end_are_refused",
	  test_other_versions_and_texts_without_end_are_refused },
	{ "lookup_announces_once_and_gives_the_answer",
	  test_lookup_announces_once_and_gives_the_answer },
	{ "nobody_waits_for_an_order_that_takes_its_time",
	  test_nobody_waits_for_an_order_that_takes_its_time },
	{ "thousands_of_names_leave_room_for_the_next",
	  test_thousands_of_names_leave_room_for_the_next },
	{ "interrupted_ones_are_answered_at_once", test_interrupted_ones_are_answered_at_once },
	{ "those_who_wait_are_bounded", test_those_who_wait_are_bounded },
	{ "unmounting_answers_those_who_wait", test_unmounting_answers_those_who_wait },
	{ "mount_that_takes_no_orders_says_so", test_mount_that_takes_no_orders_says_so },
	{ "steps_of_a_loop_come_whole_and_in_order", test_steps_of_a_loop_come_whole_and_in_order },
	{ "mount_that_takes_no_steps_says_so", test_mount_that_takes_no_steps_says_so },
};

KIT_MAIN(tests)
