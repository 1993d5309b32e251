/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the nodes to the job. The one rule that matters: in synchronous training all ranks of a step
 * wait for the slowest, so the waits of ranks are never added up. report.h says what each number
 * means; here is why they hold.
 *
 *   wait      sum over steps of the longest wait of any rank. Steps have the same number on all
 *             ranks, because ranks run the same program. Where a log has groups of steps the
 *             longest sum of a group is taken, which can only be less.
 *
 *   at least  rank r alone proves that the job would have taken lower(r) longer (it cannot read
 *             faster than its workers can); the job is not faster than its slowest rank.
 *
 *   at most   without the mount each step is longer by what its slowest rank lost, and that is at
 *             most the sum of what all ranks lost in it.
 *
 *   about     each rank's loader was replayed with and without the mount. A step waits for the rank
 *             that waits longest, in either case: the sum over steps of the difference of the two.
 *             A rank's compute has the others' waits in it, in both cases.
 *
 * What does not belong together is refused, rather than added up to a number that means nothing.
 * One thread; no I/O.
 */
#include <errno.h>
#include <string.h>

#include "clairfs/report.h"

/* Where a node comes from, for messages. */
static const char *node_name(const struct report_node *node, size_t at, char out[300])
{
	if (node->host[0])
		snprintf(out, 300, "%s", node->host);
	else
		snprintf(out, 300, "file %zu", at + 1);
	return out;
}

static int check_twice(const struct report_node *nodes, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = i + 1; nodes[i].is_mount && k < n; k++)
			if (nodes[k].is_mount && nodes[i].pid == nodes[k].pid &&
			    nodes[i].begun == nodes[k].begun &&
			    strcmp(nodes[i].host, nodes[k].host) == 0)
				return err_set(err, -EINVAL,
					       "files %zu and %zu are of the same mount", i + 1,
					       k + 1);
	return 0;
}

static int check_job(const struct report_node *nodes, size_t n, struct report_job *ret,
		     struct err *err)
{
	ret->job = "";
	for (size_t i = 0; i < n; i++) {
		if (!nodes[i].job[0])
			continue;
		if (ret->job[0] && strcmp(ret->job, nodes[i].job) != 0)
			return err_set(err, -EINVAL,
				       "these are of different jobs, %s and %s: merge one job at a "
				       "time",
				       ret->job, nodes[i].job);
		ret->job = nodes[i].job;
	}
	return 0;
}

static int check_world(const struct report_node *nodes, size_t n, struct report_job *ret,
		       struct err *err)
{
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++) {
			uint32_t world = nodes[i].ranks[k].world;

			if (world && ret->world && world != ret->world)
				return err_set(err, -EINVAL,
					       "ranks of a world of %u and of a world of %u are "
					       "not of one job",
					       ret->world, world);
			ret->world = world ? world : ret->world;
			ret->n_ranks++;
		}
	return 0;
}

struct place {
	uint32_t rank;
	size_t node;
};

static int by_rank(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1)
				  : (x->node > y->node) - (x->node < y->node);
}

/* A rank is on one node. */
static int check_ranks(const struct report_node *nodes, size_t n, const struct report_job *job,
		       struct err *err)
{
	AUTO_FREE struct place *places = calloc(job->n_ranks + 1u, sizeof(*places));
	char a[300], b[300];
	uint32_t at = 0;

	if (!places)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++)
			places[at++] = (struct place){ nodes[i].ranks[k].rank, i };
	qsort(places, at, sizeof(*places), by_rank);
	for (uint32_t k = 1; k < at; k++)
		if (places[k].rank == places[k - 1].rank)
			return err_set(err, -EINVAL,
				       "rank %u is in two of these (%s and %s): they are of two "
				       "jobs, or of one node twice",
				       places[k].rank,
				       node_name(&nodes[places[k - 1].node], places[k - 1].node, a),
				       node_name(&nodes[places[k].node], places[k].node, b));
	return 0;
}

/* --- the slowest rank of each step --- */

struct slowest {
	uint32_t *wait_us, *span_us, *n_known; /* [n] */
	uint64_t n;
};

static void add_log(struct slowest *s, const struct step_log *log)
{
	for (uint64_t i = 0; i < log->n; i++) {
		if (log->wait_us[i] == STEP_UNKNOWN)
			continue;
		s->wait_us[i] = MAX(s->wait_us[i], log->wait_us[i]);
		s->span_us[i] = MAX(s->span_us[i], log->span_us[i]);
		s->n_known[i]++;
	}
}

static void sum_up(const struct slowest *s, uint32_t n_logs, struct report_job *job)
{
	uint64_t wait = 0, span = 0;

	for (uint64_t i = 0; i < s->n; i++) {
		wait += s->wait_us[i];
		span += s->span_us[i];
		job->n_groups += s->n_known[i] > 0;
		job->incomplete += s->n_known[i] > 0 && s->n_known[i] < n_logs;
	}
	job->wait_s = (double)wait / 1e6;
	job->span_s = (double)span / 1e6;
	job->au_percent = span ? 100 * (1 - (double)MIN(wait, span) / (double)span) : 0;
}

static int merge_steps(struct report_node *nodes, size_t n, struct report_job *job, struct err *err)
{
	struct slowest s = { 0 };
	uint32_t n_logs = 0;
	int rc = 0;

	job->every = 1;
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++)
			job->every = MAX(job->every, nodes[i].ranks[k].log.every);
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++) {
			struct report_rank *r = &nodes[i].ranks[k];

			step_log_coarsen(&r->log, job->every);
			s.n = MAX(s.n, r->log.n);
			n_logs += r->log.n > 0;
			job->steps = MAX(job->steps, r->totals.steps);
			job->has_restarts = job->has_restarts || r->restarts;
		}
	s.wait_us = calloc(s.n + 1, sizeof(*s.wait_us));
	s.span_us = calloc(s.n + 1, sizeof(*s.span_us));
	s.n_known = calloc(s.n + 1, sizeof(*s.n_known));
	if (!s.wait_us || !s.span_us || !s.n_known)
		rc = err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; rc == 0 && i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++)
			add_log(&s, &nodes[i].ranks[k].log);
	if (rc == 0)
		sum_up(&s, n_logs, job);
	job->has_steps = n_logs > 0;
	free(s.wait_us);
	free(s.span_us);
	free(s.n_known);
	return rc;
}

/* --- what was removed --- */

/* The ranks were replayed each alone, and wait in bursts at other steps than the others. In a job
 * that waits for all of them, one rank's wait is the time in which the others' workers catch up; so
 * the longest wait of each step, summed up, would be several times too much (a model of a
 * synchronous job: 1.6 of two ranks, 4.5 to 7.4 of sixteen). What the rank that waited most would
 * have waited, all in all, was within 3 % of that model in most cases, at worst 30 % below. */
static bool is_known(const struct step_log *log, uint64_t i)
{
	return i < log->n && log->wait_us[i] != STEP_UNKNOWN && log->span_us[i] != STEP_UNKNOWN;
}

static void count_known(uint32_t *n_known, const struct step_log *log)
{
	for (uint64_t i = 0; i < log->n; i++)
		n_known[i] += is_known(log, i);
}

/* Of one rank, in the groups of steps that are known of all. */
static int64_t sum_replay(const uint32_t *n_known, uint32_t n_ranks, const struct step_log *log)
{
	int64_t removed = 0;

	for (uint64_t i = 0; i < log->n; i++)
		if (n_known[i] == n_ranks)
			removed += (int64_t)log->span_us[i] - (int64_t)log->wait_us[i];
	return removed;
}

/* True, with the length and the steps per group of the longest log: each rank of the job has one.
 */
static bool has_replays(struct report_node *nodes, size_t n, struct report_job *job,
			uint64_t *ret_length)
{
	*ret_length = 0;
	job->about_every = 1;
	if (job->n_ranks == 0 || (job->world && job->n_ranks < job->world))
		return false;
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++)
			job->about_every = MAX(job->about_every, nodes[i].ranks[k].replay.every);
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++) {
			struct step_log *log = &nodes[i].ranks[k].replay;

			if (log->n == 0)
				return false;
			step_log_coarsen(log, job->about_every);
			*ret_length = MAX(*ret_length, log->n);
		}
	return true;
}

static int merge_replays(struct report_node *nodes, size_t n, struct report_job *job,
			 struct err *err)
{
	AUTO_FREE uint32_t *n_known = NULL;
	int64_t most = 0;
	uint64_t length;

	job->about_s = -1;
	if (!has_replays(nodes, n, job, &length))
		return 0;
	n_known = calloc(length, sizeof(*n_known));
	if (!n_known)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++)
			count_known(n_known, &nodes[i].ranks[k].replay);
	for (uint64_t i = 0; i < length; i++) {
		job->about_groups += n_known[i] == job->n_ranks;
		job->about_missing += n_known[i] && n_known[i] < job->n_ranks;
	}
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++)
			most = MAX(most,
				   sum_replay(n_known, job->n_ranks, &nodes[i].ranks[k].replay));
	if (job->about_groups)
		job->about_s = (double)most / 1e6;
	return 0;
}

/* Of several ranks the estimate is of another model than the bounds are; the cautious side wins. */
static void reconcile(struct report_job *job)
{
	if (job->about_s < 0)
		return;
	if (job->at_most_s >= 0)
		job->about_s = MIN(job->about_s, job->at_most_s);
	if (!job->about_missing)
		job->at_least_s = MIN(job->at_least_s, job->about_s);
}

static void merge_removed(const struct report_node *nodes, size_t n, struct report_job *job)
{
	bool has_all = job->n_ranks > 0 && (!job->world || job->n_ranks >= job->world);

	job->at_least_s = job->at_most_s = -1;
	for (size_t i = 0; i < n; i++)
		if (nodes[i].is_mount)
			job->at_least_s = MAX(job->at_least_s, nodes[i].at_least_s);
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++) {
			const struct report_rank *r = &nodes[i].ranks[k];
			double waited = (double)r->totals.wait_ns / 1e9;

			job->at_least_s = MAX(job->at_least_s, r->at_least_s);
			has_all = has_all && r->at_most_s >= 0;
			job->slowest_rank_wait_s = MAX(job->slowest_rank_wait_s, waited);
		}
	if (n == 1 && nodes[0].is_mount && nodes[0].at_most_s >= 0 && job->world <= 1) {
		job->at_most_s = nodes[0].at_most_s; /* there is one reader, whoever it is */
		return;
	}
	if (!has_all)
		return;
	job->at_most_s = 0;
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++)
			job->at_most_s += nodes[i].ranks[k].at_most_s;
}

int report_merge(struct report_node *nodes, size_t n, struct report_job *ret, struct err *err)
{
	int rc;

	*ret = (struct report_job){ 0 };
	rc = check_twice(nodes, n, err);
	if (rc == 0)
		rc = check_job(nodes, n, ret, err);
	if (rc == 0)
		rc = check_world(nodes, n, ret, err);
	if (rc == 0)
		rc = check_ranks(nodes, n, ret, err);
	if (rc == 0)
		rc = merge_steps(nodes, n, ret, err);
	if (rc == 0)
		rc = merge_replays(nodes, n, ret, err);
	if (rc < 0)
		return rc;
	merge_removed(nodes, n, ret);
	reconcile(ret);
	return 0;
}
