/* pair_fixture.h - what the tests of heads and of the engine share: where data lies, temporary directories, the
 * baseline head as a directory. */
#ifndef EAGLET_TESTS_PAIR_FIXTURE_H
#define EAGLET_TESTS_PAIR_FIXTURE_H

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../shared_path.h"

#define assert_ok(expression, err)                                                                                     \
  do {                                                                                                                 \
    enum eaglet_status status_ = (expression);                                                                         \
    if (status_ != EAGLET_OK) fail_msg("%s: %s", #expression, (err)->message);                                         \
  } while (0)

/* The words of a refusal, for looking into. */
#define assert_refused(expression, expected, err, words)                                                               \
  do {                                                                                                                 \
    assert_int_equal(expression, expected);                                                                            \
    if (!strstr((err)->message, words)) fail_msg("'%s' is not in '%s'", words, (err)->message);                        \
  } while (0)

static inline void temporary_directory(char out[64]) {
  snprintf(out, 64, "/tmp/eaglet-test-XXXXXX");
  assert_non_null(mkdtemp(out));
}

static inline void remove_directory(const char *directory) {
  struct file_list list = {0};
  struct eaglet_error err;
  assert_ok(file_list_directory(&list, directory, &err), &err);
  for (size_t i = 0; i < list.n; i++) {
    char *path = file_join(directory, list.names[i]);
    remove(path);
    free(path);
  }
  file_list_clear(&list);
  remove(directory);
}

static inline void write_text(const char *directory, const char *name, const char *text) {
  struct eaglet_error err;
  char *path = file_join(directory, name);
  assert_ok(file_write(path, text, strlen(text), &err), &err);
  free(path);
}

static inline void copy_file(const char *directory, const char *name, const char *from) {
  struct eaglet_error err;
  struct file_map map;
  char *path = file_join(directory, name);
  assert_ok(file_map_open(&map, from, &err), &err);
  assert_ok(file_write(path, map.data, map.length, &err), &err);
  file_map_close(&map);
  free(path);
}

#define BASELINE_CONFIG                                                                                                \
  "\"architectures\": [\"LlamaForCausalLMEagle3\"], \"model_type\": \"llama\", \"hidden_size\": 320, "                 \
  "\"intermediate_size\": 768, "                                                                                       \
  "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 40, \"num_hidden_layers\": 1, "               \
  "\"rms_norm_eps\": 1e-6, "                                                                                           \
  "\"rope_theta\": 10000, \"vocab_size\": 4096, \"draft_vocab_size\": 2048, \"max_position_embeddings\": 2048"

/* The baseline head, whose weights were trained elsewhere, gets its config here; eagle_config: a JSON object or NULL.
 * False: data is not there. */
static inline bool baseline_directory(char out[64], const char *eagle_config) {
  char *weights = shared_path("own/oracle/baseline_draft.safetensors");
  if (!weights) return false;
  char *config = memory_format("{%s, \"eagle_config\": %s}", BASELINE_CONFIG,
                               eagle_config ? eagle_config : "{\"eagle_aux_hidden_state_layer_ids\": [1, 3, 4]}");
  temporary_directory(out);
  write_text(out, "config.json", config);
  copy_file(out, "model.safetensors", weights);
  free(config);
  free(weights);
  return true;
}

#endif
