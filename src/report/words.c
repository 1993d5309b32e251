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
static const char *number(double s, enum rounding how, char out[32])
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

/* An estimate is said where something was removed for certain, or where it says that nothing was.
 */
static void say_removed(struct text *t, const struct removed_numbers *r)
{
	bool is_small = r->upper_s < 0.01 * r->judged_s;
	char a[32], b[32], c[32];

	number(r->lower_s, DOWN, a);
	number(r->upper_s, UP, b);
	if (r->upper_s < 0) {
		say(t, "removed at least %s s of GPU wait", a);
		return;
	}
	if (is_small && strcmp(a, "0") != 0)
		say(t,
		    "it would hardly have helped: at least %s s of GPU wait in %s s, at most %s s",
		    a, number(r->judged_s, NEAREST, c), b);
	else if (is_small)
		say(t, "it would not have helped: at most %s s of GPU wait in %s s", b,
		    number(r->judged_s, NEAREST, c));
	else if (r->lower_s > 0)
		say(t, "removed at least %s s of GPU wait, at most %s s", a, b);
	else if (r->source && r->estimate_s < 0.01 * r->judged_s)
		say(t, "it would hardly have helped: about %s s of GPU wait in %s s, at most %s s",
		    number(r->estimate_s, NEAREST, a), number(r->judged_s, NEAREST, c), b);
	else
		say(t, "no GPU wait that is certain; at most %s s in %s s", b,
		    number(r->judged_s, NEAREST, c));
	if (r->source && r->lower_s > 0 && !is_small)
		say(t, "; about %s s (%s)", number(r->estimate_s, NEAREST, a), r->source);
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
