/* feature_store.h - hidden states by training row, whoever wrote them: our shards (feature_shard.h) or one file per sample of another
 * program (foreign_store.h). The trainer sees this interface only.
 *
 * A position is read as F32: the head's input states side by side, ascending, then the last state unless the layout says that it is not
 * stored. Invariant: what read gives is finite, and no state of a token is all zeros (D15); a row that is not there is told by
 * feature_store_has, never made up. Which states the slots of a foreign file hold is not believed but measured: such a store is opened
 * without names (`named` is false) and gets them by feature_store_name from who has measured (train/feature_probe.h).
 *
 * A kind of store is a struct that begins with struct feature_store, and a table of functions; feature_store_open picks by what the
 * directory holds.
 */
#ifndef EAGLET_DATA_FEATURE_STORE_H
#define EAGLET_DATA_FEATURE_STORE_H

#include "data/token_shard.h"

#define FEATURE_STATES_MAX 16
#define FEATURE_CONVENTION "residual stream after k layers, before the final norm"

enum feature_last {
  FEATURE_LAST_RESIDUAL, /* state n_layers, before the final norm */
  FEATURE_LAST_NORMED,   /* the same behind the final norm: the target's head takes it as it is */
  FEATURE_LAST_NONE      /* not stored: the reader runs the rest of the target from the deepest state */
};

struct feature_layout {
  int32_t n_states, states[FEATURE_STATES_MAX]; /* the head's input states */
  int32_t n_layers, hidden;
  enum dtype dtype; /* BF16, F32, F16, or F8_E4M3 with one F32 scale per token and state */
  enum feature_last last;
  int32_t shard_rows; /* of our shards: training rows of one, 1 .. FEATURE_ROWS; 0: FEATURE_ROWS */
};
int32_t feature_layout_slots(const struct feature_layout *layout); /* states of a position, the last one included when it is stored */
uint64_t feature_token_bytes(const struct feature_layout *layout); /* that our shards take per token, its id included */

struct feature_store {
  const struct feature_store_kind *kind;
  char *path; /* the directory; owned by the kind */
  struct feature_layout layout;     /* states and last are the kind's guess until `named` */
  const struct token_store *tokens; /* borrowed */
  bool named;
  char model_hash[HASH_TEXT_BYTES]; /* of the target that made the states; "": not known */
  size_t n_covered;   /* rows that are there */
  size_t n_duplicates; /* samples of the same ids as an earlier one */
};
struct feature_store_kind {
  const char *name; /* "eaglet", "speculators", ... */
  bool (*has)(const struct feature_store *store, size_t row);
  enum eaglet_status (*read)(struct feature_store *store, size_t row, float *states, struct eaglet_error *err);
  void (*close)(struct feature_store *store);
};

/* Refuses features of other tokens, a shard that is missing or of other rows; a foreign store may cover a part of the rows. */
enum eaglet_status feature_store_open(struct feature_store **store, const char *directory,
                                      const struct token_store *tokens, struct eaglet_error *err) MUST_USE;
static inline const struct feature_layout *feature_store_layout(const struct feature_store *store) { return &store->layout; }
bool feature_store_has(const struct feature_store *store, size_t row);
/* Row `row`, which is there, to states [n, slots * H]. */
enum eaglet_status feature_store_read(struct feature_store *store, size_t row, float *states,
                                      struct eaglet_error *err) MUST_USE;
/* What the slots are, as measured. */
void feature_store_name(struct feature_store *store, const int32_t *states, int32_t n_layers, enum feature_last last);
void feature_store_close(struct feature_store *store);

/* ---- what is wrong with numbers ---- */

struct feature_numbers {
  const float *values;   /* [n_tokens, n_slots * hidden] */
  const int32_t *states; /* [n_slots] their numbers; state 0 may be zeros: embeddings of unused tokens are */
  int32_t n_tokens, n_slots, hidden;
};
struct feature_fault {
  uint64_t n_not_finite, n_zero; /* states of tokens */
  int32_t token, state;          /* the first fault */
  bool zero;                     /* it is one of zeros */
  float value;                   /* it is this number */
};
/* True when there is a fault; counts go on from what *fault holds. */
bool feature_fault_find(struct feature_fault *fault, const struct feature_numbers *numbers);
/* "PATH: row R, token T, state S: expected finite numbers, found inf" */
enum eaglet_status feature_fault_fail(const struct feature_fault *fault, const char *path, size_t row, struct eaglet_error *err) MUST_USE;

/* ---- for kinds: numbers as they are stored ---- */

/* One state of one token. FP8: *scale gets the largest magnitude over 448; otherwise it is left alone and may be NULL. */
void feature_encode(void *to, float *scale, enum dtype dtype, const float *from, size_t n);
void feature_decode(float *to, const void *from, const float *scale, enum dtype dtype, size_t n);

#endif
