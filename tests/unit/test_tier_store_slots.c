/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store of more segments than descriptors are set aside for. Each known segment holds one, and a
 * job's read of the source must always find one left: what is beyond the bound is passed over, and
 * served again by a store that may have more.
 */
#include <dirent.h>

#include "store_kit.h"

#define SEGMENTS 12u
#define BOUND 4u

static unsigned descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static unsigned files_served(struct store *store)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < SEGMENTS; i++)
		n += kit_get(store, (struct kit_file){ 0, i }, 0) == 0;
	return n;
}

static void takes_no_more_segments_than_descriptors_are_set_aside_for(void)
{
	struct store_params params = kit_params(kit_dir("slots"));
	unsigned before = descriptors();
	struct store *store;

	kit_clear(params.dir);
	for (uint32_t i = 0; i < SEGMENTS; i++) { /* a segment each */
		store = kit_open(&params);
		CHECK_INT(kit_put_file(store, (struct kit_file){ 0, i }), 0);
		store_close(store);
	}
	params.max_segments = BOUND;
	store = kit_open(&params);
	CHECK(descriptors() < before + SEGMENTS);  /* and the directory's, the engine's */
	CHECK_U64(files_served(store), BOUND - 1); /* the last slot is for what is written */
	CHECK_INT(kit_put_file(store, (struct kit_file){ 0, SEGMENTS }), 0);
	CHECK_INT(kit_get(store, (struct kit_file){ 0, SEGMENTS }, 0), 0);
	store_close(store);
	params.max_segments = 0;
	store = kit_open(&params);
	CHECK_U64(files_served(store), SEGMENTS);
	store_close(store);
}

static const struct check_test tests[] = {
	{ "takes_no_more_segments_than_descriptors_are_set_aside_for",
	  takes_no_more_segments_than_descriptors_are_set_aside_for },
};
CHECK_MAIN(tests)
