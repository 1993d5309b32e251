/* SPDX-License-Identifier: Apache-2.0 */
/* Units that are records of larger files in the cache: held by the thousand in one file and found by
 * where they are, pushed but for a page of their own, let go alone though they share pages, and taken all
 * by a change. Nothing plans: what whoever plans would ask for is the test's. */
#include <string.h>

#include "units_rig.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE 4096u
#define NAME "class/000000.jpg"

/* With its tracer page. */
static void push_whole(struct rig *rig, uint32_t unit)
{
	struct cache_push p;
	struct cache_copy copy;

	CHECK_INT(cache_push_begin(rig->cache, (struct unit_id){ unit }, &p), 0);
	CHECK(cache_push_whole(rig->cache, &p));
	CHECK_U64(p.tracer_bytes, 0);
	for (uint32_t i = p.first; i < p.end; i++) {
		CHECK_INT(cache_push_pin(rig->cache, &p, i, &copy), 0);
		cache_push_unpin(rig->cache, &p, &copy, true);
	}
	CHECK_INT(cache_push_end(rig->cache, &p, 0), 0);
}

/* Three records, one of them of 17.5 MiB, in a file of 30; and a file that is one unit. */
static struct rig *rig_of_records(void)
{
	static const uint64_t sizes[] = { 30 * MIB, 5000 };

	return rig_new(&(struct rig_options){
		.n = 2,
		.sizes = sizes,
		.arena_limit = 64 * MIB,
		.is_not_started = true,
		.records = NAME " 10000 100000\n" NAME " 110000 2000000\n" NAME " 5242880 18350080\n" });
}

static void a_record_is_held_with_the_pages_it_shares(void)
{
	struct rig *rig = rig_of_records();

	CHECK_U64(dataset_n_units(rig->dataset), 2 + 5 + 1);
	CHECK_INT(unit_hold(rig, 0), 0);
	CHECK_U64(rig_source_bytes(rig), 110592 - 8192);
	CHECK_INT(unit_hold(rig, 1), 0); /* of two parts; a page is here twice */
	CHECK_U64(rig_source_bytes(rig), 110592 - 8192 + 2113536 - 106496);
	CHECK_INT(rig_read_check(rig, 0, 8192, 102400), READ_ARENA);
	CHECK_INT(rig_read_check(rig, 0, 0, 16384), READ_MISS); /* the head of the file */
	CHECK_INT(rig_read_check(rig, 0, 90112, 126976), READ_ARENA); /* of both */
	CHECK_INT(rig_read_check(rig, 0, 106496 + MIB - PAGE, 2 * PAGE), READ_ARENA); /* of its parts */
	CHECK_INT(rig_read_check(rig, 0, 2109440, 2 * PAGE), READ_MISS); /* beyond */
	unit_let_go(rig, 0);
	CHECK_INT(rig_read_check(rig, 0, 106496, PAGE), READ_ARENA); /* that page is the other's, too */
	CHECK_INT(rig_read_check(rig, 0, 102400, PAGE), READ_MISS);
	CHECK_INT(unit_hold(rig, 2), 0); /* the first of five */
	CHECK_INT(rig_read_check(rig, 0, 8 * MIB, 100000), READ_ARENA);
	CHECK_INT(rig_read_check(rig, 0, 9 * MIB, 100000), READ_MISS);
	CHECK_INT(unit_hold(rig, 6), 0);
	CHECK_INT(rig_read_check(rig, 0, 22 * MIB, 100000), READ_ARENA);
	cache_release(rig->cache, (struct unit_id){ 1 }, true); /* stays for whoever reads it */
	CHECK_INT(rig_read_check(rig, 0, 114688, 100000), READ_ARENA);
	CHECK_INT(unit_hold(rig, 1), 0);
	unit_let_go(rig, 1);
	unit_let_go(rig, 2);
	unit_let_go(rig, 6);
	CHECK_INT(rig_read_check(rig, 0, 114688, 100000), READ_MISS);
	rig_free(rig);
}

/* Of pages that are shared more may be a neighbour's than its own. */
static void a_part_is_of_the_record_it_was_fetched_for(void)
{
	uint64_t size = 2 * MIB;
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1,
							 .sizes = &size,
							 .is_not_started = true,
							 .records = NAME " 0 100\n" NAME " 100 90000\n" });
	struct entry_id entry = { 0 };
	struct shard *s = shard_of(rig->cache, entry);
	struct object *obj;

	CHECK_INT(unit_hold(rig, 0), 0);
	mutex_lock(&s->mu);
	obj = ranges_find_locked(rig->cache, s, entry_find_locked(rig->cache, s, entry), 0);
	CHECK_U64(obj ? unit_of_object(rig->cache, obj).v : UINT32_MAX, 0);
	mutex_unlock(&s->mu);
	unit_let_go(rig, 0);
	rig_free(rig);
}

static void the_first_page_of_its_own_says_who_comes(void)
{
	struct rig *rig = rig_of_records();
	struct cache_push p;

	CHECK_INT(unit_hold(rig, 0), 0);
	CHECK_INT(unit_hold(rig, 1), 0);
	CHECK_INT(cache_push_begin(rig->cache, (struct unit_id){ 1 }, &p), 0);
	CHECK_U64(p.end - p.first, 2);
	CHECK_U64(p.tracer_at, 110592);
	CHECK_U64(p.tracer_bytes, PAGE);
	CHECK_INT(cache_push_end(rig->cache, &p, -EAGAIN), -EAGAIN);
	unit_push(rig, 0);
	unit_push(rig, 1);
	cache_note_open(rig->cache, (struct entry_id){ 0 }); /* says nothing of a record */
	CHECK_U64(unit_told(rig, NEWS_OPENED, 0), 1);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 0), 0);
	CHECK_INT(rig_read_check(rig, 0, 106496, PAGE), READ_ARENA); /* the page of both is nobody's */
	CHECK_U64(unit_told(rig, NEWS_REACHED, 0) + unit_told(rig, NEWS_REACHED, 1), 0);
	CHECK_INT(rig_read_check(rig, 0, 110592, PAGE), READ_ARENA);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 1), 1);
	CHECK_INT(rig_read_check(rig, 0, 12288, PAGE), READ_ARENA);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 0), 1);
	CHECK_U64(unit_told(rig, NEWS_UNSTAGED, 0), 1); /* by that page, which the kernel had not any more */
	CHECK_U64(unit_told(rig, NEWS_UNSTAGED, 1), 0);
	/* One that was not pushed is read to its end. */
	CHECK_INT(rig_read_check(rig, 0, 5 * MIB, 131072), READ_MISS);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 2), 0);
	CHECK_INT(rig_read_check(rig, 0, 9 * MIB - 131072, 131072), READ_MISS);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 2), 1);
	rig_free(rig);
}

/* Ahead of a reader of the record before, the kernel has read the beginning of this one. */
static void what_is_read_beyond_a_record_does_not_say_that_somebody_came(void)
{
	struct rig *rig = rig_of_records();

	CHECK_INT(rig_read_check(rig, 0, 106496, 40960), READ_MISS);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 1), 0);
	CHECK_INT(rig_read_check(rig, 0, 2101248, 12288), READ_MISS);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 1), 1);
	CHECK_INT(rig_read_check(rig, 0, 8192, 102400), READ_MISS);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 0), 1);
	rig_free(rig);
}

static void the_tracer_page_outlives_its_record(void)
{
	struct rig *rig = rig_of_records();
	uint64_t before;

	CHECK_INT(unit_hold(rig, 0), 0);
	CHECK_INT(unit_hold(rig, 1), 0);
	unit_push(rig, 0);
	unit_push(rig, 1);
	unit_let_go(rig, 0);
	unit_let_go(rig, 1);
	CHECK_U64(arena_used(rig->arena), 2 * PAGE);
	before = rig_source_bytes(rig);
	CHECK_INT(rig_read_check(rig, 0, 110592, PAGE), READ_ARENA);
	CHECK_INT(rig_read_check(rig, 0, 12288, PAGE), READ_ARENA); /* before it: nobody reads on to that */
	CHECK_U64(rig_source_bytes(rig), before);
	RIG_UNTIL(arena_used(rig->arena) == 0); /* they came, and are of no use any more */
	CHECK_INT(unit_hold(rig, 1), 0);
	unit_push(rig, 1);
	unit_let_go(rig, 1);
	CHECK_U64(arena_used(rig->arena), PAGE);
	CHECK_INT(unit_hold(rig, 1), 0); /* here again before it was read: there is one copy */
	CHECK_U64(arena_used(rig->arena), 2113536 - 106496);
	unit_let_go(rig, 1);
	CHECK_U64(arena_used(rig->arena), PAGE);
	rig_replace(rig, 0, 20 * MIB); /* another file now */
	rig_read_check(rig, 0, 8 * MIB, PAGE);
	RIG_UNTIL(arena_used(rig->arena) == 0);
	CHECK_U64(atomic_load(&rig->cache->n_tracers), 0);
	rig_free(rig);
}

static uint64_t total_bytes(struct rig *rig)
{
	uint64_t bytes = 0;

	account_sweep(rig->cache, clock_now(rig->cache->p.clock), true);
	for (int class = 0; class < READ_CLASSES; class ++)
		bytes += rig_metric(rig, METRIC_READ_BYTES_STAGED + class);
	return bytes;
}

static void pushed_records_count_as_long_as_they_are(void)
{
	struct rig *rig = rig_of_records();

	for (uint32_t unit = 0; unit < 2; unit++) {
		CHECK_INT(unit_hold(rig, unit), 0);
		unit_push(rig, unit);
	}
	cache_note_open(rig->cache, (struct entry_id){ 0 });
	CHECK_U64(total_bytes(rig), 0);
	rig_read_check(rig, 0, 110592, PAGE);
	CHECK_U64(total_bytes(rig), 2000000);
	rig_read_check(rig, 0, 12288, PAGE);
	CHECK_U64(total_bytes(rig), 2100000);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_ARENA), 2 * PAGE);
	rig_free(rig);
}

/* Nobody hears of its reader, so it counts when whoever plans says so, once. */
static void what_is_pushed_whole_counts_when_it_is_said_to_be_read(void)
{
	struct rig *rig = rig_of_records();
	struct cache_push p;

	CHECK_INT(unit_hold(rig, 7), 0); /* a file that is one unit has no such page */
	CHECK_INT(cache_push_begin(rig->cache, (struct unit_id){ 7 }, &p), 0);
	CHECK(!cache_push_whole(rig->cache, &p));
	CHECK_INT(cache_push_end(rig->cache, &p, -EAGAIN), -EAGAIN);
	for (uint32_t unit = 0; unit < 2; unit++)
		CHECK_INT(unit_hold(rig, unit), 0);
	unit_push(rig, 0);
	push_whole(rig, 1);
	unit_let_go(rig, 7);
	unit_let_go(rig, 1);
	CHECK_U64(atomic_load(&rig->cache->n_tracers), 0); /* the kernel has it */
	cache_note_open(rig->cache, (struct entry_id){ 0 });
	cache_come(rig->cache, (struct unit_id){ 0 }); /* that one is heard of */
	CHECK_U64(total_bytes(rig), 0);
	cache_come(rig->cache, (struct unit_id){ 1 });
	CHECK_U64(total_bytes(rig), 2000000);
	CHECK_U64(rig_metric(rig, METRIC_READ_BYTES_STAGED), 2000000);
	cache_come(rig->cache, (struct unit_id){ 1 });
	CHECK_U64(total_bytes(rig), 2000000);
	rig_read_check(rig, 0, 12288, PAGE);
	CHECK_U64(total_bytes(rig), 2100000);
	CHECK_INT(unit_hold(rig, 1), 0);
	unit_push(rig, 1); /* and with one again */
	rig_read_check(rig, 0, 110592, PAGE);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 1), 1);
	CHECK_U64(unit_told(rig, NEWS_UNSTAGED, 1), 0);
	CHECK_U64(total_bytes(rig), 4100000);
	rig_free(rig);
}

/* Whatever the kernel asks for of it, its reader is there. */
static void what_is_lost_of_a_record_pushed_whole_says_who_comes(void)
{
	static const uint64_t from[] = { 110592, 110592 + 100 * PAGE, 110592 + 486 * PAGE };

	for (size_t i = 0; i < ARRAY_LEN(from); i++)
		for (uint32_t pages = 1; pages <= 2; pages++) {
			struct rig *rig = rig_of_records();

			CHECK_INT(unit_hold(rig, 1), 0);
			push_whole(rig, 1);
			CHECK_INT(rig_read_check(rig, 0, from[i], pages * PAGE), READ_ARENA);
			CHECK_U64(unit_told(rig, NEWS_REACHED, 1), 1);
			CHECK_U64(unit_told(rig, NEWS_UNSTAGED, 1), 1);
			cache_come(rig->cache, (struct unit_id){ 1 }); /* as it is known already */
			CHECK_U64(total_bytes(rig), 2000000);
			rig_free(rig);
		}
}

static void a_change_takes_all_records_of_the_file(void)
{
	struct fault_io_rule wait = { .kind = FAULT_IO_HOLD, .repeat = 64 };
	struct rig *rig = rig_of_records();
	struct unit_asked a = { .fetch = { .answer_to = &a.answer } };
	uint64_t before;

	CHECK_INT(unit_hold(rig, 0), 0);
	CHECK_INT(unit_hold(rig, 3), 0);
	CHECK_INT(unit_hold(rig, 7), 0);
	fault_io_set(rig->io, &wait);
	CHECK_INT(cache_hold(rig->cache, (struct unit_id){ 1 }, &a.fetch), 0);
	fault_io_wait_held(rig->io, 1);
	rig_replace(rig, 0, 90000);
	fault_io_set(rig->io, NULL);
	fault_io_resume(rig->io);
	RIG_UNTIL(unit_is_answered(rig, &a));
	CHECK_INT(a.fetch.status, -ESTALE);
	for (uint32_t unit = 0; unit < 8; unit++)
		CHECK_U64(unit_told(rig, NEWS_LOST_COPY, unit), unit == 0 || unit == 3);
	for (uint32_t unit = 0; unit < 8; unit++)
		CHECK_U64(unit_told(rig, NEWS_RESIZED, unit), unit < 7);
	/* It is smaller than a piece now, and the table is of a file that is no more. */
	before = rig_source_bytes(rig);
	CHECK_INT(unit_hold(rig, 0), 0);
	CHECK_INT(unit_hold(rig, 1), 0);
	CHECK_U64(rig_source_bytes(rig), before); /* any READ fetches all of it: nothing else is of use */
	CHECK_INT(rig_read_check(rig, 0, 0, 90000), READ_MISS);
	unit_push(rig, 0);
	unit_let_go(rig, 0);
	unit_let_go(rig, 1);
	rig_free(rig);
}

/* A file may grow to more than 2^31 pieces: no number of one is that of a part. Few filesystems have files
 * as long, so this asks the table. */
static void a_piece_far_out_is_no_part_of_a_record(void)
{
	struct rig *rig = rig_of_records();
	struct entry_id entry = { 0 };
	struct shard *s = shard_of(rig->cache, entry);
	uint32_t n_found = 0;

	CHECK_INT(unit_hold(rig, 0), 0);
	CHECK_INT(unit_hold(rig, 1), 0);
	mutex_lock(&s->mu);
	for (uint64_t bit = 1; bit < PIECES_BYTES_MAX; bit *= 2)
		for (uint64_t at = bit; at < bit + 64 * MIB && at < PIECES_BYTES_MAX; at += MIB) {
			struct object *obj = ranges_find_locked(
				rig->cache, s, entry_find_locked(rig->cache, s, entry), at);

			CHECK(!obj || (obj->start <= at && at < obj->start + obj->length));
			obj = object_find_locked(rig->cache, s, entry, (uint32_t)(at / PIECE_BYTES));
			n_found += obj != NULL;
		}
	mutex_unlock(&s->mu);
	CHECK_U64(n_found, 0);
	unit_let_go(rig, 0);
	unit_let_go(rig, 1);
	rig_free(rig);
}

/* What waits for a thread that does it. How many there were. */
static uint32_t do_page_jobs(struct rig *rig)
{
	struct list *node;
	uint32_t n = 0;

	for (; (node = queue_try_pop(&rig->drive->page_jobs)); n++)
		cache_do_page_job(rig->cache, container_of(node, struct page_job, node));
	return n;
}

/* Where there is no room for one more tracer page, it is pushed: nobody waits for the source. */
static void tracer_pages_without_room_are_pushed(void)
{
	enum { N = 600, BYTES = 20480, ROOM = (32 << 20) / 16 / PAGE };
	AUTO_FREE char *text = NULL;
	uint64_t size = (uint64_t)N * BYTES, before;
	size_t text_size = 0;
	struct rig *rig;
	FILE *out = open_memstream(&text, &text_size);

	for (uint32_t i = 0; i < N; i++)
		fprintf(out, NAME " %u %u\n", i * BYTES, BYTES);
	fclose(out);
	rig = rig_new(&(struct rig_options){
		.n = 1, .sizes = &size, .is_not_started = true, .records = text });
	for (uint32_t i = 0; i < N; i++) {
		CHECK_INT(unit_hold(rig, i), 0);
		unit_push(rig, i);
		unit_let_go(rig, i);
	}
	CHECK_U64(atomic_load(&rig->cache->n_tracers), ROOM);
	CHECK_INT(unit_hold(rig, N - 1), 0); /* here again: it is not pushed */
	CHECK_U64(do_page_jobs(rig), N - ROOM);
	CHECK_U64(rig_count(rig, RIG_STORE, 0), N - ROOM - 1);
	for (uint32_t i = 0; i < rig->n_log; i++) {
		CHECK_U64(rig->log[i].offset, (uint64_t)(ROOM + i) * BYTES);
		CHECK_U64(rig->log[i].length, PAGE);
	}
	before = rig_source_bytes(rig);
	for (uint32_t i = ROOM; i-- > 0;) /* none of what is kept is lost for it */
		CHECK_INT(rig_read_check(rig, 0, (uint64_t)i * BYTES, PAGE), READ_ARENA);
	CHECK_U64(rig_source_bytes(rig), before);
	unit_let_go(rig, N - 1);
	rig_free(rig); /* frees what is queued, too */
}

/* --- what the kernel reads on for --- */

enum { SMALL = 16384, N_SMALL = 60 };

/* Records of four pages that follow each other; those below n_pushed are pushed and let go. */
static struct rig *rig_of_small(struct manual_clock *mc, uint32_t n_pushed)
{
	AUTO_FREE char *text = NULL;
	uint64_t size = (uint64_t)N_SMALL * SMALL + 2 * MIB;
	size_t text_size = 0;
	FILE *out = open_memstream(&text, &text_size);
	struct rig *rig;

	for (uint32_t i = 0; i < N_SMALL; i++)
		fprintf(out, NAME " %u %u\n", i * SMALL, SMALL);
	fclose(out);
	*mc = (struct manual_clock){ .clock = { .now_ns = manual_now }, .now_ns = 1000 * NS_PER_S };
	rig = rig_new(&(struct rig_options){ .n = 1,
					     .sizes = &size,
					     .clock = &mc->clock,
					     .is_not_started = true,
					     .records = text });
	for (uint32_t i = 0; i < n_pushed; i++) {
		CHECK_INT(unit_hold(rig, i), 0);
		unit_push(rig, i);
		unit_let_go(rig, i);
	}
	return rig;
}

/* The READ of its tracer page, so long after the one before. */
static enum read_class come(struct rig *rig, struct manual_clock *mc, uint32_t unit, uint64_t later_ns)
{
	atomic_fetch_add(&mc->now_ns, later_ns);
	return rig_read_check(rig, 0, (uint64_t)unit * SMALL, PAGE);
}

static void what_the_kernel_reads_on_for_is_left_to_its_reader(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_small(&mc, 20);
	uint64_t before = rig_source_bytes(rig);

	CHECK_INT(come(rig, &mc, 2, NS_PER_S), READ_ARENA);
	CHECK_INT(come(rig, &mc, 3, 90000), READ_ARENA);
	CHECK_INT(come(rig, &mc, 4, 90000), READ_ARENA); /* after the one before it, not the first */
	CHECK_U64(unit_told(rig, NEWS_REACHED, 2), 1);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 3) + unit_told(rig, NEWS_REACHED, 4), 0);
	CHECK_U64(do_page_jobs(rig), 2); /* else the kernel has these pages, and nobody hears of their readers */
	CHECK_U64(rig_count(rig, RIG_INVAL, 0), 2);
	for (uint32_t i = 0; i < 2; i++) {
		const struct rig_log *log = &rig->log[rig->n_log - 2 + i];

		CHECK_INT(log->event, RIG_INVAL);
		CHECK_U64(log->offset, (uint64_t)(3 + i) * SMALL);
		CHECK_U64(log->length, PAGE);
	}
	CHECK_INT(come(rig, &mc, 4, NS_PER_S), READ_ARENA); /* its reader: the page is here still */
	CHECK_INT(come(rig, &mc, 3, NS_PER_S), READ_ARENA);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 3), 1);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 4), 1);
	CHECK_U64(rig_source_bytes(rig), before);
	CHECK_INT(come(rig, &mc, 10, NS_PER_S), READ_ARENA);
	CHECK_INT(come(rig, &mc, 11, 120000), READ_ARENA); /* too late for it */
	CHECK_INT(come(rig, &mc, 9, 10000), READ_ARENA);   /* the kernel does not read back */
	CHECK_INT(come(rig, &mc, 18, 10000), READ_ARENA);  /* nor as far */
	for (uint32_t i = 9; i < 12; i++)
		CHECK_U64(unit_told(rig, NEWS_REACHED, i), 1);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 18), 1);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 17), 0);
	rig_free(rig);
}

static void who_goes_through_records_is_told_of_all(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_small(&mc, N_SMALL);
	uint32_t n = 0;

	for (uint32_t i = 0; i < N_SMALL; i++)
		CHECK_INT(come(rig, &mc, i, 20000), READ_ARENA);
	for (uint32_t i = 0; i < N_SMALL; i++)
		n += unit_told(rig, NEWS_REACHED, i);
	CHECK(n >= N_SMALL - 8 && n <= N_SMALL); /* the last ones may be the kernel's */
	CHECK_U64(atomic_load(&rig->cache->n_tracers), N_SMALL - n);
	rig_free(rig);
}

/* The kernel reads ahead of a stream: each READ has the ends of several. Who goes on has read those before. */
static void a_stream_of_several_records_at_once_is_told_of_all(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_small(&mc, 0);
	uint32_t n = N_SMALL / 8 * 8;

	for (uint32_t i = 0; i < N_SMALL / 8; i++) {
		(void)rig_read_check(rig, 0, (uint64_t)i * 8 * SMALL, 8 * SMALL);
		atomic_fetch_add(&mc.now_ns, NS_PER_S);
	}
	for (uint32_t i = 0; i < N_SMALL; i++)
		CHECK_U64(unit_told(rig, NEWS_REACHED, i), i <= n - 8); /* of the last ones nobody knows */
	CHECK_U64(total_bytes(rig), (uint64_t)n * SMALL);
	CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 0); /* each is one read, and none of the kernel */
	rig_free(rig);
}

/* The kernel has records before it, so it reads on for some pages, to the end of another record or not. */
static void a_read_beyond_its_record_is_told_of_the_first(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_small(&mc, 0);
	const uint32_t at[] = { 40, 20, 3, 55, 12 };
	uint64_t n = 0;

	for (uint32_t k = 0; k < ARRAY_LEN(at); k++) {
		(void)rig_read_check(rig, 0, (uint64_t)at[k] * SMALL, k % 2 ? 2 * SMALL : 3 * SMALL - PAGE);
		atomic_fetch_add(&mc.now_ns, 10000); /* the next one at once: it is elsewhere */
	}
	for (uint32_t k = 0; k < ARRAY_LEN(at); k++)
		CHECK_U64(unit_told(rig, NEWS_REACHED, at[k]), 1);
	for (uint32_t i = 0; i < N_SMALL; i++)
		n += unit_told(rig, NEWS_REACHED, i);
	CHECK_U64(n, ARRAY_LEN(at));
	CHECK_U64(total_bytes(rig), 2 * 2 * SMALL + 3 * (3 * SMALL - PAGE));
	CHECK_U64(rig_metric(rig, METRIC_READS_STAGED), 0);
	rig_free(rig);
}

/* From a record that was pushed over two more to one that was not. */
static void what_the_kernel_reads_on_for_beyond_pushed_records_tells_nothing_of_them(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_small(&mc, 5);

	CHECK_INT(come(rig, &mc, 2, NS_PER_S), READ_ARENA);
	CHECK_INT(come(rig, &mc, 3, 20000), READ_ARENA);
	CHECK_INT(come(rig, &mc, 4, 20000), READ_ARENA);
	atomic_fetch_add(&mc.now_ns, 20000);
	CHECK_INT(rig_read_check(rig, 0, 5 * SMALL, SMALL), READ_MISS);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 5), 0);
	CHECK_INT(come(rig, &mc, 2, NS_PER_S), READ_MISS); /* once more, and later its neighbours were no readers' */
	CHECK_INT(come(rig, &mc, 3, 20000), READ_ARENA);
	CHECK_INT(come(rig, &mc, 4, 20000), READ_ARENA);
	atomic_fetch_add(&mc.now_ns, NS_PER_S);
	(void)rig_read_check(rig, 0, 5 * SMALL, SMALL);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 5), 1);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 3), 0);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 4), 0);
	CHECK_INT(come(rig, &mc, 4, NS_PER_S), READ_ARENA); /* their readers */
	CHECK_INT(come(rig, &mc, 3, NS_PER_S), READ_ARENA);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 3), 1);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 4), 1);
	rig_free(rig);
}

/* It has pages of those between, so there are several READs of what it reads on for. */
static void what_is_read_on_for_in_several_reads_is_told_of_the_first(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_small(&mc, 0);

	(void)rig_read_check(rig, 0, 20 * SMALL, SMALL);
	atomic_fetch_add(&mc.now_ns, 20000);
	(void)rig_read_check(rig, 0, 22 * SMALL, 2 * SMALL);
	for (uint32_t i = 0; i < N_SMALL; i++)
		CHECK_U64(unit_told(rig, NEWS_REACHED, i), i == 20);
	/* Later, or farther away, is another reader. */
	atomic_fetch_add(&mc.now_ns, NS_PER_MS);
	(void)rig_read_check(rig, 0, 23 * SMALL, SMALL);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 23), 1);
	atomic_fetch_add(&mc.now_ns, 20000);
	(void)rig_read_check(rig, 0, 33 * SMALL, SMALL);
	CHECK_U64(unit_told(rig, NEWS_REACHED, 33), 1);
	rig_free(rig);
}

/* Nobody reads on for a direct READ, whether it is of several records or one follows the other; nor as far. */
static void a_direct_or_longer_read_is_told_of_all(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_small(&mc, 0);

	rig->is_direct = true;
	(void)rig_read_check(rig, 0, 8 * SMALL, 3 * SMALL);
	atomic_fetch_add(&mc.now_ns, 20000);
	(void)rig_read_check(rig, 0, 11 * SMALL, SMALL);
	rig->is_direct = false;
	atomic_fetch_add(&mc.now_ns, 20000);
	(void)rig_read_check(rig, 0, 12 * SMALL, 20 * SMALL);
	for (uint32_t i = 0; i < N_SMALL; i++)
		CHECK_U64(unit_told(rig, NEWS_REACHED, i), i >= 8 && i < 32);
	rig_free(rig);
}

/* A page of a record that was not pushed is asked for by its reader. */
static void of_what_was_not_pushed_all_is_told(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_small(&mc, 0);

	for (uint32_t i = 0; i < N_SMALL; i++)
		(void)come(rig, &mc, i, 20000);
	for (uint32_t i = 0; i < N_SMALL; i++)
		CHECK_U64(unit_told(rig, NEWS_REACHED, i), 1);
	rig_free(rig);
}

/* --- a page that is pushed after the rest: what comes between --- */

enum { LATE = 5 }; /* the record whose page it is */

static void push_but_tracer(struct rig *rig)
{
	CHECK_INT(unit_hold(rig, LATE), 0);
	unit_push(rig, LATE);
	unit_let_go(rig, LATE);
}

/* No tracer page has room: that of the record waits to be pushed. */
static struct rig *rig_of_late_page(struct manual_clock *mc)
{
	struct rig *rig = rig_of_small(mc, 0);

	atomic_store(&rig->cache->arena_bytes, 0);
	push_but_tracer(rig);
	CHECK_U64(atomic_load(&rig->cache->n_tracers), 0);
	return rig;
}

static uint32_t stored_by_jobs(struct rig *rig, uint32_t n_jobs)
{
	uint32_t before = rig_count(rig, RIG_STORE, 0);

	CHECK_U64(do_page_jobs(rig), n_jobs);
	return rig_count(rig, RIG_STORE, 0) - before;
}

static void a_late_page_is_pushed(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_late_page(&mc);

	CHECK_U64(stored_by_jobs(rig, 1), 1);
	rig_free(rig);
}

/* The new version was pushed, too: its page is awaited, and the old one is no part of it. */
static void a_late_page_of_another_version_is_not_pushed(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_late_page(&mc);
	struct list *old = queue_try_pop(&rig->drive->page_jobs);
	uint32_t before;

	CHECK(old);
	rig_replace(rig, 0, (uint64_t)N_SMALL * SMALL + 2 * MIB);
	(void)rig_read_check(rig, 0, 40 * SMALL, PAGE);
	(void)do_page_jobs(rig); /* of the change, if any */
	push_but_tracer(rig);
	CHECK(tracer_is_awaited(rig->cache, (struct unit_id){ LATE }));
	before = rig_count(rig, RIG_STORE, 0);
	cache_do_page_job(rig->cache, container_of(old, struct page_job, node));
	CHECK_U64(rig_count(rig, RIG_STORE, 0), before);
	CHECK_U64(stored_by_jobs(rig, 1), 1);
	rig_free(rig);
}

/* The READ's answer fills the page. It begins before the record, so that it does not say that anybody came. */
static void a_late_page_that_is_being_read_is_not_pushed(void)
{
	struct fault_io_rule wait = { .kind = FAULT_IO_HOLD, .repeat = 64 };
	struct manual_clock mc;
	struct rig *rig = rig_of_late_page(&mc);
	struct rig_read *read;

	fault_io_set(rig->io, &wait);
	read = rig_read_start(rig, 0, LATE * SMALL - 3 * PAGE, 4 * PAGE);
	fault_io_wait_held(rig->io, 1);
	CHECK(tracer_is_awaited(rig->cache, (struct unit_id){ LATE }));
	CHECK_U64(stored_by_jobs(rig, 1), 0);
	fault_io_set(rig->io, NULL);
	fault_io_resume(rig->io);
	rig_read_wait(read);
	rig_check_bytes(read, 0, (uint64_t)N_SMALL * SMALL + 2 * MIB);
	rig_read_free(read);
	rig_free(rig);
}

/* Whoever was answered is no reader any more. */
static bool has_no_reader(struct rig *rig)
{
	struct entry_id entry = { 0 };
	struct shard *s = shard_of(rig->cache, entry);
	const struct entry_state *es;
	bool has_none;

	mutex_lock(&s->mu);
	es = entry_find_locked(rig->cache, s, entry);
	has_none = !es || es->readers == 0;
	mutex_unlock(&s->mu);
	return has_none;
}

/* Its reader has come: the kernel may have dropped the page already, and nobody asks for it again. */
static void a_late_page_that_was_read_is_not_pushed(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_late_page(&mc);

	(void)come(rig, &mc, LATE, NS_PER_S);
	CHECK_U64(unit_told(rig, NEWS_REACHED, LATE), 1);
	RIG_UNTIL(has_no_reader(rig));
	CHECK_U64(stored_by_jobs(rig, 1), 0);
	rig_free(rig);
}

/* The record is here again: the READ of its page is answered, and says that its reader came. */
static void a_late_page_of_what_is_held_is_not_pushed(void)
{
	struct manual_clock mc;
	struct rig *rig = rig_of_late_page(&mc);

	CHECK_INT(unit_hold(rig, LATE), 0);
	CHECK(tracer_is_awaited(rig->cache, (struct unit_id){ LATE }));
	CHECK_U64(stored_by_jobs(rig, 1), 0);
	unit_let_go(rig, LATE);
	rig_free(rig);
}

/* --- many --- */

#define RECORDS 1500u
#define PLACES 128u /* of READs, in which a place is looked for again */
#define RECORD_BYTES 19000u /* 0..: of each the number of it more */

static uint64_t start_of(uint32_t i)
{
	return 777 + (uint64_t)i * RECORD_BYTES + (uint64_t)i * (i - 1) / 2 + (i / 7) * 5000u;
}

static char *many(void)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	CHECK(out);
	for (uint32_t i = 0; i < RECORDS; i++)
		fprintf(out, NAME " %llu %u\n", (unsigned long long)start_of(i), RECORD_BYTES + i);
	fclose(out);
	return text;
}

/* All are held and let go in any sequence: what is held is read from here, and is right. */
static void records_are_held_by_the_thousand(void)
{
	AUTO_FREE char *text = many();
	uint64_t seed = check_seed(), size = start_of(RECORDS) + 100;
	static bool is_held[RECORDS], may_be_hot[RECORDS];
	static uint32_t last[RECORDS]; /* READ of it, from 1 on */
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1,
							 .sizes = &size,
							 .arena_limit = 64 * MIB,
							 .is_not_started = true,
							 .records = text });

	memset(is_held, 0, sizeof(is_held));
	memset(may_be_hot, 0, sizeof(may_be_hot));
	memset(last, 0, sizeof(last));
	CHECK_U64(dataset_n_units(rig->dataset), RECORDS);
	for (uint32_t k = 0; k < 4000; k++) {
		uint32_t i = (uint32_t)check_rand_below(&seed, RECORDS);
		uint64_t from = start_of(i) - start_of(i) % PAGE;
		uint64_t end = MIN(ALIGN_UP(start_of(i) + RECORD_BYTES + i, (uint64_t)PAGE), size);
		enum read_class class;

		if (is_held[i] && check_rand_below(&seed, 3) == 0) {
			unit_let_go(rig, i);
			is_held[i] = false;
		} else if (!is_held[i]) {
			CHECK_INT(unit_hold(rig, i), 0);
			is_held[i] = true;
		}
		class = rig_read_check(rig, 0, from, (uint32_t)(end - from));
		CHECK(class == READ_ARENA || (class == READ_MISS && !is_held[i]));
		CHECK(class == READ_MISS || is_held[i] || may_be_hot[i]);
		/* What is missed soon after another READ of it is kept, see hot.c. A READ that goes on where
		 * another one ended takes no place, so that more of them may be between these. */
		may_be_hot[i] |= class == READ_MISS && last[i] && k + 1 - last[i] <= 2 * PLACES;
		last[i] = k + 1;
	}
	for (uint32_t i = 0; i < RECORDS; i++)
		if (is_held[i])
			unit_let_go(rig, i);
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "a_record_is_held_with_the_pages_it_shares", a_record_is_held_with_the_pages_it_shares },
	{ "a_part_is_of_the_record_it_was_fetched_for", a_part_is_of_the_record_it_was_fetched_for },
	{ "what_is_pushed_whole_counts_when_it_is_said_to_be_read",
	  what_is_pushed_whole_counts_when_it_is_said_to_be_read },
	{ "what_is_lost_of_a_record_pushed_whole_says_who_comes",
	  what_is_lost_of_a_record_pushed_whole_says_who_comes },
	{ "the_first_page_of_its_own_says_who_comes", the_first_page_of_its_own_says_who_comes },
	{ "what_is_read_beyond_a_record_does_not_say_that_somebody_came",
	  what_is_read_beyond_a_record_does_not_say_that_somebody_came },
	{ "the_tracer_page_outlives_its_record", the_tracer_page_outlives_its_record },
	{ "pushed_records_count_as_long_as_they_are", pushed_records_count_as_long_as_they_are },
	{ "a_change_takes_all_records_of_the_file", a_change_takes_all_records_of_the_file },
	{ "a_piece_far_out_is_no_part_of_a_record", a_piece_far_out_is_no_part_of_a_record },
	{ "tracer_pages_without_room_are_pushed", tracer_pages_without_room_are_pushed },
	{ "what_the_kernel_reads_on_for_is_left_to_its_reader",
	  what_the_kernel_reads_on_for_is_left_to_its_reader },
	{ "who_goes_through_records_is_told_of_all", who_goes_through_records_is_told_of_all },
	{ "a_stream_of_several_records_at_once_is_told_of_all", a_stream_of_several_records_at_once_is_told_of_all },
	{ "a_read_beyond_its_record_is_told_of_the_first", a_read_beyond_its_record_is_told_of_the_first },
	{ "what_the_kernel_reads_on_for_beyond_pushed_records_tells_nothing_of_them",
	  what_the_kernel_reads_on_for_beyond_pushed_records_tells_nothing_of_them },
	{ "what_is_read_on_for_in_several_reads_is_told_of_the_first",
	  what_is_read_on_for_in_several_reads_is_told_of_the_first },
	{ "a_direct_or_longer_read_is_told_of_all", a_direct_or_longer_read_is_told_of_all },
	{ "of_what_was_not_pushed_all_is_told", of_what_was_not_pushed_all_is_told },
	{ "a_late_page_is_pushed", a_late_page_is_pushed },
	{ "a_late_page_of_another_version_is_not_pushed", a_late_page_of_another_version_is_not_pushed },
	{ "a_late_page_that_is_being_read_is_not_pushed", a_late_page_that_is_being_read_is_not_pushed },
	{ "a_late_page_that_was_read_is_not_pushed", a_late_page_that_was_read_is_not_pushed },
	{ "a_late_page_of_what_is_held_is_not_pushed", a_late_page_of_what_is_held_is_not_pushed },
	{ "records_are_held_by_the_thousand", records_are_held_by_the_thousand },
};

CHECK_MAIN(tests)
