/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments that are not what a store has written: every bit of every field flipped, payload bits
 * sampled, fields that are consistent but of something else (with sums that are right, as whoever
 * can write to the directory would make them), and things that are no segments. Nothing of it may
 * be served, nothing crash, and what is right in the same directory must still be served.
 *
 * Segments are made by the kit from FORMAT.md; that the store takes them proves the text as well.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store_kit.h"

enum { N = 12 };
#define NUMBER 0x1122334455667788ull

static const char *dir;
static struct kit_record records[N];

static void make(struct kit_image *image, bool is_sealed)
{
	if (!dir)
		dir = kit_dir("flips");
	kit_clear(dir);
	for (uint32_t i = 0; i < N; i++)
		records[i] = (struct kit_record){ .file = { 1, i }, .entry = i };
	kit_image_make(image, NUMBER, records, N, is_sealed);
}

static uint8_t *payload_of(const struct kit_image *image, unsigned i)
{
	return image->bytes + (uint64_t)records[i].block * KIT_BLOCK;
}

static uint32_t length_of(unsigned i)
{
	return (uint32_t)kit_size(records[i].file);
}

static uint8_t *seal_of(const struct kit_image *image, unsigned i)
{
	return payload_of(image, i) + kit_record_bytes(length_of(i)) - 96;
}

static uint8_t *trailer_of(const struct kit_image *image)
{
	return image->bytes + image->size - KIT_BLOCK;
}

static void flip(uint8_t *bytes, unsigned bit)
{
	bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
}

/* Pieces served of a directory that holds the image only. The store must be usable after it: what
 * is missing is put again, and is then there. */
static unsigned served(const struct kit_image *image, bool is_refilled)
{
	struct store_params params = kit_params(dir);
	struct store *store;
	unsigned n;

	kit_clear(dir);
	kit_image_write(image, dir);
	store = kit_open(&params);
	n = kit_served(store, 1, N);
	for (uint32_t i = 0; is_refilled && i < N; i++) {
		int rc = kit_put(store, records[i].file, 0);

		CHECK(rc == 0 || rc == -EEXIST);
		CHECK_INT(kit_get(store, records[i].file, 0), 0);
	}
	store_close(store);
	return n;
}

static void segments_made_by_hand_are_served(void)
{
	for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
		struct kit_image image;

		make(&image, is_sealed);
		CHECK_U64(served(&image, true), N);
		free(image.bytes);
	}
}

static void no_flipped_bit_of_a_seal_is_served(void)
{
	for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
		struct kit_image image;

		make(&image, is_sealed);
		for (unsigned bit = 0; bit < 96 * 8; bit += N / 2) {
			for (unsigned i = 0; i < N / 2; i++) /* in every other record */
				flip(seal_of(&image, 2 * i), bit + i);
			CHECK_U64(served(&image, bit % 64 == 0), N / 2);
			for (unsigned i = 0; i < N / 2; i++)
				flip(seal_of(&image, 2 * i), bit + i);
		}
		free(image.bytes);
	}
}

static void no_flipped_bit_of_a_payload_is_served(void)
{
	uint64_t seed = check_seed();

	for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
		struct kit_image image;

		make(&image, is_sealed);
		for (unsigned round = 0; round < 60; round++) {
			unsigned bits[N];

			for (unsigned i = 0; i < N; i++) {
				bits[i] = (unsigned)check_rand_below(&seed, length_of(i) * 8ull);
				if (round < 2) /* first and last one */
					bits[i] = round ? length_of(i) * 8 - 1 : 0;
				flip(payload_of(&image, i), bits[i]);
			}
			CHECK_U64(served(&image, round % 16 == 0), 0);
			for (unsigned i = 0; i < N; i++)
				flip(payload_of(&image, i), bits[i]);
		}
		free(image.bytes);
	}
}

static void no_segment_with_a_flipped_header_is_served(void)
{
	for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
		struct kit_image image;

		make(&image, is_sealed);
		for (unsigned bit = 0; bit < 48 * 8; bit++) {
			flip(image.bytes, bit);
			CHECK_U64(served(&image, bit % 64 == 0), 0);
			flip(image.bytes, bit);
		}
		free(image.bytes);
	}
}

/* The records are right, and found without it. */
static void a_flipped_bit_of_footer_or_trailer_loses_nothing(void)
{
	struct kit_image image;
	uint8_t *footer;

	make(&image, true);
	footer = image.bytes + (uint64_t)image.footer_block * KIT_BLOCK;
	for (unsigned bit = 0; bit < 56 * 8; bit++) {
		flip(trailer_of(&image), bit);
		CHECK_U64(served(&image, false), N);
		flip(trailer_of(&image), bit);
	}
	for (unsigned bit = 0; bit < N * 48 * 8; bit += 17) {
		flip(footer, bit);
		CHECK_U64(served(&image, false), N);
		flip(footer, bit);
	}
	free(image.bytes);
}

static void any_length_of_a_file_is_taken(void)
{
	struct kit_image image;
	uint64_t size, end;

	make(&image, true);
	size = image.size;
	for (uint64_t cut = 0; cut <= size; cut += 2048) {
		unsigned want = 0;

		image.size = cut;
		for (unsigned i = 0; i < N; i++) {
			end = (uint64_t)records[i].block * KIT_BLOCK +
			      kit_record_bytes(length_of(i));
			want += end <= cut;
		}
		CHECK_U64(served(&image, false), want);
	}
	image.size = size;
	free(image.bytes);
}

/* --- right sums over something else --- */

static uint32_t spoil_at, spoil_bit;

static void spoil_seal(uint8_t *payload, uint32_t length, uint8_t seal[96])
{
	flip(seal + spoil_at, spoil_bit);
}

/* Whatever a seal says about another record, file, place or filesystem: it is not this one. */
static void seals_of_something_else_are_not_served(void)
{
	for (int is_sealed = 0; is_sealed < 2; is_sealed++)
		for (spoil_at = 0; spoil_at < 72; spoil_at++)
			for (spoil_bit = 0; spoil_bit < 8; spoil_bit += 3) {
				struct kit_image image;

				make(&image, is_sealed);
				free(image.bytes);
				for (uint32_t i = 0; i < N; i += 2)
					records[i].spoil = spoil_seal;
				kit_image_make(&image, NUMBER, records, N, is_sealed);
				CHECK_U64(served(&image, false), N / 2);
				free(image.bytes);
			}
}

/* A footer whose sums are right may say anything: it is a hint where to look. */
static void footers_that_lie_do_no_harm(void)
{
	uint64_t seed = check_seed();
	unsigned n_served = 0;

	for (unsigned round = 0; round < 250; round++) {
		struct kit_image image;
		uint8_t *footer, *trailer;
		unsigned a, b;

		make(&image, true);
		footer = image.bytes + (uint64_t)image.footer_block * KIT_BLOCK;
		trailer = trailer_of(&image);
		a = (unsigned)check_rand_below(&seed, N) * 48;
		b = (unsigned)check_rand_below(&seed, N) * 48;
		switch (check_rand_below(&seed, 5)) {
		case 0: /* one is said to be where the other is */
			memcpy(footer + a, footer + b, 16);
			break;
		case 1: /* a file is said to be another one */
			memcpy(footer + a + 16, footer + b + 16, 32);
			break;
		case 2:
			for (unsigned i = 0; i < 3; i++)
				flip(footer, (unsigned)check_rand_below(&seed, N * 48 * 8));
			break;
		case 3: /* counts and places of the trailer */
			flip(trailer + 8, (unsigned)check_rand_below(&seed, 32 * 8));
			break;
		default: /* as large as it gets */
			memset(trailer + 8 + 4 * check_rand_below(&seed, 8), 0xff, 4);
		}
		kit_sum_footer(&image);
		n_served += served(&image, round % 32 == 0);
		free(image.bytes);
	}
	printf("# %u of %u served\n", n_served, 250 * N);
	CHECK(n_served > 0);
}

static void headers_that_lie_do_no_harm(void)
{
	struct kit_image image;

	for (int is_sealed = 0; is_sealed < 2; is_sealed++)
		for (unsigned bit = 0; bit < 40 * 8; bit += 7) {
			make(&image, is_sealed);
			flip(image.bytes, bit);
			kit_sum_header(image.bytes, NUMBER);
			(void)served(&image, false); /* bytes are compared */
			free(image.bytes);
		}
}

static void other_datasets_find_nothing(void)
{
	struct store_params params = kit_params(kit_dir("flips"));
	struct kit_image image;
	struct store *store;

	make(&image, true);
	kit_image_write(&image, dir);
	free(image.bytes);
	store = kit_open(&params);
	CHECK_U64(kit_served(store, 2, N), 0);
	CHECK_U64(kit_served(store, 1, N), N);
	store_close(store);
	params.fsid++;
	store = kit_open(&params);
	CHECK_U64(kit_served(store, 1, N), 0);
	store_close(store);
}

/* --- what is no segment --- */

static void segments_under_another_name_are_not_served(void)
{
	struct store_params params = kit_params(kit_dir("flips"));
	struct kit_image image;
	struct store *store;

	for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
		make(&image, is_sealed);
		image.number++;
		kit_image_write(&image, dir);
		free(image.bytes);
		store = kit_open(&params);
		CHECK_U64(kit_served(store, 1, N), 0);
		store_close(store);
	}
}

static char *segment_path(void)
{
	char *path;

	CHECK(asprintf(&path, "%s/seg-%016llx", dir, (unsigned long long)NUMBER) > 0);
	return path;
}

static void nobody_elses_files_are_opened(void)
{
	struct store_params params = kit_params(kit_dir("flips"));
	char *away AUTO_FREE = NULL;
	struct kit_image image;

	CHECK(asprintf(&away, "%s-away", dir ? dir : params.dir) > 0);
	for (int way = 0; way < 5; way++) {
		char *path AUTO_FREE = NULL;
		struct store *store;

		make(&image, true);
		kit_image_write(&image, dir);
		free(image.bytes);
		path = segment_path();
		(void)unlink(away);
		if (way == 0) {
			CHECK_INT(rename(path, away), 0);
			CHECK_INT(symlink(away, path), 0);
		} else if (way == 1) {
			CHECK_INT(link(path, away), 0);
		} else if (way == 2) {
			CHECK_INT(chmod(path, 0602), 0);
		} else if (way == 3) {
			CHECK_INT(unlink(path), 0);
			CHECK_INT(mkfifo(path, 0600), 0);
		} else if (geteuid() == 0) {
			CHECK_INT(chown(path, 65534, 65534), 0);
		} else {
			break;
		}
		store = kit_open(&params);
		CHECK_U64(kit_served(store, 1, N), 0);
		store_close(store);
		(void)unlink(away);
	}
}

static int open_status(const char *path)
{
	struct store_params params = kit_params(path);
	struct store *store = NULL;
	struct err err = { 0 };
	int rc = store_open(&params, &store, &err);

	if (rc == 0)
		store_close(store);
	else
		CHECK(err.msg[0] && !strchr(err.msg, '\n'));
	return rc;
}

static void directories_of_others_are_refused(void)
{
	char *link AUTO_FREE = NULL, *file AUTO_FREE = NULL;
	const char *path = kit_dir("refused");
	int fd;

	CHECK(asprintf(&link, "%s-link", path) > 0);
	CHECK(asprintf(&file, "%s/thesis.tex", path) > 0);
	fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	close(fd);
	CHECK_INT(open_status(path), -ENOTEMPTY);
	CHECK_INT(access(file, F_OK), 0);
	CHECK_INT(unlink(file), 0);
	CHECK_INT(symlink(path, link), 0);
	CHECK(open_status(link) < 0);
	CHECK_INT(unlink(link), 0);
	CHECK_INT(chmod(path, 0770), 0);
	CHECK_INT(open_status(path), -EPERM);
	CHECK_INT(chmod(path, 01777), 0);
	CHECK_INT(open_status(path), -EPERM);
	CHECK_INT(chmod(path, 0755), 0);
	CHECK_INT(open_status(path), 0);
	if (geteuid() == 0) {
		CHECK_INT(chown(path, 65534, 65534), 0);
		CHECK_INT(open_status(path), -EPERM);
	}
}

static void other_versions_are_left_alone(void)
{
	char *path AUTO_FREE = NULL, *marker AUTO_FREE = NULL;
	struct kit_image image;
	FILE *file;

	make(&image, true);
	image.bytes[8] = 3; /* of the header, with a right sum */
	kit_sum_header(image.bytes, NUMBER);
	CHECK_U64(served(&image, false), 0);
	path = segment_path();
	CHECK_INT(access(path, F_OK), 0);
	free(image.bytes);
	CHECK(asprintf(&marker, "%s/clairfs-store", dir) > 0);
	file = fopen(marker, "we");
	CHECK(file);
	fputs("clairfs store 3\n", file);
	fclose(file);
	CHECK_INT(open_status(dir), -EPROTONOSUPPORT);
	CHECK_INT(access(path, F_OK), 0);
}

static const struct check_test tests[] = {
	{ "segments_made_by_hand_are_served", segments_made_by_hand_are_served },
	{ "no_flipped_bit_of_a_seal_is_served", no_flipped_bit_of_a_seal_is_served },
	{ "no_flipped_bit_of_a_payload_is_served", no_flipped_bit_of_a_payload_is_served },
	{ "no_segment_with_a_flipped_header_is_served",
	  no_segment_with_a_flipped_header_is_served },
	{ "a_flipped_bit_of_footer_or_trailer_loses_nothing",
	  a_flipped_bit_of_footer_or_trailer_loses_nothing },
	{ "any_length_of_a_file_is_taken", any_length_of_a_file_is_taken },
	{ "seals_of_something_else_are_not_served", seals_of_something_else_are_not_served },
	{ "footers_that_lie_do_no_harm", footers_that_lie_do_no_harm },
	{ "headers_that_lie_do_no_harm", headers_that_lie_do_no_harm },
	{ "other_datasets_find_nothing", other_datasets_find_nothing },
	{ "segments_under_another_name_are_not_served",
	  segments_under_another_name_are_not_served },
	{ "nobody_elses_files_are_opened", nobody_elses_files_are_opened },
	{ "directories_of_others_are_refused", directories_of_others_are_refused },
	{ "other_versions_are_left_alone", other_versions_are_left_alone },
};

CHECK_MAIN(tests)
