/* SPDX-License-Identifier: Apache-2.0 */
/* The state of cached.c, for the policies that plug into it. */
#ifndef CLAIRFS_SIM_CACHED_H
#define CLAIRFS_SIM_CACHED_H

#include "sim_priv.h"

/* One job's reading: positions of the current epoch and, beyond its length, of the next one. */
struct line {
	uint64_t low, cursor, length; /* first position not read; next one to look at */
	struct bitmap consumed;
};

struct cached {
	uint64_t kept, fresh, reserved; /* bytes */
	uint64_t window;
	uint32_t inflight;
	struct line *line; /* [jobs] */
};

/* A doubly linked list over samples, for the policies that need an order of arrival or of use. */
struct arrival {
	uint32_t prev, next;
};
struct arrivals {
	struct arrival *link; /* [n + 1]; link[n] is head and tail */
	uint32_t n;
};
int arrivals_new(uint32_t n, void **ret);
void arrivals_free(void *list);
void arrivals_append(struct arrivals *c, uint32_t sample);
void arrivals_remove(struct arrivals *c, uint32_t sample);
/* NONE when empty. */
uint32_t arrivals_first(const struct arrivals *c);

/* For policies whose whole state is one chain. */
int arrivals_policy_init(struct model *m, struct err *err);
void arrivals_policy_fini(struct model *m);
void arrivals_policy_keep(struct model *m, uint32_t sample);
void arrivals_policy_drop(struct model *m, uint32_t sample);
uint32_t arrivals_policy_victim(struct model *m, uint64_t due);

#endif
