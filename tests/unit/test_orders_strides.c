/* SPDX-License-Identifier: Apache-2.0 */
/* What module orders makes of READs of large files: a thread takes them from the cache's ring, and says what was found
 * in words, with the commands that tell it. Nothing of it is there where no file is cut. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "check.h"
#include "clairfs/cache/reads.h"
#include "clairfs/dataset/records.h"
#include "clairfs/dataset/units.h"
#include "clairfs/infer/records.h"
#include "dataset_kit.h"
#include "src/infer/records_priv.h"
#include "src/orders/orders_priv.h"

#define MIB ((uint64_t)1 << 20)
#define STRIDE 49999u
#define RECORDS 2000u
#define WAIT_S 120

struct bed {
	struct orders *o;
	struct dataset *ds;
	struct metrics *metrics;
	char *root;
	uint32_t file; /* entry of the one that was asked for */
};

/* is_shared: others than the user see it. */
static void bed_open(struct bed *b, const char *name, bool is_shared, enum infer_effort effort)
{
	struct orders_params params = { .mountpoint = "/mnt", .clock = clock_monotonic() };
	struct orders_search search = { .effort = effort, .ram = 1u << 30, .around = 65536 };
	struct err err = { 0 };

	b->metrics = metrics_new();
	b->ds = kit_open(b->root, (struct kit_open){ .layout = LAYOUT_FILES, .is_shared = is_shared });
	b->file = kit_find(b->ds, name).v;
	params.source = b->root;
	params.dataset = b->ds;
	search.metrics = b->metrics;
	CHECK_INT(orders_new(&params, &b->o, &err), 0);
	CHECK_INT(orders_search(b->o, &search, &err), 0);
}

/* One file of this name and size, and a small one. */
static void bed_new(struct bed *b, const char *dir, const char *name, size_t size, enum infer_effort effort)
{
	const char *const paths[] = { "small.txt", NULL };

	*b = (struct bed){ .root = kit_tree(dir, paths) };
	kit_file(b->root, name, size);
	bed_open(b, name, false, effort);
}

static void bed_free(struct bed *b)
{
	strides_stop(b->o->strides);
	CHECK(orders_free(b->o));
	dataset_free(b->ds);
	metrics_free(b->metrics);
	free(b->root);
}

static struct infer_record_file file_of(const struct bed *b)
{
	return (struct infer_record_file){ .file = b->file,
					   .size = RECORDS * (uint64_t)STRIDE,
					   .view = { .kind = STRIDE_RECORDS,
						     .stride = STRIDE,
						     .stride_least = STRIDE,
						     .stride_most = STRIDE,
						     .n = RECORDS },
					   .match = -1 };
}

static const char *text_of(const json_t *json, const char *key)
{
	const char *text = json_string_value(json_object_get(json, key));

	CHECK(text);
	return text;
}

/* What is said of it: how it is read, in which order; and the order to tell, "": none. */
static json_t *check_said(const struct bed *b, const struct infer_record_file *f, const char *read, const char *order,
			  const char *tell)
{
	json_t *json = strides_say(b->o, f, NULL), *told = json_object_get(json, "tell");

	CHECK(json);
	CHECK_STR(text_of(json, "read"), read);
	CHECK_STR(text_of(json, "order_words"), order);
	CHECK_STR(told ? text_of(told, "order") : "", tell);
	return json;
}

static void words_say_no_more_than_is_known(void)
{
	const char *in = "read in records of 49999 bytes, of which about 2000 fit in it";
	const char *counted = "read in 1990 records of 49999 bytes, from about byte 0 on";
	const char *tell = "torch-loader:seed=42:records=1:under=train.bin";
	struct infer_record_file f;
	struct bed b;
	json_t *json;

	bed_new(&b, "words", "train.bin", RECORDS * STRIDE, INFER_QUICK);
	f = file_of(&b);
	json_decref(check_said(&b, &f, in, "their order is not looked for", ""));
	f.is_sought = true;
	json_decref(check_said(&b, &f, in, "their order is looked for", ""));
	f.searches = 3;
	json = check_said(&b, &f, in, "in no likely order, by 3 searches", "");
	CHECK(json_is_false(json_object_get(json, "is_searching")));
	json_decref(json);
	f.is_searching = true;
	json = strides_say(b.o, &f, NULL);
	CHECK(json_is_true(json_object_get(json, "is_searching")));
	json_decref(json);
	f.is_searching = false;
	snprintf(f.spec, sizeof(f.spec), "torch-loader:seed=42");
	f.n = 1990;
	f.found_after = 96;
	json_decref(check_said(&b, &f, counted, "in the order torch-loader:seed=42, found after 96 reads", tell));
	f.match = 0.97;
	f.plan = INFER_PLAN_FOLLOWED;
	json_decref(check_said(&b, &f, counted, "in the order torch-loader:seed=42: 97 % of the last ones as it says",
			       tell));
	f.match = 0.02;
	f.plan = INFER_PLAN_LOST;
	json_decref(check_said(&b, &f, counted,
			       "they were read in the order torch-loader:seed=42, but the last ones are not "
			       "(2 % as it says)",
			       tell));
	json = strides_say(b.o, &f, NULL);
	CHECK(json_is_false(json_object_get(json, "is_order_known")));
	json_decref(json);
	f.plan = INFER_PLAN_FOLLOWED;
	f.is_over = true;
	json = check_said(&b, &f, "was read in 1990 records of 49999 bytes, from about byte 0 on",
			  "they were read in the order torch-loader:seed=42", tell);
	CHECK(json_is_true(json_object_get(json, "is_order_known")));
	json_decref(json);
	f.is_over = false;
	f.view.stride_least = STRIDE - 3; /* so no command is right */
	f.plan = INFER_PLAN_FOLLOWED;
	json = check_said(&b, &f, "read in 1990 records of about 49999 bytes, from about byte 0 on",
			  "in the order torch-loader:seed=42: 2 % of the last ones as it says", "");
	CHECK_INT(json_integer_value(json_object_get(json, "record_bytes_least")), STRIDE - 3);
	CHECK_INT(json_integer_value(json_object_get(json, "record_bytes_most")), STRIDE);
	json_decref(json);
	f = file_of(&b);
	f.view = (struct stride_view){ .kind = STRIDE_TABLE, .n = 512 };
	json_decref(check_said(&b, &f, "read at 512 places again and again, which are no records of one length", "",
			       ""));
	bed_free(&b);
}

/* The order that is in force need not be the one that was found last, nor need there be one of that at all. */
static void words_name_the_order_that_is_in_force(void)
{
	static const struct {
		const char *found, *words;
		bool is_lost;
	} rows[] = {
		{ "torch-loader:seed=42",
		  "in the order torch-loader:seed=42, which is in force: they are fetched ahead", false },
		{ "torch-loader:seed=43",
		  "in the order torch-loader:seed=42, which is in force, but the last ones are not read so", true },
		{ "", "their order is looked for", true },
	};
	struct strides_state state = { .is_followed = true, .spec = "torch-loader:seed=42" };
	struct infer_record_file f;
	struct bed b;

	bed_new(&b, "force", "train.bin", RECORDS * STRIDE, INFER_QUICK);
	f = file_of(&b);
	f.n = RECORDS;
	f.is_sought = f.is_searching = true;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *json;

		snprintf(f.spec, sizeof(f.spec), "%s", rows[i].found);
		state.is_lost = rows[i].is_lost;
		json = strides_say(b.o, &f, &state);
		CHECK(json);
		CHECK_STR(text_of(json, "order_words"), rows[i].words);
		CHECK(json_is_true(json_object_get(json, "is_followed")));
		json_decref(json);
	}
	bed_free(&b);
}

/* Each of these is what a shell gets. */
static void commands_name_the_records(void)
{
	static const struct {
		const char *dir, *name, *command, *order;
	} rows[] = {
		{ "raw", "a/train.bin",
		  "seq 0 1999 | awk '{ printf \"%s %.0f %d\\n\", \"a/train.bin\", 0 + $1 * 49999, 49999 }' | "
		  "clairfs index ",
		  "sequential:records=1:under=a/train.bin" },
		/* Its rows may be shorter than what is read at once. */
		{ "npy", "x.npy", "\"x.npy\", 0 + $1 * 49999, 49999 }' | clairfs index ",
		  "sequential:records=1:under=x.npy" },
		{ "value", "a%b,c.npy", "clairfs index ", "sequential:records=1:under=a%25b%2Cc.npy" },
		{ "blank", "a b.bin", NULL, NULL },   /* no command is better than a wrong one */
		{ "quote", "a'\";.bin", NULL, NULL },
		{ "colon", "a:b.npy", NULL, NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct infer_record_file f;
		const json_t *tell;
		json_t *json;
		struct bed b;

		bed_new(&b, rows[i].dir, rows[i].name, RECORDS * STRIDE, INFER_QUICK);
		f = file_of(&b);
		f.n = RECORDS;
		snprintf(f.spec, sizeof(f.spec), "sequential");
		json = strides_say(b.o, &f, NULL);
		tell = json_object_get(json, "tell");
		CHECK(!tell == !rows[i].command);
		if (tell) {
			CHECK_CONTAINS(text_of(tell, "index"), rows[i].command);
			CHECK_CONTAINS(text_of(tell, "index"), b.root);
			CHECK_STR(text_of(tell, "order"), rows[i].order);
		}
		json_decref(json);
		bed_free(&b);
	}
}

/* Names so long that the command has no room for them. */
static void command_is_whole_or_none(void)
{
	char *dir = malloc(2 * PATH_MAX);
	struct infer_record_file f;
	struct bed b;
	json_t *json;

	CHECK(dir);
	memset(dir, 'd', 2 * PATH_MAX - 1);
	dir[2 * PATH_MAX - 1] = 0;
	bed_new(&b, "long", "a.bin", RECORDS * STRIDE, INFER_QUICK);
	f = file_of(&b);
	f.n = RECORDS;
	snprintf(f.spec, sizeof(f.spec), "sequential");
	b.o->search.snapshot_dir = dir;
	json = strides_say(b.o, &f, NULL);
	CHECK(json && !json_object_get(json, "tell"));
	json_decref(json);
	bed_free(&b);
	free(dir);
}

/* With a table of its records. */
static void bed_new_table(struct bed *b, const char *dir, const char *name)
{
	struct dataset_import *import;
	struct err err = { 0 };
	char *lines = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&lines, &size);

	for (uint32_t i = 0; i < RECORDS; i++)
		fprintf(out, "%s %u %u\n", name, i * STRIDE, STRIDE);
	CHECK_INT(fclose(out), 0);
	bed_new(b, dir, name, RECORDS * STRIDE, INFER_QUICK);
	CHECK_INT(dataset_import_new(b->ds, b->root, &import, &err), 0);
	CHECK_INT(dataset_import_add(import, "list", lines, size, &err), 0);
	CHECK_INT(dataset_import_finish(import, b->ds, &err), 0);
	dataset_import_free(import);
	free(lines);
}

/* A name that a shell or a terminal would not take as it is: it may have a table, and is still in no command. */
static void names_are_no_commands(void)
{
	static const char *const names[] = { "a\033[31mb.bin", "$(id).bin", "a;'b'.bin", "a b.bin" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct infer_record_file f;
		struct bed b;
		json_t *json;
		char dir[16];

		snprintf(dir, sizeof(dir), "names%zu", i);
		bed_new_table(&b, dir, names[i]);
		f = file_of(&b);
		f.n = RECORDS;
		snprintf(f.spec, sizeof(f.spec), "sequential");
		json = strides_say(b.o, &f, NULL);
		CHECK(json && !json_object_get(json, "tell"));
		CHECK(!strchr(text_of(json, "path"), '\033'));
		json_decref(json);
		bed_free(&b);
	}
}

/* Everybody may read what is said: of a file that some may not see no name, and no command with it. */
static void names_are_said_to_whom_they_are_shown(void)
{
	static const struct {
		mode_t root, dir, file;
		bool is_shared, is_named;
	} rows[] = {
		{ 0755, 0755, 0644, true, true },  { 0755, 0700, 0644, true, false }, { 0755, 0711, 0644, true, false },
		{ 0755, 0755, 0640, true, false }, { 0700, 0755, 0644, true, false }, { 0700, 0700, 0600, false, true },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *const paths[] = { "small.txt", NULL };
		struct infer_record_file f;
		char dir[16], path[PATH_MAX];
		struct bed b;
		json_t *json;

		snprintf(dir, sizeof(dir), "shown%zu", i);
		b = (struct bed){ .root = kit_tree(dir, paths) };
		kit_file(b.root, "secret/a.bin", RECORDS * STRIDE);
		CHECK(snprintf(path, sizeof(path), "%s/secret/a.bin", b.root) < (int)sizeof(path));
		CHECK_INT(chmod(path, rows[i].file), 0);
		*strrchr(path, '/') = 0;
		CHECK_INT(chmod(path, rows[i].dir), 0);
		CHECK_INT(chmod(b.root, rows[i].root), 0);
		CHECK_INT(chmod(check_tmpdir(), 0755), 0); /* or the source is closed by it */
		bed_open(&b, "secret/a.bin", rows[i].is_shared, INFER_QUICK);
		f = file_of(&b);
		f.n = RECORDS;
		snprintf(f.spec, sizeof(f.spec), "sequential");
		json = strides_say(b.o, &f, NULL);
		CHECK(json);
		CHECK(!strstr(text_of(json, "path"), "secret") == !rows[i].is_named);
		CHECK(!json_object_get(json, "tell") == !rows[i].is_named);
		json_decref(json);
		bed_free(&b);
	}
}

/* Where the dataset has a table of these very records only the order is left to tell; of others, nothing is. */
static void table_that_is_there_is_not_made_again(void)
{
	struct infer_record_file f;
	struct bed b;
	json_t *json;

	bed_new_table(&b, "table", "train.bin");
	f = file_of(&b);
	f.n = RECORDS;
	snprintf(f.spec, sizeof(f.spec), "sequential");
	json = strides_say(b.o, &f, NULL);
	CHECK_STR(text_of(json_object_get(json, "tell"), "index"), "");
	json_decref(json);
	f.view.stride = 2 * STRIDE; /* of others */
	f.n = RECORDS / 2;
	json = strides_say(b.o, &f, NULL);
	CHECK(!json_object_get(json, "tell")); /* a new table would take the place of that one */
	json_decref(json);
	bed_free(&b);
}

static void nothing_is_there_where_no_file_is_cut(void)
{
	struct bed b;
	json_t *json;

	bed_new(&b, "small", "train.bin", 16 * MIB, INFER_QUICK);
	CHECK(!orders_reads(b.o));
	json = orders_search_json(b.o);
	CHECK(json_is_array(json_object_get(json, "records")));
	CHECK_U64(json_array_size(json_object_get(json, "records")), 0);
	CHECK_INT(json_integer_value(json_object_get(json, "records_reads_lost")), 0);
	json_decref(json);
	bed_free(&b);
	bed_new(&b, "off", "train.bin", 64 * MIB, INFER_OFF);
	CHECK(!orders_reads(b.o));
	bed_free(&b);
}

/* More READs than the ring has room for, and nobody who takes them. */
static void reads_that_are_not_heard_of_are_counted(void)
{
	struct bed b;
	json_t *json;

	bed_new(&b, "lost", "train.bin", RECORDS * STRIDE, INFER_QUICK);
	for (uint32_t i = 0; i < READS_MAX + 7; i++)
		reads_note(orders_reads(b.o), &(struct read_note){ .entry = { b.file }, .length = 4096 });
	json = orders_search_json(b.o);
	CHECK_INT(json_integer_value(json_object_get(json, "records_reads_lost")), 7);
	json_decref(json);
	bed_free(&b);
}

/* Waits for it; NULL: nothing with that text came. */
static json_t *wait_for(struct bed *b, const char *key, const char *part)
{
	const struct timespec nap = { .tv_nsec = NS_PER_MS };

	for (uint32_t i = 0; i < WAIT_S * 1000; i++) {
		json_t *json = orders_search_json(b->o);
		json_t *one = json_array_get(json_object_get(json, "records"), 0);

		if (one && strstr(text_of(one, key), part)) {
			json_incref(one);
			json_decref(json);
			return one;
		}
		json_decref(json);
		nanosleep(&nap, NULL); /* of a poll, with an end */
	}
	return NULL;
}

/* What two readers read first in an order. */
static void read_shuffled(struct bed *b)
{
	struct order_params params = { .n = RECORDS };
	struct order_epoch *epoch = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };

	CHECK_INT(order_spec_parse("torch-loader:seed=42", &spec, &err), 0);
	CHECK_INT(order_new(spec, &params, &order, &err), 0);
	CHECK_INT(order_epoch_new(order, 0, &epoch, &err), 0);
	for (uint32_t i = 0; i < 512; i++) {
		uint64_t at = epoch->sample[i] * (uint64_t)STRIDE;
		struct read_note note = { .entry = { b->file }, .offset = at / 4096 * 4096, .reader = 1 + i % 2 };

		note.length = (uint32_t)(at + STRIDE - note.offset + 4095) / 4096 * 4096;
		note.at_ns = clock_now(clock_monotonic());
		reads_note(orders_reads(b->o), &note);
	}
	order_epoch_free(epoch);
	order_free(order);
	order_spec_free(spec);
}

/* From the ring to the words. */
static void thread_hears_of_reads(void)
{
	struct err err = { 0 };
	struct bed b;
	json_t *json;

	bed_new(&b, "thread", "train.bin", RECORDS * STRIDE, INFER_QUICK);
	CHECK_INT(strides_start(b.o->strides, &err), 0);
	read_shuffled(&b);
	json = wait_for(&b, "order", "torch-loader:seed=42");
	CHECK(json);
	CHECK_STR(text_of(json, "path"), "train.bin");
	CHECK_STR(text_of(json, "kind"), "records");
	CHECK_INT(json_integer_value(json_object_get(json, "record_bytes")), STRIDE);
	CHECK_INT(json_integer_value(json_object_get(json, "count")), RECORDS);
	CHECK(json_is_true(json_object_get(json, "is_order_known")));
	json_decref(json);
	bed_free(&b);
}

/* A search that takes longer than the thread looks on after a READ; and what is put in force then. */
static _Atomic uint32_t search_ms, n_followed;

int __real_follow_new(const char *spec, uint64_t n, uint64_t shift, uint64_t memory, struct follow **ret);
int __wrap_follow_new(const char *spec, uint64_t n, uint64_t shift, uint64_t memory, struct follow **ret);
int __wrap_records_follow(struct orders *o, const char *spec, struct records_found *found, struct err *err);

int __wrap_follow_new(const char *spec, uint64_t n, uint64_t shift, uint64_t memory, struct follow **ret)
{
	uint32_t ms = atomic_load(&search_ms);
	const struct timespec nap = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS };

	nanosleep(&nap, NULL);
	return __real_follow_new(spec, n, shift, memory, ret);
}

int __wrap_records_follow(struct orders *o, const char *spec, struct records_found *found, struct err *err)
{
	(void)o;
	(void)err;
	CHECK_STR(spec, "torch-loader:seed=42");
	CHECK_U64(found->n, RECORDS);
	atomic_fetch_add(&n_followed, 1);
	return 0;
}

/* The job computes, and reads nothing, when its order is found. */
static void order_is_followed_while_nothing_is_read(void)
{
	const struct timespec nap = { .tv_nsec = NS_PER_MS };
	struct err err = { 0 };
	struct bed b;

	bed_new(&b, "computes", "train.bin", RECORDS * STRIDE, INFER_QUICK);
	dataset_reserve_units(b.ds, 4096, RECORDS);
	CHECK_U64(dataset_n_reserved(b.ds), RECORDS);
	atomic_store(&search_ms, 2500);
	CHECK_INT(strides_start(b.o->strides, &err), 0);
	read_shuffled(&b);
	for (uint32_t i = 0; !atomic_load(&n_followed) && i < WAIT_S * 1000; i++)
		nanosleep(&nap, NULL); /* of a poll, with an end */
	CHECK_U64(atomic_load(&n_followed), 1);
	atomic_store(&search_ms, 0);
	bed_free(&b);
}

static const struct check_test tests[] = {
	{ "words_say_no_more_than_is_known", words_say_no_more_than_is_known },
	{ "words_name_the_order_that_is_in_force", words_name_the_order_that_is_in_force },
	{ "commands_name_the_records", commands_name_the_records },
	{ "command_is_whole_or_none", command_is_whole_or_none },
	{ "names_are_no_commands", names_are_no_commands },
	{ "names_are_said_to_whom_they_are_shown", names_are_said_to_whom_they_are_shown },
	{ "table_that_is_there_is_not_made_again", table_that_is_there_is_not_made_again },
	{ "nothing_is_there_where_no_file_is_cut", nothing_is_there_where_no_file_is_cut },
	{ "reads_that_are_not_heard_of_are_counted", reads_that_are_not_heard_of_are_counted },
	{ "thread_hears_of_reads", thread_hears_of_reads },
	{ "order_is_followed_while_nothing_is_read", order_is_followed_while_nothing_is_read },
};

CHECK_MAIN(tests)
