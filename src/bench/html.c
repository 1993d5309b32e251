/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a bench: one HTML file that needs no network, no script and no other file. Charts
 * are SVG images inside (data URLs), one for light and one for dark screens. Whatever comes from
 * outside (paths, orders, names of machines) is escaped, and the page forbids its own loading of
 * anything, should that ever be wrong. Must never leave half a file under the name asked for. Main
 * process, after the run. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>

#include "charts.h"
#include "clairfs/base/text.h"

static const char head[] =
	"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
	"style-src 'unsafe-inline'\">\n"
	"<meta name=\"viewport\" content=\"width=device-width\">\n"
	"<meta name=\"color-scheme\" content=\"light dark\">\n<title>clairfs bench</title>\n"
	"<style>\n"
	":root{--page:#fff;--text:#222;--soft:#666;--line:#ddd;--head:#f4f4f4}\n"
	"@media(prefers-color-scheme:dark){:root{--page:#1a1c21;--text:#e0e0e0;--soft:#9a9a9a;"
	"--line:#3a3d44;--head:#24272d}}\n"
	"body{background:var(--page);color:var(--text);font:15px/1.45 system-ui,sans-serif;"
	"max-width:980px;margin:1.5em auto;padding:0 12px}\n"
	"h1{font-size:1.5em;margin:0}h2{font-size:1.15em;margin:1.6em 0 .5em}\n"
	"table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.86em;"
	"width:100%}\n"
	"th,td{padding:3px 7px;text-align:right;border-bottom:1px solid var(--line)}\n"
	"th{background:var(--head);font-weight:600;vertical-align:bottom}\n"
	"th:first-child,td:first-child{text-align:left}\n"
	"dl{display:grid;grid-template-columns:8em 1fr;gap:2px 10px;margin:.8em 0}\n"
	"dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n"
	"figure{margin:1em 0}img{width:100%;height:auto}\n"
	"p,li{max-width:62em}small{color:var(--soft)}\n</style>\n</head>\n<body>\n";

static const char words[] =
	"<h2>What the figures are</h2>\n<ul>\n"
	"<li>AU: time computing / time, both without the first step of an epoch (DLIO's "
	"formula), mean "
	"of the ranks.</li>\n"
	"<li>Stall: time a rank waited for its next batch; the total is the mean of the ranks. "
	"Wait: "
	"of one step. Read: open to close of one sample.</li>\n"
	"<li>MB/s: bytes that were read, 10<sup>6</sup> a second; nothing is computed from stated "
	"sizes.</li>\n"
	"<li>source: nothing of the dataset in the page cache when an epoch begins. pagecache: "
	"what "
	"reading the epoch before has left there. clairfs: a mount of its own, which is stopped "
	"while "
	"other sides run.</li>\n"
	"<li>Stall removed, measured: stall without clairfs (first epoch: source; later ones: "
	"pagecache if it was measured) minus stall with it; of several ranks their mean, with "
	"their waits for each other. Lower bound, estimate and upper bound are what the mount "
	"itself says, without knowing the other sides: the mean of ranks, the upper bound their "
	"sum; none where it is not certain which epoch it has judged.</li>\n"
	"<li>Bound: what the source must give at least; every byte of an epoch once, less what "
	"fits into "
	"the caches. What is fetched ahead for the next epoch counts where it was fetched.</li>\n"
	"<li>The storage knew the order of the reads. Where a workload of MLPerf Storage or DLIO "
	"was "
	"used, this is a run in its style, not an MLPerf result.</li>\n</ul>\n</body>\n</html>\n";

static void put_text(struct buf_writer *w, const char *text)
{
	buf_put_bytes(w, text, strlen(text));
}

/* Text of others. */
static void put_foreign(struct buf_writer *w, const char *text)
{
	char escaped[8192];

	text_escape(text, strlen(text), escaped, sizeof(escaped));
	for (const char *c = escaped; *c; c++) {
		if (*c == '&')
			put_text(w, "&amp;");
		else if (*c == '<')
			put_text(w, "&lt;");
		else if (*c == '>')
			put_text(w, "&gt;");
		else if (*c == '"')
			put_text(w, "&quot;");
		else if (*c == '\'')
			put_text(w, "&#39;");
		else
			buf_put_u8(w, (uint8_t)*c);
	}
}

static void put_fact(struct buf_writer *w, const char *name, const char *text)
{
	if (!*text)
		return;
	buf_printf(w, "<dt>%s</dt><dd>", name);
	put_foreign(w, text);
	put_text(w, "</dd>\n");
}

static void put_number(struct buf_writer *w, double value, int digits)
{
	if (isfinite(value))
		buf_printf(w, "<td>%.*f</td>", digits, value);
	else
		put_text(w, "<td>-</td>");
}

static void put_heads(struct buf_writer *w, const char *const *names)
{
	put_text(w, "<table>\n<tr>");
	for (; *names; names++)
		buf_printf(w, "<th>%s</th>", *names);
	put_text(w, "</tr>\n");
}

static void put_facts(struct buf_writer *w, const struct bench_report *r)
{
	const struct bench_setup *s = r->setup;
	char text[BENCH_ACCOUNT], bytes[32], winner[BENCH_WINNER];
	bool agrees;

	bench_winner(r, winner);
	buf_printf(w,
		   "<h1>clairfs bench</h1>\n<p><strong>%s</strong></p>\n"
		   "<small>%s, version " CLAIRFS_VERSION "</small>\n<dl>\n",
		   winner, r->time);
	put_fact(w, "dataset", s->path);
	snprintf(text, sizeof(text), "%u samples, %s", dataset_n_samples(s->ds),
		 text_from_bytes(dataset_sample_bytes(s->ds), bytes, sizeof(bytes)));
	put_fact(w, "", text);
	put_fact(w, "order", order_spec_text(s->spec));
	put_fact(w, "note", r->order_note);
	snprintf(text, sizeof(text),
		 "%u rank%s, batch %u, %u workers, prefetch factor %u; computes %g ms a batch, "
		 "decodes "
		 "%g ms a sample",
		 s->ranks, s->ranks == 1 ? "" : "s", s->batch, s->workers, s->prefetch,
		 (double)s->compute_ns / 1e6, (double)s->decode_ns / 1e6);
	put_fact(w, "job", text);
	put_fact(w, "workload", s->args->workload ? s->args->workload : "");
	put_fact(w, "mount options", s->args->mount_options ? s->args->mount_options : "");
	snprintf(text, sizeof(text), "%s, %s, %ld CPUs; load average %.2f before, %.2f after",
		 r->host, r->kernel, sysconf(_SC_NPROCESSORS_ONLN), r->load[0], r->load[1]);
	put_fact(w, "machine", text);
	for (uint32_t k = 0; k < r->n_sides; k++)
		for (uint32_t i = r->n_results; i-- > 0;)
			if (r->result[i].side == r->side[k]) {
				put_fact(w, bench_side_names[r->side[k]],
					 *r->result[i].note ? r->result[i].note
							    : "caches as they were");
				break;
			}
	agrees = bench_account(r, text);
	put_fact(w, "stopwatch and account", text);
	put_fact(w, "the mount says", agrees ? r->words : "");
	put_text(w, "</dl>\n");
}

static void put_sides(struct buf_writer *w, const struct bench_report *r)
{
	static const char *const names[] = { "side",        "epoch",       "seconds",
					     "AU %",        "samples/s",   "MB/s",
					     "stall s",     "wait p50 ms", "wait p99 ms",
					     "read p50 ms", "read p99 ms", NULL };

	put_text(w, "<h2>Epochs</h2>\n");
	put_heads(w, names);
	for (uint32_t k = 0; k < r->n_sides; k++)
		for (uint32_t i = 0; i < r->n_results; i++) {
			const struct bench_result *res = &r->result[i];

			if (res->side != r->side[k])
				continue;
			buf_printf(w, "<tr><td>%s%s</td><td>%llu</td>", bench_side_names[res->side],
				   res->is_warm ? " (warm)" : "", (unsigned long long)res->epoch);
			put_number(w, res->seconds, 2);
			put_number(w, res->au_percent, 1);
			put_number(w, (double)res->samples / res->seconds, 1);
			put_number(w, res->bytes / 1e6 / res->seconds, 1);
			put_number(w, res->stall_seconds, 2);
			put_number(w, 1e3 * res->stall_p50, 2);
			put_number(w, 1e3 * res->stall_p99, 2);
			put_number(w, 1e3 * res->read_p50, 2);
			put_number(w, 1e3 * res->read_p99, 2);
			put_text(w, "</tr>\n");
		}
	put_text(w, "</table>\n");
}

static void put_mount_row(struct buf_writer *w, const struct bench_report *r,
			  const struct bench_result *res)
{
	const struct bench_counts *c = &res->counts;
	double all = 0;

	for (int i = 0; i < READ_CLASSES; i++)
		all += c->reads[i];
	buf_printf(w, "<tr><td>%llu</td>", (unsigned long long)res->epoch);
	for (int i = 0; i < READ_CLASSES; i++)
		if (i != READ_PEER)
			put_number(w, all > 0 ? 100 * c->reads[i] / all : NAN, 1);
	put_number(w, c->source_reads, 0);
	put_number(w, c->source_bytes / 1e6, 1);
	put_number(w, res->bound_bytes / 1e6, 1);
	put_number(w, c->cpu_seconds, 2);
	put_number(w, c->removed_lower, 2);
	put_number(w, c->removed_estimate, 2);
	put_number(w, c->removed_upper, 2);
	put_number(w, bench_removed(r, res->epoch), 2);
	put_text(w, "</tr>\n");
}

static void put_mount(struct buf_writer *w, const struct bench_report *r)
{
	static const char *const names[] = { "epoch",
					     "staged %",
					     "arena %",
					     "late %",
					     "store %",
					     "miss %",
					     "source reads",
					     "source MB",
					     "bound MB",
					     "daemon CPU s",
					     "removed s: lower bound",
					     "estimate",
					     "upper bound",
					     "measured",
					     NULL };

	if (!bench_chart_name(r, BENCH_CHART_CLASSES))
		return;
	put_text(w, "<h2>The mount, the source, and stall removed</h2>\n");
	put_heads(w, names);
	for (uint32_t i = 0; i < r->n_results; i++)
		if (r->result[i].counts.is_known)
			put_mount_row(w, r, &r->result[i]);
	put_text(w, "<tr><td>all</td><td colspan=\"9\"></td>");
	put_number(w, r->total.removed_lower, 2);
	put_number(w, r->total.removed_estimate, 2);
	put_number(w, r->total.removed_upper, 2);
	put_number(w, bench_removed_total(r), 2);
	put_text(w, "</tr>\n");
	put_text(w, "</table>\n");
	for (uint32_t i = 0; i < r->n_results; i++)
		if (r->result[i].counts.is_known && r->result[i].why[0]) {
			buf_printf(w, "<p>Epoch %llu was not judged: ",
				   (unsigned long long)r->result[i].epoch);
			put_foreign(w, r->result[i].why);
			put_text(w, "</p>\n");
		}
}

static void put_base64(struct buf_writer *w, const uint8_t *data, size_t size)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < size; i += 3) {
		uint32_t v = (uint32_t)data[i] << 16;
		char out[4];

		v |= i + 1 < size ? (uint32_t)data[i + 1] << 8 : 0;
		v |= i + 2 < size ? data[i + 2] : 0;
		for (int k = 0; k < 4; k++)
			out[k] = digits[v >> (18 - 6 * k) & 63];
		out[3] = i + 2 < size ? out[3] : '=';
		out[2] = i + 1 < size ? out[2] : '=';
		buf_put_bytes(w, out, sizeof(out));
	}
}

static int put_image(struct buf_writer *w, const struct bench_report *r, enum bench_chart which,
		     bool is_dark, struct err *err)
{
	struct buf_writer svg;
	int rc;

	buf_writer_init(&svg);
	rc = bench_chart_svg(r, which, is_dark, &svg, err);
	put_text(w, "data:image/svg+xml;base64,");
	put_base64(w, svg.data, svg.size);
	buf_writer_fini(&svg);
	return rc;
}

static int put_charts(struct buf_writer *w, const struct bench_report *r, struct err *err)
{
	int rc = 0;

	put_text(w, "<h2>Charts</h2>\n");
	for (int i = 0; i < BENCH_CHARTS && rc == 0; i++) {
		const char *name = bench_chart_name(r, (enum bench_chart)i);

		if (!name)
			continue;
		put_text(w, "<figure><picture><source media=\"(prefers-color-scheme:dark)\" srcset=\"");
		rc = put_image(w, r, (enum bench_chart)i, true, err);
		if (rc == 0) {
			put_text(w, "\"><img alt=\"");
			put_foreign(w, name);
			put_text(w, "\" src=\"");
			rc = put_image(w, r, (enum bench_chart)i, false, err);
		}
		put_text(w, "\"></picture></figure>\n");
	}
	return rc;
}

static int html_save(const struct buf_writer *w, const char *path, struct err *err)
{
	AUTO_FREE char *part = NULL;
	FILE *f;
	bool is_bad;

	if (asprintf(&part, "%s.part", path) < 0)
		return err_set_errno(err, -ENOMEM, "--html");
	f = fopen(part, "we");
	if (!f)
		return err_set_errno(err, -errno, "--html: %.512s", part);
	is_bad = fwrite(w->data, 1, w->size, f) != w->size;
	is_bad = fclose(f) != 0 || is_bad;
	if (is_bad || rename(part, path) < 0) {
		int rc = err_set_errno(err, -errno, "--html: %.512s", path);

		unlink(part);
		return rc;
	}
	return 0;
}

/* An hour of measuring must not end with a directory that is not there. */
int bench_html_check(const char *path, struct err *err)
{
	AUTO_FREE char *part = NULL;
	int fd, rc = chart_check(err);

	if (rc < 0)
		return rc;
	if (asprintf(&part, "%s.part", path) < 0)
		return err_set_errno(err, -ENOMEM, "--html");
	fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_set_errno(err, -errno, "--html: %.512s", part);
	close(fd);
	unlink(part);
	return 0;
}

int bench_html_write(const struct bench_report *r, const char *path, struct err *err)
{
	struct buf_writer w;
	int rc;

	buf_writer_init(&w);
	put_text(&w, head);
	put_facts(&w, r);
	put_sides(&w, r);
	put_mount(&w, r);
	rc = put_charts(&w, r, err);
	put_text(&w, words);
	if (rc == 0 && w.is_bad)
		rc = err_set_errno(err, -ENOMEM, "--html");
	if (rc == 0)
		rc = html_save(&w, path, err);
	buf_writer_fini(&w);
	return rc;
}
