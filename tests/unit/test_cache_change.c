/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that change, shrink, grow, vanish or stop being files while the cache holds or reads them:
 * no answer mixes versions, and the kernel's copies are invalidated in the order that it needs.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "cache_rig.h"
#include "src/cache/cache_priv.h"

#define MIB (1u << 20)

/* Another time of change, the same bytes. */
static void rig_change_rights(struct rig *rig, uint32_t file)
{
	AUTO_FREE char *path = rig_path(rig, file);

	CHECK_INT(chmod(path, 0666), 0);
}

static void rig_forget_log(struct rig *rig)
{
	mutex_lock(&rig->mu);
	rig->n_log = 0;
	mutex_unlock(&rig->mu);
}

static bool is_being_read(struct rig *rig)
{
	struct entry_id entry = rig_entry(rig, 0);
	struct shard *s = shard_of(rig->cache, entry);
	struct entry_state *es;
	bool is_read;

	mutex_lock(&s->mu);
	es = entry_find_locked(rig->cache, s, entry);
	is_read = es && es->readers;
	mutex_unlock(&s->mu);
	return is_read;
}

/* A READ counts as under way for a moment after its answer. */
static void read_to_its_end(struct rig *rig, uint32_t length)
{
	rig_read_check(rig, 0, 0, length);
	RIG_UNTIL(!is_being_read(rig));
}

/* One READ that is in flight while the file is replaced by one of another size. */
static struct rig *change_under_a_read(uint64_t before, uint64_t after)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = before });
	struct rig_read *r;

	fault_io_pause(rig->io);
	r = rig_read_start(rig, 0, 0, 131072);
	fault_io_wait_held(rig->io, 1);
	rig_replace(rig, 0, after);
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_check_bytes(r, 1, after);
	CHECK_INT(r->read.read_class, READ_MISS);
	rig_read_free(r);
	CHECK_U64(dataset_size(rig->dataset, (struct entry_id){ 0 }), after);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHANGED), 1);
	return rig;
}

static void size_is_known_to_the_kernel_before_a_read_is_answered(void)
{
	static const uint64_t sizes[][2] = { { 5000, 9000 }, { 9000, 5000 }, { 100, 101 } };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct rig *rig = change_under_a_read(sizes[i][0], sizes[i][1]);
		int settled = rig_find(rig, RIG_SETTLE, 0, 0);

		CHECK(settled >= 0 && settled < rig_find(rig, RIG_ANSWER, 0, 0));
		/* It was the first READ: there are no pages of before. */
		CHECK_INT(rig_find(rig, RIG_INVAL, 0, 0), -1);
		CHECK_INT(rig_find(rig, RIG_NAME, 0, 0), -1);
		rig_free(rig);
	}
}

/* The file was read before; this READ has all of it, so nobody can mix anything. */
static void replaced_small_file_is_read_through_its_old_inode(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 5000 });
	int answer;

	read_to_its_end(rig, 8192);
	cache_note_open(rig->cache, rig_entry(rig, 0));
	cache_fetch_again(rig->cache, (struct unit_id){ 0 }); /* the arena has let go of it */
	rig_replace(rig, 0, 8000);
	rig_read_check(rig, 0, 0, 8192);
	answer = rig_find(rig, RIG_ANSWER, 0, 1);
	CHECK_U64(rig_count(rig, RIG_ANSWER, 0), 2);
	CHECK(rig_find(rig, RIG_SETTLE, 0, 0) < answer);
	CHECK_INT(rig_find(rig, RIG_INVAL, 0, 0), -1);
	CHECK_U64(dataset_renewal(rig->dataset, rig_entry(rig, 0)), 0);
	rig_free(rig);
}

static bool is_idle(struct rig *rig)
{
	struct prefetch_queue *q = &rig->cache->prefetch;
	bool is_idle;

	mutex_lock(&q->mu);
	is_idle = q->inflight == 0 && list_is_empty(&q->queue);
	mutex_unlock(&q->mu);
	return is_idle;
}

/* A file of several pieces of which the first was read. */
static struct rig *read_and_replaced(uint64_t after)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 3 * MIB });

	read_to_its_end(rig, 4096);
	/* What is fetched ahead would see the change before anybody reads. */
	RIG_UNTIL(is_idle(rig));
	cache_fetch_again(rig->cache, (struct unit_id){ 0 });
	rig_replace(rig, 0, after);
	return rig;
}

static void rest_of_a_replaced_file_is_refused_and_its_name_leads_to_a_new_inode(void)
{
	struct rig *rig = read_and_replaced(3 * MIB);
	struct rig_read *r;

	CHECK_INT(rig_read_status(rig, 0, 2 * MIB, 4096), -ESTALE);
	CHECK_U64(dataset_renewal(rig->dataset, rig_entry(rig, 0)), 1);
	RIG_UNTIL(rig_count(rig, RIG_NAME, 0) == 1);
	CHECK_U64(rig_count(rig, RIG_INVAL, 0), 0); /* old pages stay with those who have it open */
	r = rig_read_start(rig, 0, 2 * MIB, 4096);  /* opened since */
	rig_read_wait(r);
	rig_check_bytes(r, 1, 3 * MIB);
	rig_read_free(r);
	rig_free(rig);
}

static void old_inode_gets_nothing_of_the_new_file(void)
{
	struct rig *rig = read_and_replaced(3 * MIB);
	struct file_identity known;
	struct stat st;
	AUTO_FREE char *path = rig_path(rig, 0);
	struct rig_read *r;

	fault_io_pause(rig->io);
	r = rig_read_start(rig, 0, 2 * MIB, 4096);
	fault_io_wait_held(rig->io, 1);
	dataset_identity(rig->dataset, rig_entry(rig, 0), &known);
	CHECK_INT(stat(path, &st), 0);
	change_file(rig->cache, rig_entry(rig, 0), &known, &st); /* as revalidation would */
	fault_io_resume(rig->io);
	rig_read_wait(r);
	CHECK_INT(r->status, -ESTALE);
	rig_read_free(r);
	rig_free(rig);
}

static void reader_at_the_beginning_gets_the_new_file_and_no_old_page_behind(void)
{
	struct rig *rig = read_and_replaced(2 * MIB);
	int dropped, settled, answer;

	rig_read_check(rig, 0, 0, 131072);
	answer = rig_find(rig, RIG_ANSWER, 0, 1);
	dropped = rig_find(rig, RIG_INVAL, 0, 0);
	settled = rig_find(rig, RIG_SETTLE, 0, 0);
	CHECK(dropped >= 0 && dropped < settled && settled < answer);
	CHECK_U64(rig->log[dropped].offset, 131072);
	CHECK_U64(rig->log[dropped].length, 0);
	CHECK_U64(dataset_renewal(rig->dataset, rig_entry(rig, 0)), 0);
	rig_read_check(rig, 0, MIB, 4096);
	rig_free(rig);
}

/* The drop waits for pages of READs behind; they must not wait for it. */
static void reads_behind_are_refused_while_pages_are_dropped(void)
{
	struct rig *rig = read_and_replaced(3 * MIB);
	struct rig_read *head;

	rig_hold_stage(rig, true);
	head = rig_read_start(rig, 0, 0, 4096);
	rig_wait_held(rig, 1);
	CHECK_INT(rig_read_status(rig, 0, MIB, 4096), -ESTALE);
	CHECK_INT(head->n_done, 0);
	rig_hold_stage(rig, false);
	rig_read_wait(head);
	rig_check_bytes(head, 1, 3 * MIB);
	rig_read_free(head);
	rig_free(rig);
}

/* It would be waited for as long as its piece takes. */
static void nothing_is_dropped_while_a_read_behind_is_with_the_source(void)
{
	struct rig *rig = read_and_replaced(3 * MIB);
	struct rig_read *head, *behind;

	fault_io_pause(rig->io);
	head = rig_read_start(rig, 0, 0, 4096);
	behind = rig_read_start(rig, 0, 2 * MIB, 4096);
	fault_io_wait_held(rig->io, 2);
	fault_io_resume(rig->io);
	rig_read_wait(head);
	rig_read_wait(behind);
	CHECK_INT(head->status, -ESTALE);
	CHECK_INT(behind->status, -ESTALE);
	CHECK_U64(dataset_renewal(rig->dataset, rig_entry(rig, 0)), 1);
	CHECK_U64(rig_count(rig, RIG_INVAL, 0), 0);
	rig_read_free(head);
	rig_read_free(behind);
	rig_free(rig);
}

static void file_that_was_only_linked_or_opened_to_others_keeps_its_inode(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 3 * MIB });
	AUTO_FREE char *path = rig_path(rig, 0);

	read_to_its_end(rig, 4096);
	cache_fetch_again(rig->cache, (struct unit_id){ 0 });
	CHECK_INT(chmod(path, 0666), 0);
	CHECK_INT(rig_read_status(rig, 0, MIB, 4096), 0);
	CHECK(rig_find(rig, RIG_SETTLE, 0, 0) >= 0);
	RIG_UNTIL(rig_find(rig, RIG_INVAL, 0, 0) >= 0);
	CHECK_U64(dataset_renewal(rig->dataset, rig_entry(rig, 0)), 0);
	rig_free(rig);
}

struct look {
	struct cache_read read;
	struct rig *rig;
	int status;
	_Atomic bool is_done;
};

static void look_is_done(struct cache_read *read, int status, const struct iovec *iov, int n_iov)
{
	struct look *look = container_of(read, struct look, read);

	(void)iov;
	CHECK_INT(n_iov, 0);
	look->status = status;
	atomic_store(&look->is_done, true);
}

static int look_at(struct rig *rig, uint32_t file)
{
	struct look look = { .read = { .entry = rig_entry(rig, file), .done = look_is_done } };

	cache_look(rig->cache, &look.read);
	RIG_UNTIL(atomic_load(&look.is_done));
	return look.status;
}

/* The kernel makes a page of zeros of it. */
static void answer_without_bytes_counts_as_pages(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 0 });

	rig_read_check(rig, 0, 0, 4096);
	rig_replace(rig, 0, 9000);
	CHECK_INT(look_at(rig, 0), 0);
	CHECK_U64(dataset_renewal(rig->dataset, rig_entry(rig, 0)), 1);
	CHECK_INT(rig_find(rig, RIG_SETTLE, 0, 0), -1);
	rig_read_check(rig, 0, 0, 65536);
	rig_free(rig);
}

static void size_that_the_kernel_does_not_take_is_no_cut_read(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 5000 });

	atomic_store(&rig->settle_status, -ETIMEDOUT);
	rig_replace(rig, 0, 9000);
	CHECK_INT(rig_read_status(rig, 0, 0, 65536), -ESTALE);
	CHECK_U64(dataset_renewal(rig->dataset, rig_entry(rig, 0)), 1);
	RIG_UNTIL(rig_count(rig, RIG_NAME, 0) == 1);
	atomic_store(&rig->settle_status, 0);
	rig_read_check(rig, 0, 0, 65536); /* opened again */
	rig_free(rig);
}

/* Its last page has zeros behind the old end, and may be with the kernel. */
static void file_changed_in_place_counts_as_replaced(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 3 * MIB });
	AUTO_FREE char *path = rig_path(rig, 0);

	read_to_its_end(rig, 4096);
	cache_fetch_again(rig->cache, (struct unit_id){ 0 });
	CHECK_INT(truncate(path, 4 * MIB), 0);
	CHECK_INT(rig_read_status(rig, 0, MIB, 4096), -ESTALE);
	CHECK_U64(dataset_renewal(rig->dataset, rig_entry(rig, 0)), 1);
	CHECK_INT(rig_read_status(rig, 0, MIB, 4096), 0); /* opened again */
	rig_free(rig);
}

static void empty_file_is_looked_at_whenever_its_size_is_asked(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 4, .size = 0 });

	for (uint32_t i = 0; i < 4; i++)
		CHECK(cache_must_look(rig->cache, rig_entry(rig, i)));
	CHECK_INT(look_at(rig, 0), 0);
	CHECK_INT(look_at(rig, 0), 0);
	rig_replace(rig, 1, 70000);
	CHECK_INT(look_at(rig, 1), 0);
	CHECK_U64(dataset_size(rig->dataset, rig_entry(rig, 1)), 70000);
	CHECK(rig_find(rig, RIG_SETTLE, 1, 0) >= 0);
	CHECK(!cache_must_look(rig->cache, rig_entry(rig, 1)));
	rig_read_check(rig, 1, 0, 131072);
	rig_remove(rig, 2);
	CHECK_INT(look_at(rig, 2), -ENOENT);
	CHECK(cache_must_look(rig->cache, rig_entry(rig, 2)));
	CHECK_U64(fault_io_seen(rig->io), 5);
	rig_free(rig);
}

static void invalidation_waits_for_every_read_that_was_in_flight(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 3 * MIB });
	struct rig_read *first, *second;

	read_to_its_end(rig, 4096);
	cache_fetch_again(rig->cache, (struct unit_id){ 0 });
	rig_forget_log(rig);
	fault_io_pause(rig->io);
	first = rig_read_start(rig, 0, 0, 4096);
	second = rig_read_start(rig, 0, 2 * MIB, 4096);
	fault_io_wait_held(rig->io, 2);
	rig_change_rights(rig, 0);
	fault_io_resume(rig->io);
	rig_read_wait(first);
	rig_read_wait(second);
	CHECK_INT(first->status, 0);
	CHECK_INT(second->status, 0);
	RIG_UNTIL(rig_find(rig, RIG_INVAL, 0, 0) >= 0);
	CHECK_INT(rig_find(rig, RIG_ANSWER, 0, (uint32_t)rig_find(rig, RIG_INVAL, 0, 0)), -1);
	rig_read_free(first);
	rig_read_free(second);
	rig_free(rig);
}

static void read_of_a_grown_file_does_not_wait_for_stagers(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 4, .size = 5000 });
	struct rig_read *r;

	/* Both stagers hang in an invalidation of pages. */
	rig_hold_stage(rig, true);
	for (uint32_t f = 0; f < 3; f++) {
		rig_remove(rig, f);
		CHECK_INT(rig_read_status(rig, f, 0, 4096), -ENOENT);
	}
	rig_wait_held(rig, 2);
	rig_replace(rig, 3, 9000);
	r = rig_read_start(rig, 3, 0, 65536);
	rig_read_wait(r); /* or the test hangs, as the kernel would */
	rig_check_bytes(r, 1, 9000);
	rig_read_free(r);
	rig_hold_stage(rig, false);
	rig_free(rig);
}

static void pieces_of_two_versions_do_not_meet_in_one_answer(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 9 * MIB });

	rig_read_check(rig, 0, 0, 4096);
	rig_replace(rig, 0, 9 * MIB);
	rig_read_check(rig, 0, 124 << 10, 8192); /* the first half was fetched ahead, the other is not here */
	CHECK_INT(rig_read_check(rig, 0, 60 << 10, 4096), READ_MISS); /* it was dropped */
	rig_read_check(rig, 0, 7 * MIB, 4096);
	rig_replace(rig, 0, 8 * MIB + 7);
	rig_read_check(rig, 0, 8 * MIB - 4096, 8192);
	rig_free(rig);
}

static void all_who_joined_get_the_new_version(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 5000 });
	struct rig_read *reads[50];

	fault_io_pause(rig->io);
	for (int i = 0; i < 50; i++)
		reads[i] = rig_read_start(rig, 0, (uint64_t)i * 64, 65536);
	fault_io_wait_held(rig->io, 1);
	rig_replace(rig, 0, 70000);
	fault_io_resume(rig->io);
	for (int i = 0; i < 50; i++) {
		rig_read_wait(reads[i]);
		rig_check_bytes(reads[i], 1, 70000);
		rig_read_free(reads[i]);
	}
	CHECK_U64(fault_io_seen(rig->io), 2);
	rig_free(rig);
}

static void vanished_file_is_gone_and_may_come_back(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 2, .size = 3 * MIB });

	rig_read_check(rig, 0, 0, 4096);
	rig_remove(rig, 0);
	CHECK_INT(rig_read_status(rig, 0, MIB, 4096), -ENOENT);
	CHECK_INT(rig_read_status(rig, 0, 0, 4096), -ENOENT); /* the arena has let go of it */
	RIG_UNTIL(rig_find(rig, RIG_INVAL, 0, 0) >= 0);
	rig_read_check(rig, 1, 0, 4096);
	rig_replace(rig, 0, 2 * MIB);
	rig_read_check(rig, 0, 0, 4096);
	rig_free(rig);
}

/* Who asked the source long ago must not undo what others have learned since. */
static void old_news_change_nothing(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 5000 });
	struct entry_id entry = rig_entry(rig, 0);
	struct file_identity known, now;
	AUTO_FREE char *path = rig_path(rig, 0);
	struct stat st;

	dataset_identity(rig->dataset, entry, &known);
	rig_replace(rig, 0, 6000);
	CHECK_INT(stat(path, &st), 0);
	rig_replace(rig, 0, 7000);
	rig_read_check(rig, 0, 0, 8192);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHANGED), 1);
	change_file(rig->cache, entry, &known, &st);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHANGED), 1);
	dataset_identity(rig->dataset, entry, &now);
	CHECK_U64(now.size, 7000);
	rig_free(rig);
}

/* Seen to be gone, and back before the READ under way came to the source. */
static void file_that_was_gone_for_a_moment_is_still_looked_at(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 5000 });
	struct rig_read *r;

	fault_io_pause(rig->io);
	r = rig_read_start(rig, 0, 0, 4096);
	fault_io_wait_held(rig->io, 1);
	change_file(rig->cache, rig_entry(rig, 0), NULL, NULL);
	CHECK(!bits_get(rig->cache->touched, rig_entry(rig, 0).v));
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_check_bytes(r, 0, 5000);
	rig_read_free(r);
	CHECK(bits_get(rig->cache->touched, rig_entry(rig, 0).v));
	CHECK_U64(atomic_load(&rig->cache->n_touched), 1);
	rig_free(rig);
}

static void directory_in_place_of_a_file_is_an_error(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 5000 });
	AUTO_FREE char *path = rig_path(rig, 0);

	rig_remove(rig, 0);
	CHECK_INT(mkdir(path, 0755), 0);
	CHECK_INT(rig_read_status(rig, 0, 0, 4096), -EISDIR);
	CHECK_INT(rmdir(path), 0);
	rig_replace(rig, 0, 6000);
	rig_read_check(rig, 0, 0, 4096);
	rig_free(rig);
}

static void revalidation_finds_what_the_kernel_would_hide(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 3, .size = 5000, .revalidate_ns = NS_PER_MS });

	for (uint32_t f = 0; f < 3; f++)
		rig_read_check(rig, f, 0, 4096);
	rig_replace(rig, 0, 5000);
	rig_remove(rig, 1);
	rig_wait_metric(rig, METRIC_SOURCE_CHANGED, 2);
	RIG_UNTIL(rig_count(rig, RIG_NAME, 0) >= 1 && rig_count(rig, RIG_INVAL, 1) >= 1);
	rig_read_check(rig, 0, 0, 4096);
	CHECK_INT(rig_read_status(rig, 1, 0, 4096), -ENOENT);
	CHECK_INT(rig_read_check(rig, 2, 0, 4096), READ_ARENA);
	CHECK_U64(rig_count(rig, RIG_INVAL, 2), 0);
	rig_free(rig);
}

static void stop_does_not_lose_a_read_that_waits_for_attributes(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 8, .size = 5000 });
	struct rig_read *reads[8];

	fault_io_pause(rig->io);
	for (uint32_t f = 0; f < 8; f++)
		reads[f] = rig_read_start(rig, f, 0, 65536);
	fault_io_wait_held(rig->io, 8);
	for (uint32_t f = 0; f < 8; f++)
		rig_replace(rig, f, 50000);
	fault_io_resume(rig->io);
	drive_stop(rig->drive);
	for (uint32_t f = 0; f < 8; f++) {
		CHECK_INT(reads[f]->n_done, 1);
		rig_check_bytes(reads[f], 1, 50000);
		rig_read_free(reads[f]);
	}
	rig_free(rig);
}

static void estale_of_the_source_is_an_errno_like_any_other(void)
{
	struct fault_io_rule fail = { .kind = FAULT_IO_FAIL, .status = -ESTALE };
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 5000 });

	fault_io_set(rig->io, &fail);
	CHECK_INT(rig_read_status(rig, 0, 0, 4096), -ESTALE);
	CHECK_U64(fault_io_seen(rig->io), 2);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHANGED), 0);
	fault_io_set(rig->io, NULL);
	rig_read_check(rig, 0, 0, 4096);
	rig_free(rig);
}

/* The kernel sends no READ for an empty file, so its open is all there is. */
static void empty_file_that_was_opened_is_seen_to_grow(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 2, .size = 0, .revalidate_ns = NS_PER_MS });

	cache_note_open(rig->cache, rig_entry(rig, 1));
	rig_replace(rig, 1, 5000);
	rig_wait_metric(rig, METRIC_SOURCE_CHANGED, 1);
	RIG_UNTIL(rig_count(rig, RIG_SETTLE, 1) >= 1);
	CHECK_U64(dataset_size(rig->dataset, rig_entry(rig, 1)), 5000);
	rig_free(rig);
}

static void revalidation_is_spread_over_its_interval(void)
{
	CHECK_U64(revalidate_gap_ns(300 * NS_PER_S, 0), 300 * NS_PER_S);
	CHECK_U64(revalidate_gap_ns(300 * NS_PER_S, 1), 300 * NS_PER_S);
	CHECK_U64(revalidate_gap_ns(300 * NS_PER_S, 3000), NS_PER_S / 10);
	CHECK_U64(revalidate_gap_ns(300 * NS_PER_S, 300000), NS_PER_MS);
	CHECK_U64(revalidate_gap_ns(300 * NS_PER_S, 100000000), NS_PER_MS); /* the most there is */
	CHECK_U64(revalidate_gap_ns(NS_PER_S, 1u << 31), NS_PER_MS);
}

/* Files are counted as touched once, however often they are read, opened and forgotten. */
static void touched_files_are_counted_once(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 4, .size = 0 });

	for (uint32_t i = 0; i < 12; i++)
		cache_note_open(rig->cache, rig_entry(rig, i % 4));
	CHECK_U64(atomic_load(&rig->cache->n_touched), 4);
	cache_note_forget(rig->cache, rig_entry(rig, 2));
	cache_note_forget(rig->cache, rig_entry(rig, 2));
	CHECK_U64(atomic_load(&rig->cache->n_touched), 3);
	rig_free(rig);
}

/* Of a sample that the plan fetches, the first piece waits for a slot and the second is here: the
 * change ends the fetch while its pieces are being dropped. */
static void change_of_a_sample_that_waits_for_its_first_piece(void)
{
	const uint64_t sample_sizes[] = { 8 * MIB, 2 * MIB };
	struct fault_io_rule hold = { .kind = FAULT_IO_HOLD, .repeat = 8 };
	struct rig *rig = rig_new(&(struct rig_options){ .n = 2,
							 .sizes = sample_sizes,
							 .order = "sequential",
							 .arena_limit = 128 * MIB,
							 .threads = 16,
							 .is_not_started = true });
	struct cache_status status;
	struct file_identity known;
	struct stat st;
	struct err err;

	hold.countdown = rig->options.keeps_files; /* one opens it */
	fault_io_set(rig->io, &hold);
	CHECK_INT(drive_start(rig->drive, &err), 0);
	fault_io_wait_held(rig->io, 8); /* all slots are sample 0's */
	RIG_UNTIL((cache_get_status(rig->cache, &status), status.objects == 10));
	CHECK_INT(rig_read_check(rig, 1, MIB, 4096), READ_LATE);
	rig_replace(rig, 1, 2 * MIB);
	AUTO_FREE char *path = rig_path(rig, 1);

	dataset_identity(rig->dataset, rig_entry(rig, 1), &known);
	CHECK_INT(stat(path, &st), 0);
	change_file(rig->cache, rig_entry(rig, 1), &known, &st);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHANGED), 1);
	fault_io_resume(rig->io);
	rig_read_check(rig, 1, MIB - 4096, 8192);
	rig_read_check(rig, 0, 0, 4096);
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "size_is_known_to_the_kernel_before_a_read_is_answered",
	  size_is_known_to_the_kernel_before_a_read_is_answered },
	{ "replaced_small_file_is_read_through_its_old_inode",
	  replaced_small_file_is_read_through_its_old_inode },
	{ "rest_of_a_replaced_file_is_refused_and_its_name_leads_to_a_new_inode",
	  rest_of_a_replaced_file_is_refused_and_its_name_leads_to_a_new_inode },
	{ "old_inode_gets_nothing_of_the_new_file", old_inode_gets_nothing_of_the_new_file },
	{ "reader_at_the_beginning_gets_the_new_file_and_no_old_page_behind",
	  reader_at_the_beginning_gets_the_new_file_and_no_old_page_behind },
	{ "reads_behind_are_refused_while_pages_are_dropped",
	  reads_behind_are_refused_while_pages_are_dropped },
	{ "nothing_is_dropped_while_a_read_behind_is_with_the_source",
	  nothing_is_dropped_while_a_read_behind_is_with_the_source },
	{ "file_that_was_only_linked_or_opened_to_others_keeps_its_inode",
	  file_that_was_only_linked_or_opened_to_others_keeps_its_inode },
	{ "file_changed_in_place_counts_as_replaced", file_changed_in_place_counts_as_replaced },
	{ "answer_without_bytes_counts_as_pages", answer_without_bytes_counts_as_pages },
	{ "size_that_the_kernel_does_not_take_is_no_cut_read",
	  size_that_the_kernel_does_not_take_is_no_cut_read },
	{ "empty_file_is_looked_at_whenever_its_size_is_asked",
	  empty_file_is_looked_at_whenever_its_size_is_asked },
	{ "invalidation_waits_for_every_read_that_was_in_flight",
	  invalidation_waits_for_every_read_that_was_in_flight },
	{ "read_of_a_grown_file_does_not_wait_for_stagers",
	  read_of_a_grown_file_does_not_wait_for_stagers },
	{ "pieces_of_two_versions_do_not_meet_in_one_answer",
	  pieces_of_two_versions_do_not_meet_in_one_answer },
	{ "all_who_joined_get_the_new_version", all_who_joined_get_the_new_version },
	{ "vanished_file_is_gone_and_may_come_back", vanished_file_is_gone_and_may_come_back },
	{ "old_news_change_nothing", old_news_change_nothing },
	{ "file_that_was_gone_for_a_moment_is_still_looked_at",
	  file_that_was_gone_for_a_moment_is_still_looked_at },
	{ "directory_in_place_of_a_file_is_an_error", directory_in_place_of_a_file_is_an_error },
	{ "revalidation_finds_what_the_kernel_would_hide",
	  revalidation_finds_what_the_kernel_would_hide },
	{ "estale_of_the_source_is_an_errno_like_any_other",
	  estale_of_the_source_is_an_errno_like_any_other },
	{ "empty_file_that_was_opened_is_seen_to_grow",
	  empty_file_that_was_opened_is_seen_to_grow },
	{ "revalidation_is_spread_over_its_interval", revalidation_is_spread_over_its_interval },
	{ "touched_files_are_counted_once", touched_files_are_counted_once },
	{ "change_of_a_sample_that_waits_for_its_first_piece",
	  change_of_a_sample_that_waits_for_its_first_piece },
	{ "stop_does_not_lose_a_read_that_waits_for_attributes",
	  stop_does_not_lose_a_read_that_waits_for_attributes },
};
CHECK_MAIN(tests)
