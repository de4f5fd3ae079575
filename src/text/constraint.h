/* constraint.h - what a text may look like: a regular expression, a list of choices or a JSON schema, compiled to one byte grammar.
 *
 * A constraint is immutable and may be shared between threads; constraint_matcher.h runs it. The grammar is a finite automaton
 * over bytes with calls (a pushdown automaton): recursion is a call, everything else is inlined. From every reachable state some
 * bytes lead to the end: what could get stuck is refused here, by name. The languages of sources are described in
 * docs/CONSTRAINTS.md; a keyword or an operator that is not understood is refused rather than ignored.
 */
#ifndef EAGLET_TEXT_CONSTRAINT_H
#define EAGLET_TEXT_CONSTRAINT_H

#include "base/json.h"

struct constraint;

#define CONSTRAINT_NESTING_MAX 64 /* default of nesting_max */

struct constraint_params { /* of the JSON kinds; NULL or zero: defaults */
  int whitespace_max; /* 0: one space may follow ',' and ':', none elsewhere. N: up to N of space, tab, newline on each side of ',' and
                       * ':' and on the inner side of each bracket */
  int nesting_max;    /* how many recursive parts (a $ref, a value with any content) the text may open inside of each other */
};

/* The whole text matches the pattern. */
enum eaglet_status constraint_compile_regex(struct constraint **constraint, const char *pattern, size_t length,
                                            struct eaglet_error *err) MUST_USE;
/* The text is one of the choices (NUL-terminated UTF-8). */
enum eaglet_status constraint_compile_choices(struct constraint **constraint, const char *const *choices, size_t n_choices,
                                              struct eaglet_error *err) MUST_USE;
/* The text is a JSON value that the schema accepts. schema is only read during the call. */
enum eaglet_status constraint_compile_schema(struct constraint **constraint, const json_t *schema,
                                             const struct constraint_params *params, struct eaglet_error *err) MUST_USE;
/* The text is a JSON object with any content. */
enum eaglet_status constraint_compile_json_object(struct constraint **constraint, const struct constraint_params *params,
                                                  struct eaglet_error *err) MUST_USE;
void constraint_free(struct constraint *constraint);

size_t constraint_n_states(const struct constraint *constraint); /* of the automaton, for reports */

#endif
