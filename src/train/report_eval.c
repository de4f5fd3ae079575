/* report_eval.c - an evaluation's document as a section of the page: what it comes to, the speeds, what was accepted where, and what the
 * numbers depend on. Takes any document: what is absent is left out. Says nothing by colour alone.
 */
#include "train/report_page.h"

#include <math.h>
#include <stdio.h>

/* Calls row for every source and then for the whole, which keeps its speeds outside of its counts. */
struct eval_row {
  const char *name;
  const json_t *counts, *speeds;
};

typedef void (*append_row)(struct buffer *out, const struct eval_row *row, double most);

static void append_rows(struct buffer *out, const json_t *eval, append_row append, double most) {
  const char *name;
  json_t *source;
  json_object_foreach(json_object_get(eval, "sources"), name, source) {
    const struct eval_row row = {name, source, source};
    append(out, &row, most);
  }
  const struct eval_row whole = {"overall", json_object_get(eval, "overall"), eval};
  append(out, &whole, most);
}

/* ---- what it comes to ---- */

static void append_verdict(struct buffer *out, const json_t *eval) {
  const json_t *identical = json_object_get(eval, "identical");
  buffer_append_string(out, "<p class=\"big\">");
  if (json_object_get(eval, "speedup"))
    buffer_format(out, "%.2f&times; as fast as plain decoding: %.0f tok/s, plain %.0f tok/s. ", page_number(eval, "speedup"),
                  page_number(eval, "draft_tok_s"), page_number(eval, "plain_tok_s"));
  buffer_format(out, "Acceptance length %.2f</p>\n", page_number(json_object_get(eval, "overall"), "acceptance_length"));
  if (json_is_boolean(identical))
    buffer_format(out, "<p>Greedy output with and without drafts: <b>%s</b>.</p>\n", json_is_true(identical) ? "identical" : "different");
  if (json_is_null(identical)) buffer_append_string(out, "<p>Sampled output agrees with plain decoding in law; it was not compared.</p>\n");
  if (*page_string(eval, "difference")) {
    buffer_append_string(out, "<p>The first difference: ");
    page_text(out, page_string(eval, "difference"));
    buffer_append_string(out, "</p>\n");
  }
}

/* ---- speeds ---- */

static double run_speed(const json_t *speeds, const char *run) { return page_number(json_object_get(speeds, run), "tok_s"); }

static void append_speed(struct buffer *out, const json_t *speeds, const char *run, double most) {
  if (json_object_get(speeds, run))
    page_bar_cell(out, &(struct page_bar){.value = run_speed(speeds, run), .most = most});
  else
    page_empty_cell(out);
}

static void append_speed_row(struct buffer *out, const struct eval_row *row, double most) {
  page_row_open(out, row->name);
  append_speed(out, row->speeds, "plain_run", most);
  append_speed(out, row->speeds, "fixed_run", most);
  append_speed(out, row->speeds, "draft_run", most);
  page_cell(out, page_number(row->speeds, "fixed_speedup"), 2, "&times;");
  page_cell(out, page_number(row->speeds, "speedup"), 2, "&times;");
  page_cell(out, page_number(row->speeds, "speedup_total"), 2, "&times;");
  page_row_close(out);
}

static double fastest(const json_t *eval) {
  static const char *const runs[] = {"plain_run", "fixed_run", "draft_run"};
  const char *name;
  json_t *source;
  double most = 0;
  for (int i = 0; i < 3; i++) {
    most = fmax(most, run_speed(eval, runs[i]));
    json_object_foreach(json_object_get(eval, "sources"), name, source) most = fmax(most, run_speed(source, runs[i]));
  }
  return most;
}

static void append_speeds(struct buffer *out, const json_t *eval) {
  bool adaptive = *page_string(eval, "speculation");
  if (!json_object_get(eval, "speedup")) return;
  buffer_append_string(out, "<h3>Speed</h3>\n");
  page_table_open(out, "Tokens per second of decoding, and how many times plain decoding that is", "source");
  page_heading(out, "plain");
  page_heading(out, "drafts in every round");
  page_heading(out, adaptive ? "adaptive drafting" : "drafts, as run");
  page_heading(out, "every round / plain");
  page_heading(out, adaptive ? "adaptive / plain" : "as run / plain");
  page_heading(out, "prompts included");
  page_head_end(out);
  append_rows(out, eval, append_speed_row, fastest(eval));
  page_table_close(out);
  if (!adaptive) return;
  buffer_append_string(out, "<p>At the end of the run &mdash; ");
  page_text(out, page_string(eval, "speculation"));
  buffer_append_string(out, ".</p>\n");
}

/* ---- acceptance ---- */

static void append_count_row(struct buffer *out, const struct eval_row *row, double most) {
  page_row_open(out, row->name);
  page_cell(out, page_number(row->counts, "prompts"), 0, "");
  page_cell(out, page_number(row->counts, "output_tokens"), 0, "");
  page_cell(out, page_number(row->counts, "rounds"), 0, "");
  page_bar_cell(out, &(struct page_bar){.value = page_number(row->counts, "acceptance_length"), .most = most, .decimals = 3});
  page_cell(out, page_number(row->counts, "accepted_per_round"), 3, "");
  page_row_close(out);
}

static void append_counts(struct buffer *out, const json_t *eval) {
  buffer_append_string(out, "<h3>Acceptance</h3>\n");
  page_table_open(out, "Tokens per verification round, the bonus token included, when every round drafts", "source");
  page_heading(out, "prompts");
  page_heading(out, "output tokens");
  page_heading(out, "rounds");
  page_heading(out, "acceptance length");
  page_heading(out, "accepted per round (no bonus)");
  page_head_end(out);
  append_rows(out, eval, append_count_row, 1 + page_number(eval, "draft_len"));
  page_table_close(out);
}

static void append_shares(struct buffer *out, const char *name, const json_t *shares) {
  size_t i;
  json_t *share;
  page_row_open(out, name);
  json_array_foreach(shares, i, share) {
    double value = json_number_value(share);
    page_bar_cell(out, &(struct page_bar){.value = isfinite(value) ? value : 0, .most = 1, .decimals = 2});
  }
  page_row_close(out);
}

static void append_position_row(struct buffer *out, const struct eval_row *row, double most) {
  (void)most;
  append_shares(out, row->name, json_object_get(row->counts, "per_position"));
}

static void append_conditional_row(struct buffer *out, const struct eval_row *row, double most) {
  (void)most;
  append_shares(out, row->name, json_object_get(row->counts, "conditional"));
}

/* One column a draft position. */
static void append_positions(struct buffer *out, const json_t *eval, const char *key, const char *caption, append_row row) {
  size_t n = json_array_size(json_object_get(json_object_get(eval, "overall"), key));
  char heading[32];
  if (n == 0) return;
  page_table_open(out, caption, "source");
  for (size_t i = 1; i <= n; i++) {
    snprintf(heading, sizeof heading, "draft %zu", i);
    page_heading(out, heading);
  }
  page_head_end(out);
  append_rows(out, eval, row, 1);
  page_table_close(out);
}

/* ---- by context ---- */

static const json_t *bucket_from(const json_t *buckets, double from) {
  size_t i;
  json_t *bucket;
  json_array_foreach(buckets, i, bucket) {
    if (page_number(bucket, "from") == from) return bucket;
  }
  return NULL;
}

/* A source has no rounds in some of the whole's buckets. */
static void append_buckets(struct buffer *out, const struct eval_row *row, const json_t *columns, double most) {
  size_t i;
  json_t *column;
  page_row_open(out, row->name);
  json_array_foreach(columns, i, column) {
    const json_t *bucket = bucket_from(json_object_get(row->counts, "by_context"), page_number(column, "from"));
    char note[40];
    snprintf(note, sizeof note, "%.0f rounds", page_number(bucket, "rounds"));
    if (bucket)
      page_bar_cell(out, &(struct page_bar){page_number(bucket, "acceptance_length"), most, 2, note});
    else
      page_empty_cell(out);
  }
  page_row_close(out);
}

static void append_contexts(struct buffer *out, const json_t *eval) {
  const json_t *overall = json_object_get(eval, "overall"), *columns = json_object_get(overall, "by_context");
  double most = 1 + page_number(eval, "draft_len");
  const char *name;
  char heading[40];
  size_t i;
  json_t *column, *source;
  if (json_array_size(columns) == 0) return;
  page_table_open(out, "Acceptance length by tokens of context when the round began", "source");
  json_array_foreach(columns, i, column) {
    snprintf(heading, sizeof heading, "from %.0f tokens", page_number(column, "from"));
    page_heading(out, heading);
  }
  page_head_end(out);
  json_object_foreach(json_object_get(eval, "sources"), name, source) append_buckets(out, &(struct eval_row){name, source, NULL}, columns, most);
  append_buckets(out, &(struct eval_row){"overall", overall, NULL}, columns, most);
  page_table_close(out);
}

/* ---- what it depends on ---- */

static void append_setting(struct buffer *out, const char *name, const json_t *value) {
  char number[40] = "";
  if (!value) return;
  page_row_open(out, name);
  buffer_append_string(out, "<td>");
  if (json_is_number(value)) snprintf(number, sizeof number, "%.6g", json_number_value(value));
  page_text(out, json_is_string(value) ? json_string_value(value) : number);
  size_t i;
  json_t *entry;
  json_array_foreach(value, i, entry) {
    buffer_append_string(out, i > 0 ? ", " : "");
    page_text(out, json_string_value(entry));
  }
  buffer_append_string(out, "</td>");
  page_row_close(out);
}

static void append_settings(struct buffer *out, const json_t *eval) {
  static const char *const names[] = {"drafter", "shape", "draft_len", "draft_width", "draft_tokens", "temperature", "max_tokens", "prompts",
                                      "prompt_files", "max_prompts", "concurrency", "repeats", "seed"};
  const json_t *template_ = json_object_get(eval, "template");
  buffer_append_string(out, "<h3>Settings</h3>\n");
  page_table_open(out, "What the numbers depend on", "setting");
  page_heading(out, "value");
  page_head_end(out);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) append_setting(out, names[i], json_object_get(eval, names[i]));
  append_setting(out, "template", json_object_get(template_, "file"));
  append_setting(out, "template, xxh3", json_object_get(template_, "xxh3"));
  page_table_close(out);
}

static void append_definitions(struct buffer *out, const json_t *eval) {
  const char *name;
  json_t *text;
  if (!json_object_get(eval, "definitions")) return;
  buffer_append_string(out, "<h3>Definitions</h3>\n<dl>\n");
  json_object_foreach(json_object_get(eval, "definitions"), name, text) {
    buffer_append_string(out, "<dt>");
    page_text(out, name);
    buffer_append_string(out, "</dt><dd>");
    page_text(out, json_string_value(text));
    buffer_append_string(out, "</dd>\n");
  }
  buffer_append_string(out, "</dl>\n");
}

void page_eval(struct buffer *out, const json_t *eval) {
  buffer_append_string(out, "<h2>Evaluation</h2>\n");
  append_verdict(out, eval);
  append_speeds(out, eval);
  append_counts(out, eval);
  append_positions(out, eval, "per_position", "Share of the rounds that drafted in which draft i was accepted", append_position_row);
  append_positions(out, eval, "conditional", "The same among rounds in which every draft before it was accepted (conditional)", append_conditional_row);
  append_contexts(out, eval);
  append_settings(out, eval);
  append_definitions(out, eval);
}
