/* SPDX-License-Identifier: Apache-2.0 */
/* From parameters to something that can be run: checks what is impossible (one line that names the
 * option as the command line spells it), makes the sizes, computes the orders' specs, turns
 * fractions into bytes. After this nothing about the parameters can be wrong but their mutual size.
 *
 * Job 0 reads the order that was given; further jobs the default order with seeds far apart, since
 * torch-distributed with seed s+1 is the order of seed s one epoch later. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sim_priv.h"

#define BYTES_MAX (1ull << 62)

static int check_job(const struct sim_params *p, struct err *err)
{
	if (!p->samples)
		return err_set(err, -EINVAL, "--samples: how many samples has the dataset?");
	if (p->order && (p->jobs > 1 || p->nodes > 1 || p->ranks > 1))
		return err_set(
			err, -EINVAL,
			"--order says itself how many nodes and ranks there are, for one job");
	if (p->samples + p->valid_samples > UINT32_MAX - 2)
		return err_set(err, -EINVAL,
			       "--valid-samples: with --samples more than %u are too many",
			       UINT32_MAX - 2);
	if (!p->order && p->nodes * p->ranks > p->samples)
		return err_set(err, -EINVAL,
			       "--nodes %" PRIu64 " with --ranks %" PRIu64
			       " each are more readers than the %" PRIu64 " samples",
			       p->nodes, p->ranks, p->samples);
	if (p->workers * p->prefetch_factor * p->batch > UINT32_MAX / 4)
		return err_set(err, -EINVAL,
			       "--workers, --prefetch-factor and --batch: the loader would read "
			       "%" PRIu64 " samples ahead",
			       p->workers * p->prefetch_factor * p->batch);
	if (p->ranks * p->workers * p->jobs > 1u << 24)
		return err_set(err, -EINVAL, "--jobs, --ranks and --workers: too many workers");
	return 0;
}

static int check_source(const struct sim_params *p, struct err *err)
{
	double seconds;

	if (p->source_mbps <= 0)
		return err_set(err, -EINVAL, "--source-mbps 0: nothing would ever be read");
	if (p->store_mbps <= 0)
		return err_set(err, -EINVAL, "--store-mbps 0: nothing would ever be read");
	if (p->burst_amplitude > 0 && p->burst_period_s <= 0)
		return err_set(err, -EINVAL, "--burst-period-s must be above 0");
	/* Virtual time counts nanoseconds in 64 bits: 292 years. */
	seconds = (double)(p->samples + p->valid_samples) * (double)p->epochs *
			  ((p->compute_ms + p->decode_ms + p->source_latency_ms +
			    p->store_latency_ms) /
				   1e3 +
			   (double)p->sample_bytes / 1e6 / MIN(p->source_mbps, p->store_mbps)) +
		  p->outage_at_s + p->outage_s;
	if (!(seconds * (double)p->jobs < 4e9))
		return err_set(
			err, -EINVAL,
			"the job might take more than a hundred years: smaller times, please");
	return 0;
}

/* Lognormal with the given mean and deviation, scaled so that the mean is met, at least a byte. */
static int setup_sizes(struct sim_setup *s)
{
	const struct sim_params *p = &s->p;
	double mean = (double)p->sample_bytes, spread = (double)p->sample_bytes_stdev / mean;
	double table[QUANTILES];

	s->size = malloc(MAX(s->n, 1) * sizeof(*s->size));
	if (!s->size)
		return -ENOMEM;
	quantiles_lognormal(table, mean, sqrt(log(1 + spread * spread)));
	for (uint32_t i = 0; i < s->n; i++)
		s->size[i] =
			p->sample_bytes_stdev
				? (uint64_t)MAX(table[sim_mix(p->seed * 0x9e37 + i) % QUANTILES], 1)
				: p->sample_bytes;
	return 0;
}

static int setup_sum(struct sim_setup *s, struct err *err)
{
	s->smallest = UINT64_MAX;
	for (uint32_t i = 0; i < s->n; i++) {
		if (__builtin_add_overflow(s->total, s->size[i], &s->total) || s->total > BYTES_MAX)
			return err_set(err, -EINVAL, "the dataset has more than 2^62 bytes");
		s->largest = MAX(s->largest, s->size[i]);
		s->smallest = MIN(s->smallest, s->size[i]);
	}
	if (!s->total)
		return err_set(err, -EINVAL, "--sample-bytes: how large is a sample?");
	return 0;
}

static int setup_spec(const struct sim_setup *s, uint64_t job, char **ret)
{
	const struct sim_params *p = &s->p;
	const char *part = p->valid_samples && !p->files ? ":under=train" : "";
	int n;

	if (p->order) {
		n = asprintf(ret, "%s%s", p->order, part);
		return n < 0 ? -ENOMEM : 0;
	}
	n = asprintf(ret,
		     "torch-distributed:seed=%" PRIu64 ":world=%" PRIu64 ":ranks=0-%" PRIu64
		     ":epochs=%" PRIu64 ":batch=%" PRIu64 ":workers=%" PRIu64
		     ":prefetch_factor=%" PRIu64 "%s",
		     (p->seed + job * 1000003) % (UINT64_C(1) << 62), p->nodes * p->ranks,
		     p->ranks - 1, p->epochs, p->batch, p->workers, p->prefetch_factor, part);
	return n < 0 ? -ENOMEM : 0;
}

/* A made-up dataset has its samples first, under train/, and then the validation set. */
static int setup_number(void *ctx, const char *sort, const char *under, uint32_t **ret_sample,
			uint64_t *ret_n, struct err *err)
{
	const struct sim_setup *s = ctx;

	if (sort || strcmp(under, "train") != 0)
		return err_set(err, -EINVAL, "a made-up dataset has no files");
	*ret_n = s->p.samples;
	*ret_sample = malloc(MAX(s->p.samples, 1) * sizeof(**ret_sample));
	if (!*ret_sample)
		return err_set_errno(err, -ENOMEM, "order");
	for (uint32_t i = 0; i < s->p.samples; i++)
		(*ret_sample)[i] = i;
	return 0;
}

static int setup_order(struct sim_setup *s, uint32_t job, struct err *err)
{
	struct order_params params = s->p.files ? *s->p.files : (struct order_params){ .n = s->n };
	AUTO_FREE char *text = NULL;
	int rc = setup_spec(s, job, &text);

	if (s->p.valid_samples && !s->p.files) {
		params.number = setup_number;
		params.number_ctx = s;
	}
	if (rc < 0)
		return err_set_errno(err, rc, "order");
	rc = order_spec_parse(text, &s->spec[job], err);
	if (rc == 0)
		rc = order_new(s->spec[job], &params, &s->order[job], err);
	if (rc < 0)
		err_prefix(err, "--order");
	return rc;
}

/* What the order says about the loader goes before the parameters. */
static int setup_loader(struct sim_setup *s, struct err *err)
{
	const struct order_info *info = order_info(s->order[0]);
	const struct sim_params *p = &s->p;
	struct order_epoch *ep;

	s->ranks = info->n_ranks;
	s->world = info->world;
	s->batch = (uint32_t)(info->batch ? info->batch : p->batch);
	s->workers = (uint32_t)(info->workers ? info->workers : p->workers);
	s->prefetch_factor =
		(uint32_t)(info->prefetch_factor ? info->prefetch_factor : p->prefetch_factor);
	s->epochs = info->epochs ? MIN(info->epochs, p->epochs) : p->epochs;
	if ((uint64_t)s->workers * s->prefetch_factor * s->ranks > 1u << 24 ||
	    (uint64_t)s->workers * s->prefetch_factor * s->batch > UINT32_MAX / 4)
		return err_set(err, -EINVAL, "--order: too many workers or too large batches");
	ep = setup_dealt(s, 0, 0, err); /* nothing is known of a validation yet */
	if (!ep)
		return err->code;
	s->reads = ep->length;
	order_epoch_free(ep);
	return 0;
}

/* What the order does not number, dealt out to the ranks in turns as DistributedSampler does. */
static int setup_valid(struct sim_setup *s, struct err *err)
{
	const struct order_info *info = order_info(s->order[0]);
	uint64_t count = 0, want = s->p.valid_samples;
	AUTO_FREE uint32_t *all = want ? malloc(want * sizeof(*all)) : NULL;

	if (!want)
		return 0;
	s->valid = malloc(want * sizeof(*s->valid));
	if (!all || !s->valid)
		return err_set_errno(err, -ENOMEM, "validation set");
	for (uint32_t i = 0; info->outside && i < s->n && count < want; i++)
		if (info->outside[i / 64] >> i % 64 & 1)
			all[count++] = i;
	if (count < want)
		return err_set(err, -EINVAL,
			       "--valid-samples: the order leaves out %" PRIu64
			       " samples of the dataset, less than that",
			       count);
	for (uint64_t from = 0; from < want; from += info->world)
		for (uint32_t r = 0; r < info->n_ranks; r++)
			if (from + info->ranks[r] < want)
				s->valid[s->n_valid++] = all[from + info->ranks[r]];
	return 0;
}

static bool setup_has_valid(const struct sim_setup *s, uint64_t index)
{
	return s->n_valid && (index + 1) % s->p.valid_every == 0;
}

uint64_t setup_end(const struct sim_setup *s, const struct order_epoch *dealt, uint64_t index)
{
	return dealt->length - (setup_has_valid(s, index) ? s->n_valid : 0);
}

bool setup_append(struct order_epoch *ep, const uint32_t *sample, uint64_t n)
{
	uint64_t length = ep->length + n;
	uint32_t *samples = realloc(ep->sample, length * sizeof(*samples)), *next;

	if (!samples)
		return false;
	ep->sample = samples;
	if (ep->next_same) {
		next = realloc(ep->next_same, length * sizeof(*next));
		if (!next)
			return false;
		ep->next_same = next;
		memset(next + ep->length, 0xff, n * sizeof(*next)); /* SAMPLE_NONE */
	}
	for (uint64_t i = 0; i < n; i++) {
		ep->first[sample[i]] = (uint32_t)(ep->length + i);
		ep->sample[ep->length + i] = sample[i];
	}
	ep->length = length;
	return true;
}

uint64_t setup_start(const struct sim_setup *s, uint32_t job, uint64_t index)
{
	const struct order_info *info = order_info(s->order[job]);

	return index ? 0 : MIN(info->start_step, UINT32_MAX) * s->batch * s->ranks;
}

struct order_epoch *setup_dealt(const struct sim_setup *s, uint32_t job, uint64_t index,
				struct err *err)
{
	struct order_epoch *ep = NULL;
	uint64_t number = order_info(s->order[job])->start_epoch + index;

	if (order_epoch_new(s->order[job], number, &ep, err) < 0)
		return NULL;
	if (!setup_has_valid(s, index) || setup_append(ep, s->valid, s->n_valid))
		return ep;
	order_epoch_free(ep);
	err_set_errno(err, -ENOMEM, "validation set");
	return NULL;
}

int sim_setup_resize(struct sim_setup *s, uint64_t cache_bytes, uint64_t store_bytes,
		     struct err *err)
{
	if (cache_bytes < s->largest * s->p.jobs)
		return err_set(err, -EINVAL,
			       "--cache-bytes: %" PRIu64 " bytes for %" PRIu64
			       " job(s), but the largest %s has %" PRIu64,
			       cache_bytes, s->p.jobs, s->map.first ? "part of a sample" : "sample",
			       s->largest);
	s->cache_bytes = MIN(cache_bytes, BYTES_MAX);
	s->store_bytes = MIN(store_bytes, BYTES_MAX);
	s->stage_bytes = s->p.stage_bytes ? s->p.stage_bytes : s->cache_bytes / 4;
	return 0;
}

static int setup_capacity(struct sim_setup *s, struct err *err)
{
	const struct sim_params *p = &s->p;
	double total = (double)s->total;
	double cache = p->cache_bytes ? (double)p->cache_bytes : p->cache_fraction * total;
	double store = p->store_bytes ? (double)p->store_bytes : p->store_fraction * total;

	return sim_setup_resize(s, (uint64_t)MIN(cache, (double)BYTES_MAX),
				(uint64_t)MIN(store, (double)BYTES_MAX), err);
}

static int setup_fill(struct sim_setup *s, uint64_t *take_size, struct err *err)
{
	int rc;

	s->size = take_size;
	rc = check_job(&s->p, err);
	if (rc == 0)
		rc = check_source(&s->p, err);
	if (rc < 0)
		return rc;
	s->n = (uint32_t)(s->p.samples + (s->p.files ? 0 : s->p.valid_samples));
	if (!s->size) {
		if (!s->p.sample_bytes)
			return err_set(err, -EINVAL, "--sample-bytes: how large is a sample?");
		rc = setup_sizes(s);
		if (rc < 0)
			return err_set_errno(err, rc, "sizes of %u samples", s->n);
	}
	rc = setup_sum(s, err);
	s->order = calloc(s->p.jobs, sizeof(*s->order));
	s->spec = calloc(s->p.jobs, sizeof(*s->spec));
	if (rc == 0 && (!s->order || !s->spec))
		rc = err_set_errno(err, -ENOMEM, "orders");
	for (uint32_t j = 0; j < s->p.jobs && rc == 0; j++)
		rc = setup_order(s, j, err);
	if (rc == 0)
		rc = setup_loader(s, err);
	if (rc == 0)
		rc = setup_valid(s, err);
	if (rc == 0)
		rc = setup_cut(s, err);
	return rc < 0 ? rc : setup_capacity(s, err);
}

int sim_setup_new(const struct sim_params *params, uint64_t *take_size, struct sim_setup **ret,
		  struct err *err)
{
	struct sim_setup *s = calloc(1, sizeof(*s));
	int rc;

	if (!s) {
		free(take_size);
		return err_set_errno(err, -ENOMEM, "simulation");
	}
	s->p = *params;
	rc = setup_fill(s, take_size, err);
	if (rc < 0)
		sim_setup_free(s);
	else
		*ret = s;
	return rc;
}

void sim_setup_free(struct sim_setup *s)
{
	if (!s)
		return;
	for (uint32_t j = 0; s->order && j < s->p.jobs; j++)
		order_free(s->order[j]);
	for (uint32_t j = 0; s->spec && j < s->p.jobs; j++)
		if (s->spec[j])
			order_spec_free(s->spec[j]);
	free(s->order);
	free(s->spec);
	free(s->size);
	free(s->valid);
	free(s->first);
	free(s);
}

void sim_setup_facts(const struct sim_setup *s, struct sim_facts *ret)
{
	double per_read = (double)s->total / s->map.n_samples;
	double wait_s = s->p.decode_ms / 1e3 / s->workers, step_s = s->p.compute_ms / 1e3;
	double sample_s = MAX(step_s / s->batch, wait_s);

	*ret = (struct sim_facts){ .samples = s->map.n_samples,
				   .dataset_bytes = s->total,
				   .largest_bytes = s->largest_sample,
				   .cache_bytes = s->cache_bytes,
				   .store_bytes = s->store_bytes,
				   .stage_bytes = s->stage_bytes,
				   .ranks = s->ranks,
				   .jobs = s->p.jobs,
				   .world = s->world,
				   .epochs = s->epochs,
				   .reads = s->reads,
				   .valid_reads = s->n_valid,
				   .valid_every = s->p.valid_every,
				   .bytes_per_s = s->p.source_mbps * 1e6,
				   .need_bytes_per_s = sample_s > 0 ? per_read * s->ranks *
									      (double)s->p.jobs /
									      sample_s
								    : INFINITY,
				   .order = order_spec_text(s->spec[0]) };
}
