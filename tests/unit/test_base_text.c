/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict parsing: what is accepted, what is refused and with which code, and that a refused text
 * leaves the result alone. Safe printing: what is escaped, and every place where a text can be cut.
 */
#include "clairfs/base/text.h"

#include <errno.h>
#include <string.h>

#include "check.h"

struct number_case {
	const char *text;
	int rc;
	uint64_t value;
};

static void check_numbers(int (*parse)(const char *, uint64_t *), const struct number_case *cases,
			  size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t v = 77, want = cases[i].rc ? 77 : cases[i].value;
		int rc = parse(cases[i].text, &v);

		if (rc != cases[i].rc || v != want)
			printf("# for \"%s\"\n", cases[i].text);
		CHECK_INT(rc, cases[i].rc);
		CHECK_U64(v, want);
	}
}

static void u64_is_strict(void)
{
	static const struct number_case cases[] = {
		{ "0", 0, 0 },
		{ "7", 0, 7 },
		{ "007", 0, 7 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "99999999999999999999999", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "+1", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 },
		{ " 1", -EINVAL, 0 },
		{ "1 ", -EINVAL, 0 },
		{ "0x10", -EINVAL, 0 },
		{ "1K", -EINVAL, 0 },
		{ "1.5", -EINVAL, 0 },
	};

	check_numbers(text_to_u64, cases, ARRAY_LEN(cases));
}

static void real_is_finite_and_plain(void)
{
	static const struct {
		const char *text;
		int rc;
		double value;
	} cases[] = {
		{ "0", 0, 0 },         { "0.25", 0, 0.25 },   { ".5", 0, 0.5 },
		{ "12.", 0, 12 },      { "1e-3", 0, 1e-3 },   { "2.5E+2", 0, 250 },
		{ "", -EINVAL, 0 },    { ".", -EINVAL, 0 },   { "nan", -EINVAL, 0 },
		{ "inf", -EINVAL, 0 }, { "-1", -EINVAL, 0 },  { "+1", -EINVAL, 0 },
		{ " 1", -EINVAL, 0 },  { "1 ", -EINVAL, 0 },  { "0x1p3", -EINVAL, 0 },
		{ "1e", -EINVAL, 0 },  { "1,5", -EINVAL, 0 }, { "1e999", -ERANGE, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		double v = 77;

		printf("# \"%s\"\n", cases[i].text);
		CHECK_INT(text_to_real(cases[i].text, &v), cases[i].rc);
		CHECK(v == (cases[i].rc ? 77 : cases[i].value));
	}
}

static void seed_has_the_range_of_torch(void)
{
	static const struct number_case cases[] = {
		{ "0", 0, 0 },
		{ "-0", 0, 0 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "-1", 0, UINT64_MAX },
		{ "-9223372036854775808", 0, UINT64_C(1) << 63 },
		{ "-9223372036854775809", -ERANGE, 0 },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "-", -EINVAL, 0 },
		{ "--1", -EINVAL, 0 },
		{ "- 1", -EINVAL, 0 },
		{ "", -EINVAL, 0 },
	};

	check_numbers(text_to_seed, cases, ARRAY_LEN(cases));
}

static void bytes_take_one_unit(void)
{
	static const struct number_case cases[] = {
		{ "0", 0, 0 },
		{ "512", 0, 512 },
		{ "1K", 0, 1024 },
		{ "3M", 0, 3 << 20 },
		{ "16G", 0, UINT64_C(16) << 30 },
		{ "2T", 0, UINT64_C(2) << 40 },
		{ "16777215T", 0, UINT64_C(16777215) << 40 },
		{ "16777216T", -ERANGE, 0 },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "16g", -EINVAL, 0 },
		{ "16GB", -EINVAL, 0 },
		{ "16 G", -EINVAL, 0 },
		{ "G", -EINVAL, 0 },
		{ "1.5G", -EINVAL, 0 },
		{ "-1G", -EINVAL, 0 },
		{ "", -EINVAL, 0 },
	};

	check_numbers(text_to_bytes, cases, ARRAY_LEN(cases));
}

static void bool_takes_four_pairs(void)
{
	static const char *const yes[] = { "1", "yes", "true", "on" };
	static const char *const no[] = { "0", "no", "false", "off" };
	static const char *const bad[] = { "", "2", "y", "On", "true ", "enable" };
	bool value;

	for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
		value = false;
		CHECK_INT(text_to_bool(yes[i], &value), 0);
		CHECK(value);
		CHECK_INT(text_to_bool(no[i], &value), 0);
		CHECK(!value);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		value = true;
		CHECK_INT(text_to_bool(bad[i], &value), -EINVAL);
		CHECK(value);
	}
}

static void nearest_finds_typing_errors(void)
{
	static const char *const names[] = { "ram_size", "source", "io_engine", "mode", NULL };
	char longest[200];

	CHECK_STR(text_nearest("ram_sise", names), "ram_size");
	CHECK_STR(text_nearest("ramsize", names), "ram_size");
	CHECK_STR(text_nearest("souerce", names), "source");
	CHECK_STR(text_nearest("moed", names), NULL); /* two errors in four letters */
	CHECK_STR(text_nearest("mod", names), "mode");
	CHECK_STR(text_nearest("source", names), "source");
	CHECK_STR(text_nearest("zebra", names), NULL);
	CHECK_STR(text_nearest("", names), NULL);
	CHECK_STR(text_nearest("x", (const char *const[]){ "y", NULL }), NULL);
	memset(longest, 's', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	CHECK_STR(text_nearest(longest, names), NULL);
	CHECK_STR(text_nearest("x", (const char *const[]){ longest, "xy", NULL }), "xy");
	CHECK_STR(text_nearest("x", (const char *const[]){ NULL }), NULL);
}

static void check_escape(const char *name, size_t len, const char *want)
{
	char out[256];

	CHECK(text_escape(name, len, out, sizeof(out)) == out);
	CHECK_STR(out, want);
}

#define CHECK_ESCAPE(name, want) check_escape(name, sizeof(name) - 1, want)

static void escape_makes_names_printable(void)
{
	CHECK_ESCAPE("plain name.jpg", "plain name.jpg");
	CHECK_ESCAPE("a\nb\tc\\d", "a\\nb\\tc\\\\d");
	CHECK_ESCAPE("nul\0bell\a\x1b[0m\x7f", "nul\\x00bell\\x07\\x1b[0m\\x7f");
	CHECK_ESCAPE("", "");
	CHECK_ESCAPE("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
		     "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
}

static void escape_refuses_bad_utf8(void)
{
	CHECK_ESCAPE("\x80", "\\x80");                            /* continuation alone */
	CHECK_ESCAPE("\xc3", "\\xc3");                            /* cut at the end */
	CHECK_ESCAPE("\xc3(", "\\xc3(");                          /* wrong continuation */
	CHECK_ESCAPE("\xc0\xaf", "\\xc0\\xaf");                   /* overlong '/' */
	CHECK_ESCAPE("\xe0\x9f\xbf", "\\xe0\\x9f\\xbf");          /* overlong, three bytes */
	CHECK_ESCAPE("\xf0\x8f\xbf\xbf", "\\xf0\\x8f\\xbf\\xbf"); /* overlong, four bytes */
	CHECK_ESCAPE("\xed\xa0\x80", "\\xed\\xa0\\x80");          /* surrogate */
	CHECK_ESCAPE("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* above U+10FFFF */
	CHECK_ESCAPE("\xc2\x85", "\\xc2\\x85");                   /* a control of U+0080..9F */
	CHECK_ESCAPE("\xc2\xa0", "\xc2\xa0");                     /* first behind them */
	CHECK_ESCAPE("\xff\xfe", "\\xff\\xfe");
}

static void escape_cuts_at_whole_characters(void)
{
	char out[16];

	CHECK_STR(text_escape("1234567", 7, out, 8), "1234567"); /* exactly full: no dots */
	CHECK_STR(text_escape("12345678", 8, out, 8), "1234...");
	CHECK_STR(text_escape("123\nxyz", 7, out, 8), "123..."); /* half of "\n" would be worse */
	CHECK_STR(text_escape("ab\xc3\xbc\xc3\xbc\xc3\xbc", 8, out, 8), "ab\xc3\xbc...");
	CHECK_STR(text_escape("12345", 5, out, 4), "...");
	CHECK_STR(text_escape("12345", 5, out, 3), "..");
	CHECK_STR(text_escape("12345", 5, out, 1), "");
	out[0] = 'k';
	text_escape("12345", 5, out, 0);
	CHECK_INT(out[0], 'k');
}

static void escape_never_writes_too_far(void)
{
	uint64_t rng = check_seed();

	for (int round = 0; round < 20000; round++) {
		char name[24], out[40];
		size_t len = check_rand_below(&rng, sizeof(name)),
		       size = check_rand_below(&rng, 32);

		for (size_t i = 0; i < len; i++)
			name[i] = (char)check_rand_u64(&rng);
		memset(out, '#', sizeof(out));
		text_escape(name, len, out, size);
		for (size_t i = size; i < sizeof(out); i++)
			CHECK_INT(out[i], '#');
		CHECK(size == 0 || memchr(out, '\0', size));
		for (size_t i = 0; size > 0 && out[i]; i++)
			CHECK((unsigned char)out[i] >= 0x20 && out[i] != 0x7f);
	}
}

static void bytes_are_readable(void)
{
	static const struct {
		uint64_t bytes;
		const char *want;
	} cases[] = {
		{ 0, "0 B" },
		{ 1023, "1023 B" },
		{ 1024, "1 KiB" },
		{ 1536, "1.5 KiB" },
		{ 16777216, "16 MiB" },
		{ 16777217, "16.0 MiB" }, /* not exact, and says so */
		{ (UINT64_C(1) << 30) - 1, "1.0 GiB" },
		{ UINT64_C(5) << 40, "5 TiB" },
		{ UINT64_C(1) << 63, "8 EiB" },
		{ UINT64_MAX, "16.0 EiB" },
	};
	char out[32];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		CHECK_STR(text_from_bytes(cases[i].bytes, out, sizeof(out)), cases[i].want);
}

static const struct check_test tests[] = {
	{ "u64_is_strict", u64_is_strict },
	{ "real_is_finite_and_plain", real_is_finite_and_plain },
	{ "seed_has_the_range_of_torch", seed_has_the_range_of_torch },
	{ "bytes_take_one_unit", bytes_take_one_unit },
	{ "bool_takes_four_pairs", bool_takes_four_pairs },
	{ "nearest_finds_typing_errors", nearest_finds_typing_errors },
	{ "escape_makes_names_printable", escape_makes_names_printable },
	{ "escape_refuses_bad_utf8", escape_refuses_bad_utf8 },
	{ "escape_cuts_at_whole_characters", escape_cuts_at_whole_characters },
	{ "escape_never_writes_too_far", escape_never_writes_too_far },
	{ "bytes_are_readable", bytes_are_readable },
};

CHECK_MAIN(tests)
