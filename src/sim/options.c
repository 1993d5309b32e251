/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's option table: one row per parameter. It feeds the command line (--sample-bytes
 * sets sample_bytes), the workload files and --print-config. Limits here are those of a single
 * value; what is impossible in combination is said by setup.c. */
#include <stddef.h>

#include "clairfs/sim.h"

#define ROW(field, kind, def, lo, hi, text)                                                        \
	{                                                                                          \
		.name = #field, .type = kind, .offset = offsetof(struct sim_params, field),        \
		.initial = def, .min = lo, .max = hi, .help = text                                 \
	}

static const struct conf_option options[] = {
	ROW(samples, CONF_U64, "0", 0, 4294967293, "Samples of the dataset."),
	ROW(sample_bytes, CONF_BYTES, "0", 0, 1ull << 50,
	    "Bytes of a sample; the mean if they differ."),
	ROW(sample_bytes_stdev, CONF_BYTES, "0", 0, 1ull << 50,
	    "Standard deviation of the sizes (lognormal). 0: all have the same size."),
	ROW(order, CONF_TEXT, "", 0, 0,
	    "Order the job reads in, as in mount's option order. Empty: torch-distributed with "
	    "seed, nodes and ranks."),
	ROW(epochs, CONF_U64, "3", 1, 10000, "Epochs to simulate."),
	ROW(nodes, CONF_U64, "1", 1, 1000000,
	    "Nodes of the job; one of them is simulated, with its own share of the source."),
	ROW(ranks, CONF_U64, "1", 1, 1024, "Ranks of the job on this node; they step together."),
	ROW(jobs, CONF_U64, "1", 1, 64,
	    "Jobs on this node that read the same dataset, each in an order of its own."),
	ROW(seed, CONF_U64, "1", 0, 0, "Seed of orders, sizes and latencies."),
	ROW(cache_fraction, CONF_REAL, "0.25", 0, 1000,
	    "Memory for samples as a share of the dataset; not used when cache_bytes is given."),
	ROW(cache_bytes, CONF_BYTES, "0", 0, 1ull << 50,
	    "Memory for samples. 0: see cache_fraction."),
	ROW(store_fraction, CONF_REAL, "0", 0, 1000,
	    "Store on a local drive as a share of the dataset; not used when store_bytes is given."),
	ROW(store_bytes, CONF_BYTES, "0", 0, 1ull << 50,
	    "Store on a local drive. 0: see store_fraction."),
	ROW(stage_bytes, CONF_BYTES, "0", 0, 1ull << 50,
	    "Most bytes pushed into the kernel ahead of the reader, beside the cache. 0: a quarter of "
	    "the cache, as mount does."),
	ROW(source_latency_ms, CONF_REAL, "2", 0, 1000000, "Mean latency of a read of the source."),
	ROW(source_latency_sigma, CONF_REAL, "0.5", 0, 3,
	    "Spread of the latency: sigma of a lognormal distribution. 0: always the same."),
	ROW(source_mbps, CONF_REAL, "1000", 0, 1000000000,
	    "Bandwidth of the source as this node gets it, MB/s (10^6 bytes)."),
	ROW(source_parallel, CONF_U64, "1024", 1, 1048576,
	    "Requests the source serves at once; more wait."),
	ROW(burst_amplitude, CONF_REAL, "0", 0, 1,
	    "The source's bandwidth is this share above its mean for half a period and as much below "
	    "it for the other half."),
	ROW(burst_period_s, CONF_REAL, "2", 0, 1000000, "Period of the bursts in seconds."),
	ROW(outage_at_s, CONF_REAL, "0", 0, 1000000000, "When an outage of the source begins."),
	ROW(outage_s, CONF_REAL, "0", 0, 1000000, "How long it lasts. 0: there is none."),
	ROW(store_latency_ms, CONF_REAL, "0.1", 0, 1000000,
	    "Latency of a read or write of the store."),
	ROW(store_mbps, CONF_REAL, "3000", 0, 1000000000, "Bandwidth of the store, MB/s."),
	ROW(hit_us, CONF_REAL, "20", 0, 1000000,
	    "Time to read a sample that the kernel has, microseconds."),
	ROW(upcall_us, CONF_REAL, "100", 0, 1000000,
	    "The same from clairfs's memory when it was not pushed in time."),
	ROW(inflight, CONF_U64, "64", 1, 1024,
	    "Most requests to the source for prefetching at once, as mount's source_max_inflight."),
	ROW(window, CONF_U64, "4096", 0, 4294967295,
	    "Samples the policies other than clairfs prefetch ahead. 0: they do not."),
	ROW(batch, CONF_U64, "64", 1, 1000000, "Samples of a batch, per rank."),
	ROW(workers, CONF_U64, "8", 1, 1024, "Workers of the loader, per rank."),
	ROW(prefetch_factor, CONF_U64, "2", 1, 1024, "Batches each worker may be ahead."),
	ROW(compute_ms, CONF_REAL, "100", 0, 1000000000, "Time to compute with a batch."),
	ROW(decode_ms, CONF_REAL, "0", 0, 1000000000,
	    "Time a worker needs for a sample besides reading."),
	ROW(valid_samples, CONF_U64, "0", 0, 4294967293,
	    "Samples of a validation set beside those of the dataset, read in one order between "
	    "epochs. 0: there is none."),
	ROW(valid_every, CONF_U64, "1", 1, 10000, "It is read after every so many epochs."),
	{ .name = NULL },
};

const struct conf_table sim_option_table = { .options = options, .section = "workload" };
