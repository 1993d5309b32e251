/* SPDX-License-Identifier: Apache-2.0 */
/* How much the kernel should read ahead of a mount, and what is done about it where there is no mount. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/base/bdi.h"
#include "src/daemon/read_ahead.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

static uint64_t wish(uint64_t source, uint64_t large, uint64_t there)
{
	return read_ahead_wish(&(struct read_ahead_facts){ source, large, there });
}

static void dataset_that_stays_in_memory_is_read_ahead_as_the_source(void)
{
	CHECK_U64(wish(4 * MIB, GIB, 2 * GIB), 4 * MIB);
	CHECK_U64(wish(8 * MIB, 1, 2 * GIB), 8 * MIB);
	CHECK_U64(wish(256 * KIB, GIB, 64 * GIB), 256 * KIB);
	CHECK_U64(wish(64 * GIB, GIB, 64 * GIB), 16 * MIB);
}

static void larger_dataset_is_read_ahead_a_little(void)
{
	CHECK_U64(wish(4 * MIB, GIB + 2, 2 * GIB), MIB);
	CHECK_U64(wish(4 * MIB, GIB, 0), MIB); /* nobody knows how much memory there is */
	CHECK_U64(wish(512 * KIB, GIB, 0), 512 * KIB);
}

static void nothing_is_done_where_it_is_of_no_use(void)
{
	CHECK_U64(wish(0, GIB, 64 * GIB), 0);
	CHECK_U64(wish(64 * KIB, GIB, 64 * GIB), 0);
	CHECK_U64(wish(128 * KIB, GIB, 64 * GIB), 0);
	CHECK_U64(wish(4 * MIB, 0, 64 * GIB), 0);
}

static void mapped_file_is_read_around_by_half_of_it(void)
{
	struct read_ahead r;

	read_ahead_init(&r);
	CHECK_U64(read_ahead_around(&r), 64 * KIB);
	r.wish = MIB;
	CHECK_U64(read_ahead_around(&r), 512 * KIB);
	read_ahead_fini(&r);
}

/* No filesystem has this number, so there is nothing to open: all that comes after it does nothing. */
static void mount_that_cannot_be_set_is_left_alone(void)
{
	struct read_ahead r;

	read_ahead_init(&r);
	r.wish = MIB;
	read_ahead_told(&r, true);
	read_ahead_begin(&r, 0);
	CHECK_INT(r.fd, -1);
	read_ahead_told(&r, false);
	read_ahead_end(&r);
	read_ahead_end(&r);
	CHECK_U64(r.now, 0);
	read_ahead_fini(&r);
}

static uint64_t value_of(const struct read_ahead *r)
{
	uint64_t bytes = 0;

	CHECK_INT(bdi_read_ahead(r->fd, &bytes), 0);
	return bytes;
}

/* As after a mount, with a file in place of the kernel's: all values have three digits, as it keeps what is behind. */
static void order_that_is_told_takes_it_back(void)
{
	struct read_ahead r;
	int fd;

	read_ahead_init(&r);
	r.wish = 512 * KIB;
	r.kernel = r.now = 128 * KIB;
	r.fd = fd = memfd_create("read_ahead_kb", MFD_CLOEXEC);
	CHECK_INT(bdi_set_read_ahead(fd, 128 * KIB), 0);
	for (int i = 0; i < 2; i++) {
		read_ahead_told(&r, false);
		CHECK_U64(value_of(&r), 512 * KIB);
		read_ahead_told(&r, true);
		read_ahead_told(&r, true);
		CHECK_U64(value_of(&r), 128 * KIB);
	}
	CHECK_INT(bdi_set_read_ahead(fd, 256 * KIB), 0);
	read_ahead_told(&r, false);
	CHECK_INT(r.fd, -1); /* who set it has the last word */
	read_ahead_fini(&r);
}

static void filesystem_without_a_number_gives_an_error(void)
{
	int fd = bdi_open(0, O_RDONLY);

	CHECK_INT(fd, -ENOENT);
}

/* A file stands for the kernel's: the text is what it takes and gives. */
static void kernel_says_kibibytes(void)
{
	int fd = memfd_create("read_ahead_kb", MFD_CLOEXEC);
	uint64_t bytes = 0;

	CHECK(fd >= 0);
	CHECK_INT(bdi_read_ahead(fd, &bytes), -EINVAL);
	CHECK_INT(bdi_set_read_ahead(fd, 4 * MIB), 0);
	CHECK_INT(bdi_read_ahead(fd, &bytes), 0);
	CHECK_U64(bytes, 4 * MIB);
	CHECK_INT((int)pwrite(fd, "128\n", 4, 0), 4);
	CHECK_INT(bdi_read_ahead(fd, &bytes), 0);
	CHECK_U64(bytes, 128 * KIB);
	CHECK_INT((int)pwrite(fd, "-28\n", 4, 0), 4);
	CHECK_INT(bdi_read_ahead(fd, &bytes), -EINVAL);
	CHECK_INT((int)pwrite(fd, "18446744073709551615\n", 21, 0), 21);
	CHECK_INT(bdi_read_ahead(fd, &bytes), -EINVAL);
	CHECK_U64(bytes, 128 * KIB);
	close(fd);
	CHECK_INT(bdi_set_read_ahead(-1, MIB), -EBADF);
	CHECK_INT(bdi_read_ahead(-1, &bytes), -EBADF);
}

static const struct check_test tests[] = {
	{ "dataset_that_stays_in_memory_is_read_ahead_as_the_source",
	  dataset_that_stays_in_memory_is_read_ahead_as_the_source },
	{ "larger_dataset_is_read_ahead_a_little", larger_dataset_is_read_ahead_a_little },
	{ "nothing_is_done_where_it_is_of_no_use", nothing_is_done_where_it_is_of_no_use },
	{ "mapped_file_is_read_around_by_half_of_it", mapped_file_is_read_around_by_half_of_it },
	{ "mount_that_cannot_be_set_is_left_alone", mount_that_cannot_be_set_is_left_alone },
	{ "order_that_is_told_takes_it_back", order_that_is_told_takes_it_back },
	{ "filesystem_without_a_number_gives_an_error",
	  filesystem_without_a_number_gives_an_error },
	{ "kernel_says_kibibytes", kernel_says_kibibytes },
};
CHECK_MAIN(tests)
