/* SPDX-License-Identifier: Apache-2.0 */
/* The owner of the orders, stepped by hand with a clock of the test's: what becomes of orders that are
 * told, found, numbered anew and ended, and which of them wins. A cache of the test's carries them out;
 * the processes are real ones. */
#include <errno.h>
#include <string.h>

#include "orders_kit.h"

static void order_is_told_read_and_over(void)
{
	struct bed b;

	bed_new(&b);
	check_jobs(&b, "");
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(tell(&b, 1, TWO), 0);
	check_jobs(&b, ONE " told, " TWO " told");
	read_samples(&b, 0, 64);
	step(&b, 1);
	check_jobs(&b, ONE " running, " TWO " told");
	job_ends(&b, 0);
	step(&b, 1);
	check_jobs(&b, ONE " gone, " TWO " told");
	read_samples(&b, 0, 80); /* others, where its order has them */
	step(&b, 1);
	check_jobs(&b, ONE " gone, " TWO " told");
	step(&b, 1);
	check_jobs(&b, TWO " told");
	CHECK_STR(b.fake.why, "its job has ended: its processes are gone");
	bed_free(&b);
}

static void only_job_that_was_told_stays(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	read_samples(&b, 0, 64);
	step(&b, 1);
	job_ends(&b, 0);
	step(&b, 120);
	check_jobs(&b, ONE " gone");
	CHECK_INT(tell(&b, 1, TWO), 0); /* it is over as soon as somebody else comes */
	check_jobs(&b, TWO " told");
	bed_free(&b);
}

static void order_that_the_cache_refuses_changes_nothing(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	b.fake.refuses = -ENOMEM;
	CHECK_INT(tell(&b, 0, TWO), -ENOMEM);
	CHECK_INT(tell(&b, 1, TWO), -ENOMEM);
	check_jobs(&b, ONE " told");
	bed_free(&b);
}

static void ended_when_all_its_epochs_were_read(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(tell(&b, 1, TWO), 0);
	fake_remove(&b.fake, 0); /* it has left by itself */
	step(&b, 1);
	check_jobs(&b, TWO " told");
	bed_free(&b);
}

static void found_order_is_a_job_until_somebody_tells(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(find(&b, ONE), 0);
	CHECK(orders_is_found(b.o));
	check_jobs(&b, ONE " told");
	CHECK_INT(find(&b, TWO), 0); /* the same finder: the same job */
	check_jobs(&b, TWO " told");
	CHECK_INT(tell(&b, 0, THREE), 0);
	check_jobs(&b, THREE " told");
	CHECK(!orders_is_found(b.o));
	CHECK_INT(find(&b, ONE), -ECANCELED); /* begun before it was told */
	check_jobs(&b, THREE " told");
	bed_free(&b);
}

static void found_job_that_nobody_is_seen_to_read_ends_after_a_minute(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(find(&b, ONE), 0);
	step(&b, 59);
	check_jobs(&b, ONE " told");
	step(&b, 1);
	check_jobs(&b, "");
	CHECK_INT((int)b.fake.first, (int)DRIVE_NO_JOB);
	bed_free(&b);
}

static void numbered_anew_only_what_is_in_force(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(renumber(&b, TWO, THREE), -EAGAIN);
	check_jobs(&b, ONE " told");
	CHECK_INT(renumber(&b, ONE, THREE), 0);
	check_jobs(&b, THREE " told");
	CHECK_INT(tell(&b, 0, TWO), 0); /* whose it is has not changed */
	check_jobs(&b, TWO " told");
	bed_free(&b);
}

/* It has read all its epochs, and nobody has looked since. */
static void numbered_anew_is_not_the_job_that_comes_after(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(tell(&b, 1, TWO), 0);
	fake_remove(&b.fake, 0);
	CHECK_INT(renumber(&b, ONE, THREE), -EAGAIN);
	check_jobs(&b, TWO " told");
	bed_free(&b);
}

/* Both were sent before the owner looked: in the order in which they came, and nothing replaces what was
 * told. */
static void what_is_told_wins(void)
{
	struct message told, late;
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	for (int is_told_last = 0; is_told_last < 2; is_told_last++) {
		told = message_of(MESSAGE_TOLD, is_told_last ? THREE : TWO);
		late = message_of(MESSAGE_RENUMBERED, FOUR);
		told.by = &b.who[0];
		late.before = is_told_last ? TWO : ONE;
		inbox_post(&b.o->inbox, is_told_last ? &late : &told);
		inbox_post(&b.o->inbox, is_told_last ? &told : &late);
		step(&b, 0);
		CHECK_INT(told.rc, 0);
		CHECK_INT(late.rc, is_told_last ? 0 : -EAGAIN);
		message_free(&told);
		message_free(&late);
		if (!is_told_last)
			check_jobs(&b, TWO " told");
	}
	check_jobs(&b, THREE " told");
	bed_free(&b);
}

/* The owner does not wait for a finder that waits for it. */
static void finder_that_goes_is_refused(void)
{
	struct message m = message_of(MESSAGE_FOUND, ONE), later = message_of(MESSAGE_FOUND, TWO);
	struct finder *f;
	struct err err = { 0 };
	struct bed b;

	bed_new(&b);
	CHECK_INT(finder_new(b.o->untold, 1, &b.who[0].process, &f, &err), 0);
	m.finder = later.finder = f;
	inbox_post(&b.o->inbox, &m);
	inbox_refuse(&b.o->inbox, f);
	CHECK_INT(inbox_await(&b.o->inbox, &m), -ECANCELED);
	inbox_post(&b.o->inbox, &later);
	CHECK_INT(inbox_await(&b.o->inbox, &later), -ECANCELED);
	step(&b, 0);
	check_jobs(&b, "");
	message_free(&m);
	message_free(&later);
	finder_free(f);
	bed_free(&b);
}

/* Who tells without a pause does not keep the owner from its looks. */
static void sixteen_messages_are_answered_in_a_step(void)
{
	struct message m[20];
	struct bed b;
	int answered = 0;

	bed_new(&b);
	for (size_t i = 0; i < ARRAY_LEN(m); i++) {
		m[i] = message_of(MESSAGE_TOLD, ONE);
		m[i].by = &b.who[0];
		inbox_post(&b.o->inbox, &m[i]);
	}
	step(&b, 0);
	for (size_t i = 0; i < ARRAY_LEN(m); i++)
		answered += m[i].is_answered;
	CHECK_INT(answered, 16);
	CHECK(m[15].is_answered);
	step(&b, 0);
	for (size_t i = 0; i < ARRAY_LEN(m); i++)
		message_free(&m[i]);
	bed_free(&b);
}

/* --- with the thread --- */

static void *tell_from_a_lane(void *arg)
{
	struct bed *b = arg;
	struct message m = message_of(MESSAGE_TOLD, ONE);

	m.by = &b->who[0];
	inbox_post(&b->o->inbox, &m);
	(void)inbox_await(&b->o->inbox, &m);
	message_free(&m);
	return (void *)(intptr_t)m.rc;
}

static int told_while(void (*then)(struct orders *o), bool is_started)
{
	struct err err = { 0 };
	pthread_t lane;
	void *rc;
	struct bed b;

	bed_new(&b);
	if (is_started)
		CHECK_INT(orders_start(b.o, &err), 0);
	CHECK_INT(pthread_create(&lane, NULL, tell_from_a_lane, &b), 0);
	if (then)
		then(b.o);
	CHECK_INT(pthread_join(lane, &rc), 0);
	bed_free(&b);
	return (int)(intptr_t)rc;
}

static void owner_answers_who_tells(void)
{
	CHECK_INT(told_while(NULL, true), 0);
}

static void who_tells_is_answered_when_the_mount_never_came(void)
{
	CHECK_INT(told_while(orders_quit, false), -ECANCELED);
}

static void who_tells_at_the_end_is_answered(void)
{
	int rc = told_while(orders_stop, true);

	CHECK(rc == 0 || rc == -ECANCELED);
}

static const struct check_test tests[] = {
	{ "order_is_told_read_and_over", order_is_told_read_and_over },
	{ "only_job_that_was_told_stays", only_job_that_was_told_stays },
	{ "order_that_the_cache_refuses_changes_nothing",
	  order_that_the_cache_refuses_changes_nothing },
	{ "ended_when_all_its_epochs_were_read", ended_when_all_its_epochs_were_read },
	{ "found_order_is_a_job_until_somebody_tells", found_order_is_a_job_until_somebody_tells },
	{ "found_job_that_nobody_is_seen_to_read_ends_after_a_minute",
	  found_job_that_nobody_is_seen_to_read_ends_after_a_minute },
	{ "numbered_anew_only_what_is_in_force", numbered_anew_only_what_is_in_force },
	{ "numbered_anew_is_not_the_job_that_comes_after",
	  numbered_anew_is_not_the_job_that_comes_after },
	{ "what_is_told_wins", what_is_told_wins },
	{ "finder_that_goes_is_refused", finder_that_goes_is_refused },
	{ "sixteen_messages_are_answered_in_a_step", sixteen_messages_are_answered_in_a_step },
	{ "owner_answers_who_tells", owner_answers_who_tells },
	{ "who_tells_is_answered_when_the_mount_never_came",
	  who_tells_is_answered_when_the_mount_never_came },
	{ "who_tells_at_the_end_is_answered", who_tells_at_the_end_is_answered },
};

CHECK_MAIN(tests)
