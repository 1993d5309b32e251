/* SPDX-License-Identifier: Apache-2.0 */
/* From what was found to specs: for the epoch that was looked at, and for the one after it. One
 * epoch does not tell how a job goes on, so the likeliest is said and the plan verifies it (it also
 * finds out by itself that set_epoch is not called):
 *
 *  - several ranks, or a seed that people type: a DistributedSampler, seed + 1 comes next;
 *  - a word of a manual_seed: a loader and nothing else drawing, the word 4 further on comes next; 6
 *    further on, where the job reads a part of the dataset, so that there is one to validate on;
 *  - two epochs of one manual_seed with other words between them (a validation loader, persistent
 *    workers): the same distance again;
 *  - the same of numpy's or Python's generator, for which no kind of order has a name: one epoch at
 *    a time;
 *  - any other seed: nothing is known of the next epoch, so the order ends with this one.
 *
 * Pure. */
#include <inttypes.h>
#include <string.h>

#include "clairfs/recover.h"
#include "infer_priv.h"

/* From this many samples on, torch >= 2.6 shuffles in another way than what is searched for. */
#define TORCH_LARGE 214748364
#define LOADER_WORD 3
#define WORDS_KNOWN 1024  /* of a manual_seed that was found before */
#define LOADER_STEP 4     /* words of an epoch */
#define PERSISTENT_STEP 2 /* with workers that live on */
#define VALIDATED_STEP 6  /* a validation loader begins after each epoch */
#define FIRST_WORDS 128   /* here a seed is of a later epoch rather than behind other draws */

/* A seed found by its neighbourhood to a hint may be a later word of the manual_seed known. */
static void name_chain(const struct known *k, struct infer_answer *a)
{
	if (!k->is_found || !k->last.is_chain || a->is_chain || a->spec[0] ||
	    k->last.draw != RECOVER_TORCH)
		return;
	if (!recover_find_word(k->last.manual_seed, a->seed, WORDS_KNOWN, &a->word))
		return;
	a->is_chain = true;
	a->is_likely = false;
	a->draw = RECOVER_TORCH;
	a->manual_seed = k->last.manual_seed;
}

static bool is_same_name(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool is_one_way(const struct infer_numbering *a, const struct infer_numbering *b)
{
	return is_same_name(a->sort, b->sort) && strcmp(a->under, b->under) == 0 && a->first == b->first &&
	       a->is_split == b->is_split && a->split == b->split;
}

static bool is_behind(const struct recover_place *a, const struct recover_place *b)
{
	return a->draw == b->draw && a->manual_seed == b->manual_seed && a->word > b->word;
}

/* A seed stands in so many words somewhere by chance. Two epochs' in one stream, one behind the
 * other, do not. */
static void name_by_places(const struct known *k, struct infer_answer *a)
{
	for (size_t i = 0; !a->is_chain && i < a->n_places; i++)
		for (size_t j = 0; !a->is_chain && j < k->n_places; j++) {
			if (!is_behind(&a->place[i], &k->place[j]))
				continue;
			a->is_chain = true;
			a->draw = a->place[i].draw;
			a->manual_seed = a->place[i].manual_seed;
			a->word = a->place[i].word;
		}
}

static struct recover_place place_of(const struct infer_answer *a)
{
	return (struct recover_place){ a->draw, a->manual_seed, a->word };
}

/* Words per pass since the place known that this one is behind of, 0: none, or no whole number. */
static uint32_t step_since(const struct known *k, const struct infer_answer *a, uint64_t pass)
{
	struct recover_place place = place_of(a);

	if (!k->is_found || !a->is_chain || pass <= k->found_pass)
		return 0;
	for (size_t i = 0; i < k->n_places; i++)
		if (is_behind(&place, &k->place[i]) &&
		    (place.word - k->place[i].word) % (pass - k->found_pass) == 0)
			return (place.word - k->place[i].word) / (uint32_t)(pass - k->found_pass);
	return 0;
}

static void keep_places(struct known *k, const struct infer_answer *a)
{
	k->n_places = a->n_places;
	memcpy(k->place, a->place, sizeof(k->place));
	if (!a->is_chain)
		return;
	k->place[0] = place_of(a);
	k->n_places = 1;
}

/* As several passes that were looked at together told. */
static void go_on(struct known *k, enum recover_next next)
{
	k->is_same |= next == RECOVER_NEXT_SAME;
	k->is_next |= next == RECOVER_NEXT_ONE;
	if (next != RECOVER_NEXT_FOUR && next != RECOVER_NEXT_TWO)
		return;
	k->has_step = true;
	k->step = next == RECOVER_NEXT_FOUR ? LOADER_STEP : PERSISTENT_STEP;
}

void known_found(struct known *k, const struct infer_answer *answer, uint64_t pass, uint32_t n_seen)
{
	const struct infer_answer *last = &k->last;
	struct infer_answer named = *answer, *a = &named;
	bool is_one = k->is_found && is_one_way(&a->way, &last->way);
	bool is_later = is_one && pass == k->pass + 1 && !a->spec[0] && !last->spec[0];
	uint32_t step = 0;

	if (is_one) { /* else another loader's: it draws when it likes */
		name_chain(k, a);
		name_by_places(k, a);
		step = step_since(k, a, pass);
	}
	if (!k->is_found || pass != k->pass || k->is_guess) {
		k->is_same = is_later && a->seed == last->seed;
		k->is_next = is_later && a->seed == last->seed + 1;
		k->has_step = step > 0;
		k->step = step;
		go_on(k, a->next);
	}
	keep_places(k, a);
	k->found_pass = pass;
	k->last = *a;
	k->is_found = true;
	k->is_guess = false;
	k->pass = pass;
	k->n_seen = n_seen;
}

/* Who reads a part of the dataset validates on another one, most likely. */
static uint32_t step_of(const struct known *k)
{
	if (k->has_step)
		return k->step;
	return k->last.way.under[0] ? VALIDATED_STEP : LOADER_STEP;
}

/* Whether the orders of module order name the chain. */
static bool is_loader(const struct known *k, uint64_t n)
{
	return k->last.is_chain && k->last.draw == RECOVER_TORCH && k->last.world == 1 &&
	       n < TORCH_LARGE && k->last.word >= LOADER_WORD;
}

/* The loader draws first of all, and nobody else does. */
static bool is_alone(const struct known *k)
{
	uint32_t step = step_of(k);

	return k->last.word < FIRST_WORDS && (step == LOADER_STEP || step == PERSISTENT_STEP) &&
	       (k->last.word - LOADER_WORD) % step == 0;
}

static bool is_endless(const struct known *k, uint64_t n)
{
	return k->last.spec[0] || k->last.world > 1 || is_loader(k, n) || k->is_same ||
	       k->is_next || (k->last.is_likely && !k->last.is_chain);
}

bool known_goes_on(const struct known *k)
{
	return k->is_found && is_endless(k, 0);
}

/* "0-3+6" */
static void next_put_ranks(const struct infer_answer *a, FILE *out)
{
	uint32_t end;

	fprintf(out, ":rank%s=", a->n_ranks > 1 ? "s" : "");
	for (uint32_t i = 0; i < a->n_ranks; i = end) {
		for (end = i + 1; end < a->n_ranks && a->rank[end] == a->rank[end - 1] + 1;)
			end++;
		fprintf(out, "%s%" PRIu32, i ? "+" : "", a->rank[i]);
		if (end - i > 1)
			fprintf(out, "-%" PRIu32, a->rank[end - 1]);
	}
}

static void put_loader(const struct known *k, FILE *out)
{
	uint32_t step = step_of(k), epoch = (k->last.word - LOADER_WORD) / step;

	if (!is_alone(k)) {
		fprintf(out, "torch-loader:seed=%" PRIu32, k->last.manual_seed);
		if (k->last.word > LOADER_WORD)
			fprintf(out, ":before=%" PRIu32, k->last.word - LOADER_WORD);
		if (step != LOADER_STEP)
			fprintf(out, ":draws=%" PRIu32, step);
		return;
	}
	fprintf(out, "torch-loader:seed=%" PRIu32 "%s", k->last.manual_seed,
		step == PERSISTENT_STEP ? ":persistent=1" : "");
	if (epoch)
		fprintf(out, ":start_epoch=%" PRIu32, epoch);
}

static void put_permutation(const struct known *k, uint64_t n, FILE *out)
{
	const struct infer_answer *a = &k->last;

	if (a->world > 1) {
		fprintf(out, "torch-distributed:seed=%" PRIu32 ":world=%" PRIu32, a->seed,
			a->world);
		next_put_ranks(a, out);
	} else if (!k->is_same && is_endless(k, n)) {
		fprintf(out, "torch-distributed:seed=%" PRIu32, a->seed);
	} else {
		fprintf(out, "torch-randperm:seed=%" PRIu32, a->seed);
	}
	if (n >= TORCH_LARGE)
		fputs(":large=0", out);
	if (!is_endless(k, n))
		fputs(":epochs=1", out);
}

/* Escaped as values of a spec are. */
static void put_path(const char *path, FILE *out)
{
	for (; *path; path++)
		if (*path == ':' || *path == ',' || *path == '%')
			fprintf(out, "%%%02X", (unsigned char)*path);
		else
			fputc(*path, out);
}

static void put_numbering(const struct infer_numbering *way, FILE *out)
{
	if (way->is_split)
		fprintf(out, ":split=%" PRIu32, way->split);
	if (way->first)
		fprintf(out, ":first=%" PRIu64, way->first);
	if (way->sort)
		fprintf(out, ":sort=%s", way->sort);
	if (!way->under[0])
		return;
	fputs(":under=", out);
	put_path(way->under, out);
}

bool known_spec(const struct known *k, uint64_t n, char out[INFER_SPEC_MAX])
{
	FILE *file AUTO_FILE = NULL;

	if (k->last.n)
		n = k->last.n;

	memset(out, 0, INFER_SPEC_MAX);
	file = fmemopen(out, INFER_SPEC_MAX - 1, "w");
	if (!file)
		return false;
	if (k->last.spec[0])
		fputs(k->last.spec, file);
	else if (is_loader(k, n))
		put_loader(k, file);
	else
		put_permutation(k, n, file);
	put_numbering(&k->last.way, file);
	return fflush(file) == 0 && !ferror(file);
}

bool known_can_advance(const struct known *k)
{
	return k->is_found && k->has_step && k->last.is_chain && !is_endless(k, 0);
}

void known_advance(struct known *k)
{
	struct recover_place place;

	k->last.word += k->step;
	place = place_of(&k->last);
	k->last.seed = recover_place_word(&place);
	k->pass++;
	k->is_guess = true;
}

size_t known_hints(const struct known *k, uint32_t hints[KNOWN_HINTS])
{
	size_t n = 0;

	for (uint32_t i = 0; i < MIN(k->n_told, ARRAY_LEN(k->told)); i++)
		hints[n++] = k->told[i];
	if (!k->is_found || k->last.spec[0])
		return n;
	hints[n++] = k->last.seed;
	if (!k->last.is_chain)
		return n;
	hints[n++] = k->last.manual_seed;
	if (k->has_step) {
		struct recover_place next = place_of(&k->last);

		next.word += k->step;
		hints[n++] = recover_place_word(&next);
	}
	return n;
}

size_t known_places(const struct known *k, struct recover_place places[INFER_PLACES])
{
	memcpy(places, k->place, sizeof(k->place));
	return k->is_found ? k->n_places : 0;
}

void known_told(struct known *k, const char *spec)
{
	const char *at = spec ? strstr(spec, ":seed=") : NULL;
	uint32_t seed = at ? (uint32_t)strtoull(at + strlen(":seed="), NULL, 10) : 0;

	for (uint32_t i = 0; i < MIN(k->n_told, ARRAY_LEN(k->told)); i++)
		if (k->told[i] == seed)
			return;
	if (at)
		k->told[k->n_told++ % ARRAY_LEN(k->told)] = seed;
}

static bool is_same_order(const struct infer_answer *a, const struct infer_answer *b)
{
	return !a->spec[0] && !b->spec[0] && a->seed == b->seed && a->world == b->world &&
	       a->is_chain == b->is_chain && a->manual_seed == b->manual_seed &&
	       a->word == b->word && is_one_way(&a->way, &b->way);
}

static bool has_rank(const struct infer_answer *a, uint32_t rank)
{
	for (uint32_t i = 0; i < a->n_ranks; i++)
		if (a->rank[i] == rank)
			return true;
	return false;
}

bool known_has_ranks(const struct known *k, const struct infer_answer *some)
{
	/* As many: two jobs that read the same. */
	if (!is_same_order(&k->last, some) || some->n_ranks >= k->last.n_ranks)
		return false;
	for (uint32_t i = 0; i < some->n_ranks; i++)
		if (!has_rank(&k->last, some->rank[i]))
			return false;
	return true;
}

bool known_add_ranks(struct known *k, const struct infer_answer *more)
{
	struct infer_answer *last = &k->last;
	uint32_t at = 0;

	if (!is_same_order(last, more) || last->n_ranks + more->n_ranks > ARRAY_LEN(last->rank))
		return false;
	for (uint32_t j = 0; j < more->n_ranks; j++)
		if (has_rank(last, more->rank[j]))
			return false;
	for (uint32_t j = 0; j < more->n_ranks; j++) { /* they are in order, as in a spec */
		while (at < last->n_ranks && last->rank[at] < more->rank[j])
			at++;
		memmove(&last->rank[at + 1], &last->rank[at],
			(last->n_ranks - at) * sizeof(last->rank[0]));
		last->rank[at] = more->rank[j];
		last->n_ranks++;
	}
	return true;
}
