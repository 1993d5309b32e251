/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of records and what is told of such orders in records, held to order_head and to a plain
 * search: of every kind that numbers records. */
#include "clairfs/order/records.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/ids.h"

/* Nine files of a table of 97 records; 3 comes twice, and one is no sample. */
static const struct order_shard shards[] = {
	{ 3, 11, 0 }, { 0, 20, 0 }, { 2, 1, 0 }, { SAMPLE_NONE, 5, 0 },
	{ 3, 9, 0 },  { 4, 15, 0 }, { 7, 3, 0 }, { 5, 33, 0 },
};
#define N 9
#define N_RECORDS 97

static int list_shards(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	*ret = malloc(sizeof(shards));
	CHECK(*ret);
	memcpy(*ret, shards, sizeof(shards));
	*ret_n = ARRAY_LEN(shards);
	return 0;
}

/* Below "part": 3 and 5, records 0 to 10, 37 to 45, 64 to 96. */
static int number(void *ctx, const char *sort, const char *under, uint32_t **ret_sample,
		  uint64_t *ret_n, struct err *err)
{
	*ret_n = under ? 2 : N;
	*ret_sample = malloc(N * sizeof(**ret_sample));
	CHECK(*ret_sample);
	for (uint32_t i = 0; i < N; i++)
		(*ret_sample)[i] = under ? 3 + 2 * i : i;
	return 0;
}

/* "file.5" */
static bool resolve(void *ctx, const char *path, size_t len, uint32_t *ret_sample)
{
	*ret_sample = len == 6 ? (uint32_t)(path[5] - '0') : 0;
	return len == 6;
}

static bool is_in_part(uint32_t record)
{
	return record < 11 || (record >= 37 && record < 46) || record >= 64;
}

/* What is there, one number after the other; behind the last one there is enough. */
static uint64_t memory_there[4];
static unsigned n_asked;

static uint64_t memory(void)
{
	return n_asked < ARRAY_LEN(memory_there) ? memory_there[n_asked++] : 0;
}

static int make(const char *text, struct order **ret, struct err *err)
{
	const struct order_params params = { .n = N,
					     .resolve = resolve,
					     .number = number,
					     .n_records = N_RECORDS,
					     .shards = list_shards,
					     .memory = memory };
	struct order_spec *spec;
	int rc = order_spec_parse(text, &spec, err);

	CHECK_STR(err->msg, "");
	CHECK_INT(rc, 0);
	rc = order_new(spec, &params, ret, err);
	order_spec_free(spec);
	return rc;
}

static struct order *order_of(const char *text)
{
	struct order *order = NULL;
	struct err err = { 0 };
	int rc = make(text, &order, &err);

	CHECK_STR(err.msg, "");
	CHECK_INT(rc, 0);
	return order;
}

/* What the local ranks read, rank by rank and put together by hand: row after row, ascending rank. */
static uint64_t merged_by_hand(const struct order *order, uint64_t epoch, uint32_t *out, uint64_t most)
{
	const struct order_info *info = order_records_info(order);
	uint32_t *sample[8];
	uint64_t length[8], at = 0, longest = 0;
	struct err err = { 0 };

	CHECK(info->n_ranks <= 8);
	for (uint32_t r = 0; r < info->n_ranks; r++) {
		CHECK_INT(order_rank_epoch(order, epoch, info->ranks[r], &sample[r], &length[r], &err), 0);
		longest = MAX(longest, length[r]);
	}
	for (uint64_t row = 0; row < longest; row++)
		for (uint32_t r = 0; r < info->n_ranks; r++)
			if (row < length[r]) {
				CHECK(at < most);
				out[at++] = sample[r][row];
			}
	for (uint32_t r = 0; r < info->n_ranks; r++)
		free(sample[r]);
	return at;
}

/* The index of positions is what a plain search finds. */
static void check_positions(const struct order_epoch *e)
{
	for (uint32_t record = 0; record < e->n; record++) {
		uint32_t first = SAMPLE_NONE;

		for (uint64_t i = e->length; i-- > 0;)
			if (e->sample[i] == record)
				first = (uint32_t)i;
		CHECK_U64(e->first[record], first);
	}
	for (uint64_t i = 0; i < e->length; i++) {
		uint64_t next = i + 1;

		while (next < e->length && e->sample[next] != e->sample[i])
			next++;
		CHECK_U64(e->next_same ? e->next_same[i] : SAMPLE_NONE,
			  next < e->length ? next : SAMPLE_NONE);
	}
}

static void check_epoch(const struct order *order, uint64_t epoch)
{
	const struct order_part all = { .epoch = epoch, .count = UINT64_MAX };
	AUTO_FREE uint32_t *head = NULL, *by_hand = calloc(4000, sizeof(*by_hand));
	struct order_epoch *e;
	struct err err = { 0 };
	uint64_t n;

	CHECK(by_hand);
	CHECK_INT(order_records_epoch_new(order, epoch, &e, &err), 0);
	CHECK_INT(order_head(order, &all, &head, &n, &err), 0);
	CHECK_U64(e->epoch, epoch);
	CHECK_U64(e->n, N_RECORDS);
	CHECK_U64(e->length, n);
	CHECK_INT(memcmp(e->sample, head, n * sizeof(*head)), 0);
	CHECK_U64(merged_by_hand(order, epoch, by_hand, 4000), n);
	CHECK_INT(memcmp(e->sample, by_hand, n * sizeof(*head)), 0);
	check_positions(e);
	order_epoch_free(e);
}

/* One of each kind at least; ranks that are not all of the world, padding, epochs that repeat. */
static const char *const specs[] = {
	"sequential:records=1",
	"torch-randperm:seed=1:records=1",
	"torch-distributed:seed=1:records=1",
	"torch-distributed:seed=1:records=1:world=5:ranks=1-3:drop_last=0",
	"torch-distributed:seed=1:records=1:world=200:ranks=0-3+120:drop_last=0:under=part",
	"torch-loader:seed=2:records=1:first=20:split=5",
	"torch-loader:seed=2:records=1:replacement=1:num_samples=300",
	"torch-generator:seed=3:records=1",
	"torch-subset:seed=3:records=1",
	"torchdata-loader:seed=3:records=1",
	"detectron2-training:seed=3:records=1:world=3:ranks=0-1",
	"timm-repeataug:records=1:world=3:ranks=0+2",
	"numpy-legacy:seed=3:records=1",
	"numpy-generator:seed=3:records=1:add_epoch=1",
	"python-random:seed=3:records=1",
	"accelerate:seed=3:records=1:world=2:ranks=0-1:batch=4",
	"mosaic-naive:world=4:ranks=1-2",
	"mosaic-py1s:seed=3:world=2:nodes=2:rank=1:batch=3",
	"mosaic-py2s:seed=3:under=part",
	"mosaic-py1br:seed=3:block=8",
	"mosaic-py1e:seed=3:world=4:ranks=0-1+3",
	"litdata:seed=9:world=2:ranks=0-1:batch=4:workers=2",
	"litdata:seed=9:under=part",
	"ffcv:seed=4:world=2:rank=0:batch=3:under=file.5",
	"grain:seed=5:world=3:ranks=1-2",
	"tf-shuffle:seed=5:buffer=9:records=1",
	"dali-file:records=1:world=2:ranks=0-1",
	"dlio-v0.5:seed=1:records=1",
	"dlio-v1:seed=1:records=1:world=2:ranks=0-1",
	"dlio-v2:records=1",
};

static void epochs_of_records_are_what_the_ranks_read(void)
{
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct order *order = order_of(specs[i]);

		printf("# %s\n", specs[i]);
		for (uint64_t epoch = 0; epoch < 3; epoch++)
			check_epoch(order, epoch);
		order_free(order);
	}
}

static bool is_of_kind(const char *spec, const char *kind)
{
	size_t n = strlen(kind);

	return strncmp(spec, kind, n) == 0 && (spec[n] == ':' || !spec[n]);
}

/* Those that are not above read each file from front to back, or need a file. */
static void every_kind_that_numbers_records_is_there(void)
{
	static const char *const others[] = { "webdataset", "tf-list-files", "list", "megatron" };

	for (const char *const *kind = order_kinds(); *kind; kind++) {
		unsigned n = 0;

		for (size_t i = 0; i < ARRAY_LEN(specs); i++)
			n += is_of_kind(specs[i], *kind);
		for (size_t i = 0; i < ARRAY_LEN(others); i++)
			n += strcmp(others[i], *kind) == 0;
		if (n == 0)
			printf("# %s\n", *kind);
		CHECK(n > 0);
	}
}

/* A list of records, with headings; one comes twice. */
static void lists_of_records_have_epochs_too(void)
{
	static const char text[] = "# epoch 0\n96\n0\n50\n# epoch 1\n7\n7\n8\n# epoch 2\n1\n";
	AUTO_FREE char *path = check_write_file("list.txt", text, strlen(text));
	struct order_epoch *e;
	struct order *order;
	struct err err = { 0 };
	char spec[300];

	snprintf(spec, sizeof(spec), "list:path=%s:records=1", path);
	order = order_of(spec);
	for (uint64_t epoch = 0; epoch < 3; epoch++)
		check_epoch(order, epoch);
	CHECK_INT(order_records_epoch_new(order, 3, &e, &err), -ENOENT);
	CHECK(!e);
	order_free(order);
}

static void put_npy(const char *name, const char *header, const uint32_t *data, size_t n)
{
	uint8_t bytes[400] = "\x93NUMPY\1\0";
	size_t length = strlen(header);

	bytes[8] = (uint8_t)length;
	memcpy(bytes + 10, header, length);
	memcpy(bytes + 10 + length, data, n * sizeof(*data));
	free(check_write_file(name, bytes, 10 + length + n * sizeof(*data)));
}

/* Four samples that begin in documents 2, 0, 0 and 1, which are sequences 30, 31 and 3 of a file whose
 * first record is 64. */
static void megatron_has_epochs_of_records_too(void)
{
	static const uint32_t shuffle[] = { 2, 0, 3, 1 }, sample[] = { 2, 0, 0, 0, 0, 1, 1, 0, 2, 0 },
			      document[] = { 30, 31, 3 }, wanted[] = { 94, 67, 95, 94 };
	struct order_epoch *e;
	struct order *order;
	struct err err = { 0 };
	char spec[300];

	put_npy("m-shuffle_index.npy", "{'descr': '<u4', 'fortran_order': False, 'shape': (4,), }", shuffle, 4);
	put_npy("m-sample_index.npy", "{'descr': '<i4', 'fortran_order': False, 'shape': (5, 2), }", sample, 10);
	put_npy("m-document_index.npy", "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }", document, 3);
	snprintf(spec, sizeof(spec), "megatron:path=%s/m:under=file.5", check_tmpdir());
	order = order_of(spec);
	check_epoch(order, 0);
	CHECK_INT(order_records_epoch_new(order, 0, &e, &err), 0);
	CHECK_U64(e->length, 4);
	CHECK_BYTES(e->sample, wanted, sizeof(wanted));
	CHECK_U64(e->next_same[0], 3);
	order_epoch_free(e);
	order_free(order);
}

static void check_start(const struct order *order, uint64_t epoch, uint64_t start)
{
	struct order_epoch *e;
	struct err err = { 0 };

	CHECK_INT(order_records_epoch_new(order, epoch, &e, &err), 0);
	CHECK_U64(e->start, start);
	order_epoch_free(e);
}

/* What order_info leaves out, as it is of records. */
static void info_is_of_records(void)
{
	struct order *order = order_of("torch-distributed:seed=1:records=1:under=part:world=2:ranks=0-1:"
				       "start_epoch=3:epochs=7:start_step=2:batch=5:workers=4:prefetch_factor=3");
	const struct order_info *info = order_records_info(order);

	CHECK_U64(info->n, N_RECORDS);
	CHECK_U64(order_n_records(order), 11 + 9 + 33);
	CHECK_U64(info->start_epoch, 3);
	CHECK_U64(info->epochs, 7);
	CHECK_U64(info->start_step, 2);
	CHECK_U64(info->batch, 5);
	CHECK_U64(info->workers, 4);
	CHECK_U64(info->prefetch_factor, 3);
	CHECK_U64(info->world, 2);
	CHECK_U64(info->n_ranks, 2);
	CHECK(!info->is_same_every_epoch && !info->may_be_left);
	for (uint32_t i = 0; i < N_RECORDS; i++)
		CHECK_INT(info->outside[i / 64] >> i % 64 & 1, !is_in_part(i));
	check_epoch(order, 3); /* whole, though its beginning was read */
	check_start(order, 3, 2 * 5 * 2);
	check_start(order, 4, 0);
	order_may_be_left(order);
	CHECK(info->may_be_left && order_info(order)->may_be_left);
	order_free(order);
	/* Through with an epoch: it is the next one in files, and stands as it was told in records. */
	order = order_of("sequential:records=1:start_epoch=1:start_step=10:batch=10");
	CHECK_U64(order_info(order)->start_epoch, 2);
	CHECK_U64(order_records_info(order)->start_epoch, 1);
	CHECK_U64(order_records_info(order)->start_step, 10);
	CHECK(order_records_info(order)->is_same_every_epoch);
	check_start(order, 1, N_RECORDS);
	CHECK(!order_records_info(order)->outside);
	order_free(order);
	order = order_of("sequential");
	CHECK(!order_records_info(order));
	order_free(order);
}

/* Each array is asked for: the sequence, where records stand, and where they stand again. */
static void an_epoch_that_has_no_room_is_refused(void)
{
	static const struct {
		const char *spec;
		uint64_t there[4];
		int rc;
	} cases[] = {
		{ "sequential:records=1", { 0, 4 * 97, 4 * 97 + 1 }, -ENOMEM },
		{ "sequential:records=1", { 0, 4 * 97 + 1, 4 * 97 }, -ENOMEM },
		{ "sequential:records=1", { 0, 4 * 97 + 1, 4 * 97 + 1 }, 0 },
		{ "torch-distributed:seed=1:records=1:world=2:rank=0", { 0, 4 * (97 + 49) }, -ENOMEM },
		{ "torch-loader:seed=1:records=1:replacement=1", { 0, 8000, 4 * 97 + 1, 4 * 97 }, -ENOMEM },
		{ "torch-loader:seed=1:records=1:replacement=1", { 0, 8000, 4 * 97 + 1, 4 * 97 + 1 }, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct order *order;
		struct order_epoch *e;
		struct err err = { 0 };

		memcpy(memory_there, cases[i].there, sizeof(memory_there));
		n_asked = 0;
		order = order_of(cases[i].spec);
		CHECK_U64(n_asked, 1);
		CHECK_INT(order_records_epoch_new(order, 0, &e, &err), cases[i].rc);
		CHECK((e == NULL) == (cases[i].rc < 0));
		if (cases[i].rc < 0)
			CHECK_CONTAINS(err.msg, "MiB of memory and 0 MiB are available");
		order_epoch_free(e);
		order_free(order);
		memset(memory_there, 0, sizeof(memory_there));
	}
}

/* What reads on through its files is better off with files. */
static void a_job_that_goes_through_the_table_is_known(void)
{
	static const struct {
		const char *spec;
		bool is_near;
	} cases[] = {
		{ "sequential:records=1", true },
		{ "sequential:records=1:start_epoch=3:start_step=10:batch=4", true },
		{ "torch-distributed:shuffle=0:records=1:world=2:ranks=0-1", true },
		{ "torch-distributed:seed=1:records=1:world=2:ranks=0-1", false },
		{ "torch-distributed:seed=1:records=1:world=1", false },
		{ "torch-randperm:seed=5:records=1", false },
		{ "torch-loader:seed=1:records=1:replacement=1", false },
	};
	struct order *no_room;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct order *order = order_of(cases[i].spec);

		CHECK_INT(order_records_are_near(order), cases[i].is_near);
		order_free(order);
	}
	memory_there[1] = 1; /* it is not looked at then */
	n_asked = 0;
	no_room = order_of("sequential:records=1");
	CHECK(!order_records_are_near(no_room));
	order_free(no_room);
	memset(memory_there, 0, sizeof(memory_there));
}

static const struct check_test tests[] = {
	{ "a_job_that_goes_through_the_table_is_known", a_job_that_goes_through_the_table_is_known },
	{ "epochs_of_records_are_what_the_ranks_read", epochs_of_records_are_what_the_ranks_read },
	{ "every_kind_that_numbers_records_is_there", every_kind_that_numbers_records_is_there },
	{ "lists_of_records_have_epochs_too", lists_of_records_have_epochs_too },
	{ "megatron_has_epochs_of_records_too", megatron_has_epochs_of_records_too },
	{ "info_is_of_records", info_is_of_records },
	{ "an_epoch_that_has_no_room_is_refused", an_epoch_that_has_no_room_is_refused },
};

CHECK_MAIN(tests)
