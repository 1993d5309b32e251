/* SPDX-License-Identifier: Apache-2.0 */
/* Whose an order is: the name and the user that say it, whatever process does; what nobody told; and who
 * reads something that nobody told. The owner is stepped by hand, the processes are real ones. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "orders_kit.h"

static void next_order_of_a_job_takes_the_place_of_its_last(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(tell(&b, 1, TWO), 0);
	CHECK_INT(tell(&b, 0, THREE), 0);
	check_jobs(&b, THREE " told, " TWO " told");
	CHECK_INT(tell(&b, 2, NAMED), 0);
	CHECK_INT(tell(&b, 1, NAMED ":epochs=2"), 0); /* the same name is the same job */
	check_jobs(&b, THREE " told, " TWO " told, "
			     "torch-randperm:seed=4:epochs=2:job=evaluation told");
	bed_free(&b);
}

static void same_name_is_the_same_job_whoever_says_it(void)
{
	struct announcer next;
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	next = b.who[1];
	next.name = "zero";
	CHECK_INT(tell_as(&b, &next, TWO), 0);
	check_jobs(&b, TWO " told");
	CHECK_INT(tell(&b, 1, "torch-randperm:seed=3:job=zero"), 0); /* a name is a name */
	check_jobs(&b, "torch-randperm:seed=3:job=zero told");
	job_ends(&b, 0);
	CHECK_INT(tell_as(&b, &next, TWO), 0);
	check_jobs(&b, TWO " told");
	CHECK_INT(take_back(&b, 2, "zero"), 0);
	check_jobs(&b, "");
	bed_free(&b);
}

static void name_is_of_its_user_only(void)
{
	struct announcer root;
	struct bed b;

	bed_new(&b);
	root = b.who[0];
	root.uid = 0;
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(take_back_as(&b, &root, "zero"), -ENOENT);
	CHECK_INT(take_back_as(&b, &root, NULL), -ENOENT);
	check_jobs(&b, ONE " told");
	CHECK_INT(tell_as(&b, &root, TWO), 0);
	check_jobs(&b, ONE " told, " TWO " told");
	CHECK_INT(take_back_as(&b, &root, "zero"), 0);
	check_jobs(&b, ONE " told");
	bed_free(&b);
}

static void who_has_no_name_is_the_one_job_without(void)
{
	struct announcer nameless[2];
	struct bed b;

	bed_new(&b);
	for (int i = 0; i < 2; i++) {
		nameless[i] = b.who[i];
		nameless[i].name = NULL;
	}
	CHECK_INT(tell_as(&b, &nameless[0], ONE), 0);
	CHECK_INT(tell(&b, 2, TWO), 0);
	CHECK_INT(tell_as(&b, &nameless[1], THREE), 0);
	check_jobs(&b, THREE " told, " TWO " told");
	CHECK_INT(take_back_as(&b, &nameless[0], NULL), 0);
	check_jobs(&b, TWO " told");
	bed_free(&b);
}

/* One after the other while the first ones read; the job is there as long as one of them. */
static void ranks_that_tell_the_same_are_one_job(void)
{
	struct announcer rank;
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(tell(&b, 2, TWO), 0);
	rank = b.who[1];
	rank.name = "zero";
	CHECK_INT(tell_as(&b, &rank, ONE), 0);
	CHECK_INT((int)b.fake.generation, 2); /* nothing was put in force */
	read_samples(&b, 0, 64);
	step(&b, 1);
	job_ends(&b, 0);
	step(&b, 9);
	check_jobs(&b, ONE " running, " TWO " told");
	CHECK_INT(tell_as(&b, &rank, ONE), 0); /* begun again, as one of them was */
	CHECK_INT((int)b.fake.generation, 3);
	check_jobs(&b, ONE " told, " TWO " told");
	CHECK_INT(tell_as(&b, &rank, ONE), 0);
	CHECK_INT((int)b.fake.generation, 4);
	read_samples(&b, 0, 64);
	step(&b, 1);
	job_ends(&b, 1);
	step(&b, 3);
	check_jobs(&b, TWO " told");
	bed_free(&b);
}

/* The first one's next list is the first one's, though another's order was the first meanwhile. */
static void who_tells_each_epoch_as_a_list_keeps_its_place(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, LIST), 0);
	CHECK_INT(tell(&b, 1, TWO), 0);
	fake_remove(&b.fake, 0); /* all of it is read */
	step(&b, 1);
	CHECK_INT((int)b.o->jobs.n, 1);
	b.fake.is_put_first = true;
	CHECK_INT(tell(&b, 0, LIST), 0);
	check_jobs(&b, LIST " told, " TWO " told");
	bed_free(&b);
}

static void order_of_an_option_is_that_of_who_tells_next(void)
{
	struct order_spec *spec = spec_of(ONE);
	struct err err = { 0 };
	struct bed b;

	bed_new(&b);
	CHECK_INT(orders_begin(b.o, spec, &err), 0);
	order_spec_free(spec);
	b.fake.n = 1; /* with the id 0 */
	CHECK_INT(tell(&b, 0, NAMED), 0); /* that is meant to be one more */
	check_jobs(&b, ONE " told, " NAMED " told");
	CHECK_INT(tell(&b, 1, TWO), 0);
	check_jobs(&b, TWO " told, " NAMED " told");
	CHECK_INT(tell(&b, 2, THREE), 0);
	check_jobs(&b, TWO " told, " NAMED " told, " THREE " told");
	bed_free(&b);
}

static void taken_back_by_whoever_told_it_or_by_name(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(tell(&b, 1, NAMED), 0);
	CHECK_INT(take_back(&b, 2, NULL), -ENOENT);
	CHECK_INT(take_back(&b, 2, "training"), -ENOENT);
	CHECK_INT(take_back(&b, 2, "evaluation"), 0);
	check_jobs(&b, ONE " told");
	CHECK_INT(take_back(&b, 0, NULL), 0);
	check_jobs(&b, "");
	bed_free(&b);
}

/* A process that is no fork of this one; it ends with it. */
static pid_t program_new(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	CHECK_INT(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp("sleep", "sleep", "1000", NULL);
		_exit(127);
	}
	close(ready[1]);
	CHECK_INT((int)read(ready[0], &byte, 1), 0); /* it is executed */
	close(ready[0]);
	return pid;
}

/* As no order would have them. */
static void open_by(struct bed *b, pid_t reader)
{
	for (uint32_t i = 0; i < 2 * READER_LEAST; i++)
		orders_opened(b->o, &(struct drive_open){ .sample = { i % 2 },
							  .job = DRIVE_NO_JOB,
							  .reader = (uint32_t)reader });
	step(b, 1);
}

static void no_more_than_eight(void)
{
	pid_t reader = program_new();
	char text[64];
	struct bed b;

	bed_new(&b);
	for (int i = 0; i < PLAN_JOBS; i++) {
		snprintf(text, sizeof(text), "torch-randperm:seed=%d:job=j%d", i, i);
		CHECK_INT(tell(&b, i % WHOS, text), 0);
		read_samples(&b, (uint32_t)i, 1);
		b.fake.job[i].read_ns += (uint64_t)(i == 5 ? 0 : NS_PER_S); /* the quietest */
	}
	b.fake.now_ns += 2 * NS_PER_S;
	open_by(&b, reader);
	CHECK_INT(find_by(&b, 1, THREE), -ENOSPC); /* nobody gives way to what was found */
	CHECK_INT((int)b.o->jobs.n, PLAN_JOBS);
	CHECK_INT(tell(&b, 0, "torch-randperm:seed=9:job=j9"), 0);
	CHECK_INT((int)b.o->jobs.n, PLAN_JOBS);
	for (int i = 0; i < PLAN_JOBS; i++) {
		snprintf(text, sizeof(text), "j%d", i == 5 ? 9 : i);
		CHECK_STR(b.o->jobs.job[i].by.name, text);
	}
	kill(reader, SIGKILL);
	CHECK_INT(waitpid(reader, NULL, 0), reader);
	bed_free(&b);
}

static void fill(struct bed *b, const uint32_t uid[PLAN_JOBS])
{
	char text[64];

	bed_new(b);
	for (int i = 0; i < PLAN_JOBS; i++) {
		struct announcer by = b->who[i % WHOS];

		by.uid = uid[i];
		snprintf(text, sizeof(text), "torch-randperm:seed=%d:job=j%d", i, i);
		CHECK_INT(tell_as(b, &by, text), 0);
		read_samples(b, (uint32_t)i, 1);
		b->fake.job[i].read_ns += (uint64_t)i * NS_PER_S; /* the first ones are the quietest */
	}
	b->fake.now_ns += 20 * NS_PER_S;
}

/* All there is room for: one of the teller's own goes, however quiet another user's is. */
static void one_of_the_same_user_gives_way(void)
{
	static const uint32_t uid[PLAN_JOBS] = { 7, 7, 0, 7, UID, 7, UID, 7 };
	struct bed b;

	fill(&b, uid);
	CHECK_INT(tell(&b, 0, "torch-randperm:seed=9:job=j9"), 0);
	CHECK_INT((int)b.o->jobs.n, PLAN_JOBS);
	CHECK_STR(b.o->jobs.job[4].by.name, "j9");
	CHECK_STR(b.o->jobs.job[0].by.name, "j0");
	CHECK_INT(tell(&b, 0, "torch-randperm:seed=10:job=j10"), 0); /* j9 is newer */
	CHECK_STR(b.o->jobs.job[6].by.name, "j10");
	bed_free(&b);
}

static void no_other_users_job_gives_way(void)
{
	static const uint32_t uid[PLAN_JOBS] = { 7, 8, 7, 8, 7, 8, 7, 8 };
	struct announcer root;
	struct bed b;

	fill(&b, uid);
	root = b.who[0];
	root.uid = 0;
	CHECK_INT(tell(&b, 0, ONE), -ENOSPC);
	CHECK_INT(tell_as(&b, &root, ONE), -ENOSPC);
	CHECK_INT((int)b.o->jobs.n, PLAN_JOBS);
	b.fake.job[3].plan.state = b.fake.job[5].plan.state = PLAN_LOST; /* they have no use of theirs */
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_STR(b.o->jobs.job[3].text, ONE);
	CHECK_STR(b.o->jobs.job[5].by.name, "j5");
	CHECK_INT(tell(&b, 0, THREE), 0); /* the next one of the same job */
	CHECK_STR(b.o->jobs.job[3].text, THREE);
	bed_free(&b);
}

/* Beside a job that has told its order another process reads something else: it gets a finder, what that
 * finds is one more job, and with the process both go. */
static void who_reads_something_else_gets_a_finder_while_it_is_there(void)
{
	pid_t reader = program_new();
	struct announcer self;
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK(!b.o->untold->finder[1]);
	open_by(&b, reader);
	CHECK(b.o->untold->finder[1]);
	CHECK_INT(b.o->untold->finder[1]->who.id.pid, reader);
	CHECK_INT(find_by(&b, 1, TWO), 0);
	step(&b, 2);
	check_jobs(&b, ONE " told, " TWO " told");
	CHECK_INT(b.o->jobs.job[1].reader[0].pid, reader);
	/* Its own word goes before what was found for it, but not a name that it gives to an order. */
	teller_find(reader, false, &self.process);
	self.uid = UID;
	self.name = "reader";
	self.is_given = false;
	CHECK_INT(tell_as(&b, &self, NAMED), 0);
	check_jobs(&b, ONE " told, " TWO " told, " NAMED " told");
	CHECK_INT(tell_as(&b, &self, THREE), 0);
	check_jobs(&b, ONE " told, " THREE " told, " NAMED " told");
	step(&b, 1);
	CHECK(!b.o->untold->finder[1]);
	kill(reader, SIGKILL);
	CHECK_INT(waitpid(reader, NULL, 0), reader);
	bed_free(&b);
}

static void finder_goes_with_its_reader(void)
{
	pid_t reader = program_new();
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	open_by(&b, reader);
	CHECK_INT(find_by(&b, 1, TWO), 0);
	step(&b, 2);
	check_jobs(&b, ONE " told, " TWO " told");
	kill(reader, SIGKILL);
	CHECK_INT(waitpid(reader, NULL, 0), reader);
	step(&b, 9);
	check_jobs(&b, ONE " told");
	CHECK(!b.o->untold->finder[1]);
	CHECK(!atomic_load(&b.o->untold->is_sorted)); /* that of everybody is the only one again */
	bed_free(&b);
}

static const struct check_test tests[] = {
	{ "next_order_of_a_job_takes_the_place_of_its_last",
	  next_order_of_a_job_takes_the_place_of_its_last },
	{ "same_name_is_the_same_job_whoever_says_it", same_name_is_the_same_job_whoever_says_it },
	{ "name_is_of_its_user_only", name_is_of_its_user_only },
	{ "who_has_no_name_is_the_one_job_without", who_has_no_name_is_the_one_job_without },
	{ "ranks_that_tell_the_same_are_one_job", ranks_that_tell_the_same_are_one_job },
	{ "who_tells_each_epoch_as_a_list_keeps_its_place",
	  who_tells_each_epoch_as_a_list_keeps_its_place },
	{ "order_of_an_option_is_that_of_who_tells_next",
	  order_of_an_option_is_that_of_who_tells_next },
	{ "taken_back_by_whoever_told_it_or_by_name", taken_back_by_whoever_told_it_or_by_name },
	{ "no_more_than_eight", no_more_than_eight },
	{ "one_of_the_same_user_gives_way", one_of_the_same_user_gives_way },
	{ "no_other_users_job_gives_way", no_other_users_job_gives_way },
	{ "who_reads_something_else_gets_a_finder_while_it_is_there",
	  who_reads_something_else_gets_a_finder_while_it_is_there },
	{ "finder_goes_with_its_reader", finder_goes_with_its_reader },
};

CHECK_MAIN(tests)
