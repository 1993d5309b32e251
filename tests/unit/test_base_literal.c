/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a Python literal: what is taken, what stays, and that nothing behind the end is read. */
#include "clairfs/base/literal.h"

#include <string.h>

#include "check.h"

static struct buf_reader reader(const char *text)
{
	static uint8_t bytes[64];
	struct buf_reader r;

	/* At the very end of the array: what reads on is seen by a sanitizer. */
	memcpy(bytes + sizeof(bytes) - strlen(text), text, strlen(text));
	buf_reader_init(&r, bytes + sizeof(bytes) - strlen(text), strlen(text));
	return r;
}

static void words_are_taken_behind_blanks(void)
{
	struct buf_reader r = reader("  {'a' : \n12, 7 }  ");
	uint64_t number;

	CHECK(literal_take(&r, "{"));
	CHECK(!literal_take(&r, "'ab'"));
	CHECK(literal_take(&r, "'a'"));
	CHECK(literal_take(&r, ":"));
	CHECK(literal_take_number(&r, &number));
	CHECK_U64(number, 12);
	CHECK(literal_take_comma(&r, '}'));
	CHECK(!literal_is_over(&r));
	CHECK(literal_take_number(&r, &number));
	CHECK(literal_take_comma(&r, '}')); /* none, but the end comes */
	CHECK_INT(literal_next(&r), '}');
	CHECK(literal_take(&r, "}"));
	CHECK(literal_is_over(&r));
	CHECK(!r.is_bad);
}

static void what_does_not_fit_is_none(void)
{
	struct buf_reader r = reader("18446744073709551615");
	uint64_t number;

	CHECK(literal_take_number(&r, &number));
	CHECK_U64(number, UINT64_MAX);
	r = reader("18446744073709551616");
	CHECK(!literal_take_number(&r, &number));
	r = reader("-1");
	CHECK(!literal_take_number(&r, &number));
	r = reader("");
	CHECK(!literal_take_number(&r, &number));
	CHECK(!literal_take(&r, "x"));
	CHECK(!literal_take_comma(&r, ')'));
	CHECK_INT(literal_next(&r), 0);
	CHECK(literal_is_over(&r));
	r = reader("Tru");
	CHECK(!literal_take(&r, "True"));
	CHECK_U64(r.at, 0);
}

static const struct check_test tests[] = {
	{ "words_are_taken_behind_blanks", words_are_taken_behind_blanks },
	{ "what_does_not_fit_is_none", what_does_not_fit_is_none },
};

CHECK_MAIN(tests)
