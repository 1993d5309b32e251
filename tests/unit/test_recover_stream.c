/* SPDX-License-Identifier: Apache-2.0 */
/* A loader's seed among the words of generators that jobs seed: the words are the generators', a
 * seed deep in a stream is found with its place, and looked up where it is known. And what keeps
 * searches out of the way of others. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "check.h"
#include "clairfs/order.h"
#include "clairfs/recover.h"
#include "src/recover/recover_priv.h"

#define N 100000
#define SEEN 40

static uint32_t word_of(enum recover_draw draw, uint32_t seed, uint32_t word)
{
	return recover_place_word(&(struct recover_place){ draw, seed, word });
}

/* Of numpy 2.4 and CPython 3.11. numpy.random.seed(7): randint(2**31) twice; random.seed(42):
 * getrandbits(32) twice. */
static void words_are_the_generators(void)
{
	uint64_t random = check_seed();
	struct mt mt;

	CHECK_U64(word_of(RECOVER_TORCH, 42, 0), 1608637542);
	CHECK_U64(word_of(RECOVER_NUMPY, 42, 1), 1273642419);
	CHECK_U64(word_of(RECOVER_NUMPY, 7, 0), 327741615);
	CHECK_U64(word_of(RECOVER_NUMPY, 7, 1), 976413892);
	CHECK_U64(word_of(RECOVER_PYTHON, 42, 0), 2746317213);
	CHECK_U64(word_of(RECOVER_PYTHON, 42, 1), 478163327);
	for (int i = 0; i < 20; i++) {
		uint32_t seed = (uint32_t)check_rand_u64(&random);
		uint32_t word = (uint32_t)check_rand_below(&random, 5000);

		mt_seed(&mt, seed);
		for (uint32_t k = 0; k < word; k++)
			(void)mt_u32(&mt);
		CHECK_U64(recover_word(seed, word), mt_u32(&mt));
	}
}

/* Far words are jumped to. */
static void far_words_follow_each_other(void)
{
	uint32_t first = (40u << 20) - 700, words[1400];
	struct feed feed = { 0 };

	CHECK_INT(feed_seek(&feed, &(struct recover_place){ RECOVER_TORCH, 1337, first }), 0);
	feed_take(&feed, words, 1400);
	CHECK_U64(feed.at.word, first + 1400);
	feed_fini(&feed);
	for (uint32_t i = 0; i < 1400; i += 233)
		CHECK_U64(recover_word(1337, first + i), words[i]);
	/* Without a jump. */
	CHECK_INT(feed_seek(&feed, &(struct recover_place){ RECOVER_TORCH, 1337, 0 }), 0);
	for (uint32_t at = 0; at < first; at += 700)
		feed_take(&feed, words, MIN(700, first - at));
	feed_take(&feed, words, 1);
	CHECK_U64(words[0], recover_word(1337, first));
	feed_fini(&feed);
}

/* The first samples of an epoch. */
static void see(const char *text, uint64_t epoch, uint32_t seen[SEEN])
{
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	uint32_t *sample = NULL;
	struct err err = { 0 };
	uint64_t length;

	if (order_spec_parse(text, &spec, &err) < 0 ||
	    order_new(spec, &(struct order_params){ .n = N }, &order, &err) < 0 ||
	    order_rank_epoch(order, epoch, 0, &sample, &length, &err) < 0)
		CHECK_STR(err.msg, "");
	memcpy(seen, sample, SEEN * sizeof(*seen));
	free(sample);
	order_free(order);
	order_spec_free(spec);
}

static struct recover_params params_of(const uint32_t *seen, const struct recover_stream *streams,
				       size_t n)
{
	struct recover_params params;

	recover_params_init(&params);
	params.n = N;
	params.seen = seen;
	params.n_seen = SEEN;
	params.threads = 2;
	params.effort = RECOVER_STREAMS;
	params.streams = streams;
	params.n_streams = n;
	return params;
}

/* Every word of the first streams' segments can be the one: at a seam, at an odd place, with other
 * generators. The spec says how the job goes on. */
static void a_seed_behind_many_draws_is_found(void)
{
	static const struct recover_stream streams[] = {
		{ { RECOVER_TORCH, 42, 0 }, 70000 },
		{ { RECOVER_TORCH, 42, 70000 }, 50001 },
		{ { RECOVER_NUMPY, 5, 30000 }, 20000 },
		{ { RECOVER_PYTHON, 1, 1000 }, 20000 },
		{ { RECOVER_TORCH, 1234, 30000000 }, 100000 },
	};
	static const struct recover_place places[] = {
		{ RECOVER_TORCH, 42, 131 },	 { RECOVER_TORCH, 42, 69999 },
		{ RECOVER_TORCH, 42, 70000 },	 { RECOVER_TORCH, 42, 120000 },
		{ RECOVER_NUMPY, 5, 49999 },	 { RECOVER_PYTHON, 1, 1000 },
		{ RECOVER_TORCH, 1234, 30016384 },
	};

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		const struct recover_place *want = &places[i];
		uint32_t seen[SEEN], next[SEEN], later[SEEN];
		struct recover_params params = params_of(seen, streams, ARRAY_LEN(streams));
		struct recover_found found;
		struct err err = { 0 };
		char text[128], spec[128];

		snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32,
			 recover_place_word(want));
		see(text, 0, seen);
		CHECK_INT(recover_search(&params, &found, &err), 0);
		CHECK_U64(found.seed, recover_place_word(want));
		CHECK(found.is_chain);
		CHECK_INT(found.draw, want->draw);
		CHECK_U64(found.manual_seed, want->manual_seed);
		CHECK_U64(found.word, want->word);
		CHECK(recover_spec(&found, N, 0, spec, sizeof(spec)));
		if (want->draw != RECOVER_TORCH) {
			CHECK_STR(spec, text);
			continue;
		}
		snprintf(text, sizeof(text), "torch-loader:seed=%" PRIu32 ":before=%" PRIu32,
			 want->manual_seed, want->word - 3);
		CHECK_STR(spec, text);
		see(spec, 0, later);
		CHECK_BYTES(later, seen, sizeof(seen));
		see(spec, 1, later);
		snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32,
			 recover_word(want->manual_seed, want->word + 4));
		see(text, 0, next);
		CHECK_BYTES(later, next, sizeof(next));
	}
}

static void what_is_not_there_is_not_found(void)
{
	static const struct recover_stream stream = { { RECOVER_TORCH, 42, 0 }, 100000 };
	uint32_t seen[SEEN], worlds[] = { 1, 2 };
	struct recover_params params = params_of(seen, &stream, 1);
	struct recover_found found;
	struct err err = { 0 };
	atomic_bool cancel = true;

	see("torch-randperm:seed=3456789012", 0, seen);
	CHECK_INT(recover_search(&params, &found, &err), -ENOENT);
	/* One word behind the end. */
	see("torch-loader:seed=42:before=99997", 0, seen);
	CHECK_INT(recover_search(&params, &found, &err), -ENOENT);
	see("torch-loader:seed=42:before=99996", 0, seen);
	CHECK_INT(recover_search(&params, &found, &err), 0);
	params.cancel = &cancel;
	CHECK_INT(recover_search(&params, &found, &err), -ECANCELED);
	params.cancel = NULL;
	params.worlds = worlds; /* DistributedSamplers draw no seed */
	params.n_worlds = 2;
	CHECK_INT(recover_search(&params, &found, &err), -ENOENT);
}

static void draws_between_epochs_are_told(void)
{
	uint32_t seen[SEEN], want[SEEN];
	char text[64];

	for (uint32_t epoch = 0; epoch < 3; epoch++) {
		see("torch-loader:seed=42:before=1000:draws=17", epoch, seen);
		snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32,
			 recover_word(42, 1003 + 17 * epoch));
		see(text, 0, want);
		CHECK_BYTES(seen, want, sizeof(want));
		see("torch-loader:seed=42:before=1000:persistent=1", epoch, seen);
		snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32,
			 recover_word(42, 1003 + 2 * epoch));
		see(text, 0, want);
		CHECK_BYTES(seen, want, sizeof(want));
	}
}

static void a_known_seed_is_looked_up(void)
{
	/* The third has what the first has. */
	static const struct recover_stream streams[] = {
		{ { RECOVER_TORCH, 42, 0 }, 300000 },
		{ { RECOVER_TORCH, 7, 0 }, 100000 },
		{ { RECOVER_TORCH, 42, 200000 }, 50000 },
		{ { RECOVER_PYTHON, 42, 0 }, 50000 },
	};
	struct recover_params params = params_of(NULL, streams, ARRAY_LEN(streams));
	struct recover_place place[4];
	struct err err = { 0 };
	atomic_bool cancel = true;
	size_t n;

	CHECK_INT(recover_find(&params, recover_word(42, 222222), place, 4, &n, &err), 0);
	CHECK_U64(n, 2);
	for (size_t i = 0; i < n; i++) {
		CHECK_U64(place[i].manual_seed, 42);
		CHECK_U64(place[i].word, 222222);
	}
	CHECK_INT(recover_find(&params, recover_word(7, 99999), place, 1, &n, &err), 0);
	CHECK_U64(n, 1);
	CHECK_U64(place[0].manual_seed, 7);
	CHECK_U64(place[0].word, 99999);
	CHECK_INT(recover_find(&params, recover_word(7, 100000), place, 1, &n, &err), 0);
	CHECK_U64(n, 0);
	CHECK_INT(recover_find(&params, word_of(RECOVER_PYTHON, 42, 4), place, 1, &n, &err), 0);
	CHECK_U64(n, 1);
	CHECK_INT(place[0].draw, RECOVER_PYTHON);
	params.cancel = &cancel;
	CHECK_INT(recover_find(&params, 1, place, 1, &n, &err), -ECANCELED);
}

/* Where the streams that are tried first end, those that are tried later go on. */
static void likely_streams_have_no_gaps(void)
{
	static const uint32_t wanted[] = { 0, 1, 42, 1234, 1337, 2020, 2025, 2030, 3407 };
	struct recover_stream *shallow, *deep, *lookup;
	size_t n_shallow, n_deep, n_lookup, n_glance;
	uint64_t words = 0;

	CHECK_INT(recover_streams_new(RECOVER_SHALLOW, &shallow, &n_shallow), 0);
	CHECK_INT(recover_streams_new(RECOVER_DEEP, &deep, &n_deep), 0);
	CHECK_INT(recover_streams_new(RECOVER_LOOKUP, &lookup, &n_lookup), 0);
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		uint32_t end = 0;

		for (size_t k = 0; k < n_shallow + n_deep; k++) {
			const struct recover_stream *s =
				k < n_shallow ? &shallow[k] : &deep[k - n_shallow];

			if (s->from.draw != RECOVER_TORCH || s->from.manual_seed != wanted[i])
				continue;
			CHECK_U64(s->from.word, end);
			end += s->count;
		}
		CHECK(end >= 4 << 20);
		/* ResNet-50 of torchvision draws 49 million words. */
		CHECK(wanted[i] != 42 || end >= 50 << 20);
	}
	for (size_t i = 0; i < n_shallow; i++)
		words += shallow[i].count;
	CHECK(words < 60 << 20); /* a second */
	free(deep);
	CHECK_INT(recover_streams_new(RECOVER_GLANCE, &deep, &n_glance), 0);
	CHECK(n_glance == 2 && deep[0].from.manual_seed == 42 && deep[0].count >= 1 << 20);
	free(deep);
	CHECK_INT(recover_streams_new(RECOVER_DEEP, &deep, &n_deep), 0);
	for (size_t i = 0; i < n_deep; i++)
		words += deep[i].count;
	CHECK(words < 750 << 20); /* a sixth of all seeds */
	CHECK(n_lookup > 10000);
	free(shallow);
	free(deep);
	free(lookup);
}

static struct {
	atomic_bool hold, cancel;
	bool cancels;
	unsigned ticks, idle;
	uint64_t done;
} watch;

/* Threads of this process that run as SCHED_IDLE. */
static unsigned count_idle(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned n = 0;

	CHECK(dir != NULL);
	for (struct dirent *e; (e = readdir(dir));)
		if (e->d_name[0] != '.')
			n += sched_getscheduler((pid_t)strtol(e->d_name, NULL, 10)) == SCHED_IDLE;
	closedir(dir);
	return n;
}

static void see_progress(void *ctx, const struct recover_progress *p)
{
	if (watch.ticks++ == 0)
		return;
	if (watch.hold && !watch.cancel) {
		watch.idle = MAX(watch.idle, count_idle());
		watch.done = p->done;
	}
	if (watch.ticks >= 5 && (watch.idle || watch.ticks > 500))
		atomic_store(watch.cancels ? &watch.cancel : &watch.hold, watch.cancels);
}

/* Nothing is computed until it may go on, or is to end. */
static void a_search_that_is_held(void)
{
	static const struct recover_stream stream = { { RECOVER_TORCH, 42, 0 }, 1000000 };
	uint32_t seen[SEEN];
	struct recover_params params = params_of(seen, &stream, 1);
	struct recover_found found;
	struct err err = { 0 };

	int policy = sched_getscheduler(0);

	see("torch-loader:seed=42:before=30000", 0, seen);
	params.is_idle = true;
	params.hold = &watch.hold;
	params.cancel = &watch.cancel;
	params.progress = see_progress;
	for (int round = 0; round < 2; round++) {
		memset(&watch, 0, sizeof(watch));
		watch.hold = true;
		watch.cancels = round == 1;
		CHECK_INT(recover_search(&params, &found, &err), round ? -ECANCELED : 0);
		CHECK(watch.ticks >= 5);
		CHECK_U64(watch.done, 0);
		CHECK_U64(watch.idle, 1);
	}
	CHECK_INT(sched_getscheduler(0), policy);
}

/* A seed that was drawn from another generator is one of its words. */
static void a_word_is_found_where_it_is(void)
{
	uint32_t word;

	CHECK(recover_find_word(42, recover_word(42, 700), 1000, &word));
	CHECK_U64(word, 700);
	CHECK(recover_find_word(42, recover_word(42, 0), 1, &word));
	CHECK_U64(word, 0);
	CHECK(!recover_find_word(42, recover_word(42, 700), 700, &word)); /* not among the first */
	CHECK(!recover_find_word(43, recover_word(42, 700), 5000, &word));
	CHECK(!recover_find_word(42, recover_word(42, 0), 0, &word));
}

static const struct check_test tests[] = {
	{ "words_are_the_generators", words_are_the_generators },
	{ "far_words_follow_each_other", far_words_follow_each_other },
	{ "a_seed_behind_many_draws_is_found", a_seed_behind_many_draws_is_found },
	{ "what_is_not_there_is_not_found", what_is_not_there_is_not_found },
	{ "draws_between_epochs_are_told", draws_between_epochs_are_told },
	{ "a_known_seed_is_looked_up", a_known_seed_is_looked_up },
	{ "likely_streams_have_no_gaps", likely_streams_have_no_gaps },
	{ "a_search_that_is_held", a_search_that_is_held },
	{ "a_word_is_found_where_it_is", a_word_is_found_where_it_is },
};

CHECK_MAIN(tests)
