/* SPDX-License-Identifier: Apache-2.0 */
/* The program. All of it is a library (cli.c), which tests can link. */
#include "cli.h"

int main(int argc, char **argv)
{
	return cli_main(argc, argv);
}
