/* ttt_attention.c - attention of the training-time test, forward and backward: causal step-0 keys of the segment plus one own key of each later
 * step. Work is split over heads of kv groups, so that accumulating key gradients needs no locks and keeps one order. */
#include "compute/cpu/cpu.h"

#include <math.h>
#include <string.h>

static int64_t at(int32_t row, int32_t n_heads, int32_t head, int32_t dim) { return ((int64_t)row * n_heads + head) * dim; }

/* Scores of row i, head h, into scores[0 .. n_causal + n_steps): step-0 keys of its segment in order, then its diagonal keys. */
static int32_t row_scores(struct cpu_compute *c, const struct ttt_attention_params *p, const int32_t row_head[2], float *scores) {
  int32_t i = row_head[0], head = row_head[1], kv = head / (p->n_heads / p->n_kv_heads), dim = p->head_dim;
  const float *q = p->q + at(i, p->n_heads, head, dim);
  int32_t n = 0;
  for (int32_t s = p->first[i]; s <= p->slot[i]; s++) scores[n++] = p->scale * c->kernels->dot(q, p->key[0] + at(s, p->n_kv_heads, kv, dim), dim);
  for (int32_t j = 1; j <= p->n_steps; j++) {
    scores[n++] = p->scale * c->kernels->dot(q, p->key[j] + at(p->step_row[j][i], p->n_kv_heads, kv, dim), dim);
  }
  return n;
}

static void row_forward(struct cpu_compute *c, const struct ttt_attention_params *p, const int32_t row_head[2], float *scores) {
  int32_t i = row_head[0], head = row_head[1], kv = head / (p->n_heads / p->n_kv_heads), dim = p->head_dim;
  int32_t n = row_scores(c, p, row_head, scores), n_causal = n - p->n_steps;
  p->log_sum[(int64_t)i * p->n_heads + head] = c->kernels->softmax(scores, n);
  float *out = p->out + at(i, p->n_heads, head, dim);
  memset(out, 0, sizeof(float) * (size_t)dim);
  for (int32_t s = 0; s < n_causal; s++) c->kernels->add_row(out, p->value[0] + at(p->first[i] + s, p->n_kv_heads, kv, dim), scores[s], dim);
  for (int32_t j = 1; j <= p->n_steps; j++) {
    c->kernels->add_row(out, p->value[j] + at(p->step_row[j][i], p->n_kv_heads, kv, dim), scores[n_causal + j - 1], dim);
  }
}

static int32_t scores_max(const struct ttt_attention_params *p) {
  int32_t most = 0;
  for (int32_t i = 0; i < p->n; i++) most = p->slot[i] - p->first[i] + 1 > most ? p->slot[i] - p->first[i] + 1 : most;
  return most + p->n_steps;
}

void cpu_ttt_attention(struct compute *compute, const struct ttt_attention_params *p) {
  struct cpu_compute *c = cpu_of(compute);
  ASSERT(scores_max(p) <= KERNEL_IN_MAX);
  int team = cpu_team(c, (double)p->n * p->n_heads * p->head_dim * 64);
#pragma omp parallel for num_threads(team) schedule(dynamic, 16) if (team > 1)
  for (int32_t i = 0; i < p->n; i++) {
    float *scores = cpu_tile(c, cpu_thread());
    for (int32_t head = 0; head < p->n_heads; head++) row_forward(c, p, (const int32_t[]){i, head}, scores);
  }
}

/* One (row, head) of the backward. With P the probabilities: dV += P dO; dP = dO . V; dS = P (dP - sum P dP); dQ += dS K; dK += dS Q. */
static void row_backward(struct cpu_compute *c, const struct ttt_attention_backward_params *b, const int32_t row_head[2], float *scores) {
  const struct ttt_attention_params *p = &b->forward;
  int32_t i = row_head[0], head = row_head[1], kv = head / (p->n_heads / p->n_kv_heads), dim = p->head_dim;
  int32_t n = row_scores(c, p, row_head, scores), n_causal = n - p->n_steps;
  const float *q = p->q + at(i, p->n_heads, head, dim), *d_out = b->d_out + at(i, p->n_heads, head, dim);
  float *d_q = b->d_q + at(i, p->n_heads, head, dim);
  c->kernels->softmax(scores, n);
  memset(d_q, 0, sizeof(float) * (size_t)dim);
  /* sum P dP = dO . O */
  float sum = c->kernels->dot(d_out, p->out + at(i, p->n_heads, head, dim), dim);
  for (int32_t s = 0; s < n; s++) {
    int32_t j = s < n_causal ? 0 : s - n_causal + 1;
    int64_t entry = at(j == 0 ? p->first[i] + s : p->step_row[j][i], p->n_kv_heads, kv, dim);
    float d_score = scores[s] * (c->kernels->dot(d_out, p->value[j] + entry, dim) - sum) * p->scale;
    c->kernels->add_row(b->d_value[j] + entry, d_out, scores[s], dim);
    c->kernels->add_row(d_q, p->key[j] + entry, d_score, dim);
    c->kernels->add_row(b->d_key[j] + entry, q, d_score, dim);
  }
}

void cpu_ttt_attention_backward(struct compute *compute, const struct ttt_attention_backward_params *b) {
  struct cpu_compute *c = cpu_of(compute);
  const struct ttt_attention_params *p = &b->forward;
  int32_t group = p->n_heads / p->n_kv_heads;
  int team = cpu_team(c, (double)p->n * p->n_heads * p->head_dim * 128);
  team = team > p->n_kv_heads ? p->n_kv_heads : team;
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
  for (int32_t kv = 0; kv < p->n_kv_heads; kv++) {
    float *scores = cpu_tile(c, cpu_thread());
    for (int32_t i = 0; i < p->n; i++) {
      for (int32_t head = kv * group; head < (kv + 1) * group; head++) row_backward(c, b, (const int32_t[]){i, head}, scores);
    }
  }
}
