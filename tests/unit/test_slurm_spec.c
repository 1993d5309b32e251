/* SPDX-License-Identifier: Apache-2.0 */
/* What a job may ask for and what it may not, and which of its words counts. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "src/slurm/slurm_priv.h"

static int parse(const char *text, struct slurm_spec *spec, struct err *err)
{
	*err = (struct err){ 0 };
	return slurm_spec_parse(text, strlen(text), spec, err);
}

static void a_source_and_options_are_taken(void)
{
	struct slurm_spec spec;
	struct err err;

	CHECK_INT(parse("/lustre/a-b_c.d+e@f%g:h=i~j,"
			"order=torch-distributed:seed=1:ranks=0-3,ram=2G",
			&spec, &err),
		  0);
	CHECK_STR(spec.source, "/lustre/a-b_c.d+e@f%g:h=i~j");
	CHECK_INT(spec.n_options, 2);
	CHECK_STR(spec.option[0].key, "order");
	CHECK_STR(spec.option[0].value, "torch-distributed:seed=1:ranks=0-3");
	CHECK_STR(spec.option[1].value, "2G");
	CHECK_INT(parse("/", &spec, &err), -EINVAL);
	CHECK_INT(parse("/...", &spec, &err), 0);
	CHECK_INT(parse("/a/", &spec, &err), 0);
}

static void off_is_nothing(void)
{
	struct slurm_spec spec;
	struct err err;

	CHECK_INT(parse("off", &spec, &err), 0);
	CHECK(spec.source == NULL);
	CHECK_INT(parse("off,ram=1G", &spec, &err), -EINVAL);
}

static void refuses(const char *text, const char *why)
{
	struct slurm_spec spec;
	struct err err;

	CHECK_INT(parse(text, &spec, &err), -EINVAL);
	if (!strstr(err.msg, why))
		printf("# %s: %s\n", text, err.msg);
	CHECK(strstr(err.msg, why) != NULL);
	CHECK(spec.source == NULL);
}

static void what_is_no_spec_is_refused_with_a_reason(void)
{
	static char huge[SLURM_SPEC_MAX + 1];

	refuses("", "empty");
	refuses("a/b", "no absolute path");
	refuses("/a//b", "empty");
	refuses("/a/./b", "..");
	refuses("/a/..", "..");
	refuses("/a b", "byte 3");
	refuses("/a\nb", "'\\n'");
	refuses("/a$b", "'$'");
	refuses("/a`b", "byte 3");
	refuses("/a\\,b", "byte 3");
	refuses("/a\xc3\xa9", "'\\xc3'");
	refuses("/a,", "KEY=VALUE");
	refuses("/a,ram", "KEY=VALUE");
	refuses("/a,ram=", "KEY=VALUE");
	refuses("/a,=1G", "KEY=VALUE");
	refuses("/a,rem=1G", "did you mean 'ram'");
	refuses("/a,allow_other=on", "may not set");
	refuses("/a,debug=stagers=8", "may not set");
	refuses("/a,ram=1G,ram=2G", "twice");
	memset(huge, 'a', SLURM_SPEC_MAX);
	huge[0] = '/';
	refuses(huge, "longer");
}

static void one_word_of_the_comment_counts(void)
{
	const char *at;
	size_t len;

	CHECK_INT(slurm_comment_spec("clairfs:/a", &at, &len), 0);
	CHECK_INT(len, 2);
	CHECK_INT(slurm_comment_spec("  words clairfs:/a,ram=1G words", &at, &len), 0);
	CHECK(len == strlen("/a,ram=1G") && memcmp(at, "/a,ram=1G", len) == 0);
	CHECK_INT(slurm_comment_spec("notclairfs:/a", &at, &len), -ENOENT);
	CHECK_INT(slurm_comment_spec("", &at, &len), -ENOENT);
	CHECK_INT(slurm_comment_spec("clairfs:/a clairfs:/a", &at, &len), -EINVAL);
	CHECK_INT(slurm_comment_spec("clairfs:", &at, &len), 0);
	CHECK_INT(len, 0);
}

static int job_of(char **environment, struct slurm_job *job)
{
	struct err err = { 0 };
	int rc = slurm_job_parse(environment, job, &err);

	CHECK((rc < 0) == (err.msg[0] != 0));
	return rc;
}

static void the_environment_says_who_and_what(void)
{
	char id[] = "SLURM_JOB_ID=17", uid[] = "SLURM_JOB_UID=1000", gid[] = "SLURM_JOB_GID=0",
	     comment[] = "SLURM_JOB_COMMENT=clairfs:/a",
	     option[] = "SPANK__SLURM_SPANK_OPTION_clairfs_clairfs=/b";
	char *plain[] = { id, uid, gid, NULL }, *told[] = { id, uid, gid, comment, NULL },
	     *both[] = { id, uid, gid, comment, option, NULL };
	struct slurm_job job;

	CHECK_INT(job_of(plain, &job), 0);
	CHECK(job.id == 17 && job.uid == 1000 && job.gid == 0 && !job.wish);
	CHECK_INT(job_of(told, &job), 0);
	CHECK_STR(job.wish, "/a");
	CHECK_INT(job_of(both, &job), 0);
	CHECK_STR(job.wish, "/b");
}

static void a_damaged_environment_is_refused(void)
{
	char uid[] = "SLURM_JOB_UID=1000", gid[] = "SLURM_JOB_GID=0", prefix[] = "SLURM_JOB_ID";
	static const char *const bad[] = { "",	 "0",	       "-1", "1 ",
					   "0x1", "4294967295", "1;2", "99999999999999999999" };
	struct slurm_job job;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char id[64], *environment[] = { uid, gid, id, NULL };

		snprintf(id, sizeof(id), "SLURM_JOB_ID=%s", bad[i]);
		CHECK_INT(job_of(environment, &job), -EINVAL);
	}
	CHECK_INT(job_of((char *[]){ uid, gid, prefix, NULL }, &job), -EINVAL);
	CHECK_INT(job_of((char *[]){ NULL }, &job), -EINVAL);
	CHECK_INT(job_of(NULL, &job), -EINVAL);
}

static void what_a_job_may_ask_for_has_a_bound(void)
{
	const uint64_t gib = 1ull << 30;
	struct slurm_site site;
	struct err err = { 0 };

	CHECK_INT(conf_init(&slurm_site_table, &site, &err), 0);
	CHECK(slurm_ram_max(&site, 512 * gib) == 32 * gib);
	CHECK(slurm_ram_max(&site, 0) == 64ull << 20);
	CHECK_INT(conf_set(&slurm_site_table, &site, "ram_max", "3G", &err), 0);
	CHECK(slurm_ram_max(&site, 512 * gib) == 3 * gib);
	CHECK_INT(conf_set(&slurm_site_table, &site, "ram_max", "0", &err), 0);
	CHECK(slurm_ram_max(&site, 512 * gib) == UINT64_MAX);
	conf_fini(&slurm_site_table, &site);
}

static const struct check_test tests[] = {
	{ "what_a_job_may_ask_for_has_a_bound", what_a_job_may_ask_for_has_a_bound },
	{ "a_source_and_options_are_taken", a_source_and_options_are_taken },
	{ "off_is_nothing", off_is_nothing },
	{ "what_is_no_spec_is_refused_with_a_reason", what_is_no_spec_is_refused_with_a_reason },
	{ "one_word_of_the_comment_counts", one_word_of_the_comment_counts },
	{ "the_environment_says_who_and_what", the_environment_says_who_and_what },
	{ "a_damaged_environment_is_refused", a_damaged_environment_is_refused },
};

int main(int argc, char **argv)
{
	return check_main(argc, argv, tests, ARRAY_LEN(tests));
}
