/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of /proc. Any bytes with a zero behind may be given: nothing is believed but what is
 * checked. Pure. */
#ifndef CLAIRFS_BASE_PROC_TEXT_H
#define CLAIRFS_BASE_PROC_TEXT_H

#include <stdbool.h>
#include <stdint.h>

struct proc_stat {
	char name[64]; /* its own choice */
	char state;
	uint64_t parent, session, start;
	uint64_t code_end; /* likewise: without random addresses stacks alone may be alike */
	uint64_t stack; /* where it began, the same after a fork; 0: not shown to us */
};

/* /proc/PID/stat, which is changed. False: it is not one. */
bool proc_parse_stat(char *text, struct proc_stat *ret);
/* The process that /proc/TID/status names, or 0. */
int proc_parse_tgid(const char *text);
/* Resident pages of /proc/PID/statm. False: it is not one. */
bool proc_parse_statm(const char *text, uint64_t *ret_resident);

#endif
