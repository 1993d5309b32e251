/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_kit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static int kit_open(struct sim_kit *kit, const char *fmt, va_list args)
	__attribute__((format(printf, 2, 0)));
static int kit_open(struct sim_kit *kit, const char *fmt, va_list args)
{
	struct err err = { 0 };
	char list[1024];
	int rc;

	*kit = (struct sim_kit){ .setup = NULL };
	vsnprintf(list, sizeof(list), fmt, args);
	CHECK_INT(conf_init(&sim_option_table, &kit->params, &err), 0);
	rc = conf_set_list(&sim_option_table, &kit->params, list, &err);
	if (rc == 0)
		rc = sim_setup_new(&kit->params, NULL, &kit->setup, &err);
	if (rc < 0)
		printf("# %s: %s\n", list, err.msg);
	return rc;
}

void sim_kit_open(struct sim_kit *kit, const char *fmt, ...)
{
	va_list args;
	int rc;

	va_start(args, fmt);
	rc = kit_open(kit, fmt, args);
	va_end(args);
	CHECK_INT(rc, 0);
}

bool sim_kit_is_possible(struct sim_kit *kit, const char *fmt, ...)
{
	va_list args;
	int rc;

	va_start(args, fmt);
	rc = kit_open(kit, fmt, args);
	va_end(args);
	if (rc < 0) {
		CHECK_INT(rc, -EINVAL);
		sim_kit_close(kit);
	}
	return rc == 0;
}

void sim_kit_close(struct sim_kit *kit)
{
	sim_result_fini(&kit->result);
	sim_setup_free(kit->setup);
	conf_fini(&sim_option_table, &kit->params);
}

const struct sim_result *sim_kit_run(struct sim_kit *kit, const char *policy)
{
	struct err err = { 0 };
	int rc;

	sim_result_fini(&kit->result);
	rc = sim_run(kit->setup, policy, NULL, &kit->result, &err);
	if (rc < 0)
		printf("# %s: %s\n", policy, err.msg);
	CHECK_INT(rc, 0);
	return &kit->result;
}

uint64_t sim_kit_source_reads(const char *policy, const char *options)
{
	const struct sim_result *r;
	struct sim_kit kit;
	uint64_t reads = 0;

	sim_kit_open(&kit, "%s", options);
	r = sim_kit_run(&kit, policy);
	for (uint64_t e = 0; e < r->n_epochs; e++)
		reads += r->epoch[e].source_reads;
	sim_kit_close(&kit);
	return reads;
}

const char *sim_kit_trace(const uint32_t *samples, uint32_t length, char out[SIM_KIT_PATH])
{
	AUTO_FREE char *path = NULL;
	char text[4096];
	size_t used = 0;

	for (uint32_t i = 0; i < length; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%u\n", samples[i]);
	path = check_write_file("trace", text, used);
	snprintf(out, SIM_KIT_PATH, "%s", path);
	return out;
}
