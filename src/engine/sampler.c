/* sampler.c - see sampler.h. Sums run in double, in index order. */
#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>

static void softmax(float *values, int32_t n, float temperature) {
  float max = values[0];
  double sum = 0;
  for (int32_t i = 1; i < n; i++) max = values[i] > max ? values[i] : max;
  for (int32_t i = 0; i < n; i++) {
    values[i] = expf((values[i] - max) / temperature);
    sum += values[i];
  }
  for (int32_t i = 0; i < n; i++) values[i] = (float)(values[i] / sum);
}

static void renormalise(float *values, int32_t n) {
  double sum = 0;
  for (int32_t i = 0; i < n; i++) sum += values[i];
  for (int32_t i = 0; i < n; i++) values[i] = (float)(values[i] / sum);
}

/* Heap of indices, the likeliest on top; ties: the lower index. */
static bool before(const float *values, int32_t a, int32_t b) {
  return values[a] > values[b] || (values[a] == values[b] && a < b);
}

static void sift(int32_t *heap, int32_t n, int32_t at, const float *values) {
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= n) return;
    if (child + 1 < n && before(values, heap[child + 1], heap[child])) child++;
    if (!before(values, heap[child], heap[at])) return;
    int32_t t = heap[at];
    heap[at] = heap[child];
    heap[child] = t;
    at = child;
  }
}

/* Keeps the first `k` of the order, and of those the shortest head with mass >= p; zeroes the rest. */
static void cut(float *values, int32_t n, int32_t k, double p, int32_t *heap) {
  for (int32_t i = 0; i < n; i++) heap[i] = i;
  for (int32_t i = n / 2 - 1; i >= 0; i--) sift(heap, n, i, values);
  double mass = 0;
  int32_t kept = 0, left = n;
  while (left > 0 && kept < k && mass < p) {
    mass += values[heap[0]];
    int32_t top = heap[0];
    heap[0] = heap[--left];
    heap[left] = top; /* the kept ones gather at the end */
    sift(heap, left, 0, values);
    kept++;
  }
  for (int32_t i = 0; i < left; i++) values[heap[i]] = 0;
  renormalise(values, n);
}

void sampler_distribution(float *values, int32_t n, const struct sampling *s, int32_t *order) {
  softmax(values, n, s->temperature);
  bool few = s->top_k > 0 && s->top_k<n, nucleus = s->top_p> 0 && s->top_p < 1;
  if (few) cut(values, n, s->top_k, 2.0, order);
  if (nucleus) cut(values, n, n, s->top_p, order);
}

int32_t sampler_draw(const float *probability, int32_t n, double u) {
  double sum = 0;
  int32_t last = 0;
  for (int32_t i = 0; i < n; i++) {
    if (probability[i] <= 0) continue;
    sum += probability[i];
    last = i;
    if (u < sum) return i;
  }
  return last;
}
