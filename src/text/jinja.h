/* jinja.h - the Jinja language as chat templates use it: jinja_lexer (source -> tokens), jinja_parser and jinja_expression
 * (tokens -> tree), jinja_value (values and their lifetime: one pool per render), jinja_eval (tree + context -> text), and
 * tables of filters, tests, methods and globals. transformers' environment: trim_blocks, lstrip_blocks, tojson without HTML escaping, raise_exception,
 * strftime_now, namespace, range, dict, {% generation %}, loop controls. Templates are untrusted: budgets on steps, output bytes
 * and depth turn into errors.
 */
#ifndef EAGLET_TEXT_JINJA_H
#define EAGLET_TEXT_JINJA_H

#include "base/buffer.h"
#include "base/json.h"
#include <time.h>

struct jinja_program;

enum eaglet_status jinja_compile(struct jinja_program **program, const char *source, size_t length, struct eaglet_error *err) MUST_USE;
void jinja_free(struct jinja_program *program);
/* Does the template say this name anywhere? */
bool jinja_mentions(const struct jinja_program *program, const char *name);

struct jinja_limits { /* zero: default */
  uint64_t steps_max;   /* 50 million */
  size_t output_max;    /* 64 MiB */
  int depth_max;        /* 100 nested macro calls, and 20 nested evaluations for each */
  const struct tm *now; /* the clock of strftime_now; NULL: local time */
};
/* One stretch of output that came, unmodified or trimmed, from one string of the context. */
struct jinja_span {
  size_t begin, end;    /* bytes of the output */
  const json_t *origin; /* the string value of the context; for a key of an object, the object */
  size_t origin_begin;  /* the output bytes are those of origin from here on */
};
struct jinja_output {
  struct buffer text;
  struct jinja_span *spans; /* sorted, disjoint: output whose bytes come from context strings */
  size_t n_spans, spans_capacity;
  struct text_generation { size_t begin, end; } *generations; /* {% generation %} blocks */
  size_t n_generations, generations_capacity;
  bool generations_lost; /* a {% generation %} block ran inside a macro or capture: the list is incomplete */
};
enum eaglet_status jinja_render(const struct jinja_program *program, const json_t *context, const struct jinja_limits *limits,
                                struct jinja_output *output, struct eaglet_error *err) MUST_USE;
void jinja_output_clear(struct jinja_output *output);

#endif
