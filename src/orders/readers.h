/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that read on a mount, as far as READs tell them, and what each of them opened. */
#ifndef CLAIRFS_ORDERS_READERS_H
#define CLAIRFS_ORDERS_READERS_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/order.h"
#include "teller.h"

#define READERS_MAX 16 /* processes, with those that they forked */
#define READER_TIDS 256
#define READER_KEPT 256 /* opens that are kept of each */
#define READER_LEAST 32 /* opens that an order is looked for with */
#define READER_RECENT 64
#define READER_NONE UINT32_MAX

struct reader {
	struct teller who; /* pid 0: this place is free */
	uint32_t owner;    /* which finder hears of its opens; 0: that of everybody's */
	bool is_explained; /* it reads by an order that is in force */
	uint64_t last;     /* number of its last open */
	uint64_t n_opens;
	uint64_t placed;   /* its last 64 opens, the last one in bit 0: an order has it there */
	uint32_t kept[READER_KEPT]; /* its first opens, while no order explains them */
	uint32_t n_kept;
	uint32_t recent[READER_RECENT]; /* a ring of its last opens */
};

/* One thread's. */
struct readers {
	struct reader reader[READERS_MAX];
	struct {
		uint32_t tid, reader; /* tid 0: free */
		uint64_t until_ns;    /* then it is asked for again: numbers are used again */
	} tid[READER_TIDS];
	uint64_t opens;
	/* A ring of the last opens that no order has a place for, and of nobody (READER_NONE): */
	struct {
		uint32_t sample, reader;
	} last[READER_RECENT];
	uint64_t n_last;
};

/* Whose thread this is, or READER_NONE: ask /proc, and tell. */
uint32_t readers_find(const struct readers *r, uint32_t tid, uint64_t now_ns);
/* What /proc says of that thread (who->id.pid 0: nothing). It may be one more reader: the one that was
 * quiet the longest gives way, but for those that have an owner. Returns its place or READER_NONE. */
uint32_t readers_learn(struct readers *r, uint32_t tid, const struct teller *who, uint64_t now_ns);
void readers_opened(struct readers *r, uint32_t at, uint32_t sample, bool is_placed);
/* Whether it reads something that no order has: enough was kept, and few of its last opens were where
 * an order has them. */
bool readers_is_apart(const struct readers *r, uint32_t at);
/* The same of an open that no order has, and that nobody is seen to read: the kernel has the pages. If
 * there is only one reader whom no order explains, it is its. Returns whose, or READER_NONE. */
uint32_t readers_opened_unseen(struct readers *r, uint32_t sample);
/* Whether most of its last opens were where an order has them. */
bool readers_is_placed(const struct readers *r, uint32_t at);
/* Whether its last opens are at one place of an epoch that so many ranks read at the same time. False:
 * too few opens, or so short an epoch that chance might do it. */
bool readers_fits(const struct readers *r, uint32_t at, const struct order_epoch *epoch,
		  uint32_t ranks);
/* Forgets what was kept of everybody without an owner: another beginning. */
void readers_begin_again(struct readers *r);
/* Its place is free. */
void readers_remove(struct readers *r, uint32_t at);

#endif
