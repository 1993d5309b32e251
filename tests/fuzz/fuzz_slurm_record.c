/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as the record and the status that one hook leaves for the next. What is
 * accepted is printed as it was read, whatever the order of its lines was. */
#include <assert.h>
#include <string.h>

#include "src/slurm/slurm_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_record(const char *text, size_t size)
{
	struct slurm_record record, again;
	char printed[SLURM_RECORD_MAX];

	if (slurm_record_parse(text, size, &record) < 0)
		return;
	assert(record.job > 0 && record.pid >= 0);
	slurm_record_print(&record, printed);
	assert(slurm_record_parse(printed, strlen(printed), &again) == 0);
	assert(again.job == record.job && again.uid == record.uid && again.gid == record.gid &&
	       again.pid == record.pid && again.start == record.start);
	assert(strcmp(again.spec, record.spec) == 0 && strcmp(again.cgroup, record.cgroup) == 0);
}

static void check_status(const char *text, size_t size)
{
	struct slurm_status status, again;
	char printed[SLURM_STATUS_MAX];

	if (slurm_status_parse(text, size, &status) < 0)
		return;
	slurm_status_print(&status, printed);
	assert(slurm_status_parse(printed, strlen(printed), &again) == 0);
	assert(again.state == status.state && strcmp(again.source, status.source) == 0);
	for (const char *c = again.why; *c; c++)
		assert((unsigned char)*c >= ' ');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_record((const char *)data, size);
	check_status((const char *)data, size);
	return 0;
}
