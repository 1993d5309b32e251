/* SPDX-License-Identifier: Apache-2.0 */
/* Per-rank numbers as Prometheus text and JSON. Values are copied into atomics row by row: a reader
 * may see one rank's rows of two moments a second apart, never a torn number. Only ranks that were
 * set are shown, so a mount without accounting has no such lines. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "clairfs/metrics/ranks.h"
#include "metrics_priv.h"

struct row {
	const char *key, *name, *labels, *help;
	enum metric_unit unit;
};

#define RANK_ROW(field, unit, key, name, labels, help)                                             \
	{ key, name, labels, help, METRIC_UNIT_##unit },
#define NODE_ROW(field, unit, key, name, help) { key, name, "", help, METRIC_UNIT_##unit },
/* clang-format off */
static const struct row rank_rows[] = { METRICS_RANK_LIST(RANK_ROW) };
static const struct row node_rows[] = { METRICS_NODE_LIST(NODE_ROW) };
/* clang-format on */
_Static_assert(ARRAY_LEN(rank_rows) == METRICS_RANK_ROWS, "one cell per row");
_Static_assert(ARRAY_LEN(node_rows) == METRICS_NODE_ROWS, "one cell per row");

static void rank_values(const struct stall_numbers *n, uint64_t out[METRICS_RANK_ROWS])
{
	uint32_t i = 0;

#define RANK_VALUE(field, unit, key, name, labels, help) out[i++] = n->field;
	METRICS_RANK_LIST(RANK_VALUE)
#undef RANK_VALUE
}

static void node_values(const struct stall_node *n, uint64_t out[METRICS_NODE_ROWS])
{
	uint32_t i = 0;

#define NODE_VALUE(field, unit, key, name, help) out[i++] = n->field;
	METRICS_NODE_LIST(NODE_VALUE)
#undef NODE_VALUE
}

static void store(_Atomic uint64_t *cells, const uint64_t *values, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		atomic_store_explicit(&cells[i], values[i], memory_order_relaxed);
}

void metrics_rank_set(struct metrics *m, const struct stall_numbers *numbers)
{
	uint64_t values[METRICS_RANK_ROWS];
	uint32_t n, at = 0;

	if (!m)
		return;
	n = atomic_load(&m->ranks.n);
	while (at < n && m->ranks.number[at] != numbers->rank)
		at++;
	if (at == STALL_RANKS_MAX)
		return;
	rank_values(numbers, values);
	store(m->ranks.cells[at], values, METRICS_RANK_ROWS);
	if (at < n)
		return;
	m->ranks.number[at] = numbers->rank;
	atomic_store(&m->ranks.n, n + 1); /* publishes the number */
}

void metrics_node_set(struct metrics *m, const struct stall_node *node)
{
	uint64_t values[METRICS_NODE_ROWS];

	if (!m)
		return;
	node_values(node, values);
	store(m->ranks.node, values, METRICS_NODE_ROWS);
}

static void print_value(const struct row *row, uint64_t value, struct buf_writer *out)
{
	if (row->unit == METRIC_UNIT_NS)
		buf_printf(out, " %" PRIu64 ".%09" PRIu64 "\n", value / 1000000000,
			   value % 1000000000);
	else
		buf_printf(out, " %" PRIu64 "\n", value);
}

static void print_head(const struct row *rows, uint32_t i, struct buf_writer *out)
{
	if (i == 0 || strcmp(rows[i].name, rows[i - 1].name) != 0)
		buf_printf(out, "# HELP clairfs_%s %s\n# TYPE clairfs_%s counter\n", rows[i].name,
			   rows[i].help, rows[i].name);
}

void metrics_print_ranks(const struct metrics *m, struct buf_writer *out)
{
	uint32_t n = m ? atomic_load(&m->ranks.n) : 0;

	for (uint32_t i = 0; i < METRICS_NODE_ROWS; i++) {
		print_head(node_rows, i, out);
		buf_printf(out, "clairfs_%s", node_rows[i].name);
		print_value(&node_rows[i], m ? atomic_load(&m->ranks.node[i]) : 0, out);
	}
	for (uint32_t i = 0; i < METRICS_RANK_ROWS && n; i++) {
		print_head(rank_rows, i, out);
		for (uint32_t r = 0; r < n; r++) {
			buf_printf(out, "clairfs_%s{rank=\"%u\"%s}", rank_rows[i].name,
				   m->ranks.number[r], rank_rows[i].labels);
			print_value(&rank_rows[i], atomic_load(&m->ranks.cells[r][i]), out);
		}
	}
}

static int to_json(const struct row *rows, const uint64_t *values, uint32_t n, json_t *json)
{
	int bad = 0;

	for (uint32_t i = 0; i < n; i++)
		bad |= json_object_set_new(json, rows[i].key,
					   rows[i].unit == METRIC_UNIT_NS
						   ? json_real((double)values[i] / 1e9)
						   : json_integer((json_int_t)values[i]));
	return bad ? -ENOMEM : 0;
}

int metrics_rank_to_json(const struct stall_numbers *numbers, void *json)
{
	uint64_t values[METRICS_RANK_ROWS];

	rank_values(numbers, values);
	return to_json(rank_rows, values, METRICS_RANK_ROWS, json);
}

int metrics_node_to_json(const struct stall_node *node, void *json)
{
	uint64_t values[METRICS_NODE_ROWS];

	node_values(node, values);
	return to_json(node_rows, values, METRICS_NODE_ROWS, json);
}
