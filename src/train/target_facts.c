/* target_facts.c - see target_facts.h. Owns nothing between calls. */
#include "train/target_facts.h"

#include "base/util.h"
#include "model/arch.h"
#include "text/tokenizer.h"

#include <string.h>

#define SAMPLE_BYTES 4096u

uint64_t target_hash(const struct checkpoint *checkpoint) {
  uint64_t hash = 0;
  for (size_t i = 0; i < checkpoint->n_tensors; i++) {
    const struct tensor_entry *t = checkpoint->tensors[i];
    uint64_t n = t->n_bytes < SAMPLE_BYTES ? t->n_bytes : SAMPLE_BYTES;
    const int32_t kind[] = {(int32_t)t->dtype, t->rank};
    hash = file_hash(t->name, strlen(t->name), hash);
    hash = file_hash(kind, sizeof kind, hash);
    hash = file_hash(t->shape, sizeof *t->shape * (size_t)t->rank, hash);
    hash = file_hash(t->data, (size_t)n, hash);
    hash = file_hash(t->data + (t->n_bytes - n), (size_t)n, hash);
  }
  return hash;
}

enum eaglet_status target_check_data(const struct token_store *tokens, const char *model, int32_t n_vocab,
                                     struct eaglet_error *err) {
  const char *directory = tokens->directory, *expected = json_string_value(json_object_get(tokens->manifest, "tokenizer_hash"));
  struct tokenizer *tokenizer = NULL;
  int64_t n_target;
  TRY(json_get_int_or(&n_target, n_vocab, tokens->manifest, "n_target", directory, err)); /* samples of another program do not say */
  if (n_target != n_vocab)
    FAIL(err, EAGLET_E_INPUT, "%s: prepared for a vocabulary of %lld, the target %s has %d", directory, (long long)n_target,
         model, n_vocab);
  for (size_t r = 0; tokens->own_ids && r < tokens->n_rows; r++) {
    for (int32_t i = 0; i < tokens->rows[r].n; i++) {
      if (tokens->rows[r].tokens[i] < n_vocab) continue;
      FAIL(err, EAGLET_E_INPUT, "%s: row %zu, token %d: found id %d, the target %s has %d", directory, r, i, tokens->rows[r].tokens[i], model, n_vocab);
    }
  }
  if (!expected) return EAGLET_OK;
  struct eaglet_error why = {0};
  if (tokenizer_open(&tokenizer, model, &why) != EAGLET_OK) {
    log_warning("%s: cannot tell whether its tokenizer is the one that prepared %s: %s", model, directory, why.message);
    return EAGLET_OK;
  }
  char found[HASH_TEXT_BYTES];
  hash_text(found, tokenizer_hash(tokenizer));
  tokenizer_close(tokenizer);
  if (strcmp(found, expected) == 0) return EAGLET_OK;
  FAIL(err, EAGLET_E_INPUT, "%s: prepared with tokenizer %s, the target %s has %s: its ids mean other tokens; prepare again", directory,
       expected, model, found);
}

enum eaglet_status target_facts_read(struct target_facts *facts, const struct checkpoint_params *params,
                                     struct eaglet_error *err) {
  struct checkpoint checkpoint = {0};
  struct arch arch = {0};
  *facts = (struct target_facts){0};
  TRY(checkpoint_open_with(&checkpoint, params, err));
  enum eaglet_status status = arch_resolve(&arch, &checkpoint, err);
  if (status == EAGLET_OK) {
    facts->n_vocab = arch.features.n_vocab;
    facts->positions_max = arch.features.positions_max;
    facts->n_stop_ids = arch_stop_ids(facts->stop_ids, &arch, &checkpoint);
    facts->hash = target_hash(&checkpoint);
    arch_clear(&arch);
  }
  checkpoint_close(&checkpoint);
  return status;
}
