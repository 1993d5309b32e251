/* SPDX-License-Identifier: Apache-2.0 */
/* Advice in words: what the job waits for, and so why a cache helps or does not. Each sentence is
 * chosen by what the parameters and the simulated figures show, never by the verdict alone: who is
 * told that nothing would help must be able to check the reason. The last sentence of each is the
 * one that claims nothing. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "advise.h"
#include "clairfs/base/text.h"

#define TINY_READS 256u /* of an epoch; below, the plan can hardly verify the order */

static void PRINTF_LIKE(2, 3) say(struct sim_advice *a, const char *fmt, ...)
{
	size_t len = strlen(a->why);
	va_list args;

	va_start(args, fmt);
	vsnprintf(a->why + len, sizeof(a->why) - len, fmt, args);
	va_end(args);
}

/* What the source gives to those who keep so many requests under way. */
static double source_mbps(const struct search *s, const struct sim_facts *f, uint64_t requests)
{
	const struct sim_params *p = &s->setup->p;
	double mean = (double)f->dataset_bytes / (double)f->samples;
	double parallel = (double)MIN(p->source_parallel, requests);
	double answered = p->source_latency_ms > 0
				  ? parallel * mean / 1e6 / (p->source_latency_ms / 1e3)
				  : INFINITY;

	return MIN(f->bytes_per_s / 1e6, answered);
}

static void say_inflight(const struct search *s, const struct sim_facts *f)
{
	uint64_t inflight = s->setup->p.inflight;
	double mbps = source_mbps(s, f, inflight), need = f->need_bytes_per_s / 1e6;

	if (mbps < 1.2 * need && source_mbps(s, f, 2 * inflight) > 1.2 * mbps)
		say(s->advice,
		    " %" PRIu64
		    " requests at a time (--inflight) bring %.0f MB/s at most: more may help.",
		    inflight, mbps);
}

static void say_first_epoch(struct sim_advice *a)
{
	double without = a->without.first_stall_pct, with = a->full.first_stall_pct;

	if (without > a->target_pct && without - with > MAX(1, without / 10))
		say(a, " Only in the first epoch it would: %.1f %% instead of %.1f %%.", with,
		    without);
}

void advise_not_needed(const struct search *s)
{
	struct sim_advice *a = s->advice;
	struct sim_facts f;

	a->verdict = SIM_NOT_NEEDED;
	sim_setup_facts(s->setup, &f);
	if (f.dataset_bytes * a->shortened <= a->memory_bytes && s->from)
		say(a,
		    "It will not help: the dataset fits into the page cache of this node, which "
		    "has all of it after the first epoch. Stall without clairfs: %.1f %%.",
		    a->without.stall_pct);
	else if (f.need_bytes_per_s < f.bytes_per_s / 2)
		say(a,
		    "It will not help: the job is bound by what it computes. It reads %.0f MB/s, "
		    "the source gives %.0f MB/s, and the loader's workers hide the latency. Stall "
		    "without clairfs: %.1f %%.",
		    f.need_bytes_per_s / 1e6, f.bytes_per_s / 1e6, a->without.stall_pct);
	else
		say(a,
		    "It will not help: the source and the loader keep up with the job. Stall "
		    "without clairfs: %.1f %%, with everything cached %.1f %%.",
		    a->without.stall_pct, a->full.stall_pct);
	if (s->from)
		say_first_epoch(a);
}

/* Reads that nothing could have had before. */
static void say_first_reads(const struct search *s, const struct sim_facts *f)
{
	struct sim_advice *a = s->advice;
	double mbps = source_mbps(s, f, UINT64_MAX);

	if (!s->from)
		say(a, "there is one epoch, so everything is read for the first time");
	else if (f->world > f->ranks)
		say(a,
		    "in %" PRIu64 " epochs this node of many reads most samples for the first time "
		    "(%.0f %% of its reads)",
		    f->epochs, 100 * (1 - s->bound.hit_ratio));
	else
		say(a, "what no cache can have is too much for the source");
	say(a, ", and the source gives %.0f MB/s where the job reads %.0f MB/s.", mbps,
	    f->need_bytes_per_s / 1e6);
}

void advise_not_enough(const struct search *s)
{
	const struct sim_params *p = &s->setup->p;
	struct sim_advice *a = s->advice;
	double batch = s->setup->batch, workers = s->setup->workers,
	       compute_s = p->compute_ms / 1e3;
	double decode_s = p->decode_ms / 1e3 * batch / workers;
	double read_s = p->hit_us / 1e6 * batch / workers;
	double steps = ceil((double)s->setup->reads / s->setup->ranks / batch);
	double begin_pct = 100 * (p->decode_ms / 1e3 + p->hit_us / 1e6) * batch /
			   (steps * (double)a->shortened * compute_s);
	struct sim_facts f;

	a->verdict = SIM_NOT_ENOUGH;
	sim_setup_facts(s->setup, &f);
	say(a, "It will not reach the target: ");
	if (decode_s > compute_s)
		say(a,
		    "the loader's %.0f worker(s) need %.0f ms to decode what the job computes with in "
		    "%.0f ms. More workers would help.",
		    workers, decode_s * 1e3, p->compute_ms);
	else if (read_s + decode_s > compute_s)
		say(a,
		    "the loader's %.0f worker(s) need %.1f ms to read and decode a batch that is all in "
		    "memory, and the job computes with it in %.1f ms. More workers would help.",
		    workers, (read_s + decode_s) * 1e3, p->compute_ms);
	else if (s->bound.stall_pct > a->target_pct)
		say_first_reads(s, &f);
	else if (begin_pct > a->full.stall_pct / 2)
		say(a, "most of what is left is the start of each epoch, when the loader's workers "
		       "begin with nothing ready.");
	else if (f.reads < TINY_READS)
		say(a,
		    "%" PRIu64
		    " samples an epoch are so few that the order is hardly verified before "
		    "the epoch is over.",
		    f.reads);
	else
		say(a, "what is left does not depend on the cache.");
	if (decode_s <= compute_s)
		say_inflight(s, &f);
	say(a, " With everything cached the stall is %.1f %%, without clairfs %.1f %%.",
	    a->full.stall_pct, a->without.stall_pct);
}

/* The source is slower than the job. */
static void say_keep(const struct search *s, const struct sim_facts *f, double mbps)
{
	struct sim_advice *a = s->advice;
	double need = f->need_bytes_per_s / 1e6;
	double missing = 1 - mbps * (1 + a->target_pct / 100) / need;

	say(a, "The job reads %.0f MB/s where the source gives %.0f MB/s", need, mbps);
	if (f->bytes_per_s / 1e6 > mbps * 1.01)
		say(a, " (it has %.0f, but answers no more requests at once)",
		    f->bytes_per_s / 1e6);
	if (missing <= 0)
		say(a, ", which the target has room for: what the job waits for is latency, which "
		       "prefetching hides.");
	else if (f->world == f->ranks)
		say(a,
		    ": prefetching alone cannot help, at least %.0f %% of the dataset must be kept.",
		    100 * missing);
	else
		say(a, ": what comes again soon enough must be kept.");
}

void advise_helps(const struct search *s)
{
	const struct sim_params *p = &s->setup->p;
	struct sim_advice *a = s->advice;
	double mbps, need, slow;
	struct sim_facts f;

	a->verdict = SIM_HELPS;
	sim_setup_facts(s->setup, &f);
	mbps = source_mbps(s, &f, UINT64_MAX);
	need = f.need_bytes_per_s / 1e6;
	slow = mbps * (1 - p->burst_amplitude);
	if (need > mbps)
		say_keep(s, &f, mbps);
	else if (need > slow)
		say(a,
		    "The source has the bandwidth (%.0f MB/s, the job reads %.0f MB/s), but at times "
		    "it gives %.0f MB/s: what is read ahead must last until it is fast again.",
		    mbps, need, slow);
	else if (p->outage_s > 0)
		say(a,
		    "The source has the bandwidth (%.0f MB/s, the job reads %.0f MB/s), but not "
		    "always: what is read ahead must last for the outage.",
		    mbps, need);
	else
		say(a,
		    "The source has the bandwidth (%.0f MB/s, the job reads %.0f MB/s); what the job "
		    "waits for is latency, which prefetching hides.",
		    mbps, need);
	say_inflight(s, &f);
	if (!s->from)
		say(a, " There is one epoch: nothing is read twice, so more memory buys nothing.");
}

void advise_sizes(const struct search *s)
{
	struct sim_advice *a = s->advice;
	char has[32];

	if (a->memory.cache_bytes <= a->memory_bytes)
		return;
	say(a, " That is more memory than the node has (%s)",
	    text_from_bytes(a->memory_bytes, has, sizeof(has)));
	if (a->drive.store_bytes && a->drive.cache_bytes <= a->memory_bytes)
		say(a, "; a store on a local drive makes up for it");
	say(a, ".");
}
