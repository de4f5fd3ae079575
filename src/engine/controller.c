/* controller.c - see controller.h. */
#include "engine/controller.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct controller {
  bool adaptive;
  int32_t levels_max;
};

struct controller *controller_create(bool adaptive, int32_t levels_max) {
  struct controller *c = memory_alloc(sizeof *c);
  *c = (struct controller){.adaptive = adaptive, .levels_max = levels_max};
  return c;
}
void controller_free(struct controller *c) {
  free(c);
}
void controller_measured(struct controller *c, enum controller_cost kind, int32_t n_rows, double seconds) {
  (void)c, (void)kind, (void)n_rows, (void)seconds;
}
struct draft_wish controller_wish(struct controller *c, struct draft_record *record, const struct draft_limits *limits,
                                  int32_t n_running) {
  (void)c, (void)record, (void)n_running;
  return (struct draft_wish){.levels = limits->levels, .width = limits->width, .tokens = limits->tokens, .score_min = -INFINITY};
}
void controller_trim(struct controller *c, struct proposal *const *proposals, int32_t n, int32_t rows_max) {
  (void)c, (void)proposals, (void)n, (void)rows_max;
}
void controller_learn(struct controller *c, struct draft_record *record, const struct proposal *proposal, const int32_t *stood,
                      int32_t n_stood) {
  (void)c, (void)record, (void)proposal, (void)stood, (void)n_stood;
}
void controller_describe(const struct controller *c, char *text, size_t size) {
  snprintf(text, size, "%s", c->adaptive ? "adaptive" : "fixed");
}
