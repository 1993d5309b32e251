/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A damaged snapshot: each byte changed, each length cut, and, with the checksum made right again,
 * each byte changed once more, where only the check of the structure is left. And a snapshot that
 * cannot be written.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "dataset_kit.h"
#include "src/dataset/dataset_priv.h"

#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })

struct bytes {
	uint8_t *data;
	size_t size;
};

/* The snapshot of a small tree, as it lies on the disk, and its path. */
static struct bytes make_bytes(const char *root, const char *dir, char **ret_path)
{
	AUTO_FREE char *command = NULL;
	struct bytes b = { 0 };
	size_t line_size = 0;
	struct stat st;
	FILE *f;

	*ret_path = NULL;
	dataset_free(kit_open(root, (struct kit_open){ .snapshot_dir = dir }));
	CHECK(asprintf(&command, "ls '%s'/*.snapshot", dir) > 0);
	f = popen(command, "r");
	CHECK(f && getline(ret_path, &line_size, f) > 0);
	pclose(f);
	(*ret_path)[strcspn(*ret_path, "\n")] = '\0';
	CHECK_INT(stat(*ret_path, &st), 0);
	b.size = (size_t)st.st_size;
	b.data = malloc(b.size);
	f = fopen(*ret_path, "r");
	CHECK(f && b.data && fread(b.data, 1, b.size, f) == b.size);
	fclose(f);
	return b;
}

static void put_bytes(const char *path, const uint8_t *data, size_t size)
{
	AUTO_FILE FILE *f = fopen(path, "w");

	CHECK(f);
	CHECK(fwrite(data, 1, size, f) == size);
}

static int parse_copy(const uint8_t *data, size_t size, struct snapshot *ret)
{
	uint8_t *copy = malloc(size + 1);

	CHECK(copy);
	memcpy(copy, data, size);
	return snapshot_parse(copy, size, NULL, ret);
}

static char *small_tree(const char *name)
{
	return kit_tree(name, PATHS("a/1.jpg", "a/b/2.jpg", "c/3.jpg", "d/", "top.txt"));
}

static void any_changed_byte_is_found(void)
{
	AUTO_FREE char *root = small_tree("bytes");
	AUTO_FREE char *dir = check_tmpfile("bytes_snapshots");
	AUTO_FREE char *path = NULL;
	struct bytes b = make_bytes(root, dir, &path);
	struct snapshot snap;

	CHECK_INT(parse_copy(b.data, b.size, &snap), 0);
	table_fini(&snap.t);
	for (size_t i = 0; i < b.size; i++) {
		for (int bit = 0; bit < 8; bit++) {
			b.data[i] ^= (uint8_t)(1 << bit);
			CHECK_INT(parse_copy(b.data, b.size, &snap), -EBADMSG);
			b.data[i] ^= (uint8_t)(1 << bit);
		}
	}
	free(b.data);
}

static void any_other_length_is_found(void)
{
	AUTO_FREE char *root = small_tree("lengths");
	AUTO_FREE char *dir = check_tmpfile("lengths_snapshots");
	AUTO_FREE char *path = NULL;
	struct bytes b = make_bytes(root, dir, &path);
	AUTO_FREE uint8_t *longer = calloc(1, b.size + 64);
	struct snapshot snap;

	for (size_t i = 0; i < b.size; i++)
		CHECK_INT(parse_copy(b.data, i, &snap), -EBADMSG);
	memcpy(longer, b.data, b.size);
	for (size_t i = 1; i <= 64; i++)
		CHECK_INT(parse_copy(longer, b.size + i, &snap), -EBADMSG);
	free(b.data);
}

/* The whole way: file, warning, scan, right answer, good snapshot again. */
static void a_damaged_file_means_a_scan(void)
{
	AUTO_FREE char *root = small_tree("whole");
	AUTO_FREE char *dir = check_tmpfile("whole_snapshots");
	AUTO_FREE char *path = NULL;
	struct bytes b = make_bytes(root, dir, &path);
	struct dataset *ds;

	for (size_t i = 0; i < b.size; i += 7) {
		AUTO_FREE char *log = NULL;
		int saved;

		b.data[i] ^= 0x55;
		put_bytes(path, b.data, i % 2 ? b.size : i);
		b.data[i] ^= 0x55;
		saved = kit_log_begin();
		ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
		log = kit_log_end(saved);
		CHECK_CONTAINS(log, "damaged or of another version");
		CHECK(!kit_stats(ds).from_snapshot);
		CHECK_INT(dataset_n_samples(ds), 3);
		CHECK_INT(dataset_n_entries(ds), 8);
		dataset_free(ds);
		ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
		CHECK(kit_stats(ds).from_snapshot);
		dataset_free(ds);
	}
	free(b.data);
}

/* Uses everything that an index number leads to. */
static void use_all(struct snapshot *snap)
{
	struct dataset *ds = NULL;
	char path[PATH_MAX];
	struct stat st;
	size_t len;

	CHECK_INT(dataset_of_snapshot(snap, -1, &ds), 0);
	for (uint32_t i = 0; i < dataset_n_entries(ds); i++) {
		struct entry_id e = { i };
		const char *name = dataset_name(ds, e, &len);

		CHECK(entry_eq(dataset_lookup(ds, dataset_parent(ds, e), name, len), e));
		CHECK(dataset_path(ds, e, path, sizeof(path)) <= 0);
		dataset_stat(ds, e, &st);
		CHECK(S_ISDIR(st.st_mode) == (dataset_kind(ds, e) == ENTRY_KIND_DIR));
	}
	dataset_free(ds);
}

static void wrong_structure_with_a_right_checksum_is_safe(void)
{
	AUTO_FREE char *root = small_tree("structure");
	AUTO_FREE char *dir = check_tmpfile("structure_snapshots");
	AUTO_FREE char *path = NULL;
	struct bytes b = make_bytes(root, dir, &path);
	struct snapshot snap;
	unsigned accepted = 0, refused = 0;

	for (size_t i = 16; i < b.size; i++) {
		static const uint8_t changes[] = { 0x01, 0x02, 0x04, 0x08, 0x10, 0x80, 0xff };
		uint8_t kept = b.data[i];

		for (size_t k = 0; k < ARRAY_LEN(changes); k++) {
			uint64_t sum;

			b.data[i] = kept ^ changes[k];
			sum = XXH3_64bits(b.data + 16, b.size - 16);
			memcpy(b.data + 8, &sum, 8);
			if (parse_copy(b.data, b.size, &snap) == 0) {
				accepted++;
				use_all(&snap);
			} else {
				refused++;
			}
		}
		b.data[i] = kept;
	}
	/* Attributes may be anything; numbers and names may not. */
	CHECK(accepted > 500 && refused > 500);
	free(b.data);
}

/* x/y: x below y and y below x, each in the other's list, neither reachable from the root. */
static void directories_in_each_other_are_refused(void)
{
	AUTO_FREE char *root = kit_tree("cycle", PATHS("x/y/"));
	AUTO_FREE char *dir = check_tmpfile("cycle_snapshots");
	AUTO_FREE char *path = NULL;
	struct bytes b = make_bytes(root, dir, &path);
	struct snapshot snap;

	CHECK_INT(parse_copy(b.data, b.size, &snap), 0);
	CHECK(table_is_valid(&snap.t));
	snap.t.parent[0] = 1;
	CHECK(!table_is_valid(&snap.t));
	snap.t.dir_first[2] = 2;
	CHECK(!table_is_valid(&snap.t));
	table_fini(&snap.t);
	free(b.data);
}

/* The file may not grow beyond a few bytes, as on a full disk. */
static void a_snapshot_that_cannot_be_written_is_a_warning(void)
{
	AUTO_FREE char *root = small_tree("full");
	AUTO_FREE char *dir = check_tmpfile("full_snapshots");
	AUTO_FREE char *log = NULL, *command = NULL;
	struct rlimit before, small;
	struct dataset *ds;
	int saved;

	dataset_free(kit_open(root, (struct kit_open){ .snapshot_dir = dir, .is_fresh = true }));
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){ .rlim_cur = 300, .rlim_max = before.rlim_max };
	saved = kit_log_begin();
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
	log = kit_log_end(saved);
	CHECK_CONTAINS(log, "could not be written");
	CHECK_INT(dataset_n_samples(ds), 3);
	dataset_free(ds);
	/* The old one is still there and good, and nothing half-written is. */
	CHECK(asprintf(&command, "test \"$(ls '%s' | wc -l)\" = 1", dir) > 0);
	CHECK_INT(system(command), 0);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK(kit_stats(ds).from_snapshot);
	dataset_free(ds);
}

static const struct check_test tests[] = {
	{ "any_changed_byte_is_found", any_changed_byte_is_found },
	{ "any_other_length_is_found", any_other_length_is_found },
	{ "a_damaged_file_means_a_scan", a_damaged_file_means_a_scan },
	{ "wrong_structure_with_a_right_checksum_is_safe",
	  wrong_structure_with_a_right_checksum_is_safe },
	{ "directories_in_each_other_are_refused", directories_in_each_other_are_refused },
	{ "a_snapshot_that_cannot_be_written_is_a_warning",
	  a_snapshot_that_cannot_be_written_is_a_warning },
};
CHECK_MAIN(tests)
