/* report.c - writes the HTML page: its style, training curves and data; the evaluation is report_eval.c's. Owns nothing between calls;
 * every text from outside is escaped (report_page.c). */
#include "train/report.h"

#include "train/report_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CURVE_WIDTH 640
#define CURVE_HEIGHT 220
#define CURVE_POINTS_MAX 100000

static const char page_style[] =
    ":root{color-scheme:light dark;--bar:#2f6fb0;--ink:#1b1b1f;--paper:#fff}"
    "@media(prefers-color-scheme:dark){:root{--bar:#7db4ea;--ink:#e6e6ea;--paper:#17171b}}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:var(--ink);background:var(--paper)}"
    "h2{margin-top:2.5rem}.wide{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse}caption{text-align:left;padding:.3rem 0}"
    "th,td{padding:.3rem .8rem;border-bottom:1px solid #8886;text-align:right;vertical-align:top;font-weight:400;font-variant-numeric:tabular-nums}"
    "thead th{font-weight:600;vertical-align:bottom}th:first-child{text-align:left}"
    ".bar{display:block;width:5rem;height:.5rem;margin:.15rem 0 0 auto;border:1px solid #8888}.bar i{display:block;height:100%;background:var(--bar)}"
    "svg{max-width:100%;height:auto}.g{stroke:#8888;stroke-width:1}.c{fill:none;stroke:var(--bar);stroke-width:1.5}.t{font-size:12px;fill:currentColor}"
    ".big{font-size:1.4rem;font-weight:600}dt{font-weight:600}dd{margin:0 0 .5rem 1.5rem}";

struct curve {
  double *x, *y;
  size_t n;
  double y_min, y_max;
};

/* One value of every metrics line, in order; lines without the key are skipped. */
static void curve_collect(struct curve *curve, const json_t *lines, const char *key) {
  size_t i;
  json_t *line;
  curve->n = 0;
  json_array_foreach(lines, i, line) {
    const json_t *value = json_object_get(line, key);
    if (!json_is_number(value) || curve->n == CURVE_POINTS_MAX) continue;
    double y = json_number_value(value);
    curve->x[curve->n] = page_number(line, "step");
    curve->y[curve->n] = y;
    curve->y_min = curve->n == 0 ? y : fmin(curve->y_min, y);
    curve->y_max = curve->n == 0 ? y : fmax(curve->y_max, y);
    curve->n++;
  }
}

static void append_curve(struct buffer *out, const struct curve *curve, const char *title) {
  if (curve->n < 2) return;
  double x_first = curve->x[0], x_span = fmax(curve->x[curve->n - 1] - x_first, 1e-12);
  double y_span = fmax(curve->y_max - curve->y_min, 1e-12);
  buffer_append_string(out, "<h3>");
  page_text(out, title);
  buffer_format(out, "</h3><svg viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\" aria-label=\"from %.4g at step %.0f to %.4g at step %.0f; least %.4g, most %.4g\"><line class=\"g\" x1=\"50\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>", CURVE_WIDTH,
                CURVE_HEIGHT, CURVE_WIDTH, curve->y[0], x_first, curve->y[curve->n - 1], curve->x[curve->n - 1], curve->y_min, curve->y_max, CURVE_HEIGHT - 20,
                CURVE_WIDTH, CURVE_HEIGHT - 20);
  buffer_format(out, "<text class=\"t\" x=\"2\" y=\"14\">%.4g</text><text class=\"t\" x=\"2\" y=\"%d\">%.4g</text><text class=\"t\" x=\"50\" y=\"%d\">%.0f</text>"
                     "<text class=\"t\" x=\"%d\" y=\"%d\" text-anchor=\"end\">step %.0f</text><polyline class=\"c\" points=\"",
                curve->y_max, CURVE_HEIGHT - 24, curve->y_min, CURVE_HEIGHT - 4, x_first, CURVE_WIDTH - 2, CURVE_HEIGHT - 4, curve->x[curve->n - 1]);
  size_t stride = curve->n / 1000 + 1;
  for (size_t i = 0; i < curve->n; i += stride) {
    buffer_format(out, "%.1f,%.1f ", 50 + (CURVE_WIDTH - 52) * (curve->x[i] - x_first) / x_span,
                  10 + (CURVE_HEIGHT - 32) * (curve->y_max - curve->y[i]) / y_span);
  }
  buffer_append_string(out, "\"/></svg>\n");
}

static enum eaglet_status parse_lines(json_t *lines, const char *text, struct eaglet_error *err) {
  for (int number_of_line = 1; *text; number_of_line++) {
    size_t length = strcspn(text, "\n");
    if (length > 0) {
      json_t *line = NULL;
      enum eaglet_status status = json_parse(&line, text, length, "metrics", err);
      if (status != EAGLET_OK) return error_prefix(err, "line %d", number_of_line);
      json_array_append_new(lines, line);
    }
    text += length + (text[length] == '\n');
  }
  return EAGLET_OK;
}

static void append_training(struct buffer *out, const json_t *lines, struct curve *curve) {
  static const struct { const char *key, *title; } curves[] = {{"loss", "Loss"}, {"acceptance_length", "Acceptance length (real engine, held-out prompts)"},
      {"lr", "Learning rate"}, {"grad_norm", "Gradient norm"}, {"tok_s", "Token slots per second"}};
  buffer_append_string(out, "<h2>Training</h2>\n");
  for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) {
    curve_collect(curve, lines, curves[i].key);
    append_curve(out, curve, curves[i].title);
  }
}

static void append_prepared(struct buffer *out, const json_t *report) {
  const char *name;
  json_t *row;
  buffer_format(out, "<h2>Data</h2><p>%.0f rows read, %.0f kept; %.0f tokens, %.0f trained.</p>\n", page_number(report, "rows_read"),
                page_number(report, "rows_kept"), page_number(report, "tokens"), page_number(report, "trained_tokens"));
  page_table_open(out, "Training data by source", "source");
  page_heading(out, "rows");
  page_heading(out, "tokens");
  page_heading(out, "trained");
  page_head_end(out);
  json_object_foreach(json_object_get(report, "sources"), name, row) {
    page_row_open(out, name);
    page_cell(out, page_number(row, "rows"), 0, "");
    page_cell(out, page_number(row, "tokens"), 0, "");
    page_cell(out, page_number(row, "trained_tokens"), 0, "");
    page_row_close(out);
  }
  page_table_close(out);
}

struct inputs {
  json_t *eval, *prepared, *lines;
};

static enum eaglet_status inputs_parse(struct inputs *in, const struct eaglet_report_params *params, struct eaglet_error *err) {
  if (params->eval_json) TRY(json_parse(&in->eval, params->eval_json, strlen(params->eval_json), "eval result", err));
  if (params->prepare_json) TRY(json_parse(&in->prepared, params->prepare_json, strlen(params->prepare_json), "prepare result", err));
  if (params->metrics_jsonl) {
    in->lines = json_array();
    TRY(parse_lines(in->lines, params->metrics_jsonl, err));
  }
  return EAGLET_OK;
}

enum eaglet_status report_html(const struct eaglet_report_params *params, struct eaglet_text *html, struct eaglet_error *err) {
  struct inputs in = {0};
  struct buffer out;
  struct curve curve = {.x = calloc(CURVE_POINTS_MAX, sizeof(double)), .y = calloc(CURVE_POINTS_MAX, sizeof(double))};
  enum eaglet_status status = curve.x && curve.y ? EAGLET_OK : error_set(err, EAGLET_E_RESOURCE, "report: out of memory");
  buffer_init(&out);
  if (status == EAGLET_OK) status = inputs_parse(&in, params, err);
  if (status == EAGLET_OK) {
    buffer_append_string(&out, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>");
    page_text(&out, params->title ? params->title : "eaglet");
    buffer_format(&out, "</title><style>%s</style>\n<main>\n<h1>", page_style);
    page_text(&out, params->title ? params->title : "eaglet");
    buffer_append_string(&out, "</h1>\n");
    if (in.eval) page_eval(&out, in.eval);
    if (in.lines) append_training(&out, in.lines, &curve);
    if (in.prepared) append_prepared(&out, in.prepared);
    buffer_append_string(&out, "</main>\n</html>\n");
    *html = buffer_detach(&out);
  }
  buffer_clear(&out);
  free(curve.x);
  free(curve.y);
  json_decref(in.eval);
  json_decref(in.prepared);
  json_decref(in.lines);
  return status;
}
