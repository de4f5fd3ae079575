/* feature_shard_internal.h - an open shard, shared by feature_shard.c (writing, judging) and feature_shard_store.c (the store). */
#ifndef EAGLET_DATA_FEATURE_SHARD_INTERNAL_H
#define EAGLET_DATA_FEATURE_SHARD_INTERNAL_H

#include "data/feature_shard.h"

struct shard_view {
  struct safetensors file;
  const uint8_t *states, *last;              /* [tokens, n_states * H], [tokens, H] as stored; last NULL when there is none */
  const uint8_t *states_scale, *last_scale;  /* F32 [tokens, n_states], [tokens], any alignment; NULL unless FP8 */
  const int64_t *begins;                     /* [n_rows + 1] */
  size_t n_rows;
  int64_t n_tokens;
};
/* Shapes as the layout says, row_begin sound; with rows (n_rows of them) also of exactly these. */
enum eaglet_status shard_view_open(struct shard_view *view, const char *path, const struct feature_examination *expected,
                                   struct eaglet_error *err) MUST_USE;
/* Tokens first .. first + n of the shard to out [n, slots * H]. */
void shard_view_read(const struct shard_view *view, const struct feature_layout *layout, float *out, const int64_t first_n[2]);
/* Number of the state in slot i, the last one included. */
void layout_numbers(int32_t numbers[FEATURE_STATES_MAX + 1], const struct feature_layout *layout);

#endif
