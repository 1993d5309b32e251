/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job for people (a table) and for programs (JSON). What is not known is not printed as a number,
 * and every number that is a bound says which. Bytes, reads and CPU time of nodes are added up; GPU
 * wait never is (merge.c), and both formats say so where only numbers of single ranks exist.
 *
 * One thread; writes to the stream it is given.
 */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/report.h"

struct sums {
	uint64_t reads, read_bytes, source_reads, source_bytes, least, control_reads;
	double mounted_s, cpu_s, control_s;
	size_t mounts;
	bool has_least;
};

static struct sums add_up(const struct report_node *nodes, size_t n)
{
	struct sums s = { .has_least = true };

	for (size_t i = 0; i < n; i++) {
		if (!nodes[i].is_mount)
			continue;
		s.mounts++;
		s.reads += nodes[i].reads;
		s.read_bytes += nodes[i].read_bytes;
		s.source_reads += nodes[i].source_reads;
		s.source_bytes += nodes[i].source_bytes;
		s.least += nodes[i].least_source_bytes;
		s.has_least = s.has_least && nodes[i].has_least;
		s.control_reads += nodes[i].control_reads;
		s.mounted_s = MAX(s.mounted_s, nodes[i].mounted_s);
		s.cpu_s += nodes[i].cpu_s;
		s.control_s += nodes[i].control_s;
	}
	s.has_least = s.has_least && s.mounts > 0;
	return s;
}

static void print_seconds(FILE *out, double seconds, int width)
{
	if (seconds < 0)
		fprintf(out, "%*s", width, "-");
	else
		fprintf(out, "%*.3f", width, seconds);
}

static void print_ranks(const struct report_node *nodes, size_t n, FILE *out)
{
	fprintf(out, "%6s  %-20s %9s %11s %7s %11s %11s %11s\n", "rank", "node", "steps",
		"waited s", "AU %", "removed >=", "about", "<= s");
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++) {
			const struct report_rank *r = &nodes[i].ranks[k];

			fprintf(out, "%6" PRIu32 "  %-20.20s ", r->rank,
				nodes[i].host[0] ? nodes[i].host : "-");
			if (r->has_steps)
				fprintf(out, "%9" PRIu64 " %11.3f %7.2f ", r->totals.steps,
					(double)r->totals.wait_ns / 1e9,
					step_au_percent(&r->totals));
			else
				fprintf(out, "%9s %11s %7s ", "-", "-", "-");
			print_seconds(out, r->at_least_s, 11);
			print_seconds(out, r->hook_s >= 0 ? r->hook_s : r->replay_s, 12);
			print_seconds(out, r->at_most_s, 12);
			fprintf(out, "\n");
		}
}

static void print_wait(const struct report_job *job, FILE *out)
{
	if (!job->has_steps) {
		fprintf(out, "GPU wait   not known: no training loop has told its steps "
			     "(clairfs.watch)\n");
		return;
	}
	fprintf(out,
		"GPU wait   %.3f s in %.3f s of steps: the slowest rank of each step; utilisation "
		"%.2f %%\n",
		job->wait_s, job->span_s, job->au_percent);
	if (job->every > 1)
		fprintf(out, "           at least: steps are known in groups of %" PRIu64 " only\n",
			job->every);
	if (job->world && job->n_ranks < job->world)
		fprintf(out, "           at least: %" PRIu32 " of %" PRIu32 " ranks are here\n",
			job->n_ranks, job->world);
	if (job->incomplete)
		fprintf(out,
			"           at least: %" PRIu64 " of %" PRIu64
			" of them are not known of every rank\n",
			job->incomplete, job->n_groups);
	if (job->has_restarts)
		fprintf(out, "           some ranks were started again: these are the steps of "
			     "their last processes\n");
}

/* What each node and rank says of its passes, together; the estimate of the only rank is its own.
 */
static struct removed_numbers removed_of(const struct report_node *nodes, size_t n,
					 const struct report_job *job)
{
	struct removed_numbers r = { .lower_s = job->at_least_s,
				     .upper_s = job->at_most_s,
				     .estimate_s = job->about_s,
				     .source = job->about_s >= 0 ? REMOVED_BY_STEPS : NULL };
	const struct report_rank *only = NULL;

	for (size_t i = 0; i < n; i++) {
		r.passes += nodes[i].passes;
		r.unjudged += nodes[i].unjudged;
		r.page_cache_s += nodes[i].page_cache_s;
		r.judged_s = MAX(r.judged_s, nodes[i].judged_s);
		r.reads += nodes[i].accounted;
		r.unplaced += nodes[i].unplaced;
		r.why = nodes[i].why[0] ? nodes[i].why : r.why;
		r.unjudged_why = nodes[i].unjudged_why[0] ? nodes[i].unjudged_why : r.unjudged_why;
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++) {
			only = &nodes[i].ranks[k];
			r.passes += only->passes;
			r.unjudged += only->unjudged;
			r.page_cache_s += only->page_cache_s;
			r.judged_s = MAX(r.judged_s, only->judged_s);
		}
	}
	if (only && job->n_ranks == 1 && (only->hook_s >= 0 || only->replay_s >= 0)) {
		r.estimate_s = only->hook_s >= 0 ? only->hook_s : only->replay_s;
		r.source = only->hook_s >= 0 ? REMOVED_BY_HOOK : REMOVED_BY_REPLAY;
	}
	if (job->at_least_s < 0)
		r.passes = 0;
	return r;
}

static void print_removed(const struct report_node *nodes, size_t n, const struct report_job *job,
			  FILE *out)
{
	struct removed_numbers r = removed_of(nodes, n, job);
	static const char label[] = "removed ";
	char words[600];
	size_t skip;

	removed_words(&r, words, sizeof(words));
	skip = strncmp(words, label, strlen(label)) == 0 ? strlen(label) : 0; /* not twice */
	fprintf(out, "removed    %s\n", words + skip);
	if (r.passes && job->n_ranks > 1 && job->at_most_s >= 0)
		fprintf(out, "           at most: an upper bound for the job, the sum of its "
			     "ranks'; at least: of the rank that gained most\n");
	if (r.passes && job->n_ranks > 1 && job->about_s < 0)
		fprintf(out, "           no estimate for the job: it needs the steps of all ranks, "
			     "replayed\n");
	else if (r.passes && job->n_ranks > 1 && job->about_missing)
		fprintf(out,
			"           about: of %" PRIu64 " of %" PRIu64
			" steps, in groups of %" PRIu64 "; the rest is not known of every "
			"rank\n",
			job->about_groups, job->about_groups + job->about_missing,
			job->about_every);
}

static void print_data(const struct sums *s, FILE *out)
{
	char a[32], b[32], c[32];

	if (s->mounts == 0)
		return;
	fprintf(out, "read       %" PRIu64 " samples, %s\n", s->reads,
		text_from_bytes(s->read_bytes, a, sizeof(a)));
	fprintf(out, "source     %" PRIu64 " reads, %s", s->source_reads,
		text_from_bytes(s->source_bytes, b, sizeof(b)));
	if (s->has_least)
		fprintf(out, "; at least %s with these caches",
			text_from_bytes(s->least, c, sizeof(c)));
	fprintf(out, "\n");
	if (s->control_reads)
		fprintf(out, "control    %" PRIu64 " reads left to the source on purpose, %.3f s\n",
			s->control_reads, s->control_s);
	fprintf(out, "daemons    %.2f s of CPU\n", s->cpu_s);
}

void report_print(const struct report_node *nodes, size_t n, const struct report_job *job,
		  FILE *out)
{
	struct sums s = add_up(nodes, n);

	fprintf(out, "job        %s: %zu %s, %" PRIu32 " rank%s", job->job[0] ? job->job : "-", n,
		s.mounts == n ? n == 1 ? "node" : "nodes"
		: n == 1      ? "file"
			      : "files",
		job->n_ranks, job->n_ranks == 1 ? "" : "s");
	if (job->world)
		fprintf(out, " of %" PRIu32, job->world);
	if (s.mounts)
		fprintf(out, ", mounted for %.0f s", s.mounted_s);
	fprintf(out, "\n");
	print_wait(job, out);
	print_removed(nodes, n, job, out);
	print_data(&s, out);
	if (job->n_ranks)
		print_ranks(nodes, n, out);
}

/* --- JSON --- */

static json_t *known(double seconds)
{
	return seconds < 0 ? json_null() : json_real(seconds);
}

static json_t *rank_json(const struct report_node *node, const struct report_rank *r)
{
	json_t *steps = json_null();

	if (r->has_steps)
		steps = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:I}", "count",
				  (json_int_t)r->totals.steps, "wait_seconds",
				  (double)r->totals.wait_ns / 1e9, "first_wait_seconds",
				  (double)r->totals.first_wait_ns / 1e9, "max_wait_seconds",
				  (double)r->totals.max_wait_ns / 1e9, "span_seconds",
				  (double)r->totals.span_ns / 1e9, "au_percent",
				  step_au_percent(&r->totals), "restarts", (json_int_t)r->restarts);
	return json_pack("{s:I, s:s, s:o, s:{s:o, s:o, s:o, s:o}}", "rank", (json_int_t)r->rank,
			 "host", node->host, "steps", steps, "removed", "at_least_seconds",
			 known(r->at_least_s), "at_most_seconds", known(r->at_most_s),
			 "replay_seconds", known(r->replay_s), "hook_seconds", known(r->hook_s));
}

static json_t *ranks_json(const struct report_node *nodes, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < nodes[i].n_ranks; k++)
			if (json_array_append_new(list, rank_json(&nodes[i], &nodes[i].ranks[k])) <
			    0) {
				json_decref(list);
				return NULL;
			}
	return list;
}

static json_t *wait_json(const struct report_job *job)
{
	if (!job->has_steps)
		return json_null();
	return json_pack("{s:f, s:f, s:f, s:I, s:I, s:I, s:b, s:b}", "wait_seconds", job->wait_s,
			 "span_seconds", job->span_s, "au_percent", job->au_percent, "groups",
			 (json_int_t)job->n_groups, "steps_per_group", (json_int_t)job->every,
			 "groups_not_of_every_rank", (json_int_t)job->incomplete, "is_lower_bound",
			 job->every > 1 || job->incomplete ||
				 (job->world && job->n_ranks < job->world),
			 "has_restarts", job->has_restarts);
}

char *report_to_json(const struct report_node *nodes, size_t n, const struct report_job *job)
{
	struct removed_numbers r = removed_of(nodes, n, job);
	struct sums s = add_up(nodes, n);
	json_t *root, *data, *removed;
	char *text, *line = NULL, words[600];

	data = json_pack("{s:I, s:I, s:I, s:I, s:o, s:I, s:f}", "reads", (json_int_t)s.reads,
			 "read_bytes", (json_int_t)s.read_bytes, "source_reads",
			 (json_int_t)s.source_reads, "source_bytes", (json_int_t)s.source_bytes,
			 "least_source_bytes",
			 s.has_least ? json_integer((json_int_t)s.least) : json_null(),
			 "control_reads", (json_int_t)s.control_reads, "control_seconds",
			 s.control_s);
	removed_words(&r, words, sizeof(words));
	removed = json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:I}", "words", words,
			    "at_least_seconds", known(job->at_least_s),
			    "upper_bound_for_the_job_seconds", known(job->at_most_s),
			    "estimate_seconds", known(r.source ? r.estimate_s : -1),
			    "estimate_groups", (json_int_t)job->about_groups,
			    "estimate_groups_missing", (json_int_t)job->about_missing,
			    "estimate_steps_per_group", (json_int_t)job->about_every);
	root = json_pack("{s:s, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:f, s:o}", "job", job->job,
			 "nodes", (json_int_t)s.mounts, "world", (json_int_t)job->world,
			 "ranks_here", (json_int_t)job->n_ranks, "mounted_seconds", s.mounted_s,
			 "gpu_wait", wait_json(job), "removed", removed, "data", data,
			 "daemon_cpu_seconds", s.cpu_s, "ranks", ranks_json(nodes, n));
	text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
	json_decref(root);
	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
}

static json_t *list_json(const uint32_t *values, uint64_t first, uint64_t n)
{
	json_t *list = json_array();

	for (uint64_t i = first; i < n; i++)
		if (json_array_append_new(list, values[i] == STEP_UNKNOWN
							? json_null()
							: json_integer((json_int_t)values[i])) <
		    0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

void *step_log_to_json(struct step_log *log, const char *const names[2], uint64_t entries)
{
	uint64_t first = 0, every = MAX(log->every, 1);

	while (log->n && DIV_ROUND_UP(log->n * log->every, every) > entries)
		every *= 2;
	step_log_coarsen(log, every);
	while (first < log->n && log->wait_us[first] == STEP_UNKNOWN)
		first++;
	return json_pack("{s:I, s:I, s:o, s:o}", "every", (json_int_t)every, "first",
			 (json_int_t)first, names[0], list_json(log->wait_us, first, log->n),
			 names[1], list_json(log->span_us, first, log->n));
}
