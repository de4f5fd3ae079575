/* rope_table.c - cosines and sines of every position; see model.h. Every rope variant becomes data here, so that the
 * rope op knows none of them. Angles are formed as the reference code forms them (frequencies and products in F32). */
#include "model/model.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

#define PAIRS_MAX 1024

/* The pair index at which a rotation of n turns fits into the original context (yarn's correction). */
static double yarn_correction(const struct rope_features *rope, double n_turns) {
  return rope->dim * log(rope->original_positions / (n_turns * 2 * M_PI)) / (2 * log(rope->theta));
}

static void scale_yarn(const struct rope_features *rope, float *frequency, int32_t n_pairs) {
  double low = yarn_correction(rope, rope->beta_fast), high = yarn_correction(rope, rope->beta_slow);
  if (rope->truncate) {
    low = floor(low);
    high = ceil(high);
  }
  low = fmax(low, 0);
  high = fmin(high, rope->dim - 1);
  if (low == high) high += 0.001;
  for (int32_t i = 0; i < n_pairs; i++) {
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    frequency[i] = (float)(frequency[i] / rope->factor * ramp + frequency[i] * (1 - ramp));
  }
}

static void scale_llama3(const struct rope_features *rope, float *frequency, int32_t n_pairs) {
  double low = rope->original_positions / rope->low_freq_factor,
         high = rope->original_positions / rope->high_freq_factor;
  for (int32_t i = 0; i < n_pairs; i++) {
    double f = frequency[i], wavelength = 2 * M_PI / f;
    double t = (rope->original_positions / wavelength - rope->low_freq_factor) /
               (rope->high_freq_factor - rope->low_freq_factor);
    if (wavelength > low)
      f = f / rope->factor;
    else if (wavelength >= high)
      f = f * ((1 - t) / rope->factor + t);
    frequency[i] = (float)f;
  }
}

/* Scalings that follow the context's length take it from the table's: it is made for the longest context that will be served,
 * and one sequence never mixes two scalings. */
static void rope_frequencies(const struct rope_features *rope, float *frequency, int32_t n_pairs, int32_t n_positions) {
  const json_t *factors;
  double theta = rope->theta;
  if (rope->scaling == ROPE_SCALING_DYNAMIC && n_positions > rope->positions_max) {
    double stretch = rope->factor * n_positions / rope->positions_max - (rope->factor - 1);
    theta *= pow(stretch, (double)rope->dim / (rope->dim - 2));
  }
  for (int32_t i = 0; i < n_pairs; i++) frequency[i] = (float)(1.0 / pow(theta, (2.0 * i) / rope->dim));
  switch (rope->scaling) {
  case ROPE_SCALING_NONE:
    break;
  case ROPE_SCALING_LINEAR:
    for (int32_t i = 0; i < n_pairs; i++) frequency[i] = (float)(frequency[i] / rope->factor);
    break;
  case ROPE_SCALING_LLAMA3:
    scale_llama3(rope, frequency, n_pairs);
    break;
  case ROPE_SCALING_YARN:
    scale_yarn(rope, frequency, n_pairs);
    break;
  case ROPE_SCALING_LONGROPE:
    factors = n_positions > rope->original_positions ? rope->long_factors : rope->short_factors;
    for (int32_t i = 0; i < n_pairs; i++)
      frequency[i] = (float)(frequency[i] / json_number_value(json_array_get(factors, (size_t)i)));
    break;
  case ROPE_SCALING_DYNAMIC:
    break; /* in theta */
  }
}

enum eaglet_status rope_table_init(struct rope_table *table, struct compute *c, const struct rope_features *rope,
                                   int32_t n_positions, struct eaglet_error *err) {
  float frequency[PAIRS_MAX];
  int32_t n_pairs = rope->dim / 2;
  *table = (struct rope_table){.n_positions = n_positions, .n_pairs = n_pairs, .style = rope->style};
  if (rope->dim < 2 || rope->dim % 2 || n_pairs > PAIRS_MAX || n_positions < 1 || !(rope->theta > 1)) {
    FAIL(err, EAGLET_E_INPUT,
         "rope: expected an even width of 2..%d, theta > 1 and at least one position; found width %d, theta %g, %d "
         "positions",
         2 * PAIRS_MAX, rope->dim, rope->theta, n_positions);
  }
  rope_frequencies(rope, frequency, n_pairs, n_positions);
  double factor = rope->attention_factor > 0 ? rope->attention_factor : 1;
  size_t n = (size_t)n_positions * (size_t)n_pairs, bytes = n * sizeof(float);
  float *cos_host = memory_try(bytes), *sin_host = memory_try(bytes);
  table->cos = c->alloc(c, bytes);
  table->sin = c->alloc(c, bytes);
  bool room = cos_host && sin_host && table->cos && table->sin;
  for (size_t at = 0; room && at < n; at++) {
    float angle = (float)(at / (size_t)n_pairs) * frequency[at % (size_t)n_pairs];
    cos_host[at] = (float)(cos((double)angle) * factor);
    sin_host[at] = (float)(sin((double)angle) * factor);
  }
  if (room) {
    c->upload(c, table->cos, cos_host, bytes);
    c->upload(c, table->sin, sin_host, bytes);
  }
  memory_try_free(cos_host);
  memory_try_free(sin_host);
  if (room) return EAGLET_OK;
  rope_table_release(table, c);
  FAIL(err, EAGLET_E_RESOURCE, "rope table: %d positions need %.1f MB", n_positions, 2 * (double)bytes / 1e6);
}

void rope_table_release(struct rope_table *table, struct compute *c) {
  if (table->cos) c->free(c, table->cos);
  if (table->sin) c->free(c, table->sin);
  *table = (struct rope_table){0};
}
