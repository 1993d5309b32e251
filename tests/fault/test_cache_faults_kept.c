/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tests of test_cache_faults.c over a source that keeps large files open, as that of a mount does.
 */
#include "cache_rig.h"

static struct rig *rig_new_keeping(const struct rig_options *options)
{
	struct rig_options kept = *options;

	kept.keeps_files = true;
	return rig_new(&kept);
}

#define rig_new(...) rig_new_keeping(__VA_ARGS__)
#include "test_cache_faults.c"
