/* evaluate_tally.h - what evaluation counts, per source, and how it says it in JSON. evaluate.h has the definitions. */
#ifndef EAGLET_TRAIN_EVALUATE_TALLY_H
#define EAGLET_TRAIN_EVALUATE_TALLY_H

#include "base/json.h"

#define TALLY_POSITIONS 16
#define TALLY_BUCKETS 12 /* of context length: below 128, then each twice as long as the one before */

/* What was counted of all rounds that drafted up to the limits. */
struct tally {
  uint64_t n_prompts, n_output, n_rounds, n_drafted, n_accepted;
  uint64_t drafted_at[TALLY_POSITIONS], accepted_at[TALLY_POSITIONS];
  struct tally_bucket {
    uint64_t n_rounds, n_tokens; /* rounds that began with so long a context; tokens that they gave */
  } buckets[TALLY_BUCKETS];
};
/* One sequence is over. */
void tally_add(struct tally *tally, const struct eaglet_sequence_stats *stats);
/* Rounds of one step of one sequence. context: its tokens before. */
void tally_add_rounds(struct tally *tally, int32_t context, int32_t n_rounds, int32_t n_tokens);
double tally_acceptance_length(const struct tally *tally);
json_t *tally_json(const struct tally *tally, int32_t draft_len); /* new reference */

/* How long one way of decoding took. */
struct speed {
  uint64_t n_output, n_decoded; /* all tokens; those of steps that only decoded */
  double prefill_s, decode_s;
};
void speed_add(struct speed *sum, const struct speed *part);
double speed_rate(const struct speed *speed);  /* decoded tokens per second of decoding */
double speed_total(const struct speed *speed); /* all tokens per second, prompts included */
json_t *speed_json(const struct speed *speed); /* new reference */

#endif
