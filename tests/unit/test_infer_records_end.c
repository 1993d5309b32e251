/* SPDX-License-Identifier: Apache-2.0 */
/* Records whose order is followed: that this is paid for, and that searches end when they are told so. (What is found:
 * test_infer_records.) */
#include <dirent.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "clairfs/infer/records.h"
#include "clairfs/order.h"
#include "src/infer/infer_priv.h"

#define RECORDS 3000u
#define STRIDE 49152u
#define WAIT_S 120

/* --- a file of records, and a job that reads them shuffled --- */

struct bed {
	struct infer_records *records;
	struct metrics *metrics;
	struct order_epoch *epoch;
	uint64_t random;
};

static const char spec_text[] = "torch-loader:seed=42";

static _Atomic uint64_t now_ns = 1000 * NS_PER_S;

static uint64_t fake_now(struct clock *clock)
{
	return now_ns;
}

static struct clock fake_clock = { fake_now };

static void name_of(void *ctx, uint32_t file, char out[INFER_NAME_MAX])
{
	snprintf(out, INFER_NAME_MAX, "file %u", file);
}

static struct order_epoch *epoch_of(const char *text)
{
	struct order_params params = { .n = RECORDS };
	struct order_epoch *epoch = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };

	if (order_spec_parse(text, &spec, &err) < 0 || order_new(spec, &params, &order, &err) < 0 ||
	    order_epoch_new(order, 0, &epoch, &err) < 0)
		CHECK_STR(err.msg, "");
	order_free(order);
	order_spec_free(spec);
	return epoch;
}

static void bed_new(struct bed *b)
{
	struct infer_records_params params = {
		.effort = INFER_QUICK, .threads = 1, .around = 65536, .clock = &fake_clock, .name = name_of
	};

	*b = (struct bed){ .random = check_seed(), .metrics = metrics_new(), .epoch = epoch_of(spec_text) };
	CHECK(b->metrics && b->epoch);
	params.metrics = b->metrics;
	CHECK_INT(infer_records_new(&params, &b->records), 0);
}

static void bed_free(struct bed *b)
{
	infer_records_free(b->records);
	metrics_free(b->metrics);
	order_epoch_free(b->epoch);
}

static void send(struct bed *b, uint32_t file, uint64_t offset, uint64_t size, uint32_t reader)
{
	now_ns += 100000;
	infer_records_read(b->records, &(struct infer_record_read){ .file = file,
								    .reader = reader,
								    .size = size,
								    .offset = offset,
								    .length = STRIDE,
								    .at_ns = now_ns });
}

/* Positions [from, to), by two readers. */
static void read_records(struct bed *b, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		send(b, 3, (uint64_t)b->epoch->sample[i] * STRIDE, (uint64_t)RECORDS * STRIDE, 1 + i % 2);
}

/* Of another file, and no records of it. */
static void read_anywhere(struct bed *b, uint32_t n)
{
	const uint64_t size = 1ull << 30;

	for (uint32_t i = 0; i < n; i++) {
		send(b, 10, check_rand_below(&b->random, size) / 4096 * 4096, size, 9);
		infer_records_step(b->records, now_ns);
	}
}

static uint64_t spent_ns(const struct bed *b)
{
	return metrics_get(b->metrics, METRIC_RECOVER_CPU);
}

static bool is_found(struct bed *b)
{
	struct infer_record_file file[INFER_RECORD_FILES];
	size_t n;

	infer_records_step(b->records, now_ns);
	n = infer_records_get(b->records, file);
	return n == 1 && !file[0].is_searching && strcmp(file[0].spec, spec_text) == 0;
}

/* Searches are on threads of their own. */
static void wait_until_found(struct bed *b)
{
	const struct timespec nap = { .tv_nsec = NS_PER_MS };

	for (uint32_t i = 0; i < WAIT_S * 1000 && !is_found(b); i++)
		nanosleep(&nap, NULL); /* of a poll, with an end */
	CHECK(is_found(b));
}

/* --- what it costs --- */

/* --wrap=follow_take_cpu: as if following took so much longer, once. */
struct follow;
static uint64_t dear_ns;
uint64_t __real_follow_take_cpu(struct follow *f);
uint64_t __wrap_follow_take_cpu(struct follow *f);

uint64_t __wrap_follow_take_cpu(struct follow *f)
{
	uint64_t more = dear_ns;

	dear_ns = 0;
	return __real_follow_take_cpu(f) + more;
}

/* Looks at other files wait for what it costs to follow an order. */
static void what_is_followed_is_paid_for(void)
{
	const uint64_t dear = 100 * NS_PER_S;
	uint64_t spent;
	struct bed b;

	bed_new(&b);
	read_anywhere(&b, 70); /* two looks, which are free */
	read_records(&b, 0, 512);
	wait_until_found(&b);
	spent = spent_ns(&b);
	dear_ns = dear;
	read_records(&b, 512, 544);
	CHECK_U64(dear_ns, 0);
	CHECK(spent_ns(&b) >= spent + dear && spent_ns(&b) < spent + 2 * dear);
	spent = spent_ns(&b);
	read_anywhere(&b, 70); /* one more look would be due */
	CHECK_U64(spent_ns(&b), spent);
	infer_records_step(b.records, now_ns + 200 * dear); /* a hundredth of that is enough */
	CHECK(spent_ns(&b) > spent);
	bed_free(&b);
}

/* --- the end --- */

/* Threads of searches. */
static uint32_t count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	const struct dirent *one;
	uint32_t n = 0;

	CHECK(dir);
	while ((one = readdir(dir))) {
		char path[300], name[32] = "";
		FILE *in;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", one->d_name);
		in = one->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (!in) /* it ended meanwhile */
			continue;
		n += fgets(name, sizeof(name), in) && strcmp(name, "cl-infer\n") == 0;
		fclose(in);
	}
	closedir(dir);
	return n;
}

static void wait_for_threads(uint32_t n)
{
	const struct timespec nap = { .tv_nsec = NS_PER_MS };

	for (uint32_t i = 0; i < WAIT_S * 1000 && count_threads() != n; i++)
		nanosleep(&nap, NULL); /* of a poll, with an end */
	CHECK_U64(count_threads(), n);
}

/* Told, searches end: whoever frees them later waits for none. */
static void searches_end_when_told_so(void)
{
	struct bed b;

	CHECK_U64(count_threads(), 0);
	bed_new(&b);
	read_records(&b, 0, 512);
	infer_records_step(b.records, now_ns);
	wait_for_threads(1);
	infer_records_quit(b.records);
	wait_for_threads(0);
	bed_free(&b);
}

static const struct check_test tests[] = {
	{ "searches_end_when_told_so", searches_end_when_told_so },
	{ "what_is_followed_is_paid_for", what_is_followed_is_paid_for },
};

CHECK_MAIN(tests)
