/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kinds: a new kind is one row here and one file beside this one (README.md says how).
 * The names come out of the same rows, so help, spelling hints and the parser cannot disagree about
 * what exists.
 *
 * It must hold nothing but the table and its look-up: what a kind does belongs in the kind's file.
 */
#include <string.h>

#include "order_priv.h"

#define KINDS(ROW)                                                                                 \
	ROW("sequential", order_kind_sequential)                                                   \
	ROW("list", order_kind_list)                                                               \
	ROW("torch-randperm", order_kind_torch_randperm)                                           \
	ROW("torch-distributed", order_kind_torch_distributed)                                     \
	ROW("torch-loader", order_kind_torch_loader)                                               \
	ROW("torch-generator", order_kind_torch_generator)                                         \
	ROW("torch-subset", order_kind_torch_subset)                                               \
	ROW("torchdata-loader", order_kind_torchdata_loader)                                       \
	ROW("detectron2-training", order_kind_detectron2_training)                                 \
	ROW("timm-repeataug", order_kind_timm_repeataug)                                           \
	ROW("numpy-legacy", order_kind_numpy_legacy)                                               \
	ROW("numpy-generator", order_kind_numpy_generator)                                         \
	ROW("python-random", order_kind_python_random)                                             \
	ROW("accelerate", order_kind_accelerate)                                                   \
	ROW("megatron", order_kind_megatron)                                                       \
	ROW("mosaic-naive", order_kind_mosaic_naive)                                               \
	ROW("mosaic-py1s", order_kind_mosaic_py1s)                                                 \
	ROW("mosaic-py2s", order_kind_mosaic_py2s)                                                 \
	ROW("mosaic-py1br", order_kind_mosaic_py1br)                                               \
	ROW("mosaic-py1e", order_kind_mosaic_py1e)                                                 \
	ROW("litdata", order_kind_litdata)                                                         \
	ROW("ffcv", order_kind_ffcv)                                                               \
	ROW("webdataset", order_kind_webdataset)                                                   \
	ROW("grain", order_kind_grain)                                                             \
	ROW("tf-shuffle", order_kind_tf_shuffle)                                                   \
	ROW("tf-list-files", order_kind_tf_list_files)                                             \
	ROW("dali-file", order_kind_dali_file)                                                     \
	ROW("dlio-v0.5", order_kind_dlio_v05)                                                      \
	ROW("dlio-v1", order_kind_dlio_v1)                                                         \
	ROW("dlio-v2", order_kind_dlio_v2)

#define AS_ROW(kind_name, object) { .name = (kind_name), .kind = &(object) },
#define AS_NAME(kind_name, object) kind_name,

const struct order_kind_row order_kind_table[] = { KINDS(AS_ROW){ .name = NULL } };

const char *const *order_kinds(void)
{
	static const char *const names[] = { KINDS(AS_NAME) NULL };

	return names;
}

const struct order_kind_row *order_kind_find(const char *name)
{
	for (const struct order_kind_row *row = order_kind_table; row->name; row++)
		if (strcmp(row->name, name) == 0)
			return row;
	return NULL;
}

const char *order_kind_help(const char *kind)
{
	const struct order_kind_row *row = order_kind_find(kind);

	return row ? row->kind->help : NULL;
}
