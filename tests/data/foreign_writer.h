/* foreign_writer.h - samples as speculators, SpecForge and Model-Optimizer store them, written by hand from states in F32. Header only; not
 * for src. */
#ifndef EAGLET_TESTS_DATA_FOREIGN_WRITER_H
#define EAGLET_TESTS_DATA_FOREIGN_WRITER_H

#include "../checkpoint/torch_writer.h"
#include "support.h"

#include "checkpoint/safetensors.h"

enum foreign_kind { FOREIGN_HEAD, FOREIGN_HEAD_FP8, FOREIGN_030, FOREIGN_0, FOREIGN_SPECFORGE, FOREIGN_SPECFORGE_GZ, FOREIGN_MODELOPT, FOREIGN_KINDS };

struct foreign_row {
  const int32_t *ids;
  const uint8_t *mask;  /* NULL: not stored, where the format can do without */
  const float *states;  /* [n, n_slots * hidden], the last state at the end */
  int32_t n, n_slots, hidden;
  enum dtype dtype;     /* BF16 or F32; FP8 of its kind */
};

/* Slot columns first .. first + n_slots of every token, converted. */
static inline void *foreign_columns(const struct foreign_row *r, int32_t first, int32_t n_slots) {
  size_t width = (size_t)r->n_slots * (size_t)r->hidden, part = (size_t)n_slots * (size_t)r->hidden, bytes = (size_t)dtype_bits(r->dtype) / 8;
  char *out = memory_alloc((size_t)r->n * part * bytes);
  for (size_t i = 0; i < (size_t)r->n; i++)
    dtype_from_f32(out + i * part * bytes, r->dtype, r->states + i * width + (size_t)first * (size_t)r->hidden, part);
  return out;
}

static inline char *foreign_name(enum foreign_kind kind, size_t index) {
  static const char *const names[] = {"hs_%zu.safetensors", "hs_%zu.safetensors", "data_%zu.pt", "data_%zu.pt", "data_%zu.ckpt", "data_%zu.ckpt.gz", "conversation-%zu.pt"};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  return memory_format(names[kind], index);
#pragma GCC diagnostic pop
}

static inline void foreign_write_head(const char *path, const struct foreign_row *r, bool fp8) {
  int64_t *ids = memory_alloc((size_t)r->n * sizeof *ids);
  size_t n_states = (size_t)r->n * (size_t)r->n_slots, hidden = (size_t)r->hidden;
  for (int32_t i = 0; i < r->n; i++) ids[i] = r->ids[i];
  void *states = fp8 ? memory_alloc(n_states * hidden) : foreign_columns(r, 0, r->n_slots);
  float *scales = memory_alloc((size_t)r->n * sizeof *scales);
  for (size_t i = 0; fp8 && i < (size_t)r->n; i++) {
    const float *from = r->states + i * (size_t)r->n_slots * hidden;
    float largest = 1e-12f;
    for (size_t k = 0; k < (size_t)r->n_slots * hidden; k++) largest = from[k] > largest ? from[k] : -from[k] > largest ? -from[k] : largest;
    scales[i] = largest / 448;
    for (size_t k = 0; k < (size_t)r->n_slots * hidden; k++)
      ((uint8_t *)states)[i * (size_t)r->n_slots * hidden + k] = dtype_f32_to_f8_e4m3(from[k] / scales[i]);
  }
  struct safetensors_writer *file = safetensors_writer_create();
  struct eaglet_error err = {0};
  safetensors_writer_add(file, "hidden_states", fp8 ? DTYPE_F8_E4M3 : r->dtype, 3, (const int64_t[]){r->n, r->n_slots, r->hidden}, states);
  if (fp8) safetensors_writer_add(file, "hidden_states_scale", DTYPE_F32, 2, (const int64_t[]){r->n, 1}, scales);
  safetensors_writer_add(file, "token_ids", DTYPE_I64, 1, (const int64_t[]){r->n}, ids);
  assert_ok(safetensors_writer_commit(file, path, &err), &err);
  safetensors_writer_free(file);
  free(states), free(ids), free(scales);
}

static inline void foreign_write_torch(const char *path, enum foreign_kind kind, const struct foreign_row *r) {
  struct torch_tensor t[24];
  int64_t *ids = memory_alloc((size_t)r->n * sizeof *ids), *mask = memory_alloc((size_t)r->n * sizeof *mask);
  void *parts[20] = {0};
  size_t n = 0;
  bool batched = kind == FOREIGN_SPECFORGE || kind == FOREIGN_SPECFORGE_GZ;
  int32_t n_inputs = r->n_slots - 1;
  for (int32_t i = 0; i < r->n; i++) ids[i] = r->ids[i], mask[i] = r->mask ? r->mask[i] : 0;
  t[n++] = batched ? (struct torch_tensor){"input_ids", DTYPE_I64, 2, {1, r->n}, ids} : (struct torch_tensor){"input_ids", DTYPE_I64, 1, {r->n}, ids};
  for (int32_t s = 0; kind == FOREIGN_030 && s < r->n_slots; s++)
    t[n++] = (struct torch_tensor){"hidden_states", r->dtype, 2, {r->n, r->hidden}, parts[s] = foreign_columns(r, s, 1)};
  if (kind != FOREIGN_030) {
    const char *names[2] = {kind == FOREIGN_0 ? "hidden_state" : batched ? "aux_hidden_state" : "aux_hidden_states",
                            kind == FOREIGN_0 ? "target" : batched ? "hidden_state" : "hidden_states"};
    parts[0] = foreign_columns(r, 0, n_inputs);
    parts[1] = foreign_columns(r, n_inputs, 1);
    for (int k = 0; k < 2; k++) {
      int64_t width = k ? r->hidden : (int64_t)n_inputs * r->hidden;
      t[n++] = batched ? (struct torch_tensor){names[k], r->dtype, 3, {1, r->n, width}, parts[k]} : (struct torch_tensor){names[k], r->dtype, 2, {r->n, width}, parts[k]};
    }
  }
  t[n++] = (struct torch_tensor){.name = "conversation_id"};
  if (r->mask) t[n++] = (struct torch_tensor){"loss_mask", DTYPE_I64, 1, {r->n}, mask};
  struct eaglet_text archive = torch_sample(t, n);
  struct eaglet_error err = {0};
  assert_ok(file_write(path, archive.data, archive.length, &err), &err);
  for (size_t i = 0; i < 20; i++) free(parts[i]);
  free(archive.data), free(ids), free(mask);
}

static inline void foreign_write(const char *directory, enum foreign_kind kind, size_t index, const struct foreign_row *r) {
  char *name = foreign_name(kind, index), *path = file_join(directory, name);
  if (kind == FOREIGN_HEAD || kind == FOREIGN_HEAD_FP8) {
    foreign_write_head(path, r, kind == FOREIGN_HEAD_FP8);
  } else if (kind == FOREIGN_SPECFORGE_GZ) {
    char *plain = memory_copy_span(path, strlen(path) - 3), *command = memory_format("gzip -f '%s'", plain);
    foreign_write_torch(plain, kind, r);
    assert_int_equal(system(command), 0);
    free(plain), free(command);
  } else {
    foreign_write_torch(path, kind, r);
  }
  free(name), free(path);
}

#endif
