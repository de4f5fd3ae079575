/* head.h - an EAGLE-3 draft head for inference: fc fuses 3 captured states to one feature; one decoder layer reads
 * [norm(embedding), norm(feature)]; its output is the next feature and, through norm and lm_head, the draft's logits.
 *
 *   g  = fc(state_a | state_b | state_c)            target features only
 *   u  = [input_layernorm(embed(x)) | hidden_norm(g)]
 *   y  = g + attention(u);  z = y + mlp(post_attention_layernorm(y))
 *   logits = lm_head(norm(z));  next g = z (before norm)
 *
 * Pair (h_t, x_{t+1}) has rope position t and draft-KV slot t. Embedding (and lm_head when the file has none and the
 * vocabulary is whole) are shared with the target. Heads are files of other projects too: names with or without
 * "midlayer."/"layers.0."/"model.", and every tensor must be used or known (decision 5).
 */
#ifndef EAGLET_DRAFT_HEAD_H
#define EAGLET_DRAFT_HEAD_H

#include "draft/vocab_map.h"
#include "model/forward.h"

struct head_config {
  int32_t hidden, target_hidden, n_heads, n_kv_heads, head_dim, intermediate, n_target, n_draft;
  int32_t n_states, states[TAPS_MAX]; /* decision 4's numbers; config.json stores output ids state-1 in eagle_config */
  double norm_eps;
  struct rope_features rope;
  int32_t positions_max;
};
struct head {
  struct safetensors file;
  json_t *config_json;
  struct head_config config;
  struct vocab_map map;
  const struct model *target;       /* borrowed */
  struct weight fc, lm_head, embed; /* embed: the target's, unless the file has its own */
  struct attention_weights attention;
  struct ffn_weights ffn;
  const float *input_norm, *hidden_norm, *post_norm, *norm;
  float *small; /* norms as F32, device */
  struct rope_table rope;
  char notes[256]; /* "lm_head borrowed from the target" */
};
/* directory has config.json and model.safetensors. Refuses heads that do not fit the target, naming the part. */
enum eaglet_status head_open(struct head **head, const char *directory, const struct model *target,
                             struct eaglet_error *err) MUST_USE;
void head_close(struct head *head);

/* Whether a directory holds a head (true) or, if anything, a model of its own. */
bool head_is_here(const char *directory);

int32_t head_kv_entry_floats(const struct head *head); /* floats of one token's entry in the head's KV cache */

/* Head arithmetic on rows; owns its activations for rows_max rows. */
struct head_forward;
enum eaglet_status head_forward_create(struct head_forward **forward, const struct head *head, int32_t rows_max,
                                       int32_t pages_max, struct eaglet_error *err) MUST_USE;
void head_forward_free(struct head_forward *forward);
/* g[n, H] = fc(tapped[n, n_states * H_target]); device pointers. */
void head_fuse(struct head_forward *forward, float *g, const float *tapped, int32_t n);
/* One pass. Rows: token = x_{t+1}, position = slot = t, kv = the sequence's head KV (one layer), wants_logits as
 * needed. */
struct head_run {
  const struct batch *batch;
  struct kv_cache *kv;
  const float *feature; /* device [n, H] */
  float *out;           /* result: z [n, H] device, valid until the next run */
  float *logits;        /* result: [n_logits, n_draft] device */
  int32_t n_logits;
};
enum eaglet_status head_forward_run(struct head_forward *forward, struct head_run *run,
                                    struct eaglet_error *err) MUST_USE;

#endif
