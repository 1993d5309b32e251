/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of set-up errors: code and text, context in front, what happens to texts that are too
 * long, and a caller that does not care (NULL).
 */
#include "clairfs/base/err.h"

#include <errno.h>
#include <string.h>

#include "check.h"

static void set_returns_code_and_formats(void)
{
	struct err err = { 0 };

	CHECK_INT(err_set(&err, -EINVAL, "dataset %s: %d", "x", 7), -EINVAL);
	CHECK_INT(err.code, -EINVAL);
	CHECK_STR(err.msg, "dataset x: 7");
}

static void set_errno_appends_the_reason(void)
{
	struct err err = { 0 };

	CHECK_INT(err_set_errno(&err, -ENOENT, "open %s", "f"), -ENOENT);
	CHECK_INT(err.code, -ENOENT);
	CHECK_STR(err.msg, "open f: No such file or directory");
}

static void prefix_goes_in_front_and_keeps_code(void)
{
	struct err err = { 0 };

	CHECK_INT(err_set(&err, -EIO, "short read"), -EIO);
	err_prefix(&err, "index %d", 3);
	err_prefix(&err, "mount");
	CHECK_STR(err.msg, "mount: index 3: short read");
	CHECK_INT(err.code, -EIO);
}

static void null_is_allowed(void)
{
	CHECK_INT(err_set(NULL, -EINVAL, "x"), -EINVAL);
	CHECK_INT(err_set_errno(NULL, -EIO, "x"), -EIO);
	err_prefix(NULL, "x");
}

static void old_message_may_be_an_argument(void)
{
	struct err err = { 0 };

	CHECK_INT(err_set(&err, -EIO, "inner"), -EIO);
	CHECK_INT(err_set(&err, -EINVAL, "outer (%s)", err.msg), -EINVAL);
	CHECK_STR(err.msg, "outer (inner)");
	err_prefix(&err, "again %s", err.msg);
	CHECK_STR(err.msg, "again outer (inner): outer (inner)");
}

static void long_texts_are_cut_at_the_end(void)
{
	struct {
		struct err err;
		char guard[8];
	} s = { .guard = "guarded" };
	char text[3000];

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	CHECK_INT(err_set(&s.err, -EIO, "%s", text), -EIO);
	CHECK_U64(strlen(s.err.msg), sizeof(s.err.msg) - 1);
	err_prefix(&s.err, "head");
	CHECK_U64(strlen(s.err.msg), sizeof(s.err.msg) - 1);
	CHECK_BYTES(s.err.msg, "head: aaaa", 10);
	CHECK_INT(err_set_errno(&s.err, -EIO, "%s", text), -EIO);
	CHECK_U64(strlen(s.err.msg), sizeof(s.err.msg) - 1);
	CHECK_INT(err_set(&s.err, -EIO, "x"), -EIO);
	err_prefix(&s.err, "%s", text);
	CHECK_U64(strlen(s.err.msg), sizeof(s.err.msg) - 1);
	CHECK_STR(s.guard, "guarded");
}

static const struct check_test tests[] = {
	{ "set_returns_code_and_formats", set_returns_code_and_formats },
	{ "set_errno_appends_the_reason", set_errno_appends_the_reason },
	{ "prefix_goes_in_front_and_keeps_code", prefix_goes_in_front_and_keeps_code },
	{ "null_is_allowed", null_is_allowed },
	{ "old_message_may_be_an_argument", old_message_may_be_an_argument },
	{ "long_texts_are_cut_at_the_end", long_texts_are_cut_at_the_end },
};

CHECK_MAIN(tests)
