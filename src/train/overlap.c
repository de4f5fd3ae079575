/* overlap.c - see overlap.h. A word is the hash of its letters in lower case (ASCII), so that a text is read once and nothing is copied. */
#include "train/overlap.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "train/intake.h"

#include <string.h>

struct words { /* the last OVERLAP_WORDS words of a text */
  uint64_t hashes[OVERLAP_WORDS];
  uint64_t n;
};

static bool is_ideograph(uint32_t c) {
  return (c >= 0x3040 && c <= 0x30ff) || (c >= 0x3400 && c <= 0x9fff) || (c >= 0xf900 && c <= 0xfaff) || (c >= 0x20000 && c <= 0x3ffff);
}

static bool is_letter(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  return c >= 0xaa && c != 0xd7 && c != 0xf7 && !(c >= 0x2000 && c <= 0x206f) && !(c >= 0x3000 && c <= 0x303f) && !(c >= 0xff00 && c <= 0xff0f);
}

static uint64_t words_hash(const struct words *words) {
  uint64_t ordered[OVERLAP_WORDS], n = words->n < OVERLAP_WORDS ? words->n : OVERLAP_WORDS;
  for (uint64_t i = 0; i < n; i++) ordered[i] = words->hashes[(words->n - n + i) % OVERLAP_WORDS];
  return file_hash(ordered, n * sizeof *ordered, 0);
}

/* Takes a word; true when the run that it ends shall be looked at. */
static bool push_word(struct words *words, const char *letters, size_t n) {
  words->hashes[words->n++ % OVERLAP_WORDS] = file_hash(letters, n, 0);
  return words->n >= OVERLAP_WORDS;
}

typedef bool run_visitor(void *user, uint64_t hash, bool whole); /* false: enough */

static bool visit_word(struct words *words, struct buffer *word, run_visitor *visit, void *user) {
  bool full = word->length > 0 && push_word(words, word->data, word->length);
  buffer_reset(word);
  return !full || visit(user, words_hash(words), false);
}

/* Calls visit for every run of OVERLAP_WORDS words, or once for a whole shorter text that is not too short. */
static void visit_runs(const char *text, size_t length, run_visitor *visit, void *user) {
  struct words words = {0};
  struct buffer word;
  uint32_t c;
  bool go_on = true;
  buffer_init(&word);
  for (size_t at = 0, n; go_on && at < length; at += n) {
    n = (size_t)utf8_decode(text + at, length - at, &c);
    if (n == 0) break; /* JSON strings are valid UTF-8 */
    bool ideograph = is_ideograph(c), letter = ideograph || is_letter(c);
    if (!letter || ideograph) go_on = visit_word(&words, &word, visit, user);
    if (c < 0x80 && letter) buffer_append_char(&word, (char)(c >= 'A' && c <= 'Z' ? c + 32 : c));
    else if (letter) buffer_append(&word, text + at, n);
    if (go_on && ideograph) go_on = visit_word(&words, &word, visit, user);
  }
  if (go_on) go_on = visit_word(&words, &word, visit, user);
  if (go_on && words.n >= OVERLAP_WORDS_MIN && words.n < OVERLAP_WORDS) (void)visit(user, words_hash(&words), true);
  buffer_clear(&word);
}

static void visit_message(const json_t *message, run_visitor *visit, void *user) {
  const json_t *content = json_object_get(message, "content"), *part;
  size_t i;
  if (json_is_string(content)) visit_runs(json_string_value(content), json_string_length(content), visit, user);
  json_array_foreach(content, i, part) {
    const json_t *text = json_object_get(part, "text");
    if (json_is_string(text)) visit_runs(json_string_value(text), json_string_length(text), visit, user);
  }
}

static bool learn_run(void *user, uint64_t hash, bool whole) {
  struct overlap *overlap = user;
  hash_set_insert(whole ? &overlap->shorts : &overlap->runs, hash);
  return true;
}

enum eaglet_status overlap_read(struct overlap *overlap, const char *const *paths, size_t n_paths, struct eaglet_error *err) {
  struct dataset_reader *reader = NULL;
  struct conversation conversation = {0};
  bool more = true;
  const struct dataset_params params = {.paths = paths, .n_paths = n_paths};
  TRY(dataset_open(&reader, &params, err));
  enum eaglet_status status = EAGLET_OK;
  while (status == EAGLET_OK && more) {
    status = dataset_next(reader, &conversation, &more, err);
    for (size_t i = 0; status == EAGLET_OK && more && i < json_array_size(conversation.messages); i++) {
      if (strcmp(message_role(conversation.messages, i), "user") != 0) continue;
      visit_message(json_array_get(conversation.messages, i), learn_run, overlap);
      overlap->n_prompts++;
    }
  }
  conversation_clear(&conversation);
  dataset_close(reader);
  return status;
}

struct search {
  const struct overlap *overlap;
  bool user; /* a message of the user */
  bool found;
};

static bool search_run(void *user, uint64_t hash, bool whole) {
  struct search *search = user;
  search->found |= whole ? search->user && hash_set_has(&search->overlap->shorts, hash) : hash_set_has(&search->overlap->runs, hash);
  return !search->found;
}

bool overlap_found(const struct overlap *overlap, const json_t *messages) {
  struct search search = {.overlap = overlap};
  for (size_t i = 0; overlap->n_prompts > 0 && i < json_array_size(messages) && !search.found; i++) {
    const char *role = message_role(messages, i);
    search.user = strcmp(role, "user") == 0;
    if (search.user || strcmp(role, "assistant") == 0) visit_message(json_array_get(messages, i), search_run, &search);
  }
  return search.found;
}

void overlap_release(struct overlap *overlap) {
  hash_set_release(&overlap->runs);
  hash_set_release(&overlap->shorts);
}
