/* SPDX-License-Identifier: Apache-2.0 */
/* Records and their order, found by READs as the kernel sends them: pages that are not there yet, pieces of its
 * read-ahead, loader workers side by side, strays. What is claimed is right; and where there is nothing to find,
 * nothing is claimed. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "clairfs/infer/records.h"
#include "clairfs/order.h"
#include "src/infer/infer_priv.h"

#define PAGE 4096u
#define MIB (1ull << 20)
#define READ_MOST (128u << 10)
#define AROUND (READ_MOST / 2)
#define WORKERS_MAX 8
#define WAIT_S 120

static _Atomic uint64_t now_ns = 1000 * NS_PER_S;

static uint64_t fake_now(struct clock *clock)
{
	return now_ns;
}

/* Returns what it is then. */
static uint64_t time_passes(uint64_t ns)
{
	return atomic_fetch_add(&now_ns, ns) + ns;
}

static struct clock fake_clock = { fake_now };

/* --- a file, its pages in the kernel, and who reads it --- */

struct bed {
	struct infer_records *records;
	struct metrics *metrics;
	uint64_t size, random;
	uint8_t *has; /* [page]: the kernel has it */
	uint64_t around; /* it is mapped: bytes that are read before a missing page and behind it; 0: it is not */
	struct infer_record_file file[INFER_RECORD_FILES];
	_Atomic uint32_t n_news;
};

static void name_of(void *ctx, uint32_t file, char out[INFER_NAME_MAX])
{
	snprintf(out, INFER_NAME_MAX, "file %u", file);
}

static void count_news(void *ctx)
{
	struct bed *b = ctx;

	atomic_fetch_add(&b->n_news, 1);
}

/* memory: 0: any; around: of the kernel, whether the file is mapped or not */
static void bed_new_around(struct bed *b, uint64_t size, enum infer_effort effort, uint64_t memory, uint64_t around)
{
	struct infer_records_params params = {
		.effort = effort, .memory = memory, .threads = 1, .around = around, .clock = &fake_clock,
		.name = name_of, .news = count_news, .ctx = b
	};

	memset(b, 0, sizeof(*b));
	b->size = size;
	b->random = check_seed();
	b->metrics = metrics_new();
	b->has = calloc(size / PAGE + 1, 1);
	CHECK(b->has && b->metrics);
	params.metrics = b->metrics;
	CHECK_INT(infer_records_new(&params, &b->records), 0);
}

static void bed_new_small(struct bed *b, uint64_t size, enum infer_effort effort, uint64_t memory)
{
	bed_new_around(b, size, effort, memory, AROUND);
}

static void bed_new(struct bed *b, uint64_t size, enum infer_effort effort)
{
	bed_new_small(b, size, effort, 0);
}

static void bed_free(struct bed *b)
{
	infer_records_free(b->records);
	metrics_free(b->metrics);
	free(b->has);
}

static void send(struct bed *b, uint64_t offset, uint64_t length, uint32_t reader)
{
	now_ns += 100000;
	infer_records_read(b->records, &(struct infer_record_read){ .file = 3,
								    .reader = reader,
								    .size = b->size,
								    .offset = offset,
								    .length = length,
								    .at_ns = now_ns });
}

/* One reader in the midst of its bytes. */
struct reader {
	uint64_t at, end;
};

/* The next READ of it: up to the first page that is there, and as much as the kernel reads at once at most. False: it
 * has all. */
static bool read_on(struct bed *b, struct reader *r, uint32_t number)
{
	uint64_t from, most = b->around ? MIN(2 * b->around, MIB) : READ_MOST;

	while (r->at < r->end && b->has[r->at / PAGE])
		r->at += PAGE;
	from = r->at;
	while (r->at < r->end && r->at - from < most && !b->has[r->at / PAGE]) {
		b->has[r->at / PAGE] = 1;
		r->at += PAGE;
	}
	if (r->at > from)
		send(b, from, r->at - from, 100 + number);
	return r->at < r->end;
}

struct job {
	const char *spec;
	uint64_t origin, stride, n, tail; /* tail: bytes behind the last record */
	uint32_t workers, batch, strays;  /* strays: of 64 records so many come with a READ of anything beside it */
};

static uint64_t size_of(const struct job *j)
{
	return j->origin + j->n * j->stride + j->tail;
}

/* A page of a mapped file is missing: READ is what is around it. */
static void map(struct bed *b, struct reader *r, uint32_t number)
{
	struct reader around = { r->at - MIN(r->at, b->around), MIN(r->at + b->around, b->size) };

	if (b->has[r->at / PAGE])
		return;
	while (read_on(b, &around, number))
		;
}

static void stray(struct bed *b, const struct job *j)
{
	struct reader r;
	uint64_t length;

	if (check_rand_below(&b->random, 64) >= j->strays)
		return;
	r.at = check_rand_below(&b->random, b->size) / PAGE * PAGE;
	length = PAGE + check_rand_below(&b->random, 4 * PAGE);
	r.end = MIN(r.at + length, b->size); /* evaluates twice */
	while (read_on(b, &r, 99))
		;
}

/* Positions [from, to) of an epoch, each batch by the worker whose turn it is, all at once. */
static void read_epoch(struct bed *b, const struct job *j, const struct order_epoch *e, uint64_t from, uint64_t to)
{
	struct reader reader[WORKERS_MAX] = { 0 };
	uint64_t next[WORKERS_MAX], end = MIN(to, e->length);
	uint32_t left = 0;

	CHECK(j->workers <= WORKERS_MAX && from % (j->workers * j->batch) == 0);
	for (uint32_t w = 0; w < j->workers; w++) {
		next[w] = from + w * j->batch;
		left += next[w] < end;
	}
	while (left) {
		uint32_t w = (uint32_t)check_rand_below(&b->random, j->workers);
		uint64_t k;

		if (next[w] >= end || read_on(b, &reader[w], w))
			continue;
		k = e->sample[next[w]];
		reader[w].at = (j->origin + k * j->stride) / PAGE * PAGE;
		if (b->around)
			map(b, &reader[w], w);
		reader[w].end = j->origin + (k + 1) * j->stride;
		stray(b, j);
		next[w] += (next[w] + 1) % j->batch ? 1 : (uint64_t)(j->workers - 1) * j->batch + 1;
		if (next[w] < end)
			continue;
		while (read_on(b, &reader[w], w))
			;
		left--;
	}
}

static struct order_epoch *epoch_of(const struct job *j, uint64_t number)
{
	struct order_params params = { .n = j->n };
	struct order_epoch *epoch = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };

	if (order_spec_parse(j->spec, &spec, &err) < 0 || order_new(spec, &params, &order, &err) < 0 ||
	    order_epoch_new(order, number, &epoch, &err) < 0)
		CHECK_STR(err.msg, "");
	order_free(order);
	order_spec_free(spec);
	return epoch;
}

static const struct infer_record_file *look(struct bed *b)
{
	infer_records_step(b->records, now_ns);
	return infer_records_get(b->records, b->file) ? &b->file[0] : NULL;
}

/* When no search is under way; they are on threads of their own. NULL: nothing is known of the file. */
static const struct infer_record_file *settled(struct bed *b)
{
	const struct timespec nap = { .tv_nsec = NS_PER_MS };

	for (uint32_t i = 0; i < WAIT_S * 1000; i++) {
		const struct infer_record_file *f = look(b);

		if (!f || !f->is_sought || (f->searches && !f->is_searching))
			return f;
		nanosleep(&nap, NULL); /* of a poll, with an end */
	}
	CHECK(!"a search has ended");
	return NULL;
}

/* As settled, when an order was found; the rest of the reads come meanwhile. */
static const struct infer_record_file *found(struct bed *b)
{
	const struct timespec nap = { .tv_nsec = NS_PER_MS };

	for (uint32_t i = 0; i < WAIT_S * 1000; i++) {
		const struct infer_record_file *f = look(b);

		if (f && f->spec[0])
			return f;
		nanosleep(&nap, NULL); /* likewise */
	}
	CHECK(!"an order was found");
	return NULL;
}

/* --- what is found --- */

static void check_found(const struct job *j, uint64_t around)
{
	struct order_epoch *e = epoch_of(j, 0);
	const struct infer_record_file *f;
	uint64_t step = j->workers * j->batch, at;
	struct bed b;

	bed_new_around(&b, size_of(j), INFER_FULL, 0, around ? around : AROUND);
	b.around = around;
	for (at = 0; at < MIN(1200, e->length / 2); at += step) {
		read_epoch(&b, j, e, at, at + step);
		(void)look(&b);
	}
	f = found(&b);
	CHECK_INT(f->view.kind, STRIDE_RECORDS);
	CHECK_U64(f->view.stride, j->stride);
	CHECK_U64(f->n, j->n);
	CHECK(MAX(f->origin, j->origin) - MIN(f->origin, j->origin) < PAGE);
	CHECK_STR(f->spec, j->spec);
	CHECK(f->found_after <= 1300);
	for (uint32_t i = 0; !atomic_load(&b.n_news) && i < WAIT_S * 1000; i++) /* a moment after it is seen */
		nanosleep(&(struct timespec){ .tv_nsec = NS_PER_MS }, NULL);
	CHECK(atomic_load(&b.n_news) > 0);
	read_epoch(&b, j, e, at, at + 400 / step * step);
	f = look(&b);
	CHECK_INT(f->plan, INFER_PLAN_FOLLOWED);
	CHECK(f->match >= 0.5);
	bed_free(&b);
	order_epoch_free(e);
}

/* An NPY file of images, a raw file, records longer than the kernel's READs. */
static void shuffles_are_found_in_their_first_epoch(void)
{
	static const struct job jobs[] = {
		{ "torch-loader:seed=42", 128, 150528, 4000, 0, 4, 8, 2 },
		{ "torch-loader:seed=1234", 0, 16384, 8000, 0, 1, 16, 0 },
		{ "torch-distributed:seed=7", 128, 602112, 2400, 0, 6, 4, 6 },
	};

	for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
		check_found(&jobs[i], 0);
}

/* Labels behind the images: the size of the file does not say how many there are. */
static void records_before_labels_are_counted_right(void)
{
	static const struct job jobs[] = {
		{ "torch-loader:seed=42", 2048, 12288, 12000, 12000 * 8, 4, 8, 0 },
		{ "torch-loader:seed=42", 2048, 40000, 8000, 8000, 2, 16, 1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
		check_found(&jobs[i], 0);
}

static void rank_of_several_is_found(void)
{
	check_found(&(struct job){ "torch-distributed:seed=3:world=4:rank=2", 128, 49152, 20000, 0, 4, 8, 1 }, 0);
}

/* numpy.memmap: all READs begin 64 KiB too early, which is a record or two, or part of one. */
static void mapped_file_is_found(void)
{
	static const struct job jobs[] = {
		{ "torch-loader:seed=42", 128, 50000, 6000, 0, 4, 8, 0 },
		{ "torch-loader:seed=42", 128, 150528, 4000, 0, 2, 8, 1 },
		{ "torch-distributed:seed=5", 0, 602112, 2400, 0, 4, 4, 0 },
		{ "torch-loader:seed=42", 0, 50000, 4000, 0, 3, 16, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
		check_found(&jobs[i], AROUND);
}

/* A mount whose kernel reads 1 or 2 MiB around: many records before each that is read. */
static void mapped_file_is_found_with_a_large_read_ahead(void)
{
	static const struct job jobs[] = {
		{ "torch-loader:seed=42", 128, 150528, 60000, 0, 4, 8, 0 },
		{ "torch-distributed:seed=5", 0, 602112, 16000, 0, 4, 4, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
		check_found(&jobs[i], MIB / 2);
		check_found(&jobs[i], MIB);
	}
}

/* By the middle of an epoch most pages of a small one are there: READs begin where these end, and say nothing. */
static void mapped_file_is_followed_where_the_kernel_has_most_of_it(void)
{
	const struct job j = { "torch-loader:seed=42", 128, 50000, 3000, 0, 4, 8, 0 };
	struct order_epoch *e = epoch_of(&j, 0);
	const struct infer_record_file *f;
	struct bed b;

	bed_new(&b, size_of(&j), INFER_QUICK);
	b.around = AROUND;
	read_epoch(&b, &j, e, 0, 512);
	f = found(&b);
	for (uint64_t at = 512; at < j.n; at += 32) {
		read_epoch(&b, &j, e, at, at + 32);
		f = look(&b);
		CHECK(f && f->plan != INFER_PLAN_LOST);
		CHECK_STR(f->spec, j.spec);
	}
	CHECK_INT(f->plan, INFER_PLAN_FOLLOWED);
	bed_free(&b);
	order_epoch_free(e);
}

static void next_epoch_is_followed(void)
{
	const struct job j = { "torch-loader:seed=42", 128, 50000, 3000, 0, 4, 8, 0 };
	const struct infer_record_file *f;
	struct bed b;

	bed_new(&b, size_of(&j), INFER_QUICK);
	for (uint64_t number = 0; number < 3; number++) {
		struct order_epoch *e = epoch_of(&j, number);

		memset(b.has, 0, b.size / PAGE + 1); /* the kernel had no room for it */
		for (uint64_t at = 0; at < j.n; at += 32) {
			read_epoch(&b, &j, e, at, at + 32);
			(void)look(&b);
			if (number == 0 && at == 512)
				(void)found(&b);
		}
		f = look(&b);
		CHECK(f && f->view.stride == j.stride);
		CHECK_INT(f->plan, INFER_PLAN_FOLLOWED);
		order_epoch_free(e);
	}
	bed_free(&b);
}

/* --- what is not claimed --- */

/* Records in an order that nobody knows: the records are said, the order is not. */
static void shuffle_by_no_seed_is_none(void)
{
	const struct job j = { "sequential", 128, 30000, 2000, 0, 4, 8, 1 };
	struct order_epoch *e = epoch_of(&j, 0);
	const struct infer_record_file *f;
	struct bed b;

	bed_new(&b, size_of(&j), INFER_FULL);
	for (uint32_t i = 0; i < j.n; i++) {
		uint32_t other = i + (uint32_t)check_rand_below(&b.random, j.n - i), was = e->sample[i];

		e->sample[i] = e->sample[other];
		e->sample[other] = was;
	}
	for (uint64_t at = 0; at < 1056; at += 32) {
		read_epoch(&b, &j, e, at, at + 32);
		f = look(&b);
		CHECK(!f || !f->spec[0]);
	}
	f = settled(&b);
	CHECK(f && f->view.kind == STRIDE_RECORDS);
	CHECK_U64(f->view.stride, j.stride);
	CHECK_STR(f->spec, "");
	bed_free(&b);
	order_epoch_free(e);
}

/* Places drawn at random, with replacement, of any length: a B-tree, a sampler of clips, a database. */
static void places_at_random_are_nothing(void)
{
	struct bed b;

	bed_new(&b, 1ull << 30, INFER_FULL);
	for (uint32_t i = 0; i < 3000; i++) {
		uint64_t at = check_rand_below(&b.random, b.size) / PAGE * PAGE;
		uint64_t length = 1 + check_rand_below(&b.random, 300000);
		struct reader r = { at, MIN(at + length, b.size) };

		while (read_on(&b, &r, (uint32_t)check_rand_below(&b.random, 4)))
			;
		CHECK(!look(&b));
	}
	bed_free(&b);
}

static void streams_are_nothing(void)
{
	struct reader r[WORKERS_MAX];
	struct bed b;

	bed_new(&b, 1ull << 30, INFER_FULL);
	for (uint32_t i = 0; i < WORKERS_MAX; i++)
		r[i] = (struct reader){ b.size / WORKERS_MAX * i, b.size / WORKERS_MAX * (i + 1) };
	for (uint32_t i = 0; i < 6000; i++) {
		uint32_t w = (uint32_t)check_rand_below(&b.random, WORKERS_MAX);

		(void)read_on(&b, &r[w], w);
		CHECK(!look(&b));
	}
	bed_free(&b);
}

/* Records of many lengths, read in a shuffle of every epoch: places, and no order of them. */
static void table_has_no_order(void)
{
	const struct infer_record_file *f = NULL;
	static uint64_t at[600];
	struct bed b;
	uint64_t size = 0;

	bed_new(&b, 200 << 20, INFER_FULL);
	for (uint32_t i = 0; i < ARRAY_LEN(at); i++) {
		at[i] = size / PAGE * PAGE;
		size += 6 * PAGE + check_rand_below(&b.random, 300000); /* no page is of two reads */
	}
	CHECK(size < b.size);
	for (uint32_t epoch = 0; epoch < 6; epoch++) {
		memset(b.has, 0, b.size / PAGE + 1);
		for (uint32_t i = 0; i < ARRAY_LEN(at); i++) {
			uint32_t other = i + (uint32_t)check_rand_below(&b.random, ARRAY_LEN(at) - i);
			uint64_t was = at[i];
			struct reader r;

			at[i] = at[other];
			at[other] = was;
			r = (struct reader){ at[i], at[i] + 20000 };
			now_ns += 50 * NS_PER_MS; /* looks are weighed against the job's time */
			while (read_on(&b, &r, i % 4))
				;
			f = look(&b);
			CHECK(!f || f->view.kind == STRIDE_TABLE);
		}
	}
	now_ns += 1000 * NS_PER_S; /* a look may have been too dear until now */
	f = look(&b);
	CHECK(f && !f->is_sought && !f->spec[0]);
	CHECK(f->view.n > 590 && f->view.n <= 600);
	bed_free(&b);
}

/* Two looks are free, two seconds may be spent on others, and then they wait until they are cheap beside the job. */
static void looks_in_vain_cost_little(void)
{
	uint64_t spent, longest = 0, before = 0;
	struct bed b;

	bed_new(&b, 1ull << 40, INFER_FULL);
	free(b.has); /* of a file that large */
	b.has = NULL;
	for (uint32_t i = 0; i < 50000; i++) {
		now_ns -= 100000; /* time stands still */
		send(&b, check_rand_below(&b.random, b.size) / PAGE * PAGE, PAGE, 1);
		(void)look(&b);
		spent = metrics_get(b.metrics, METRIC_RECOVER_CPU);
		longest = MAX(longest, spent - before);
		before = spent;
	}
	CHECK(spent <= 3 * longest + 2 * NS_PER_S);
	bed_free(&b);
}

/* A READ of 128 KiB anywhere in one of many files. */
static void read_anywhere(struct bed *b, uint32_t file)
{
	const struct infer_record_read read = { .file = file,
						.reader = 1 + file % 8,
						.size = b->size,
						.offset = check_rand_below(&b->random, b->size) / PAGE * PAGE,
						.length = READ_MOST,
						.at_ns = time_passes(NS_PER_MS) };

	infer_records_read(b->records, &read);
}

/* Files that come and go: looks at all of them are weighed together, however often a place is given away. */
static void looks_at_many_files_cost_as_little(void)
{
	uint64_t begin = now_ns, spent, longest = 0, before = 0;
	struct bed b;

	bed_new(&b, 1ull << 30, INFER_QUICK);
	for (uint32_t round = 0; round < 10; round++) {
		for (uint32_t i = 0; i < INFER_RECORD_FILES * 70; i++) {
			read_anywhere(&b, 10 + round * INFER_RECORD_FILES + i % INFER_RECORD_FILES);
			if (i % 8)
				continue;
			infer_records_step(b.records, now_ns);
			spent = metrics_get(b.metrics, METRIC_RECOVER_CPU);
			longest = MAX(longest, spent - before);
			before = spent;
		}
		now_ns += 2 * NS_PER_S;
	}
	/* What is free, what the last one may be longer than the one before it; and a hundredth. */
	CHECK(before > 0 && before <= 3 * longest + 2 * NS_PER_S + (now_ns - begin) / 100);
	bed_free(&b);
}

/* So many jumps of it were looked at in vain: it is not looked at for as many, when its place was another one's. */
static void looks_in_vain_are_remembered(void)
{
	uint64_t spent;
	struct bed b;

	bed_new(&b, 1ull << 30, INFER_QUICK);
	for (uint32_t i = 0; i < 70; i++) {
		read_anywhere(&b, 10);
		infer_records_step(b.records, now_ns);
	}
	spent = metrics_get(b.metrics, METRIC_RECOVER_CPU);
	CHECK(spent > 0);
	now_ns += 2 * NS_PER_S;
	for (uint32_t i = 0; i < INFER_RECORD_FILES; i++) /* the others take all places, also its */
		read_anywhere(&b, 20 + i);
	now_ns += 200 * NS_PER_S; /* there is time for more looks */
	for (uint32_t i = 0; i < 70; i++) {
		read_anywhere(&b, 10);
		infer_records_step(b.records, now_ns);
	}
	CHECK_U64(metrics_get(b.metrics, METRIC_RECOVER_CPU), spent);
	for (uint32_t i = 0; i < 70; i++) {
		read_anywhere(&b, 10);
		infer_records_step(b.records, now_ns);
	}
	CHECK(metrics_get(b.metrics, METRIC_RECOVER_CPU) > spent); /* and that is twice as many */
	bed_free(&b);
}

/* Nobody waits for more than one of them. */
static void step_looks_at_one_file(void)
{
	struct bed b;

	bed_new(&b, 1ull << 30, INFER_OFF);
	for (uint32_t i = 0; i < INFER_RECORD_FILES * 50; i++)
		infer_records_read(b.records, &(struct infer_record_read){
						      .file = 10 + i % INFER_RECORD_FILES,
						      .reader = 1 + i % INFER_RECORD_FILES,
						      .size = b.size,
						      .offset = check_rand_below(&b.random, 8000) * 128 * 1024,
						      .length = 128 * 1024,
						      .at_ns = time_passes(1000) });
	for (uint32_t i = 1; i <= INFER_RECORD_FILES; i++) {
		now_ns += 1000 * NS_PER_S; /* time enough for any */
		infer_records_step(b.records, now_ns);
		CHECK_U64(infer_records_get(b.records, b.file), i);
	}
	bed_free(&b);
}

/* --- files that come and go --- */

static void other_job_is_looked_at_anew(void)
{
	const struct job first = { "torch-loader:seed=42", 0, 50000, 3000, 0, 4, 8, 0 };
	const struct job second = { "torch-distributed:seed=9", 0, 50000, 3000, 0, 2, 16, 0 };
	struct order_epoch *e = epoch_of(&first, 0), *other = epoch_of(&second, 0);
	struct bed b;

	bed_new(&b, size_of(&first), INFER_QUICK);
	read_epoch(&b, &first, e, 0, 512);
	CHECK_STR(found(&b)->spec, first.spec);
	memset(b.has, 0, b.size / PAGE + 1);
	now_ns += JOB_PAUSE_NS;
	read_epoch(&b, &second, other, 0, 32);
	CHECK(!look(&b) || !b.file[0].spec[0]);
	read_epoch(&b, &second, other, 32, 512);
	CHECK_STR(found(&b)->spec, second.spec);
	bed_free(&b);
	order_epoch_free(e);
	order_epoch_free(other);
}

/* Any numbers, more files than there is room for, files that change their size. */
static void hostile_reads_do_nothing(void)
{
	struct bed b;

	bed_new(&b, 1 << 20, INFER_FULL);
	for (uint32_t i = 0; i < 30000; i++) {
		struct infer_record_read read = {
			.file = (uint32_t)check_rand_below(&b.random, 20),
			.reader = (uint32_t)check_rand_below(&b.random, 40),
			.size = check_rand_u64(&b.random) >> (8 * check_rand_below(&b.random, 3)),
			.offset = check_rand_u64(&b.random) >> check_rand_below(&b.random, 64),
			.length = check_rand_u64(&b.random) >> check_rand_below(&b.random, 64),
		};

		read.size = i % 8 ? 1ull << (20 + read.file) : read.size;
		now_ns += check_rand_below(&b.random, NS_PER_S);
		read.at_ns = now_ns;
		infer_records_read(b.records, &read);
		if (i % 16 == 0)
			(void)look(&b);
	}
	CHECK(infer_records_get(b.records, b.file) <= INFER_RECORD_FILES);
	bed_free(&b);
	infer_records_free(NULL);
}

/* Notes of several threads: one comes late, and its file was not quiet for that. */
static void read_that_comes_late_is_no_pause(void)
{
	const struct job j = { "torch-loader:seed=42", 0, 50000, 3000, 0, 4, 8, 0 };
	struct order_epoch *e = epoch_of(&j, 0);
	struct bed b;

	bed_new(&b, size_of(&j), INFER_OFF);
	now_ns += 2 * JOB_PAUSE_NS;
	read_epoch(&b, &j, e, 0, 512);
	CHECK(look(&b));
	now_ns -= 2 * JOB_PAUSE_NS;
	send(&b, 0, PAGE, 1);
	now_ns += 2 * JOB_PAUSE_NS;
	send(&b, 0, PAGE, 1);
	CHECK(look(&b));
	bed_free(&b);
	order_epoch_free(e);
}

static void order_is_not_sought_when_told_so(void)
{
	const struct job j = { "torch-loader:seed=42", 0, 50000, 3000, 0, 4, 8, 0 };
	struct order_epoch *e = epoch_of(&j, 0);
	const struct infer_record_file *f;
	struct bed b;

	bed_new(&b, size_of(&j), INFER_OFF);
	read_epoch(&b, &j, e, 0, 1024);
	f = look(&b);
	CHECK(f && f->view.stride == j.stride && !f->is_sought);
	bed_free(&b);
	order_epoch_free(e);
}

/* Records that would be found: nobody wants them any more, as the mount ends. */
static void nothing_is_looked_for_at_the_end(void)
{
	const struct job j = { "torch-loader:seed=42", 0, 50000, 3000, 0, 4, 8, 0 };
	struct order_epoch *e = epoch_of(&j, 0);
	struct bed b;

	bed_new(&b, size_of(&j), INFER_QUICK);
	read_epoch(&b, &j, e, 0, 512);
	infer_records_quit(b.records);
	CHECK(!look(&b));
	CHECK_U64(metrics_get(b.metrics, METRIC_RECOVER_CPU), 0);
	bed_free(&b);
	bed_new(&b, size_of(&j), INFER_QUICK);
	read_epoch(&b, &j, e, 0, 512);
	CHECK(look(&b));
	infer_records_quit(b.records); /* its search too */
	infer_records_quit(b.records);
	bed_free(&b);
	order_epoch_free(e);
}

/* What could not be followed would be said for ever: more records than that are in no order. And what nobody reads
 * any more was read. */
static void order_is_not_claimed_for_ever(void)
{
	const struct job j = { "torch-loader:seed=42", 0, 50000, 3000, 0, 4, 8, 0 };
	struct order_epoch *e = epoch_of(&j, 0);
	const struct infer_record_file *f;
	struct bed b;

	bed_new(&b, size_of(&j), INFER_QUICK);
	read_epoch(&b, &j, e, 0, 512);
	f = found(&b);
	CHECK(!f->is_over);
	now_ns += JOB_PAUSE_NS;
	f = look(&b);
	CHECK(f && f->is_over && f->spec[0]);
	bed_free(&b);
	bed_new(&b, 1ull << 40, INFER_QUICK); /* of 2^26 records */
	free(b.has);
	b.has = NULL;
	for (uint32_t i = 0; i < 512; i++)
		send(&b, check_rand_below(&b.random, 1u << 26) << 14, 1u << 14, 1 + i % 4);
	f = look(&b);
	CHECK(f && f->view.stride == 1u << 14 && f->view.n == 1u << 26);
	CHECK(!f->is_sought);
	bed_free(&b);
	order_epoch_free(e);
}

/* Of the memory of all each search has a part, and of that what follows the order two halves. */
static void search_has_its_part_of_the_memory(void)
{
	const struct job j = { "torch-loader:seed=42", 0, 50000, 3000, 0, 4, 8, 0 };
	struct order_epoch *e = epoch_of(&j, 0);
	const struct infer_record_file *f;

	for (uint64_t i = 0; i < 2; i++) {
		struct bed b;

		bed_new_small(&b, size_of(&j), INFER_QUICK, j.n * (i ? 200 : 180)); /* 2 * 2 * 2 * 24 bytes of each */
		read_epoch(&b, &j, e, 0, 512);
		f = look(&b);
		CHECK(f && f->is_sought == (i == 1));
		bed_free(&b);
	}
	order_epoch_free(e);
}

static const struct check_test tests[] = {
	{ "shuffles_are_found_in_their_first_epoch", shuffles_are_found_in_their_first_epoch },
	{ "records_before_labels_are_counted_right", records_before_labels_are_counted_right },
	{ "rank_of_several_is_found", rank_of_several_is_found },
	{ "mapped_file_is_found", mapped_file_is_found },
	{ "mapped_file_is_found_with_a_large_read_ahead", mapped_file_is_found_with_a_large_read_ahead },
	{ "mapped_file_is_followed_where_the_kernel_has_most_of_it",
	  mapped_file_is_followed_where_the_kernel_has_most_of_it },
	{ "next_epoch_is_followed", next_epoch_is_followed },
	{ "shuffle_by_no_seed_is_none", shuffle_by_no_seed_is_none },
	{ "places_at_random_are_nothing", places_at_random_are_nothing },
	{ "streams_are_nothing", streams_are_nothing },
	{ "table_has_no_order", table_has_no_order },
	{ "looks_in_vain_cost_little", looks_in_vain_cost_little },
	{ "looks_at_many_files_cost_as_little", looks_at_many_files_cost_as_little },
	{ "looks_in_vain_are_remembered", looks_in_vain_are_remembered },
	{ "step_looks_at_one_file", step_looks_at_one_file },
	{ "other_job_is_looked_at_anew", other_job_is_looked_at_anew },
	{ "hostile_reads_do_nothing", hostile_reads_do_nothing },
	{ "read_that_comes_late_is_no_pause", read_that_comes_late_is_no_pause },
	{ "order_is_not_sought_when_told_so", order_is_not_sought_when_told_so },
	{ "order_is_not_claimed_for_ever", order_is_not_claimed_for_ever },
	{ "search_has_its_part_of_the_memory", search_has_its_part_of_the_memory },
	{ "nothing_is_looked_for_at_the_end", nothing_is_looked_for_at_the_end },
};

CHECK_MAIN(tests)
