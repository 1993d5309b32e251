/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any text as /proc/PID/stat, status or statm. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "clairfs/base/proc_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	struct proc_stat stat;
	uint64_t pages;

	assert(text);
	assert(proc_parse_tgid(text) >= 0);
	(void)proc_parse_statm(text, &pages);
	if (proc_parse_stat(text, &stat))
		assert(memchr(stat.name, 0, sizeof(stat.name)) && stat.state != ' ');
	free(text);
	return 0;
}
