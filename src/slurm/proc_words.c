/* SPDX-License-Identifier: Apache-2.0 */
/* What texts of /proc say about a process, and squeue about jobs. Any user chooses the name,
 * arguments and environment of theirs. Pure. */
#include <string.h>

#include "clairfs/base/text.h"
#include "slurm_priv.h"

#define START_FIELD 22 /* of /proc/PID/stat, counted from 1 */

bool slurm_words_start(const char *stat, size_t len, uint64_t *ret)
{
	/* "17 (a name) with )) (blanks) S 1 ...": the name ends at the last parenthesis. */
	const char *at = memrchr(stat, ')', len), *end = stat + len;
	char word[24];
	size_t n = 0;

	for (int field = 2; at && field < START_FIELD; field++) {
		at = memchr(at, ' ', (size_t)(end - at));
		at = at ? at + 1 : NULL;
	}
	while (at && at + n < end && at[n] != ' ' && n < sizeof(word) - 1)
		n++;
	if (!at || n == 0 || memchr(at, 0, n))
		return false;
	memcpy(word, at, n);
	word[n] = 0;
	return text_to_u64(word, ret) == 0;
}

bool slurm_words_is_of_job(const char *environ_text, size_t len, uint32_t job)
{
	const char *at = environ_text, *end = environ_text + len;
	char want[40];
	size_t n = (size_t)snprintf(want, sizeof(want), "SLURM_JOB_ID=%u", job);

	while (at < end) {
		const char *stop = memchr(at, 0, (size_t)(end - at));
		size_t size = stop ? (size_t)(stop - at) : (size_t)(end - at);

		if (size == n && memcmp(at, want, n) == 0)
			return true;
		at += size + 1;
	}
	return false;
}

bool slurm_words_is_slurmstepd(const char *status, size_t len)
{
	static const char name[] = "Name:\tslurmstepd\n", root[] = "\nUid:\t0\t0\t0\t0\n";

	/* A newline in a name is written as \n: the second cannot come from there. */
	return len >= strlen(name) && memcmp(status, name, strlen(name)) == 0 &&
	       memmem(status, len, root, strlen(root));
}

bool slurm_words_is_step(const char *cmdline, size_t len, uint32_t job)
{
	char want[40];
	size_t n = (size_t)snprintf(want, sizeof(want), "slurmstepd: [%u.", job);

	return len >= n && memcmp(cmdline, want, n) == 0;
}

bool slurm_words_is_over(const char *answer, uint32_t job)
{
	static const char *const over[] = { "BOOT_FAIL", "CANCELLED",	  "COMPLETED", "DEADLINE",
					    "FAILED",	 "NODE_FAIL",	  "PREEMPTED", "REVOKED",
					    "TIMEOUT",	 "OUT_OF_MEMORY", NULL };
	char want[16];
	size_t n = (size_t)snprintf(want, sizeof(want), "%u", job);
	bool is_over = true;

	for (const char *at = answer; *at && is_over;) {
		size_t len = strcspn(at, "\n");

		if (len >= n && memcmp(at, want, n) == 0 && (len == n || at[n] == ' ')) {
			const char *state = at + MIN(n + 1, len);
			size_t size = (size_t)(at + len - state);

			is_over = false;
			for (int i = 0; over[i]; i++)
				is_over |= strlen(over[i]) == size &&
					   memcmp(over[i], state, size) == 0;
		}
		at += len + (at[len] == '\n');
	}
	return is_over;
}
