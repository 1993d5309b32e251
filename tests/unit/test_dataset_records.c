/* SPDX-License-Identifier: Apache-2.0 */
/* Records of real files: which files are taken for containers, in which order, what becomes of
 * damaged ones, and how the table lives on with the snapshot. The containers are those that the
 * real libraries wrote for the golden vectors (tests/golden/format). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "clairfs/dataset/records.h"
#include "dataset_kit.h"

#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* Copies a golden file into a tree, the first `size` bytes of it (0: all). */
static void put(const char *root, const char *name, const char *golden, size_t size)
{
	const char *source = getenv("CLAIRFS_SOURCE");
	AUTO_FREE char *from = NULL, *to = kit_path(root, name);
	static char bytes[1 << 20];
	AUTO_FILE FILE *in = NULL;
	size_t n;

	CHECK(asprintf(&from, "%s/tests/golden/format/%s", source ? source : ".", golden) > 0);
	in = fopen(from, "re");
	CHECK(in);
	n = fread(bytes, 1, sizeof(bytes), in);
	kit_file(root, name, 0);
	{
		AUTO_FILE FILE *out = fopen(to, "we");

		CHECK(out && fwrite(bytes, 1, size ? size : n, out) == (size ? size : n));
	}
}

static void put_text(const char *root, const char *name, const char *text)
{
	AUTO_FREE char *to = kit_path(root, name);
	AUTO_FILE FILE *out = NULL;

	kit_file(root, name, 0);
	out = fopen(to, "we");
	CHECK(out && fputs(text, out) >= 0);
}

/* A time that nothing had before, so that a change is seen however coarse the clock is. */
static void stamp(const char *root, const char *name)
{
	static time_t next = 1000;
	AUTO_FREE char *path = kit_path(root, name);
	const struct timespec times[] = { { .tv_sec = next }, { .tv_sec = next } };

	next++;
	CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
}

static char *empty_tree(const char *name)
{
	return kit_tree(name, PATHS("README.md"));
}

static char *mds_tree(const char *name)
{
	char *root = empty_tree(name);

	put(root, "mds/index.json", "mds/index.json", 0);
	put(root, "mds/shard.00000.mds", "mds/shard.00000.mds", 0);
	put(root, "mds/shard.00001.mds", "mds/shard.00001.mds", 0);
	put(root, "mds/shard.00002.mds", "mds/shard.00002.mds", 0);
	return root;
}

static int find(struct dataset *ds, const char *records, struct dataset_find *ret, struct err *err)
{
	*ret = (struct dataset_find){ .threads = 3, .is_auto = strcmp(records, "auto") == 0 };
	*err = (struct err){ 0 };
	for (int i = 0; format_names[i]; i++)
		if (strcmp(format_names[i], records) == 0)
			ret->format = (enum format)i;
	return dataset_find_records(ds, ret, err);
}

static void finds(struct dataset *ds, const char *records, uint32_t n)
{
	struct dataset_find how;
	struct err err;
	int rc = find(ds, records, &how, &err);

	CHECK_STR(err.msg, "");
	CHECK_INT(rc, 0);
	CHECK_U64(dataset_n_records(ds), n);
}

static void refuses(struct dataset *ds, const char *records, int error, const char *part)
{
	struct dataset_find how;
	struct err err;

	CHECK_INT(find(ds, records, &how, &err), error);
	CHECK_CONTAINS(err.msg, part);
}

/* The records' files and ranges, a line each, heap. */
static char *all_records(const struct dataset *ds)
{
	char *text = NULL, path[PATH_MAX];
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	CHECK(f);
	for (uint32_t i = 0; i < dataset_n_records(ds); i++) {
		struct dataset_extent x = dataset_locate(ds, (struct record_no){ i });

		CHECK_INT(dataset_path(ds, x.entry, path, sizeof(path)), 0);
		fprintf(f, "%s %llu %llu\n", path, (unsigned long long)x.offset,
			(unsigned long long)x.length);
		if (x.length > 0) {
			CHECK_U64(dataset_record_at(ds, x.entry, x.offset).v, i);
			CHECK_U64(dataset_record_at(ds, x.entry, x.offset + x.length - 1).v, i);
		}
	}
	fclose(f);
	return text;
}

static void without_a_table_records_are_samples(void)
{
	AUTO_FREE char *root = kit_tree("plain", PATHS("a/1", "b/2"));
	struct dataset *ds = kit_open(root, (struct kit_open){ 0 });
	AUTO_FREE char *text = all_records(ds);
	struct file_identity identity;

	CHECK(!dataset_has_records(ds));
	CHECK_STR(text, "a/1 0 1\nb/2 0 1\n");
	CHECK_U64(dataset_record_at(ds, kit_find(ds, "b"), 0).v, RECORD_NONE.v);
	CHECK(!dataset_record_identity(ds, kit_find(ds, "a/1"), &identity));
	refuses(ds, "auto", -ENODATA, "no file has records");
	CHECK(!dataset_has_records(ds));
	dataset_free(ds);
}

static void shards_come_in_the_order_of_their_index(void)
{
	AUTO_FREE char *root = mds_tree("mds"), *text = NULL;
	struct dataset *ds = kit_open(root, (struct kit_open){ 0 });
	struct dataset_records_stats st;

	finds(ds, "auto", 25);
	text = all_records(ds);
	CHECK_CONTAINS(text, "mds/shard.00000.mds 239 52\nmds/shard.00000.mds 291 59\n");
	CHECK_CONTAINS(text, "mds/shard.00001.mds 1178 185\nmds/shard.00002.mds 207 192\n");
	dataset_records_stats(ds, &st);
	CHECK_U64(st.records[RECORDS_TABLE], 25);
	CHECK_U64(st.files[RECORDS_TABLE], 3);
	/* Neither the index nor what is before the first sample is a record. */
	CHECK_U64(dataset_record_at(ds, kit_find(ds, "mds/index.json"), 0).v, RECORD_NONE.v);
	CHECK_U64(dataset_record_at(ds, kit_find(ds, "mds/shard.00000.mds"), 238).v, RECORD_NONE.v);
	/* Another order in the index is another order of the samples. */
	put_text(root, "mds/index.json",
		 "{\"shards\": [{\"raw_data\": {\"basename\": \"shard.00002.mds\"}, \"samples\": 5}, "
		 "{\"raw_data\": {\"basename\": \"shard.00000.mds\"}, \"samples\": 13}]}");
	finds(ds, "mds", 25);
	free(text);
	text = all_records(ds);
	CHECK_INT(strncmp(text, "mds/shard.00002.mds 207 192\n", 28), 0);
	/* What it says is compared with the shards. */
	put_text(root, "mds/index.json",
		 "{\"shards\": [{\"raw_data\": {\"basename\": \"shard.00002.mds\"}, \"samples\": 6}]}");
	refuses(ds, "mds", -EBADMSG, "it has 5 samples, index.json says 6");
	put_text(root, "mds/index.json",
		 "{\"shards\": [{\"raw_data\": {\"basename\": \"../README.md\"}, \"samples\": 6}]}");
	refuses(ds, "mds", -EBADMSG, "mds/index.json: ../README.md is not there");
	put_text(root, "mds/index.json",
		 "{\"shards\": [{\"raw_data\": {\"basename\": \"shard.00002.mds\"}, \"samples\": 5},"
		 "{\"raw_data\": {\"basename\": \"shard.00002.mds\"}, \"samples\": 5}]}");
	refuses(ds, "mds", -EBADMSG, "mds/index.json: a shard is described twice");
	CHECK_U64(dataset_n_records(ds), 25); /* the last good one */
	finds(ds, "auto", 25); /* by their names */
	dataset_free(ds);
}

static void each_format_is_found_where_it_lies(void)
{
	AUTO_FREE char *root = empty_tree("each"), *text = NULL;
	struct dataset *ds;

	put(root, "a/train.tar", "tar/ustar.tar", 0);
	put(root, "b/train.tfrecord", "tfrecord/train.tfrecord", 0);
	put(root, "c/text.bin", "megatron/int32.bin", 0);
	put(root, "c/text.idx", "megatron/int32.idx", 0);
	put(root, "d/chunk-0-0.bin", "litdata/tensors/chunk-0-0.bin", 0);
	put(root, "d/chunk-0-1.bin", "litdata/tensors/chunk-0-1.bin", 0);
	put(root, "d/chunk-0-2.bin", "litdata/tensors/chunk-0-2.bin", 0);
	put(root, "d/index.json", "litdata/tensors/index.json", 0);
	put(root, "e/x.npy", "npy/f4_2d.npy", 0);
	put(root, "f/x.zip", "zip/mixed.zip", 0);
	ds = kit_open(root, (struct kit_open){ 0 });
	finds(ds, "tar", 6);
	finds(ds, "tfrecord", 9);
	finds(ds, "megatron", 21);
	finds(ds, "litdata", 12);
	finds(ds, "npy", 20);
	finds(ds, "zip", 5);
	refuses(ds, "mds", -EBADMSG, "cut short"); /* no file has a name of that format, so all are it */
	/* An array and a zip file may be samples: they are not taken without being asked for. */
	finds(ds, "auto", 6 + 9 + 21 + 12);
	text = all_records(ds);
	CHECK_INT(strncmp(text, "a/train.tar 0 3072\n", 19), 0);
	CHECK_CONTAINS(text, "b/train.tfrecord 1333 304\nc/text.bin 0 4\n");
	dataset_free(ds);
}

static void alike_records_cost_nothing_each(void)
{
	AUTO_FREE char *root = empty_tree("alike");
	struct dataset_records_stats st;
	struct file_identity identity;
	struct dataset *ds;

	put(root, "x.npy", "npy/f4_2d.npy", 0);
	put(root, "y.npy", "npy/fortran.npy", 0);
	ds = kit_open(root, (struct kit_open){ 0 });
	finds(ds, "npy", 21);
	dataset_records_stats(ds, &st);
	CHECK_U64(st.records[RECORDS_AFFINE], 20);
	CHECK_U64(st.records[RECORDS_WHOLE], 1);
	CHECK(st.bytes < 300);
	CHECK(dataset_record_identity(ds, kit_find(ds, "x.npy"), &identity));
	CHECK_U64(identity.size, 128 + 20 * 12);
	CHECK(!dataset_record_identity(ds, kit_find(ds, "y.npy"), &identity));
	CHECK(dataset_memory_bytes(ds) > st.bytes);
	dataset_free(ds);
}

static void files_of_other_names_are_taken_if_there_are_no_better_ones(void)
{
	AUTO_FREE char *root = kit_tree("names", PATHS("sub/x"));
	struct dataset_find how = { .format = FORMAT_TFRECORD, .under = "in", .threads = 1 };
	struct dataset *ds;
	struct err err = { 0 };

	put(root, "in/train-00000-of-00002", "tfrecord/train.tfrecord", 0);
	put(root, "in/train-00001-of-00002", "tfrecord/train.tfrecord", 0);
	put(root, "in/train.idx", "tfrecord/train.idx", 0);
	ds = kit_open(root, (struct kit_open){ 0 });
	refuses(ds, "tfrecord", -EBADMSG, "sub/x: ");
	CHECK_INT(dataset_find_records(ds, &how, &err), 0);
	CHECK_U64(dataset_n_records(ds), 18);
	how.under = "nowhere";
	CHECK_INT(dataset_find_records(ds, &how, &err), -ENOENT);
	dataset_free(ds);
}

static void a_damaged_container_is_one_sample_or_the_end(void)
{
	AUTO_FREE char *root = empty_tree("damaged"), *log = NULL, *text = NULL;
	struct dataset_find how;
	struct dataset *ds;
	struct err err;
	int saved;

	put(root, "a.tar", "tar/ustar.tar", 600);
	put(root, "b.tar", "tar/ustar.tar", 0);
	put_text(root, "plain.txt", "x");
	ds = kit_open(root, (struct kit_open){ 0 });
	refuses(ds, "tar", -EBADMSG, "a.tar: the member at 0 should have");
	CHECK(!dataset_has_records(ds));
	saved = kit_log_begin();
	CHECK_INT(find(ds, "auto", &how, &err), 0);
	log = kit_log_end(saved);
	CHECK_CONTAINS(log, "records: a.tar: the member at 0 should have");
	CHECK_CONTAINS(log, "one sample as a whole");
	CHECK_U64(how.n_failed, 1);
	CHECK_U64(how.n_plain, 2); /* plain.txt and README.md */
	text = all_records(ds);
	CHECK_INT(strncmp(text, "a.tar 0 600\nb.tar 0 3072\n", 25), 0);
	CHECK_U64(dataset_n_records(ds), 7);
	dataset_free(ds);
}

static void put_number(FILE *f, uint64_t number, size_t bytes)
{
	CHECK_U64(fwrite(&number, 1, bytes, f), bytes);
}

/* NAME.idx and NAME.bin of Megatron: sequences of two tokens of 4 bytes that begin where it says. */
static void put_sequences(const char *root, const char *name, const uint64_t *start, uint64_t n)
{
	AUTO_FREE char *index = NULL, *data = NULL, *to = NULL;
	AUTO_FILE FILE *f = NULL;

	CHECK(asprintf(&index, "%s.idx", name) > 0 && asprintf(&data, "%s.bin", name) > 0);
	kit_file(root, index, 0);
	kit_file(root, data, 64);
	to = kit_path(root, index);
	f = fopen(to, "we");
	CHECK(f);
	CHECK_U64(fwrite("MMIDIDX\0", 1, 9, f), 9);
	put_number(f, 1, 8);
	put_number(f, 4, 1);
	put_number(f, n, 8);
	put_number(f, 1, 8);
	for (uint64_t i = 0; i < n; i++)
		put_number(f, 2, 4);
	for (uint64_t i = 0; i < n; i++)
		put_number(f, start[i], 8);
	put_number(f, 0, 8);
}

/* Each file is settled by itself: what is wrong with one costs that one only. */
static void records_that_overlap_cost_their_file_only(void)
{
	AUTO_FREE char *root = empty_tree("tangled"), *log = NULL, *text = NULL;
	struct dataset_find how;
	struct dataset *ds;
	struct err err;
	int saved;

	put_sequences(root, "a/to_and_fro", (const uint64_t[]){ 16, 48, 0, 32, 8, 56 }, 6);
	put_sequences(root, "b/overlap", (const uint64_t[]){ 0, 8, 12, 24 }, 4);
	put(root, "c/good.tar", "tar/ustar.tar", 0);
	ds = kit_open(root, (struct kit_open){ 0 });
	refuses(ds, "megatron", -EBADMSG, "b/overlap.bin: records overlap");
	saved = kit_log_begin();
	CHECK_INT(find(ds, "auto", &how, &err), 0);
	log = kit_log_end(saved);
	CHECK_CONTAINS(log, "records: b/overlap.bin: records overlap: one sample as a whole");
	CHECK_U64(how.n_failed, 1);
	text = all_records(ds);
	CHECK_CONTAINS(text, "a/to_and_fro.bin 16 8\na/to_and_fro.bin 48 8\na/to_and_fro.bin 0 8\n"
			     "a/to_and_fro.bin 32 8\na/to_and_fro.bin 8 8\na/to_and_fro.bin 56 8\n"
			     "b/overlap.bin 0 64\nc/good.tar 0 3072\n");
	CHECK_U64(dataset_n_records(ds), 6 + 1 + 6);
	dataset_free(ds);
}

static void runs_are_the_files_in_the_order_of_their_records(void)
{
	AUTO_FREE char *root = mds_tree("runs");
	AUTO_FREE struct dataset_run *run = NULL;
	struct dataset *ds;
	size_t n;

	put(root, "damaged.tar", "tar/ustar.tar", 600);
	put(root, "ended.tar", "tar/ustar.tar", 700);
	ds = kit_open(root, (struct kit_open){ 0 });
	finds(ds, "auto", 27);
	CHECK_INT(dataset_runs(ds, &run, &n), 0);
	CHECK_U64(n, 5);
	for (size_t i = 0, first = 0; i < n; i++) {
		static const uint64_t counts[] = { 1, 1, 13, 7, 5 };

		CHECK_U64(run[i].count, counts[i]);
		CHECK(entry_eq(run[i].entry, dataset_locate(ds, (struct record_no){ (uint32_t)first }).entry));
		first += run[i].count;
	}
	dataset_free(ds);
}

/* The numbers of files, once records are taken: all but what describes them. */
static void sidecars_are_numbered_by_nobody(void)
{
	AUTO_FREE char *root = mds_tree("sidecars");
	struct dataset *ds = kit_open(root, (struct kit_open){ 0 });
	const enum dataset_sort sorts[] = { DATASET_SORT_INDEX, DATASET_SORT_PATH, DATASET_SORT_WALK };
	struct err err = { 0 };

	for (size_t i = 0; i < 2 * ARRAY_LEN(sorts); i++) {
		AUTO_FREE uint32_t *sample = NULL;
		bool has_records = i >= ARRAY_LEN(sorts);
		uint32_t n, seen = 0;

		if (i == ARRAY_LEN(sorts))
			finds(ds, "auto", 25);
		CHECK_INT(dataset_numbering(ds, sorts[i % ARRAY_LEN(sorts)], NULL, &sample, &n, &err), 0);
		CHECK_U64(n, has_records ? 4 : 5); /* README.md is no sidecar */
		for (uint32_t k = 0; k < n; k++)
			seen += sample[k] == kit_find(ds, "mds/index.json").v;
		CHECK_U64(seen, !has_records);
	}
	finds(ds, "mds", 25); /* the index is found all the same */
	dataset_free(ds);
}

/* Names of sidecars where there are no records are samples. */
static void a_part_without_records_has_all_its_files(void)
{
	AUTO_FREE char *root = mds_tree("beside");
	static const struct {
		const char *under;
		uint32_t n, all;
	} cases[] = { { "docs", 3, 3 }, { "mds", 3, 4 }, { NULL, 7, 8 } };
	struct dataset *ds;
	struct err err = { 0 };

	put_text(root, "docs/a.json", "{}");
	put_text(root, "docs/b.json", "{}");
	put_text(root, "docs/c.idx", "x");
	ds = kit_open(root, (struct kit_open){ 0 });
	finds(ds, "mds", 25);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		AUTO_FREE uint32_t *sample = NULL, *all = NULL;
		uint32_t n;

		CHECK_INT(dataset_numbering(ds, DATASET_SORT_PATH, cases[i].under, &sample, &n, &err), 0);
		CHECK_U64(n, cases[i].n);
		CHECK_INT(dataset_number_all(ds, DATASET_SORT_PATH, cases[i].under, &all, &n, &err), 0);
		CHECK_U64(n, cases[i].all);
	}
	dataset_free(ds);
}

/* A name alone makes no sidecar: it has to be beside what it describes. */
static void what_describes_nothing_is_a_sample(void)
{
	static const struct {
		const char *path;
		bool is_sidecar;
	} cases[] = {
		{ "mds/index.json", true },
		{ "mds/_SUCCESS", true },
		{ "mds/shard.00000.mds.crc", true },
		{ "mds/.shard.00001.mds.crc", true },
		{ "mds/shard.00002.idx", true },
		{ "mds/shard.00002.json", true },
		{ "mds/notes.json", false },
		{ "mds/shard.json", false },
		{ "mds/shard.idx", false },
		{ "mds/shard.00009.idx", false },
		{ "mds/README.idx", false },
		{ "mds/.idx", false },
		{ "mds/..idx", false },
		{ "mds/.DS_Store", false },
		{ "mds/deep/index.json", false },
		{ "mds/deep/shard.00000.idx", false },
		{ "docs/index.json", false },
		{ "docs/_metadata", false },
		{ "docs/shard.00000.mds.idx", false },
		{ "index.json", false },
	};
	AUTO_FREE char *root = mds_tree("sidecars_alone");
	AUTO_FREE uint32_t *sample = NULL;
	struct dataset *ds;
	struct err err = { 0 };
	uint32_t n, n_left = 0;

	for (size_t i = 1; i < ARRAY_LEN(cases); i++)
		put_text(root, cases[i].path, "{}");
	put_text(root, "mds/README", "no container");
	ds = kit_open(root, (struct kit_open){ 0 });
	finds(ds, "mds", 25);
	CHECK_INT(dataset_numbering(ds, DATASET_SORT_PATH, NULL, &sample, &n, &err), 0);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		bool is_there = false;

		for (uint32_t k = 0; k < n; k++)
			is_there |= sample[k] == kit_find(ds, cases[i].path).v;
		if (is_there == cases[i].is_sidecar)
			printf("# %s\n", cases[i].path);
		CHECK_INT(is_there, !cases[i].is_sidecar);
		n_left += cases[i].is_sidecar;
	}
	CHECK_U64(n, dataset_n_samples(ds) - n_left);
	dataset_free(ds);
}

static struct dataset *opened(const char *root, const char *dir)
{
	return kit_open(root, (struct kit_open){ .snapshot_dir = dir });
}

static int keep(const struct dataset *ds, const char *root, const char *dir, struct err *err)
{
	struct dataset_params params = { .source = root, .snapshot_dir = dir };

	*err = (struct err){ 0 };
	return dataset_keep_records(ds, &params, err);
}

/* A source with its table kept. */
static void make_kept(const char *root, const char *dir)
{
	struct dataset *ds = opened(root, dir);
	struct err err;

	finds(ds, "auto", 25);
	CHECK_INT(keep(ds, root, dir, &err), 0);
	dataset_free(ds);
}

static void a_kept_table_is_there_when_opened_again(void)
{
	AUTO_FREE char *root = mds_tree("kept"), *dir = check_tmpfile("kept_snapshots");
	struct dataset *ds = opened(root, dir), *again;
	AUTO_FREE char *samples = kit_samples(ds), *records = NULL;
	struct err err;

	finds(ds, "auto", 25);
	records = all_records(ds);
	CHECK_INT(keep(ds, root, dir, &err), 0);
	again = opened(root, dir);
	{
		AUTO_FREE char *same = kit_samples(again), *same_records = all_records(again);

		/* Files have the numbers and attributes that they had: nothing else changes. */
		CHECK(kit_stats(again).from_snapshot && kit_stats(again).dirs_scanned == 0);
		CHECK(dataset_has_records(again));
		CHECK_STR(same, samples);
		CHECK_STR(same_records, records);
		CHECK_U64(dataset_sample_bytes(again), dataset_sample_bytes(ds));
	}
	dataset_drop_records(again);
	CHECK_INT(keep(again, root, dir, &err), 0);
	dataset_free(again);
	again = opened(root, dir);
	CHECK(kit_stats(again).from_snapshot && !dataset_has_records(again));
	dataset_free(again);
	dataset_free(ds);
}

static void a_table_lives_on_with_other_files(void)
{
	AUTO_FREE char *root = mds_tree("lives"), *dir = check_tmpfile("lives_snapshots");
	AUTO_FREE char *records = NULL, *after = NULL;
	struct dataset *ds;

	make_kept(root, dir);
	ds = opened(root, dir);
	records = all_records(ds);
	dataset_free(ds);
	/* All numbers of entries move. */
	kit_file(root, "a/0", 1);
	kit_file(root, "a/1", 1);
	stamp(root, ".");
	ds = opened(root, dir);
	CHECK(kit_has(ds, "a/0"));
	after = all_records(ds);
	CHECK_STR(after, records);
	dataset_free(ds);
	/* And it was written so. */
	ds = opened(root, dir);
	CHECK(kit_stats(ds).from_snapshot && kit_stats(ds).dirs_scanned == 0);
	free(after);
	after = all_records(ds);
	CHECK_STR(after, records);
	dataset_free(ds);
	/* In another layout, too: there all these are no samples. */
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir, .layout = LAYOUT_IMAGEFOLDER });
	CHECK_U64(dataset_n_samples(ds), 0);
	free(after);
	after = all_records(ds);
	CHECK_STR(after, records);
	dataset_free(ds);
}

static void drops_with_a_word(const char *root, const char *dir)
{
	AUTO_FREE char *log = NULL;
	int saved = kit_log_begin();
	struct dataset *ds = opened(root, dir);

	log = kit_log_end(saved);
	CHECK_CONTAINS(log, "the table of records of ");
	CHECK_CONTAINS(log, "a file of it was changed or is gone");
	CHECK(!dataset_has_records(ds));
	CHECK_U64(dataset_n_records(ds), dataset_n_samples(ds));
	dataset_free(ds);
}

static void a_table_ends_with_its_files(void)
{
	AUTO_FREE char *root = mds_tree("ends"), *dir = check_tmpfile("ends_snapshots");

	make_kept(root, dir);
	/* Replaced, which its directory shows: the size is the same. */
	kit_remove(root, "mds/shard.00001.mds");
	kit_file(root, "mds/new", 5);
	put(root, "mds/shard.00001.mds", "mds/shard.00001.mds", 0);
	stamp(root, "mds/shard.00001.mds");
	stamp(root, "mds");
	drops_with_a_word(root, dir);
	make_kept(root, dir);
	kit_remove(root, "mds/shard.00002.mds");
	stamp(root, "mds");
	drops_with_a_word(root, dir);
}

static void a_file_changed_in_place_is_learned_with_its_records(void)
{
	AUTO_FREE char *root = mds_tree("place"), *dir = check_tmpfile("place_snapshots");
	struct dataset *ds;
	struct err err;

	dataset_free(opened(root, dir));
	/* Times that the snapshot does not have; the directory stays as it is. */
	stamp(root, "mds/shard.00000.mds");
	ds = opened(root, dir);
	finds(ds, "auto", 25);
	CHECK_INT(keep(ds, root, dir, &err), 0);
	dataset_free(ds);
	kit_file(root, "other", 1);
	stamp(root, ".");
	ds = opened(root, dir);
	CHECK(kit_has(ds, "other"));
	CHECK(dataset_has_records(ds));
	dataset_free(ds);
}

static void a_table_is_kept_with_its_own_index_only(void)
{
	AUTO_FREE char *root = mds_tree("own"), *dir = check_tmpfile("own_snapshots");
	AUTO_FREE char *none = check_tmpfile("none_snapshots");
	struct dataset *ds = opened(root, dir), *later;
	struct err err;

	finds(ds, "auto", 25);
	CHECK_INT(keep(ds, root, none, &err), -ENOENT);
	CHECK_CONTAINS(err.msg, "there is no index of it yet");
	CHECK_INT(keep(ds, root, NULL, &err), -ENOENT);
	kit_file(root, "later", 1);
	stamp(root, ".");
	later = opened(root, dir);
	CHECK_INT(keep(ds, root, dir, &err), -ESTALE);
	CHECK_CONTAINS(err.msg, "the source has changed meanwhile");
	dataset_free(later);
	dataset_free(ds);
}

static int import(struct dataset *ds, const char *root, const char *name, const char *text,
		  struct err *err)
{
	struct dataset_import *import;
	int rc;

	*err = (struct err){ 0 };
	CHECK_INT(dataset_import_new(ds, root, &import, err), 0);
	rc = dataset_import_add(import, name, text, strlen(text), err);
	if (rc == 0)
		rc = dataset_import_finish(import, ds, err);
	dataset_import_free(import);
	return rc;
}

static void imports(struct dataset *ds, const char *root, const char *name, const char *text,
		    const char *wanted)
{
	struct err err;
	int rc = import(ds, root, name, text, &err);
	AUTO_FREE char *records = NULL;

	CHECK_STR(err.msg, "");
	CHECK_INT(rc, 0);
	records = all_records(ds);
	CHECK_STR(records, wanted);
}

static void lists_number_as_they_stand(void)
{
	AUTO_FREE char *root = kit_tree("lists", PATHS("a b.bin", "c/d.bin", "c/x.tfrecord"));
	AUTO_FREE char *absolute = NULL, *references = NULL;
	struct dataset *ds;

	kit_file(root, "a b.bin", 100);
	kit_file(root, "c/d.bin", 50);
	kit_file(root, "c/x.tfrecord", 40);
	ds = kit_open(root, (struct kit_open){ 0 });
	imports(ds, root, "l", "c/d.bin 40 10\na b.bin 50 50\r\n\n# c\n./a b.bin\t0\t20\nc/d.bin 0 7\n",
		"c/d.bin 40 10\na b.bin 50 50\na b.bin 0 20\nc/d.bin 0 7\n");
	/* To and fro within a file, with others in between. */
	imports(ds, root, "l", "c/d.bin 0 10\nc/d.bin 20 10\nc/d.bin 10 10\nc/d.bin 40 1\nc/d.bin 30 1\n",
		"c/d.bin 0 10\nc/d.bin 20 10\nc/d.bin 10 10\nc/d.bin 40 1\nc/d.bin 30 1\n");
	CHECK(asprintf(&absolute, "%s/c/d.bin 1 2\n", root) > 0);
	imports(ds, root, "l", absolute, "c/d.bin 1 2\n");
	imports(ds, root, "/somewhere/x.idx", "0 30\n30 10\n", "c/x.tfrecord 0 30\nc/x.tfrecord 30 10\n");
	imports(ds, root, "x.tfrecord.idx", "0 30\n", "c/x.tfrecord 0 30\n");
	imports(ds, root, "a b.idx", "v1.2 2\njpg 0 10 n.jpg cls 12 3 n.cls\njpg 15 5 m.jpg\n",
		"a b.bin 0 15\na b.bin 15 5\n");
	CHECK(asprintf(&references,
		       "{\"version\": 1, \"templates\": {\"u\": \"file://%s\"}, \"refs\": {\".zgroup\": \"{}\", "
		       "\"x/10\": [\"{{u}}/c/d.bin\", 20, 5], \"x/2\": [\"c/d.bin\", 10, 10]}}",
		       root) > 0);
	imports(ds, root, "r.json", references, "c/d.bin 10 10\nc/d.bin 20 5\n");
	dataset_free(ds);
}

static void lists_are_compared_with_the_source(void)
{
	static const struct {
		const char *name, *text;
		int error;
		const char *part;
	} cases[] = {
		{ "l", "c/d.bin 0 10\nc/none 0 1\n", -ENOENT, "line 2: the source has no file c/none" },
		{ "l", "c 0 1\n", -ENOENT, "line 1: the source has no file c" },
		{ "l", "../c/d.bin 0 1\n", -ENOENT, "the source has no file ../c/d.bin" },
		{ "l", "/etc/passwd 0 1\n", -ENOENT, "the source has no file /etc/passwd" },
		{ "l", "c/d.bin 0 51\n", -EBADMSG, "line 1: 51 bytes at 0 are not in the file" },
		{ "l", "c/d.bin 18446744073709551615 1\n", -EBADMSG, "are not in the file" },
		{ "l", "c/d.bin 1 18446744073709551615\n", -EBADMSG, "are not in the file" },
		{ "l", "c/d.bin 1 0\n", -EBADMSG, "are not in the file" },
		{ "l", "c/d.bin 0 10\nc/d.bin 9 10\n", -EBADMSG, "c/d.bin: records overlap" },
		{ "l", "", -ENODATA, "there are no records" },
		{ "y.idx", "0 1\n", -ENOENT, "the source has no file y" },
		{ "e.idx", "0 1\n", -EBADMSG, "several files" },
		{ "l", "{\"x/0\": [\"c/none\", 0, 1]}", -ENOENT, "reference x/0: the source has no" },
	};
	AUTO_FREE char *root = kit_tree("compared", PATHS("c/d.bin", "c/e.bin", "f/e.bin"));
	struct dataset *ds;

	kit_file(root, "c/d.bin", 50);
	ds = kit_open(root, (struct kit_open){ 0 });
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err err;

		CHECK_INT(import(ds, root, cases[i].name, cases[i].text, &err), cases[i].error);
		CHECK_CONTAINS(err.msg, cases[i].part);
		CHECK(!dataset_has_records(ds));
	}
	dataset_free(ds);
}

static const struct check_test tests[] = {
	{ "without_a_table_records_are_samples", without_a_table_records_are_samples },
	{ "shards_come_in_the_order_of_their_index", shards_come_in_the_order_of_their_index },
	{ "each_format_is_found_where_it_lies", each_format_is_found_where_it_lies },
	{ "alike_records_cost_nothing_each", alike_records_cost_nothing_each },
	{ "files_of_other_names_are_taken_if_there_are_no_better_ones",
	  files_of_other_names_are_taken_if_there_are_no_better_ones },
	{ "records_that_overlap_cost_their_file_only", records_that_overlap_cost_their_file_only },
	{ "runs_are_the_files_in_the_order_of_their_records",
	  runs_are_the_files_in_the_order_of_their_records },
	{ "sidecars_are_numbered_by_nobody", sidecars_are_numbered_by_nobody },
	{ "what_describes_nothing_is_a_sample", what_describes_nothing_is_a_sample },
	{ "a_part_without_records_has_all_its_files", a_part_without_records_has_all_its_files },
	{ "a_damaged_container_is_one_sample_or_the_end",
	  a_damaged_container_is_one_sample_or_the_end },
	{ "a_kept_table_is_there_when_opened_again", a_kept_table_is_there_when_opened_again },
	{ "a_table_lives_on_with_other_files", a_table_lives_on_with_other_files },
	{ "a_table_ends_with_its_files", a_table_ends_with_its_files },
	{ "a_file_changed_in_place_is_learned_with_its_records",
	  a_file_changed_in_place_is_learned_with_its_records },
	{ "a_table_is_kept_with_its_own_index_only", a_table_is_kept_with_its_own_index_only },
	{ "lists_number_as_they_stand", lists_number_as_they_stand },
	{ "lists_are_compared_with_the_source", lists_are_compared_with_the_source },
};
CHECK_MAIN(tests)
