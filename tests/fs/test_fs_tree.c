/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mount shows: the same names, attributes and bytes as the source, whatever the names are;
 * what it refuses; and that an error of the source reaches the reader as it is.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_cache.h"
#include "fs_kit.h"

static void test_the_mount_is_the_source(void)
{
	char lengthy[256];
	static struct kit k;

	kit_init(&k);
	memset(lengthy, 'x', 255);
	lengthy[255] = '\0';
	kit_add_file(&k, "plain", 110 << 10);
	kit_add_file(&k, "empty", 0);
	kit_add_file(&k, "one byte", 1);
	kit_add_file(&k, "page", 4096);
	kit_add_file(&k, "large", (3 << 20) + 17);
	kit_add_file(&k, lengthy, 10);
	kit_add_file(&k, "new\nline\ttab", 5000);
	kit_add_file(&k, "no utf-8 \xff\xfe\x80", 5000);
	kit_add_file(&k, "comma,back\\slash\"quote' $(x) ", 5000);
	kit_add_file(&k, ".hidden/..three/ spaces /deep/er/file", 70000);
	kit_add_file(&k, "\xc3\xa4\xe2\x82\xac/\xf0\x9f\x98\x80", 12);
	kit_mount(&k, NULL);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint),
		  0); /* from the kernel's cache */
	CHECK_INT(kit_child(&k, "statfs", k.source, k.mountpoint), 0);
	kit_fini(&k);
}

static void test_large_directories_are_listed_whole(void)
{
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 2, 3000, 3);
	kit_mount(&k, NULL);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	kit_fini(&k);
}

static void test_a_read_only_filesystem_refuses_changes(void)
{
	AUTO_FREE char *file = NULL;
	AUTO_FREE char *dir = NULL;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 3, 5000);
	kit_mount(&k, NULL);
	file = kit_path(&k, "d0/s1");
	dir = kit_path(&k, "d0");
	CHECK_INT(kit_child(&k, "refuses", file, dir), 0);
	atomic_store(&k.cache->may_refuse_open, true);
	CHECK_INT(kit_child(&k, "refuses", file, dir), 0);
	CHECK_INT(kit_child(&k, "refuses", file, dir), 0); /* OPEN is not even asked any more */
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	kit_fini(&k);
}

static void test_errors_of_the_source_reach_the_reader(void)
{
	static const int errors[] = { EIO, ESTALE, EACCES, ENOENT, ETIMEDOUT, ENOMEM };
	AUTO_FREE char *file = NULL;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 3, 5000);
	kit_mount(&k, NULL);
	file = kit_path(&k, "d0/s1");
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		atomic_store(&k.cache->fail_with, errors[i]);
		CHECK_INT(kit_child(&k, "print", file, NULL), errors[i]);
	}
	atomic_store(&k.cache->fail_with, 0);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	kit_fini(&k);
}

static void test_negative_lookups_are_remembered(void)
{
	AUTO_FREE char *file = NULL;
	uint64_t lookups;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 3, 10);
	kit_mount(&k, NULL);
	file = kit_path(&k, "d0/nothing");
	CHECK_INT(kit_child(&k, "stat", file, NULL), ENOENT);
	lookups = kit_counter(&k, METRIC_UPCALL_LOOKUP);
	for (int i = 0; i < 5; i++)
		CHECK_INT(kit_child(&k, "stat", file, NULL), ENOENT);
	CHECK_U64(kit_counter(&k, METRIC_UPCALL_LOOKUP), lookups);
	kit_fini(&k);
}

/* Several processes at once, answers from another thread than the reactor's. */
static void test_many_readers_at_once(void)
{
	struct kit_child children[4];
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 4, 60, 150000);
	kit_mount(&k, NULL);
	atomic_store(&k.cache->is_threaded, true);
	for (size_t i = 0; i < ARRAY_LEN(children); i++)
		kit_child_start(&children[i], "compare", k.source, k.mountpoint);
	for (size_t i = 0; i < ARRAY_LEN(children); i++)
		CHECK_INT(kit_child_wait(&k, &children[i]), 0);
	kit_fini(&k);
}

static const struct check_test tests[] = {
	{ "the_mount_is_the_source", test_the_mount_is_the_source },
	{ "large_directories_are_listed_whole", test_large_directories_are_listed_whole },
	{ "a_read_only_filesystem_refuses_changes", test_a_read_only_filesystem_refuses_changes },
	{ "errors_of_the_source_reach_the_reader", test_errors_of_the_source_reach_the_reader },
	{ "negative_lookups_are_remembered", test_negative_lookups_are_remembered },
	{ "many_readers_at_once", test_many_readers_at_once },
};

KIT_MAIN(tests)
