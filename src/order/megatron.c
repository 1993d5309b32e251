/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-LM's GPTDataset behind its sampler "single": position p of the run is sample
 * shuffle_index[p], and the data parallel ranks take micro batches in turn. All epochs over the
 * text are in that one array, so an order has epoch 0 and no other.
 *
 *   path=PREFIX     the array as the job saved it: PREFIX-shuffle_index.npy, checked against
 *                   PREFIX-sample_index.npy and PREFIX-document_index.npy beside it
 *   documents=D     the same computed: RandomState(seed) first shuffles the document index
 *                   (D * document_epochs entries, the last epoch apart if there is `separate`),
 *                   then the shuffle index (its first `separate` entries apart)
 *
 * Where the dataset has a table of records, which are the sequences of NAME.idx, a sample is the
 * sequence that it begins in: that is in the sample index and the document index. How long it is and
 * where it ends is not asked here. Without a table a number is an entry of the sample index. The
 * arrays may be anything; an entry that is no sample is an error of order_new. Set-up code of one
 * thread; fills from any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "npy.h"
#include "perm.h"
#include "turns.h"

#define SHOWN 200 /* bytes of a foreign name in a message */
#define DOCUMENT_ENTRIES_MAX ((uint64_t)UINT32_MAX - 2)

struct megatron {
	struct turns turns; /* first, for turns_rank_*() */
	uint32_t *shuffle;  /* [n] as read, or the records of these; NULL: computed */
	uint64_t n, seed, documents, document_epochs, separate;
};

static const struct order_key megatron_keys[] = {
	{ .name = "path", .type = ORDER_KEY_TEXT },
	{ .name = "documents", .type = ORDER_KEY_U64, .max = UINT32_MAX },
	{ .name = "document_epochs", .type = ORDER_KEY_U64, .def = 1, .min = 1, .max = UINT32_MAX },
	{ .name = "separate", .type = ORDER_KEY_U64, .max = UINT32_MAX },
	{ .name = "seed", .type = ORDER_KEY_U64, .def = 1234, .max = UINT32_MAX },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "drop_last", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = NULL },
};

/* The files of a run. */
struct index {
	const char *prefix;
	const struct order_params *params;
};

/* Before memory is taken for an array of a file that is as large as somebody made it. */
static int check_size(const struct index *index, const struct npy *npy, struct err *err)
{
	if (npy->rows > ORDER_SAMPLES_MAX + 1) /* the sample index ends with a row more */
		return err_set(err, -EINVAL, "%" PRIu64 " rows are too many, at most %" PRIu64,
			       npy->rows, ORDER_SAMPLES_MAX + 1);
	if (npy->columns != npy->dimensions) /* 1 of an array, 2 of the sample index */
		return err_set(err, -EINVAL, "rows of %" PRIu64 ", not of %u", npy->columns,
			       npy->dimensions);
	return order_check_room(index->params, npy->rows * npy->columns * sizeof(uint32_t), err);
}

/* Opens PREFIX-name.npy and checks its dimensions. */
static int index_open(const struct index *index, const char *name, unsigned dimensions,
		      struct npy *ret, struct err *err)
{
	char shown[SHOWN], *path AUTO_FREE = NULL;
	int rc;

	if (asprintf(&path, "%s-%s.npy", index->prefix, name) < 0) {
		path = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	rc = npy_open(index->params, path, ret, err);
	if (rc == 0 && ret->dimensions != dimensions)
		rc = err_set(err, -EINVAL, "an array of %u dimensions, not of %u", ret->dimensions,
			     dimensions);
	if (rc < 0) {
		err_prefix(err, "%s", text_escape(path, strlen(path), shown, sizeof(shown)));
		npy_close(ret);
	}
	return rc;
}

/* The shuffle index must belong to the sample index beside it. */
static int check_neighbours(const struct index *index, uint64_t n, struct err *err)
{
	struct npy sample, document;
	int rc = index_open(index, "document_index", 1, &document, err);

	if (rc < 0)
		return rc;
	npy_close(&document);
	rc = index_open(index, "sample_index", 2, &sample, err);
	if (rc < 0)
		return rc;
	npy_close(&sample);
	if (sample.columns != 2 || sample.rows == 0 || sample.rows - 1 != n)
		return err_set(err, -EINVAL,
			       "the sample index has %" PRIu64 " rows of %" PRIu64
			       ", the shuffle index %" PRIu64
			       " entries: they belong to different runs",
			       sample.rows, sample.columns, n);
	return 0;
}

/* All of PREFIX-name.npy, heap. */
static int read_array(const struct index *index, const char *name, unsigned dimensions,
		      uint64_t limit, uint32_t **ret, uint64_t *ret_n, struct err *err)
{
	struct npy npy;
	int rc = index_open(index, name, dimensions, &npy, err);

	if (rc < 0)
		return rc;
	*ret_n = npy.rows * npy.columns;
	rc = check_size(index, &npy, err);
	if (rc == 0) {
		*ret = order_alloc_u32(*ret_n);
		rc = *ret ? npy_read(&npy, limit, *ret, err)
			  : err_set(err, -ENOMEM, "out of memory for %" PRIu64 " numbers", *ret_n);
	}
	if (rc < 0)
		err_prefix(err, "%s", name);
	npy_close(&npy);
	return rc;
}

/* In place of each sample the record that it begins in. */
static int take_records(struct megatron *m, const struct index *index, uint64_t n_records,
			struct err *err)
{
	uint32_t *document AUTO_FREE = NULL, *sample AUTO_FREE = NULL;
	uint64_t documents = 0, n = 0;
	int rc = read_array(index, "document_index", 1, n_records, &document, &documents, err);

	if (rc < 0)
		err_prefix(err, "the table has %" PRIu64 " sequences (key \"under\" says of which "
				"file)", n_records);
	if (rc == 0)
		rc = read_array(index, "sample_index", 2, UINT32_MAX, &sample, &n, err);
	if (rc == 0 && n / 2 < m->n) /* it was looked at before */
		rc = err_set(err, -EINVAL, "the sample index has become shorter");
	for (uint64_t i = 0; i < m->n && rc == 0; i++) {
		uint64_t at = m->shuffle[i]; /* below m->n */

		if (sample[2 * at] >= documents)
			rc = err_set(err, -EINVAL,
				     "sample index: row %" PRIu64 " begins in no document of the document "
				     "index", at);
		else
			m->shuffle[i] = document[sample[2 * at]];
	}
	return rc;
}

static int read_index(struct megatron *m, const struct index *index, const struct order *order,
		      struct err *err)
{
	bool has_records = order->records.n > 0;
	struct npy npy;
	int rc = index_open(index, "shuffle_index", 1, &npy, err);

	if (rc < 0)
		return rc;
	m->n = npy.rows;
	rc = check_neighbours(index, m->n, err);
	if (rc == 0 && !has_records && m->n > order->info.n)
		rc = err_set(err, -EINVAL,
			     "the shuffle index has %" PRIu64 " entries, the dataset %" PRIu64
			     " samples",
			     m->n, order->info.n);
	if (rc == 0 && has_records) {
		rc = check_size(index, &npy, err);
		if (rc < 0)
			err_prefix(err, "shuffle index");
	}
	if (rc == 0) {
		m->shuffle = order_alloc_u32(m->n);
		rc = m->shuffle
			     ? npy_read(&npy, m->n, m->shuffle, err)
			     : err_set(err, -ENOMEM, "out of memory for %" PRIu64 " samples", m->n);
		if (rc < 0)
			err_prefix(err, "shuffle index");
	}
	npy_close(&npy);
	return rc == 0 && has_records ? take_records(m, index, order->info.n, err) : rc;
}

/* What the computed order needs. */
static int check_computed(struct megatron *m, struct err *err)
{
	if (m->documents == 0)
		return err_set(err, -EINVAL, "key \"path\" or key \"documents\" is missing");
	if (m->documents * m->document_epochs > DOCUMENT_ENTRIES_MAX)
		return err_set(err, -EINVAL,
			       "keys \"documents\" and \"document_epochs\": more than %" PRIu64
			       " entries",
			       DOCUMENT_ENTRIES_MAX);
	if (m->separate > m->n)
		return err_set(err, -EINVAL, "key \"separate\": %" PRIu64 " of %" PRIu64 " samples",
			       m->separate, m->n);
	if (m->separate > 0 && m->document_epochs == 1)
		return err_set(err, -EINVAL,
			       "key \"separate\" needs key \"document_epochs\", 2 or more");
	return 0;
}

static int megatron_open(struct order *order, const struct order_spec *spec,
			 const struct order_params *params, struct err *err)
{
	const char *prefix = order_spec_path(spec, "path");
	struct megatron *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return err_set(err, -ENOMEM, "out of memory");
	order->state = m;
	order->info.is_same_every_epoch = false;
	m->n = params->n;
	m->seed = order_spec_u64(spec, "seed");
	m->documents = order_spec_u64(spec, "documents");
	m->document_epochs = order_spec_u64(spec, "document_epochs");
	m->separate = order_spec_u64(spec, "separate");
	rc = turns_init(&m->turns, spec,
			order_spec_u64(spec, "drop_last") ? TURNS_TAIL_DROP : TURNS_TAIL_UNEVEN,
			err);
	if (rc < 0)
		return rc;
	if (!prefix && order->records.n > 0)
		return err_set(err, -EINVAL,
			       "key \"path\" is missing: where the samples begin is in the index files "
			       "(records=0 computes numbers of samples)");
	if (!prefix)
		return check_computed(m, err);
	if (m->documents > 0)
		return err_set(err, -EINVAL, "keys \"path\" and \"documents\" exclude each other");
	return read_index(m, &(struct index){ prefix, params }, order, err);
}

static void megatron_close(struct order *order)
{
	struct megatron *m = order->state;

	if (m)
		free(m->shuffle);
	free(m);
}

static int megatron_length(const struct order *order, uint64_t epoch, uint64_t *ret,
			   struct err *err)
{
	*ret = ((const struct megatron *)order->state)->n;
	if (epoch > 0)
		return err_set(err, -ENOENT, "no epoch %" PRIu64 ": Megatron reads its index once",
			       epoch);
	return 0;
}

static int compute(const struct megatron *m, uint32_t *out, struct err *err)
{
	uint64_t entries = m->documents * m->document_epochs;
	uint64_t apart = m->separate > 0 ? m->documents : 0;
	uint64_t first = m->separate > 0 ? m->separate : m->n;
	uint32_t *room AUTO_FREE = order_alloc_u32(entries);
	struct mt19937 rng;

	if (!room)
		return err_set(err, -ENOMEM, "out of memory for %" PRIu64 " documents", entries);
	/* What is in the document index does not matter, only how much its shuffling draws. */
	perm_identity(room, (uint32_t)entries);
	mt19937_seed(&rng, (uint32_t)m->seed);
	shuffle_numpy_mt19937(room, (uint32_t)(entries - apart), &rng);
	shuffle_numpy_mt19937(room, (uint32_t)apart, &rng);
	perm_identity(out, (uint32_t)m->n);
	shuffle_numpy_mt19937(out, (uint32_t)first, &rng);
	shuffle_numpy_mt19937(out + first, (uint32_t)(m->n - first), &rng);
	return 0;
}

static int megatron_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
			 struct err *err)
{
	const struct megatron *m = order->state;

	if (!m->shuffle)
		return compute(m, out, err);
	if (length > 0)
		memcpy(out, m->shuffle, length * sizeof(*out));
	return 0;
}

const struct order_kind order_kind_megatron = {
	.help = "Megatron-LM's GPTDataset from its index files or computed, micro batches in turn; "
		"keys: path documents document_epochs(1) separate(0) seed(1234) world(1) rank or "
		"ranks=0-3+6(all) drop_last(1)" ORDER_HELP_COMMON,
	.keys = megatron_keys,
	.numbers = ORDER_NUMBERS_RECORDS,
	.records_of = "NAME.bin of Megatron",
	.records_by = "clairfs index --records megatron",
	.one_file = "NAME.bin",
	.open = megatron_open,
	.close = megatron_close,
	.common_length = megatron_length,
	.common_fill = megatron_fill,
	.rank_length = turns_rank_length,
	.rank_read = turns_rank_read,
};
