/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel gives a FUSE filesystem 128 KiB of read-ahead, whatever the source has; only root may give it more, and
 * only once it is mounted. With less than the source a mount is slower than it where nothing is fetched ahead: a read
 * of 250 KB is two requests, one after the other. Measured with 10 ms a request and 4 MiB: TFRecord 0.76 of direct,
 * memory-mapped arrays 0.1, records of 2.5 KB 0.6; with as much as the source at least 1.0 (src/README.md).
 *
 * Two things speak against more. Of a mapped file the kernel reads half of it on either side of a page that is missing,
 * and in a file of which it has most pages it reads on over those. That is of use where all of the dataset can stay in
 * its memory; else a reader of records pays for bytes that nobody takes, so there it is 1 MiB at most. And where the
 * order is known the pages are there: what is read beyond them is tracer pages of units whose reader has not come. So
 * while an order that was told is in force it is what the kernel had. One that was found goes on as it is: its readers
 * have their files open, which keep what they were opened with.
 *
 * Who sets it meanwhile (an administrator) has the last word.
 */
#include "read_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clairfs/base/bdi.h"
#include "clairfs/base/log.h"
#include "clairfs/base/text.h"

#define FUSE_BYTES (128u << 10) /* as the kernel gives it: VM_READAHEAD_PAGES */
#define SOME_BYTES (1u << 20)   /* of a dataset that does not stay in memory; a READ is no longer */
#define MOST_BYTES (16u << 20)
#define MEMORY_SHARE 2
#define PAGE 4096u

uint64_t read_ahead_wish(const struct read_ahead_facts *facts)
{
	bool stays = facts->large <= facts->there / MEMORY_SHARE;
	uint64_t most = stays ? MOST_BYTES : SOME_BYTES;

	if (!facts->large || facts->source <= FUSE_BYTES)
		return 0;
	return MIN(facts->source, most);
}

void read_ahead_init(struct read_ahead *r)
{
	memset(r, 0, sizeof(*r));
	mutex_init(&r->mu);
	r->fd = -1;
}

void read_ahead_fini(struct read_ahead *r)
{
	read_ahead_end(r);
	mutex_fini(&r->mu);
}

/* Whether it may be set of any filesystem, asked of the source's: 0 or a negative errno. Not by users, nor by root of a
 * user namespace, nor where /sys is read-only. */
static int may_set(int source_fd)
{
	struct stat st;
	int fd;

	if (fstat(source_fd, &st) < 0)
		return -errno;
	fd = bdi_open(st.st_dev, O_RDWR);
	if (fd >= 0)
		close(fd);
	return MIN(fd, 0);
}

void read_ahead_plan(struct read_ahead *r, const struct read_ahead_facts *facts, int source_fd)
{
	char source[32], kernel[32];
	int rc;

	r->wish = read_ahead_wish(facts);
	rc = r->wish ? may_set(source_fd) : 0;
	if (rc == 0)
		return;
	log_info("the kernel reads ahead %s of this mount, and %s of the source: it may not be set (%s)",
		 text_from_bytes(FUSE_BYTES, kernel, sizeof(kernel)),
		 text_from_bytes(facts->source, source, sizeof(source)), strerror(-rc));
	r->wish = 0;
}

uint64_t read_ahead_around(const struct read_ahead *r)
{
	return MAX(r->wish, (uint64_t)FUSE_BYTES) / (2 * PAGE) * PAGE;
}

/* Under mu. Nothing more will be done with it. */
static void let_go(struct read_ahead *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

/* Under mu. */
static void set(struct read_ahead *r)
{
	uint64_t bytes = r->is_told ? r->kernel : r->wish, now;
	int rc;

	if (r->fd < 0)
		return;
	rc = bdi_read_ahead(r->fd, &now);
	if (rc == 0 && now != r->now) {
		log_info("somebody has set the read-ahead of this mount: it stays so");
		let_go(r);
		return;
	}
	if (rc == 0 && bytes != now)
		rc = bdi_set_read_ahead(r->fd, bytes);
	if (rc == 0) {
		r->now = bytes;
		return;
	}
	log_info("the read-ahead of this mount stays as it is: %s", strerror(-rc));
	let_go(r);
}

void read_ahead_begin(struct read_ahead *r, uint64_t device)
{
	int rc = 0;

	if (!r->wish)
		return;
	mutex_lock(&r->mu);
	r->fd = bdi_open(device, O_RDWR);
	if (r->fd >= 0)
		rc = bdi_read_ahead(r->fd, &r->kernel);
	else
		rc = r->fd;
	r->now = r->kernel;
	if (rc == 0 && r->kernel != FUSE_BYTES) { /* a rule of udev, say, which has the last word as well */
		let_go(r);
	} else if (rc < 0) {
		log_info("the read-ahead of this mount stays as it is: %s", strerror(-rc));
		let_go(r);
	}
	set(r);
	mutex_unlock(&r->mu);
}

void read_ahead_told(struct read_ahead *r, bool is_told)
{
	mutex_lock(&r->mu);
	r->is_told = is_told;
	set(r);
	mutex_unlock(&r->mu);
}

void read_ahead_end(struct read_ahead *r)
{
	mutex_lock(&r->mu);
	let_go(r);
	mutex_unlock(&r->mu);
}
