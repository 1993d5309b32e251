/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the kernel's texts, and lines of mountinfo: what is no such thing is refused, and nothing is
 * read behind the end. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/mem.h"
#include "clairfs/base/span.h"

/* On the heap without a zero behind, so that a sanitizer sees a byte too many. */
static struct span copy_of(const char *text, char **ret)
{
	size_t len = strlen(text);

	*ret = malloc(len ? len : 1);
	memcpy(*ret, text, len);
	return (struct span){ *ret, len };
}

static void parts_are_what_lies_between(void)
{
	struct span rest = { "a,,bc,", 6 }, one;

	CHECK(span_take(&rest, ',', &one) && span_is(one, "a"));
	CHECK(span_take(&rest, ',', &one) && span_is(one, ""));
	CHECK(span_take(&rest, ',', &one) && span_is(one, "bc") && !span_is(one, "b"));
	CHECK(!span_take(&rest, ',', &one));
	CHECK(span_has((struct span){ "rw,memory", 9 }, "memory"));
	CHECK(!span_has((struct span){ "rw,memory", 9 }, "mem"));
	CHECK(!span_has((struct span){ "rw,memory", 8 }, "memory"));
}

static void numbers_are_whole(void)
{
	static const char *const bad[] = { "", "-1", "1x", "x", "18446744073709551616",
					   "00000000000000000000000000000000001" };
	uint64_t n = 0;

	CHECK(span_number((struct span){ "18446744073709551615 ", 20 }, &n) && n == UINT64_MAX);
	CHECK(span_number((struct span){ "12", 1 }, &n) && n == 1);
	CHECK(!span_number((struct span){ "1\0002", 3 }, &n));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK(!span_number((struct span){ bad[i], strlen(bad[i]) }, &n));
}

static void paths_are_unescaped_and_fit(void)
{
	char out[PATH_MAX], *text, *far = calloc(1, PATH_MAX + 1);
	struct span s = copy_of("/a\\040b\\134\\400\\0", &text);

	CHECK(mountinfo_path(s, out));
	CHECK_STR(out, "/a b\\\\400\\0"); /* \400 is no byte, and the last one is cut */
	CHECK(span_path(s, out));
	CHECK_STR(out, "/a\\040b\\134\\400\\0");
	free(text);
	CHECK(!mountinfo_path((struct span){ "/\\000", 5 }, out)); /* a zero ends no path */
	CHECK(!span_path((struct span){ "/\0x", 3 }, out));
	memset(far, 'x', PATH_MAX);
	CHECK(span_path((struct span){ far, PATH_MAX - 1 }, out));
	CHECK(!span_path((struct span){ far, PATH_MAX }, out));
	CHECK(mountinfo_path((struct span){ far, PATH_MAX - 1 }, out));
	CHECK(!mountinfo_path((struct span){ far, PATH_MAX }, out));
	free(far);
}

static void lines_of_mountinfo(void)
{
	static const char line[] = "36 35 98:7 /r /at rw,noatime master:1 shared:2 - fuse.x SRC ro,a=1";
	struct mountinfo m;
	char *text;
	struct span s = copy_of(line, &text);

	CHECK(mountinfo_parse(s, &m));
	CHECK(span_is(m.id, "36") && span_is(m.device, "98:7") && span_is(m.root, "/r"));
	CHECK(span_is(m.at, "/at") && span_is(m.type, "fuse.x") && span_is(m.options, "ro,a=1"));
	/* Cut anywhere it is a line without options, or none. */
	for (size_t len = 0; len < s.len; len++)
		CHECK(mountinfo_parse((struct span){ s.at, len }, &m) ==
		      (len > strlen(line) - strlen("SRC ro,a=1")));
	free(text);
	CHECK(mountinfo_parse((struct span){ "1 2 3:4 / / rw - t s", 20 }, &m) && !m.options.len);
	CHECK(!mountinfo_parse((struct span){ "1 2 3:4 / / rw t s o", 20 }, &m));
}

static const struct check_test tests[] = {
	{ "parts_are_what_lies_between", parts_are_what_lies_between },
	{ "numbers_are_whole", numbers_are_whole },
	{ "paths_are_unescaped_and_fit", paths_are_unescaped_and_fit },
	{ "lines_of_mountinfo", lines_of_mountinfo },
};

CHECK_MAIN(tests)
