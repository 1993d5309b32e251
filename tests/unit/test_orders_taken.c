/* SPDX-License-Identifier: Apache-2.0 */
/* Which order that was found in a file is put in force when: once, again when it was over, and never what was
 * refused for good. */
#include <errno.h>
#include <stdio.h>

#include "check.h"
#include "src/orders/taken.h"

#define FIRST "torch-loader:seed=42"
#define SECOND "torch-loader:seed=43"
#define NOW (5 * NS_PER_S)
#define JOB 7u

static const bool none_is_free[INFER_RECORD_FILES];

static struct infer_record_file found(uint32_t file, const char *spec)
{
	struct infer_record_file f = { .file = file, .n = 1000 };

	snprintf(f.spec, sizeof(f.spec), "%s", spec);
	return f;
}

static struct taken *tries(struct taken_list *list, const struct infer_record_file *f, bool is_followed,
			   uint64_t now_ns)
{
	return taken_to_try(list, f, is_followed, none_is_free, now_ns);
}

/* Tries it, which must be due, and notes that it went so. */
static struct taken *note_at(struct taken_list *list, const struct infer_record_file *f, bool is_followed,
			     uint32_t id, int rc, uint64_t now_ns)
{
	const struct taken_outcome outcome = { id, rc, rc ? "why" : NULL, now_ns };
	struct taken *t = tries(list, f, is_followed, now_ns);

	CHECK(t);
	taken_note(t, f, &outcome);
	CHECK(taken_of(list, f->file) == t);
	return t;
}

static struct taken *note(struct taken_list *list, const struct infer_record_file *f, bool is_followed,
			  uint32_t id, int rc)
{
	return note_at(list, f, is_followed, id, rc, NOW);
}

static void order_is_put_in_force_once(void)
{
	const struct infer_record_file f = found(3, FIRST);
	struct taken_list list = { 0 };
	struct taken *t;

	CHECK(!taken_of(&list, f.file));
	t = note(&list, &f, false, JOB, 0);
	CHECK(taken_is_same(&t->followed, &f) && !t->why_not);
	t->come = 500; /* while it is in force */
	CHECK(!tries(&list, &f, true, NOW + 100 * NS_PER_S));
	CHECK_U64(t->id, JOB);
	CHECK_U64(t->come, 500);
}

static void order_that_is_over_comes_again_when_it_is_read(void)
{
	const struct infer_record_file f = found(3, FIRST);
	struct taken_list list = { 0 };
	struct taken *t = note(&list, &f, false, JOB, 0);

	t->come = 500; /* while it was in force */
	CHECK(!tries(&list, &f, false, NOW + 10 * NS_PER_S));
	CHECK_U64(t->id, TAKEN_NO_JOB);
	CHECK_U64(t->come, 0);
	t->come = TAKEN_COME_AGAIN - 1;
	CHECK(!tries(&list, &f, false, NOW + 10 * NS_PER_S));
	t->come = TAKEN_COME_AGAIN;
	CHECK(tries(&list, &f, false, NOW + 10 * NS_PER_S) == t);
	(void)note_at(&list, &f, false, JOB + 1, 0, NOW + 10 * NS_PER_S);
	CHECK_U64(t->come, 0);
	CHECK(!tries(&list, &f, true, NOW + 20 * NS_PER_S));
}

static void what_may_pass_is_tried_later(void)
{
	static const int passing[] = { -EBUSY, -ENOSPC, -ECANCELED };
	const struct infer_record_file f = found(3, FIRST);

	for (size_t i = 0; i < ARRAY_LEN(passing); i++) {
		struct taken_list list = { 0 };
		struct taken *t = note(&list, &f, false, TAKEN_NO_JOB, passing[i]);

		CHECK(taken_is_passing(passing[i]) && !t->is_refused);
		CHECK_STR(t->why_not, "why");
		CHECK(!tries(&list, &f, false, NOW + TAKEN_RETRY_NS - 1));
		CHECK(tries(&list, &f, false, NOW + TAKEN_RETRY_NS) == t);
	}
}

static void what_is_refused_for_good_is_not_tried_again(void)
{
	const struct infer_record_file f = found(3, FIRST), other = found(3, SECOND);
	struct infer_record_file longer = f;
	struct taken_list list = { 0 };
	struct taken *t = note(&list, &f, false, TAKEN_NO_JOB, -E2BIG);

	CHECK(!tries(&list, &f, false, NOW + 1000 * NS_PER_S));
	longer.n++;
	CHECK(tries(&list, &other, false, NOW) == t);
	CHECK(tries(&list, &longer, false, NOW) == t);
	longer = f;
	longer.around = 65536; /* a job that maps the file may be refused what another is not */
	CHECK(tries(&list, &longer, false, NOW) == t);
	(void)note(&list, &longer, false, TAKEN_NO_JOB, -ENOTSUP);
	CHECK(!tries(&list, &longer, false, NOW + 1000 * NS_PER_S));
	CHECK(tries(&list, &f, false, NOW) == t);
}

/* Another order of the file is refused while the first is in force: that goes on, and its job is known. */
static void job_at_work_stays_known_when_another_order_is_refused(void)
{
	const struct infer_record_file f = found(3, FIRST), other = found(3, SECOND);
	struct taken_list list = { 0 };
	struct taken *t = note(&list, &f, false, JOB, 0);

	note(&list, &other, true, JOB, -ENOTSUP);
	CHECK_U64(t->id, JOB);
	CHECK(taken_is_same(&t->followed, &f) && taken_is_same(&t->tried, &other));
	CHECK(!tries(&list, &other, true, NOW + 1000 * NS_PER_S));
	CHECK(!tries(&list, &f, true, NOW + 1000 * NS_PER_S));
	CHECK_U64(t->id, JOB);
}

/* What was refused for good says nothing of the next order. */
static void refusal_is_of_one_order(void)
{
	const struct infer_record_file f = found(3, FIRST);
	struct infer_record_file other = found(3, SECOND);
	struct taken_list list = { 0 };
	struct taken *t = note(&list, &f, false, TAKEN_NO_JOB, -E2BIG);

	other.around = 65536;
	note(&list, &other, false, TAKEN_NO_JOB, -EBUSY);
	CHECK(!t->is_refused && t->around == 65536);
	CHECK(tries(&list, &other, false, NOW + TAKEN_RETRY_NS) == t);
	(void)note_at(&list, &other, false, JOB, 0, NOW + TAKEN_RETRY_NS);
	CHECK(!t->why_not && taken_is_same(&t->followed, &other));
}

static void entries_are_given_to_other_files(void)
{
	const struct taken_outcome outcome = { TAKEN_NO_JOB, -E2BIG, "why", NOW };
	bool is_free[INFER_RECORD_FILES] = { false };
	struct infer_record_file f = found(0, FIRST);
	struct taken_list list = { 0 };
	struct taken *t;

	for (f.file = 0; f.file < INFER_RECORD_FILES; f.file++)
		note(&list, &f, false, JOB + f.file, 0)->come = 9;
	CHECK(!tries(&list, &f, false, NOW)); /* all are needed */
	is_free[2] = true;
	t = taken_to_try(&list, &f, false, is_free, NOW);
	CHECK(t == &list.one[2]);
	taken_note(t, &f, &outcome);
	CHECK(!taken_of(&list, 2) && taken_of(&list, f.file) == t);
	CHECK(!t->followed.n && !t->come && taken_is_same(&t->tried, &f));
}

static const struct check_test tests[] = {
	{ "order_is_put_in_force_once", order_is_put_in_force_once },
	{ "order_that_is_over_comes_again_when_it_is_read", order_that_is_over_comes_again_when_it_is_read },
	{ "what_may_pass_is_tried_later", what_may_pass_is_tried_later },
	{ "what_is_refused_for_good_is_not_tried_again", what_is_refused_for_good_is_not_tried_again },
	{ "job_at_work_stays_known_when_another_order_is_refused",
	  job_at_work_stays_known_when_another_order_is_refused },
	{ "refusal_is_of_one_order", refusal_is_of_one_order },
	{ "entries_are_given_to_other_files", entries_are_given_to_other_files },
};

CHECK_MAIN(tests)
