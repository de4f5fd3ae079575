/* teacher.h - what the head shall learn: the target's distribution over the draft vocabulary, and whether the target's
 * own first choice is in it. From the last hidden state, so that no file needs V floats per token; the whole
 * vocabulary's logits exist only for a chunk of rows. */
#ifndef EAGLET_TRAIN_TEACHER_H
#define EAGLET_TRAIN_TEACHER_H

#include "draft/vocab_map.h"
#include "model/model.h"

struct teacher {
  const struct model *model;   /* borrowed */
  const struct vocab_map *map; /* borrowed */
  bool last_is_normed; /* set after init by who knows the states: they need no final norm (FEATURE_LAST_NORMED) */
  int32_t chunk_rows;
  float *normed, *logits; /* [chunk, H], [chunk, V] */
  int32_t *best;          /* [chunk] */
};
enum eaglet_status teacher_init(struct teacher *teacher, const struct model *model, const struct vocab_map *map,
                                struct eaglet_error *err) MUST_USE;
/* target[i] [n_draft] = softmax over the draft vocabulary of the logits of last[i] [H] (the last state, before the
 * final norm unless last_is_normed); in_vocabulary[i]: the argmax over the whole vocabulary is a draft id. */
void teacher_targets(struct teacher *teacher, float *target, uint8_t *in_vocabulary, const float *last, int32_t n);
void teacher_release(struct teacher *teacher);

#endif
