/* report.h - results as one self-contained HTML page: tables with bars beside their numbers, training curves as inline
 * SVG. No script, no network, readable in light and dark and by a screen reader. */
#ifndef EAGLET_TRAIN_REPORT_H
#define EAGLET_TRAIN_REPORT_H

#include "base/error.h"
/* Caller owns *html. Sections whose JSON is NULL are left out. */
enum eaglet_status report_html(const struct eaglet_report_params *params, struct eaglet_text *html, struct eaglet_error *err) MUST_USE;
#endif
