/* moe.c - the router and the experts' FFN. Rows are grouped by expert so that a touched expert is read once per call;
 * each row's result is summed in the order of its own picks, so grouping cannot change a bit. */
#include "compute/cpu/cpu.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define EXPERTS_MAX 1024

/* ---- router ---- */

static void row_softmax(float *p, int32_t n) {
  float max = p[0], sum = 0;
  for (int32_t e = 1; e < n; e++) max = p[e] > max ? p[e] : max;
  for (int32_t e = 0; e < n; e++) sum += p[e] = expf(p[e] - max);
  for (int32_t e = 0; e < n; e++) p[e] /= sum;
}

/* A group's score: the sum of its two best selection scores (sigmoid kind) or its best (softmax kinds). */
static float group_score(const float *choice, int32_t n, bool two) {
  float first = -INFINITY, second = -INFINITY;
  for (int32_t e = 0; e < n; e++) {
    if (choice[e] > first)
      second = first, first = choice[e];
    else if (choice[e] > second)
      second = choice[e];
  }
  return two && n > 1 ? first + second : first;
}

static int32_t best_of(const float *score, int32_t n) {
  int32_t best = 0;
  for (int32_t e = 1; e < n; e++) best = score[e] > score[best] ? e : best;
  return best;
}

static void mask_groups(float *choice, const struct router_params *p) {
  int32_t size = p->n_experts / p->n_groups;
  float score[EXPERTS_MAX];
  bool kept[EXPERTS_MAX] = {false};
  for (int32_t g = 0; g < p->n_groups; g++)
    score[g] = group_score(choice + g * size, size, p->kind == ROUTER_SIGMOID_BIAS);
  for (int32_t i = 0; i < p->n_groups_picked; i++) {
    int32_t g = best_of(score, p->n_groups);
    kept[g] = true;
    score[g] = -INFINITY;
  }
  for (int32_t e = 0; e < p->n_experts; e++) {
    if (!kept[e / size]) choice[e] = -INFINITY;
  }
}

static void route_row(const struct router_params *p, int32_t row) {
  float share[EXPERTS_MAX], choice[EXPERTS_MAX];
  const float *logits = p->logits + (int64_t)row * p->n_experts;
  int32_t *expert = p->expert + (int64_t)row * p->n_picked;
  float *out = p->share + (int64_t)row * p->n_picked;
  memcpy(share, logits, sizeof(float) * (size_t)p->n_experts);
  if (p->kind == ROUTER_SOFTMAX_ALL) row_softmax(share, p->n_experts);
  if (p->kind == ROUTER_SIGMOID_BIAS) {
    for (int32_t e = 0; e < p->n_experts; e++) share[e] = 1.0f / (1.0f + expf(-share[e]));
  }
  for (int32_t e = 0; e < p->n_experts; e++) choice[e] = share[e] + (p->bias ? p->bias[e] : 0.0f);
  if (p->n_groups > 1) mask_groups(choice, p);
  for (int32_t k = 0; k < p->n_picked; k++) {
    expert[k] = best_of(choice, p->n_experts);
    out[k] = share[expert[k]];
    choice[expert[k]] = -INFINITY;
  }
  if (p->kind == ROUTER_TOPK_SOFTMAX) row_softmax(out, p->n_picked);
  for (int32_t k = 0; k < p->n_picked && p->kind == ROUTER_SIGMOID_TOPK; k++) out[k] = 1.0f / (1.0f + expf(-out[k]));
  float sum = 0;
  for (int32_t k = 0; k < p->n_picked; k++) sum += out[k];
  for (int32_t k = 0; k < p->n_picked; k++) out[k] = (p->normalise ? out[k] / (sum + 1e-20f) : out[k]) * p->scale;
}

static void route_rows(struct cpu_compute *c, const void *args, int64_t begin, int64_t end) {
  (void)c;
  for (int64_t i = begin; i < end; i++) route_row(args, (int32_t)i);
}

void cpu_router(struct compute *compute, const struct router_params *p, int32_t n) {
  ASSERT(p->n_experts <= EXPERTS_MAX && p->n_picked <= p->n_experts &&
         p->n_experts % (p->n_groups > 0 ? p->n_groups : 1) == 0);
  cpu_for(cpu_of(compute), (double)p->n_experts * (p->n_picked + 20), n, route_rows, p);
}

/* ---- experts ---- */

int64_t compute_moe_scratch_floats(int32_t n, int32_t n_picked, int32_t hidden, int32_t intermediate) {
  int64_t slots = (int64_t)n * n_picked;
  return slots * (3 * (int64_t)intermediate + hidden) + slots * 10 + 64; /* pointers of five row lists */
}

/* The scratch carved: slot s = i * K + k holds what expert k of row i makes. Row lists are in grouped order, expert by expert. */
struct moe_plan {
  float *both, *act, *down;  /* [slots, 2I] gate and up as the layout has them, [slots, I], [slots, H] */
  const float **x, **hidden; /* [slots] in grouped order */
  float **gate_rows, **up_rows, **down_rows;
  int32_t first[EXPERTS_MAX + 1]; /* first[e]: where expert e's slots begin in grouped order */
  int32_t n_used, used[EXPERTS_MAX];
};

static void plan_carve(struct moe_plan *plan, const struct moe_params *p, int32_t n) {
  int64_t slots = (int64_t)n * p->n_picked, intermediate = p->down[0].n_in;
  uint8_t *at = (uint8_t *)p->scratch;
  plan->x = (const float **)(void *)at;
  plan->hidden = plan->x + slots;
  plan->gate_rows = (float **)(void *)(plan->hidden + slots);
  plan->up_rows = plan->gate_rows + slots;
  plan->down_rows = plan->up_rows + slots;
  plan->both = (float *)(void *)(plan->down_rows + slots);
  plan->act = plan->both + slots * 2 * intermediate;
  plan->down = plan->act + slots * intermediate;
}

static void plan_group(struct moe_plan *plan, const struct moe_params *p, int32_t n) {
  int32_t slots = n * p->n_picked, hidden = p->down[0].n_out, intermediate = p->down[0].n_in, next[EXPERTS_MAX];
  memset(plan->first, 0, sizeof(int32_t) * (size_t)(p->n_experts + 1));
  for (int32_t s = 0; s < slots; s++) plan->first[p->expert[s] + 1]++;
  plan->n_used = 0;
  for (int32_t e = 0; e < p->n_experts; e++) {
    if (plan->first[e + 1] > 0) plan->used[plan->n_used++] = e;
    plan->first[e + 1] += plan->first[e];
    next[e] = plan->first[e];
  }
  for (int32_t s = 0; s < slots; s++) {
    int32_t at = next[p->expert[s]]++;
    plan->x[at] = p->x + (int64_t)(s / p->n_picked) * hidden;
    plan->gate_rows[at] = plan->both + (int64_t)s * 2 * intermediate;
    plan->up_rows[at] = plan->gate_rows[at] + intermediate;
    plan->hidden[at] = plan->act + (int64_t)s * intermediate;
    plan->down_rows[at] = plan->down + (int64_t)s * hidden;
  }
}

/* One thread's outputs of the used experts' gates and ups. */
static void experts_up(struct cpu_compute *c, const struct moe_params *p, const struct moe_plan *plan, int thread,
                       int team) {
  for (int32_t u = 0; u < plan->n_used; u++) {
    int32_t e = plan->used[u], at = plan->first[e], range[2];
    const struct weight *after = u + 1 < plan->n_used ? &p->gate[plan->used[u + 1]] : &p->down[plan->used[0]];
    bool separate = p->layout == GATE_UP_SEPARATE;
    cpu_share(range, p->gate[e].n_out, thread, team);
    struct rows_dot_params part = {.w = &p->gate[e],
                                   .begin = range[0],
                                   .end = range[1],
                                   .x = plan->x + at,
                                   .out = plan->gate_rows + at,
                                   .n = plan->first[e + 1] - at,
                                   .tile = cpu_tile(c, thread),
                                   .after = separate ? &p->up[e] : after,
                                   .after_begin = separate ? range[0] : 0};
    c->kernels->rows_dot(&part);
    if (!separate) continue;
    part.w = &p->up[e];
    part.after = after;
    part.after_begin = 0;
    part.out = plan->up_rows + at;
    c->kernels->rows_dot(&part);
  }
}

/* Pairs (gate, up) to halves; both and act hold the slot, act is free to use. */
static void split_pairs(float *both, float *act, int32_t intermediate) {
  for (int32_t j = 0; j < intermediate; j++) act[j] = both[2 * j + 1];
  for (int32_t j = 0; j < intermediate; j++) both[j] = both[2 * j];
  memcpy(both + intermediate, act, sizeof(float) * (size_t)intermediate);
}

/* act(gate) * up of one slot. */
static void activate_slot(struct cpu_compute *c, const struct moe_params *p, const struct moe_plan *plan, int32_t slot) {
  int32_t intermediate = p->down[0].n_in, outputs = p->gate[0].n_out;
  float *both = plan->both + (int64_t)slot * 2 * intermediate, *act = plan->act + (int64_t)slot * intermediate;
  if (p->share_input) {
    for (int32_t j = 0; j < 2 * intermediate; j++) both[j] *= p->share[slot];
  }
  if (p->gate_bias) {
    const float *bias = p->gate_bias + (int64_t)p->expert[slot] * outputs;
    for (int32_t j = 0; j < outputs; j++) both[j] += bias[j];
  }
  if (p->layout == GATE_UP_PAIRS) split_pairs(both, act, intermediate);
  c->kernels->activate(act, both, both + intermediate, intermediate, p->activation);
}

static void experts_down(struct cpu_compute *c, const struct moe_params *p, const struct moe_plan *plan, int thread,
                         int team) {
  for (int32_t u = 0; u < plan->n_used; u++) {
    int32_t e = plan->used[u], at = plan->first[e], range[2];
    cpu_share(range, p->down[e].n_out, thread, team);
    const struct rows_dot_params part = {.w = &p->down[e],
                                         .begin = range[0],
                                         .end = range[1],
                                         .x = plan->hidden + at,
                                         .out = plan->down_rows + at,
                                         .n = plan->first[e + 1] - at,
                                         .tile = cpu_tile(c, thread),
                                         .after = u + 1 < plan->n_used ? &p->down[plan->used[u + 1]] : NULL};
    c->kernels->rows_dot(&part);
  }
}

static void combine_row(const struct moe_params *p, const struct moe_plan *plan, int32_t row) {
  int32_t hidden = p->down[0].n_out;
  float *out = p->out + (int64_t)row * hidden;
  if (!p->accumulate) memset(out, 0, sizeof(float) * (size_t)hidden);
  for (int32_t k = 0; k < p->n_picked; k++) {
    const float *y = plan->down + ((int64_t)row * p->n_picked + k) * hidden;
    float share = p->share_input ? 1.0f : p->share[(int64_t)row * p->n_picked + k];
    const float *bias = p->down_bias ? p->down_bias + (int64_t)p->expert[row * p->n_picked + k] * hidden : NULL;
    for (int32_t h = 0; h < hidden; h++) out[h] += share * (bias ? y[h] + bias[h] : y[h]);
  }
}

void cpu_moe(struct compute *compute, const struct moe_params *p, int32_t n) {
  struct cpu_compute *c = cpu_of(compute);
  struct moe_plan plan;
  ASSERT(p->n_experts <= EXPERTS_MAX && p->gate[0].n_in <= KERNEL_IN_MAX && p->down[0].n_in <= KERNEL_IN_MAX);
  if (n == 0) return;
  plan_carve(&plan, p, n);
  plan_group(&plan, p, n);
  int team = cpu_team(c, 3.0 * n * p->n_picked * p->gate[0].n_in * p->down[0].n_in);
  if (team == 1) {
    experts_up(c, p, &plan, 0, 1);
    for (int32_t s = 0; s < n * p->n_picked; s++) activate_slot(c, p, &plan, s);
    experts_down(c, p, &plan, 0, 1);
    for (int32_t i = 0; i < n; i++) combine_row(p, &plan, i);
    return;
  }
#pragma omp parallel num_threads(team)
  {
    int thread = omp_get_thread_num(), n_threads = omp_get_num_threads();
    experts_up(c, p, &plan, thread, n_threads);
#pragma omp barrier
#pragma omp for schedule(static)
    for (int32_t s = 0; s < n * p->n_picked; s++) activate_slot(c, p, &plan, s);
    experts_down(c, p, &plan, thread, n_threads);
#pragma omp barrier
#pragma omp for schedule(static)
    for (int32_t i = 0; i < n; i++) combine_row(p, &plan, i);
  }
}
