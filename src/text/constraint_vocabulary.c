/* constraint_vocabulary.c - builds the trie: ids sorted by their bytes, then one node for each byte that the previous id does not
 * share. Does not look at grammars.
 */
#include "text/constraint_trie_internal.h"

#include "base/memory.h"
#include "text/tokenizer_kind.h"
#include <stdlib.h>
#include <string.h>

size_t constraint_vocabulary_words(const struct constraint_vocabulary *vocabulary) { return ((size_t)vocabulary->n_vocab + 31) / 32; }

struct sort_key {
  const char *bytes;
  uint32_t length;
  int32_t id;
};

static int compare_keys(const void *a, const void *b) {
  const struct sort_key *x = a, *y = b;
  uint32_t n = x->length < y->length ? x->length : y->length;
  int order = memcmp(x->bytes, y->bytes, n);
  if (order) return order;
  if (x->length != y->length) return x->length < y->length ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

static void append_node(struct constraint_vocabulary *v, uint8_t byte, size_t depth) {
  MEMORY_GROW(v->nodes, v->nodes_capacity, v->n_nodes + 1);
  v->nodes[v->n_nodes++] = (struct vocabulary_node){.token = (int32_t)(constraint_vocabulary_words(v) * 32), .depth = (uint16_t)depth, .byte = byte};
}

/* A node's subtree ends where the next node of its depth or less begins. */
static void set_skips(struct constraint_vocabulary *v) {
  size_t *open = memory_alloc((v->depth_max + 1) * sizeof *open), n = 0;
  for (size_t i = 0; i < v->n_nodes; i++) {
    while (n >= v->nodes[i].depth) v->nodes[open[--n]].skip = (uint32_t)i;
    open[n++] = i;
  }
  while (n) v->nodes[open[--n]].skip = (uint32_t)v->n_nodes;
  free(open);
}

static void build_trie(struct constraint_vocabulary *v) {
  size_t n = 0;
  struct sort_key *keys = memory_alloc((size_t)v->n_vocab * sizeof *keys), *before = NULL;
  for (int32_t id = 0; id < v->n_vocab; id++)
    if (v->at[id + 1] > v->at[id]) keys[n++] = (struct sort_key){v->blob + v->at[id], v->at[id + 1] - v->at[id], id};
  qsort(keys, n, sizeof *keys, compare_keys);
  for (size_t i = 0; i < n; i++) {
    struct sort_key *key = &keys[i];
    size_t shared = 0;
    if (before)
      while (shared < before->length && shared < key->length && before->bytes[shared] == key->bytes[shared]) shared++;
    if (before && shared == key->length && before->length == key->length) {
      v->next_twin[before->id] = key->id;
      v->nodes[v->n_nodes - 1].twins = true;
    } else {
      for (size_t d = shared; d < key->length; d++) append_node(v, (uint8_t)key->bytes[d], d + 1);
      v->nodes[v->n_nodes - 1].token = key->id;
    }
    if (key->length > v->depth_max) v->depth_max = key->length;
    if (key->length == 1) v->spells[(uint8_t)key->bytes[0]] = true;
    before = key;
  }
  set_skips(v);
  free(keys);
}

static int compare_ids(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return x < y ? -1 : x > y;
}

bool constraint_vocabulary_is_stop(const struct constraint_vocabulary *v, int32_t id) {
  for (size_t i = 0; i < v->stops.n; i++)
    if (v->stops.ids[i] == id) return true;
  return false;
}

static enum eaglet_status copy_stops(struct constraint_vocabulary *v, const struct token_list *stops, struct eaglet_error *err) {
  for (size_t i = 0; stops && i < stops->n; i++) {
    if (stops->ids[i] < 0 || stops->ids[i] >= v->n_vocab)
      FAIL(err, EAGLET_E_USAGE, "constraint: stop token %d is not among the %d ids", stops->ids[i], v->n_vocab);
    if (!constraint_vocabulary_is_stop(v, stops->ids[i])) token_list_append(&v->stops, stops->ids[i]);
  }
  if (v->stops.n == 0) FAIL(err, EAGLET_E_USAGE, "constraint: no stop token, so that no text could end");
  qsort(v->stops.ids, v->stops.n, sizeof *v->stops.ids, compare_ids);
  return EAGLET_OK;
}

enum eaglet_status constraint_vocabulary_from_tokens(struct constraint_vocabulary **vocabulary, const struct vocabulary_token *tokens,
                                                     int32_t n_vocab, const struct token_list *stops, struct eaglet_error *err) {
  *vocabulary = NULL;
  if (n_vocab <= 0 || n_vocab > TOKEN_ID_MAX) FAIL(err, EAGLET_E_USAGE, "constraint: a vocabulary of %d ids", n_vocab);
  struct constraint_vocabulary *v = memory_alloc(sizeof *v);
  v->n_vocab = n_vocab;
  enum eaglet_status status = copy_stops(v, stops, err);
  if (status != EAGLET_OK) {
    constraint_vocabulary_free(v);
    return status;
  }
  size_t n = (size_t)n_vocab;
  struct buffer blob;
  buffer_init(&blob);
  v->at = memory_alloc((n + 1) * sizeof *v->at);
  v->next_twin = memory_alloc(n * sizeof *v->next_twin);
  memset(v->next_twin, 0xff, n * sizeof *v->next_twin);
  for (size_t id = 0; id < n; id++) {
    bool is_text = tokens[id].bytes && tokens[id].length <= VOCABULARY_TOKEN_BYTES_MAX && !constraint_vocabulary_is_stop(v, (int32_t)id);
    if (is_text) buffer_append(&blob, tokens[id].bytes, tokens[id].length);
    ASSERT(blob.length < UINT32_MAX);
    v->at[id + 1] = (uint32_t)blob.length;
  }
  v->blob = blob.data; /* freed with free(), as a buffer's data is */
  build_trie(v);
  *vocabulary = v;
  return EAGLET_OK;
}

enum eaglet_status constraint_vocabulary_create(struct constraint_vocabulary **vocabulary, const struct tokenizer *tokenizer,
                                                int32_t n_vocab, const struct token_list *stops, struct eaglet_error *err) {
  *vocabulary = NULL;
  if (tokenizer->decode.separate)
    FAIL(err, EAGLET_E_INPUT, "constraint: the %s tokenizer writes spaces between tokens that no token holds", tokenizer_kind(tokenizer));
  if (n_vocab <= 0 || n_vocab > TOKEN_ID_MAX) FAIL(err, EAGLET_E_USAGE, "constraint: a vocabulary of %d ids", n_vocab);
  struct vocabulary_token *tokens = memory_alloc((size_t)n_vocab * sizeof *tokens);
  int32_t n = tokenizer_n_ids(tokenizer) < n_vocab ? tokenizer_n_ids(tokenizer) : n_vocab;
  for (int32_t id = 0; id < n; id++) tokens[id].bytes = tokenizer_bytes(tokenizer, id, &tokens[id].length);
  size_t n_added;
  const int32_t *added = tokenizer_special_ids(tokenizer, &n_added);
  for (size_t i = 0; i < n_added; i++)
    if (added[i] >= 0 && added[i] < n_vocab) tokens[added[i]] = (struct vocabulary_token){0};
  enum eaglet_status status = constraint_vocabulary_from_tokens(vocabulary, tokens, n_vocab, stops, err);
  free(tokens);
  return status;
}

void constraint_vocabulary_free(struct constraint_vocabulary *vocabulary) {
  if (!vocabulary) return;
  free(vocabulary->nodes);
  free(vocabulary->blob);
  free(vocabulary->at);
  free(vocabulary->next_twin);
  token_list_clear(&vocabulary->stops);
  free(vocabulary);
}

int32_t constraint_vocabulary_n(const struct constraint_vocabulary *vocabulary) { return vocabulary->n_vocab; }

const char *constraint_vocabulary_bytes(const struct constraint_vocabulary *v, int32_t id, size_t *length) {
  *length = 0;
  if (id < 0 || id >= v->n_vocab || v->at[id + 1] == v->at[id]) return NULL;
  *length = v->at[id + 1] - v->at[id];
  return v->blob + v->at[id];
}
