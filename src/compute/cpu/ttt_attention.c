/* ttt_attention.c - attention of the training-time test, forward and backward: causal step-0 keys of the segment plus one own key of each later
 * step. Work is split over heads of kv groups, so that accumulating key gradients needs no locks and keeps one order. */
#include "compute/cpu/cpu.h"

#include <math.h>
#include <string.h>

static int64_t at(int32_t row, int32_t n_heads, int32_t head, int32_t dim) { return ((int64_t)row * n_heads + head) * dim; }

static int32_t value_dim(const struct ttt_attention_params *p) { return p->value_dim > 0 ? p->value_dim : p->head_dim; }

/* What a query sees: step-0 keys of slots `causal` on, n_causal of them, then its own of steps `later` .. n_steps. */
struct sight {
  int32_t causal, n_causal, later, n;
};

static struct sight sight_of(const struct ttt_attention_params *p, int32_t i) {
  int32_t n_causal = p->slot[i] - p->first[i] + 1, hidden = p->window > 0 ? n_causal + p->n_steps - p->window : 0;
  struct sight sight = {.causal = p->first[i], .n_causal = n_causal, .later = 1, .n = n_causal + p->n_steps};
  if (hidden <= 0) return sight;
  int32_t before = hidden < n_causal ? hidden : n_causal;
  sight.causal += before;
  sight.n_causal -= before;
  sight.later += hidden - before;
  sight.n -= hidden;
  return sight;
}

/* Scores of row i, head h, into scores[0 .. sight.n): step-0 keys of its segment in order, then its diagonal keys. */
static struct sight row_scores(struct cpu_compute *c, const struct ttt_attention_params *p, const int32_t row_head[2], float *scores) {
  int32_t i = row_head[0], head = row_head[1], kv = head / (p->n_heads / p->n_kv_heads), dim = p->head_dim;
  const float *q = p->q + at(i, p->n_heads, head, dim);
  const struct sight sight = sight_of(p, i);
  int32_t n = 0;
  for (int32_t s = sight.causal; n < sight.n_causal; s++) scores[n++] = p->scale * c->kernels->dot(q, p->key[0] + at(s, p->n_kv_heads, kv, dim), dim);
  for (int32_t j = sight.later; j <= p->n_steps; j++) {
    scores[n++] = p->scale * c->kernels->dot(q, p->key[j] + at(p->step_row[j][i], p->n_kv_heads, kv, dim), dim);
  }
  return sight;
}

static void row_forward(struct cpu_compute *c, const struct ttt_attention_params *p, const int32_t row_head[2], float *scores) {
  int32_t i = row_head[0], head = row_head[1], kv = head / (p->n_heads / p->n_kv_heads), dim = value_dim(p);
  const struct sight sight = row_scores(c, p, row_head, scores);
  p->log_sum[(int64_t)i * p->n_heads + head] = c->kernels->softmax(scores, sight.n);
  float *out = p->out + at(i, p->n_heads, head, dim);
  memset(out, 0, sizeof(float) * (size_t)dim);
  for (int32_t s = 0; s < sight.n_causal; s++)
    c->kernels->add_row(out, p->value[0] + at(sight.causal + s, p->n_kv_heads, kv, dim), scores[s], dim);
  for (int32_t j = sight.later; j <= p->n_steps; j++) {
    c->kernels->add_row(out, p->value[j] + at(p->step_row[j][i], p->n_kv_heads, kv, dim), scores[sight.n_causal + j - sight.later], dim);
  }
}

static int32_t scores_max(const struct ttt_attention_params *p) {
  int32_t most = 0;
  for (int32_t i = 0; i < p->n; i++) most = sight_of(p, i).n > most ? sight_of(p, i).n : most;
  return most;
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
  int32_t i = row_head[0], head = row_head[1], kv = head / (p->n_heads / p->n_kv_heads), dim = p->head_dim, wide = value_dim(p);
  const struct sight sight = row_scores(c, p, row_head, scores);
  const float *q = p->q + at(i, p->n_heads, head, dim), *d_out = b->d_out + at(i, p->n_heads, head, wide);
  float *d_q = b->d_q + at(i, p->n_heads, head, dim);
  c->kernels->softmax(scores, sight.n);
  memset(d_q, 0, sizeof(float) * (size_t)dim);
  /* sum P dP = dO . O */
  float sum = c->kernels->dot(d_out, p->out + at(i, p->n_heads, head, wide), wide);
  for (int32_t s = 0; s < sight.n; s++) {
    int32_t j = s < sight.n_causal ? 0 : s - sight.n_causal + sight.later;
    int32_t row = j == 0 ? sight.causal + s : p->step_row[j][i];
    int64_t key = at(row, p->n_kv_heads, kv, dim), value = at(row, p->n_kv_heads, kv, wide);
    float d_score = scores[s] * (c->kernels->dot(d_out, p->value[j] + value, wide) - sum) * p->scale;
    c->kernels->add_row(b->d_value[j] + value, d_out, scores[s], wide);
    c->kernels->add_row(d_q, p->key[j] + key, d_score, dim);
    c->kernels->add_row(b->d_key[j] + key, q, d_score, dim);
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
