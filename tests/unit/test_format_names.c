/* SPDX-License-Identifier: Apache-2.0 */
/* What the name of a file says of its format, and what is said of formats that no scan reads. */
#include <string.h>

#include "check.h"
#include "clairfs/format.h"

static enum format of(const char *name)
{
	return format_of_name(name, strlen(name));
}

static void names_of_containers(void)
{
	CHECK_INT(of("x.npy"), FORMAT_NPY);
	CHECK_INT(of("shard.00001.mds"), FORMAT_MDS);
	CHECK_INT(of("train-000.tar"), FORMAT_TAR);
	CHECK_INT(of("a/b.TAR"), FORMAT_TAR);
	CHECK_INT(of("x.tfrecord"), FORMAT_TFRECORD);
	CHECK_INT(of("x.tfrecords"), FORMAT_TFRECORD);
	CHECK_INT(of("x.zip"), FORMAT_ZIP);
	CHECK_INT(of("x.parquet"), FORMAT_PARQUET);
	CHECK_INT(of("x.arrow"), FORMAT_ARROW);
	CHECK_INT(of("x.feather"), FORMAT_ARROW);
	CHECK_INT(of("imagenet2012-train.tfrecord-00000-of-01024"), FORMAT_TFRECORD);
}

static void names_of_nothing(void)
{
	static const char *const names[] = { "",
					     "x",
					     "npy",
					     "x.npyx",
					     "x.jpg",
					     "x.tar.gz",
					     "tfrecord-00000-of-00008",
					     "x.bin",
					     "tar.x",
					     "x.tfrecord-00000-of-00001.json",
					     "x.npz" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		CHECK_INT(of(names[i]), FORMAT_NONE);
}

/* Names are not terminated: what stands behind them is not theirs. */
static void only_so_many_bytes_are_the_name(void)
{
	CHECK_INT(format_of_name("x.tarball", 5), FORMAT_TAR);
	CHECK_INT(format_of_name("x.tar", 4), FORMAT_NONE);
	CHECK(format_is_sidecar("index.jsonx", 10));
	CHECK(!format_is_sidecar("index.json", 9));
	CHECK(format_advice_for_name("x.h5ad", 4) != NULL);
	CHECK(format_advice_for_name("x.h5", 3) == NULL);
}

static void files_that_describe_others(void)
{
	static const char *const yes[] = { "a.idx",     "b.info",           "x.index",
					   "x.crc",     "index.json",       "_SUCCESS",
					   "_metadata", "_common_metadata", ".DS_Store" };
	static const char *const no[] = {
		"a.tar", "idx", "_SUCCESS1", "x_metadata", "success", ""
	};

	for (size_t i = 0; i < ARRAY_LEN(yes); i++)
		CHECK(format_is_sidecar(yes[i], strlen(yes[i])));
	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		CHECK(!format_is_sidecar(no[i], strlen(no[i])));
}

/* No file is taken for a container and for what describes one. */
static void a_sidecar_is_no_container(void)
{
	static const char *const names[] = { "x.tfrecord-00000-of-00002.idx", "x.npy.json",
					     "_metadata", "x.tar.idx" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		CHECK(format_is_sidecar(names[i], strlen(names[i])));
		CHECK_INT(of(names[i]), FORMAT_NONE);
	}
}

static void every_format_has_a_name_of_its_own(void)
{
	for (int i = 0; i < FORMAT_NONE; i++) {
		CHECK(format_names[i] != NULL);
		CHECK(format_advice_for_word(format_names[i]) ==
		      NULL); /* it is read, not advised */
		for (int k = 0; k < i; k++)
			CHECK(strcmp(format_names[i], format_names[k]) != 0);
	}
	CHECK(format_names[FORMAT_NONE] == NULL);
}

static const char *advice_of(const char *name)
{
	return format_advice_for_name(name, strlen(name));
}

static void advice_by_word_and_by_name_is_the_same(void)
{
	static const char *const pairs[][2] = { { "hdf5", "x.h5" },     { "h5", "x.HDF5" },
						{ "netcdf", "x.nc" },   { "lmdb", "data.mdb" },
						{ "FFCV", "x.beton" },  { "recordio", "x.rec" },
						{ "gzip", "x.tar.gz" }, { "zstd", "x.zst" } };

	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		CHECK(format_advice_for_word(pairs[i][0]) != NULL);
		CHECK_STR(advice_of(pairs[i][1]), format_advice_for_word(pairs[i][0]));
	}
}

static void advice_says_what_to_do(void)
{
	CHECK_CONTAINS(format_advice_for_word("lmdb"), "--import");
	CHECK_CONTAINS(format_advice_for_word("hdf5"), "kerchunk");
	CHECK_CONTAINS(advice_of("shard.tar.zst"), "unpack");
	CHECK_CONTAINS(format_advice_for_word("webdataset"), "tar");
	CHECK_CONTAINS(format_advice_for_word("mosaic"), "mds");
}

static void no_advice_where_nothing_is_known(void)
{
	CHECK(format_advice_for_word("") == NULL);
	CHECK(format_advice_for_word("jpeg") == NULL);
	CHECK(format_advice_for_word("hdf") == NULL);
	CHECK(advice_of("x.jpg") == NULL);
	CHECK(advice_of("h5") == NULL);
	CHECK(advice_of(".h5") == NULL); /* a name that is nothing but an end */
	CHECK(advice_of("") == NULL);
}

static const struct check_test tests[] = {
	{ "names_of_containers", names_of_containers },
	{ "names_of_nothing", names_of_nothing },
	{ "only_so_many_bytes_are_the_name", only_so_many_bytes_are_the_name },
	{ "files_that_describe_others", files_that_describe_others },
	{ "a_sidecar_is_no_container", a_sidecar_is_no_container },
	{ "every_format_has_a_name_of_its_own", every_format_has_a_name_of_its_own },
	{ "advice_by_word_and_by_name_is_the_same", advice_by_word_and_by_name_is_the_same },
	{ "advice_says_what_to_do", advice_says_what_to_do },
	{ "no_advice_where_nothing_is_known", no_advice_where_nothing_is_known },
};

CHECK_MAIN(tests)
