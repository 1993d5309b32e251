/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mount with the real cache behind it: a job that reads its epochs in the order that was
 * announced gets the right bytes, is served from pages pushed ahead, and after a while is not asked
 * any more; and everything ends whatever is going on.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "fs_kit_real.h"

#define N 300
#define EPOCHS 3
#define SAMPLE_BYTES 112640
#define ENDLESS_EPOCHS 200
#define WAIT_MS 120000

/* "<path in the mount> TAB <path in the source>" for every position of the first epochs. */
static char *write_epochs(struct kit *k, struct kit_real *r, unsigned epochs)
{
	struct buf_writer w;
	struct err err;
	char *path;

	buf_writer_init(&w);
	for (uint64_t e = 0; e < epochs; e++) {
		struct order_epoch *epoch;
		char rel[256];

		CHECK_INT(order_epoch_new(r->order, e, &epoch, &err), 0);
		for (uint32_t i = 0; i < epoch->length; i++) {
			CHECK_INT(dataset_path(k->dataset, (struct entry_id){ epoch->sample[i] },
					       rel, sizeof(rel)),
				  0);
			buf_printf(&w, "%s/%s\t%s/%s\n", k->mountpoint, rel, k->source, rel);
		}
		order_epoch_free(epoch);
	}
	path = check_write_file("epochs", w.data, w.size);
	buf_writer_fini(&w);
	return path;
}

static uint64_t sum_of_classes(struct kit *k, enum metric first)
{
	uint64_t sum = 0;

	for (unsigned c = 0; c < READ_CLASSES; c++)
		sum += kit_counter(k, first + c);
	return sum;
}

static void test_a_job_that_keeps_its_order_is_not_asked_any_more(void)
{
	static struct kit_real r = { .order_text = "torch-distributed:seed=7:world=1:ranks=0",
				     .arena_bytes = 16 << 20,
				     .stage_bytes = 8 << 20 };
	static struct kit k;
	AUTO_FREE char *list = NULL;
	struct fs_status status;

	kit_init(&k);
	kit_add_samples(&k, 3, N / 3, SAMPLE_BYTES);
	k.rest = &r;
	kit_mount(&k, NULL);
	list = write_epochs(&k, &r, EPOCHS);
	CHECK_INT(kit_child(&k, "read-list", list, NULL), 0);
	fs_get_status(k.fs, &status);
	CHECK(status.is_open_refused);
	CHECK(kit_counter(&k, METRIC_UPCALL_OPEN) < EPOCHS * N / 2);
	CHECK(kit_counter(&k, METRIC_STAGE_PUSHED) > 0);
	CHECK_U64(kit_counter(&k, METRIC_READ_ERRORS), 0);
	CHECK_U64(kit_counter(&k, METRIC_WATCH_OVERFLOWS), 0);
	fs_unmount(k.fs);
	kit_cache_stop(&k);
	CHECK_U64(kit_counter(&k, METRIC_SAMPLE_OPENS), EPOCHS * N);
	CHECK_U64(sum_of_classes(&k, METRIC_READS_STAGED), EPOCHS * N);
	CHECK_U64(sum_of_classes(&k, METRIC_READ_BYTES_STAGED),
		  (uint64_t)EPOCHS * N * SAMPLE_BYTES);
	CHECK(kit_counter(&k, METRIC_READS_STAGED) > 0);
	kit_fini(&k);
}

static void test_without_an_order_it_is_an_ordinary_cache(void)
{
	static struct kit_real r = { .arena_bytes = 4 << 20, .stage_bytes = 4 << 20 };
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 3, 20, 200000);
	kit_add_file(&k, "large", (5 << 20) + 3);
	k.rest = &r;
	kit_mount(&k, NULL);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	CHECK_U64(kit_counter(&k, METRIC_READ_ERRORS), 0);
	kit_fini(&k);
}

static void test_unmount_in_the_middle_of_an_epoch_ends(void)
{
	static struct kit_real r = { .order_text = "torch-randperm:seed=3",
				     .arena_bytes = 4 << 20,
				     .stage_bytes = 2 << 20 };
	static struct kit k;
	struct kit_child readers[2];
	AUTO_FREE char *list = NULL;

	kit_init(&k);
	kit_add_samples(&k, 3, N / 3, SAMPLE_BYTES);
	k.rest = &r;
	kit_mount(&k, NULL);
	list = write_epochs(&k, &r, ENDLESS_EPOCHS);
	for (size_t i = 0; i < ARRAY_LEN(readers); i++)
		kit_child_start(&readers[i], "read-list", list, NULL);
	/* They are at it, and far from the end of what they shall read. */
	for (int ms = 0; ms < WAIT_MS && kit_counter(&k, METRIC_SAMPLE_OPENS) < 50; ms++)
		usleep(1000);
	CHECK(kit_counter(&k, METRIC_SAMPLE_OPENS) >= 50);
	fs_unmount(k.fs);
	for (size_t i = 0; i < ARRAY_LEN(readers); i++) {
		int status = kit_child_wait(&k, &readers[i]);

		CHECK(status == 0 || status == ENOENT || status == ENOTCONN ||
		      status == ECONNABORTED || status == EIO);
	}
	kit_fini(&k);
}

static const struct check_test tests[] = {
	{ "a_job_that_keeps_its_order_is_not_asked_any_more",
	  test_a_job_that_keeps_its_order_is_not_asked_any_more },
	{ "without_an_order_it_is_an_ordinary_cache",
	  test_without_an_order_it_is_an_ordinary_cache },
	{ "unmount_in_the_middle_of_an_epoch_ends", test_unmount_in_the_middle_of_an_epoch_ends },
};

KIT_MAIN(tests)
