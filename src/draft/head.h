/* head.h - a draft head for inference. An EAGLE-3 head fuses captured states to one feature; its first decoder layer reads
 * [norm(embedding), norm(feature)]; its output is the next feature and, through norm and lm_head, the draft's logits.
 *
 *   g  = fc(state_a | state_b | ...)                target features only
 *   u  = [input_layernorm(embed(x)) | hidden_norm(g)]
 *   y  = g + attention(u);  z = y + mlp(post_attention_layernorm(y));  further layers are ordinary ones
 *   logits = lm_head(norm(z));  next g = z (before norm)
 *
 * Dialects of that, and a target's own prediction layer, differ in wiring only, which is data (struct head_wiring): the engine
 * sees one struct head. docs/HEADS.md says which dialects are read, and by which names and fields.
 *
 * Pair (h_t, x_{t+1}) has rope position t and draft-KV slot t. Embedding (and lm_head when the file has none and the
 * vocabulary is whole) are shared with the target. Heads are files of other projects too: every tensor must be used or
 * known, every field understood or neutral (decision 5).
 */
#ifndef EAGLET_DRAFT_HEAD_H
#define EAGLET_DRAFT_HEAD_H

#include "draft/vocab_map.h"
#include "model/forward.h"

#define HEAD_LAYERS_MAX 8

/* How a head is put together; all false: the head of the EAGLE-3 paper. */
struct head_wiring {
  bool fc_norms;             /* one norm per captured state before fc (EAGLE-3.1) */
  bool fc_input_norm;        /* or one over all of them side by side */
  bool norm_before_residual; /* the residual stream starts at hidden_norm(g), not at g */
  bool norm_output;          /* the next feature is norm(z), not z (EAGLE-3.1) */
  bool prediction_layer;     /* a target's own: eh_proj joins the two norms, an ordinary layer follows; the feature is the
                                target's final norm of its last state, which head_fuse applies */
};

/* Whose files a head has. */
enum head_dialect {
  HEAD_DIALECT_SGLANG,      /* flat config, midlayer., output ids in eagle_config: what eaglet trains unless told otherwise */
  HEAD_DIALECT_SPECULATORS, /* nested config, layers.{i}., state ids */
  HEAD_DIALECT_VLLM         /* flat config, layers.{i}., state ids at the top */
};

/* What config.json claims about tensors; they must not contradict it. */
enum head_claim { CLAIM_NONE, CLAIM_FALSE, CLAIM_TRUE };

/* Zero in a field below `positions_max`: the standard head. */
struct head_config {
  int32_t hidden, target_hidden, n_heads, n_kv_heads, head_dim, intermediate, n_target, n_draft;
  int32_t n_states, states[TAPS_MAX]; /* decision 4's numbers; config.json stores output ids state-1 in eagle_config */
  double norm_eps;
  struct rope_features rope;
  int32_t positions_max;
  int32_t n_more_layers;              /* ordinary layers behind the first */
  int32_t window[HEAD_LAYERS_MAX];    /* keys a row of the layer sees, itself included; 0: all */
  enum attention_kind attention;
  int32_t q_rank, kv_rank, nope_dim, rope_dim, value_dim; /* MLA; q_rank 0: direct q_proj */
  double attention_scale;             /* 0: head_dim^-0.5 */
  struct head_wiring wiring;
  bool embed_trained;                 /* embed_requires_grad: an own embedding learns; inference does not look */
  enum head_dialect dialect;
  /* -- set when the tensors are bound -- */
  bool qk_norm, attention_bias, attention_out_bias, ffn_bias, fc_bias, tied, own_embed, own_lm_head;
  struct {
    enum head_claim attention_bias, ffn_bias, any_bias, fc_norms, fc_input_norm, tied;
  } claims;
};

struct head_layer {
  struct attention_weights attention;
  struct ffn_weights ffn;
  const float *input_norm; /* of the residual stream; NULL in a first layer that reads [norm(embedding), norm(feature)] */
  const float *post_norm;
};
struct head {
  struct checkpoint files;          /* of a head that is files */
  struct quantization quantization; /* how its linears are stored: its own, whatever the target's is (A17) */
  struct prediction_weights *prediction; /* of a head that is the target's own layer; else NULL */
  struct head_config config;
  struct block_shape shape;
  struct vocab_map map;
  const struct model *target;       /* borrowed */
  struct weight fc, lm_head, embed; /* fc: eh_proj of a prediction layer; embed: the target's, unless the file has its own */
  struct head_layer *layers;        /* [1 + n_more_layers] */
  const float *fc_norms[TAPS_MAX], *fc_input_norm, *fc_bias;
  const float *embed_norm, *hidden_norm; /* of the embedding, of the feature */
  const float *norm;
  float *small; /* norms and biases as F32, device */
  struct rope_table rope;
  char notes[256]; /* "lm_head borrowed from the target" */
};
/* directory has config.json and model.safetensors, shards with their index, or pytorch_model.bin. Refuses heads that do
 * not fit the target, naming the part. */
enum eaglet_status head_open(struct head **head, const char *directory, const struct model *target,
                             struct eaglet_error *err) MUST_USE;
/* The target's own prediction layer (DeepSeek's MTP) as a head; every draft runs the first of them. EAGLET_E_INPUT when the
 * checkpoint has none. */
enum eaglet_status head_open_mtp(struct head **head, const struct model *target, struct eaglet_error *err) MUST_USE;
void head_close(struct head *head);

/* Whether a directory holds a head (true) or, if anything, a model of its own. */
bool head_is_here(const char *directory);

int32_t head_kv_layers(const struct head *head);       /* layers of the head's KV cache */
int32_t head_kv_entry_floats(const struct head *head); /* floats of one token's entry in each of them */

/* Head arithmetic on rows; owns its activations for rows_max rows. */
struct head_forward;
enum eaglet_status head_forward_create(struct head_forward **forward, const struct head *head, int32_t rows_max,
                                       int32_t pages_max, struct eaglet_error *err) MUST_USE;
void head_forward_free(struct head_forward *forward);
/* g[n, H] from tapped[n, n_states * H_target], norms and fc applied; device pointers; any n. */
void head_fuse(struct head_forward *forward, float *g, const float *tapped, int32_t n);
/* One pass. Rows: token = x_{t+1}, position = slot = t, kv = the sequence's head KV (head_kv_layers layers),
 * wants_logits as needed. */
struct head_run {
  const struct batch *batch;
  struct kv_cache *kv;
  const float *feature; /* device [n, H] */
  float *out;           /* result: the next feature [n, H] device, valid until the next run */
  float *logits;        /* result: [n_logits, n_draft] device */
  int32_t n_logits;
};
enum eaglet_status head_forward_run(struct head_forward *forward, struct head_run *run,
                                    struct eaglet_error *err) MUST_USE;

#endif
