/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded ring with many writers and one reader. Each slot has a number that says whose turn it is:
 *
 *	number == position                a writer's that gets this position
 *	number == position + 1            the reader's: the note is there
 *	number == position + READS_MAX    free again, for the next time around
 *
 * A writer takes a position by moving the head, and gives the slot over by its number. Where the slot is not
 * free yet the ring is full, and the note is dropped. Who sleeps is woken through a descriptor, so no writer
 * takes a lock for it; that is one call for each time that the reader goes to sleep. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clairfs/cache/reads.h"

struct slot {
	_Atomic uint64_t turn;
	struct read_note note;
};

struct reads {
	struct slot slot[READS_MAX];
	_Atomic uint64_t head, lost;
	uint64_t tail; /* the reader's */
	_Atomic bool is_asleep;
	int fd; /* an eventfd */
};

int reads_new(struct reads **ret)
{
	struct reads *r = calloc(1, sizeof(*r));

	*ret = NULL;
	if (!r)
		return -ENOMEM;
	for (uint64_t i = 0; i < READS_MAX; i++)
		atomic_init(&r->slot[i].turn, i);
	r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->fd < 0) {
		int rc = -errno;

		free(r);
		return rc;
	}
	*ret = r;
	return 0;
}

void reads_free(struct reads *r)
{
	if (!r)
		return;
	close(r->fd);
	free(r);
}

void reads_wake(struct reads *r)
{
	(void)eventfd_write(r->fd, 1); /* full: then it wakes all the same */
}

void reads_note(struct reads *r, const struct read_note *note)
{
	uint64_t at = atomic_load_explicit(&r->head, memory_order_relaxed);
	struct slot *slot;

	for (;;) {
		uint64_t turn;

		slot = &r->slot[at % READS_MAX];
		turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
		if (turn < at) {
			atomic_fetch_add_explicit(&r->lost, 1, memory_order_relaxed);
			return;
		}
		if (turn > at)
			at = atomic_load_explicit(&r->head, memory_order_relaxed);
		else if (atomic_compare_exchange_weak_explicit(&r->head, &at, at + 1, memory_order_relaxed,
							       memory_order_relaxed))
			break;
	}
	slot->note = *note;
	/* In one sequence with is_asleep: either the reader sees the note, or we see that it sleeps. */
	atomic_store(&slot->turn, at + 1);
	if (atomic_load(&r->is_asleep) && atomic_exchange(&r->is_asleep, false))
		reads_wake(r);
}

uint64_t reads_lost(const struct reads *r)
{
	return atomic_load_explicit(&r->lost, memory_order_relaxed);
}

static bool has_note(const struct reads *r)
{
	return atomic_load(&r->slot[r->tail % READS_MAX].turn) == r->tail + 1;
}

uint32_t reads_take(struct reads *r, struct read_note *ret, uint32_t max)
{
	uint32_t n = 0;

	for (; n < max && has_note(r); r->tail++) {
		struct slot *slot = &r->slot[r->tail % READS_MAX];

		ret[n++] = slot->note;
		atomic_store_explicit(&slot->turn, r->tail + READS_MAX, memory_order_release);
	}
	return n;
}

void reads_wait(struct reads *r)
{
	struct pollfd wait = { .fd = r->fd, .events = POLLIN };
	eventfd_t n;

	atomic_store(&r->is_asleep, true);
	if (!has_note(r))
		(void)poll(&wait, 1, -1); /* a signal: the caller looks and comes again */
	atomic_store(&r->is_asleep, false);
	(void)eventfd_read(r->fd, &n);
}
