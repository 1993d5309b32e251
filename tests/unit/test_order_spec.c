/* SPDX-License-Identifier: Apache-2.0 */
/* Specs: every way to type one wrong has one line that says so (the texts are part of the
 * behaviour), and the canonical text means the same as what was typed. */
#include "clairfs/order.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "src/order/order_priv.h"

static void fails_with(const char *text, const char *message)
{
	struct err err = { 0 };
	struct order_spec *spec = NULL;
	int rc = order_spec_parse(text, &spec, &err);

	if (rc != -EINVAL)
		printf("# spec \"%s\"\n", text);
	CHECK_INT(rc, -EINVAL);
	CHECK_INT(err.code, -EINVAL);
	CHECK_STR(err.msg, message);
	CHECK(spec == NULL);
}

static struct order_spec *parse(const char *text)
{
	struct err err = { 0 };
	struct order_spec *spec;
	int rc = order_spec_parse(text, &spec, &err);

	CHECK_STR(err.msg, "");
	CHECK_INT(rc, 0);
	return spec;
}

/* The canonical text of `text`, which must be its own canonical text. */
static void canonical_is(const char *text, const char *want)
{
	struct order_spec *spec = parse(text), *again;

	CHECK_STR(order_spec_text(spec), want);
	again = parse(want);
	CHECK_STR(order_spec_text(again), want);
	order_spec_free(again);
	order_spec_free(spec);
}

/* Nothing is near: the message names what there is. */
static void names_all_kinds(const char *text, const char *shown)
{
	char message[1024];
	size_t at;

	snprintf(message, sizeof(message), "unknown order kind \"%s\", known: ", shown);
	for (const char *const *kind = order_kinds(); *kind; kind++) {
		at = strlen(message);
		snprintf(message + at, sizeof(message) - at, "%s%s", *kind, kind[1] ? ", " : "");
	}
	fails_with(text, message);
}

static void unknown_kinds(void)
{
	fails_with("", "an order starts with its kind: KIND[:key=value]...");
	fails_with(":seed=1", "an order starts with its kind: KIND[:key=value]...");
	fails_with("torch-distribted:seed=1",
		   "unknown order kind \"torch-distribted\", did you mean \"torch-distributed\"?");
	fails_with("Sequential", "unknown order kind \"Sequential\", did you mean \"sequential\"?");
	names_all_kinds("seed=42", "seed=42");
	names_all_kinds("\n\xff", "\\n\\xff");
}

static void unknown_keys(void)
{
	fails_with("torch-distributed:sed=1",
		   "order torch-distributed: unknown key \"sed\", did you mean \"seed\"?");
	fails_with("torch-distributed:wold",
		   "order torch-distributed: unknown key \"wold\", did you mean \"world\"?");
	fails_with(
		"sequential:prefetch-factor=2",
		"order sequential: unknown key \"prefetch-factor\", did you mean \"prefetch_factor\"?");
	fails_with(
		"sequential:world=2",
		"order sequential: unknown key \"world\", known: epochs, start_epoch, start_step, batch, workers, "
		"prefetch_factor, split, first, records, sort, under, job");
	fails_with(
		"list:xyzzy=2",
		"order list: unknown key \"xyzzy\", known: path, epochs, start_epoch, start_step, batch, workers, "
		"prefetch_factor, split, first, records, sort, under, job");
}

static void nearest_kinds(void)
{
	static const char *const typed[][2] = {
		{ "mosaic-py1", "mosaic-py1s" },
		{ "mosaic_py1e", "mosaic-py1e" },
		{ "lightdata", "litdata" },
		{ "webdatasets", "webdataset" },
		{ "tf-listfiles", "tf-list-files" },
		{ "dali-fil", "dali-file" },
		{ "dlio-v3", "dlio-v1" },
		{ "torch-random", "torch-randperm" },
		{ "ffcw", "ffcv" },
	};

	for (size_t i = 0; i < ARRAY_LEN(typed); i++) {
		char message[100];

		snprintf(message, sizeof(message),
			 "unknown order kind \"%s\", did you mean \"%s\"?", typed[i][0],
			 typed[i][1]);
		fails_with(typed[i][0], message);
	}
}

static void negative_epochs(void)
{
	fails_with("torch-distributed:epochs=-1",
		   "order torch-distributed: key \"epochs\": \"-1\" is not a whole number");
	fails_with("grain:seed=1:start_epoch=-1",
		   "order grain: key \"start_epoch\": \"-1\" is not a whole number");
	fails_with("sequential:batch=1:start_step=-1",
		   "order sequential: key \"start_step\": \"-1\" is not a whole number");
}

static void values_that_are_not_there(void)
{
	fails_with("webdataset:seed=1", "order webdataset: key \"shardshuffle\" is missing");
	fails_with("tf-shuffle:seed=1", "order tf-shuffle: key \"buffer\" is missing");
	fails_with("torch-randperm", "order torch-randperm: key \"seed\" is missing");
	fails_with("list", "order list: key \"path\" is missing");
	fails_with("torch-randperm:seed",
		   "order torch-randperm: key \"seed\" has no value, write seed=VALUE");
	fails_with("torch-randperm:seed=",
		   "order torch-randperm: key \"seed\" has no value, write seed=VALUE");
	fails_with("torch-randperm:",
		   "order torch-randperm: a key is missing between or after ':'");
	fails_with("torch-randperm:seed=1:",
		   "order torch-randperm: a key is missing between or after ':'");
	fails_with("torch-randperm::seed=1",
		   "order torch-randperm: a key is missing between or after ':'");
	fails_with("torch-randperm:=1",
		   "order torch-randperm: a key is missing between or after ':'");
}

/* The kinds without a usual seed. */
static void seeds_that_are_needed(void)
{
	static const char *const kinds[] = {
		"torch-loader", "torch-generator", "torch-subset",  "torchdata-loader",
		"numpy-legacy", "numpy-generator", "python-random", "detectron2-training",
		"ffcv",         "webdataset",      "grain",         "tf-shuffle",
		"tf-list-files"
	};

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		char message[100];

		snprintf(message, sizeof(message), "order %s: key \"seed\" is missing", kinds[i]);
		fails_with(kinds[i], message);
	}
}

static void seeds_out_of_range(void)
{
	fails_with(
		"numpy-legacy:seed=4294967296",
		"order numpy-legacy: key \"seed\": 4294967296 is out of range, allowed: 0-4294967295");
	fails_with("numpy-generator:seed=-1",
		   "order numpy-generator: key \"seed\": \"-1\" is not a whole number");
	fails_with("python-random:seed=18446744073709551616",
		   "order python-random: key \"seed\": 18446744073709551616 is out of range, "
		   "allowed: 0-18446744073709551615");
	fails_with(
		"megatron:documents=1:seed=4294967296",
		"order megatron: key \"seed\": 4294967296 is out of range, allowed: 0-4294967295");
	fails_with("grain:seed=4294967296",
		   "order grain: key \"seed\": 4294967296 is out of range, allowed: 0-4294967295");
	fails_with(
		"litdata:shards=1:seed=4294967296",
		"order litdata: key \"seed\": 4294967296 is out of range, allowed: 0-4294967295");
	fails_with("tf-shuffle:buffer=1:seed=9223372036854775808",
		   "order tf-shuffle: key \"seed\": 9223372036854775808 is out of range, "
		   "allowed: 0-9223372036854775807");
	fails_with(
		"dlio-v1:seed=4294967296",
		"order dlio-v1: key \"seed\": 4294967296 is out of range, allowed: 0-4294967295");
	fails_with("mosaic-naive:seed=-1",
		   "order mosaic-naive: key \"seed\": \"-1\" is not a whole number");
	fails_with(
		"dali-file:seed=1",
		"order dali-file: unknown key \"seed\", known: world, rank, ranks, "
		"random_shuffle, stick_to_shard, shuffle_after_epoch, checkpointing, libstdcxx, "
		"engine, epochs, start_epoch, start_step, batch, workers, prefetch_factor, split, "
		"first, records, sort, under, job");
	fails_with("timm-repeataug:epoch=1",
		   "order timm-repeataug: unknown key \"epoch\", did you mean \"epochs\"?");
}

static void counts_out_of_range(void)
{
	fails_with(
		"timm-repeataug:num_repeats=0",
		"order timm-repeataug: key \"num_repeats\": 0 is out of range, allowed: 1-65536");
	fails_with("timm-repeataug:num_repeats=1.5",
		   "order timm-repeataug: key \"num_repeats\": \"1.5\" is not a whole number");
	fails_with("torch-loader:seed=1:num_samples=4294967296",
		   "order torch-loader: key \"num_samples\": 4294967296 is out of range, "
		   "allowed: 0-4294967295");
	fails_with(
		"megatron:documents=5:document_epochs=0",
		"order megatron: key \"document_epochs\": 0 is out of range, allowed: 1-4294967295");
	fails_with("torch-loader:seed=1:persistent=2",
		   "order torch-loader: key \"persistent\": \"2\" is neither 0 nor 1");
	fails_with("accelerate:even_batches=maybe",
		   "order accelerate: key \"even_batches\": \"maybe\" is neither 0 nor 1");
}

static void repeated_keys(void)
{
	fails_with("torch-randperm:seed=1:seed=1",
		   "order torch-randperm: key \"seed\" is given twice");
	fails_with("sequential:batch=1:epochs=3:batch=2",
		   "order sequential: key \"batch\" is given twice");
	fails_with("torch-distributed:world=4:rank=1:rank=2",
		   "order torch-distributed: key \"rank\" is given twice");
	fails_with("torch-distributed:world=4:rank=1:ranks=2",
		   "order torch-distributed: keys \"rank\" and \"ranks\" exclude each other");
	fails_with("torch-distributed:ranks=2:rank=0:world=4",
		   "order torch-distributed: keys \"rank\" and \"ranks\" exclude each other");
}

static void numbers(void)
{
	fails_with("sequential:batch=2x",
		   "order sequential: key \"batch\": \"2x\" is not a whole number");
	fails_with("sequential:batch=-1",
		   "order sequential: key \"batch\": \"-1\" is not a whole number");
	fails_with("sequential:batch= 1",
		   "order sequential: key \"batch\": \" 1\" is not a whole number");
	fails_with("sequential:batch=1=2",
		   "order sequential: key \"batch\": \"1=2\" is not a whole number");
	fails_with("sequential:batch=0",
		   "order sequential: key \"batch\": 0 is out of range, allowed: 1-4294967295");
	fails_with(
		"sequential:batch=4294967296",
		"order sequential: key \"batch\": 4294967296 is out of range, allowed: 1-4294967295");
	fails_with(
		"sequential:epochs=99999999999999999999999",
		"order sequential: key \"epochs\": 99999999999999999999999 is out of range, allowed: 0-4294967295");
	fails_with(
		"torch-randperm:seed=1.5",
		"order torch-randperm: key \"seed\": \"1.5\" is not a seed, a whole number from -2^63 to 2^64-1");
	fails_with("torch-randperm:seed=18446744073709551616",
		   "order torch-randperm: key \"seed\": \"18446744073709551616\" is not a seed, "
		   "a whole number from -2^63 to 2^64-1");
	fails_with("torch-distributed:shuffle=2",
		   "order torch-distributed: key \"shuffle\": \"2\" is neither 0 nor 1");
	fails_with("torch-distributed:world=0",
		   "order torch-distributed: key \"world\": 0 is out of range, allowed: 1-1048576");
}

static void ranks(void)
{
	const char *expected =
		"order torch-distributed: key \"ranks\": expected ranks and ranges of ranks, for example 0-3+6";

	fails_with(
		"torch-distributed:world=8:rank=8",
		"order torch-distributed: rank 8 is outside the world of 8 (key \"world\"), ranks count from 0");
	fails_with(
		"torch-distributed:rank=1",
		"order torch-distributed: rank 1 is outside the world of 1 (key \"world\"), ranks count from 0");
	fails_with(
		"torch-distributed:ranks=0-8:world=8",
		"order torch-distributed: rank 8 is outside the world of 8 (key \"world\"), ranks count from 0");
	fails_with("torch-distributed:world=8:ranks=0-", expected);
	fails_with("torch-distributed:world=8:ranks=-1", expected);
	fails_with("torch-distributed:world=8:ranks=1+", expected);
	fails_with("torch-distributed:world=8:ranks=+", expected);
	fails_with("torch-distributed:world=8:ranks=1-2-3", expected);
	fails_with("torch-distributed:world=8:ranks=0%2C1", expected);
	fails_with("torch-distributed:world=8:ranks=3-1",
		   "order torch-distributed: key \"ranks\": range 3-1 runs backwards");
	fails_with("torch-distributed:world=8:ranks=0-3+2",
		   "order torch-distributed: key \"ranks\": rank 2 is given twice");
	fails_with(
		"torch-distributed:world=8:ranks=0-4000000000",
		"order torch-distributed: key \"ranks\": rank 4000000000 is out of range, allowed: 0-1048575");
	fails_with("torch-distributed:world=8:ranks=0-1048575+0-1048575",
		   "order torch-distributed: key \"ranks\": more than 1048576 ranks");
}

static void several_keys_together(void)
{
	fails_with("sequential:start_step=5",
		   "order sequential: key \"start_step\" needs key \"batch\"");
	fails_with("list:path=a%20b",
		   "order list: key \"path\": '%' must be written %25 (%3A is ':', %2C is ',', "
		   "%2F is '/')");
	fails_with("list:path=a%",
		   "order list: key \"path\": '%' must be written %25 (%3A is ':', %2C is ',', "
		   "%2F is '/')");
	fails_with("list:path=a%3",
		   "order list: key \"path\": '%' must be written %25 (%3A is ':', %2C is ',', "
		   "%2F is '/')");
}

static void canonical_text(void)
{
	canonical_is("sequential", "sequential");
	canonical_is("sequential:workers=8:batch=4:epochs=0", "sequential:batch=4:workers=8");
	canonical_is("torch-randperm:seed=0", "torch-randperm:seed=0");
	canonical_is("torch-randperm:large=no:seed=-1",
		     "torch-randperm:seed=18446744073709551615:large=0");
	canonical_is("torch-distributed:seed=0:shuffle=true:drop_last=off:world=1:rank=0",
		     "torch-distributed");
	canonical_is(
		"torch-distributed:batch=256:epochs=90:ranks=3+0-1+2:world=16:seed=42:workers=8",
		"torch-distributed:seed=42:world=16:ranks=0-3:epochs=90:batch=256:workers=8");
	canonical_is("torch-distributed:world=16:ranks=6+0-1+9+10",
		     "torch-distributed:world=16:ranks=0-1+6+9-10");
	canonical_is("torch-distributed:world=16:ranks=7", "torch-distributed:world=16:rank=7");
	canonical_is("torch-distributed:world=4:ranks=0-3", "torch-distributed:world=4");
	canonical_is("accelerate:batch=4:world=2:seed=42:even_batches=1:drop_last=0",
		     "accelerate:world=2:batch=4");
	canonical_is("torch-loader:num_samples=5:replacement=yes:seed=-7:persistent=0",
		     "torch-loader:seed=18446744073709551609:replacement=1:num_samples=5");
	canonical_is("megatron:world=2:batch=4:seed=1234:path=/a%3Ab",
		     "megatron:path=/a%3Ab:world=2:batch=4");
	canonical_is("list:path=/a%3ab%2C%25:start_epoch=2",
		     "list:path=/a%3Ab%2C%25:start_epoch=2");
}

static void escapes_are_decoded(void)
{
	struct order_spec *spec = parse("list:path=%3A%2c%25%253A=");

	CHECK_STR(order_spec_path(spec, "path"), ":,%%3A=");
	order_spec_free(spec);
	order_spec_free(NULL);
}

/* Every key of the tables is in the help, and every kind has one line of it. */
static void place(const char *text, const char *rank, const char *world, const char *want)
{
	struct order_place p = { rank, world, "R", "W", NULL };
	struct order_spec *spec = NULL;
	struct err err = { 0 };
	int rc = order_spec_parse_placed(text, &p, &spec, &err);

	if (rc < 0)
		CHECK_STR(err.msg, want);
	else
		CHECK_STR(order_spec_text(spec), want);
	order_spec_free(spec);
}

static void place_of_the_launcher(void)
{
	place("torch-distributed", "1", "4", "torch-distributed:world=4:rank=1");
	place("torch-distributed", "0", "1", "torch-distributed");
	/* Half of it is nothing, and what is not needed is not looked at. */
	place("torch-distributed", "1", NULL, "torch-distributed");
	place("torch-distributed", NULL, "x", "torch-distributed");
	place("torch-distributed:world=2", "x", "4", "torch-distributed:world=2");
	place("torch-distributed:world=3:rank=2", "1", "4", "torch-distributed:world=3:rank=2");
	place("torch-distributed:world=3:ranks=0-1", "1", "4",
	      "torch-distributed:world=3:ranks=0-1");
	place("torch-randperm:seed=1", "x", "y", "torch-randperm:seed=1");
	place("torch-distributed", "4", "4",
	      "order torch-distributed: environment variables R and W: rank 4 is outside the "
	      "world of 4");
	place("torch-distributed", "1", "4x",
	      "order torch-distributed: environment variable W: key \"world\": \"4x\" is not a "
	      "whole number");
	place("torch-distributed", "2-3", "4", "torch-distributed:world=4:ranks=2-3");
	place("torch-distributed", "2-4", "4",
	      "order torch-distributed: environment variables R and W: rank 4 is outside the "
	      "world of 4");
	place("torch-distributed", "-1", "4",
	      "order torch-distributed: environment variable R: key \"rank\": \"-1\" is not a "
	      "whole number");
	place("torch-distributed", "0", "0",
	      "order torch-distributed: environment variable W: key \"world\": 0 is out of range, "
	      "allowed: 1-1048576");
}

static void help_lists_all_keys(void)
{
	const char *const *kinds = order_kinds();
	unsigned n = 0;

	for (; kinds[n]; n++) {
		const struct order_kind_row *row = order_kind_find(kinds[n]);
		const char *help = order_kind_help(kinds[n]);

		CHECK(row && help);
		CHECK(strchr(help, '\n') == NULL);
		for (const struct order_key *key = row->kind->keys; key->name; key++)
			CHECK_CONTAINS(strstr(help, "keys:"), key->name);
		for (const struct order_key *key = order_common_keys; key->name; key++)
			CHECK_CONTAINS(strstr(help, "keys:"), key->name);
	}
	CHECK(n > 0);
	CHECK(order_kind_help("no such kind") == NULL);
}

static void seeds_are_shown(void)
{
	static const char *const cases[][2] = {
		{ "torch-distributed:world=2:rank=1", "torch-distributed:seed=0:world=2:rank=1" },
		{ "torch-distributed", "torch-distributed:seed=0" },
		{ "torch-distributed:seed=7", "torch-distributed:seed=7" },
		{ "sequential:epochs=2", "sequential:epochs=2" },
		{ "list:path=a", "list:path=a" },
		{ "", "" },
		{ "nonsense:x", "nonsense:x" },
	};
	char shown[100];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		order_spec_show(cases[i][0], shown, sizeof(shown));
		CHECK_STR(shown, cases[i][1]);
	}
	order_spec_show("torch-distributed", shown, 8);
	CHECK_STR(shown, "torch-d");
}

static const struct check_test tests[] = {
	{ "unknown_kinds", unknown_kinds },
	{ "unknown_keys", unknown_keys },
	{ "nearest_kinds", nearest_kinds },
	{ "negative_epochs", negative_epochs },
	{ "values_that_are_not_there", values_that_are_not_there },
	{ "seeds_that_are_needed", seeds_that_are_needed },
	{ "seeds_out_of_range", seeds_out_of_range },
	{ "counts_out_of_range", counts_out_of_range },
	{ "repeated_keys", repeated_keys },
	{ "numbers", numbers },
	{ "ranks", ranks },
	{ "several_keys_together", several_keys_together },
	{ "canonical_text", canonical_text },
	{ "escapes_are_decoded", escapes_are_decoded },
	{ "place_of_the_launcher", place_of_the_launcher },
	{ "help_lists_all_keys", help_lists_all_keys },
	{ "seeds_are_shown", seeds_are_shown },
};

CHECK_MAIN(tests)
