/* SPDX-License-Identifier: Apache-2.0 */
/* The keys sort= and under=: orders of a job that numbers the samples in its own way. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/ids.h"
#include "clairfs/order.h"

#define N 200

/* sort=backwards: the samples from the last one down; under=even: every second one. */
static int number(void *ctx, const char *sort, const char *under, uint32_t **ret_sample,
		  uint64_t *ret_n, struct err *err)
{
	uint32_t step = under ? 2 : 1;
	bool is_backwards = sort != NULL;

	if (ctx)
		++*(unsigned *)ctx;
	if (sort && strcmp(sort, "backwards") != 0)
		return err_set(err, -EINVAL, "unknown sort");
	if (under && strcmp(under, "even") != 0)
		return err_set(err, -ENOENT, "no such directory");
	*ret_n = N / step;
	*ret_sample = calloc(*ret_n, sizeof(uint32_t));
	for (uint32_t i = 0; i < *ret_n; i++)
		(*ret_sample)[i] = is_backwards ? N - step - i * step : i * step;
	return 0;
}

/* The path of sample 7 is "7". */
static bool resolve(void *ctx, const char *path, size_t len, uint32_t *ret_sample)
{
	*ret_sample = 0;
	for (size_t i = 0; i < len; i++)
		*ret_sample = *ret_sample * 10 + (uint32_t)(path[i] == '/' ? 0 : path[i] - '0');
	return true; /* even what no sample is: who asks must not trust it */
}

static int make(const char *text, struct order **ret, struct err *err)
{
	struct order_params params = { .n = N, .resolve = resolve, .number = number };
	struct order_spec *spec;
	int rc = order_spec_parse(text, &spec, err);

	CHECK_INT(rc, 0);
	rc = order_new(spec, &params, ret, err);
	order_spec_free(spec);
	return rc;
}

static struct order *order_of(const char *text)
{
	struct order *order;
	struct err err = { 0 };

	CHECK_INT(make(text, &order, &err), 0);
	return order;
}

/* The numbers that the same spec gives without the keys, for n samples. */
static struct order_epoch *plain(const char *text, uint64_t n, uint64_t epoch)
{
	struct order_params params = { .n = n };
	struct order_spec *spec;
	struct order *order;
	struct order_epoch *ep;
	struct err err = { 0 };

	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	CHECK_INT(order_new(spec, &params, &order, &err), 0);
	CHECK_INT(order_epoch_new(order, epoch, &ep, &err), 0);
	order_free(order);
	order_spec_free(spec);
	return ep;
}

static void check_positions(const struct order_epoch *ep)
{
	for (uint64_t p = ep->length; p-- > 0;) {
		CHECK(ep->sample[p] < ep->n);
		CHECK(ep->first[ep->sample[p]] <= p);
	}
	for (uint32_t s = 0; s < ep->n; s++)
		CHECK(ep->first[s] == SAMPLE_NONE || ep->sample[ep->first[s]] == s);
}

static void a_part_is_shuffled_by_its_own_size(void)
{
	struct order *order = order_of("torch-distributed:seed=5:world=3:ranks=0-1:under=even:"
				       "sort=backwards");
	struct order_epoch *want = plain("torch-distributed:seed=5:world=3:ranks=0-1", N / 2, 4);
	struct order_epoch *ep;
	struct err err = { 0 };

	CHECK_U64(order_info(order)->n, N);
	CHECK_INT(order_epoch_new(order, 4, &ep, &err), 0);
	CHECK_U64(ep->n, N);
	CHECK_U64(ep->length, want->length);
	for (uint64_t p = 0; p < ep->length; p++)
		CHECK_U64(ep->sample[p], N - 2 - 2 * want->sample[p]);
	check_positions(ep);
	for (uint32_t s = 1; s < N; s += 2)
		CHECK_U64(ep->first[s], SAMPLE_NONE);
	order_epoch_free(ep);
	order_epoch_free(want);
	order_free(order);
}

static void one_rank_alone_has_the_same_numbers(void)
{
	struct order *order = order_of("torch-distributed:seed=5:world=3:rank=2:sort=backwards");
	struct order_epoch *ep;
	struct err err = { 0 };
	AUTO_FREE uint32_t *sample = NULL;
	uint64_t length;

	CHECK_INT(order_epoch_new(order, 0, &ep, &err), 0);
	CHECK_INT(order_rank_epoch(order, 0, 2, &sample, &length, &err), 0);
	CHECK_U64(length, ep->length);
	CHECK(memcmp(sample, ep->sample, length * sizeof(*sample)) == 0);
	order_epoch_free(ep);
	order_free(order);
}

static void samples_of_other_directories_are_outside(void)
{
	struct order *order = order_of("torch-loader:seed=1:under=even");
	const uint64_t *outside = order_info(order)->outside;

	for (uint32_t s = 0; s < N; s++)
		CHECK_INT((outside[s / 64] >> s % 64 & 1) != 0, s % 2);
	order_free(order);
	order = order_of("torch-loader:seed=1:sort=backwards");
	CHECK(!order_info(order)->outside);
	order_free(order);
	order = order_of("torch-loader:seed=1");
	CHECK(!order_info(order)->outside);
	order_free(order);
}

static void a_list_of_paths_means_the_same_files(void)
{
	static const char text[] = "/10\n/4\n1\n/198\n";
	AUTO_FREE char *path = check_write_file("list.txt", text, sizeof(text) - 1);
	static const uint32_t want[] = { 10, 4, 2,
					 198 }; /* number 1 of the even ones is sample 2 */
	char spec[512];
	struct order *order;
	struct order_epoch *ep;
	struct err err = { 0 };

	snprintf(spec, sizeof(spec), "list:path=%s:under=even", path);
	order = order_of(spec);
	CHECK_INT(order_epoch_new(order, 0, &ep, &err), 0);
	CHECK_U64(ep->length, 4);
	for (uint32_t i = 0; i < 4; i++)
		CHECK_U64(ep->sample[i], want[i]);
	order_epoch_free(ep);
	order_free(order);
}

static void paths_outside_of_the_part_and_beyond_the_samples_are_refused(void)
{
	static const char *const texts[] = { "/3\n", "/4000000000\n", "150\n" };

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		AUTO_FREE char *path = check_write_file("bad.txt", texts[i], strlen(texts[i]));
		char spec[512];
		struct order *order;
		struct err err = { 0 };

		snprintf(spec, sizeof(spec), "list:path=%s:under=even", path);
		CHECK(make(spec, &order, &err) < 0);
		CHECK(strstr(err.msg, "line 1") != NULL);
	}
}

/* Against the numbers that Python gives for Subset and random_split of the same. */
static void some_of_the_samples_only(void)
{
	struct order *order = order_of("torch-distributed:seed=5:first=40:under=even:sort=backwards");
	struct order_epoch *want = plain("torch-distributed:seed=5", 40, 1);
	struct order_epoch *split = plain("torch-randperm:seed=42", N / 2, 0);
	struct order_epoch *ep;
	struct err err = { 0 };

	CHECK_INT(order_epoch_new(order, 1, &ep, &err), 0);
	CHECK_U64(ep->length, 40);
	for (uint64_t p = 0; p < ep->length; p++)
		CHECK_U64(ep->sample[p], N - 2 - 2 * want->sample[p]);
	check_positions(ep);
	order_epoch_free(ep);
	CHECK(order_info(order)->outside[0] & 1); /* number 99 of the part */
	CHECK(!(order_info(order)->outside[(N - 2) / 64] >> (N - 2) % 64 & 1));
	order_free(order);
	order = order_of("torch-distributed:seed=5:split=42:first=40:under=even");
	CHECK_INT(order_epoch_new(order, 1, &ep, &err), 0);
	CHECK_U64(ep->length, 40);
	for (uint64_t p = 0; p < ep->length; p++)
		CHECK_U64(ep->sample[p], 2 * split->sample[want->sample[p]]);
	check_positions(ep);
	order_epoch_free(ep);
	order_free(order);
	order = order_of("sequential:split=0:first=3");
	CHECK_INT(order_epoch_new(order, 0, &ep, &err), 0);
	order_epoch_free(split);
	split = plain("torch-randperm:seed=0", N, 0);
	for (uint64_t p = 0; p < 3; p++)
		CHECK_U64(ep->sample[p], split->sample[p]);
	order_epoch_free(ep);
	order_free(order);
	order_epoch_free(split);
	order_epoch_free(want);
}

static void errors_name_the_key(void)
{
	struct order_params none = { .n = N };
	struct order_spec *spec;
	struct order *order;
	struct err err = { 0 };

	CHECK_INT(make("torch-loader:seed=1:sort=tim", &order, &err), -EINVAL);
	CHECK_STR(err.msg, "order torch-loader: key \"sort\": unknown sort");
	CHECK_INT(make("torch-loader:seed=1:under=odd", &order, &err), -ENOENT);
	CHECK_STR(err.msg, "order torch-loader: key \"under\": no such directory");
	CHECK_INT(order_spec_parse("torch-loader:seed=1:under=a%3Ab", &spec, &err), 0);
	CHECK_STR(order_spec_text(spec), "torch-loader:seed=1:under=a%3Ab");
	CHECK_INT(order_new(spec, &none, &order, &err), -EINVAL);
	CHECK_STR(err.msg, "order torch-loader: key \"under\" needs the files of a dataset");
	order_spec_free(spec);
	CHECK_INT(order_spec_parse("torch-loader:seed=1:under=", &spec, &err), -EINVAL);
	CHECK_INT(make("torch-loader:seed=1:first=101:under=even", &order, &err), -EINVAL);
	CHECK_STR(err.msg, "order torch-loader: key \"first\": there are 100 samples, not 101");
	CHECK_INT(order_spec_parse("sequential:first=0", &spec, &err), -EINVAL);
	CHECK_INT(order_spec_parse("sequential:split=0:first=3:sort=backwards", &spec, &err), 0);
	CHECK_STR(order_spec_text(spec), "sequential:split=0:first=3:sort=backwards");
	order_spec_free(spec);
}

static void renumbered(const char *text, const char *sort, const char *under, uint64_t epoch,
		       const char *want)
{
	struct order_spec *spec, *again;
	struct err err = { 0 };
	AUTO_FREE char *got = NULL;

	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	got = order_spec_renumbered(spec, sort, under, epoch);
	CHECK_STR(got, want);
	CHECK_INT(order_spec_parse(got, &again, &err), 0);
	CHECK_STR(order_spec_text(again), want);
	order_spec_free(again);
	order_spec_free(spec);
}

static void a_spec_is_written_again_with_other_numbers(void)
{
	renumbered("torch-loader:seed=1", "timm", NULL, 0, "torch-loader:seed=1:sort=timm");
	renumbered("torch-loader:seed=1:sort=timm:under=a", NULL, "b:c,d", 0,
		   "torch-loader:seed=1:under=b%3Ac%2Cd");
	renumbered("torch-distributed:world=4:ranks=1-2:epochs=9:start_epoch=2:start_step=7:"
		   "batch=8:workers=3:sort=walk",
		   "path", "x", 4,
		   "torch-distributed:world=4:ranks=1-2:epochs=7:start_epoch=4:batch=8:workers=3:"
		   "sort=path:under=x");
	/* an epoch the job should not have: how many it reads is not known any more */
	renumbered("torch-loader:seed=1:epochs=3:start_epoch=5", "walk", NULL, 0,
		   "torch-loader:seed=1:sort=walk");
	renumbered("torch-loader:seed=1:epochs=3", NULL, NULL, 3,
		   "torch-loader:seed=1:start_epoch=3");
}

static const struct check_test tests[] = {
	{ "some_of_the_samples_only", some_of_the_samples_only },
	{ "a_spec_is_written_again_with_other_numbers",
	  a_spec_is_written_again_with_other_numbers },
	{ "a_part_is_shuffled_by_its_own_size", a_part_is_shuffled_by_its_own_size },
	{ "one_rank_alone_has_the_same_numbers", one_rank_alone_has_the_same_numbers },
	{ "samples_of_other_directories_are_outside", samples_of_other_directories_are_outside },
	{ "a_list_of_paths_means_the_same_files", a_list_of_paths_means_the_same_files },
	{ "paths_outside_of_the_part_and_beyond_the_samples_are_refused",
	  paths_outside_of_the_part_and_beyond_the_samples_are_refused },
	{ "errors_name_the_key", errors_name_the_key },
};
CHECK_MAIN(tests)
