/* target_facts.h - what preparing and evaluating need to know of a target without opening its weights: vocabulary,
 * positions, end tokens, and a hash that tells two checkpoints apart. */
#ifndef EAGLET_TRAIN_TARGET_FACTS_H
#define EAGLET_TRAIN_TARGET_FACTS_H

#include "checkpoint/checkpoint.h"
#include "data/token_shard.h"
#include "model/arch.h"

struct target_facts {
  int32_t n_vocab, positions_max;
  int32_t stop_ids[ARCH_STOPS_MAX], n_stop_ids; /* union of generation_config's and the configs' eos ids */
  uint64_t hash;
};
enum eaglet_status target_facts_read(struct target_facts *facts, const struct checkpoint_params *params,
                                     struct eaglet_error *err) MUST_USE;

/* Token data that was prepared with another vocabulary or another tokenizer is refused (C12, E08). A target without tokenizer files, or
 * data whose manifest names none, cannot be compared by content. */
enum eaglet_status target_check_data(const struct token_store *tokens, const char *model, int32_t n_vocab,
                                     struct eaglet_error *err) MUST_USE;

/* Of every tensor's name, type, shape and first and last bytes: fine-tuned weights differ, and a terabyte need not be
 * read. */
uint64_t target_hash(const struct checkpoint *checkpoint);

#endif
