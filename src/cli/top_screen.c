/* SPDX-License-Identifier: Apache-2.0 */
/* The live view, drawn with ncurses: the lines of all mounts one beneath the other, scrolled where
 * they do not fit, a head that says how to leave. The terminal is given back in every case that a
 * program can see: on q and ^C here, on SIGTERM by ncurses itself. One thread. */
#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "cli.h"
#include "top.h"

#define CTRL_C 3

struct screen {
	struct top *top;
	struct top_lines lines;
	uint32_t *begins; /* [top->n] line of each mount */
	uint32_t from;    /* first line shown */
};

static void screen_gather(struct screen *s, bool is_asking)
{
	s->lines.n = 0;
	s->lines.width = (uint32_t)MAX(COLS, 1);
	for (uint32_t i = 0; i < s->top->n; i++) {
		if (is_asking)
			top_ask(&s->top->mount[i]);
		if (i)
			top_add(&s->lines, "%s", "");
		s->begins[i] = s->lines.n;
		top_view(&s->top->mount[i], &s->lines);
	}
}

static void screen_draw(struct screen *s)
{
	uint32_t rows = (uint32_t)MAX(LINES - 1, 0);
	char clock[16], head[128];
	time_t now = time(NULL);
	struct tm tm;

	s->from = s->lines.n > rows ? MIN(s->from, s->lines.n - rows) : 0;
	localtime_r(&now, &tm);
	strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	snprintf(head, sizeof(head), "clairfs top  q: quit%s  %s  %u mount(s)",
		 s->lines.n > rows ? "  arrows: scroll" : "", clock, s->top->n);
	erase();
	attron(A_REVERSE);
	mvaddnstr(0, 0, head, COLS);
	attroff(A_REVERSE);
	for (uint32_t i = s->from, y = 1; i < s->lines.n && y <= rows; i++, y++) {
		bool is_begin = false;

		for (uint32_t k = 0; k < s->top->n; k++)
			is_begin = is_begin || s->begins[k] == i;
		if (is_begin)
			attron(A_BOLD);
		mvaddnstr((int)y, 0, s->lines.line[i], COLS);
		attroff(A_BOLD);
	}
	refresh();
}

/* False: enough. */
static bool screen_key(struct screen *s, int key)
{
	uint32_t page = (uint32_t)MAX(LINES - 2, 1);

	switch (key) {
	case 'q':
	case 'Q':
	case CTRL_C:
		return false;
	case KEY_UP:
	case 'k':
		s->from -= s->from > 0;
		break;
	case KEY_DOWN:
	case 'j':
		s->from++; /* no farther than the end: screen_draw */
		break;
	case KEY_PPAGE:
	case 'b':
		s->from -= MIN(s->from, page);
		break;
	case KEY_NPAGE:
	case ' ':
		s->from += page;
		break;
	default:
		break;
	}
	return true;
}

static void screen_run(struct screen *s)
{
	uint64_t next = 0, every = (uint64_t)(s->top->interval_s * (double)NS_PER_S);

	for (;;) {
		uint64_t now = clock_now(clock_monotonic());
		bool is_due = now >= next;
		int key;

		if (is_due)
			next = now + every;
		screen_gather(s, is_due);
		screen_draw(s);
		now = clock_now(clock_monotonic());
		timeout(now < next ? (int)((next - now) / NS_PER_MS) + 1 : 0);
		key = getch();
		if (!screen_key(s, key))
			return;
	}
}

int top_screen(struct top *top)
{
	struct screen s = { .top = top };
	const char *type = getenv("TERM");
	SCREEN *screen;

	s.begins = calloc(top->n, sizeof(*s.begins));
	if (!s.begins)
		return cli_fail(&(struct err){ .code = -ENOMEM, .msg = "out of memory" });
	setlocale(LC_CTYPE, ""); /* not its numbers: they are for programs, too */
	screen = newterm(NULL, stdout, stdin);
	if (!screen) {
		free(s.begins);
		fprintf(stderr,
			"clairfs: top: a terminal of type '%s' is not known here: --once prints text\n",
			type ? type : "");
		return EXIT_FAILED;
	}
	raw();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	screen_run(&s);
	endwin();
	delscreen(screen);
	top_lines_fini(&s.lines);
	free(s.begins);
	return cli_finish();
}
