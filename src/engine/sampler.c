/* sampler.c - see sampler.h. Owns the counts that penalties need. Loops run in fixed lanes, so that plain C becomes
 * vector code and sums have one order; a cut selects by the digits of the float's bits and never sorts. */
#include "engine/sampler.h"

#include "base/memory.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16

struct sampler {
  struct sampling sampling;
  struct eaglet_logit_bias *bias; // [n_bias] by token
  int32_t n_vocab;
  uint64_t *seen;  // [(n_vocab + 63) / 64] bit per id of prompt or output; NULL without penalties
  uint32_t *count; // [n_vocab] times in the output; NULL without frequency and presence penalty
};

/* ---- what a sequence wants ---- */

static enum eaglet_status check_range(const char *name, float value, double least, double most,
                                      struct eaglet_error *err) {
  if (!(value >= least && value <= most))
    FAIL(err, EAGLET_E_USAGE, "%s %g: expected %g to %g", name, (double)value, least, most);
  return EAGLET_OK;
}

static enum eaglet_status check_sampling(const struct sampling *s, struct eaglet_error *err) {
  TRY(check_range("temperature", s->temperature, 0, SAMPLING_TEMPERATURE_MAX, err));
  TRY(check_range("top-p", s->top_p, 0, 1, err));
  TRY(check_range("min-p", s->min_p, 0, 1, err));
  TRY(check_range("frequency penalty", s->frequency_penalty, -SAMPLING_PENALTY_MAX, SAMPLING_PENALTY_MAX, err));
  TRY(check_range("presence penalty", s->presence_penalty, -SAMPLING_PENALTY_MAX, SAMPLING_PENALTY_MAX, err));
  if (s->top_k < 0) FAIL(err, EAGLET_E_USAGE, "top-k %d: expected 0 or more", s->top_k);
  if (!(s->repetition_penalty >= 0 && s->repetition_penalty <= FLT_MAX))
    FAIL(err, EAGLET_E_USAGE, "repetition penalty %g: expected a finite number, 0 or more",
         (double)s->repetition_penalty);
  if (s->n_bias < 0) FAIL(err, EAGLET_E_USAGE, "%d logit biases: expected 0 or more", s->n_bias);
  return EAGLET_OK;
}

static int compare_bias(const void *a, const void *b) {
  const struct eaglet_logit_bias *x = a, *y = b;
  return (x->token > y->token) - (x->token < y->token);
}

/* bias: by token. */
static enum eaglet_status check_bias(const struct eaglet_logit_bias *bias, int32_t n, int32_t n_vocab,
                                     struct eaglet_error *err) {
  for (int32_t i = 0; i < n; i++) {
    if (bias[i].token < 0 || bias[i].token >= n_vocab)
      FAIL(err, EAGLET_E_USAGE, "logit bias of token %d: the vocabulary has %d ids", bias[i].token, n_vocab);
    if (!(bias[i].bias <= FLT_MAX))
      FAIL(err, EAGLET_E_USAGE, "logit bias of token %d: expected a finite number or -inf, found %g", bias[i].token,
           (double)bias[i].bias);
    if (i > 0 && bias[i].token == bias[i - 1].token)
      FAIL(err, EAGLET_E_USAGE, "logit bias of token %d: given twice", bias[i].token);
  }
  return EAGLET_OK;
}

static bool repeats(const struct sampling *s) {
  return s->repetition_penalty > 0 && s->repetition_penalty != 1;
}

static bool counts(const struct sampling *s) {
  return s->frequency_penalty != 0 || s->presence_penalty != 0;
}

enum eaglet_status sampler_create(struct sampler **out, const struct sampling *sampling, int32_t n_vocab,
                                  struct eaglet_error *err) {
  *out = NULL;
  TRY(check_sampling(sampling, err));
  struct sampler *s = memory_alloc(sizeof *s);
  size_t n_bias = (size_t)sampling->n_bias;
  *s = (struct sampler){.sampling = *sampling, .n_vocab = n_vocab};
  s->bias = memory_alloc((n_bias + 1) * sizeof *s->bias);
  if (n_bias > 0) {
    ASSERT(sampling->bias);
    memcpy(s->bias, sampling->bias, n_bias * sizeof *s->bias);
    qsort(s->bias, n_bias, sizeof *s->bias, compare_bias);
  }
  s->sampling.bias = s->bias;
  enum eaglet_status status = EAGLET_OK;
  TRY_GOTO(check_bias(s->bias, sampling->n_bias, n_vocab, err), failed);
  bool counting = counts(sampling), seeing = counting || repeats(sampling);
  if (seeing) s->seen = memory_try(((size_t)n_vocab + 63) / 64 * sizeof *s->seen);
  if (counting) s->count = memory_try((size_t)n_vocab * sizeof *s->count);
  if ((seeing && !s->seen) || (counting && !s->count)) {
    status = error_set(err, EAGLET_E_RESOURCE, "no memory for the counts of %d tokens", n_vocab);
    goto failed;
  }
  *out = s;
  return EAGLET_OK;
failed:
  sampler_free(s);
  return status;
}

void sampler_free(struct sampler *s) {
  if (!s) return;
  memory_try_free(s->seen);
  memory_try_free(s->count);
  free(s->bias);
  free(s);
}

const struct sampling *sampler_sampling(const struct sampler *s) {
  return &s->sampling;
}

bool sampler_is_raw(const struct sampler *s) {
  return s->sampling.n_bias == 0 && !s->seen;
}

void sampler_note(struct sampler *s, int32_t token, bool is_output) {
  ASSERT(token >= 0 && token < s->n_vocab);
  if (s->seen) s->seen[token / 64] |= (uint64_t)1 << token % 64;
  if (s->count) s->count[token] += is_output;
}

/* ---- logits as the sequence wants them ---- */

static void apply_allowed(float *logits, int32_t n, const uint32_t *allowed) {
  for (int32_t first = 0; first < n; first += 32) {
    uint32_t word = allowed[first / 32];
    int32_t end = n - first < 32 ? n - first : 32;
    if (word == UINT32_MAX) continue;
    for (int32_t i = 0; i < end; i++) logits[first + i] = word >> i & 1 ? logits[first + i] : -INFINITY;
  }
}

static float penalised(const struct sampler *s, float logit, int32_t token) {
  const struct sampling *p = &s->sampling;
  if (repeats(p)) logit = logit > 0 ? logit / p->repetition_penalty : logit * p->repetition_penalty;
  uint32_t times = s->count ? s->count[token] : 0;
  if (times > 0) logit = logit - p->frequency_penalty * (float)times - p->presence_penalty;
  return logit;
}

static void apply_penalties(const struct sampler *s, float *logits) {
  for (int32_t first = 0; first < s->n_vocab; first += 64) {
    for (uint64_t word = s->seen[first / 64]; word != 0; word &= word - 1) {
      int32_t token = first + __builtin_ctzll(word);
      logits[token] = penalised(s, logits[token], token);
    }
  }
}

void sampler_process(const struct sampler *s, float *logits, const uint32_t *allowed, const int32_t *banned,
                     int32_t n_banned) {
  if (allowed) apply_allowed(logits, s->n_vocab, allowed);
  for (int32_t i = 0; i < n_banned; i++) {
    ASSERT(banned[i] >= 0 && banned[i] < s->n_vocab);
    logits[banned[i]] = -INFINITY;
  }
  for (int32_t i = 0; i < s->sampling.n_bias; i++) logits[s->bias[i].token] += s->bias[i].bias;
  if (s->seen) apply_penalties(s, logits);
}

/* ---- rows ---- */

static float row_max(const float *values, int32_t n) {
  float lane[LANES], max = -INFINITY;
  int32_t i = 0;
  for (int j = 0; j < LANES; j++) lane[j] = -INFINITY;
  for (; i + LANES <= n; i += LANES) {
    for (int j = 0; j < LANES; j++) lane[j] = values[i + j] > lane[j] ? values[i + j] : lane[j];
  }
  for (int j = 0; j < LANES; j++) max = lane[j] > max ? lane[j] : max;
  for (; i < n; i++) max = values[i] > max ? values[i] : max;
  return max;
}

static double row_sum(const float *values, int32_t n) {
  double lane[LANES] = {0}, sum = 0;
  int32_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    for (int j = 0; j < LANES; j++) lane[j] += (double)values[i + j];
  }
  for (int j = 0; j < LANES; j++) sum += lane[j];
  for (; i < n; i++) sum += (double)values[i];
  return sum;
}

static inline int32_t float_bits(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float bits_float(int32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* exp for x <= 0, relative error under 2e-7 (Cephes' expf polynomial), 1 at 0 exactly; stays under EXP_LEAST below -87
 * and where x is no number. Written for the vectoriser: no call, and a mask where a ?: would be a branch to it. */
#define EXP_LEAST 1.7e-38f
static inline float exp_negative(float x) {
  int32_t inside = -(x > -87.0f);
  x = bits_float((float_bits(x) & inside) | (float_bits(-87.0f) & ~inside));
  int32_t whole = (int32_t)(x * 1.44269504f - 0.5f);
  float n = (float)whole, r = x - n * 0.693359375f + n * 2.12194440e-4f, p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return p * bits_float((whole + 127) * (1 << 23));
}

/* Logits to exp((v - max) / temperature), 0 where that is under min_p (or next to nothing). */
static void row_exp(float *values, int32_t n, float max, const struct sampling *s) {
  const float temperature = s->temperature, floor = s->min_p > EXP_LEAST ? s->min_p : EXP_LEAST;
  for (int32_t i = 0; i < n; i++) {
    float e = exp_negative((values[i] - max) / temperature);
    values[i] = e >= floor ? e : 0.0f;
  }
}

/* ---- cuts ---- */

#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)
#define CHUNKS_MAX 2048

/* Where a cut may fall: entries of a row whose order keys lie in low .. low + width. */
struct candidates {
  const float *values;
  int32_t *list, n; // [n] indices, ascending
  uint32_t low, width;
};

/* Floats in their order as integers, and back; -0 is 0. */
static inline uint32_t order_key(float value) {
  uint32_t bits = (uint32_t)float_bits(value + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static inline float key_value(uint32_t key) {
  return bits_float((int32_t)(key >> 31 ? key & 0x7fffffffu : ~key));
}

/* Those not below the floor; max: the row's. Whole lanes are passed over where there is none; else there is no branch,
 * since which ones is hard to foresee. */
static struct candidates candidates_from(const float *values, int32_t n, float floor, float max, int32_t *list) {
  int32_t n_list = 0, first = 0;
  for (; first + LANES <= n; first += LANES) {
    int32_t any = 0;
    for (int j = 0; j < LANES; j++) any |= -(values[first + j] >= floor);
    if (!any) continue;
    for (int32_t i = first; i < first + LANES; i++) {
      list[n_list] = i;
      n_list += values[i] >= floor;
    }
  }
  for (; first < n; first++) {
    if (values[first] >= floor) list[n_list++] = first;
  }
  uint32_t low = order_key(floor);
  return (struct candidates){.values = values, .list = list, .n = n_list, .low = low, .width = order_key(max) - low};
}

/* Weight of each digit, `shift` bits up, of key - low. A weight is 1, or with by_mass the value itself. */
static void weigh_digits(double weight[DIGITS], const struct candidates *c, uint32_t shift, bool by_mass) {
  double odd[DIGITS] = {0}; /* so that an addition need not wait for the one before */
  memset(weight, 0, DIGITS * sizeof *weight);
  for (int32_t i = 0; i < c->n; i++) {
    float value = c->values[c->list[i]];
    double *side = i & 1 ? odd : weight;
    side[(order_key(value) - c->low) >> shift] += by_mass ? (double)value : 1.0;
  }
  for (int32_t digit = 0; digit < DIGITS; digit++) weight[digit] += odd[digit];
}

/* Narrows the candidates, of which there is at least one, to the equal ones on which the limit falls when weights are
 * added from the largest value down; to the least when it falls on none. Returns how much of the limit those equal ones
 * have to bring. */
static double candidates_narrow(struct candidates *c, double limit, bool by_mass) {
  double weight[DIGITS];
  uint32_t shift;
  do {
    shift = c->width < DIGITS ? 0 : 32 - DIGIT_BITS - (uint32_t)__builtin_clz(c->width);
    weigh_digits(weight, c, shift, by_mass);
    uint32_t digit = 0;
    double above = 0, above_digit = 0;
    for (uint32_t at = DIGITS; at-- > 0 && above < limit;) {
      if (weight[at] <= 0) continue;
      digit = at;
      above_digit = above;
      above += weight[at];
    }
    limit -= above_digit;
    c->low += digit << shift;
    c->width = (1u << shift) - 1;
    int32_t kept = 0;
    for (int32_t i = 0; i < c->n; i++) {
      int32_t index = c->list[i];
      c->list[kept] = index;
      kept += order_key(c->values[index]) - c->low <= c->width;
    }
    c->n = kept;
  } while (shift > 0);
  return limit;
}

/* The shortest head of the row's order whose weight reaches the limit stays, the rest becomes `gone`. */
static void cut_row(float *values, int32_t n, struct candidates *c, double limit, float gone) {
  bool by_mass = gone == 0; /* probabilities are weighed, logits counted */
  double left = candidates_narrow(c, limit, by_mass);
  float least = key_value(c->low);
  for (int32_t i = 0; i < n; i++) values[i] = values[i] >= least ? values[i] : gone;
  for (int32_t i = 0; i < c->n; i++) {
    if (left <= 0) values[c->list[i]] = gone;
    left -= by_mass ? (double)least : 1.0;
  }
}

/* A value that at least k of the row reach, or nearly nothing: the k-th of the largest of each chunk. */
static float top_k_floor(const float *logits, int32_t n, int32_t k, float max, int32_t *order) {
  float largest[CHUNKS_MAX];
  int32_t length = (n + CHUNKS_MAX - 1) / CHUNKS_MAX, n_chunks = n / length;
  if (length < LANES || k > n_chunks / 2) return -FLT_MAX;
  for (int32_t i = 0; i < n_chunks; i++) largest[i] = row_max(logits + (int64_t)i * length, length);
  struct candidates c = candidates_from(largest, n_chunks, -FLT_MAX, max, order);
  if (c.n <= k) return -FLT_MAX;
  candidates_narrow(&c, k, false);
  return key_value(c.low);
}

static void cut_top_k(float *logits, int32_t n, int32_t k, float max, int32_t *order) {
  float floor = top_k_floor(logits, n, k, max, order);
  struct candidates c = candidates_from(logits, n, floor, max, order);
  if (c.n > k || floor > -FLT_MAX) cut_row(logits, n, &c, k, -INFINITY);
}

/* sum: of the weights, the largest of which is 1. Those under (1 - p) of their mean sum to less than 1 - p of it and so
 * lie behind the cut: they are no candidates. (A little less than that, for the rounding.) */
static void cut_top_p(float *weights, int32_t n, double p, double sum, int32_t *order) {
  float floor = (float)((1 - p) * sum / n * (1 - 1e-6));
  struct candidates c = candidates_from(weights, n, floor, 1, order);
  cut_row(weights, n, &c, p * sum, 0);
}

void sampler_distribution(float *values, int32_t n, const struct sampling *s, int32_t *order) {
  float max = row_max(values, n);
  int32_t best = s->temperature > 0 ? -1 : sampler_best(values, n);
  if (max == -INFINITY || best >= 0) {
    memset(values, 0, (size_t)n * sizeof *values);
    if (best >= 0) values[best] = 1;
    return;
  }
  if (max == INFINITY) { /* nothing finite has a chance beside it */
    for (int32_t i = 0; i < n; i++) values[i] = values[i] == max ? 0 : -INFINITY;
    max = 0;
  }
  /* Both cuts and min-p keep heads of one order, and only top-p asks for sums: top-k may come before the exponentials
   * and min-p with them. */
  if (s->top_k > 0 && s->top_k < n) cut_top_k(values, n, s->top_k, max, order);
  row_exp(values, n, max, s);
  double sum = row_sum(values, n);
  if (s->top_p > 0 && s->top_p < 1) {
    cut_top_p(values, n, (double)s->top_p, sum, order);
    sum = row_sum(values, n);
  }
  double scale = 1 / sum;
  for (int32_t i = 0; i < n; i++) values[i] = (float)(values[i] * scale);
}

/* ---- choices ---- */

int32_t sampler_draw(const float *probability, int32_t n, double u) {
  double sum = 0;
  int32_t last = -1;
  for (int32_t i = 0; i < n; i++) {
    if (!(probability[i] > 0)) continue;
    sum += probability[i];
    last = i;
    if (u < sum) return i;
  }
  return last;
}

int32_t sampler_best(const float *logits, int32_t n) {
  float max = row_max(logits, n);
  if (max == -INFINITY) return -1;
  int32_t best = 0;
  while (logits[best] != max) best++;
  return best;
}
