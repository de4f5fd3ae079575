/* foreign_sample.h - one training sample as another program stores it, opened: token ids, sometimes a loss mask, and states as views into
 * the file. Which program is recognised by what the file holds, not by its name; the table of formats is in foreign_sample.c.
 *
 * Invariant: after open every slot lies inside the file, all have n_tokens states of width hidden, and there is an id for each. The last
 * slot is the one that its writer meant as last; what the slots really are is measured elsewhere (train/feature_probe.h).
 */
#ifndef EAGLET_DATA_FOREIGN_SAMPLE_H
#define EAGLET_DATA_FOREIGN_SAMPLE_H

#include "data/feature_store.h"

struct foreign_slot {
  const uint8_t *data; /* state of token 0; any alignment */
  size_t stride;       /* bytes from one token's to the next one's */
  const uint8_t *scale; /* FP8: of token 0, or NULL */
  size_t scale_stride;
};
struct foreign_sample {
  struct safetensors file;
  const char *format; /* "speculators", "speculators 0.3", "speculators 0", "specforge", "modelopt" */
  const struct tensor_entry *ids, *mask; /* mask NULL: it has none */
  int32_t n_tokens, n_slots, hidden;     /* n_slots: the last state included */
  enum dtype dtype, scale_dtype;
  struct foreign_slot slots[FEATURE_STATES_MAX + 1];
};
enum eaglet_status foreign_sample_open(struct foreign_sample *sample, const char *path, struct eaglet_error *err) MUST_USE;
/* [n_tokens]; an id that is no 31-bit number, a mark that is neither 0 nor 1: refused. */
enum eaglet_status foreign_sample_ids(const struct foreign_sample *sample, int32_t *ids, struct eaglet_error *err) MUST_USE;
enum eaglet_status foreign_sample_mask(const struct foreign_sample *sample, uint8_t *mask, struct eaglet_error *err) MUST_USE;
void foreign_sample_states(const struct foreign_sample *sample, float *states); /* [n_tokens, n_slots * hidden] */
/* The checksum that samples of ours carry in their metadata: of the bytes of hidden_states, then of token_ids. */
void sample_hash_text(char text[HASH_TEXT_BYTES], const void *states, size_t n_states, const void *ids, size_t n_ids);
void foreign_sample_close(struct foreign_sample *sample);

#endif
