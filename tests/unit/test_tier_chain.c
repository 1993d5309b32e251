/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk along the chain, over tiers that answer as they are told: who is asked, in which order and
 * for what, and what the answer is in the end. No threads: a test is the owner of the walk and steps
 * it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/tier/chain.h"
#include "tier_reads.h"

#define SIZE 5000u

/* A tier that does as it is told. */
struct fake {
	struct tier tier;
	struct tier_ops ops;
	bool has;
	uint64_t cost;
	int status;         /* of its answers */
	bool is_changed;    /* with a stat of another file */
	uint32_t short_of;  /* bytes that its good answers lack */
	uint32_t n_has, n_asked;
	struct tier_request last; /* what it was asked for */
	char letter;              /* in the bytes it gives, and in the log */
};

static char asked[64]; /* letters of those that were asked; small: for an identity only */

static struct fake *fake_of(const struct tier *tier)
{
	return container_of((struct tier *)(uintptr_t)tier, struct fake, tier);
}

static bool fake_has(struct tier *tier, struct piece_key key, const struct file_identity *identity)
{
	struct fake *fake = fake_of(tier);

	fake->n_has++;
	CHECK_U64(key.entry.v, 7);
	CHECK_U64(identity->ino, 99); /* by the name that copies have, never the source's */
	return fake->has;
}

static uint64_t fake_cost(const struct tier *tier, uint32_t length)
{
	return fake_of(tier)->cost;
}

static void fake_read(struct tier *tier, struct tier_read *read)
{
	struct fake *fake = fake_of(tier);
	bool is_check = read->ask.length == 0;
	char name[2] = { (char)(is_check ? fake->letter + 'a' - 'A' : fake->letter), 0 };

	fake->n_asked++;
	fake->last = read->ask;
	strcat(asked, name);
	CHECK(strlen(asked) + 1 < sizeof(asked));
	read->answer = (struct tier_answer){ .status = fake->status,
					     .is_changed = fake->is_changed };
	if (fake->status == 0) {
		read->answer.got = read->ask.length - (is_check ? 0 : fake->short_of);
		memset(read->ask.buf, fake->letter, read->answer.got);
	}
	read->done(read);
}

static void fake_init(struct fake *fake, char letter, uint64_t cost, bool is_source)
{
	*fake = (struct fake){ .letter = letter, .cost = cost, .has = true };
	fake->ops = (struct tier_ops){ .name = "fake",
				       .read_class = is_source ? READ_MISS : READ_STORE,
				       .verifies_identity = is_source,
				       .has = is_source ? NULL : fake_has,
				       .cost = fake_cost,
				       .read = fake_read };
	fake->tier.ops = &fake->ops;
}

/* A near copy N, a far one F, and the source S. */
struct rig {
	struct fake near, far, source;
	struct chain chain;
	struct walk walk;
	uint8_t bytes[SIZE];
	int n_done;
	int learnt; /* what the owner makes of good answers of the source; 0: they hold */
};

static void rig_done(struct tier_read *read)
{
	struct rig *rig = read->ctx;

	rig->n_done++;
}

static void rig_init(struct rig *rig)
{
	*rig = (struct rig){ .n_done = 0 };
	fake_init(&rig->near, 'N', 10, false);
	fake_init(&rig->far, 'F', 20, false);
	fake_init(&rig->source, 'S', 1, true);
	struct tier *tiers[] = { &rig->source.tier, &rig->far.tier, NULL, &rig->near.tier };
	CHECK_INT(chain_init(&rig->chain, tiers, ARRAY_LEN(tiers), NULL), 0);
	rig->walk.want = (struct tier_request){ .key = { { 7 }, 0 },
						.path = "x",
						.expect = { .ino = 1, .size = SIZE },
						.buf = rig->bytes,
						.length = SIZE };
	rig->walk.kept = (struct file_identity){ .ino = 99, .size = SIZE };
	rig->walk.may_copy = true;
	rig->walk.read.done = rig_done;
	rig->walk.read.ctx = rig;
	asked[0] = 0;
}

/* The whole walk; the status in the end. */
static int rig_walk(struct rig *rig)
{
	struct walk *w = &rig->walk;
	int n = 0, status;

	walk_begin(w, &rig->chain);
	do {
		CHECK(w->state != WALK_NEW && w->state != WALK_OVER);
		tier_read(walk_tier(w), &w->read);
		CHECK_INT(rig->n_done, ++n);
		status = walk_status(w);
		if (status == 0 && walk_tier(w)->ops->verifies_identity)
			status = rig->learnt;
	} while (walk_answered(w, status));
	CHECK_INT(w->state, WALK_OVER);
	return status;
}

/* A walk that is to go this way, and to end with the bytes of the last one asked. */
#define CHECK_WALK(rig, way)                                                                       \
	do {                                                                                       \
		CHECK_INT(rig_walk(rig), 0);                                                       \
		CHECK_STR(asked, way);                                                             \
		CHECK_INT((rig)->bytes[0], (way)[strlen(way) - 1]);                                \
		CHECK_INT((rig)->bytes[SIZE - 1], (way)[strlen(way) - 1]);                         \
	} while (0)

static void cheapest_copy_is_asked_once_the_file_is_known_to_be_the_same(void)
{
	struct rig rig;

	rig_init(&rig);
	CHECK_WALK(&rig, "sN");
	CHECK_INT(walk_tier(&rig.walk)->ops->read_class, READ_STORE);
	CHECK_U64(rig.near.last.expect.ino, 99);
	CHECK_U64(rig.source.last.expect.ino, 1);
	CHECK_U64(rig.far.n_asked, 0);
}

static void file_that_was_looked_at_lately_is_not_asked_about(void)
{
	struct rig rig;

	rig_init(&rig);
	rig.walk.is_verified = true;
	CHECK_WALK(&rig, "N");
}

static void tier_that_has_nothing_is_passed_over(void)
{
	struct rig rig;

	rig_init(&rig);
	rig.near.has = false;
	CHECK_WALK(&rig, "sF");
	rig_init(&rig);
	rig.near.has = rig.far.has = false;
	CHECK_WALK(&rig, "S"); /* and nothing is asked in vain */
	CHECK_INT(walk_tier(&rig.walk)->ops->read_class, READ_MISS);
	CHECK_U64(rig.source.last.expect.ino, 1);
}

static void copy_that_fails_is_no_answer(void)
{
	static const int errors[] = { -EIO, -ENOENT, -ENOMEM, -EBADMSG };

	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		struct rig rig;

		rig_init(&rig);
		rig.near.status = errors[i];
		CHECK_WALK(&rig, "sNF");
		rig_init(&rig);
		rig.near.status = rig.far.status = errors[i];
		CHECK_WALK(&rig, "sNFS");
		CHECK_U64(rig.near.n_asked, 1);
	}
}

static void copy_of_another_version_is_no_answer(void)
{
	struct rig rig;

	rig_init(&rig);
	rig.near.status = -ESTALE;
	rig.near.is_changed = true;
	rig.far.has = false;
	CHECK_WALK(&rig, "sNS");
	CHECK(!rig.walk.read.answer.is_changed); /* nothing of it is left in the answer */
}

static void copy_that_is_too_short_is_no_answer(void)
{
	struct rig rig;

	rig_init(&rig);
	rig.near.short_of = 1;
	CHECK_WALK(&rig, "sNF");
	rig_init(&rig);
	rig.far.short_of = SIZE;
	rig.near.has = false;
	CHECK_WALK(&rig, "sFS");
}

static void what_the_source_says_is_the_answer(void)
{
	struct rig rig;

	rig_init(&rig);
	rig.source.status = -EACCES;
	CHECK_INT(rig_walk(&rig), -EACCES);
	CHECK_STR(asked, "s"); /* who may not read the file gets no copy of it */
	rig_init(&rig);
	rig.source.status = -ESTALE;
	rig.source.is_changed = true;
	CHECK_INT(rig_walk(&rig), -ESTALE);
	CHECK_STR(asked, "s");
	CHECK(rig.walk.read.answer.is_changed);
	CHECK(walk_tier(&rig.walk) == &rig.source.tier);
	rig_init(&rig);
	rig.walk.may_copy = false;
	rig.source.short_of = 1;
	CHECK_INT(rig_walk(&rig), -EIO);
	CHECK_STR(asked, "S");
}

/* The owner knows more than the status: who may read it, for one. */
static void owner_may_refuse_what_the_source_says(void)
{
	struct rig rig;

	rig_init(&rig);
	rig.learnt = -EACCES;
	CHECK_INT(rig_walk(&rig), -EACCES);
	CHECK_STR(asked, "s");
}

static void copies_are_not_asked_where_they_may_not_be(void)
{
	struct rig rig;

	rig_init(&rig);
	rig.walk.may_copy = false;
	CHECK_WALK(&rig, "S");
	CHECK_U64(rig.near.n_has + rig.far.n_has, 0);
}

static void what_is_lost_during_the_check_is_read_from_the_next(void)
{
	struct rig rig;

	rig_init(&rig);
	walk_begin(&rig.walk, &rig.chain);
	CHECK_INT(rig.walk.state, WALK_CHECK);
	rig.near.has = rig.far.has = false;
	CHECK(walk_answered(&rig.walk, 0));
	CHECK_INT(rig.walk.state, WALK_SOURCE);
	CHECK_U64(rig.walk.read.ask.length, SIZE);
	rig_init(&rig);
	walk_begin(&rig.walk, &rig.chain);
	rig.walk.may_copy = false; /* it was seen to be on another filesystem */
	CHECK(walk_answered(&rig.walk, 0));
	CHECK_INT(rig.walk.state, WALK_SOURCE);
	CHECK(!walk_answered(&rig.walk, 0));
}

/* A hedge is a second walk for the same piece: neither knows of the other. */
static void two_walks_share_nothing_but_the_chain(void)
{
	struct rig rig;
	struct walk other;

	rig_init(&rig);
	rig.walk.is_verified = true;
	other = rig.walk;
	other.want.buf = calloc(1, SIZE);
	walk_begin(&rig.walk, &rig.chain);
	walk_begin(&other, &rig.chain);
	CHECK(walk_answered(&other, -EIO));
	CHECK(walk_tier(&rig.walk) == &rig.near.tier && walk_tier(&other) == &rig.far.tier);
	tier_read(walk_tier(&other), &other.read);
	CHECK(!walk_answered(&other, walk_status(&other)));
	CHECK_INT(rig.walk.state, WALK_COPY);
	CHECK_INT(rig.bytes[0], 0);
	CHECK_INT(((uint8_t *)other.want.buf)[0], 'F');
	free(other.want.buf);
}

static void null_tier_is_a_source(void)
{
	struct file_identity identity = { .ino = 1, .size = SIZE };
	struct rig rig;
	struct tier *null, *tiers[2];

	CHECK_INT(tier_null_new(&null, NULL), 0);
	rig_init(&rig);
	memset(rig.bytes, 0xee, SIZE);
	CHECK_INT(chain_init(&rig.chain, &null, 1, NULL), 0);
	CHECK_INT(rig_walk(&rig), 0);
	for (uint32_t i = 0; i < SIZE; i++)
		CHECK_INT(rig.bytes[i], 0);
	CHECK_STR(asked, "");
	tiers[0] = null;
	tiers[1] = &rig.near.tier; /* dearer, but a copy: the source is what is behind all */
	CHECK_INT(chain_init(&rig.chain, tiers, 2, NULL), 0);
	rig.walk.want.expect = identity;
	rig.walk.is_verified = false;
	rig.n_done = 0;
	CHECK_WALK(&rig, "N");
	tier_free(null);
}

static void chain_needs_exactly_one_source(void)
{
	struct tier *tiers[CHAIN_MAX + 1];
	struct fake many[CHAIN_MAX + 1];
	struct chain chain;
	struct rig rig;
	struct err err;

	rig_init(&rig);
	tiers[0] = &rig.near.tier;
	CHECK_INT(chain_init(&chain, tiers, 1, &err), -EINVAL);
	CHECK_INT(chain_init(&chain, tiers, 0, &err), -EINVAL);
	tiers[0] = tiers[1] = &rig.source.tier;
	CHECK_INT(chain_init(&chain, tiers, 2, &err), -EINVAL);
	for (int i = 0; i <= CHAIN_MAX; i++) {
		fake_init(&many[i], 'A', 1, i == 0);
		tiers[i] = &many[i].tier;
	}
	CHECK_INT(chain_init(&chain, tiers, CHAIN_MAX + 1, &err), -EINVAL);
	CHECK_INT(chain_init(&chain, tiers, CHAIN_MAX, &err), 0);
	CHECK(chain_source(&chain) == &many[0].tier);
	CHECK(chain.tiers[0] == &many[1].tier); /* of equal cost: as they were given */
}

/* A chain of so many tiers that do anything; the first one is the source. */
static void random_chain(struct rig *rig, struct fake *fakes, size_t n, uint64_t *seed)
{
	static const int errors[] = { 0, 0, -EIO, -ESTALE, -ENOENT };
	struct tier *tiers[CHAIN_MAX];

	rig_init(rig);
	for (size_t k = 0; k < n; k++) {
		fake_init(&fakes[k], (char)('A' + k), check_rand_below(seed, 5), k == 0);
		fakes[k].has = check_rand_below(seed, 2);
		fakes[k].status = errors[check_rand_below(seed, ARRAY_LEN(errors))];
		fakes[k].short_of = k > 0 && check_rand_below(seed, 4) == 0;
		tiers[n - 1 - k] = &fakes[k].tier;
	}
	CHECK_INT(chain_init(&rig->chain, tiers, n, NULL), 0);
	rig->walk.is_verified = check_rand_below(seed, 2);
}

/* Whatever copies do, a walk fails only where the source does; it asks nobody twice, copies in the
 * order of their cost, and none before the source has spoken. */
static void any_walk_ends_as_the_source_says(void)
{
	uint64_t seed = check_seed();

	for (int i = 0; i < 20000; i++) {
		size_t n = 1 + check_rand_below(&seed, CHAIN_MAX);
		struct fake fakes[CHAIN_MAX];
		const char *at = asked;
		uint64_t cost = 0;
		bool is_verified;
		struct rig rig;
		int status;

		random_chain(&rig, fakes, n, &seed);
		is_verified = rig.walk.is_verified;
		status = rig_walk(&rig);
		if (*at == 'a') {
			CHECK(!is_verified);
			is_verified = true;
			at++;
		}
		for (; *at && *at != 'A'; at++) {
			const struct fake *fake = &fakes[*at - 'A'];

			CHECK(is_verified && fake->has && fake->cost >= cost);
			CHECK_U64(fake->n_asked, 1);
			cost = fake->cost;
		}
		if (*at == 'A')
			at++;
		CHECK(*at == 0);
		CHECK_INT(status, walk_tier(&rig.walk) == &fakes[0].tier ? fakes[0].status : 0);
		if (status == 0)
			CHECK_INT(rig.bytes[SIZE - 1], at[-1]);
	}
}

/* --- what keeps --- */

static uint32_t n_kept;

static void keep_put(struct tier *tier, struct tier_piece *pieces, size_t n)
{
	n_kept += (uint32_t)n;
	for (size_t i = 0; i < n; i++)
		pieces[i].status = 0;
}

static void no_keeper_has_no_room_and_nothing_in_it(void)
{
	static const struct tier_keep_ops keep = { .put = keep_put };
	struct file_identity identity = { .ino = 99, .size = SIZE };
	struct tier_piece piece = { .identity = &identity, .length = SIZE, .status = 1 };
	struct tier_kept_status status = { .bytes = 1 };
	struct rig rig;

	rig_init(&rig);
	CHECK(chain_keeper(&rig.chain) == NULL);
	for (int i = 0; i < 2; i++) {
		struct tier *tier = i ? &rig.near.tier : NULL;

		tier_put(tier, &piece, 1);
		CHECK_INT(piece.status, -ENOSPC);
		CHECK(!tier_takes_more(tier));
		CHECK_U64(tier_n_found(tier), 0);
		tier_get_kept(tier, &status);
		CHECK_U64(status.bytes, 0);
		tier_forget(tier, &identity, 0, 1);
		tier_unwant(tier, &identity, 0, 1);
		tier_stop(tier);
	}
	rig.far.ops.keep = &keep;
	CHECK(chain_keeper(&rig.chain) == &rig.far.tier);
	tier_put(chain_keeper(&rig.chain), &piece, 1);
	CHECK_INT(piece.status, 0);
	CHECK_U64(n_kept, 1);
}

static const struct check_test tests[] = {
	{ "cheapest_copy_is_asked_once_the_file_is_known_to_be_the_same",
	  cheapest_copy_is_asked_once_the_file_is_known_to_be_the_same },
	{ "file_that_was_looked_at_lately_is_not_asked_about",
	  file_that_was_looked_at_lately_is_not_asked_about },
	{ "tier_that_has_nothing_is_passed_over", tier_that_has_nothing_is_passed_over },
	{ "copy_that_fails_is_no_answer", copy_that_fails_is_no_answer },
	{ "copy_of_another_version_is_no_answer", copy_of_another_version_is_no_answer },
	{ "copy_that_is_too_short_is_no_answer", copy_that_is_too_short_is_no_answer },
	{ "what_the_source_says_is_the_answer", what_the_source_says_is_the_answer },
	{ "owner_may_refuse_what_the_source_says", owner_may_refuse_what_the_source_says },
	{ "copies_are_not_asked_where_they_may_not_be",
	  copies_are_not_asked_where_they_may_not_be },
	{ "what_is_lost_during_the_check_is_read_from_the_next",
	  what_is_lost_during_the_check_is_read_from_the_next },
	{ "two_walks_share_nothing_but_the_chain", two_walks_share_nothing_but_the_chain },
	{ "any_walk_ends_as_the_source_says", any_walk_ends_as_the_source_says },
	{ "null_tier_is_a_source", null_tier_is_a_source },
	{ "chain_needs_exactly_one_source", chain_needs_exactly_one_source },
	{ "no_keeper_has_no_room_and_nothing_in_it", no_keeper_has_no_room_and_nothing_in_it },
};

CHECK_MAIN(tests)
