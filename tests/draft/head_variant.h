/* head_variant.h - the baseline head with one thing changed, as a directory; and nano-kimi as the target of a test
 * group. */
#ifndef EAGLET_TESTS_HEAD_VARIANT_H
#define EAGLET_TESTS_HEAD_VARIANT_H

#include "pair_fixture.h"

#include "draft/head.h"

struct head_variant {
  const char *field, *value; /* of config.json: a JSON value, "null" removes */
  const char *states;        /* JSON list for eagle_aux_hidden_state_layer_ids; NULL: [1, 3, 4] */
  const char *drop;          /* tensor names, |-separated */
  const char *rename, *to;   /* start of names, replaced */
  const char *flatten;       /* tensor of the same bytes as one axis ... */
  enum dtype dtype;          /* ... and of this type, when given */
  const char *zero;          /* tensor filled with zeros */
  const char *spoil;         /* tensor filled with what is no number in any type */
};

static inline bool variant_drops(const struct head_variant *v, const char *name) {
  size_t length = strlen(name);
  for (const char *at = v->drop ? strstr(v->drop, name) : NULL; at; at = strstr(at + 1, name)) {
    bool begins = at == v->drop || at[-1] == '|', ends = at[length] == 0 || at[length] == '|';
    if (begins && ends) return true;
  }
  return false;
}

static inline void variant_weights(const char *path, const struct head_variant *v, const struct safetensors *from) {
  struct safetensors_writer *writer = safetensors_writer_create();
  struct eaglet_error err;
  void *zeros = memory_alloc(1 << 21), *ones = memory_alloc(1 << 21);
  memset(ones, 0xff, 1 << 21);
  for (size_t i = 0; i < from->n; i++) {
    const struct tensor_entry *t = &from->tensors[i];
    char name[256];
    int64_t flat = t->shape[0] * (t->rank > 1 ? t->shape[1] : 1);
    bool flatten = v->flatten && strcmp(t->name, v->flatten) == 0,
         renamed = v->rename && strncmp(t->name, v->rename, strlen(v->rename)) == 0;
    if (variant_drops(v, t->name)) continue;
    snprintf(name, sizeof name, "%s%s", renamed ? v->to : "", renamed ? t->name + strlen(v->rename) : t->name);
    assert_true(t->n_bytes <= 1 << 21 || !(v->zero || v->spoil));
    const void *data = v->zero && strcmp(t->name, v->zero) == 0 ? zeros : v->spoil && strcmp(t->name, v->spoil) == 0 ? ones : t->data;
    safetensors_writer_add(writer, name, flatten && v->dtype ? v->dtype : t->dtype, flatten ? 1 : t->rank,
                           flatten ? &flat : t->shape, data);
  }
  assert_ok(safetensors_writer_commit(writer, path, &err), &err);
  safetensors_writer_free(writer);
  free(zeros);
  free(ones);
}

/* Needs the baseline file: tests of this group are skipped without it (target_setup). */
static inline void variant_write(char directory[64], const struct head_variant *v) {
  struct eaglet_error err;
  struct safetensors from;
  json_t *config, *value = NULL;
  char *text = memory_format("{%s, \"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": %s}}", BASELINE_CONFIG,
                             v->states ? v->states : "[1, 3, 4]");
  char *weights = shared_path("own/oracle/baseline_draft.safetensors");
  assert_ok(json_parse(&config, text, strlen(text), "config", &err), &err);
  if (v->field && strcmp(v->value, "null") == 0)
    json_object_del(config, v->field);
  else if (v->field) {
    value = json_loads(v->value, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    json_object_set_new(config, v->field, value);
  }
  struct eaglet_text dump = json_dump(config, 2);
  temporary_directory(directory);
  write_text(directory, "config.json", dump.data);
  assert_ok(safetensors_open(&from, weights, &err), &err);
  char *path = file_join(directory, "model.safetensors");
  variant_weights(path, v, &from);
  safetensors_close(&from);
  json_decref(config);
  free(dump.data);
  free(path);
  free(weights);
  free(text);
}

static inline int target_setup(void **state) {
  char *path = shared_path("own/nano-kimi"), *weights = shared_path("own/oracle/baseline_draft.safetensors");
  struct eaglet_error err;
  struct compute *compute;
  struct model *model = NULL;
  if (path && weights) {
    assert_ok(compute_open_cpu(&compute, 1, EAGLET_PRECISION_EXACT, &err), &err);
    assert_ok(model_open(&model, &(const struct model_params){.path = path, .compute = compute}, &err), &err);
  }
  free(path);
  free(weights);
  *state = model;
  return 0;
}

static inline int target_teardown(void **state) {
  struct model *model = *state;
  struct compute *compute = model ? model->compute : NULL;
  model_close(model);
  compute_close(compute);
  return 0;
}

#endif
