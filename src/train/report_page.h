/* report_page.h - what the sections of the HTML page share: escaping, numbers of a document, tables that a screen reader can walk, and bars
 * that only repeat a number beside them. Internal to report*.c; appends to a buffer and owns nothing.
 */
#ifndef EAGLET_TRAIN_REPORT_PAGE_H
#define EAGLET_TRAIN_REPORT_PAGE_H

#include "base/buffer.h"
#include "base/json.h"

void page_text(struct buffer *out, const char *text); /* escaped; NULL is empty */
double page_number(const json_t *object, const char *key); /* 0 when absent or no finite number */
const char *page_string(const json_t *object, const char *key); /* "" when absent */

/* A table with a caption and its first heading; the caller adds headings, ends the head, and adds rows. */
void page_table_open(struct buffer *out, const char *caption, const char *first_heading);
void page_heading(struct buffer *out, const char *text);
void page_head_end(struct buffer *out);
void page_row_open(struct buffer *out, const char *name); /* with the row's heading */
void page_row_close(struct buffer *out);
void page_table_close(struct buffer *out);

/* A cell with one number, printed with so many decimals, and what comes behind it. */
void page_cell(struct buffer *out, double value, int decimals, const char *unit);
/* Same with a bar of value / most under it. note: small, behind the number, may be empty. */
struct page_bar {
  double value, most;
  int decimals;
  const char *note;
};
void page_bar_cell(struct buffer *out, const struct page_bar *bar);
void page_empty_cell(struct buffer *out);

/* The section of an evaluation's document (report_eval.c). */
void page_eval(struct buffer *out, const json_t *eval);

#endif
