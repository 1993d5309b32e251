/* SPDX-License-Identifier: Apache-2.0 */
/* Looking into a store from outside: what is in it, whether it is right, and what may be removed.
 * Segments are made by hand, as FORMAT.md says. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/tier/store.h"
#include "store_kit.h"

static void write_segment(const char *dir, uint64_t number, uint32_t first, unsigned n,
			  bool is_sealed)
{
	struct kit_record records[8] = { 0 };
	struct kit_image image;

	CHECK(n <= 8);
	for (unsigned i = 0; i < n; i++)
		records[i].file = (struct kit_file){ 1, first + i };
	kit_image_make(&image, number, records, n, is_sealed);
	kit_image_write(&image, dir);
	free(image.bytes);
}

static struct store_look *look_into(const char *dir)
{
	struct store_look *look;

	CHECK_INT(store_look_open(dir, &look, NULL), 0);
	return look;
}

static int refused(const char *dir, struct err *err)
{
	struct store_look *look;

	return store_look_open(dir, &look, err);
}

static void what_is_no_store(void)
{
	const char *dir = kit_dir("none");
	struct err err = { 0 };
	char path[600];
	FILE *f;

	CHECK_INT(refused("/nowhere/at/all", &err), -ENOENT);
	CHECK_INT(refused(dir, &err), -ENOENT);
	CHECK_CONTAINS(err.msg, "no store of clairfs");
	snprintf(path, sizeof(path), "%s/clairfs-store", dir);
	fclose(fopen(path, "we"));
	store_look_close(look_into(dir)); /* one that is just being made */
	f = fopen(path, "we");
	CHECK(f && fputs("some other program\n", f) > 0 && fclose(f) == 0);
	CHECK_INT(refused(dir, &err), -ENOENT);
	CHECK_CONTAINS(err.msg, "something else");
	store_look_close(NULL);
}

static void a_directory_that_others_may_write(void)
{
	const char *dir = kit_dir("open");
	struct err err = { 0 };

	write_segment(dir, 1, 0, 1, true);
	CHECK(chmod(dir, 0770) == 0);
	CHECK_INT(refused(dir, &err), -EPERM);
	CHECK_CONTAINS(err.msg, "chmod");
	CHECK(chmod(dir, 0700) == 0);
	store_look_close(look_into(dir));
}

static void segments_by_their_numbers(void)
{
	const char *dir = kit_dir("several");
	struct store_look *look;
	const struct store_segment_info *info;

	write_segment(dir, 30, 0, 3, true);
	write_segment(dir, 4, 3, 2, true);
	write_segment(dir, 200, 5, 2, false);
	look = look_into(dir);
	CHECK_U64(store_look_count(look), 3);
	info = store_look_segment(look, 0);
	CHECK_INT(info->state, STORE_SEGMENT_SEALED);
	CHECK_U64(info->records, 2);
	CHECK(!info->is_in_use && info->bytes > 0 && info->record_bytes > 0);
	CHECK_U64(info->fsid, KIT_FSID);
	info = store_look_segment(look, 1);
	CHECK_INT(info->state, STORE_SEGMENT_SEALED);
	CHECK_U64(info->records, 3);
	info = store_look_segment(look, 2);
	CHECK_INT(info->state, STORE_SEGMENT_UNSEALED); /* as a killed daemon leaves it */
	CHECK_U64(info->records, 0);
	for (size_t i = 1; i < 3; i++)
		CHECK(strcmp(store_look_segment(look, i - 1)->name,
			     store_look_segment(look, i)->name) < 0);
	store_look_close(look);
}

static void count_progress(void *ctx, const struct store_look_check *check)
{
	uint64_t *calls = ctx;

	CHECK(check->records + check->bad <= 8);
	++*calls;
}

static void records_that_are_right(void)
{
	const char *dir = kit_dir("right");
	uint64_t calls = 0;
	struct store_look_check check = { .progress = count_progress, .ctx = &calls };
	struct store_look *look;

	write_segment(dir, 1, 0, 4, true);
	write_segment(dir, 2, 4, 3, false);
	look = look_into(dir);
	CHECK_INT(store_look_verify(look, 0, &check), 0);
	CHECK_U64(check.records, 4);
	CHECK_U64(check.bad, 0);
	CHECK(check.bytes > 0 && calls >= 4);
	CHECK_INT(store_look_verify(look, 1, &check), 0); /* found by its seals; added to */
	CHECK_U64(check.records, 7);
	CHECK_U64(check.bad, 0);
	store_look_close(look);
}

static void flip_byte(const char *dir, const char *name, off_t at)
{
	char path[700];
	uint8_t byte = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
	byte ^= 0x40;
	CHECK(pwrite(fd, &byte, 1, at) == 1);
	close(fd);
}

static void a_record_that_is_wrong_is_counted(void)
{
	const char *dir = kit_dir("wrong");
	struct store_look_check check = { 0 };
	struct store_look *look;

	write_segment(dir, 1, 0, 4, true);
	look = look_into(dir);
	flip_byte(dir, store_look_segment(look, 0)->name, KIT_BLOCK); /* of the first payload */
	CHECK_INT(store_look_verify(look, 0, &check), 0);
	CHECK_U64(check.bad, 1);
	CHECK_U64(check.records, 4);
	store_look_close(look);
}

static void a_header_that_is_wrong(void)
{
	const char *dir = kit_dir("header");
	struct store_look_check check = { 0 };
	struct store_look *look;

	write_segment(dir, 1, 0, 2, true);
	look = look_into(dir);
	flip_byte(dir, store_look_segment(look, 0)->name, 10);
	store_look_close(look);
	look = look_into(dir);
	CHECK_INT(store_look_segment(look, 0)->state, STORE_SEGMENT_DAMAGED);
	CHECK_INT(store_look_verify(look, 0, &check), -EBADMSG);
	CHECK_INT(store_look_remove(look, 0), 0);
	store_look_close(look);
	look = look_into(dir);
	CHECK_U64(store_look_count(look), 0);
	store_look_close(look);
}

static void what_a_daemon_uses_stays(void)
{
	const char *dir = kit_dir("used");
	struct store_look *look;
	char path[700];
	int fd;

	write_segment(dir, 1, 0, 2, true);
	look = look_into(dir);
	snprintf(path, sizeof(path), "%s/%s", dir, store_look_segment(look, 0)->name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && flock(fd, LOCK_SH) == 0);
	CHECK_INT(store_look_remove(look, 0), -EBUSY);
	CHECK(access(path, F_OK) == 0);
	store_look_close(look);
	look = look_into(dir);
	CHECK(store_look_segment(look, 0)->is_in_use);
	close(fd);
	CHECK_INT(store_look_remove(look, 0), 0);
	CHECK(access(path, F_OK) < 0);
	CHECK_INT(store_look_remove(look, 0), 0); /* gone already */
	store_look_close(look);
}

static void what_was_removed_meanwhile(void)
{
	const char *dir = kit_dir("gone");
	struct store_look_check check = { 0 };
	struct store_look *look;
	char path[700];

	write_segment(dir, 1, 0, 2, true);
	look = look_into(dir);
	snprintf(path, sizeof(path), "%s/%s", dir, store_look_segment(look, 0)->name);
	CHECK(unlink(path) == 0);
	CHECK_INT(store_look_verify(look, 0, &check), -ENOENT);
	CHECK_U64(check.records, 0);
	store_look_close(look);
}

/* A link of that name may lead anywhere. */
static void what_is_no_segment_is_never_removed(void)
{
	const char *dir = kit_dir("links");
	AUTO_FREE char *target = check_write_file("precious", "data", 4);
	struct store_look *look;
	char path[700];

	write_segment(dir, 1, 0, 1, true);
	look = look_into(dir);
	snprintf(path, sizeof(path), "%s/%s", dir, store_look_segment(look, 0)->name);
	store_look_close(look);
	CHECK(unlink(path) == 0 && symlink(target, path) == 0);
	look = look_into(dir);
	CHECK_U64(store_look_count(look), 1);
	CHECK_INT(store_look_segment(look, 0)->state, STORE_SEGMENT_REFUSED);
	CHECK_INT(store_look_remove(look, 0), -EPERM);
	CHECK(access(target, F_OK) == 0);
	store_look_close(look);
}

/* Next to a store that is open and writes. */
static void a_store_at_work(void)
{
	const char *dir = kit_dir("work");
	struct store_params params = kit_params(dir);
	struct store *store = kit_open(&params);
	struct store_look *look;
	size_t n;

	CHECK_INT(kit_put_file(store, (struct kit_file){ 1, 0 }), 0);
	look = look_into(dir);
	n = store_look_count(look);
	CHECK(n > 0);
	for (size_t i = 0; i < n; i++) {
		struct store_look_check check = { 0 };

		CHECK_INT(store_look_segment(look, i)->state, STORE_SEGMENT_WRITTEN);
		CHECK_INT(store_look_verify(look, i, &check), -EAGAIN);
		CHECK_INT(store_look_remove(look, i), -EBUSY);
	}
	store_look_close(look);
	CHECK_INT(kit_get(store, (struct kit_file){ 1, 0 }, 0), 0);
	store_close(store);
}

static const struct check_test tests[] = {
	{ "what_is_no_store", what_is_no_store },
	{ "a_directory_that_others_may_write", a_directory_that_others_may_write },
	{ "segments_by_their_numbers", segments_by_their_numbers },
	{ "records_that_are_right", records_that_are_right },
	{ "a_record_that_is_wrong_is_counted", a_record_that_is_wrong_is_counted },
	{ "a_header_that_is_wrong", a_header_that_is_wrong },
	{ "what_a_daemon_uses_stays", what_a_daemon_uses_stays },
	{ "what_was_removed_meanwhile", what_was_removed_meanwhile },
	{ "what_is_no_segment_is_never_removed", what_is_no_segment_is_never_removed },
	{ "a_store_at_work", a_store_at_work },
};

CHECK_MAIN(tests)
