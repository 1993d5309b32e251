/* SPDX-License-Identifier: Apache-2.0 */
/* What io_uring offers on this machine, and the one place that makes a ring.
 *
 * The only honest probe is to try: the ring may be missing (old kernel), switched off (sysctl
 * kernel.io_uring_disabled), hidden by the seccomp filter of a container (EPERM or ENOSYS) or
 * out of locked memory. Flags are tried from the best set down, since an old kernel answers
 * EINVAL for one it does not know; versions are never compared. SINGLE_ISSUER and DEFER_TASKRUN
 * bind a ring to the thread that makes it, so a ring must be made by the thread that will use
 * it. */
#include "uring_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static bool has_ops(struct io_uring *ring)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	bool ok = probe && io_uring_opcode_supported(probe, IORING_OP_OPENAT) &&
		  io_uring_opcode_supported(probe, IORING_OP_OPENAT2) &&
		  io_uring_opcode_supported(probe, IORING_OP_READ) &&
		  io_uring_opcode_supported(probe, IORING_OP_READV) &&
		  io_uring_opcode_supported(probe, IORING_OP_CLOSE);

	io_uring_free_probe(probe);
	return ok;
}

static int setup_with(unsigned flags, unsigned entries, struct io_uring *ring)
{
	struct io_uring_params params = { .flags = flags };
	int r = io_uring_queue_init_params(entries, ring, &params);

	if (r < 0)
		return r;
	if ((params.features & IORING_FEAT_NODROP) && has_ops(ring))
		return 0;
	io_uring_queue_exit(ring);
	return -ENOSYS;
}

int uring_setup(unsigned entries, struct io_uring *ring, unsigned *ret_flags)
{
	static const unsigned sets[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
		IORING_SETUP_COOP_TASKRUN,
		0,
	};
	int r = -EINVAL;

	for (size_t i = 0; i < ARRAY_LEN(sets) && r == -EINVAL; i++) {
		r = setup_with(sets[i], entries, ring);
		*ret_flags = sets[i];
	}
	return r;
}

const char *uring_refusal(int code)
{
	switch (code) {
	case -EPERM:
	case -EACCES:
		return "not permitted here: sysctl kernel.io_uring_disabled or a seccomp filter (containers)";
	case -ENOSYS:
		return "the kernel has no usable io_uring, or a seccomp filter hides it";
	case -ENOMEM:
		return "no memory for the ring: raise RLIMIT_MEMLOCK (ulimit -l)";
	case -EMFILE:
	case -ENFILE:
		return "no descriptor left for the ring";
	default:
		return "the kernel refused to make a ring";
	}
}

/* Opens "/" into a slot of the ring's own table, as a linked chain would. */
static bool try_direct(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	bool ok;

	if (io_uring_register_files_sparse(ring, 1) < 0)
		return false;
	sqe = io_uring_get_sqe(ring);
	if (!sqe)
		return false;
	io_uring_prep_openat_direct(sqe, AT_FDCWD, "/", O_RDONLY | O_DIRECTORY, 0, 0);
	if (io_uring_submit_and_wait(ring, 1) < 0 || io_uring_peek_cqe(ring, &cqe) < 0)
		return false;
	ok = cqe->res == 0;
	io_uring_cqe_seen(ring, cqe);
	return ok;
}

void io_probe_caps(struct io_caps *ret)
{
	struct io_uring ring;
	unsigned flags;
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->built_with_uring = true;
	ret->uring_why_not = "";
	r = uring_setup(4, &ring, &flags);
	if (r < 0) {
		ret->uring_why_not = uring_refusal(r);
		return;
	}
	ret->has_uring = true;
	ret->has_single_issuer = flags & IORING_SETUP_SINGLE_ISSUER;
	ret->has_defer_taskrun = flags & IORING_SETUP_DEFER_TASKRUN;
	ret->has_direct_descriptors = try_direct(&ring);
	io_uring_queue_exit(&ring);
}
