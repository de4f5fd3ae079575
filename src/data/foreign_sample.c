/* foreign_sample.c - see foreign_sample.h. Owns the table of formats; a format is names of tensors. Does not judge numbers and does not
 * know layers. */
#include "data/foreign_sample.h"

#include "checkpoint/torch_file.h"

#include <stdio.h>
#include <string.h>

/* aux: the head's input states side by side [T, k * H] with the last state in a tensor of its own; or, when last is NULL, all states in
 * one: a list of tensors [T, H] ("hidden_states.0" ...) or one tensor [T, k + 1, H]. */
static const struct format {
  const char *name, *ids, *aux, *last;
} formats[] = {{"specforge", "input_ids", "aux_hidden_state", "hidden_state"},
               {"modelopt", "input_ids", "aux_hidden_states", "hidden_states"},
               {"speculators 0", "input_ids", "hidden_state", "target"},
               {"speculators 0.3", "input_ids", "hidden_states.0", NULL},
               {"speculators", "token_ids", "hidden_states", NULL}};

/* A tensor as a matrix of n rows; axes of length 1 at either end mean nothing. */
struct matrix {
  const struct tensor_entry *tensor;
  int64_t n, middle, width; /* [n, middle, width]; middle 1 for matrices */
};

static enum eaglet_status as_matrix(struct matrix *m, const struct tensor_entry *t, int rank, struct eaglet_error *err) {
  int first = 0;
  while (t->rank - first > rank && t->shape[first] == 1) first++;
  int n = t->rank - first;
  if (n != rank) FAIL(err, EAGLET_E_INPUT, "%s: %s: expected %d axes, found %d", t->path, t->name, rank, t->rank);
  *m = (struct matrix){.tensor = t, .n = t->shape[first], .middle = rank > 2 ? t->shape[first + 1] : 1, .width = t->shape[t->rank - 1]};
  return EAGLET_OK;
}

static enum eaglet_status check_float(const struct foreign_sample *s, const struct tensor_entry *t, struct eaglet_error *err) {
  bool known = t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16 || t->dtype == DTYPE_F32 || t->dtype == DTYPE_F8_E4M3;
  if (!known) FAIL(err, EAGLET_E_INPUT, "%s: %s: expected BF16, F16, F32 or F8_E4M3, found %s", t->path, t->name, dtype_name(t->dtype));
  if (s->dtype != DTYPE_NONE && s->dtype != t->dtype)
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected %s as the other states, found %s", t->path, t->name, dtype_name(s->dtype), dtype_name(t->dtype));
  return EAGLET_OK;
}

/* n slots of the sample's hidden width that stand side by side in each row of m. */
static enum eaglet_status add_slots(struct foreign_sample *s, const struct matrix *m, int64_t n, struct eaglet_error *err) {
  const struct tensor_entry *t = m->tensor;
  size_t element = (size_t)dtype_bits(t->dtype) / 8;
  TRY(check_float(s, t, err));
  if (m->n != s->n_tokens)
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected states of %d tokens, found %lld", t->path, t->name, s->n_tokens, (long long)m->n);
  if (s->n_slots + n > FEATURE_STATES_MAX + 1)
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected at most %d states, found more", t->path, t->name, FEATURE_STATES_MAX + 1);
  s->dtype = t->dtype;
  for (int64_t i = 0; i < n; i++) {
    s->slots[s->n_slots++] = (struct foreign_slot){.data = t->data + (size_t)i * (size_t)s->hidden * element,
                                                   .stride = (size_t)(m->middle * m->width) * element};
  }
  return EAGLET_OK;
}

static enum eaglet_status set_hidden(struct foreign_sample *s, const struct tensor_entry *t, int64_t hidden, struct eaglet_error *err) {
  if (hidden < 1 || hidden > 10000000) FAIL(err, EAGLET_E_INPUT, "%s: %s: found states of width %lld", t->path, t->name, (long long)hidden);
  s->hidden = (int32_t)hidden;
  return EAGLET_OK;
}

/* ---- the three ways to lay out states ---- */

static enum eaglet_status bind_pair(struct foreign_sample *s, const struct tensor_entry *aux, const struct tensor_entry *last, struct eaglet_error *err) {
  struct matrix side = {0}, end = {0};
  TRY(as_matrix(&side, aux, 2, err));
  TRY(as_matrix(&end, last, 2, err));
  TRY(set_hidden(s, last, end.width, err));
  if (side.width < end.width || side.width % end.width != 0)
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected a multiple of %lld, the width of %s, found %lld", aux->path, aux->name, (long long)end.width, last->name,
         (long long)side.width);
  TRY(add_slots(s, &side, side.width / end.width, err));
  return add_slots(s, &end, 1, err);
}

static enum eaglet_status bind_list(struct foreign_sample *s, struct eaglet_error *err) {
  for (int i = 0; i <= FEATURE_STATES_MAX + 1; i++) {
    char name[40];
    struct matrix m = {0};
    snprintf(name, sizeof name, "hidden_states.%d", i);
    const struct tensor_entry *t = safetensors_find(&s->file, name);
    if (!t) break;
    TRY(as_matrix(&m, t, 2, err));
    if (i == 0) TRY(set_hidden(s, t, m.width, err));
    if (m.width != s->hidden) FAIL(err, EAGLET_E_INPUT, "%s: %s: expected width %d, found %lld", t->path, name, s->hidden, (long long)m.width);
    TRY(add_slots(s, &m, 1, err));
  }
  return EAGLET_OK;
}

/* FP8: one scale per token, or per token and state. */
static enum eaglet_status bind_scales(struct foreign_sample *s, struct eaglet_error *err) {
  const struct tensor_entry *found = NULL;
  for (size_t i = 0; i < s->file.n; i++) {
    if (strstr(s->file.tensors[i].name, "scale")) found = &s->file.tensors[i];
  }
  if (s->dtype != DTYPE_F8_E4M3) return EAGLET_OK;
  if (!found) FAIL(err, EAGLET_E_INPUT, "%s: hidden_states: FP8 without scales: expected a tensor named after its scale", s->file.path);
  TRY(tensor_expect_float(found, err));
  int64_t n = 1;
  for (int i = 0; i < found->rank; i++) {
    if (__builtin_mul_overflow(n, found->shape[i], &n)) n = -1;
  }
  bool each = n == (int64_t)s->n_tokens * s->n_slots;
  if (found->rank < 1 || found->shape[0] != s->n_tokens || (n != s->n_tokens && !each))
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected a scale for each of %d tokens, or for each of their %d states, found another shape", s->file.path,
         found->name, s->n_tokens, s->n_slots);
  size_t element = (size_t)dtype_bits(found->dtype) / 8;
  s->scale_dtype = found->dtype;
  for (int i = 0; i < s->n_slots; i++) {
    s->slots[i].scale = found->data + (each ? (size_t)i * element : 0);
    s->slots[i].scale_stride = element * (each ? (size_t)s->n_slots : 1);
  }
  return EAGLET_OK;
}

static enum eaglet_status bind_block(struct foreign_sample *s, const struct tensor_entry *t, struct eaglet_error *err) {
  struct matrix m = {0};
  TRY(as_matrix(&m, t, 3, err));
  TRY(set_hidden(s, t, m.width, err));
  return add_slots(s, &m, m.middle, err);
}

/* ---- the sample ---- */

static enum eaglet_status check_vector(const struct foreign_sample *s, const struct tensor_entry *t, struct eaglet_error *err) {
  bool integer = t->dtype == DTYPE_I64 || t->dtype == DTYPE_I32 || t->dtype == DTYPE_U8 || t->dtype == DTYPE_I8 || t->dtype == DTYPE_BOOL;
  int64_t n = t->rank > 0 ? t->shape[t->rank - 1] : 0;
  for (int i = 0; i + 1 < t->rank; i++) integer = integer && t->shape[i] == 1;
  if (!integer || n < 1 || n > INT32_MAX || (s->n_tokens > 0 && n != s->n_tokens))
    FAIL(err, EAGLET_E_INPUT, "%s: %s: expected a vector of integers, one for each token, found %s of %d axes and %lld", t->path, t->name,
         dtype_name(t->dtype), t->rank, (long long)n);
  return EAGLET_OK;
}

static enum eaglet_status bind_ids(struct foreign_sample *s, const struct format *format, struct eaglet_error *err) {
  s->ids = safetensors_find(&s->file, format->ids);
  if (!s->ids) FAIL(err, EAGLET_E_INPUT, "%s: %s: not there, but %s is", s->file.path, format->ids, format->aux);
  TRY(check_vector(s, s->ids, err));
  s->n_tokens = (int32_t)s->ids->shape[s->ids->rank - 1];
  s->mask = safetensors_find(&s->file, "loss_mask");
  return s->mask ? check_vector(s, s->mask, err) : EAGLET_OK;
}

static enum eaglet_status bind(struct foreign_sample *s, struct eaglet_error *err) {
  const struct safetensors *file = &s->file;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    const struct format *f = &formats[i];
    const struct tensor_entry *aux = safetensors_find(file, f->aux), *last = f->last ? safetensors_find(file, f->last) : NULL;
    if (!aux || (f->last && !last)) continue;
    s->format = f->name;
    TRY(bind_ids(s, f, err));
    if (f->last) TRY(bind_pair(s, aux, last, err));
    else if (strchr(f->aux, '.')) TRY(bind_list(s, err));
    else TRY(bind_block(s, aux, err));
    if (s->n_slots < 2) FAIL(err, EAGLET_E_INPUT, "%s: %s: expected states for the head and a last one, found one", file->path, f->aux);
    return bind_scales(s, err);
  }
  FAIL(err, EAGLET_E_INPUT, "%s: expected hidden states and token ids under names of speculators, SpecForge or Model-Optimizer, found others (first: %s)",
       file->path, file->n ? file->tensors[0].name : "nothing");
}

enum eaglet_status foreign_sample_open(struct foreign_sample *s, const char *path, struct eaglet_error *err) {
  size_t n = strlen(path), n_tail = strlen(".safetensors");
  bool plain = n > n_tail && strcmp(path + n - n_tail, ".safetensors") == 0;
  *s = (struct foreign_sample){0};
  TRY(plain ? safetensors_open(&s->file, path, err) : torch_file_open_nested(&s->file, path, err));
  enum eaglet_status status = bind(s, err);
  if (status != EAGLET_OK) foreign_sample_close(s);
  return status;
}

static int64_t integer_at(const struct tensor_entry *t, size_t i) {
  int64_t wide;
  int32_t narrow;
  if (t->dtype == DTYPE_I64) {
    memcpy(&wide, t->data + 8 * i, sizeof wide);
    return wide;
  }
  if (t->dtype == DTYPE_I32) {
    memcpy(&narrow, t->data + 4 * i, sizeof narrow);
    return narrow;
  }
  return t->dtype == DTYPE_I8 ? (int8_t)t->data[i] : t->data[i];
}

enum eaglet_status foreign_sample_ids(const struct foreign_sample *s, int32_t *ids, struct eaglet_error *err) {
  for (size_t i = 0; i < (size_t)s->n_tokens; i++) {
    int64_t id = integer_at(s->ids, i);
    if (id < 0 || id > INT32_MAX) FAIL(err, EAGLET_E_INPUT, "%s: %s[%zu]: found id %lld", s->file.path, s->ids->name, i, (long long)id);
    ids[i] = (int32_t)id;
  }
  return EAGLET_OK;
}

enum eaglet_status foreign_sample_mask(const struct foreign_sample *s, uint8_t *mask, struct eaglet_error *err) {
  if (!s->mask) FAIL(err, EAGLET_E_INPUT, "%s: loss_mask: not there: prepare the conversations and pass that directory as --data", s->file.path);
  for (size_t i = 0; i < (size_t)s->n_tokens; i++) {
    int64_t mark = integer_at(s->mask, i);
    if (mark != 0 && mark != 1) FAIL(err, EAGLET_E_INPUT, "%s: loss_mask[%zu]: expected 0 or 1, found %lld", s->file.path, i, (long long)mark);
    mask[i] = (uint8_t)mark;
  }
  return EAGLET_OK;
}

void foreign_sample_states(const struct foreign_sample *s, float *states) {
  float scale = 1;
  for (size_t i = 0; i < (size_t)s->n_tokens; i++) {
    for (int k = 0; k < s->n_slots; k++, states += s->hidden) {
      const struct foreign_slot *slot = &s->slots[k];
      if (slot->scale) dtype_to_f32(&scale, slot->scale + i * slot->scale_stride, s->scale_dtype, 1);
      feature_decode(states, slot->data + i * slot->stride, &scale, s->dtype, (size_t)s->hidden);
    }
  }
}

void sample_hash_text(char text[HASH_TEXT_BYTES], const void *states, size_t n_states, const void *ids, size_t n_ids) {
  hash_text(text, file_hash(ids, n_ids, file_hash(states, n_states, 0)));
}

void foreign_sample_close(struct foreign_sample *s) {
  safetensors_close(&s->file);
  *s = (struct foreign_sample){0};
}
