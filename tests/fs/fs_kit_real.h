/* SPDX-License-Identifier: Apache-2.0 */
/* The real cache behind the mount of a kit, and the drive around it: source tier, arena, plan and
 * stagers. */
#ifndef CLAIRFS_TESTS_FS_KIT_REAL_H
#define CLAIRFS_TESTS_FS_KIT_REAL_H

#include "clairfs/drive.h"
#include "clairfs/io.h"
#include "clairfs/order.h"
#include "clairfs/tier.h"
#include "fs_kit.h"

/* To be put into kit.rest before kit_mount. */
struct kit_real {
	const char *order_text; /* NULL = no order */
	uint64_t arena_bytes, stage_bytes;
	struct drive *drive;
	struct io *io;
	struct tier *source;
	struct arena *arena;
	struct order_spec *spec;
	struct order *order;
};

#endif
