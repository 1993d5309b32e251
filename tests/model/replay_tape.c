/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tapes of plans (option plan_tape of a mount), for scripts.
 *
 *	replay_tape replay TAPE             exit code 0: fresh plans decide what the tape says
 *	replay_tape simulate TAPE OPTIONS [READ...]
 *	                                    records policy "clairfs" of the simulator; OPTIONS as
 *	                                    "samples=100,batch=4": those of clairfs simulate; the
 *	                                    job begins when all is prefetched that was to be; at
 *	                                    READ the kernel has dropped what was pushed
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "../lib/tape_replay.h"
#include "clairfs/base/clock.h"
#include "clairfs/sim.h"
#include "clairfs/tape.h"

#define START_NS (3600 * NS_PER_S)

static int replay(const char *path, struct err *err)
{
	struct tape_counts counts = { 0 };
	int rc = tape_replay(path, &counts, err);

	printf("%" PRIu64 " plans, %" PRIu64 " events, %" PRIu64 " steps, %" PRIu64 " actions\n",
	       counts.plans, counts.events, counts.steps, counts.actions);
	return rc;
}

#define READS_MAX 65536u

static int simulate(const char *path, const char *options, char **dropped, struct err *err)
{
	static uint64_t bits[READS_MAX / 64];
	struct sim_params params = { 0 };
	struct sim_result result = { 0 };
	struct sim_setup *setup = NULL;
	int rc = conf_init(&sim_option_table, &params, err);

	if (rc == 0)
		rc = conf_set_list(&sim_option_table, &params, options, err);
	if (rc == 0)
		rc = tape_open(path, &params.tape, err);
	for (; rc == 0 && *dropped; dropped++) {
		uint64_t n = strtoull(*dropped, NULL, 10) % READS_MAX;

		bits[n / 64] |= 1ull << n % 64;
	}
	params.dropped = bits;
	params.n_dropped = READS_MAX;
	params.start_ns = START_NS;
	if (rc == 0)
		rc = sim_setup_new(&params, NULL, &setup, err);
	if (rc == 0)
		rc = sim_run(setup, "clairfs", NULL, &result, err);
	for (uint64_t e = 0; rc == 0 && e < result.n_epochs; e++)
		printf("%" PRIu64 " %" PRIu64 "\n", result.epoch[e].reads,
		       result.epoch[e].source_reads);
	sim_result_fini(&result);
	sim_setup_free(setup);
	tape_close(params.tape);
	conf_fini(&sim_option_table, &params);
	return rc;
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	int rc;

	if (argc == 3 && strcmp(argv[1], "replay") == 0) {
		rc = replay(argv[2], &err);
	} else if (argc >= 4 && strcmp(argv[1], "simulate") == 0) {
		rc = simulate(argv[2], argv[3], &argv[4], &err);
	} else {
		fputs("usage: replay_tape replay TAPE | simulate TAPE OPTIONS [READ...]\n", stderr);
		return 2;
	}
	if (rc < 0)
		fprintf(stderr, "%s\n", err.msg);
	return rc < 0;
}
