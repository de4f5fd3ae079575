/* report.c - writes the HTML page; see report.h. Owns nothing between calls; every text from outside is escaped. */
#include "train/report.h"

#include "base/buffer.h"
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CURVE_WIDTH 640
#define CURVE_HEIGHT 220
#define CURVE_POINTS_MAX 100000

static const char page_style[] =
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1f;background:#fff}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{padding:.3rem .8rem;border-bottom:1px solid #8884;text-align:right}"
    "th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}.a{fill:#2f6fb0}.g{stroke:#8886;stroke-width:1}"
    ".c{fill:none;stroke:#2f6fb0;stroke-width:1.5}.t{font-size:12px;fill:currentColor}.big{font-size:1.6rem;font-weight:600}"
    "@media(prefers-color-scheme:dark){body{color:#e6e6ea;background:#17171b}.a{fill:#7db4ea}.c{stroke:#7db4ea}}";

static void append_escaped(struct buffer *out, const char *text) {
  for (; text && *text; text++) {
    switch (*text) {
    case '&': buffer_append_string(out, "&amp;"); break;
    case '<': buffer_append_string(out, "&lt;"); break;
    case '>': buffer_append_string(out, "&gt;"); break;
    case '"': buffer_append_string(out, "&quot;"); break;
    default: buffer_append_char(out, *text);
    }
  }
}

static double number(const json_t *object, const char *key) { return json_number_value(json_object_get(object, key)); }

/* Bars of the acceptance by draft position, 0..1. */
static void append_bars(struct buffer *out, const json_t *values) {
  size_t n = json_array_size(values), i;
  json_t *value;
  buffer_format(out, "<svg width=\"%zu\" height=\"44\" role=\"img\" aria-label=\"acceptance by position\">", n * 22 + 2);
  json_array_foreach(values, i, value) {
    double share = fmin(1.0, fmax(0.0, json_number_value(value)));
    buffer_format(out, "<rect class=\"a\" x=\"%zu\" y=\"%.1f\" width=\"18\" height=\"%.1f\"><title>position %zu: %.3f</title></rect>", i * 22 + 1,
                  42 - 40 * share, 40 * share, i + 1, share);
  }
  buffer_append_string(out, "</svg>");
}

static void append_eval_row(struct buffer *out, const char *name, const json_t *row) {
  buffer_append_string(out, "<tr><td>");
  append_escaped(out, name);
  buffer_format(out, "</td><td>%.0f</td><td>%.0f</td><td>%.3f</td><td>", number(row, "prompts"), number(row, "output_tokens"),
                number(row, "acceptance_length"));
  append_bars(out, json_object_get(row, "per_position"));
  buffer_append_string(out, "</td></tr>\n");
}

static void append_eval(struct buffer *out, const json_t *eval) {
  buffer_append_string(out, "<h2>Acceptance</h2>\n");
  if (json_object_get(eval, "speedup")) {
    bool identical = json_is_true(json_object_get(eval, "identical"));
    buffer_format(out, "<p class=\"big\">%.2f&times; &mdash; %.0f tok/s with the head, %.0f without</p><p>Greedy output with and without the head is %s.</p>\n",
                  number(eval, "speedup"), number(eval, "draft_tok_s"), number(eval, "plain_tok_s"), identical ? "identical" : "<b>different</b>");
  }
  buffer_append_string(out, "<table><tr><th>source</th><th>prompts</th><th>tokens</th><th>acceptance length</th><th>by position</th></tr>\n");
  const char *name;
  json_t *row;
  json_object_foreach(json_object_get(eval, "sources"), name, row) append_eval_row(out, name, row);
  append_eval_row(out, "overall", json_object_get(eval, "overall"));
  buffer_append_string(out, "</table>\n");
}

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
    curve->x[curve->n] = number(line, "step");
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
  append_escaped(out, title);
  buffer_format(out, "</h3><svg viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\"><line class=\"g\" x1=\"50\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>", CURVE_WIDTH,
                CURVE_HEIGHT, CURVE_WIDTH, CURVE_HEIGHT - 20, CURVE_WIDTH, CURVE_HEIGHT - 20);
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
  buffer_format(out, "<h2>Data</h2><p>%.0f rows read, %.0f kept; %.0f tokens, %.0f trained.</p><table><tr><th>source</th><th>rows</th><th>tokens</th><th>trained</th></tr>\n",
                number(report, "rows_read"), number(report, "rows_kept"), number(report, "tokens"), number(report, "trained_tokens"));
  const char *name;
  json_t *row;
  json_object_foreach(json_object_get(report, "sources"), name, row) {
    buffer_append_string(out, "<tr><td>");
    append_escaped(out, name);
    buffer_format(out, "</td><td>%.0f</td><td>%.0f</td><td>%.0f</td></tr>\n", number(row, "rows"), number(row, "tokens"), number(row, "trained_tokens"));
  }
  buffer_append_string(out, "</table>\n");
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
    buffer_append_string(&out, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>");
    append_escaped(&out, params->title ? params->title : "eaglet");
    buffer_format(&out, "</title><style>%s</style>\n<h1>", page_style);
    append_escaped(&out, params->title ? params->title : "eaglet");
    buffer_append_string(&out, "</h1>\n");
    if (in.eval) append_eval(&out, in.eval);
    if (in.lines) append_training(&out, in.lines, &curve);
    if (in.prepared) append_prepared(&out, in.prepared);
    buffer_append_string(&out, "</html>\n");
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
