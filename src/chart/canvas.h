/* SPDX-License-Identifier: Apache-2.0 */
/* cairo, opened when something is drawn. Only files that are built with cairo include this. */
#ifndef CLAIRFS_CHART_CANVAS_H
#define CLAIRFS_CHART_CANVAS_H

#include <cairo-svg.h>
#include <cairo.h>

#include "clairfs/base/err.h"

#define CANVAS_FUNCTIONS(X)                                                                        \
	X(cairo_arc)                                                                               \
	X(cairo_create)                                                                            \
	X(cairo_destroy)                                                                           \
	X(cairo_fill)                                                                              \
	X(cairo_image_surface_create)                                                              \
	X(cairo_line_to)                                                                           \
	X(cairo_move_to)                                                                           \
	X(cairo_paint)                                                                             \
	X(cairo_rectangle)                                                                         \
	X(cairo_rel_line_to)                                                                       \
	X(cairo_restore)                                                                           \
	X(cairo_rotate)                                                                            \
	X(cairo_save)                                                                              \
	X(cairo_select_font_face)                                                                  \
	X(cairo_set_dash)                                                                          \
	X(cairo_set_font_size)                                                                     \
	X(cairo_set_line_width)                                                                    \
	X(cairo_set_source_rgb)                                                                    \
	X(cairo_show_text)                                                                         \
	X(cairo_status)                                                                            \
	X(cairo_status_to_string)                                                                  \
	X(cairo_stroke)                                                                            \
	X(cairo_surface_destroy)                                                                   \
	X(cairo_surface_finish)                                                                    \
	X(cairo_surface_status)                                                                    \
	X(cairo_surface_write_to_png)                                                              \
	X(cairo_svg_surface_create)                                                                \
	X(cairo_svg_surface_create_for_stream)                                                     \
	X(cairo_text_extents)                                                                      \
	X(cairo_translate)

#define CANVAS_MEMBER(name) __typeof__(name) *name;
struct canvas {
	CANVAS_FUNCTIONS(CANVAS_MEMBER)
	cairo_t *cr;
	void *handle;
};

/* Loads cairo; `option` is who wants it, for the error. -ENOTSUP. It stays loaded. */
int canvas_open(struct canvas *c, const char *option, struct err *err) MUST_USE;
/* Text at a point: align 0 begins, 0.5 is centred, 1 ends there. */
void canvas_text(const struct canvas *c, double x, double y, double align, const char *text);
/* 1, 2 or 5 times a power of ten, so that about five of them make `most`. */
double canvas_tick(double most);

#endif
