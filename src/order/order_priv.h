/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this module share: the parsed spec, the contract of a kind, the order.
 * README.md says how a kind is added: one file with a struct order_kind, one row in kinds.c.
 *
 * A kind describes an epoch in two steps, because that is how the frameworks do it: first a
 * sequence that all ranks compute alike (the common sequence, mostly a permutation), then which
 * part of it each rank reads. order.c does the rest: memory, merging the local ranks, first and
 * next positions. All of it is set-up code of one thread until order_new returns; afterwards
 * everything is const and any thread may compute epochs. */
#ifndef CLAIRFS_ORDER_PRIV_H
#define CLAIRFS_ORDER_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/ids.h"
#include "clairfs/base/mem.h"
#include "clairfs/order.h"
#include "sizes.h"

#define ORDER_SAMPLES_MAX ((uint64_t)UINT32_MAX - 2) /* n, see struct order_params */
#define ORDER_WORLD_MAX ((uint64_t)1 << 20)
/* A shuffle that goes on from the epoch before is repeated from the first one for every epoch asked
 * for; behind this many it is refused, lest a number in a spec keep a thread busy for days. */
#define ORDER_REPLAY_MAX 65536
#define ORDER_REPLAY_DRAWS_MAX ((uint64_t)1 << 33) /* numbers drawn for one epoch: minutes */
#define ORDER_OWN_KEYS_MAX 16
#define ORDER_COMMON_KEYS 12
#define ORDER_NO_SPLIT UINT64_MAX /* key split, where it is not given */
#define ORDER_RECORDS_AUTO 2      /* key records, where it is not given */

enum order_key_type {
	ORDER_KEY_U64,  /* min..max */
	ORDER_KEY_SEED, /* [-2^63, 2^64) as text_to_seed reads it */
	ORDER_KEY_BOOL,
	ORDER_KEY_TEXT,
	/* These fill order_spec.world and .ranks; rank and ranks exclude each other. */
	ORDER_KEY_WORLD,
	ORDER_KEY_RANK,
	ORDER_KEY_RANKS,
};

/* One row of a kind's key table, which ends with a row whose name is NULL. */
struct order_key {
	const char *name;
	enum order_key_type type;
	bool is_required;
	uint64_t def, min, max; /* min and max: ORDER_KEY_U64 only */
};

/* The rows of a kind whose job has several ranks. */
/* clang-format off */
#define ORDER_KEY_ROW_WORLD { .name = "world", .type = ORDER_KEY_WORLD, .def = 1 }
#define ORDER_KEY_ROW_RANK { .name = "rank", .type = ORDER_KEY_RANK }
#define ORDER_KEY_ROW_RANKS { .name = "ranks", .type = ORDER_KEY_RANKS }
/* clang-format on */

/* What every kind's help ends with. */
#define ORDER_HELP_COMMON                                                                          \
	" epochs start_epoch start_step batch workers prefetch_factor split first records sort "  \
	"under job"

struct order_value {
	bool is_set;
	uint64_t num;
	char *text; /* ORDER_KEY_TEXT, decoded; owned */
};

struct order_spec {
	const char *name; /* of the kind */
	const struct order_kind *kind;
	/* In the order of the key tables. */
	struct order_value own[ORDER_OWN_KEYS_MAX], common[ORDER_COMMON_KEYS];
	uint64_t world;
	uint32_t *ranks; /* [n_ranks], ascending, no duplicates */
	uint32_t n_ranks;
	char *canonical;
};

/* The value of a key of the spec's kind, or its default (text: NULL). The name must be in the
 * table: it is ours. */
uint64_t order_spec_u64(const struct order_spec *spec, const char *key);
const char *order_spec_path(const struct order_spec *spec, const char *key);

/* The keys every kind takes, ended like a kind's table. */
extern const struct order_key order_common_keys[];

/* -ENOENT for an epoch (from 0) of n samples that is not replayed. */
int order_replay_check(uint64_t epoch, uint64_t n, struct err *err) MUST_USE;

/* Fills ret_ranks (heap, ascending) from "0-3+6". Errors are about `text` and carry no context. */
int order_ranks_parse(char *text, uint32_t **ret_ranks, uint32_t *ret_n, struct err *err) MUST_USE;
/* Ascending ranks as "0-3+6"; NULL: out of memory. The caller frees. */
char *order_ranks_text(const uint32_t *ranks, uint32_t n_ranks) MUST_USE;

/* What a kind numbers. */
enum order_numbers {
	ORDER_NUMBERS_FILES,   /* samples of the index; records with records=1 */
	ORDER_NUMBERS_EITHER,  /* records where there is a table of them */
	ORDER_NUMBERS_RECORDS, /* records, and there must be a table (records=0: files) */
	ORDER_NUMBERS_SHARDS,  /* files that are read from front to back */
};

/* The files of the dataset's table of records, in the sequence of the records' numbers. */
struct order_records {
	uint32_t *sample; /* [n], SAMPLE_NONE: not a sample of the index */
	uint64_t *first;  /* [n + 1] number of its first record */
	size_t n;         /* 0: the order numbers samples */
};

/* How the job numbers the samples, while an order is being made. */
struct order_numbering {
	const struct order_params *params;
	struct order_params inner; /* what the kind sees: the job's numbers */
	struct order_records records; /* which the map leads to, if there are any */
	struct order_sizes sizes;     /* records of each file that is numbered; for some kinds */
	uint32_t *map;             /* [inner.n] from the job's numbers to ours; NULL: the same */
	uint32_t *inverse;         /* [params->n] made when a path asks for it */
};
/* Leaves num to be freed by the caller, with order_number_fini, in every case. */
int order_number_new(const struct order_spec *spec, const struct order_params *params,
		     struct order_numbering *num, struct err *err) MUST_USE;
void order_number_fini(struct order_numbering *num);
bool order_number_resolve(void *ctx, const char *path, size_t len, uint32_t *ret_sample);
/* Bitmap of the samples that the job does not number; NULL: none. -ENOMEM. */
int order_number_outside(const struct order_numbering *num, uint64_t **ret) MUST_USE;
void order_renumber(const struct order *order, uint32_t *sample, uint64_t length);

/* records.c: whether the spec numbers records. -EINVAL: it cannot. */
int order_records_choose(const struct order_spec *spec, const struct order_params *params,
			 bool *ret, struct err *err) MUST_USE;
/* Then order_number_new is this. */
int order_records_number(const struct order_spec *spec, struct order_numbering *num,
			 struct err *err) MUST_USE;
int order_records_outside(const struct order_numbering *num, uint64_t **ret) MUST_USE;
/* The file of a record, SAMPLE_NONE: it is no sample. */
uint32_t order_records_file(const struct order_records *r, uint32_t record);
/* An epoch of records becomes one of files. -ENOMEM */
int order_records_fold(const struct order *order, struct order_epoch *e, struct err *err) MUST_USE;
/* What others are shown of the order. */
void order_records_show(const struct order *order, struct order_info *shown);
/* Whether an epoch of records has room; how many there are is what a file claims. -ENOMEM */
int order_records_check_room(const struct order *order, const struct order_params *params,
			     struct err *err) MUST_USE;
/* What others are told of the order in records; when all else of it is there. -ENOMEM */
int order_records_describe(struct order *order) MUST_USE;
/* Whether so many bytes are there: see order_params; NULL: they are. -ENOMEM */
int order_check_memory(uint64_t (*memory)(void), uint64_t bytes, struct err *err) MUST_USE;
int order_check_room(const struct order_params *params, uint64_t bytes,
		     struct err *err) MUST_USE;
/* Says in the order's note what is numbered, where that may be a surprise. -ENOMEM */
int order_records_note(struct order *order, const struct order_params *params,
		       const struct order_spec *spec) MUST_USE;
void order_records_fini(struct order_records *r);

struct order {
	struct order_info info;  /* as the kind sees it: in the job's numbers */
	struct order_info shown; /* to others: in the numbers of the index */
	struct order_info of_records; /* to others: in those of the table, if it numbers records */
	struct unit_map *units; /* of records that were found; or NULL */
	uint64_t *records_outside;    /* bitmap for that; NULL: none */
	uint64_t (*memory)(void);     /* see order_params */
	uint32_t *map;           /* see order_numbering; NULL: the same numbers */
	uint64_t *outside;
	struct order_records records; /* map leads to these, or the kind's numbers are these */
	struct order_sizes sizes;     /* see order_numbering, while it is made; open may take them */
	const struct order_kind *kind;
	void *state;     /* the kind's; immutable after open */
	uint32_t *ranks; /* [info.n_ranks] local ranks, ascending; info.ranks points here */
	char *note;      /* may be set by open, see order_note; owned */
	bool is_whole;   /* set by open: one rank that reads the common sequence as it stands */
};

/* The common sequence of one epoch. */
struct order_span {
	uint64_t epoch;
	const uint32_t *sample; /* [length] */
	uint64_t length;
};

/* What a kind of order is. Members marked "may be NULL" have the meaning that is written there. */
struct order_kind {
	const char *help;             /* one line: what it is; lists its keys with their defaults */
	const struct order_key *keys; /* its own keys; the common ones are added */
	enum order_numbers numbers;
	/* ORDER_NUMBERS_RECORDS: what has them, and what makes a table of them, for messages. */
	const char *records_of, *records_by;
	const char *one_file; /* such an order is of one file, as messages call it; NULL: of a directory */

	/* Checks the spec against params->n and makes order->state; sets
	 * order->info.is_same_every_epoch. order->info is filled otherwise. The spec does not
	 * outlive order_new: copy what is needed. May be NULL: no state, and every epoch is the
	 * same. Errors: one line without the kind's name, which the caller puts in front. */
	int (*open)(struct order *order, const struct order_spec *spec,
		    const struct order_params *params, struct err *err);
	/* Frees order->state; also called, with what is there, after a failed open. May be NULL:
	 * free(). */
	void (*close)(struct order *order);

	/* Length of the epoch's common sequence. May be NULL: n. */
	int (*common_length)(const struct order *order, uint64_t epoch, uint64_t *ret,
			     struct err *err);
	/* Writes the common sequence of the epoch, `length` (as above) sample numbers < n, to out.
	 */
	int (*common_fill)(const struct order *order, uint64_t epoch, uint64_t length,
			   uint32_t *out, struct err *err);

	/* For the beginning of an epoch without the rest; both NULL where it takes the whole
	 * sequence to know its first sample. head_fill writes the first `count` samples of the
	 * epoch's common sequence, which has common->length (common->sample is NULL); head_reach,
	 * of kinds with rank_read, says how many of them are enough to read the first `rows`
	 * samples of each rank of the world (more than there are: all of them). */
	int (*head_fill)(const struct order *order, const struct order_span *common, uint64_t count,
			 uint32_t *out, struct err *err);
	uint64_t (*head_reach)(const struct order *order, uint64_t length, uint64_t rows);

	/* How many samples a rank reads in an epoch whose common sequence has this length. NULL
	 * together with rank_read: the world has one rank and it reads the common sequence as it
	 * stands. */
	uint64_t (*rank_length)(const struct order *order, uint64_t epoch, uint64_t length,
				uint64_t rank);
	/* Writes samples [from, from + count) of a rank's sequence to out; within rank_length.
	 * Called often, with small counts, from low to high. */
	void (*rank_read)(const struct order *order, const struct order_span *common, uint64_t rank,
			  uint64_t from, uint32_t count, uint32_t *out);
};

/* One row of the table in kinds.c. */
struct order_kind_row {
	const char *name;
	const struct order_kind *kind;
};

extern const struct order_kind_row order_kind_table[]; /* ends with a row whose name is NULL */
const struct order_kind_row *order_kind_find(const char *name); /* or NULL */

/* Opens a regular file, as params say (NULL: any), without waiting for anything. Errors do not name
 * the path. */
int order_file_open(const struct order_params *params, const char *path, int *ret_fd,
		    uint64_t *ret_size, struct err *err) MUST_USE;
/* Reads `size` bytes, fewer only at the end of the file. */
int order_file_read(int fd, void *buf, size_t size, size_t *ret, struct err *err) MUST_USE;

/* order.c, merge.c: from the common sequence to what ranks read. */
int order_common_length(const struct order *order, uint64_t epoch, uint64_t *ret,
			struct err *err) MUST_USE;
/* The common sequence, in memory the caller frees. */
int order_common_new(const struct order *order, uint64_t epoch, uint32_t **ret_sample,
		     struct order_span *ret, struct err *err) MUST_USE;
bool order_reads_whole(const struct order *order);
uint64_t order_rank_length(const struct order *order, const struct order_span *common,
			   uint64_t rank);
/* The first `rows` samples of each local rank, merged; heap. */
int order_merge(const struct order *order, const struct order_span *common, uint64_t rows,
		uint32_t **ret_sample, uint64_t *ret_length, struct err *err) MUST_USE;

/* order.c: where the job goes on that was resumed, in this epoch; info: in what its positions are. */
uint64_t order_epoch_start(const struct order_info *info, const struct order_epoch *e);

/* order.c: positions by sample, with first[] to be filled and next_same[] made if it takes one. -ENOMEM
 */
int order_index_positions(struct order_epoch *e, uint64_t (*memory)(void),
			  struct err *err) MUST_USE;

/* Room for n numbers (also for n = 0), with large pages where they pay, since permutations are
 * accessed all over the place. free() it. NULL: out of memory. */
uint32_t *order_alloc_u32(uint64_t n) MUST_USE;

extern const struct order_kind order_kind_sequential, order_kind_list, order_kind_torch_randperm,
	order_kind_torch_distributed, order_kind_torch_loader, order_kind_torch_generator,
	order_kind_torch_subset, order_kind_torchdata_loader, order_kind_detectron2_training,
	order_kind_timm_repeataug, order_kind_numpy_legacy, order_kind_numpy_generator,
	order_kind_python_random, order_kind_accelerate, order_kind_megatron;
extern const struct order_kind order_kind_mosaic_naive, order_kind_mosaic_py1s,
	order_kind_mosaic_py2s, order_kind_mosaic_py1br, order_kind_mosaic_py1e, order_kind_litdata,
	order_kind_ffcv, order_kind_webdataset, order_kind_grain, order_kind_tf_shuffle,
	order_kind_tf_list_files, order_kind_dali_file, order_kind_dlio_v05, order_kind_dlio_v1,
	order_kind_dlio_v2;

#endif
