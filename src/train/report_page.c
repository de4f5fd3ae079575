/* report_page.c - see report_page.h. */
#include "train/report_page.h"

#include <math.h>

void page_text(struct buffer *out, const char *text) {
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

double page_number(const json_t *object, const char *key) {
  double value = json_number_value(json_object_get(object, key));
  return isfinite(value) ? value : 0;
}

const char *page_string(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

/* ---- tables ---- */

void page_table_open(struct buffer *out, const char *caption, const char *first_heading) {
  buffer_append_string(out, "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"");
  page_text(out, caption);
  buffer_append_string(out, "\"><table><caption>");
  page_text(out, caption);
  buffer_append_string(out, "</caption><thead><tr>");
  page_heading(out, first_heading);
}

void page_heading(struct buffer *out, const char *text) {
  buffer_append_string(out, "<th scope=\"col\">");
  page_text(out, text);
  buffer_append_string(out, "</th>");
}

void page_head_end(struct buffer *out) { buffer_append_string(out, "</tr></thead><tbody>\n"); }

void page_row_open(struct buffer *out, const char *name) {
  buffer_append_string(out, "<tr><th scope=\"row\">");
  page_text(out, name);
  buffer_append_string(out, "</th>");
}

void page_row_close(struct buffer *out) { buffer_append_string(out, "</tr>\n"); }
void page_table_close(struct buffer *out) { buffer_append_string(out, "</tbody></table></div>\n"); }

void page_cell(struct buffer *out, double value, int decimals, const char *unit) {
  buffer_format(out, "<td>%.*f%s</td>", decimals, value, unit);
}

void page_bar_cell(struct buffer *out, const struct page_bar *bar) {
  double share = bar->most > 0 ? fmin(1, fmax(0, bar->value / bar->most)) : 0;
  buffer_format(out, "<td>%.*f", bar->decimals, bar->value);
  if (bar->note && *bar->note) {
    buffer_append_string(out, " <small>");
    page_text(out, bar->note);
    buffer_append_string(out, "</small>");
  }
  buffer_format(out, "<span class=\"bar\" aria-hidden=\"true\"><i style=\"width:%.0f%%\"></i></span></td>", 100 * share);
}

void page_empty_cell(struct buffer *out) { buffer_append_string(out, "<td>&ndash;</td>"); }
