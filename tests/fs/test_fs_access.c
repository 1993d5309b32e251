/* SPDX-License-Identifier: Apache-2.0 */
/* Capabilities as /proc/PID/status tells them, and texts that only look like it. */
#include <string.h>

#include "check.h"
#include "src/fs/access_priv.h"

static void capabilities_are_read_from_their_own_line_only(void)
{
	static const struct {
		const char *text;
		bool may;
	} rows[] = {
		{ "Name:\tcat\nCapEff:\t000001ffffffffff\n", true },
		{ "CapEff:\t0000000000000002\n", true },
		{ "CapEff:\t0000000000000004\n", true },
		{ "CapEff:\t0000000000000000\n", false },
		{ "CapEff:\tfffffffffffffff9\n", false },
		{ "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n", false },
		{ "Name:\tCapEff:\t2\nCapEff:\t0\n", false },
		{ "CapEff:\txyz\n", false },
		{ "CapEff:\n", false },
		{ "CapPrm:\t000001ffffffffff\n", false },
		{ "\n", false },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		AUTO_FILE FILE *f = fmemopen((void *)(uintptr_t)rows[i].text, strlen(rows[i].text),
					     "r");

		printf("# row %zu\n", i);
		CHECK(f);
		CHECK_INT(fs_access_text_may_read(f), rows[i].may);
	}
}

/* The list of groups is such a line. */
static void a_part_of_a_long_line_is_no_line(void)
{
	char text[2048];

	for (size_t pad = 200; pad < 600; pad++) {
		AUTO_FILE FILE *f = NULL;

		memset(text, ' ', sizeof(text));
		memcpy(text, "Groups:", 7);
		strcpy(text + pad, "CapEff:\t2\nCapEff:\t0\n");
		f = fmemopen(text, strlen(text), "r");
		CHECK(f && !fs_access_text_may_read(f));
	}
}

static const struct check_test tests[] = {
	{ "capabilities_are_read_from_their_own_line_only",
	  capabilities_are_read_from_their_own_line_only },
	{ "a_part_of_a_long_line_is_no_line", a_part_of_a_long_line_is_no_line },
};

CHECK_MAIN(tests)
