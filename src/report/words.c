/* SPDX-License-Identifier: Apache-2.0 */
/* GPU wait removed, in words: the same in clairfs status, top, report and bench.
 *
 * Words must never say more than the numbers do. What is "at least" is rounded down and what is "at
 * most" up; "it would not have helped" is one of the answers; and what the numbers leave out is
 * named: passes that are not judged yet, or never will be, and why; reads that the order did not
 * foresee. Pure; any thread. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "clairfs/report.h"

struct text {
	char *out;
	size_t size, len;
};

static void say(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->out + t->len, t->size - t->len, format, args);
	va_end(args);
	if (n > 0)
		t->len = MIN(t->len + (size_t)n, t->size - 1);
}

enum rounding { DOWN, NEAREST, UP };

/* Tenths, or thousandths below a second. */
static const char *number_text(double s, enum rounding how, char out[32])
{
	double unit = s >= 1 ? 10 : 1000, n = s * unit;

	/* A number that a double has not exactly is not the next one. */
	n = how == DOWN ? floor(n + 1e-6) : how == UP ? ceil(n - 1e-6) : round(n);
	if (n <= 0)
		snprintf(out, 32, "0");
	else
		snprintf(out, 32, "%.*f", s >= 1 ? 1 : 3, n / unit);
	return out;
}

/* A page cache counts as nothing in the upper bound, so what it would have saved is named. A bound
 * longer than what it is of says nothing, but near the lower one: most of the time was removed. */
static void say_at_most(struct text *t, const struct removed_numbers *r, const char *before)
{
	char a[32];

	if (r->upper_s < 0 || (r->upper_s > r->judged_s && r->upper_s > 2 * r->lower_s))
		return;
	say(t, "%sat most %s s", before, number_text(r->upper_s, UP, a));
	if (r->page_cache_s > 0 && r->page_cache_s >= 0.01 * r->judged_s)
		say(t, ", of which the page cache would have saved about %s s",
		    number_text(r->page_cache_s, NEAREST, a));
}

/* All of it may be nothing. */
static void say_small(struct text *t, const struct removed_numbers *r, bool is_certain)
{
	char a[32], b[32], c[32];

	number_text(r->judged_s, NEAREST, c);
	if (is_certain)
		say(t,
		    "it would hardly have helped: at least %s s of GPU wait in %s s, at most %s s",
		    number_text(r->lower_s, DOWN, a), c, number_text(r->upper_s, UP, b));
	else
		say(t, "it would not have helped: at most %s s of GPU wait in %s s",
		    number_text(r->upper_s, UP, b), c);
}

static void say_uncertain(struct text *t, const struct removed_numbers *r)
{
	bool is_hardly = r->source && r->estimate_s < 0.01 * r->judged_s;
	char a[32], b[32];

	number_text(r->judged_s, NEAREST, b);
	if (is_hardly)
		say(t, "it would hardly have helped: about %s s of GPU wait in %s s",
		    number_text(r->estimate_s, NEAREST, a), b);
	else if (r->source)
		say(t, "removed about %s s of GPU wait in %s s, not certain (%s)",
		    number_text(r->estimate_s, NEAREST, a), b, r->source);
	else
		say(t, "no GPU wait that is certain in %s s", b);
	say_at_most(t, r, is_hardly ? ", " : "; ");
}

static void say_removed(struct text *t, const struct removed_numbers *r)
{
	bool is_small = r->upper_s >= 0 && r->upper_s < 0.01 * r->judged_s, is_certain;
	char a[32];

	is_certain = strcmp(number_text(r->lower_s, DOWN, a), "0") != 0;
	if (is_small) {
		say_small(t, r, is_certain);
	} else if (!is_certain && r->upper_s >= 0) {
		say_uncertain(t, r);
	} else {
		say(t, "removed at least %s s of GPU wait", a);
		say_at_most(t, r, ", ");
		if (r->source && r->upper_s >= 0)
			say(t, "; about %s s (%s)", number_text(r->estimate_s, NEAREST, a),
			    r->source);
	}
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "es";
}

static void say_left_out(struct text *t, const struct removed_numbers *r)
{
	uint64_t all = r->passes + r->unjudged + r->open;

	if (r->open && r->passes)
		say(t, "; %" PRIu64 " of %" PRIu64 " passes judged so far", r->passes, all);
	if (r->unjudged && r->passes)
		say(t, "; %" PRIu64 " of %" PRIu64 " pass%s not judged%s%s", r->unjudged, all,
		    plural(all), r->unjudged_why ? ": " : "",
		    r->unjudged_why ? r->unjudged_why : "");
	if (r->unplaced * 100 > r->reads && (r->passes || r->reads > r->unplaced))
		say(t, "; %.0f %% of the reads had no place in the order and are not in this",
		    floor(100 * (double)r->unplaced / (double)r->reads));
}

void removed_words(const struct removed_numbers *r, char *out, size_t size)
{
	struct text t = { .out = out, .size = size };

	*out = '\0';
	if (r->passes == 0) {
		say(&t, "not known: %s", r->why ? r->why : "nothing was judged");
		if (r->unjudged)
			say(&t, "; %" PRIu64 " pass%s not judged%s%s", r->unjudged,
			    plural(r->unjudged), r->unjudged_why ? ": " : "",
			    r->unjudged_why ? r->unjudged_why : "");
	} else {
		say_removed(&t, r);
	}
	say_left_out(&t, r);
}
