/* bench_sampler.c - what a choice costs the host for one row of a large vocabulary, by kind of sampling, as a table on
 * stdout; once for a peaked row and once for one that is all but flat. Decides nothing: numbers worth keeping go into
 * docs/SPEED.md. */
#include "engine/logprobs.h"
#include "engine/sampler.h"

#include "base/memory.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOCABULARY 160000
#define REPEATS 60

static const struct {
  const char *name;
  struct sampling sampling;
} kinds[] = {
    {"greedy", {.temperature = 0}},
    {"temperature", {.temperature = 1}},
    {"min-p 0.05", {.temperature = 1, .min_p = 0.05f}},
    {"top-k 50", {.temperature = 1, .top_k = 50}},
    {"top-p 0.95", {.temperature = 1, .top_p = 0.95f}},
    {"top-k 50, top-p 0.95, min-p 0.05", {.temperature = 1, .top_k = 50, .top_p = 0.95f, .min_p = 0.05f}},
};

/* Milliseconds, the best of the repetitions. */
static double time_distribution(const float *logits, float *values, int32_t *order, const struct sampling *s) {
  double best = 1e9;
  for (int again = 0; again < REPEATS; again++) {
    memcpy(values, logits, VOCABULARY * sizeof *values);
    double start = time_now();
    sampler_distribution(values, VOCABULARY, s, order);
    double took = time_now() - start;
    best = took < best ? took : best;
  }
  return 1e3 * best;
}

static double time_logprobs(const float *logits) {
  struct eaglet_token_logprob found[21];
  double best = 1e9;
  for (int again = 0; again < REPEATS; again++) {
    double start = time_now();
    logprobs_of(found, logits, VOCABULARY, again, 20);
    double took = time_now() - start;
    best = took < best ? took : best;
  }
  return 1e3 * best;
}

static double time_penalties(float *values) {
  struct sampler *s;
  double best = 1e9;
  const struct sampling sampling = {.repetition_penalty = 1.1f, .frequency_penalty = 0.1f};
  if (sampler_create(&s, &sampling, VOCABULARY, NULL) != EAGLET_OK) return best;
  for (uint64_t i = 0; i < 4000; i++) sampler_note(s, (int32_t)(random_u64(9, 0, i) % VOCABULARY), i % 2);
  for (int again = 0; again < REPEATS; again++) {
    double start = time_now();
    sampler_process(s, values, NULL, NULL, 0);
    double took = time_now() - start;
    best = took < best ? took : best;
  }
  sampler_free(s);
  return 1e3 * best;
}

int main(void) {
  float *logits = memory_alloc(VOCABULARY * sizeof *logits), *values = memory_alloc(VOCABULARY * sizeof *values);
  int32_t *order = memory_alloc(VOCABULARY * sizeof *order);
  for (int flat = 0; flat < 2; flat++) {
    for (uint64_t i = 0; i < VOCABULARY; i++) logits[i] = (flat ? 0.01f : 3.0f) * (float)random_normal(7, 0, i);
    printf("%s row of %d logits, ms\n", flat ? "flat" : "peaked", VOCABULARY);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
      printf("  %-34s %6.3f\n", kinds[k].name, time_distribution(logits, values, order, &kinds[k].sampling));
    printf("  %-34s %6.3f\n", "20 logprobs", time_logprobs(logits));
    printf("  %-34s %6.3f\n", "penalties on 4000 tokens", time_penalties(logits));
  }
  free(logits);
  free(values);
  free(order);
  return 0;
}
