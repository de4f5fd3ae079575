/* prediction.h - the prediction layer that a checkpoint carries behind its last layer (DeepSeek's MTP, also GLM's): weights bound
 * by the model's own binding. The model itself ignores them; they belong to whoever opens them. Its arithmetic, by the paper and by
 * vLLM:
 *
 *   x = eh_proj [enorm(embed(token)) | hnorm(feature)];  x = decoder_layer(x);  logits = head(shared_head.norm(x))
 *
 * Only checkpoints with those names are known: layers.{n_layers}.{enorm, hnorm, eh_proj, shared_head.norm} and a decoder layer of
 * the model's family; embed_tokens and shared_head.head are the model's where the layer has none of its own.
 */
#ifndef EAGLET_MODEL_PREDICTION_H
#define EAGLET_MODEL_PREDICTION_H

#include "model/model.h"

struct prediction_weights {
  struct layer_weights layer;                 /* its feed-forward's arrays are owned */
  struct weight join, embed, head;            /* eh_proj [H, 2H]; [V, H] each */
  struct norm_weights embed_norm, feature_norm, norm; /* enorm, hnorm, shared_head.norm */
  bool own_embed, own_head;
  float *small;                               /* vectors as F32, device */
};
/* Every tensor of the layer must be used. EAGLET_E_INPUT when there is no such layer, or one of a decoder whose prediction layers
 * are not known (norms with a mean, parallel blocks, scaled residuals). Nothing is left behind on failure. */
enum eaglet_status prediction_open(struct prediction_weights *weights, const struct model *model, struct eaglet_error *err) MUST_USE;
void prediction_close(struct prediction_weights *weights, struct compute *c);

#endif
