/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: the sequence of sample numbers a job reads in each epoch, computed from a spec. Pure: no
 * I/O besides the list file of kind "list" (read once by order_new), no threads, no clock.
 * Algorithms: src/order/README.md. */
#ifndef CLAIRFS_ORDER_H
#define CLAIRFS_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/err.h"
#include "clairfs/base/units.h"

/* A parsed spec "KIND[:key=value]...". In a value %3A, %2C, %2F and %25 stand for ':', ',',
 * '/' and '%'. */
struct order_spec;
/* Errors name the key and the nearest right one. The caller frees with order_spec_free. */
int order_spec_parse(const char *text, struct order_spec **ret, struct err *err) MUST_USE;
/* The same for a job that was told its place by who launched it: rank and world (text, from the
 * variables named) stand in for the keys rank and world when the kind has them and the spec has
 * neither rank, ranks nor world. Bad values are -EINVAL with one line that names the variable, but
 * only when they are needed. */
struct order_place {
	const char *rank, *world;           /* NULL: not told. rank may be FIRST-LAST */
	const char *rank_name, *world_name; /* of the variables */
	const char *why; /* they are told but no help: this is what is wrong; else NULL */
};
int order_spec_parse_placed(const char *text, const struct order_place *place,
			    struct order_spec **ret, struct err *err) MUST_USE;
void order_spec_free(struct order_spec *spec);
/* The spec in canonical form: keys in table order, defaults left out. Borrowed, lives as long as
 * the spec. */
const char *order_spec_text(const struct order_spec *spec);
/* A canonical text for people: the seed is shown also where it is the default. out gets at most
 * size - 1 bytes; what is no spec is copied as it is. */
void order_spec_show(const char *text, char *out, size_t size);
/* The path of a spec of kind "list", else NULL; and its text behind the path: "" or ":key=value"...
 * Borrowed. */
const char *order_spec_list_path(const struct order_spec *spec);
const char *order_spec_list_keys(const struct order_spec *spec);
/* Whose order it is, as its key job= says, or NULL. Borrowed. */
const char *order_spec_job(const struct order_spec *spec);
#define ORDER_JOB_MAX 63
/* Whether this may be the name of a job: printable ASCII, not empty, ORDER_JOB_MAX bytes at most. */
int order_job_check(const char *name, struct err *err) MUST_USE;

/* The text of a spec for a job that turned out to number the samples in another way (sort, under;
 * NULL: without that key) and to be in this epoch, from which on it counts: fewer epochs are left,
 * and it does not start at a step. Heap; NULL: out of memory. */
char *order_spec_renumbered(const struct order_spec *spec, const char *sort, const char *under,
			    uint64_t epoch);

/* Known kinds, NULL-terminated, and one line of help for each (also listing its keys). */
const char *const *order_kinds(void);
const char *order_kind_help(const char *kind);

/* Maps a path of a list file (relative to the dataset's root, not terminated) to its sample; false:
 * no such sample. */
typedef bool order_resolve_fn(void *ctx, const char *path, size_t len, uint32_t *ret_sample);

/* How the job numbers the samples when the spec has the keys sort= or under= (each NULL when it is
 * not given): *ret_sample (heap, [*ret_n], no number twice) maps its numbers to the index's.
 * -EINVAL: no such sort; any other error is about under. */
typedef int order_number_fn(void *ctx, const char *sort, const char *under, uint32_t **ret_sample,
			    uint64_t *ret_n, struct err *err);

/* Records of one file that follow each other in number. */
struct order_shard {
	uint32_t sample; /* the number of the file, SAMPLE_NONE: it is no sample */
	uint64_t count;
	uint32_t dir; /* that the file is in, by any number */
};

struct order_params {
	uint64_t n;                /* samples of the dataset, < 2^32 - 2 */
	order_resolve_fn *resolve; /* NULL: list files may hold indices only */
	void *resolve_ctx;
	order_number_fn *number; /* NULL: the keys sort= and under= are refused */
	/* The same of all files, for records=0; NULL: `number` leaves none out. */
	order_number_fn *number_all;
	void *number_ctx; /* of both */
	/* Samples within larger files that the dataset has a table of: how many, 0: it has none; and
	 * the files that have them, *ret (heap, [*ret_n]) in the sequence of their numbers, counts
	 * adding up to n_records. Some kinds number these, and any of samples does with records=1;
	 * sidecars (format.h) are numbered by none then, but with records=0: `number` is asked for what is
	 * left. -ENOMEM */
	uint64_t n_records;
	int (*shards)(void *ctx, struct order_shard **ret, size_t *ret_n);
	/* The path of a directory of theirs, "." for all of the dataset, as key under= takes it; for
	 * messages. NULL: they are all of one directory. A negative errno: it has none. */
	int (*dir_path)(void *ctx, uint32_t dir, char *out, size_t size);
	void *shards_ctx; /* of both */
	/* Bytes of memory that an order of records, or an epoch of it, may take now, 0: not known.
	 * NULL: any. How many records there are is what a file claims. Of any thread. */
	uint64_t (*memory)(void);
	/* The samples of a list that was told and is in no file: kind "list" takes (and copies)
	 * these, whatever its path says. NULL: none. */
	const uint32_t *told;
	uint64_t n_told;
	/* The same as the bytes of a list file: text (width 0), or raw numbers of 4 or 8 bytes. */
	const void *bytes;
	size_t n_bytes;
	unsigned bytes_width;
	/* Opens a file that the spec names: a descriptor, or a negative errno with one line that
	 * does not name the path. NULL: any path, with the rights of this process. With either
	 * this or bytes the order is somebody else's, and messages have no byte of a file. */
	int (*open_file)(void *ctx, const char *path, struct err *err);
	void *open_ctx;
};

/* What a spec says about all epochs. */
struct order_info {
	uint64_t n;            /* samples of the dataset; of an expanded order its units */
	uint64_t start_epoch;  /* first epoch the job reads */
	uint64_t epochs;       /* number of epochs, 0 = unknown (no end) */
	uint64_t start_step;   /* batches of the first epoch already consumed (resume) */
	uint64_t world;        /* ranks of the job */
	uint32_t n_ranks;      /* local ranks (ranks whose samples this node reads) */
	const uint32_t *ranks; /* [n_ranks] ascending; lives as long as the order */
	uint64_t batch, workers, prefetch_factor; /* per rank; 0 = not given */
	bool is_same_every_epoch; /* every epoch is the same sequence: compute one and keep it */
	/* Jobs often read its beginning only, and nobody said that this one does not; see
	 * order_may_be_left. */
	bool may_be_left;
	/* Bitmap of the samples that this job does not number at all (keys sort=, under=), such as
	 * the validation set; NULL: none. Lives as long as the order. */
	const uint64_t *outside;
	/* Of an expanded order only (order_info_expand), else 0 and NULL: how many samples the order
	 * numbers, and how many units these are; and a bitmap of the units that are not the first of
	 * their sample. */
	uint64_t samples, units;
	const uint64_t *inner;
};

struct order;
/* Checks the spec against n and prepares it. -EINVAL with one line; -ENOMEM; errors of the list
 * file. */
int order_new(const struct order_spec *spec, const struct order_params *params, struct order **ret,
	      struct err *err) MUST_USE;
/* Whether that fails, whatever else the spec says, until the dataset has a table of records. */
bool order_lacks_records(const struct order_spec *spec, const struct order_params *params);
void order_free(struct order *order);
const struct order_info *order_info(const struct order *order);
/* So many records of the dataset's table are numbered, and order_head gives their numbers in the
 * table; 0: the order numbers samples. Its info and its epochs are of files all the same: a position is
 * where the reader comes to the first record of a file, and start_step, batch and prefetch_factor
 * are 0, for those are of records: order/records.h has these. */
uint64_t order_n_records(const struct order *order);
/* Sets info's flag; before anybody else has the order. */
void order_may_be_left(struct order *order);
/* What is unusual about the order though it is allowed, one line for a person ("epoch 0 leaves out
 * 3 of 10 samples"), or NULL. Borrowed, lives as long as the order. */
const char *order_note(const struct order *order);

/* One epoch, merged over the local ranks: position p = the p-th sample this node reads when all
 * local ranks run in step (rank r's i-th sample stands before every rank's (i+1)-th; within one i,
 * ascending rank). Of an order that numbers records: the files, each where its first record
 * stands. Immutable. */
struct order_epoch {
	uint64_t epoch;
	uint64_t length;  /* positions; < 2^32 */
	uint64_t start;   /* position at which the job begins: in its first epoch, else 0 */
	uint32_t n;       /* samples of the dataset; of an expanded epoch its units, as all below */
	uint32_t *sample; /* [length] position -> sample */
	uint32_t *first;  /* [n] sample -> its first position, SAMPLE_NONE when it does not occur */
	/* [length] position -> next position of the same sample in this epoch, or SAMPLE_NONE; NULL
	 * when no sample occurs twice */
	uint32_t *next_same;
	/* Of an expanded epoch: [length] position -> the one of its sample in the epoch of samples,
	 * which has so many; NULL: they are the same. */
	uint32_t *place;
	uint64_t places;
};
/* Computes an epoch (any number, in any order). O(n) time; one transient array of 4n bytes. Any
 * thread: an order is immutable after order_new. -ENOENT: a list file has no such epoch;
 * -EOVERFLOW: too many positions; -ENOMEM. */
int order_epoch_new(const struct order *order, uint64_t epoch, struct order_epoch **ret,
		    struct err *err) MUST_USE;
void order_epoch_free(struct order_epoch *epoch);

/* The same epoch in units, where samples are cut (map->first is not NULL): the units of a sample
 * follow each other, those of samples that workers and ranks read at once come in turns. O(units).
 * info: of the order, in samples. Likewise from an epoch of records and the map of these; then units
 * may be of no record, and a unit of several records comes as often. -EOVERFLOW: too many positions;
 * -ENOMEM. Any thread. */
int order_epoch_expand(const struct order_epoch *samples, const struct order_info *info,
		       const struct unit_map *map, struct order_epoch **ret) MUST_USE;
/* And what is said of it, in units but for batch, workers and prefetch_factor, which stay those of
 * samples; start_step is 0 (order_epoch.start has it). Units of no sample are outside.
 * *ret_bits (heap) has the bitmaps of *ret and must outlive it; ranks are info's. -ENOMEM */
int order_info_expand(const struct order_info *info, const struct unit_map *map,
		      struct order_info *ret, uint64_t **ret_bits) MUST_USE;
/* Whether many of the samples are cut, by what order_info_expand said: then units, not samples, are
 * what is read. */
static inline bool order_is_cut(const struct order_info *info)
{
	return info->inner && info->units > info->samples + info->samples / 64;
}

/* The first samples of an epoch, as order_epoch has them in sample[] (but for orders that number
 * records: those records), or of one rank; without the index of positions, and where the kind allows
 * it without the rest of the epoch: `count` numbers (times the world) instead of n. */
struct order_part {
	uint64_t epoch, count; /* UINT64_MAX: all */
	bool has_rank;
	uint64_t rank;
};
/* *ret_sample is a heap array of *ret_length numbers, the smaller of count and what there is.
 * Errors as of order_epoch_new; -EINVAL: no such rank. */
int order_head(const struct order *order, const struct order_part *part, uint32_t **ret_sample,
	       uint64_t *ret_length, struct err *err) MUST_USE;
/* The memory that takes; 0: it is an error anyway. */
uint64_t order_head_bytes(const struct order *order, const struct order_part *part);

/* The sequence of one rank only (for `clairfs order`): *ret_sample is a heap array of *ret_length
 * numbers. */
int order_rank_epoch(const struct order *order, uint64_t epoch, uint64_t rank,
		     uint32_t **ret_sample, uint64_t *ret_length, struct err *err) MUST_USE;

/* The words of MT19937 as torch.manual_seed(seed) and numpy.random.seed(seed) start it (is_python:
 * as random.seed(seed) does), from word `first` (from 0) on, which takes some ten milliseconds at
 * most. -ENOMEM. One thread at a time. */
struct order_words;
int order_words_new(uint32_t seed, bool is_python, uint64_t first,
		    struct order_words **ret) MUST_USE;
void order_words_take(struct order_words *words, uint32_t *out, size_t count);
void order_words_free(struct order_words *words);

#endif
