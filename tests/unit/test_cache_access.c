/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache whose files others see: what goes with the bytes of a file that was closed to somebody,
 * that the kernel forgets its attributes before and its pages after the answer, files that leave
 * the source, directories. And that nothing of it is there when nobody else sees the files.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_rig.h"
#include "src/cache/cache_priv.h"

static struct rig *shared_rig(uint32_t n, uint64_t revalidate_ns)
{
	CHECK_INT(chmod(check_tmpdir(), 0755), 0); /* or the source is closed by it */
	return rig_new(&(struct rig_options){
		.n = n, .size = 5000, .is_shared = true, .revalidate_ns = revalidate_ns });
}

static void set_mode(struct rig *rig, uint32_t file, mode_t mode)
{
	AUTO_FREE char *path = rig_path(rig, file);

	CHECK_INT(chmod(path, mode), 0);
}

/* In place of the file, from one moment to the next. */
static void put_symlink(struct rig *rig, uint32_t file, const char *target)
{
	AUTO_FREE char *path = rig_path(rig, file), *spare = NULL;

	CHECK(asprintf(&spare, "%s.new", path) > 0);
	CHECK_INT(symlink(target, spare), 0);
	CHECK_INT(rename(spare, path), 0);
}

static struct cache_rights rights_of_read(struct rig *rig, uint32_t file)
{
	struct rig_read *r = rig_read_start(rig, file, 0, 4096);
	struct cache_rights rights;

	rig_read_wait(r);
	CHECK_INT(r->status, 0);
	rights = r->read.rights;
	rig_read_free(r);
	return rights;
}

/* Through the inode of before; fs says EACCES instead to whom the rights do not let. */
static void check_refused(struct rig *rig, uint32_t file, mode_t mode)
{
	struct rig_read *r = rig_read_start(rig, file, 0, 4096);

	rig_read_wait(r);
	CHECK_INT(r->status, -ESTALE);
	CHECK(r->read.rights.is_narrowed);
	CHECK_INT(r->read.rights.mode, mode);
	rig_read_free(r);
}

static void a_file_closed_before_its_first_read_is_narrowed_until_it_is_open(void)
{
	struct rig *rig = shared_rig(2, 0);
	struct cache_rights rights;
	uint32_t from;

	CHECK(!rights_of_read(rig, 1).is_narrowed);
	set_mode(rig, 0, 0600);
	/* Whoever has it open is refused, whoever opens it again is looked at. */
	check_refused(rig, 0, S_IFREG | 0600);
	rights = rights_of_read(rig, 0);
	CHECK(rights.is_narrowed);
	CHECK_INT(rights.mode, S_IFREG | 0600);
	CHECK_INT(rights.uid, geteuid());
	RIG_UNTIL(rig_find(rig, RIG_INVAL, 0, 0) > rig_find(rig, RIG_ANSWER, 0, 0));
	/* Also from memory, and its pages go after each answer. */
	from = rig_count(rig, RIG_INVAL, 0);
	CHECK(rights_of_read(rig, 0).is_narrowed);
	RIG_UNTIL(rig_count(rig, RIG_INVAL, 0) > from);
	set_mode(rig, 0, 0644);
	cache_fetch_again(rig->cache, (struct unit_id){ 0 });
	CHECK(!rights_of_read(rig, 0).is_narrowed);
	CHECK(!rights_of_read(rig, 1).is_narrowed);
	rig_free(rig);
}

static void a_file_that_leaves_the_source_is_closed_to_all(void)
{
	struct rig *rig = shared_rig(1, 0);
	AUTO_FREE char *outside = check_write_file("outside", "outside", 7);
	struct stat st;

	put_symlink(rig, 0, outside);
	CHECK_INT(rig_read_status(rig, 0, 0, 4096), -EACCES);
	dataset_stat(rig->dataset, (struct entry_id){ 0 }, &st);
	CHECK_INT(st.st_mode, S_IFREG);
	CHECK_INT(rig_read_status(rig, 0, 0, 4096), -EACCES);
	rig_replace(rig, 0, 6000);
	rig_read_check(rig, 0, 0, 4096);
	rig_free(rig);
}

static void revalidation_closes_what_is_in_memory(void)
{
	struct rig *rig = shared_rig(1, 10 * NS_PER_MS);
	struct stat st;

	CHECK(!rights_of_read(rig, 0).is_narrowed);
	set_mode(rig, 0, 0600);
	RIG_UNTIL(rig_find(rig, RIG_INVAL, 0, 0) >= 0);
	dataset_stat(rig->dataset, (struct entry_id){ 0 }, &st);
	CHECK_INT(st.st_mode, S_IFREG | 0600);
	CHECK(rights_of_read(rig, 0).is_narrowed);
	rig_free(rig);
}

static void revalidation_looks_at_directories(void)
{
	struct rig *rig = shared_rig(1, 10 * NS_PER_MS);
	struct entry_id dir = dataset_parent(rig->dataset, (struct entry_id){ 0 });
	AUTO_FREE char *path = NULL;
	struct stat st;

	CHECK(asprintf(&path, "%s/class", rig->dir) > 0);
	CHECK_INT(chmod(path, 0700), 0);
	RIG_UNTIL(rig_find(rig, RIG_ATTR, dir.v, 0) >= 0);
	dataset_stat(rig->dataset, dir, &st);
	CHECK_INT(st.st_mode, S_IFDIR | 0700);
	CHECK_INT(chmod(path, 0755), 0);
	RIG_UNTIL(rig_count(rig, RIG_ATTR, dir.v) >= 2);
	dataset_stat(rig->dataset, dir, &st);
	CHECK_INT(st.st_mode, S_IFDIR | 0755);
	/* The source itself. */
	CHECK_INT(chmod(rig->dir, 0700), 0);
	RIG_UNTIL(rig_find(rig, RIG_ATTR, ENTRY_ROOT.v, 0) >= 0);
	rig_free(rig);
}

static void a_closed_directory_takes_a_new_file_in_it_along(void)
{
	struct rig *rig = shared_rig(1, 0);
	AUTO_FREE char *path = NULL;

	CHECK(asprintf(&path, "%s/class", rig->dir) > 0);
	CHECK(!rights_of_read(rig, 0).is_narrowed);
	CHECK_INT(chmod(path, 0700), 0);
	rig_replace(rig, 0, 6000);
	cache_fetch_again(rig->cache, (struct unit_id){ 0 });
	check_refused(rig, 0, S_IFREG | 0644);
	CHECK(rights_of_read(rig, 0).is_narrowed);
	CHECK_INT(chmod(path, 0755), 0);
	rig_free(rig);
}

static void without_others_nothing_of_it_is_there(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 2, .size = 5000, .revalidate_ns = 10 * NS_PER_MS });
	AUTO_FREE char *outside = check_write_file("outside2", "outside", 7), *path = NULL;
	struct entry_id dir = dataset_parent(rig->dataset, (struct entry_id){ 0 });
	struct rig_read *r;
	unsigned seen;

	CHECK(!rig->cache->narrowed);
	set_mode(rig, 0, 0600);
	CHECK(!rights_of_read(rig, 0).is_narrowed);
	/* One to find the other file, one to read it: and a file read anew is one job. */
	seen = fault_io_seen(rig->io);
	CHECK_INT(seen, 2);
	rig_read_check(rig, 1, 0, 4096);
	CHECK_INT(fault_io_seen(rig->io), seen + 1);
	put_symlink(rig, 1, outside);
	cache_fetch_again(rig->cache, (struct unit_id){ 1 });
	r = rig_read_start(rig, 1, 0, 4096);
	rig_read_wait(r);
	if (r->status == -ESTALE) { /* the READ before was answered, but still counted */
		rig_read_free(r);
		r = rig_read_start(rig, 1, 0, 4096);
		rig_read_wait(r);
	}
	CHECK_INT(r->status, 0);
	CHECK_U64(r->n_bytes, 7);
	rig_read_free(r);
	/* The revalidation, which goes round for the files, leaves directories alone. */
	CHECK(asprintf(&path, "%s/class", rig->dir) > 0);
	CHECK_INT(chmod(path, 0700), 0);
	rig_replace(rig, 0, 7000);
	RIG_UNTIL(dataset_size(rig->dataset, (struct entry_id){ 0 }) == 7000);
	rig_replace(rig, 0, 8000);
	RIG_UNTIL(dataset_size(rig->dataset, (struct entry_id){ 0 }) == 8000);
	CHECK_INT(rig_find(rig, RIG_ATTR, dir.v, 0), -1);
	CHECK_INT(chmod(path, 0755), 0);
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "a_file_closed_before_its_first_read_is_narrowed_until_it_is_open",
	  a_file_closed_before_its_first_read_is_narrowed_until_it_is_open },
	{ "a_file_that_leaves_the_source_is_closed_to_all",
	  a_file_that_leaves_the_source_is_closed_to_all },
	{ "revalidation_closes_what_is_in_memory", revalidation_closes_what_is_in_memory },
	{ "revalidation_looks_at_directories", revalidation_looks_at_directories },
	{ "a_closed_directory_takes_a_new_file_in_it_along",
	  a_closed_directory_takes_a_new_file_in_it_along },
	{ "without_others_nothing_of_it_is_there", without_others_nothing_of_it_is_there },
};

CHECK_MAIN(tests)
