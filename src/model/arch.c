/* arch.c - from wrapper to decoder; see arch.h. Finds the text model's config object and, from the tensor names alone,
 * its prefix; picks the table row; has the features read. No list of wrapper classes exists: names and shapes decide
 * (decision 2). The hard part is telling the text decoder from its neighbours: other modalities have layers and
 * embeddings too. */
#include "model/arch_features.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAX 8

/* A token embedding with decoder layers beside it. */
struct candidate {
  const struct tensor_entry *embed;
  char prefix[128], layers_prefix[128];
  int32_t n_layers;
};

struct candidates {
  struct candidate items[CANDIDATES_MAX];
  int n;
  const char *lonely; /* an embedding without layers, for the message */
};

bool arch_name_is_other_modality(const char *name) {
  static const char *const marks[] = {"vision", "visual", "image",    "video",     "audio",
                                      "speech", "talker", "code2wav", "token2wav", "mtp",
                                      "vpm.",   "apm.",   "siglip"};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    if (strstr(name, marks[i])) return true;
  }
  return false;
}

/* Is there a tensor whose name starts so? Names are sorted. */
static bool has_prefix(const struct checkpoint *checkpoint, const char *prefix) {
  size_t low = 0, high = checkpoint->n_tensors, length = strlen(prefix);
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(checkpoint->tensors[middle]->name, prefix) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low < checkpoint->n_tensors && strncmp(checkpoint->tensors[low]->name, prefix, length) == 0;
}

static int32_t count_layers(const struct checkpoint *checkpoint, const char *layers_prefix) {
  char name[256];
  for (int32_t n = 0;; n++) {
    snprintf(name, sizeof name, "%s%d.", layers_prefix, n);
    if (!has_prefix(checkpoint, name)) return n;
  }
}

static bool ends_with(const char *text, const char *suffix) {
  size_t n = strlen(text), m = strlen(suffix);
  return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* to = the first n bytes of from, then tail. */
static void join(char to[128], const char *from, size_t n, const char *tail) {
  size_t m = strlen(tail);
  ASSERT(n + m < 128);
  memcpy(to, from, n);
  memcpy(to + n, tail, m + 1);
}

/* Fills a candidate from an embedding's name. Layers stand at prefix + "layers."; some converted checkpoints drop the
 * inner "model.". */
static bool candidate_init(struct candidate *c, const struct checkpoint *checkpoint,
                           const struct tensor_entry *tensor) {
  static const char *const suffixes[] = {"embed_tokens.weight", "tok_embeddings.weight", "word_embeddings.weight",
                                         "wte.weight"};
  /* "blocks." is what the reference library writes when it re-saves Kimi-K2.5. */
  static const char *const lists[] = {"layers.", "h.", "blocks."};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    if (!ends_with(tensor->name, suffixes[i])) continue;
    size_t length = strlen(tensor->name) - strlen(suffixes[i]);
    if (length >= sizeof c->prefix - 8 || (length > 0 && tensor->name[length - 1] != '.')) return false;
    *c = (struct candidate){.embed = tensor};
    join(c->prefix, tensor->name, length, "");
    for (size_t k = 0; k < sizeof lists / sizeof *lists && c->n_layers == 0; k++) {
      join(c->layers_prefix, tensor->name, length, lists[k]);
      c->n_layers = count_layers(checkpoint, c->layers_prefix);
    }
    if (c->n_layers == 0) join(c->layers_prefix, tensor->name, length, "layers.");
    if (c->n_layers == 0 && ends_with(c->prefix, "model.")) {
      join(c->layers_prefix, tensor->name, length - strlen("model."), "layers.");
      c->n_layers = count_layers(checkpoint, c->layers_prefix);
    }
    return true;
  }
  return false;
}

static void find_candidates(struct candidates *found, const struct checkpoint *checkpoint) {
  *found = (struct candidates){.n = 0};
  for (size_t i = 0; i < checkpoint->n_tensors && found->n < CANDIDATES_MAX; i++) {
    const struct tensor_entry *tensor = checkpoint->tensors[i];
    if (tensor->rank != 2 || tensor->shape[0] > INT32_MAX || tensor->shape[1] > INT32_MAX) continue;
    if (arch_name_is_other_modality(tensor->name) || strstr(tensor->name, "layers.")) continue;
    struct candidate *c = &found->items[found->n];
    if (!candidate_init(c, checkpoint, tensor)) continue;
    if (c->n_layers > 0)
      found->n++;
    else
      found->lonely = tensor->name;
  }
}

/* Any place where layers stand, for the message about a prefix that is mixed. */
static const char *some_layer(const struct checkpoint *checkpoint) {
  for (size_t i = 0; i < checkpoint->n_tensors; i++) {
    const char *name = checkpoint->tensors[i]->name;
    if (strstr(name, "layers.0.") && !arch_name_is_other_modality(name)) return name;
  }
  return NULL;
}

static enum eaglet_status choose_candidate(struct candidate *chosen, const struct checkpoint *checkpoint,
                                           int32_t n_layers, struct eaglet_error *err) {
  struct candidates found;
  int best = -1;
  find_candidates(&found, checkpoint);
  if (found.n == 0 && found.lonely) {
    const char *layer = some_layer(checkpoint);
    FAIL(err, EAGLET_E_INPUT, "%s: %s has no decoder layers beside it%s%s: the text decoder's prefix is mixed",
         checkpoint->path, found.lonely, layer ? ", but there is " : "", layer ? layer : "");
  }
  if (found.n == 0) {
    FAIL(err, EAGLET_E_INPUT,
         "%s: no token embedding (embed_tokens, tok_embeddings, word_embeddings or wte) with layers.0 beside it among "
         "%zu tensors",
         checkpoint->path, checkpoint->n_tensors);
  }
  for (int i = 0; i < found.n; i++) {
    bool fits = n_layers <= 0 || found.items[i].n_layers >= n_layers;
    if (found.n > 1 && !fits) continue;
    if (best >= 0) {
      FAIL(err, EAGLET_E_INPUT, "%s: two text decoders: %s (%d layers) and %s (%d layers)", checkpoint->path,
           found.items[best].embed->name, found.items[best].n_layers, found.items[i].embed->name,
           found.items[i].n_layers);
    }
    best = i;
  }
  if (best < 0) {
    FAIL(err, EAGLET_E_INPUT, "%s: the decoder's layers are split between prefixes: %s has %d and %s has %d of %d",
         checkpoint->path, found.items[0].layers_prefix, found.items[0].n_layers, found.items[1].layers_prefix,
         found.items[1].n_layers, n_layers);
  }
  *chosen = found.items[best];
  return EAGLET_OK;
}

/* Length of the part before "lm_head" (or another name of the head) in a tensor "...lm_head<tail>"; -1: it is none. */
static int head_prefix_length(const char *name, const char *tail) {
  static const char *const stems[] = {"lm_head", "output", "embed_out"};
  char suffix[32];
  for (size_t k = 0; k < sizeof stems / sizeof *stems; k++) {
    snprintf(suffix, sizeof suffix, "%s%s", stems[k], tail);
    if (ends_with(name, suffix)) return (int)(strlen(name) - strlen(suffix));
  }
  return -1;
}

/* The head's tensor with one of the tails whose own prefix leads to the decoder and is the longest. "" when there is none. */
static void find_head_part(char found[160], const struct wrapper_chain *chain, const struct checkpoint *checkpoint,
                           const char *const *tails, int n_tails) {
  int longest = -1;
  found[0] = 0;
  for (size_t i = 0; i < checkpoint->n_tensors; i++) {
    const char *name = checkpoint->tensors[i]->name;
    if (arch_name_is_other_modality(name) || strlen(name) >= 150) continue;
    for (int k = 0; k < n_tails; k++) {
      int length = head_prefix_length(name, tails[k]);
      if (length <= longest || strncmp(name, chain->prefix, (size_t)length) != 0 || (length > 0 && name[length - 1] != '.'))
        continue;
      snprintf(found, 160, "%.*s", (int)(strlen(name) - strlen(tails[k])), name);
      longest = length;
    }
  }
}

static void find_head(struct wrapper_chain *chain, const struct checkpoint *checkpoint) {
  static const char *const weights[] = {".weight", ".weight_packed", ".qweight"}, *const biases[] = {".bias"};
  find_head_part(chain->head_name, chain, checkpoint, weights, 3);
  if (chain->head_name[0]) memcpy(chain->head_name + strlen(chain->head_name), ".weight", sizeof ".weight");
  find_head_part(chain->head_bias_name, chain, checkpoint, biases, 1);
  if (chain->head_bias_name[0]) memcpy(chain->head_bias_name + strlen(chain->head_bias_name), ".bias", sizeof ".bias");
}

/* The text model's object and the objects around it. */
static void find_config(struct arch *arch, const struct checkpoint *checkpoint, struct field_reader *reader) {
  static const char *const nests[][2] = {{"text_config", NULL},     {"llm_config", NULL},
                                         {"language_config", NULL}, {"thinker_config", "text_config"},
                                         {"thinker_config", NULL},  {"text_model_config", NULL}};
  static const char *const paths[] = {"text_config.",     "llm_config.",
                                      "language_config.", "thinker_config.text_config.",
                                      "thinker_config.",  "text_model_config."};
  reader->n_levels = 0;
  for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
    const json_t *first = json_object_get(checkpoint->config, nests[i][0]);
    const json_t *inner = nests[i][1] ? json_object_get(first, nests[i][1]) : first;
    if (!json_is_object(inner)) continue;
    reader->levels[reader->n_levels] = inner;
    reader->paths[reader->n_levels++] = paths[i];
    if (nests[i][1]) {
      reader->levels[reader->n_levels] = first;
      reader->paths[reader->n_levels++] = "thinker_config.";
    }
    break;
  }
  reader->levels[reader->n_levels] = checkpoint->config;
  reader->paths[reader->n_levels++] = "";
  arch->config = reader->levels[0];
  for (int i = 1; i < reader->n_levels; i++) arch->outer[i - 1] = reader->levels[i];
  snprintf(arch->chain.config_path, sizeof arch->chain.config_path, "%.*s",
           (int)(strlen(reader->paths[0]) ? strlen(reader->paths[0]) - 1 : 0), reader->paths[0]);
}

static const char *first_string(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (json_is_array(value)) value = json_array_get(value, 0);
  return json_is_string(value) ? json_string_value(value) : NULL;
}

/* Row by the inner model_type, else by the inner class name, else by the tensors. */
static enum eaglet_status choose_row(struct arch *arch, const struct checkpoint *checkpoint, struct tensor_facts *facts,
                                     char how[200], struct eaglet_error *err) {
  const char *type = first_string(arch->config, "model_type"), *class = first_string(arch->config, "architectures");
  arch->row = arch_row_find(type, class);
  snprintf(how, 200, "%s \"%s\"", type ? "model_type" : "architectures", type ? type : class ? class : "");
  if (!arch->row) {
    char why[160];
    arch->row = arch_row_fingerprint(checkpoint, arch->chain.layers_prefix, why, sizeof why);
    if (!arch->row)
      FAIL(err, EAGLET_E_INPUT, "%s: model_type \"%s\" is unknown and %s", checkpoint->path, type ? type : "", why);
    facts->fingerprinted = true;
    snprintf(how, 200, "%s", why);
    arch_warn(arch, "%s: model_type \"%s\" is unknown; %s", checkpoint->path, type ? type : "", why);
  }
  if (arch->row->refusal)
    FAIL(err, EAGLET_E_INPUT, "%s: model_type \"%s\" is not supported: %s", checkpoint->path, type ? type : class,
         arch->row->refusal);
  snprintf(arch->features.row, sizeof arch->features.row, "%.*s", (int)strcspn(arch->row->model_types, "|"),
           arch->row->model_types);
  return EAGLET_OK;
}

/* Presence of the tensor decides; flags at any level can only contradict it. */
static void check_tie(struct field_reader *reader, const struct checkpoint *checkpoint) {
  const struct wrapper_chain *chain = &reader->arch->chain;
  bool any_true = false, any_false = false;
  for (int i = 0; i < reader->n_levels; i++) {
    const json_t *flag = json_object_get(reader->levels[i], "tie_word_embeddings");
    any_true = any_true || json_is_true(flag);
    any_false = any_false || json_is_false(flag);
  }
  const struct tensor_entry *head = chain->head_name[0] ? checkpoint_peek(checkpoint, chain->head_name) : NULL,
                            *embed = checkpoint_peek(checkpoint, chain->embed_name);
  if (!chain->head_name[0] && any_false && !any_true) {
    field_fail(reader, "tie_word_embeddings is false, but there is no lm_head.weight on the way to %s",
               chain->embed_name);
  } else if (head && any_true && !any_false &&
             (head->n_bytes != embed->n_bytes || memcmp(head->data, embed->data, head->n_bytes) != 0)) {
    arch_warn(reader->arch,
              "%s: tie_word_embeddings is true, but %s exists and differs from the embedding; the stored head is used",
              reader->what, chain->head_name);
  }
  field_note(reader, "tie_word_embeddings", json_boolean(!chain->head_name[0]),
             chain->head_name[0] ? chain->head_name : "no head tensor: the embedding is the head");
}

static enum eaglet_status resolve_chain(struct arch *arch, const struct checkpoint *checkpoint,
                                        struct field_reader *reader, struct tensor_facts *facts) {
  struct wrapper_chain *chain = &arch->chain;
  struct candidate chosen = {.embed = NULL};
  char how[200];
  struct field_place layers = field_find(reader, "num_hidden_layers|n_layer");
  int32_t n_layers = json_is_integer(layers.value) && json_integer_value(layers.value) <= INT32_MAX
                         ? (int32_t)json_integer_value(layers.value)
                         : 0;
  TRY(choose_candidate(&chosen, checkpoint, n_layers, reader->err));
  memcpy(chain->prefix, chosen.prefix, sizeof chain->prefix);
  memcpy(chain->layers_prefix, chosen.layers_prefix, sizeof chain->layers_prefix);
  snprintf(chain->embed_name, sizeof chain->embed_name, "%s", chosen.embed->name);
  facts->n_layers = chosen.n_layers;
  find_head(chain, checkpoint);
  TRY(choose_row(arch, checkpoint, facts, how, reader->err));
  const char *class = first_string(checkpoint->config, "architectures");
  snprintf(
      chain->why, sizeof chain->why, "%.60s: %s; %.160s stands before %d layers (config: %d); %.190s; head: %.120s",
      class ? class : "no class named", chain->config_path[0] ? chain->config_path : "flat config", chain->embed_name,
      chosen.n_layers, n_layers, how, chain->head_name[0] ? chain->head_name : "tied to the embedding");
  return EAGLET_OK;
}

enum eaglet_status arch_resolve(struct arch *arch, const struct checkpoint *checkpoint, struct eaglet_error *err) {
  struct eaglet_error ignored;
  struct field_reader reader = {.arch = arch, .what = NULL, .status = EAGLET_OK, .err = err ? err : &ignored};
  struct tensor_facts facts = {.checkpoint = checkpoint};
  *arch = (struct arch){.provenance = json_object(), .warnings = json_array()};
  reader.asked = json_object();
  char *what = memory_format("%s/config.json", checkpoint->path);
  reader.what = what;
  find_config(arch, checkpoint, &reader);
  reader.status = resolve_chain(arch, checkpoint, &reader, &facts);
  if (reader.status == EAGLET_OK) check_tie(&reader, checkpoint);
  if (reader.status == EAGLET_OK) arch_read_features(&reader, &facts);
  json_decref(reader.asked);
  free(what);
  if (reader.status != EAGLET_OK) arch_clear(arch);
  return reader.status;
}

void arch_clear(struct arch *arch) {
  json_decref(arch->provenance);
  json_decref(arch->warnings);
  free(arch->features.layers);
  *arch = (struct arch){0};
}

int32_t arch_stop_ids(int32_t ids[ARCH_STOPS_MAX], const struct arch *arch, const struct checkpoint *checkpoint) {
  const json_t *places[] = {checkpoint->generation_config, arch->config, arch->outer[0], arch->outer[1]};
  int32_t n = 0;
  for (size_t p = 0; p < sizeof places / sizeof *places; p++) json_add_eos_ids(ids, &n, ARCH_STOPS_MAX, places[p], arch->features.n_vocab);
  return n;
}
