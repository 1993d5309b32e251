/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the owner of the orders: a cache of the test's that only takes note, an owner that is
 * stepped by hand with a clock of the test's, and those who tell it something, with processes of their
 * own. One thread. */
#ifndef CLAIRFS_TESTS_ORDERS_KIT_H
#define CLAIRFS_TESTS_ORDERS_KIT_H

#include "check.h"
#include "dataset_kit.h"
#include "src/orders/untold_priv.h"

#define WHOS 3
#define UID 1000

#define ONE "torch-randperm:seed=1"
#define TWO "torch-randperm:seed=2"
#define THREE "torch-randperm:seed=3"
#define FOUR "torch-randperm:seed=4"
#define LIST "list:path=told:epochs=1"
#define NAMED "torch-randperm:seed=4:job=evaluation"

/* What carries the orders out. */
struct fake {
	struct drive_job job[PLAN_JOBS];
	uint32_t n, generation;
	int refuses; /* what the next order is answered with, or 0 */
	bool is_put_first; /* the next job is to come before the others */
	const char *why; /* the last job was ended for */
	uint32_t n_cut, n_come, last_come; /* files that were cut, units that were come to, the last of them */
	uint32_t first;  /* id that the watch was told last */
	uint64_t first_batch; /* of its order */
	bool is_first_of_records;
	bool is_told; /* the watch was told so last */
	uint64_t now_ns;
};

struct bed {
	struct fake fake;
	struct dataset *ds;
	struct orders *o;
	struct announcer who[WHOS]; /* of one user, and of names and processes of their own */
};

/* A process that waits until it is ended, by itself: nothing is above it. */
struct teller process_new(void);
void process_end(struct teller *t);
void bed_new(struct bed *b);
/* With the files of that directory, and room for records that are found. */
void bed_open(struct bed *b, const char *root);
void bed_free(struct bed *b);
struct order_spec *spec_of(const char *text);
/* A message as its sender leaves it; text NULL: somebody takes an order back. */
struct message message_of(enum message_kind kind, const char *text);
void message_free(struct message *m);
/* The owner's steps, a second apart. */
void step(struct bed *b, uint64_t seconds);
int say(struct bed *b, struct message m);
/* As told through the mount: a name in the spec goes before the teller's. */
int tell_as(struct bed *b, const struct announcer *who, const char *text);
int tell(struct bed *b, int who, const char *text);
int find_by(struct bed *b, uint32_t finder, const char *text);
int find(struct bed *b, const char *text);
int renumber(struct bed *b, const char *before, const char *text);
/* name NULL: that of who says it. */
int take_back_as(struct bed *b, const struct announcer *who, const char *name);
int take_back(struct bed *b, int who, const char *name);
void read_samples(struct bed *b, uint32_t job, uint64_t n);
void job_ends(struct bed *b, int who);
/* "SPEC STATE" of each job; and the cache has the same ones, in the same order. */
void check_jobs(struct bed *b, const char *want);
/* It has read all its epochs. */
void fake_remove(struct fake *f, uint32_t at);

#endif
