/* SPDX-License-Identifier: Apache-2.0 */
/* Switchback in a bench: what the mount has measured by stepping aside in some blocks of steps, and
 * what that has cost the epochs of this very run, which are slower for it. The numbers are those of
 * the mount (stats.json); where it does not know yet, that is said and why. Main process. */
#include <math.h>

#include "bench_priv.h"
#include "clairfs/base/text.h"
#include "clairfs/wait/switchback.h"

bool bench_switchback_is_share(const char *text)
{
	double percent;

	return text_to_real(text, &percent) == 0 && percent >= 0.1 &&
	       percent <= 100 * SWITCHBACK_SHARE_MAX;
}

json_t *bench_switchback_of(const json_t *gpu_wait)
{
	json_t *said = json_object_get(gpu_wait, "switchback");

	return bench_number(said, "share") > 0 ? json_incref(said) : NULL;
}

void bench_switchback_print(const json_t *said)
{
	double removed = bench_number(said, "removed_seconds");
	double high = bench_number(said, "high_seconds");

	if (!said)
		return;
	if (!json_is_true(json_object_get(said, "is_possible")))
		printf("\nswitchback: not known, the order does not say batch= and workers=\n");
	else if (!isfinite(removed) || !isfinite(high))
		printf("\nswitchback: not known, %.0f of %.0f blocks without the cache were measured: "
		       "more epochs or smaller batches\n",
		       bench_number(said, "blocks"), bench_number(said, "blocks_needed"));
	else
		printf("\nswitchback: %.2f s +- %.2f s removed in %.0f steps, from %.0f blocks "
		       "without the cache; they cost this run %.2f s\n",
		       removed, high - removed, bench_number(said, "steps"),
		       bench_number(said, "blocks"), bench_number(said, "cost_seconds"));
}
