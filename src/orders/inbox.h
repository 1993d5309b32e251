/* SPDX-License-Identifier: Apache-2.0 */
/* What the owner of the orders is asked. Part of orders_priv.h. */
#ifndef CLAIRFS_ORDERS_INBOX_H
#define CLAIRFS_ORDERS_INBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/err.h"
#include "clairfs/base/queue.h"
#include "clairfs/base/thr.h"
#include "clairfs/order.h"

struct announcer;
struct finder;
struct records_found;

enum message_kind {
	MESSAGE_TOLD,       /* an order, made already */
	MESSAGE_WITHDRAWN,  /* whoever told one takes it back */
	MESSAGE_FOUND,      /* an order that nobody told */
	MESSAGE_RENUMBERED, /* the first one, of files that are numbered in another way */
	MESSAGE_RECORDS,    /* of records that were found in a file */
};

/* Whoever sends one waits for the answer, so nothing of it is copied. */
struct message {
	enum message_kind kind;
	const struct order_spec *spec;  /* NULL: withdrawn */
	struct order *take_order;       /* likewise; gone afterwards, whatever the answer is */
	const struct announcer *by;     /* told, withdrawn */
	struct finder *finder;          /* found: by which, */
	uint64_t stamp;                 /* of its search, */
	struct order_epoch *take_epoch; /* and the pass that it was found in, or NULL; gone, too */
	const char *before;             /* renumbered: spec of the order that is lost */
	struct records_found *records;  /* records: of which, and whose job it is from then on */
	int rc;                         /* the answer */
	struct err err;
	struct list node; /* the inbox's, under mu: */
	bool is_answered;
};

struct inbox {
	struct mutex mu; /* a leaf */
	struct cond asked, answered;
	struct list waiting; /* mu, as all below */
	bool is_closed;
};

void inbox_init(struct inbox *inbox);
void inbox_fini(struct inbox *inbox);
/* Leaves a message, or answers it at once, as the inbox is closed: inbox_await tells when it is
 * answered, with its rc. Any thread but the owner. */
void inbox_post(struct inbox *inbox, struct message *m);
int inbox_await(struct inbox *inbox, struct message *m);

/* The owner. The next one, or NULL; each is to be answered. */
struct message *inbox_take(struct inbox *inbox);
void inbox_answer(struct inbox *inbox, struct message *m, int rc);
/* Waits for a message, or to be woken, at most that long. False: it is closed. */
bool inbox_wait(struct inbox *inbox, uint64_t timeout_ns);
/* Ends that wait. Where it has not begun yet, it lasts its time. Never blocks; any thread. */
void inbox_wake(struct inbox *inbox);
/* Nothing more is heard of this finder: -ECANCELED is what it hears. */
void inbox_refuse(struct inbox *inbox, struct finder *f);
/* Who waits hears -ECANCELED, and so does everybody who comes. Any thread. */
void inbox_close(struct inbox *inbox);

#endif
