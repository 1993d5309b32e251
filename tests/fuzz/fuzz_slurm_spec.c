/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as what a job asks for, as its comment, and as the environment of a hook
 * (entries end with a zero). What is accepted has no character that means anything to a shell, and
 * no path that goes up. */
#include <assert.h>
#include <string.h>

#include "clairfs/slurm.h"

#define ENTRIES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void is_harmless(const char *text)
{
	assert(*text && !strpbrk(text, " \t\n,;&|<>$`'\"\\*?[]{}()!#"));
	for (const char *c = text; *c; c++)
		assert((unsigned char)*c > ' ' && (unsigned char)*c < 0x7f);
}

static void check_spec(const char *text, size_t len)
{
	struct slurm_spec spec;
	struct err err = { 0 };

	if (slurm_spec_parse(text, len, &spec, &err) < 0) {
		assert(err.msg[0] && !spec.source);
		return;
	}
	if (!spec.source) {
		assert(len == 3 && memcmp(text, "off", 3) == 0);
		return;
	}
	assert(spec.source[0] == '/' && !strstr(spec.source, "//"));
	assert(!strstr(spec.source, "/../") && !strstr(spec.source, "/./"));
	is_harmless(spec.source);
	assert(spec.n_options <= SLURM_SPEC_OPTIONS);
	for (unsigned i = 0; i < spec.n_options; i++) {
		is_harmless(spec.option[i].value);
		for (unsigned k = 0; k < i; k++)
			assert(strcmp(spec.option[i].key, spec.option[k].key) != 0);
	}
}

static void check_environment(char *text, size_t size)
{
	char *entry[ENTRIES + 1] = { NULL };
	struct slurm_job job;
	struct err err = { 0 };
	size_t n = 0;

	for (char *at = text; at < text + size && n < ENTRIES; at += strlen(at) + 1)
		entry[n++] = at;
	if (slurm_job_parse(entry, &job, &err) < 0) {
		assert(err.msg[0]);
		return;
	}
	assert(job.id > 0 && job.id < UINT32_MAX && job.uid != (uid_t)-1 && job.gid != (gid_t)-1);
	if (job.wish) {
		assert(job.wish >= text && job.wish + job.wish_len <= text + size);
		check_spec(job.wish, job.wish_len);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	const char *at;
	size_t len;

	assert(text);
	memcpy(text, data, size);
	text[size] = 0;
	check_spec(text, size);
	if (slurm_comment_spec(text, &at, &len) == 0) {
		assert(at >= text && at + len <= text + size && !memchr(at, ' ', len));
		check_spec(at, len);
	}
	check_environment(text, size);
	free(text);
	return 0;
}
