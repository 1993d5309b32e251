/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs simulate --advise: prints what sim_advise found, for people or as JSON. */
#include <inttypes.h>
#include <jansson.h>
#include <unistd.h>

#include "clairfs/base/text.h"
#include "clairfs/simulate.h"

static const char *const verdicts[] = {
	[SIM_HELPS] = "helps", [SIM_NOT_NEEDED] = "not_needed", [SIM_NOT_ENOUGH] = "not_enough"
};

static void print_size(const char *what, const struct sim_size *s)
{
	char a[32], b[32];

	printf("%-26s %10s %10s %10.1f %14.1f\n", what,
	       text_from_bytes(s->cache_bytes, a, sizeof(a)),
	       s->store_bytes ? text_from_bytes(s->store_bytes, b, sizeof(b)) : "", s->stall_pct,
	       s->first_stall_pct);
}

static void print_steps(const struct sim_advice *a)
{
	char b[32];

	printf("\nwhat each further %s of memory buys:\n%12s %10s %12s %8s\n",
	       text_from_bytes(a->step_bytes, b, sizeof(b)), "memory", "stall %", "epoch s", "hit");
	for (uint32_t i = 0; i < a->n_steps; i++)
		printf("%12s %10.1f %12.1f %8.3f\n",
		       text_from_bytes(a->step[i].cache_bytes, b, sizeof(b)), a->step[i].stall_pct,
		       a->step[i].epoch_seconds, a->step[i].hit_ratio);
}

static void print_text(const struct sim_advice *a)
{
	printf("%s\n\n%-26s %10s %10s %10s %14s\n", a->why, "", "memory", "store", "stall %",
	       "first epoch %");
	print_size("page cache, no clairfs", &a->without);
	if (a->verdict == SIM_HELPS) {
		printf("smallest for at most %.1f %%:\n", a->target_pct);
		print_size("  memory alone", &a->memory);
		if (a->drive.store_bytes)
			print_size("  little memory, a store", &a->drive);
	}
	print_size("everything in memory", &a->full);
	if (a->n_steps)
		print_steps(a);
	if (a->shortened > 1)
		printf("\nsimulated with one of %" PRIu64 " samples\n", a->shortened);
}

static json_t *json_of_size(const struct sim_size *s)
{
	return json_pack("{s:I, s:I, s:f, s:f, s:f, s:f}", "cache_bytes",
			 (json_int_t)s->cache_bytes, "store_bytes", (json_int_t)s->store_bytes,
			 "stall_percent", s->stall_pct, "first_epoch_stall_percent",
			 s->first_stall_pct, "epoch_seconds", s->epoch_seconds, "hit_ratio",
			 s->hit_ratio);
}

static void print_json(const struct sim_advice *a)
{
	json_t *steps = json_array(), *root;

	for (uint32_t i = 0; i < a->n_steps; i++)
		json_array_append_new(steps, json_of_size(&a->step[i]));
	root = json_pack(
		"{s:s, s:s, s:f, s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:I}", "verdict",
		verdicts[a->verdict], "why", a->why, "target_stall_percent", a->target_pct,
		"memory_bytes", (json_int_t)a->memory_bytes, "without", json_of_size(&a->without),
		"everything", json_of_size(&a->full), "smallest_memory",
		a->verdict == SIM_HELPS ? json_of_size(&a->memory) : json_null(), "smallest_store",
		a->verdict == SIM_HELPS ? json_of_size(&a->drive) : json_null(), "step_bytes",
		(json_int_t)a->step_bytes, "steps", steps, "shortened", (json_int_t)a->shortened);
	if (!root || json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) < 0)
		fprintf(stderr, "clairfs: out of memory\n");
	json_decref(root);
	putchar('\n');
}

int simulate_advise(struct simulate_args *args, struct err *err)
{
	struct sim_advice advice;
	uint64_t memory = args->memory_bytes;
	int rc;

	if (!memory)
		memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	rc = sim_advise(&args->params, TAKE(args->size), args->target_stall, memory,
			simulate_progress(), &advice, err);
	simulate_progress_end();
	if (rc < 0)
		return rc;
	if (args->is_json)
		print_json(&advice);
	else
		print_text(&advice);
	return 0;
}
