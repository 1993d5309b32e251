/* SPDX-License-Identifier: Apache-2.0 */
/* Commands as a library: each has its row, explains itself, and refuses what it does not know with
 * the exit code of a usage error. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include "../../src/cli/cli.h"
#include "../../src/cli/index.h"
#include "check.h"

/* What commands print is not this test's output. */
static int run_quietly(int (*call)(int argc, char **argv), int argc, char **argv)
{
	int kept, none = open("/dev/null", O_WRONLY | O_CLOEXEC), rc;

	fflush(stdout);
	kept = dup(STDOUT_FILENO);
	CHECK(kept >= 0 && none >= 0 && dup2(none, STDOUT_FILENO) >= 0);
	rc = call(argc, argv);
	fflush(stdout);
	CHECK(dup2(kept, STDOUT_FILENO) >= 0);
	close(kept);
	close(none);
	return rc;
}

static int run(const struct command *c, const char *word)
{
	char name[32], option[32];
	char *argv[] = { name, option, NULL };

	snprintf(name, sizeof(name), "%s", c->name);
	snprintf(option, sizeof(option), "%s", word);
	optind = 0; /* getopt starts anew */
	opterr = 0;
	return run_quietly(c->run, 2, argv);
}

static void every_command_explains_itself(void)
{
	for (const struct command *c = commands; c->name; c++) {
		char begin[64];

		snprintf(begin, sizeof(begin), "usage: clairfs %s", c->name);
		CHECK_INT(strncmp(c->usage, begin, strlen(begin)), 0);
		CHECK_INT(run(c, "--help"), EXIT_DONE);
	}
}

static void every_command_refuses_what_it_does_not_know(void)
{
	for (const struct command *c = commands; c->name; c++)
		CHECK_INT(run(c, "--no-such-option"), EXIT_USAGE);
}

static void the_program_picks_a_command_by_its_name(void)
{
	char self[] = "clairfs", wrong[] = "mouny", version[] = "--version", help[] = "help";

	CHECK_INT(run_quietly(cli_main, 1, (char *[]){ self, NULL }), EXIT_USAGE);
	CHECK_INT(run_quietly(cli_main, 2, (char *[]){ self, wrong, NULL }), EXIT_USAGE);
	CHECK_INT(run_quietly(cli_main, 2, (char *[]){ self, version, NULL }), EXIT_DONE);
	CHECK_INT(run_quietly(cli_main, 2, (char *[]){ self, help, NULL }), EXIT_DONE);
}

static int records_word(const char *word, struct index_args *a, struct err *err)
{
	*a = (struct index_args){ .records = word };
	return index_records_parse(a, err);
}

/* What is read, what is advised, what is a slip, and what is nothing. */
static void words_of_index_records(void)
{
	struct index_args a;
	struct err err = { 0 };

	CHECK_INT(records_word("auto", &a, &err), 0);
	CHECK(a.is_auto && a.format == FORMAT_NONE);
	CHECK_INT(records_word("none", &a, &err), 0);
	CHECK(!a.is_auto);
	CHECK_INT(records_word("tar", &a, &err), 0);
	CHECK(!a.is_auto && a.format == FORMAT_TAR);
	CHECK_INT(records_word("arrow", &a, &err), 0);
	CHECK_INT(a.format, FORMAT_ARROW);
	CHECK_INT(records_word("lmdb", &a, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "--import");
	CHECK_INT(records_word("parqet", &a, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "did you mean 'parquet'?");
	CHECK_INT(records_word("", &a, &err), -EINVAL);
	CHECK_INT(records_word("TAR", &a, &err), -EINVAL);
}

static const struct check_test tests[] = {
	{ "every_command_explains_itself", every_command_explains_itself },
	{ "every_command_refuses_what_it_does_not_know",
	  every_command_refuses_what_it_does_not_know },
	{ "words_of_index_records", words_of_index_records },
	{ "the_program_picks_a_command_by_its_name", the_program_picks_a_command_by_its_name },
};

CHECK_MAIN(tests)
