/* variant.h - checkpoints made on the fly: a model directory read, its config and tensors changed, written elsewhere.
 */
#ifndef EAGLET_TESTS_VARIANT_H
#define EAGLET_TESTS_VARIANT_H

#include "model_fixture.h"

#include <unistd.h>

struct variant {
  struct checkpoint source;
  json_t *config; /* own deep copy: change it */
  char *directory;
  struct safetensors_writer *writer;
  void *blocks[64]; /* released with the variant */
  int n_blocks;
};

static inline void variant_open(struct variant *v, const char *source) {
  *v = (struct variant){.config = NULL};
  assert_int_equal(checkpoint_open(&v->source, source, NULL), EAGLET_OK);
  v->config = json_deep_copy(v->source.config);
  v->directory = memory_format("%s/eaglet-variant-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  assert_non_null(mkdtemp(v->directory));
  v->writer = safetensors_writer_create();
}

/* Keeps a block alive until variant_close. */
static inline void *variant_own(struct variant *v, void *block) {
  assert_true(v->n_blocks < 64);
  return v->blocks[v->n_blocks++] = block;
}

static inline void variant_add(struct variant *v, const char *name, const struct tensor_entry *t) {
  safetensors_writer_add(v->writer, name, t->dtype, t->rank, t->shape, t->data);
}

/* Adds every tensor under a new name; rename returns false to drop one. */
static inline void variant_add_all(struct variant *v, bool (*rename)(char *name, size_t size, const char *old)) {
  for (size_t i = 0; i < v->source.n_tensors; i++) {
    char name[256];
    snprintf(name, sizeof name, "%s", v->source.tensors[i]->name);
    if (!rename || rename(name, sizeof name, v->source.tensors[i]->name)) variant_add(v, name, v->source.tensors[i]);
  }
}

static inline void variant_write(struct variant *v) {
  char *config = file_join(v->directory, "config.json"), *weights = file_join(v->directory, "model.safetensors");
  struct eaglet_text text = json_dump(v->config, 2);
  assert_int_equal(file_write(config, text.data, text.length, NULL), EAGLET_OK);
  assert_int_equal(safetensors_writer_commit(v->writer, weights, NULL), EAGLET_OK);
  free(text.data);
  free(config);
  free(weights);
}

static inline void variant_close(struct variant *v) {
  char *config = file_join(v->directory, "config.json"), *weights = file_join(v->directory, "model.safetensors");
  unlink(config);
  unlink(weights);
  rmdir(v->directory);
  free(config);
  free(weights);
  free(v->directory);
  safetensors_writer_free(v->writer);
  json_decref(v->config);
  checkpoint_close(&v->source);
  for (int i = 0; i < v->n_blocks; i++) free(v->blocks[i]);
  *v = (struct variant){.config = NULL};
}

/* Object at a dotted path ("" is the root). */
static inline json_t *variant_object(struct variant *v, const char *path) {
  json_t *at = v->config;
  char copy[128], *save = NULL;
  snprintf(copy, sizeof copy, "%s", path);
  for (char *part = strtok_r(copy, ".", &save); part; part = strtok_r(NULL, ".", &save)) at = json_object_get(at, part);
  assert_true(json_is_object(at));
  return at;
}

/* Opens the written variant; expects a refusal that holds `words`. */
static inline void variant_expect_refusal(struct variant *v, const char *words) {
  struct fixture f;
  struct eaglet_error err = {0};
  variant_write(v);
  enum eaglet_status status = fixture_open(&f, v->directory, 64, &err);
  if (status != EAGLET_E_INPUT || !strstr(err.message, words))
    print_error("expected a refusal with \"%s\", found status %d: %s\n", words, (int)status, err.message);
  assert_int_equal(status, EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, words));
  fixture_close(&f);
}

#define VARIANT_TOKENS 40

/* Logits of a fixed token row, own memory. */
static inline float *fixture_logits(struct fixture *f) {
  int32_t tokens[VARIANT_TOKENS], n_vocab = f->model->arch.features.n_vocab;
  for (int32_t i = 0; i < VARIANT_TOKENS; i++) tokens[i] = (i * 7919 + 13) % n_vocab;
  fixture_batch(f, tokens, 0, VARIANT_TOKENS);
  struct forward_run run = {.batch = &f->batch, .kv = &f->kv};
  assert_int_equal(forward_run(f->forward, &run, NULL), EAGLET_OK);
  float *logits = memory_alloc((size_t)VARIANT_TOKENS * (size_t)n_vocab * sizeof(float));
  memcpy(logits, run.logits, (size_t)VARIANT_TOKENS * (size_t)n_vocab * sizeof(float));
  return logits;
}

static inline float *directory_logits(const char *directory, size_t *bytes) {
  struct fixture f;
  struct eaglet_error err = {0};
  enum eaglet_status status = fixture_open(&f, directory, 64, &err);
  if (status != EAGLET_OK) print_error("%s\n", err.message);
  assert_int_equal(status, EAGLET_OK);
  float *logits = fixture_logits(&f);
  *bytes = (size_t)VARIANT_TOKENS * (size_t)f.model->arch.features.n_vocab * sizeof(float);
  fixture_close(&f);
  return logits;
}

/* The written variant must give the source's logits, bit for bit. */
static inline void variant_expect_same(struct variant *v) {
  size_t n, m;
  variant_write(v);
  float *expected = directory_logits(v->source.path, &n), *found = directory_logits(v->directory, &m);
  assert_int_equal(n, m);
  assert_memory_equal(expected, found, n);
  free(expected);
  free(found);
}

#endif
