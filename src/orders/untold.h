/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs that told no order: who reads is told apart, and each job's order is looked for by itself.
 * Part of orders_priv.h; rules: "Several jobs" in src/infer/README.md. */
#ifndef CLAIRFS_ORDERS_UNTOLD_H
#define CLAIRFS_ORDERS_UNTOLD_H

#include <jansson.h>
#include <stdint.h>

#include "clairfs/base/err.h"
#include "clairfs/drive.h"
#include "clairfs/infer.h"
#include "clairfs/plan.h"

struct message;
struct orders;
struct untold;

/* params: of the finder that hears of everybody's opens, which untold adds its own callbacks to. */
int untold_new(struct orders *o, const struct infer_params *params, struct untold **ret,
	       struct err *err) MUST_USE;
int untold_start(struct untold *u, struct err *err) MUST_USE;
/* With the inbox closed; waits for searches, as infer_stop; also when it was never started. */
void untold_stop(struct untold *u);
void untold_free(struct untold *u);

/* Planner thread; never blocks. */
void untold_opened(struct untold *u, const struct drive_open *open);
/* The state of the order in force, where there is one. Planner thread. */
void untold_planned(struct untold *u, enum plan_state state);

/* All below are the owner's. */
/* Looks at the opens, if it is time; returns when to look again. */
uint64_t untold_step(struct untold *u, uint64_t now_ns);
/* Something was found; the answer to the message. */
int untold_found(struct message *m);
/* Somebody told an order, which is in force (NULL: took it back). */
void untold_told(struct untold *u, const char *text);
/* The first order gave way to the same one of files that are numbered in another way. */
void untold_replaced(struct untold *u, const char *text);
/* This job's order is no longer in force, as its processes are gone, or for why else (static). */
void untold_gone(struct untold *u, uint32_t id, const char *why);

/* What is looked for and found, for stats.json: of the order, and of other jobs in "others". */
json_t *untold_json(struct untold *u);

#endif
