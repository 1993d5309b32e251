/* SPDX-License-Identifier: Apache-2.0 */
/* Impossible parameters get one line that names the option; sizes, cache and order are what was
 * asked for. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "check.h"
#include "sim_kit.h"

static void check_refused(const char *options, const char *part)
{
	struct sim_params params = { 0 };
	struct sim_setup *setup = NULL;
	struct err err = { 0 };
	int rc;

	printf("# %s\n", options);
	CHECK_INT(conf_init(&sim_option_table, &params, &err), 0);
	rc = conf_set_list(&sim_option_table, &params, options, &err);
	if (rc == 0)
		rc = sim_setup_new(&params, NULL, &setup, &err);
	CHECK_INT(rc, -EINVAL);
	CHECK_CONTAINS(err.msg, part);
	CHECK(!strchr(err.msg, '\n'));
	conf_fini(&sim_option_table, &params);
}

static void impossible_parameters_are_named(void)
{
	check_refused("sample_bytes=4K", "--samples");
	check_refused("samples=10", "--sample-bytes");
	check_refused("samples=10,sample_bytes=4K,cache_bytes=4095", "--cache-bytes");
	check_refused("samples=10,sample_bytes=4K,cache_fraction=0.05", "--cache-bytes");
	check_refused("samples=10,sample_bytes=4K,cache_fraction=0", "--cache-bytes");
	check_refused("samples=10,sample_bytes=4K,cache_fraction=1,jobs=11", "--cache-bytes");
	check_refused("samples=10,sample_bytes=4K,source_mbps=0", "--source-mbps");
	check_refused("samples=10,sample_bytes=4K,store_mbps=0", "--store-mbps");
	check_refused("samples=10,sample_bytes=4K,nodes=11", "--nodes");
	check_refused("samples=10,sample_bytes=4K,nodes=6,ranks=2", "--nodes");
	check_refused("samples=10,sample_bytes=4K,nodes=0", "nodes");
	check_refused("samples=10,sample_bytes=4K,ranks=0", "ranks");
	check_refused("samples=10,sample_bytes=4K,batch=0", "batch");
	check_refused("samples=10,sample_bytes=4K,workers=0", "workers");
	check_refused("samples=10,sample_bytes=4K,epochs=0", "epochs");
	check_refused("samples=10,sample_bytes=4K,compute_ms=nan", "compute_ms");
	check_refused("samples=10,sample_bytes=4K,compute_ms=-1", "compute_ms");
	check_refused("samples=10,sample_bytes=4K,source_latency_ms=inf", "source_latency_ms");
	check_refused("samples=10,sample_bytes=4K,burst_amplitude=1.5", "burst_amplitude");
	check_refused("samples=10,sample_bytes=4K,burst_amplitude=1,burst_period_s=0",
		      "--burst-period-s");
	check_refused("samples=99999999999,sample_bytes=4K", "samples");
	check_refused("samples=4000000000,sample_bytes=1T,epochs=10000", "a hundred years");
	check_refused("samples=10,sample_bytes=4K,compute_ms=1e9,epochs=10000", "a hundred years");
	check_refused("samples=10,sample_bytes=4K,workers=1024,prefetch_factor=1024,batch=1000000",
		      "ahead");
	check_refused("samples=10,sample_bytes=4K,order=torch-distribted:seed=1", "--order");
	check_refused("samples=10,sample_bytes=4K,order=torch-distributed:world=0", "--order");
	check_refused("samples=10,sample_bytes=4K,order=sequential,ranks=2", "--order");
	check_refused("samples=4294967000,sample_bytes=1,valid_samples=1000", "--valid-samples");
	check_refused("samples=10,sample_bytes=4K,valid_every=0", "valid_every");
	check_refused("samples=10,sample_bytes=4K,valid_samples=5,order=sequential:under=x",
		      "--order");
}

static void no_such_policy(void)
{
	struct sim_result result;
	struct err err = { 0 };
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=10,sample_bytes=4K");
	CHECK_INT(sim_run(kit.setup, "best", NULL, &result, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "best");
	sim_kit_close(&kit);
}

static void sizes_have_the_stated_mean(void)
{
	struct sim_facts facts;
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=20000,sample_bytes=100000,sample_bytes_stdev=60000");
	sim_setup_facts(kit.setup, &facts);
	CHECK(fabs((double)facts.dataset_bytes / 20000 / 100000 - 1) < 0.03);
	CHECK(facts.largest_bytes > 400000);
	sim_kit_close(&kit);
}

/* A rank's share of the nodes' epoch, padded as DistributedSampler pads it. */
static void nodes_share_the_dataset(void)
{
	struct sim_facts facts;
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=1001,sample_bytes=4K,nodes=4,ranks=2");
	sim_setup_facts(kit.setup, &facts);
	CHECK_U64(facts.world, 8);
	CHECK_U64(facts.reads, 2 * 126);
	sim_kit_run(&kit, "lru");
	CHECK_U64(kit.result.epoch[0].reads, 252);
	sim_kit_close(&kit);
}

/* What the order says about the loader goes before the options. */
static void the_order_knows_the_loader(void)
{
	const struct sim_result *r;
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=100,sample_bytes=4K,batch=7,compute_ms=10,epochs=5,"
			   "order=torch-distributed:seed=3:batch=10:epochs=2:start_step=4");
	r = sim_kit_run(&kit, "clairfs");
	CHECK_U64(r->n_epochs, 2);
	CHECK_U64(r->epoch[0].reads, 60);
	CHECK_U64(r->epoch[1].reads, 100);
	CHECK(fabs(r->epoch[1].compute_seconds - 0.1) < 1e-9);
	sim_kit_close(&kit);
}

static void resized(void)
{
	struct err err = { 0 };
	struct sim_kit kit;

	sim_kit_open(&kit, "samples=100,sample_bytes=4K,window=0,batch=1,workers=1,epochs=2");
	CHECK_INT(sim_setup_resize(kit.setup, 100 * 4096, 0, &err), 0);
	CHECK_U64(sim_kit_run(&kit, "lru")->epoch[1].source_reads, 0);
	CHECK_INT(sim_setup_resize(kit.setup, 4095, 0, &err), -EINVAL);
	sim_kit_close(&kit);
}

/* A fifth of the samples, cache and store with them: the same job. Its own order stays whole. */
static void shortened_jobs_are_alike(void)
{
	static const char *const job =
		"samples=250000,sample_bytes=100000,cache_bytes=6250M,epochs=2,batch=20,workers=8,"
		"compute_ms=2,source_mbps=500,burst_amplitude=0.2,burst_period_s=5";
	struct sim_params p = { .samples = 0 };
	struct err err = { 0 };
	uint64_t *size = NULL;
	struct sim_kit whole, part;
	double want, got;

	sim_kit_open(&whole, "%s", job);
	want = sim_stall_pct(sim_kit_run(&whole, "never-evict"), 1);
	CHECK_INT(conf_init(&sim_option_table, &p, &err), 0);
	CHECK_INT(conf_set_list(&sim_option_table, &p, job, &err), 0);
	CHECK_U64(sim_shorten(&p, &size), 5);
	CHECK_U64(p.samples, 50000);
	part = (struct sim_kit){ .params = p };
	CHECK_INT(sim_setup_new(&p, NULL, &part.setup, &err), 0);
	got = sim_stall_pct(sim_kit_run(&part, "never-evict"), 1);
	printf("# stall %.2f %%, shortened %.2f %%\n", want, got);
	CHECK(want > 20 && fabs(got - want) < 3);
	part.params.order = strdup("sequential");
	CHECK_U64(sim_shorten(&part.params, &size), 1);
	sim_kit_close(&part);
	sim_kit_close(&whole);
}

static const struct check_test tests[] = {
	{ "impossible_parameters_are_named", impossible_parameters_are_named },
	{ "no_such_policy", no_such_policy },
	{ "sizes_have_the_stated_mean", sizes_have_the_stated_mean },
	{ "nodes_share_the_dataset", nodes_share_the_dataset },
	{ "the_order_knows_the_loader", the_order_knows_the_loader },
	{ "resized", resized },
	{ "shortened_jobs_are_alike", shortened_jobs_are_alike },
};

CHECK_MAIN(tests)
