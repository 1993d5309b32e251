/* SPDX-License-Identifier: Apache-2.0 */
/* Records inside one large file, from READs as the kernel sends them: pages, pieces of the read-ahead, several
 * readers, strays. What is found is right, or nothing is found. (The order they are read in: test_infer_records.) */
#include <string.h>
#include <time.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/infer/stride.h"

#define PAGE 4096u
#define READ_MOST (128u << 10)

/* A file of records, and how they are read. */
struct job {
	uint64_t origin, stride, n, tail; /* tail: bytes behind the last one */
	uint32_t readers, strays;	  /* strays: of 64 */
	uint64_t length;		  /* of a record that is read; 0: all */
	uint64_t ahead;			  /* bytes that the kernel may read behind its end, at most */
};

static uint64_t size_of(const struct job *j)
{
	return j->origin + j->n * j->stride + j->tail;
}

static struct stride *stride_of(uint64_t size)
{
	struct stride *s;

	CHECK_INT(stride_new(size, &s), 0);
	return s;
}

/* READs of [from, to), as the kernel cuts them; the order of readers is the caller's. */
static void read_range(struct stride *s, uint64_t from, uint64_t to, uint32_t reader)
{
	from -= from % PAGE;
	to = (to + PAGE - 1) / PAGE * PAGE;
	while (from < to) {
		uint64_t length = to - from < READ_MOST ? to - from : READ_MOST;

		stride_read(s, from, length, reader);
		from += length;
	}
}

static void read_record(struct stride *s, const struct job *j, uint64_t k, uint32_t reader, uint64_t *random)
{
	uint64_t from = j->origin + k * j->stride, length = j->length ? j->length : j->stride;
	uint64_t more = j->ahead && length > READ_MOST ? check_rand_below(random, j->ahead) : 0;

	if (check_rand_below(random, 64) < j->strays) {
		uint64_t at = check_rand_below(random, size_of(j));

		read_range(s, at, at + 1 + check_rand_below(random, 3 * PAGE), reader);
	}
	read_range(s, from, from + length + more, reader);
}

/* `count` records drawn at random, each once where there are enough. */
static void read_shuffled(struct stride *s, const struct job *j, uint32_t count, uint64_t *random)
{
	for (uint32_t i = 0; i < count; i++)
		read_record(s, j, check_rand_below(random, j->n),
			    100 + (uint32_t)check_rand_below(random, j->readers), random);
}

/* That the number of each record that begins in a page of its own is what it is, but for one offset. */
static void check_numbers(const struct stride *s, const struct stride_view *v, const struct job *j)
{
	for (uint64_t k = 0; k < j->n; k += 1 + j->n / 97) {
		uint32_t number = stride_number(s, v, j->origin + k * j->stride);

		if (number != k)
			CHECK_U64(number, k);
	}
}

static const uint64_t strides[] = { 12288, 150528, 602112, 1000003, 65536, 786432, 3072 * 7, 99999, 262144, 49152 + 4 };

static void records_are_found_and_numbered(void)
{
	static const uint64_t origins[] = { 0, 128, 2048, 80, 4096 };
	uint64_t random = check_seed();

	for (size_t i = 0; i < ARRAY_LEN(strides); i++)
		for (size_t k = 0; k < ARRAY_LEN(origins); k++) {
			struct job j = { origins[k], strides[i], 20000, 0, (i + k) % 2 ? 12 : 1, 4, 0, 0 };
			struct stride *s = stride_of(size_of(&j));
			struct stride_view v;

			read_shuffled(s, &j, 256, &random);
			stride_judge(s, NULL, &v);
			CHECK_INT(v.kind, STRIDE_RECORDS);
			CHECK_U64(v.stride, j.stride);
			CHECK_U64(v.n, j.n);
			CHECK(v.reach <= j.n && v.reach > j.n / 2);
			check_numbers(s, &v, &j);
			stride_free(s);
		}
}

/* Each tenth place is no record's, and these are the ones that most strides are given up by. */
static void strays_that_are_looked_at_first_do_no_harm(void)
{
	const struct job j = { 0, 262144, 20000, 0, 1, 0, 0, 0 };
	struct stride *s = stride_of(size_of(&j));
	uint64_t random = check_seed();
	struct stride_view v;

	for (uint64_t i = 0; i < 240; i++) {
		uint64_t at = check_rand_below(&random, size_of(&j)) / PAGE * PAGE;

		if (i % 10)
			read_record(s, &j, i * 83 % j.n, 1, &random);
		else
			read_range(s, at, at + 1, 1);
	}
	stride_judge(s, NULL, &v);
	CHECK_INT(v.kind, STRIDE_RECORDS);
	CHECK_U64(v.stride, j.stride);
	stride_free(s);
}

/* A header or labels behind the records, parts of records, kernels that read ahead. */
static void strays_and_tails_do_no_harm(void)
{
	static const struct job jobs[] = {
		{ 2048, 150528, 5000, 40000, 4, 16, 0, 0 },	{ 128, 602112, 3000, 0, 8, 8, 0, 128 << 10 },
		{ 128, 602112, 3000, 24000, 8, 8, 0, 1 << 20 }, { 128, 150528, 8000, 0, 4, 8, 100000, 0 },
		{ 0, 12288, 50000, 0, 3, 20, 0, 0 },		{ 0, 1000003, 2000, 7, 12, 0, 300000, 128 << 10 },
	};
	uint64_t random = check_seed();

	for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
		struct stride *s = stride_of(size_of(&jobs[i]));
		struct stride_view v;

		read_shuffled(s, &jobs[i], 512, &random);
		stride_judge(s, NULL, &v);
		CHECK_INT(v.kind, STRIDE_RECORDS);
		CHECK_U64(v.stride, jobs[i].stride);
		check_numbers(s, &v, &jobs[i]);
		stride_free(s);
	}
}

/* The first few say as much as there is: how many it takes for each stride is bounded. */
static void few_reads_are_enough(void)
{
	uint64_t random = check_seed();

	for (size_t i = 0; i < ARRAY_LEN(strides); i++) {
		struct job j = { 128, strides[i], 100000, 0, 4, 0, 0, 0 };
		struct stride *s = stride_of(size_of(&j));
		struct stride_view v = { .kind = STRIDE_NOTHING };
		uint32_t reads = 0;

		while (v.kind != STRIDE_RECORDS && reads < 256) {
			read_shuffled(s, &j, 8, &random);
			reads += 8;
			stride_judge(s, NULL, &v);
		}
		CHECK(reads <= (j.stride < 30000 ? 64 : 32));
		stride_free(s);
	}
}

static void streams_are_streams(void)
{
	uint64_t random = check_seed();

	for (uint32_t readers = 1; readers <= 12; readers++) {
		struct stride *s = stride_of(4ull << 30);
		struct stride_view v;
		uint64_t at[12];

		for (uint32_t r = 0; r < readers; r++)
			at[r] = (4ull << 30) / readers * r / PAGE * PAGE;
		for (uint32_t i = 0; i < 600; i++) {
			uint32_t r = (uint32_t)check_rand_below(&random, readers);

			stride_read(s, at[r], READ_MOST, 7 + r);
			at[r] += READ_MOST;
		}
		stride_judge(s, NULL, &v);
		CHECK_INT(v.kind, STRIDE_STREAMS);
		CHECK_U64(v.streams, readers);
		stride_free(s);
	}
}

/* The second time they are read, places that fit no stride are a table. */
static void places_that_come_again_are_a_table(void)
{
	uint64_t random = check_seed(), at[500], size = 0;
	struct stride_view v;
	struct stride *s;

	for (uint32_t i = 0; i < 500; i++) {
		at[i] = size;
		size += 20000 + check_rand_below(&random, 300000);
	}
	s = stride_of(size);
	for (uint32_t epoch = 0; epoch < 3; epoch++) {
		for (uint32_t i = 0; i < 500; i++) {
			uint32_t j = i + (uint32_t)check_rand_below(&random, 500 - i);
			uint64_t was = at[i];

			at[i] = at[j];
			at[j] = was;
			read_range(s, at[i], at[i] + 20000, (uint32_t)check_rand_below(&random, 4));
		}
		stride_judge(s, NULL, &v);
		CHECK_INT(v.kind, epoch ? STRIDE_TABLE : STRIDE_NOTHING);
	}
	CHECK(v.n > 490 && v.n <= 500);
	stride_free(s);
}

#define FILES 6 /* of each kind; run with many seeds */

/* Places drawn at random; sizes of a few hundred KB one behind the other; READs of any length. */
static void nothing_is_found_where_there_is_nothing(void)
{
	uint64_t random = check_seed();

	for (uint32_t i = 0; i < FILES; i++) {
		uint64_t size = (64ull << 20) << check_rand_below(&random, 10), at = 0;
		struct stride *s = stride_of(size);
		uint32_t reads = 16 + (uint32_t)check_rand_below(&random, 500), kind = i % 3;
		struct stride_view v;

		for (uint32_t k = 0; k < reads; k++) {
			uint64_t length = 1 + check_rand_below(&random, kind == 1 ? 400000 : 60000);

			at = kind == 1 ? at + 3 * PAGE + check_rand_below(&random, 400000)
				       : check_rand_below(&random, size);
			if (kind == 2)
				length = 8192;
			if (at < size)
				read_range(s, at, at + length, (uint32_t)check_rand_below(&random, 5));
		}
		stride_judge(s, NULL, &v);
		if (v.kind == STRIDE_RECORDS) /* say which */
			CHECK_U64(v.stride, 0);
		stride_free(s);
	}
}

/* Whatever is READ: no number is out of range, nothing is written where it must not be (sanitizers). */
static void hostile_reads_do_nothing(void)
{
	uint64_t random = check_seed();

	for (uint32_t i = 0; i < 24; i++) {
		uint64_t sizes[] = { 0, 1, 4096, 1ull << 20, 1ull << 40, UINT64_MAX, (1ull << 53) + 1 };
		uint64_t size = sizes[check_rand_below(&random, ARRAY_LEN(sizes))];
		struct stride *s = stride_of(size);
		uint32_t number[64];
		uint64_t counts[STRIDE_COUNTS];
		uint32_t reads = i % 16 ? 300 : 3000; /* some fill all that is kept */
		struct stride_view v;
		char words[80];
		size_t n;

		for (uint32_t k = 0; k < reads; k++) {
			uint64_t at = check_rand_u64(&random) >> check_rand_below(&random, 64);

			stride_read(s, at, check_rand_u64(&random) >> check_rand_below(&random, 64),
				    (uint32_t)check_rand_below(&random, 200));
		}
		stride_judge(s, NULL, &v);
		stride_say(&v, words, sizeof(words));
		CHECK_CONTAINS(words, "reads");
		n = stride_numbers(s, &v, number, 64);
		for (size_t k = 0; k < n; k++)
			CHECK(number[k] < v.n);
		n = stride_counts(&v, size, counts);
		for (size_t k = 0; k < n; k++)
			CHECK(counts[k] >= v.reach);
		CHECK_U64(stride_number(s, &v, UINT64_MAX), STRIDE_NONE);
		stride_free(s);
	}
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	CHECK_INT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Places at random, the dearest there is: cancelled, it is over at once, and says nothing. */
static void judgement_is_cancelled(void)
{
	uint64_t random = check_seed(), whole, cancelled;
	struct stride *s = stride_of(1ull << 30);
	atomic_bool cancel;
	struct stride_view v;

	atomic_init(&cancel, false);
	for (uint32_t i = 0; i < 500; i++) {
		uint64_t at = check_rand_below(&random, (1u << 30) - READ_MOST);

		read_range(s, at, at + READ_MOST, 1);
	}
	whole = cpu_ns();
	stride_judge(s, &cancel, &v);
	whole = cpu_ns() - whole;
	atomic_store(&cancel, true);
	cancelled = cpu_ns();
	stride_judge(s, &cancel, &v);
	cancelled = cpu_ns() - cancelled;
	CHECK_INT(v.kind, STRIDE_NOTHING);
	CHECK(cancelled < whole / 4);
	stride_free(s);
}

/* Few were read, of a file that does not end with one of them: the length is not known to a byte. What is said allows
 * the right one, and claims no other. */
static void length_is_claimed_no_closer_than_it_is_known(void)
{
	uint64_t random = check_seed(), wide = 0;

	for (uint64_t i = 0; i < 24; i++) {
		struct job j = { i % 2 ? 80 : 0, 150001 + 74 * i, 100 + 60 * (i % 4), i % 3 ? i % 3 * 1000 + 7 : 0,
				 1, 0, 0, 0 };
		struct stride *s = stride_of(size_of(&j));
		struct stride_view v;
		char words[80];

		read_shuffled(s, &j, 66, &random);
		stride_judge(s, NULL, &v);
		stride_say(&v, words, sizeof(words));
		CHECK_INT(v.kind, STRIDE_RECORDS);
		CHECK(v.stride_least <= j.stride && j.stride <= v.stride_most);
		CHECK(v.stride_least <= v.stride && v.stride <= v.stride_most);
		CHECK(!strstr(words, "about") == (v.stride_least == v.stride_most));
		wide += v.stride_most > v.stride_least;
		stride_free(s);
	}
	CHECK(wide > 0);
}

static const struct check_test tests[] = {
	{ "records_are_found_and_numbered", records_are_found_and_numbered },
	{ "strays_that_are_looked_at_first_do_no_harm", strays_that_are_looked_at_first_do_no_harm },
	{ "strays_and_tails_do_no_harm", strays_and_tails_do_no_harm },
	{ "few_reads_are_enough", few_reads_are_enough },
	{ "streams_are_streams", streams_are_streams },
	{ "places_that_come_again_are_a_table", places_that_come_again_are_a_table },
	{ "nothing_is_found_where_there_is_nothing", nothing_is_found_where_there_is_nothing },
	{ "hostile_reads_do_nothing", hostile_reads_do_nothing },
	{ "length_is_claimed_no_closer_than_it_is_known", length_is_claimed_no_closer_than_it_is_known },
	{ "judgement_is_cancelled", judgement_is_cancelled },
};

CHECK_MAIN(tests)
