/* fuzz_jinja.c - compiles and renders arbitrary templates on a small conversation with small budgets: it must end, in output within the
 * budget or in an error with words. Spans must lie inside the output, in order. */
#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void check_spans(const struct jinja_output *output) {
  size_t at = 0;
  for (size_t i = 0; i < output->n_spans; i++) {
    const struct jinja_span *span = &output->spans[i];
    ASSERT(span->begin >= at && span->begin <= span->end && span->end <= output->text.length);
    at = span->end;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  struct jinja_program *program = NULL;
  struct eaglet_error err = {0};
  if (length > 4096) return 0;
  if (jinja_compile(&program, (const char *)data, length, &err) != EAGLET_OK) {
    ASSERT(program == NULL && err.message[0]);
    return 0;
  }
  json_t *context = json_pack("{s:[{s:s,s:s},{s:s,s:s,s:[{s:s}]}],s:b,s:s,s:i,s:f,s:n}", "messages", "role", "user", "content", "h\xc3\xa9 <b>",
                              "role", "assistant", "content", "", "tool_calls", "name", "f", "add_generation_prompt", 1,
                              "bos_token", "<s>", "n", 3, "x", 0.5, "none");
  ASSERT(context);
  struct tm now = {.tm_year = 125, .tm_mday = 1};
  const struct jinja_limits limits = {.steps_max = 20000, .output_max = 1 << 16, .depth_max = 20, .now = &now};
  struct jinja_output output = {0};
  if (jinja_render(program, context, &limits, &output, &err) == EAGLET_OK) {
    ASSERT(output.text.length <= limits.output_max);
    check_spans(&output);
  } else {
    ASSERT(err.message[0]);
  }
  jinja_output_clear(&output);
  jinja_free(program);
  json_decref(context);
  return 0;
}
