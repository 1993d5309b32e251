/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which process tells an order, or reads, and whether two of them belong together: with real
 * processes, as /proc is what says it. Each child waits at a pipe, so it is there until the test
 * kills it, and no longer than the test.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "src/orders/teller.h"

struct child {
	pid_t pid;
	int hold; /* closing it ends the child */
};

/* With a name of its own, in a session of its own if asked. */
static struct child child_new(const char *name, bool is_leader)
{
	struct child c;
	int hold[2], ready[2];
	char byte = 0;

	CHECK_INT(pipe(hold), 0);
	CHECK_INT(pipe(ready), 0);
	c.pid = fork();
	CHECK(c.pid >= 0);
	if (c.pid == 0) {
		close(hold[1]);
		if (is_leader)
			setsid();
		prctl(PR_SET_NAME, name);
		if (write(ready[1], &byte, 1) == 1)
			(void)!read(hold[0], &byte, 1); /* until the other end is closed */
		_exit(0);
	}
	close(hold[0]);
	CHECK_INT((int)read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	c.hold = hold[1];
	return c;
}

/* Killed, and nobody has asked for its exit code yet. */
static void child_kill(struct child *c)
{
	siginfo_t info;

	kill(c->pid, SIGKILL);
	CHECK_INT(waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOWAIT), 0);
}

static void child_reap(struct child *c)
{
	kill(c->pid, SIGKILL); /* those that came later hold its pipe open */
	close(c->hold);
	CHECK_INT(waitpid(c->pid, NULL, 0), c->pid);
}

static struct teller find(int tid, bool is_passing)
{
	struct teller t;

	teller_find(tid, is_passing, &t);
	return t;
}

static void process_is_found_by_any_of_its_threads(void)
{
	struct teller self = find((int)syscall(SYS_gettid), false);

	CHECK_INT(self.id.pid, getpid());
	CHECK(self.n_above == 0 || self.above[0].pid == getppid());
	CHECK(teller_is_alive(&self));
	CHECK(teller_is_itself(&self, &self) && teller_is_related(&self, &self));
	self.id.start++; /* the pid is another process's now */
	CHECK(!teller_is_alive(&self));
}

static void nobody_is_nobodys(void)
{
	struct teller self = find(getpid(), false);
	static const int tids[] = { 0, -1, 2147483647 };

	for (size_t i = 0; i < ARRAY_LEN(tids); i++) {
		struct teller t = find(tids[i], i == 1);

		CHECK_INT(t.id.pid, 0);
		CHECK(!teller_is_alive(&t));
		CHECK(!teller_is_itself(&t, &t) && !teller_is_related(&t, &t));
		CHECK(!teller_is_related(&t, &self) && !teller_is_related(&self, &t));
	}
}

/* In whatever sessions, as launchers start their ranks; also when one of them is gone. */
static void who_is_started_by_the_same_process_is_related(void)
{
	struct child a = child_new("rank", true), b = child_new("rank", false);
	struct teller self = find(getpid(), false), ta = find(a.pid, false), tb = find(b.pid, false);
	struct teller stranger = tb;

	CHECK(teller_is_related(&ta, &tb) && teller_is_related(&tb, &ta));
	CHECK(teller_is_related(&ta, &self) && teller_is_related(&self, &ta));
	stranger.n_above = 0;
	CHECK(!teller_is_related(&ta, &stranger) && !teller_is_related(&stranger, &ta));
	child_kill(&a);
	CHECK(!teller_is_alive(&ta) && teller_is_alive(&tb));
	CHECK(teller_is_related(&self, &ta)); /* who was above it is known still */
	child_reap(&a);
	CHECK(!teller_is_alive(&ta));
	child_reap(&b);
}

static void command_tells_for_who_started_it(void)
{
	struct child c = child_new("clairfs", false), look = child_new("cat", false);

	CHECK_INT(find(c.pid, false).id.pid, getpid());
	CHECK_INT(find(look.pid, true).id.pid, getpid());
	CHECK_INT(find(look.pid, false).id.pid, look.pid);
	CHECK(!find(c.pid, false).is_itself && !find(look.pid, true).is_itself);
	CHECK(find(look.pid, false).is_itself);
	child_reap(&c);
	child_reap(&look);
}

static void names_are_read_as_names(void)
{
	static const char *const names[] = { ") R 1 1 1 1", "(", "a b) c", "", "\n" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct child c = child_new(names[i], false);
		struct teller t = find(c.pid, false);

		CHECK_INT(t.id.pid, c.pid);
		CHECK(t.n_above > 0 && t.above[0].pid == getpid());
		CHECK(teller_is_alive(&t));
		child_reap(&c);
	}
}

static struct teller reader(int tid)
{
	struct teller t;

	teller_find_reader(tid, &t);
	return t;
}

/* A shell that waits, under a name of its own: a program that was executed, and has no fork's stack. It
 * ends with this test at the latest: what is left would hold its output open. */
static pid_t spawn(const char *name)
{
	char text[160];
	int ready[2];
	char byte;
	pid_t pid;

	snprintf(text, sizeof(text), "printf %%s '%s' > /proc/$$/comm; echo; read line", name);
	CHECK_INT(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		int hold[2];

		if (pipe(hold) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
			_exit(127);
		dup2(hold[0], 0);
		dup2(ready[1], 1);
		execl("/bin/sh", "sh", "-c", text, NULL);
		_exit(127);
	}
	CHECK(pid > 0);
	close(ready[1]);
	CHECK_INT((int)read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
}

/* A loader's worker reads for the process that forked it; another program for itself. */
static void who_forked_a_reader_reads(void)
{
	struct child worker = child_new("pt_data_worker", false), leader = child_new("w", true);
	pid_t other = spawn("other");
	struct teller t;

	CHECK_INT(reader(worker.pid).id.pid, getpid());
	CHECK_INT(reader(leader.pid).id.pid, getpid()); /* in whatever session */
	CHECK_INT(reader(getpid()).id.pid, getpid());
	t = reader(other);
	CHECK_INT(t.id.pid, other);
	CHECK(t.n_above > 0 && t.above[0].pid == getpid());
	CHECK(teller_is_of(&t, &t.id) && teller_is_of(&t, &t.above[0]));
	CHECK(!teller_is_of(&t, &(struct process_id){ 0, 0 }));
	CHECK_INT(reader(0).id.pid, 0);
	end(other);
	child_reap(&worker);
	child_reap(&leader);
}

/* Workers that were spawned execute their program anew; torch's are known by their name, others may be
 * their parent's when both have the same one. */
static void spawned_workers_are_of_their_parent(void)
{
	pid_t worker = spawn("pt_data_worker"), same, other = spawn("other");
	struct teller t = reader(worker);
	char name[17] = "";

	CHECK_INT(t.id.pid, getpid());
	prctl(PR_GET_NAME, name);
	same = spawn(name);
	t = reader(same);
	CHECK_INT(t.id.pid, same);
	CHECK(t.is_spawned && t.above[0].pid == getpid());
	t = reader(other);
	CHECK_INT(t.id.pid, other);
	CHECK(!t.is_spawned);
	end(worker);
	end(same);
	end(other);
}

/* A daemon that has no file descriptor left must not take all jobs for ended. */
static void who_cannot_be_asked_about_is_alive(void)
{
	struct child c = child_new("train", false);
	struct teller t = find(c.pid, false), never = t;
	struct rlimit was, none;

	never.id.pid = 0;
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = was;
	none.rlim_cur = 0;
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	CHECK(teller_is_alive(&t));
	CHECK(!teller_is_alive(&never));
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &was), 0);
	child_kill(&c);
	CHECK(!teller_is_alive(&t));
	child_reap(&c);
}

static void who_has_started_two_is_common(void)
{
	struct child a = child_new("a", true), b = child_new("b", true);
	struct teller ta = find(a.pid, false), tb = find(b.pid, false), alone = ta;

	CHECK(teller_has_common(&ta, &tb) && teller_has_common(&tb, &ta));
	alone.n_above = 0;
	CHECK(!teller_has_common(&alone, &tb) && !teller_has_common(&tb, &alone));
	alone.id.pid = 0;
	CHECK(!teller_has_common(&alone, &alone));
	child_reap(&a);
	child_reap(&b);
}

static const struct check_test tests[] = {
	{ "who_forked_a_reader_reads", who_forked_a_reader_reads },
	{ "spawned_workers_are_of_their_parent", spawned_workers_are_of_their_parent },
	{ "who_cannot_be_asked_about_is_alive", who_cannot_be_asked_about_is_alive },
	{ "who_has_started_two_is_common", who_has_started_two_is_common },
	{ "process_is_found_by_any_of_its_threads", process_is_found_by_any_of_its_threads },
	{ "nobody_is_nobodys", nobody_is_nobodys },
	{ "who_is_started_by_the_same_process_is_related",
	  who_is_started_by_the_same_process_is_related },
	{ "command_tells_for_who_started_it", command_tells_for_who_started_it },
	{ "names_are_read_as_names", names_are_read_as_names },
};
CHECK_MAIN(tests)
