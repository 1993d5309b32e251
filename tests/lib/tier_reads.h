/* SPDX-License-Identifier: Apache-2.0 */
/* Reads for tests of tiers: a read that can be waited for, with a buffer of its own whose end is
 * guarded: a tier may use whole pages of it, and no byte more. */
#ifndef CLAIRFS_TESTS_TIER_READS_H
#define CLAIRFS_TESTS_TIER_READS_H

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clairfs/tier.h"

struct waited_read {
	struct tier_read read;
	sem_t is_done;
	_Atomic int n_done; /* calls of done() */
	size_t room;
};

#define READ_GUARD 64u
#define READ_GUARD_BYTE 0xd7

static inline void waited_read_done(struct tier_read *read)
{
	struct waited_read *w = container_of(read, struct waited_read, read);

	w->n_done++;
	sem_post(&w->is_done);
}

static inline struct waited_read *waited_read_new(struct entry_id entry, uint32_t piece,
						  const char *path,
						  const struct file_identity *expect)
{
	struct waited_read *w = calloc(1, sizeof(*w));
	void *buf = NULL;

	CHECK(w != NULL);
	sem_init(&w->is_done, 0, 0);
	w->read.ask.key = (struct piece_key){ entry, piece };
	w->read.ask.path = path;
	w->read.ask.expect = *expect;
	w->read.ask.length = piece_length(expect->size, piece);
	w->room = ALIGN_UP((size_t)w->read.ask.length, 4096);
	CHECK_INT(posix_memalign(&buf, 4096, w->room + READ_GUARD), 0);
	memset(buf, 0xee, w->room);
	memset((char *)buf + w->room, READ_GUARD_BYTE, READ_GUARD);
	w->read.ask.buf = buf;
	w->read.done = waited_read_done;
	w->read.answer.status = 77; /* must be overwritten */
	return w;
}

/* Waits for the end of a read that was started; returns its status. */
static inline int waited_read_wait(struct waited_read *w)
{
	const uint8_t *guard = (const uint8_t *)w->read.ask.buf + w->room;

	while (sem_wait(&w->is_done) < 0)
		;
	CHECK_INT(w->n_done, 1);
	for (size_t i = 0; i < READ_GUARD; i++)
		CHECK_INT(guard[i], READ_GUARD_BYTE);
	CHECK_U64(w->read.answer.got, w->read.answer.status == 0 ? w->read.ask.length : 0);
	return w->read.answer.status;
}

static inline int waited_read_run(struct tier *tier, struct waited_read *w)
{
	w->n_done = 0;
	tier_read(tier, &w->read);
	return waited_read_wait(w);
}

static inline void waited_read_free(struct waited_read *w)
{
	free(w->read.ask.buf);
	sem_destroy(&w->is_done);
	free(w);
}

/* Byte `at` of version `version` of a file. */
static inline uint8_t version_byte(uint64_t version, uint64_t at)
{
	return (uint8_t)(((at + version * 7919) * 0x9e3779b97f4a7c15ull) >> 56);
}

static inline uint8_t *version_bytes(uint64_t version, uint64_t offset, size_t n)
{
	uint8_t *bytes = malloc(n + 1);

	CHECK(bytes != NULL);
	for (size_t i = 0; i < n; i++)
		bytes[i] = version_byte(version, offset + i);
	return bytes;
}

#endif
