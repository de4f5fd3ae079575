/* teacher.h - what the head shall learn: the target's distribution over the draft vocabulary, how much of its own is there, and
 * its own first choice. From the last hidden state, so that no file needs V floats per token; the whole
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
  float *log_all, *log_draft; /* [chunk] log-sums over the whole and over the draft vocabulary */
};
enum eaglet_status teacher_init(struct teacher *teacher, const struct model *model, const struct vocab_map *map,
                                struct eaglet_error *err) MUST_USE;
/* Of n rows, the first three of struct distill_params. */
struct teacher_rows {
  float *target;   /* [n, n_draft] softmax over the draft vocabulary */
  float *mass;     /* [n] share of the softmax over the whole vocabulary that is on the draft vocabulary */
  int32_t *choice; /* [n] argmax over the whole vocabulary as a draft id, -1: outside */
};
/* last: [n, H] the last state, before the final norm unless last_is_normed. */
void teacher_targets(struct teacher *teacher, const struct teacher_rows *rows, const float *last, int32_t n);
void teacher_release(struct teacher *teacher);

#endif
