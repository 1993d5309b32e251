/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the simulator: a setup from a list of options, a run from a setup. Failing to make
 * one fails the test. */
#ifndef CLAIRFS_TESTS_SIM_KIT_H
#define CLAIRFS_TESTS_SIM_KIT_H

#include "clairfs/sim.h"

struct sim_kit {
	struct sim_params params;
	struct sim_setup *setup;
	struct sim_result result; /* of the last run */
};

/* "samples=100,batch=4": over the defaults, with a job that neither waits nor computes. */
void sim_kit_open(struct sim_kit *kit, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The same for options drawn at random: false, and nothing to close, when they contradict each
 * other (a cache that the largest sample does not fit in). */
bool sim_kit_is_possible(struct sim_kit *kit, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sim_kit_close(struct sim_kit *kit);
const struct sim_result *sim_kit_run(struct sim_kit *kit, const char *policy);
/* One run of a new setup; source reads of all epochs. */
uint64_t sim_kit_source_reads(const char *policy, const char *options);
/* Writes a list order that reads these samples in one epoch; `out` becomes the path of its file. */
#define SIM_KIT_PATH 512
const char *sim_kit_trace(const uint32_t *samples, uint32_t length, char out[SIM_KIT_PATH]);

#endif
