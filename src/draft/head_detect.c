/* head_detect.c - is a directory a draft head or a model of its own? By what only a head has: in its config a draft vocabulary, captured
 * states or the block of a wrapped head; in its weights the layer that fuses states. */
#include "draft/head.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static bool config_says_so(const char *directory) {
  static const char *const keys[] = {"draft_vocab_size", "eagle_config", "eagle_aux_hidden_state_layer_ids", "speculators_config",
                                     "speculators_model_type", "transformer_layer_config"};
  struct eaglet_error err;
  json_t *config = NULL;
  char *path = file_join(directory, "config.json");
  bool found = false;
  if (json_parse_file(&config, path, &err) == EAGLET_OK) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) found |= json_object_get(config, keys[i]) != NULL;
  }
  json_decref(config);
  free(path);
  return found;
}

static bool weights_say_so(const char *directory) {
  struct eaglet_error err;
  struct safetensors file = {0};
  char *path = file_join(directory, "model.safetensors");
  bool found = false;
  if (safetensors_open(&file, path, &err) == EAGLET_OK) {
    for (size_t i = 0; i < file.n; i++) {
      const char *name = file.tensors[i].name;
      found |= strcmp(name, "fc.weight") == 0 || strcmp(name, "model.fc.weight") == 0;
    }
    safetensors_close(&file);
  }
  free(path);
  return found;
}

bool head_is_here(const char *directory) {
  return config_says_so(directory) || weights_say_so(directory);
}
