/* SPDX-License-Identifier: Apache-2.0 */
/* Commands: one row each in main.c. A command gets its own argv (argv[0] is its name) and returns
 * an exit code. */
#ifndef CLAIRFS_CLI_H
#define CLAIRFS_CLI_H

#include "clairfs/base/err.h"

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary; /* one line of `clairfs help` */
	const char *usage;   /* printed by --help, to stdout */
};
extern const struct command commands[]; /* ends with name == NULL */

int cmd_bench(int argc, char **argv);
int cmd_mount(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_umount(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_caps(int argc, char **argv);
int cmd_order(int argc, char **argv);
int cmd_announce(int argc, char **argv);
int cmd_index(int argc, char **argv);
int cmd_recover(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_store(int argc, char **argv);
int cmd_simulate(int argc, char **argv);

/* The whole program. Returns the exit code. */
int cli_main(int argc, char **argv);

/* One line on stderr; usage errors point at --help. Both return the exit code. */
int cli_fail(const struct err *err);
int cli_usage(const char *command, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The same after getopt_long has returned '?': names the option. */
int cli_bad_option(const char *command, char **argv);
/* Prints a command's usage to stdout. */
int cli_help(const char *command);
/* Flushes stdout; EXIT_FAILED with one line when something could not be written (a full disk, a
 * closed pipe is fine). */
int cli_finish(void);

#endif
