/* SPDX-License-Identifier: Apache-2.0 */
/* Formats that no scan reads: what makes a table of them instead, for messages. Where records lie in a
 * tree, or are told apart by a library only, a list says where they are; what is compressed as a whole
 * has no place to read one from. Pure, any thread. */
#include <string.h>
#include <strings.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/format.h"

#define OF_LIST "--import takes a list of their paths, offsets and lengths"
#define OF_COMPRESSED "compressed as a whole: unpack it, its records have no place in it"

static const struct {
	const char *words[4], *ends[6], *say;
} formats[] = {
	{ { "hdf5", "h5", "netcdf" },
	  { ".h5", ".hdf5", ".he5", ".nc", ".nc4" },
	  "HDF5, whose chunks are in a tree: --import takes the references that kerchunk makes" },
	{ { "lmdb", "mdb" }, { ".mdb", ".lmdb" }, "LMDB, whose records are in a tree: " OF_LIST },
	{ { "ffcv", "beton" }, { ".beton" }, "FFCV, whose samples are in pages: " OF_LIST },
	{ { "recordio", "mxnet" }, { ".rec" }, "RecordIO, whose records have an index of their own: " OF_LIST },
	{ { "zarr" }, { NULL }, "each chunk of Zarr is a file, and needs no table; of shards " OF_LIST },
	{ { "webdataset", "wds" }, { NULL }, "the shards of WebDataset are tar" },
	{ { "mosaic", "streaming" }, { NULL }, "the shards of MosaicML Streaming are mds" },
	{ { "gzip", "zstd" },
	  { ".gz", ".zst", ".zstd", ".lz4", ".bz2", ".xz" },
	  OF_COMPRESSED },
};

const char *format_advice_for_word(const char *word)
{
	for (size_t i = 0; i < ARRAY_LEN(formats); i++)
		for (size_t k = 0; k < ARRAY_LEN(formats[i].words) && formats[i].words[k]; k++)
			if (strcasecmp(word, formats[i].words[k]) == 0)
				return formats[i].say;
	return NULL;
}

const char *format_advice_for_name(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(formats); i++)
		for (size_t k = 0; k < ARRAY_LEN(formats[i].ends) && formats[i].ends[k]; k++) {
			size_t n = strlen(formats[i].ends[k]);

			if (len > n && strncasecmp(name + len - n, formats[i].ends[k], n) == 0)
				return formats[i].say;
		}
	return NULL;
}
