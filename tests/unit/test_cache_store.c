/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store below the cache: reads come from it when it has this very version, and whatever is
 * wrong with it costs a read of the source and nothing else.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cache_rig.h"

#define SIZE 50000u

static struct rig *new_rig(void)
{
	return rig_new(&(struct rig_options){ .n = 4, .size = SIZE, .has_store = true });
}

static void put(struct rig *rig, uint32_t file, const struct file_identity *identity)
{
	struct piece_key key = { rig_entry(rig, file), 0 };
	uint8_t *bytes = aligned_alloc(4096, ALIGN_UP(SIZE, 4096u));

	rig_fill(bytes, file, 0, 0, SIZE);
	CHECK_INT(store_put(rig->store, key, identity, bytes, SIZE), 0);
	free(bytes);
}

static void put_current(struct rig *rig, uint32_t file)
{
	struct file_identity id;

	dataset_identity(rig->dataset, rig_entry(rig, file), &id);
	put(rig, file, &id);
}

/* Turns one bit of everything that the store has written so far. */
static uint32_t flip_bits(struct rig *rig)
{
	DIR *fds = opendir("/proc/self/fd");
	const struct dirent *de;
	uint32_t n = 0;

	CHECK(fds != NULL);
	while ((de = readdir(fds))) {
		AUTO_FREE char *link = NULL;
		char target[4096];
		AUTO_FD int fd = -1;
		ssize_t len;

		CHECK(asprintf(&link, "/proc/self/fd/%s", de->d_name) > 0);
		len = readlink(link, target, sizeof(target) - 1);
		if (len <= 0)
			continue;
		target[len] = 0;
		if (!strstr(target, rig->dir) || !strstr(target, "(deleted)"))
			continue;
		fd = open(link, O_RDWR);
		for (off_t at = 8192 + 100; fd >= 0 && at < 60 * 4096; at += 4096) {
			uint8_t byte;

			if (pread(fd, &byte, 1, at) != 1)
				break;
			byte ^= 4;
			n += pwrite(fd, &byte, 1, at) == 1;
		}
	}
	closedir(fds);
	return n;
}

static void kept_piece_is_read_from_the_store(void)
{
	struct rig *rig = new_rig();

	put_current(rig, 0);
	CHECK_INT(rig_read_check(rig, 0, 1000, 20000), READ_STORE);
	CHECK_INT(rig_read_check(rig, 0, 1000, 20000), READ_ARENA);
	CHECK_INT(rig_read_check(rig, 1, 0, 20000), READ_MISS);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 1);
	rig_free(rig);
}

static void flipped_bit_costs_a_read_of_the_source(void)
{
	struct rig *rig = new_rig();
	struct file_identity id;

	put_current(rig, 0);
	dataset_identity(rig->dataset, rig_entry(rig, 0), &id);
	CHECK(flip_bits(rig) > 0);
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_MISS);
	CHECK(rig_metric(rig, METRIC_STORE_ERRORS) >= 1);
	CHECK(!store_has(rig->store, (struct piece_key){ rig_entry(rig, 0), 0 }, &id));
	CHECK_U64(rig_metric(rig, METRIC_READ_ERRORS), 0);
	rig_free(rig);
}

static void piece_of_another_version_is_not_asked_for(void)
{
	struct rig *rig = new_rig();
	struct file_identity id;

	dataset_identity(rig->dataset, rig_entry(rig, 0), &id);
	id.mtime_ns--;
	put(rig, 0, &id);
	rig_replace(rig, 0, SIZE);
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_MISS);
	CHECK_U64(rig_metric(rig, METRIC_STORE_READS), 0);
	rig_free(rig);
}

static void changed_file_is_forgotten(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 4, .size = SIZE, .has_store = true, .revalidate_ns = NS_PER_MS });
	struct file_identity id;

	put_current(rig, 0);
	dataset_identity(rig->dataset, rig_entry(rig, 0), &id);
	rig_read_check(rig, 0, 0, SIZE);
	rig_replace(rig, 0, SIZE);
	RIG_UNTIL(!store_has(rig->store, (struct piece_key){ rig_entry(rig, 0), 0 }, &id));
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_MISS);
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "kept_piece_is_read_from_the_store", kept_piece_is_read_from_the_store },
	{ "flipped_bit_costs_a_read_of_the_source", flipped_bit_costs_a_read_of_the_source },
	{ "piece_of_another_version_is_not_asked_for", piece_of_another_version_is_not_asked_for },
	{ "changed_file_is_forgotten", changed_file_is_forgotten },
};
CHECK_MAIN(tests)
