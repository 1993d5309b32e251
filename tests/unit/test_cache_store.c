/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store below the cache: reads come from it when it has this very version, and whatever is
 * wrong with it costs a read of the source and nothing else.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_rig.h"
#include "src/cache/cache_priv.h"
#include "src/tier/store_priv.h"

#define SIZE 50000u

static struct rig *new_rig(void)
{
	return rig_new(&(struct rig_options){ .n = 4, .size = SIZE, .has_store = true });
}

static void put(struct rig *rig, uint32_t file, const struct file_identity *identity)
{
	struct piece_key key = { rig_entry(rig, file), 0 };
	uint8_t *bytes = aligned_alloc(4096, ALIGN_UP(SIZE, 4096u));
	struct file_identity kept;

	CHECK_INT(dataset_kept_identity(rig->dataset, key.entry, identity, &kept), 0);
	rig_fill(bytes, file, 0, 0, SIZE);
	CHECK_INT(store_put(rig->store, key, &kept, bytes, SIZE), 0);
	free(bytes);
}

static bool is_kept(struct rig *rig, uint32_t file, const struct file_identity *identity)
{
	struct piece_key key = { rig_entry(rig, file), 0 };
	struct file_identity kept;

	CHECK_INT(dataset_kept_identity(rig->dataset, key.entry, identity, &kept), 0);
	return store_has(rig->store, key, &kept);
}

static void put_current(struct rig *rig, uint32_t file)
{
	struct file_identity id;

	dataset_identity(rig->dataset, rig_entry(rig, file), &id);
	put(rig, file, &id);
}

/* Turns one bit of everything that the store has written so far. */
static uint32_t flip_bits(struct rig *rig)
{
	DIR *fds = opendir("/proc/self/fd");
	const struct dirent *de;
	uint32_t n = 0;

	CHECK(fds != NULL);
	while ((de = readdir(fds))) {
		AUTO_FREE char *link = NULL;
		char target[4096];
		AUTO_FD int fd = -1;
		ssize_t len;

		CHECK(asprintf(&link, "/proc/self/fd/%s", de->d_name) > 0);
		len = readlink(link, target, sizeof(target) - 1);
		if (len <= 0)
			continue;
		target[len] = 0;
		if (!strstr(target, rig->dir) || !strstr(target, "(deleted)"))
			continue;
		fd = open(link, O_RDWR);
		for (off_t at = 8192 + 100; fd >= 0 && at < 60 * 4096; at += 4096) {
			uint8_t byte;

			if (pread(fd, &byte, 1, at) != 1)
				break;
			byte ^= 4;
			n += pwrite(fd, &byte, 1, at) == 1;
		}
	}
	closedir(fds);
	return n;
}

static void kept_piece_is_read_from_the_store(void)
{
	struct rig *rig = new_rig();

	put_current(rig, 0);
	CHECK_INT(rig_read_check(rig, 0, 1000, 20000), READ_STORE);
	CHECK_INT(rig_read_check(rig, 0, 1000, 20000), READ_ARENA);
	CHECK_INT(rig_read_check(rig, 1, 0, 20000), READ_MISS);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 1);
	rig_free(rig);
}

static void flipped_bit_costs_a_read_of_the_source(void)
{
	struct rig *rig = new_rig();
	struct file_identity id;

	put_current(rig, 0);
	dataset_identity(rig->dataset, rig_entry(rig, 0), &id);
	CHECK(flip_bits(rig) > 0);
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_MISS);
	CHECK(rig_metric(rig, METRIC_STORE_ERRORS) >= 1);
	CHECK(!is_kept(rig, 0, &id));
	CHECK_U64(rig_metric(rig, METRIC_READ_ERRORS), 0);
	rig_free(rig);
}

/* Of a file of several pieces, which is fetched whole only because the store has that piece. */
static void piece_that_the_store_has_lost_is_paid_for(void)
{
	for (int is_lost = 0; is_lost < 2; is_lost++) {
		struct rig *rig = rig_new(&(struct rig_options){
			.n = 1, .size = SIZE, .other_size = 3 * PIECE_BYTES, .has_store = true });
		struct piece_key key = { rig_entry(rig, 1), 1 };
		void *bytes = aligned_alloc(4096, PIECE_BYTES);
		struct file_identity id, kept;

		dataset_identity(rig->dataset, key.entry, &id);
		CHECK_INT(dataset_kept_identity(rig->dataset, key.entry, &id, &kept), 0);
		rig_fill(bytes, 1, 0, PIECE_BYTES, PIECE_BYTES);
		CHECK_INT(store_put(rig->store, key, &kept, bytes, PIECE_BYTES), 0);
		CHECK(!is_lost || flip_bits(rig) > 0);
		CHECK_INT(rig_read_check(rig, 1, PIECE_BYTES + 4096, 4096),
			  is_lost ? READ_MISS : READ_STORE);
		CHECK_U64(rig_metric(rig, METRIC_SOURCE_BYTES), is_lost ? PIECE_BYTES : 0);
		CHECK_U64(rig->cache->ahead->spent, is_lost ? PIECE_BYTES : 0);
		free(bytes);
		rig_free(rig);
	}
}

static void piece_of_another_version_is_not_asked_for(void)
{
	struct rig *rig = new_rig();
	struct file_identity id;

	dataset_identity(rig->dataset, rig_entry(rig, 0), &id);
	id.mtime_ns--;
	put(rig, 0, &id);
	rig_replace(rig, 0, SIZE);
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_MISS);
	CHECK_U64(rig_metric(rig, METRIC_STORE_READS), 0);
	rig_free(rig);
}

static void changed_file_is_forgotten(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 4, .size = SIZE, .has_store = true, .revalidate_ns = NS_PER_MS });
	struct file_identity id;

	put_current(rig, 0);
	dataset_identity(rig->dataset, rig_entry(rig, 0), &id);
	rig_read_check(rig, 0, 0, SIZE);
	rig_replace(rig, 0, SIZE);
	RIG_UNTIL(!is_kept(rig, 0, &id));
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_MISS);
	rig_free(rig);
}

/* Both entries have one inode number, size and times, as files of two filesystems may. */
static void files_of_one_identity_have_their_own_bytes(void)
{
	struct rig *rig = new_rig();
	AUTO_FREE char *a = rig_path(rig, 0);
	AUTO_FREE char *b = rig_path(rig, 1);
	struct stat st;

	CHECK_INT(unlink(b), 0);
	CHECK_INT(link(a, b), 0);
	CHECK_INT(stat(a, &st), 0);
	dataset_update(rig->dataset, rig_entry(rig, 0), &st);
	dataset_update(rig->dataset, rig_entry(rig, 1), &st);
	put_current(rig, 0);
	put_current(rig, 1);
	CHECK_INT(rig_read_check(rig, 1, 0, SIZE), READ_STORE);
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_STORE);
	rig_free(rig);
}

/* The index is of this mount, and still older than the file. */
static void first_use_of_a_copy_asks_the_source(void)
{
	struct rig *rig = new_rig();

	put_current(rig, 0);
	put_current(rig, 1);
	rig_replace(rig, 0, SIZE);
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_MISS);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHECKS), 0);
	CHECK_INT(rig_read_check(rig, 1, 0, SIZE), READ_STORE);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHECKS), 1);
	rig_free(rig);
}

/* Nobody compares a file with the source that the kernel has forgotten. */
static void forgotten_file_is_asked_for_again(void)
{
	enum { N = 40 };
	struct rig *rig = rig_new(&(struct rig_options){
		.n = N, .size = SIZE, .has_store = true, .arena_limit = 8 * SIZE });

	put_current(rig, 0);
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_STORE);
	for (uint32_t i = 1; i < N; i++) /* until its memory is another one's */
		rig_read_check(rig, i, 0, SIZE);
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_STORE);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHECKS), 1);
	for (uint32_t i = 1; i < N; i++)
		rig_read_check(rig, i, 0, SIZE);
	cache_note_forget(rig->cache, rig_entry(rig, 0));
	rig_replace(rig, 0, SIZE);
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_MISS);
	rig_free(rig);
}

static uint32_t n_wanted(struct store *store)
{
	uint32_t n = 0;

	mutex_lock(&store->mu);
	for (uint32_t i = 0; i < store->slots_top; i++)
		if (store->segments[i])
			n += atomic_load(&store->segments[i]->n_wanted);
	mutex_unlock(&store->mu);
	return n;
}

/* What another daemon writes while the job runs is in this one's dataset as well: it must not be
 * the first thing to go when the other one ends. */
static void what_others_keep_meanwhile_is_wanted(void)
{
	char dir[4096];
	struct store_params params = { .dir = dir,
				       .is_persistent = true,
				       .limit_bytes = 64 << 20,
				       .segment_bytes = 1 << 20,
				       .engine = IO_ENGINE_POOL,
				       .max_inflight = 2 };
	struct store *mine, *others;
	struct rig *rig;

	snprintf(dir, sizeof(dir), "%s/shared-store", check_tmpdir());
	CHECK_INT(mkdir(dir, 0700), 0);
	rig = rig_new(&(struct rig_options){ .n = 4,
					     .size = SIZE,
					     .has_store = true,
					     .store_dir = dir,
					     .store_retry_ns = 5 * NS_PER_MS });
	store_claimed(rig->store);
	CHECK_INT(store_open(&params, &others, NULL), 0);
	mine = rig->store;
	rig->store = others;
	for (uint32_t i = 0; i < 3; i++)
		put_current(rig, i);
	rig->store = mine;
	store_close(others);
	RIG_UNTIL(n_wanted(mine) == 3);
	CHECK_U64(store_n_found(mine), 1);
	rig_free(rig);
}

/* --- one more tier --- */

/* Has the first version of every sample, or says so. */
struct peer {
	struct tier tier;
	struct file_identity kept[4];
	int status;
	uint32_t n_reads;
};

static struct peer *peer_of(const struct tier *tier)
{
	return container_of((struct tier *)(uintptr_t)tier, struct peer, tier);
}

static bool peer_has(struct tier *tier, struct piece_key key, const struct file_identity *identity)
{
	return key.entry.v < 4 && file_identity_eq(identity, &peer_of(tier)->kept[key.entry.v]);
}

static uint64_t peer_cost(const struct tier *tier, uint32_t length)
{
	return NS_PER_MS;
}

static void peer_read(struct tier *tier, struct tier_read *read)
{
	struct peer *peer = peer_of(tier);

	peer->n_reads++;
	read->answer.status = peer->status;
	if (peer->status == 0) {
		rig_fill(read->ask.buf, read->ask.key.entry.v, 0, 0, read->ask.length);
		read->answer.got = read->ask.length;
	}
	read->done(read);
}

/* Nothing in the cache knows of it. */
static void tier_that_is_added_is_asked_behind_the_store(void)
{
	static const struct tier_ops ops = { .name = "peer",
					     .read_class = READ_PEER,
					     .has = peer_has,
					     .cost = peer_cost,
					     .read = peer_read };
	struct peer peer = { .tier = { .ops = &ops } };
	struct file_identity id;
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 4, .size = SIZE, .has_store = true, .other_size = SIZE, .peer = &peer.tier });

	for (uint32_t i = 0; i < 4; i++) {
		dataset_identity(rig->dataset, rig_entry(rig, i), &id);
		CHECK_INT(dataset_kept_identity(rig->dataset, rig_entry(rig, i), &id,
						&peer.kept[i]),
			  0);
	}
	put_current(rig, 0);
	CHECK_INT(rig_read_check(rig, 0, 0, SIZE), READ_STORE);
	CHECK_U64(peer.n_reads, 0);
	CHECK_INT(rig_read_check(rig, 1, 1000, 20000), READ_PEER);
	CHECK_INT(rig_read_check(rig, 1, 0, SIZE), READ_ARENA);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_READS), 0);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHECKS), 2);
	CHECK_INT(rig_read_check(rig, 4, 0, SIZE), READ_MISS); /* it has not */
	peer.status = -EIO;
	CHECK_INT(rig_read_check(rig, 2, 0, SIZE), READ_MISS);
	CHECK_U64(peer.n_reads, 2);
	CHECK_U64(rig_metric(rig, METRIC_READ_ERRORS), 0);
	CHECK_U64(rig_metric(rig, METRIC_BYPASS_STORE_ERROR), 0); /* the store is well */
	rig_replace(rig, 3, SIZE); /* another version, which the source is the first to know of */
	peer.status = 0;
	CHECK_INT(rig_read_check(rig, 3, 0, SIZE), READ_MISS);
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "files_of_one_identity_have_their_own_bytes",
	  files_of_one_identity_have_their_own_bytes },
	{ "first_use_of_a_copy_asks_the_source", first_use_of_a_copy_asks_the_source },
	{ "forgotten_file_is_asked_for_again", forgotten_file_is_asked_for_again },
	{ "kept_piece_is_read_from_the_store", kept_piece_is_read_from_the_store },
	{ "flipped_bit_costs_a_read_of_the_source", flipped_bit_costs_a_read_of_the_source },
	{ "piece_that_the_store_has_lost_is_paid_for", piece_that_the_store_has_lost_is_paid_for },
	{ "piece_of_another_version_is_not_asked_for", piece_of_another_version_is_not_asked_for },
	{ "changed_file_is_forgotten", changed_file_is_forgotten },
	{ "what_others_keep_meanwhile_is_wanted", what_others_keep_meanwhile_is_wanted },
	{ "tier_that_is_added_is_asked_behind_the_store",
	  tier_that_is_added_is_asked_behind_the_store },
};
CHECK_MAIN(tests)
