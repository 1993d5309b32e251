/* SPDX-License-Identifier: Apache-2.0 */
/* An option table with one option of each type, for the tests of the option table. */
#ifndef CLAIRFS_TESTS_CONF_SAMPLE_H
#define CLAIRFS_TESTS_CONF_SAMPLE_H

#include "clairfs/base/conf.h"

struct sample {
	bool is_quick;
	uint64_t threads, ram_size;
	int mode;
	char *source, *label;
};

static const char *const sample_modes[] = { "none", "plain", "careful", NULL };

static const struct conf_option sample_options[] = {
	{ "quick", CONF_BOOL, offsetof(struct sample, is_quick), "on", 0, 0, NULL, "Be quick." },
	{ "threads", CONF_U64, offsetof(struct sample, threads), "4", 1, 64, NULL,
	  "How many threads work." },
	{ "ram_size", CONF_BYTES, offsetof(struct sample, ram_size), "1G", 4 << 20, 0, NULL,
	  "How much memory is used. More is better, up to the point where the job itself runs out of it, which is "
	  "where the help text of this option needs its second line." },
	{ "mode", CONF_CHOICE, offsetof(struct sample, mode), "plain", 0, 0, sample_modes,
	  "What to do." },
	{ "source", CONF_TEXT, offsetof(struct sample, source), "", 0, 0, NULL, "Where from." },
	{ "label", CONF_TEXT, offsetof(struct sample, label), "none", 0, 0, NULL, "A name." },
	{ 0 },
};

static const struct conf_table sample_table = { .options = sample_options, .section = "mount" };

#endif
