/* tokenizer_added.c - the tokens that are found in text before any splitting: their list, the tries that match them
 * (leftmost, then longest), and their flags lstrip, rstrip and single_word.
 *
 * Invariant after added_finish: sorted by id, ids and texts distinct, added_index tells for every id which it is.
 */
#include "text/tokenizer_kind.h"

#include "base/file.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void added_append(struct tokenizer *tokenizer, const struct added_token *token) {
  MEMORY_GROW(tokenizer->added, tokenizer->added_capacity, tokenizer->n_added + 1);
  tokenizer->added[tokenizer->n_added++] = *token;
  if ((uint32_t)token->id >= tokenizer->n_ids) tokenizer->n_ids = (uint32_t)token->id + 1;
}

enum eaglet_status added_parse_id(int32_t *id, const char *text, const char *what, struct eaglet_error *err) {
  char *end;
  long value = strtol(text, &end, 10);
  if (end == text || *end || value < 0 || value > TOKEN_ID_MAX)
    FAIL(err, EAGLET_E_INPUT, "%s: expected a token id, found \"%.40s\"", what, text);
  *id = (int32_t)value;
  return EAGLET_OK;
}

enum eaglet_status added_parse(struct added_token *token, const json_t *value, const char *what, struct eaglet_error *err) {
  if (!json_is_object(value)) FAIL(err, EAGLET_E_INPUT, "%s: expected an object", what);
  const json_t *content = json_object_get(value, "content");
  if (!json_is_string(content) || json_string_length(content) == 0)
    FAIL(err, EAGLET_E_INPUT, "%s: content: expected a non-empty string", what);
  token->text = json_string_value(content);
  token->length = (uint32_t)json_string_length(content);
  TRY(json_get_bool_or(&token->special, true, value, "special", what, err));
  TRY(json_get_bool_or(&token->normalized, !token->special, value, "normalized", what, err));
  TRY(json_get_bool_or(&token->lstrip, false, value, "lstrip", what, err));
  TRY(json_get_bool_or(&token->rstrip, false, value, "rstrip", what, err));
  TRY(json_get_bool_or(&token->single_word, false, value, "single_word", what, err));
  token->guarded = token->special;
  return EAGLET_OK;
}

/* ---- tries ---- */

static uint32_t find_child(const struct added_set *set, uint32_t node, uint8_t byte) {
  uint32_t child = set->nodes[node].child;
  while (child && set->nodes[child].byte != byte) child = set->nodes[child].sibling;
  return child;
}

static uint32_t add_child(struct added_set *set, uint32_t node, uint8_t byte) {
  uint32_t child = find_child(set, node, byte);
  if (child) return child;
  MEMORY_GROW(set->nodes, set->capacity, set->n_nodes + 1);
  child = (uint32_t)set->n_nodes++;
  set->nodes[child] = (struct added_node){.sibling = set->nodes[node].child, .token = -1, .byte = byte};
  set->nodes[node].child = child;
  if (node == 0) set->first[byte] = child;
  return child;
}

bool added_set_insert(struct added_set *set, const char *text, size_t length, int32_t index) {
  if (length == 0) return true; /* matches nowhere */
  if (set->n_nodes == 0) {
    MEMORY_GROW(set->nodes, set->capacity, 1);
    set->n_nodes = 1;
    set->nodes[0] = (struct added_node){.token = -1};
  }
  uint32_t node = 0;
  for (size_t at = 0; at < length; at++) node = add_child(set, node, (uint8_t)text[at]);
  if (set->nodes[node].token >= 0) return false;
  set->nodes[node].token = index;
  set->n_tokens++;
  if (length > set->length_max) set->length_max = length;
  return true;
}

void added_set_release(struct added_set *set) {
  free(set->nodes);
  *set = (struct added_set){0};
}

int32_t added_set_match(const struct added_set *set, const struct added_token *added, const char *text, size_t length,
                        size_t n_guarded, size_t *matched) {
  int32_t best = -1;
  *matched = 0;
  if (length == 0) return best;
  uint32_t node = set->first[(uint8_t)text[0]];
  for (size_t at = 1; node; at++) {
    int32_t token = set->nodes[node].token;
    if (token >= 0 && (at <= n_guarded || !added[token].guarded)) {
      best = token;
      *matched = at;
    }
    if (at == length) break;
    node = find_child(set, node, (uint8_t)text[at]);
  }
  return best;
}

/* ---- finishing ---- */

static int compare_added(const void *a, const void *b) {
  const struct added_token *x = a, *y = b;
  return (x->id > y->id) - (x->id < y->id);
}

enum eaglet_status added_finish(struct tokenizer *tokenizer, const char *what, struct eaglet_error *err) {
  size_t n = tokenizer->n_added;
  if (n) qsort(tokenizer->added, n, sizeof *tokenizer->added, compare_added);
  tokenizer->added_ids = memory_alloc((n + 1) * sizeof *tokenizer->added_ids);
  tokenizer->added_index = memory_alloc(((size_t)tokenizer->n_ids + 1) * sizeof *tokenizer->added_index);
  memset(tokenizer->added_index, 0xff, ((size_t)tokenizer->n_ids + 1) * sizeof *tokenizer->added_index);
  struct added_set all = {0};
  size_t matched;
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < n && status == EAGLET_OK; i++) {
    const struct added_token *token = &tokenizer->added[i];
    if (i && token[-1].id == token->id)
      status = error_set(err, EAGLET_E_INPUT, "%s: added token id %d appears twice", what, token->id);
    else if (!added_set_insert(&all, token->text, token->length, (int32_t)i)) {
      int32_t other = added_set_match(&all, tokenizer->added, token->text, token->length, token->length, &matched);
      status = error_set(err, EAGLET_E_INPUT, "%s: added tokens %d and %d have the same text \"%s\"", what,
                         tokenizer->added[other].id, token->id, token->text);
    }
    tokenizer->added_ids[i] = token->id;
    tokenizer->added_index[token->id] = (int32_t)i;
    if (!token->normalized) added_set_insert(&tokenizer->raw, token->text, token->length, (int32_t)i);
    if (token->guarded) added_set_insert(&tokenizer->guarded, token->text, token->length, (int32_t)i);
    uint64_t salt = (uint64_t)(uint32_t)token->id << 1 | token->special;
    tokenizer->hash = file_hash(token->text, token->length, tokenizer->hash ^ (salt * 0x9e3779b97f4a7c15u));
  }
  added_set_release(&all);
  return status;
}

void added_release(struct tokenizer *tokenizer) {
  free(tokenizer->added);
  free(tokenizer->added_ids);
  free(tokenizer->added_index);
  added_set_release(&tokenizer->raw);
  added_set_release(&tokenizer->normalized);
  added_set_release(&tokenizer->guarded);
}

/* ---- scanning ---- */

bool text_is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool text_is_word(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  switch (utf8proc_category((utf8proc_int32_t)c)) {
  case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT: case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO: case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_PC:
    return true;
  default: /* symbols that are alphabetic, and the joiners */
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c || c == 0x200d;
  }
}

/* The character that ends at text[at), and where it begins. */
static uint32_t character_before(const char *text, size_t begin, size_t at, size_t *start) {
  size_t from = at - 1;
  while (from > begin && ((uint8_t)text[from] & 0xc0) == 0x80) from--;
  uint32_t c = 0xfffd;
  utf8_decode(text + from, at - from, &c);
  *start = from;
  return c;
}

static bool is_word_at(const char *text, size_t at, size_t end) {
  uint32_t c;
  return at < end && utf8_decode(text + at, end - at, &c) > 0 && text_is_word(c);
}

static bool is_single_word(const struct added_scan *scan, size_t begin, size_t end) {
  size_t start;
  if (begin > scan->begin && text_is_word(character_before(scan->text, scan->begin, begin, &start))) return false;
  return !is_word_at(scan->text, end, scan->end);
}

/* The white space that a token swallows on its sides. What an earlier token swallowed is not swallowed again. */
static void strip_sides(const struct added_scan *scan, const struct added_token *token, struct added_match *match) {
  size_t start;
  if (token->lstrip) {
    size_t begin = match->begin;
    while (begin > scan->begin && text_is_white_space(character_before(scan->text, scan->begin, begin, &start))) begin = start;
    match->begin = begin > scan->ordinary ? begin : scan->ordinary;
  }
  uint32_t c;
  int n;
  while (token->rstrip && match->end < scan->end &&
         (n = utf8_decode(scan->text + match->end, scan->end - match->end, &c)) > 0 && text_is_white_space(c))
    match->end += (size_t)n;
}

bool added_scan_next(struct added_scan *scan, struct added_match *match) {
  const struct added_set *set = scan->set;
  for (; set->n_tokens && scan->at < scan->end; scan->at++) {
    if (!set->first[(uint8_t)scan->text[scan->at]]) continue;
    size_t at = scan->at, length; /* length is the trie's: a normalised token's own may differ */
    int32_t index = added_set_match(set, scan->tokenizer->added, scan->text + at, scan->end - at,
                                    scan->n_guarded(scan->context, at), &length);
    if (index < 0) continue;
    const struct added_token *token = &scan->tokenizer->added[index];
    if (token->single_word && !is_single_word(scan, at, at + length)) {
      scan->at += length - 1;
      continue;
    }
    *match = (struct added_match){.ordinary = scan->ordinary, .begin = at, .end = at + length, .index = index};
    scan->at = at + length;
    strip_sides(scan, token, match);
    scan->ordinary = match->end;
    if (match->begin < match->end) return true;
    scan->at--; /* swallowed whole by the token before: it does not count */
  }
  return false;
}
