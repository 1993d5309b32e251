/* SPDX-License-Identifier: Apache-2.0 */
/* cairo brings libraries of a desktop along, which a mount must not load: it is opened with dlopen
 * when a chart is drawn, and not before. What all charts need is here; what they show is in
 * plot_cairo.c and chart_cairo.c. Main thread. */
#include "canvas.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>

int canvas_open(struct canvas *c, const char *option, struct err *err)
{
	c->handle = dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!c->handle)
		return err_set(err, -ENOTSUP, "%s: cairo is not installed: %s", option, dlerror());
#define LOAD(name) c->name = (__typeof__(c->name))dlsym(c->handle, #name);
	CANVAS_FUNCTIONS(LOAD)
#define CHECK_LOADED(name)                                                                         \
	if (!c->name)                                                                              \
		return err_set(err, -ENOTSUP, "%s: this cairo has no " #name, option);
	CANVAS_FUNCTIONS(CHECK_LOADED)
	return 0;
}

void canvas_text(const struct canvas *c, double x, double y, double align, const char *text)
{
	cairo_text_extents_t size;

	c->cairo_text_extents(c->cr, text, &size);
	c->cairo_move_to(c->cr, x - align * size.x_advance, y);
	c->cairo_show_text(c->cr, text);
}

double canvas_tick(double most)
{
	double base = pow(10, floor(log10(most / 5)));
	double left = most / 5 / base;

	return base * (left < 1.5 ? 1 : left < 3.5 ? 2 : left < 7.5 ? 5 : 10);
}
