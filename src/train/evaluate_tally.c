/* evaluate_tally.c - see evaluate_tally.h. */
#include "train/evaluate_tally.h"

#define BUCKET_FIRST 128

void tally_add(struct tally *t, const struct eaglet_sequence_stats *stats) {
  t->n_prompts++;
  t->n_output += (uint64_t)stats->output_tokens;
  t->n_rounds += (uint64_t)stats->rounds;
  t->n_drafted += (uint64_t)stats->drafted;
  t->n_accepted += (uint64_t)stats->accepted;
  for (int i = 0; i < TALLY_POSITIONS; i++) {
    t->drafted_at[i] += (uint64_t)stats->drafted_at[i];
    t->accepted_at[i] += (uint64_t)stats->accepted_at[i];
  }
}

void tally_add_rounds(struct tally *t, int32_t context, int32_t n_rounds, int32_t n_tokens) {
  int32_t b = 0;
  while (b < TALLY_BUCKETS - 1 && context >= BUCKET_FIRST << b) b++;
  t->buckets[b].n_rounds += (uint64_t)n_rounds;
  t->buckets[b].n_tokens += (uint64_t)n_tokens;
}

static double share(uint64_t part, uint64_t whole) {
  return whole > 0 ? (double)part / (double)whole : 0;
}

double tally_acceptance_length(const struct tally *t) {
  return share(t->n_output - t->n_prompts, t->n_rounds);
}

static json_t *buckets_json(const struct tally *t) {
  json_t *array = json_array();
  for (int32_t b = 0; b < TALLY_BUCKETS; b++) {
    const struct tally_bucket *bucket = &t->buckets[b];
    if (bucket->n_rounds == 0) continue;
    json_array_append_new(array, json_pack("{si sI sf}", "from", b == 0 ? 0 : BUCKET_FIRST << (b - 1), "rounds", (json_int_t)bucket->n_rounds,
                                           "acceptance_length", share(bucket->n_tokens, bucket->n_rounds)));
  }
  return array;
}

json_t *tally_json(const struct tally *t, int32_t draft_len) {
  json_t *positions = json_array(), *conditional = json_array();
  for (int32_t i = 0; i < draft_len; i++) {
    json_array_append_new(positions, json_real(share(t->accepted_at[i], t->drafted_at[0])));
    json_array_append_new(conditional, json_real(share(t->accepted_at[i], i == 0 ? t->drafted_at[0] : t->accepted_at[i - 1])));
  }
  return json_pack("{sf sf so so so sI sI sI sI sI}", "acceptance_length", tally_acceptance_length(t), "accepted_per_round",
                   share(t->n_accepted, t->n_rounds), "per_position", positions, "conditional",
                   conditional, "by_context", buckets_json(t), "prompts", (json_int_t)t->n_prompts, "output_tokens", (json_int_t)t->n_output,
                   "rounds", (json_int_t)t->n_rounds, "drafted", (json_int_t)t->n_drafted, "accepted", (json_int_t)t->n_accepted);
}

/* ---- speed ---- */

void speed_add(struct speed *sum, const struct speed *part) {
  sum->n_output += part->n_output;
  sum->n_decoded += part->n_decoded;
  sum->prefill_s += part->prefill_s;
  sum->decode_s += part->decode_s;
}

double speed_rate(const struct speed *s) {
  return s->decode_s > 0 ? (double)s->n_decoded / s->decode_s : 0;
}

double speed_total(const struct speed *s) {
  double seconds = s->prefill_s + s->decode_s;
  return seconds > 0 ? (double)s->n_output / seconds : 0;
}

json_t *speed_json(const struct speed *s) {
  return json_pack("{sI sI sf sf sf sf}", "output_tokens", (json_int_t)s->n_output, "decoded_tokens", (json_int_t)s->n_decoded, "prefill_s",
                   s->prefill_s, "decode_s", s->decode_s, "tok_s", speed_rate(s), "total_tok_s", speed_total(s));
}
