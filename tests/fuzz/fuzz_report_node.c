/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a node's report or as records of steps. What is accepted can be merged
 * with itself only if it has neither a rank nor a mount, and can be shown. */
#include <assert.h>
#include <string.h>

#include "clairfs/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void show(struct report_node *node)
{
	struct err err = { 0 };
	struct report_job job;
	char *shown = NULL, *json;
	size_t length;
	FILE *out;
	int rc = report_merge(node, 1, &job, &err);

	assert(rc == 0 || strstr(err.msg, "world")); /* its ranks say different ones */
	if (rc < 0)
		return;
	assert(job.wait_s >= 0 && job.au_percent >= 0 && job.au_percent <= 100);
	json = report_to_json(node, 1, &job);
	assert(json);
	out = open_memstream(&shown, &length);
	assert(out);
	report_print(node, 1, &job, out);
	fclose(out);
	free(shown);
	free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct report_node twice[2];
	struct err err = { 0 };
	struct report_job job;
	int rc = report_node_parse(data, size, &twice[0], &err);

	assert(rc == 0 || (err.msg[0] && !strchr(err.msg, '\n')));
	if (rc < 0)
		return 0;
	rc = report_node_parse(data, size, &twice[1], &err);
	assert(rc == 0);
	if (report_merge(twice, 2, &job, &err) == 0)
		assert(twice[0].n_ranks == 0 && !twice[0].is_mount);
	show(&twice[0]);
	report_node_fini(&twice[0]);
	report_node_fini(&twice[1]);
	return 0;
}
