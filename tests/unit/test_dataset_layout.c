/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files are samples, in which order, and what LAYOUT_AUTO chooses. The expected orders were
 * written down by hand; tests/model/test_dataset_oracle.py asks Python.
 */
#include "dataset_kit.h"

#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void check_samples(const char *name, const char *const *paths, enum dataset_layout layout,
			  const char *want)
{
	AUTO_FREE char *root = kit_tree(name, paths);
	struct dataset *ds = kit_open(root, (struct kit_open){ .layout = layout });
	AUTO_FREE char *samples = kit_samples(ds);

	CHECK_STR(samples, want);
	dataset_free(ds);
}

static void check_auto(const char *name, const char *const *paths, enum dataset_layout want)
{
	AUTO_FREE char *root = kit_tree(name, paths);
	struct dataset *ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_AUTO });

	CHECK_STR(dataset_layout_names[dataset_layout(ds)], dataset_layout_names[want]);
	dataset_free(ds);
}

static void imagefolder_sorts_classes_then_roots_then_names(void)
{
	check_samples("roots",
		      PATHS("b/2.jpg", "b/1.jpg", "b/a/0.jpg", "b/a-b/0.jpg", "b/a/x/0.jpg",
			    "a-/z.jpg", "a/q.jpg", "a/z/0.jpg", "top.jpg"),
		      LAYOUT_IMAGEFOLDER,
		      "a/q.jpg\na/z/0.jpg\na-/z.jpg\nb/1.jpg\nb/2.jpg\nb/a/0.jpg\nb/a-b/0.jpg\n"
		      "b/a/x/0.jpg\n");
}

static void imagefolder_takes_listed_extensions_in_any_case(void)
{
	check_samples("extensions",
		      PATHS("c/1.jpg", "c/2.JPEG", "c/3.Png", "c/4.ppm", "c/5.bmp", "c/6.pgm",
			    "c/7.tif", "c/8.TIFF", "c/9.webp", "c/x.gif", "c/y.jpg.txt", "c/jpg",
			    "c/z.jp"),
		      LAYOUT_IMAGEFOLDER,
		      "c/1.jpg\nc/2.JPEG\nc/3.Png\nc/4.ppm\nc/5.bmp\nc/6.pgm\nc/7.tif\nc/8.TIFF\n"
		      "c/9.webp\n");
}

static void hidden_names_count_as_others(void)
{
	check_samples("hidden", PATHS(".git/x.jpg", "a/.jpg", "a/.b.jpg", "a/c.jpg"),
		      LAYOUT_IMAGEFOLDER, ".git/x.jpg\na/.b.jpg\na/.jpg\na/c.jpg\n");
}

static void files_sorts_whole_paths(void)
{
	check_samples("files", PATHS("a/x", "a-b", "a0", "a/y/z", "a.d/q", "A", "top"),
		      LAYOUT_FILES, "A\na-b\na.d/q\na/x\na/y/z\na0\ntop\n");
}

static void bytes_that_are_no_utf8_sort_as_surrogates(void)
{
	/* U+D7FF < each escaped byte < U+E000 < U+1F600 */
	check_samples(
		"surrogates",
		PATHS("\xf0\x9f\x98\x80", "\xee\x80\x80", "\xff", "\x80", "\xed\x9f\xbf", "z"),
		LAYOUT_FILES, "z\n\xed\x9f\xbf\n\x80\n\xff\n\xee\x80\x80\n\xf0\x9f\x98\x80\n");
}

static void a_difference_inside_of_a_sequence_is_decoded_from_its_start(void)
{
	/* U+20AC against U+DCE2 'a', and a prefix that is only half of a character. */
	check_samples("inside",
		      PATHS("n\xe2\x82"
			    "a",
			    "n\xe2\x82\xac", "n\xe2\x82", "n\xf0\x9f\x98", "n\xef\xbf\xbd"),
		      LAYOUT_FILES,
		      "n\xe2\x82\xac\nn\xe2\x82\nn\xe2\x82"
		      "a\nn\xf0\x9f\x98\nn\xef\xbf\xbd\n");
}

static void auto_is_imagefolder_when_every_top_directory_has_an_image(void)
{
	check_auto("all", PATHS("a/1.jpg", "b/deep/er/2.png", "b/notes.txt"), LAYOUT_IMAGEFOLDER);
	check_auto("with_empty", PATHS("a/1.jpg", "empty/", "hollow/x/"), LAYOUT_IMAGEFOLDER);
}

static void auto_is_files_when_a_top_directory_has_none(void)
{
	check_auto("one_without", PATHS("a/1.jpg", "a/2.jpg", "a/3.jpg", "labels/x.txt"),
		   LAYOUT_FILES);
}

static void auto_is_files_when_most_files_are_no_images(void)
{
	check_auto("half", PATHS("a/1.jpg", "a/1.txt"), LAYOUT_IMAGEFOLDER);
	check_auto("less", PATHS("a/1.jpg", "a/1.txt", "top.txt"), LAYOUT_FILES);
}

static void auto_is_files_without_class_directories(void)
{
	check_auto("flat", PATHS("1.jpg", "2.jpg"), LAYOUT_FILES);
	check_auto("flat_and_empty", PATHS("1.jpg", "2.jpg", "d/"), LAYOUT_FILES);
	check_auto("nothing", PATHS("d/"), LAYOUT_FILES);
}

static void entries_are_samples_then_directories_then_others(void)
{
	AUTO_FREE char *root = kit_tree("kinds", PATHS("c/1.jpg", "c/x.txt", "d/2.jpg", "top"));
	struct dataset *ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_IMAGEFOLDER });

	CHECK_INT(dataset_n_samples(ds), 2);
	CHECK_INT(dataset_n_entries(ds), 6);
	CHECK_U64(dataset_sample_bytes(ds), 2);
	CHECK_INT(dataset_kind(ds, (struct entry_id){ 1 }), ENTRY_KIND_FILE);
	CHECK_INT(dataset_kind(ds, (struct entry_id){ 2 }), ENTRY_KIND_DIR);
	CHECK_INT(dataset_kind(ds, (struct entry_id){ 3 }), ENTRY_KIND_DIR);
	CHECK_INT(dataset_kind(ds, (struct entry_id){ 4 }), ENTRY_KIND_FILE);
	CHECK(!dataset_is_sample(ds, kit_find(ds, "c/x.txt")));
	CHECK(!dataset_is_sample(ds, kit_find(ds, "top")));
	CHECK(dataset_is_sample(ds, kit_find(ds, "d/2.jpg")));
	dataset_free(ds);
}

static const struct check_test tests[] = {
	{ "imagefolder_sorts_classes_then_roots_then_names",
	  imagefolder_sorts_classes_then_roots_then_names },
	{ "imagefolder_takes_listed_extensions_in_any_case",
	  imagefolder_takes_listed_extensions_in_any_case },
	{ "hidden_names_count_as_others", hidden_names_count_as_others },
	{ "files_sorts_whole_paths", files_sorts_whole_paths },
	{ "bytes_that_are_no_utf8_sort_as_surrogates", bytes_that_are_no_utf8_sort_as_surrogates },
	{ "a_difference_inside_of_a_sequence_is_decoded_from_its_start",
	  a_difference_inside_of_a_sequence_is_decoded_from_its_start },
	{ "auto_is_imagefolder_when_every_top_directory_has_an_image",
	  auto_is_imagefolder_when_every_top_directory_has_an_image },
	{ "auto_is_files_when_a_top_directory_has_none",
	  auto_is_files_when_a_top_directory_has_none },
	{ "auto_is_files_when_most_files_are_no_images",
	  auto_is_files_when_most_files_are_no_images },
	{ "auto_is_files_without_class_directories", auto_is_files_without_class_directories },
	{ "entries_are_samples_then_directories_then_others",
	  entries_are_samples_then_directories_then_others },
};
CHECK_MAIN(tests)
