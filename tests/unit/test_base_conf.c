/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table: defaults, each type with its limits, lists as after -o, and the messages, which
 * a person must be able to act upon.
 */
#include "clairfs/base/conf.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "conf_sample.h"

static struct sample values;
static struct err err;

static void init(void)
{
	err = (struct err){ 0 };
	memset(&values, 0xa5, sizeof(values));
	CHECK_INT(conf_init(&sample_table, &values, &err), 0);
}

/* Sets an option and wants this error. */
static void check_refused(const char *name, const char *value, const char *message)
{
	CHECK_INT(conf_set(&sample_table, &values, name, value, &err), -EINVAL);
	CHECK_STR(err.msg, message);
}

static void init_fills_in_defaults(void)
{
	init();
	CHECK(values.is_quick);
	CHECK_U64(values.threads, 4);
	CHECK_U64(values.ram_size, UINT64_C(1) << 30);
	CHECK_INT(values.mode, 1);
	CHECK_STR(values.source, NULL);
	CHECK_STR(values.label, "none");
	conf_fini(&sample_table, &values);
	CHECK_STR(values.label, NULL);
}

static void bad_default_is_an_error(void)
{
	static const struct conf_option options[] = {
		{ "label", CONF_TEXT, offsetof(struct sample, label), "kept", 0, 0, NULL, "" },
		{ "threads", CONF_U64, offsetof(struct sample, threads), "many", 0, 0, NULL, "" },
		{ 0 },
	};
	static const struct conf_table table = { .options = options, .section = "mount" };

	CHECK_INT(conf_init(&table, &values, &err), -EINVAL);
	CHECK_STR(err.msg, "default: option threads: \"many\" is not a whole number");
	CHECK_STR(values.label, NULL); /* nothing to free */
}

static void set_takes_every_type(void)
{
	init();
	CHECK_INT(conf_set(&sample_table, &values, "quick", "off", &err), 0);
	CHECK_INT(conf_set(&sample_table, &values, "threads", "64", &err), 0);
	CHECK_INT(conf_set(&sample_table, &values, "ram_size", "4M", &err), 0);
	CHECK_INT(conf_set(&sample_table, &values, "mode", "careful", &err), 0);
	CHECK_INT(conf_set(&sample_table, &values, "source", "/data set/\xc3\xbc;x", &err), 0);
	CHECK(!values.is_quick);
	CHECK_U64(values.threads, 64);
	CHECK_U64(values.ram_size, 4 << 20);
	CHECK_INT(values.mode, 2);
	CHECK_STR(values.source, "/data set/\xc3\xbc;x");
	CHECK_INT(conf_set(&sample_table, &values, "source", "", &err), 0);
	CHECK_STR(values.source, NULL);
	conf_fini(&sample_table, &values);
}

static void unknown_name_suggests_the_nearest(void)
{
	init();
	check_refused("thread", "4", "unknown option \"thread\"; did you mean \"threads\"?");
	check_refused("xyzzy", "4", "unknown option \"xyzzy\"");
	conf_fini(&sample_table, &values);
}

static void bad_value_says_why_and_changes_nothing(void)
{
	init();
	check_refused("quick", "maybe", "option quick: \"maybe\" is neither on nor off");
	check_refused("threads", "4x", "option threads: \"4x\" is not a whole number");
	check_refused("threads", "0", "option threads: 0 is below the minimum 1");
	check_refused("threads", "65", "option threads: 65 is above the maximum 64");
	check_refused("threads", "99999999999999999999",
		      "option threads: \"99999999999999999999\" is too large");
	check_refused("ram_size", "1K", "option ram_size: 1K is below the minimum 4M");
	check_refused("ram_size", "big", "option ram_size: \"big\" is not a size like 512M or 16G");
	check_refused(
		"mode", "carefull",
		"option mode: \"carefull\" is none of: none, plain, careful; did you mean \"careful\"?");
	check_refused("mode", "x", "option mode: \"x\" is none of: none, plain, careful");
	check_refused(
		"label", "a\nb",
		"option label: \"a\\nb\" has control characters, a blank at an end, or ';' after a blank");
	CHECK(values.is_quick);
	CHECK_U64(values.threads, 4);
	CHECK_U64(values.ram_size, UINT64_C(1) << 30);
	CHECK_INT(values.mode, 1);
	CHECK_STR(values.label, "none");
	conf_fini(&sample_table, &values);
}

static void texts_a_file_cannot_carry_are_refused(void)
{
	static const char *const bad[] = { " a", "a ", "a ;b", ";a", "a\tb", "a\x7f", " " };

	init();
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK_INT(conf_set(&sample_table, &values, "label", bad[i], &err), -EINVAL);
	CHECK_INT(conf_set(&sample_table, &values, "label", "a;b #c = [d]", &err), 0);
	conf_fini(&sample_table, &values);
}

static void list_sets_many(void)
{
	init();
	CHECK_INT(conf_set_list(&sample_table, &values, "quick=off,threads=8,mode=none,source=/a=b",
				&err),
		  0);
	CHECK(!values.is_quick);
	CHECK_U64(values.threads, 8);
	CHECK_INT(values.mode, 0);
	CHECK_STR(values.source, "/a=b");
	CHECK_INT(conf_set_list(&sample_table, &values, "quick,source=", &err), 0);
	CHECK(values.is_quick);
	CHECK_STR(values.source, NULL);
	CHECK_INT(conf_set_list(&sample_table, &values, ",,threads=9,", &err), 0);
	CHECK_U64(values.threads, 9);
	CHECK_INT(conf_set_list(&sample_table, &values, "", &err), 0);
	conf_fini(&sample_table, &values);
}

static void list_has_escaped_commas(void)
{
	init();
	CHECK_INT(conf_set_list(&sample_table, &values, "source=/a\\,b\\,,label=c\\d\\", &err), 0);
	CHECK_STR(values.source, "/a,b,");
	CHECK_STR(values.label, "c\\d\\");
	conf_fini(&sample_table, &values);
}

static void list_errors_name_the_option(void)
{
	init();
	CHECK_INT(conf_set_list(&sample_table, &values, "threads=3,source", &err), -EINVAL);
	CHECK_STR(err.msg, "option source needs a value: source=...");
	CHECK_INT(conf_set_list(&sample_table, &values, "=3", &err), -EINVAL);
	CHECK_STR(err.msg, "unknown option \"\"");
	CHECK_INT(conf_set_list(&sample_table, &values, "quik", &err), -EINVAL);
	CHECK_STR(err.msg, "unknown option \"quik\"; did you mean \"quick\"?");
	conf_fini(&sample_table, &values);
}

static const struct conf_option *option_named(const char *name)
{
	const struct conf_option *option = sample_table.options;

	while (strcmp(option->name, name) != 0)
		option++;
	return option;
}

static void check_format(const char *name, const char *value, const char *want)
{
	char out[64];

	CHECK_INT(conf_set(&sample_table, &values, name, value, &err), 0);
	conf_format(option_named(name), &values, out, sizeof(out));
	CHECK_STR(out, want);
}

static void format_is_what_set_takes(void)
{
	char out[4];

	init();
	check_format("quick", "1", "on");
	check_format("quick", "no", "off");
	check_format("threads", "16", "16");
	check_format("ram_size", "1048576K", "1G");
	check_format("ram_size", "4194305", "4194305");
	check_format("ram_size", "2048T", "2048T");
	check_format("mode", "careful", "careful");
	check_format("label", "", "");
	check_format("label", "abc", "abc");
	conf_format(option_named("mode"), &values, out, sizeof(out)); /* cut, not overrun */
	CHECK_STR(out, "car");
	conf_fini(&sample_table, &values);
}

static void reals_have_limits_and_print_exactly(void)
{
	struct {
		double share;
	} v = { 0 };
	static const struct conf_option options[] = {
		{ "share", CONF_REAL, 0, "0.1", 0, 2, NULL, "A share." }, { 0 }
	};
	static const struct conf_table table = { .options = options, .section = "other" };
	char text[32];

	CHECK_INT(conf_init(&table, &v, &err), 0);
	CHECK(v.share == 0.1);
	CHECK_INT(conf_set(&table, &v, "share", "2.5", &err), -EINVAL);
	CHECK_STR(err.msg, "option share: 2.5 is above the maximum 2");
	CHECK_INT(conf_set(&table, &v, "share", "nan", &err), -EINVAL);
	CHECK_STR(err.msg, "option share: \"nan\" is not a number like 0.25 or 120");
	CHECK(v.share == 0.1);
	CHECK_INT(conf_set(&table, &v, "share", "1.75e-3", &err), 0);
	conf_format(&options[0], &v, text, sizeof(text));
	CHECK_STR(text, "0.00175");
}

static void a_number_may_be_left_to_a_word(void)
{
	static const char *const word[] = { "auto", NULL };
	static const struct conf_option options[] = {
		{ "size", CONF_BYTES, 0, "auto", 4096, 1 << 20, word, "How much." },
		{ 0 },
	};
	static const struct conf_table table = { .options = options, .section = "x" };
	uint64_t value = 0;
	char text[32];

	CHECK_INT(conf_init(&table, &value, &err), 0);
	CHECK(value == CONF_AUTO);
	conf_format(&options[0], &value, text, sizeof(text));
	CHECK_STR(text, "auto");
	CHECK_INT(conf_set(&table, &value, "size", "8K", &err), 0);
	CHECK_U64(value, 8192);
	CHECK_INT(conf_set(&table, &value, "size", "automatic", &err), -EINVAL);
	CHECK_INT(conf_set(&table, &value, "size", "18446744073709551615", &err), -EINVAL);
	CHECK_U64(value, 8192);
	CHECK_INT(conf_set(&table, &value, "size", "auto", &err), 0);
	CHECK(value == CONF_AUTO);
}

static void a_name_that_is_gone_says_what_to_use(void)
{
	static const struct conf_option options[] = {
		{ "older", CONF_BOOL, 0, "off", 0, 0, NULL, "A switch." },
		{ 0 },
	};
	static const struct conf_gone gone[] = { { "old", "use new" }, { 0 } };
	static const struct conf_table table = { .options = options, .section = "x", .gone = gone };
	bool value = false;

	CHECK_INT(conf_set(&table, &value, "old", "on", &err), -EINVAL);
	CHECK_STR(err.msg, "option old is gone: use new");
	CHECK_INT(conf_set_list(&table, &value, "old", &err), -EINVAL);
	CHECK_STR(err.msg, "option old is gone: use new");
	CHECK_INT(conf_set(&table, &value, "older", "on", &err), 0);
	CHECK_INT(conf_set(&table, &value, "olde", "on", &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "did you mean \"older\"?");
}

static void keys_are_set_in_one_word(void)
{
	struct {
		uint64_t size, count;
		char *path;
	} v;
	static const struct conf_option keys[] = {
		{ "size", CONF_BYTES, offsetof(typeof(v), size), "0", 0, 0, NULL, "How much." },
		{ "path", CONF_TEXT, offsetof(typeof(v), path), "", 0, 0, NULL, "Where." },
		{ 0 },
	};
	static const struct conf_table key_table = { .options = keys, .section = "debug" };
	static const struct conf_option options[] = {
		{ "count", CONF_U64, offsetof(typeof(v), count), "1", 0, 9, NULL, "How many." },
		{ "debug", CONF_KEYS, 0, "", 0, 0, NULL, "The rest." },
		{ 0 },
	};
	static const struct conf_table table = { .options = options,
						 .section = "x",
						 .keys = &key_table };

	CHECK_INT(conf_init(&table, &v, &err), 0);
	CHECK(v.size == 0 && v.count == 1 && !v.path);
	CHECK_INT(conf_set_list(&table, &v, "count=2,debug=size:4K+path:/a\\+b:c=d", &err), 0);
	CHECK_U64(v.size, 4096);
	CHECK_STR(v.path, "/a+b:c=d");
	CHECK_INT(conf_set(&table, &v, "debug", "size:1M", &err), 0);
	CHECK_U64(v.size, 1 << 20);
	CHECK_STR(v.path, "/a+b:c=d"); /* a key that is not named stays */
	CHECK_INT(conf_set(&table, &v, "debug", "size:x", &err), -EINVAL);
	CHECK_STR(err.msg, "debug: option size: \"x\" is not a size like 512M or 16G");
	CHECK_INT(conf_set(&table, &v, "debug", "sise:1", &err), -EINVAL);
	CHECK_STR(err.msg, "debug: unknown option \"sise\"; did you mean \"size\"?");
	CHECK_INT(conf_set(&table, &v, "debug", "count:1", &err), -EINVAL);
	CHECK_INT(conf_set(&table, &v, "debug", "size", &err), -EINVAL);
	CHECK_STR(err.msg, "debug: option size needs a value: size:...");
	CHECK_INT(conf_set(&table, &v, "size", "1M", &err), -EINVAL);
	CHECK_STR(err.msg, "option size is gone: it is decided by itself; to look for a fault: "
			   "debug=size:VALUE");
	CHECK_U64(v.size, 1 << 20);
	conf_fini(&table, &v);
	CHECK(!v.path);
}

static const struct check_test tests[] = {
	{ "keys_are_set_in_one_word", keys_are_set_in_one_word },
	{ "a_name_that_is_gone_says_what_to_use", a_name_that_is_gone_says_what_to_use },
	{ "a_number_may_be_left_to_a_word", a_number_may_be_left_to_a_word },
	{ "init_fills_in_defaults", init_fills_in_defaults },
	{ "bad_default_is_an_error", bad_default_is_an_error },
	{ "set_takes_every_type", set_takes_every_type },
	{ "unknown_name_suggests_the_nearest", unknown_name_suggests_the_nearest },
	{ "bad_value_says_why_and_changes_nothing", bad_value_says_why_and_changes_nothing },
	{ "texts_a_file_cannot_carry_are_refused", texts_a_file_cannot_carry_are_refused },
	{ "list_sets_many", list_sets_many },
	{ "list_has_escaped_commas", list_has_escaped_commas },
	{ "list_errors_name_the_option", list_errors_name_the_option },
	{ "format_is_what_set_takes", format_is_what_set_takes },
	{ "reals_have_limits_and_print_exactly", reals_have_limits_and_print_exactly },
};

CHECK_MAIN(tests)
