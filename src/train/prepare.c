/* prepare.c - see prepare.h. One pass: conversation -> tokens and mask -> clipped, checked for duplicates -> shard.
 * Owns the rules that decide about a row of tokens; rules about conversations are intake.c's, exactness of the mask is
 * text/template_mask.c's. */
#include "train/prepare.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/util.h"
#include "data/token_shard.h"
#include "train/regenerate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX_DEFAULT 2048
#define VALIDATION_DEFAULT 0.05
#define REPLY_TOKENS_DEFAULT 256
#define CONCURRENCY_DEFAULT 16
#define SHARE_SUSPICIOUS 0.95 /* trained share above which the mask is more likely wrong than right */
#define REPORT_SECONDS 0.25

struct hash_set { /* open addressing; 0 is kept apart */
  uint64_t *slots;
  size_t n, capacity; /* capacity: a power of two */
  bool has_zero;
};

struct source_count {
  char name[CONVERSATION_SOURCE_MAX];
  uint64_t n_rows, n_tokens, n_trained;
};

struct preparation {
  struct eaglet_prepare_params params; /* defaults filled in */
  struct target_facts facts;
  struct renderer renderer;
  struct intake intake;
  struct token_writer *writer;
  struct regeneration *regeneration;
  struct hash_set seen;
  struct source_count sources[SOURCES_MAX];
  int32_t n_sources;
  uint64_t n_kept, n_validation, n_tokens, n_trained, n_special;
  uint64_t n_clipped;                                                        /* kept rows that were cut */
  uint64_t n_replies, n_reply_tokens, n_unended, n_retokenised, n_unmatched; /* of the regeneration */
  double reported;
};

static bool set_insert(struct hash_set *set, uint64_t hash) { /* false: was there */
  if (hash == 0) {
    bool fresh = !set->has_zero;
    set->has_zero = true;
    return fresh;
  }
  if (2 * (set->n + 1) > set->capacity) {
    struct hash_set larger = {.capacity = set->capacity ? 2 * set->capacity : 1024, .has_zero = set->has_zero};
    larger.slots = memory_alloc(larger.capacity * sizeof *larger.slots);
    for (size_t i = 0; i < set->capacity; i++) {
      if (set->slots[i]) set_insert(&larger, set->slots[i]);
    }
    free(set->slots);
    *set = larger;
  }
  size_t at = (size_t)hash & (set->capacity - 1);
  for (; set->slots[at]; at = (at + 1) & (set->capacity - 1)) {
    if (set->slots[at] == hash) return false;
  }
  set->slots[at] = hash;
  set->n++;
  return true;
}

/* ---- a row of tokens ---- */

struct row_tokens {
  int32_t *ids;
  uint8_t *mask;
  size_t n;
};

static void row_append(struct row_tokens *row, int32_t id, uint8_t mask) {
  row->ids[row->n] = id;
  row->mask[row->n++] = mask;
}

/* Puts the ids that the target wrote in place of the ids that its text gives: the replies are the runs of the mask. The
 * end-of-turn token that the template adds stays, trained only where the target wrote it itself. False when runs and
 * replies do not correspond. */
static bool splice_replies(struct row_tokens *out, const struct chat_tokens *tokens, const struct reply_list *replies,
                           const struct renderer *renderer, uint64_t *n_changed) {
  size_t reply = 0, n_room = tokens->n;
  for (size_t i = 0; i < replies->n; i++) n_room += (size_t)replies->replies[i].n;
  *out = (struct row_tokens){.ids = memory_alloc((n_room + 1) * sizeof *out->ids), .mask = memory_alloc(n_room + 1)};
  if (renderer->last_turn_only && replies->n > 0) reply = replies->n - 1;
  for (size_t i = 0; i < tokens->n;) {
    if (!tokens->mask[i]) {
      row_append(out, tokens->ids[i], 0);
      i++;
      continue;
    }
    size_t end = i;
    while (end < tokens->n && tokens->mask[end]) end++;
    while (reply < replies->n && replies->replies[reply].n - replies->replies[reply].ended == 0)
      reply++; /* an empty reply has no run */
    if (reply == replies->n) return false;
    const struct reply *r = &replies->replies[reply++];
    bool has_end = tokenizer_is_special(renderer->tokenizer, tokens->ids[end - 1]);
    size_t n = (size_t)(r->n - r->ended), n_text = end - i - has_end;
    *n_changed += n != n_text || memcmp(r->ids, tokens->ids + i, n * sizeof *r->ids) != 0;
    for (size_t k = 0; k < n; k++) row_append(out, r->ids[k], 1);
    if (has_end) row_append(out, tokens->ids[end - 1], r->ended && r->ids[n] == tokens->ids[end - 1]);
    i = end;
  }
  while (reply < replies->n && replies->replies[reply].n - replies->replies[reply].ended == 0) reply++;
  return reply == replies->n;
}

/* Cuts to n_max tokens; a reply that is cut is not trained, so that no head learns to stop where the data did. */
static bool clip(struct row_tokens *row, size_t n_max) {
  if (row->n <= n_max) return false;
  if (row->mask[n_max]) {
    for (size_t i = n_max; i > 0 && row->mask[i - 1]; i--) row->mask[i - 1] = 0;
  }
  row->n = n_max;
  return true;
}

/* ---- replies that the data says not to train ---- */

/* The weight that the data gives a message (OpenAI's "weight", "loss_weight"); 1 without one. -1: neither 0 nor 1. */
static int message_weight(const json_t *message) {
  const json_t *weight = json_object_get(message, "loss_weight");
  if (!weight) weight = json_object_get(message, "weight");
  if (!weight || json_is_null(weight)) return 1;
  double value = json_is_number(weight) ? json_number_value(weight) : json_is_boolean(weight) ? json_is_true(weight) : -1;
  return value == 0 ? 0 : value == 1 ? 1 : -1;
}

static bool has_text(const json_t *message) {
  const json_t *content = json_object_get(message, "content"), *reasoning = json_object_get(message, "reasoning_content");
  return json_string_length(content) > 0 || json_array_size(content) > 0 || json_string_length(reasoning) > 0 ||
         json_array_size(json_object_get(message, "tool_calls")) > 0;
}

/* Clears the runs of the mask that belong to replies of weight 0. The runs are the replies in order; a row in which they do not
 * correspond cannot be trained as its data asks. NULL, or why the row is dropped. */
static const char *apply_weights(struct row_tokens *row, const json_t *messages, bool last_turn_only) {
  bool asked = false;
  size_t i, n_replies = 0, n_runs = 0, reply = 0, at = 0;
  json_t *message;
  json_array_foreach(messages, i, message) {
    if (strcmp(message_role(messages, i), "assistant") != 0) continue;
    int weight = message_weight(message);
    if (weight < 0) return "a weight that is neither 0 nor 1";
    asked |= weight == 0;
    n_replies += has_text(message);
  }
  if (!asked) return NULL;
  for (size_t k = 0; k < row->n; k++) n_runs += row->mask[k] && (k == 0 || !row->mask[k - 1]);
  if (n_runs != (last_turn_only ? n_replies > 0 : n_replies)) return "replies of weight 0 that cannot be told apart";
  json_array_foreach(messages, i, message) {
    if (strcmp(message_role(messages, i), "assistant") != 0 || !has_text(message)) continue;
    if (last_turn_only && ++reply < n_replies) continue;
    while (!row->mask[at]) at++;
    for (; at < row->n && row->mask[at]; at++) row->mask[at] = message_weight(message) != 0;
  }
  return memchr(row->mask, 1, row->n) ? NULL : "every reply has weight 0";
}

/* By content and seed, so that the same conversation falls on the same side in every order of the data. The first row
 * is always trained: data of a single row is no error. */
static bool is_validation(const struct preparation *p, uint64_t hash) {
  return p->n_kept > 0 && random_uniform(p->params.seed, hash, 0) < p->params.validation;
}

static enum eaglet_status count_source(struct preparation *p, const char *name, size_t n, uint64_t n_trained,
                                       struct eaglet_error *err) {
  int32_t i = 0;
  while (i < p->n_sources && strcmp(p->sources[i].name, name) != 0) i++;
  if (i == SOURCES_MAX)
    FAIL(err, EAGLET_E_INPUT, "source '%s': expected at most %d sources, found more", name, SOURCES_MAX);
  if (i == p->n_sources) snprintf(p->sources[p->n_sources++].name, CONVERSATION_SOURCE_MAX, "%s", name);
  p->sources[i].n_rows++;
  p->sources[i].n_tokens += n;
  p->sources[i].n_trained += n_trained;
  return EAGLET_OK;
}

static enum eaglet_status keep_row(struct preparation *p, const struct row_tokens *tokens, const char *source,
                                   struct eaglet_error *err) {
  struct token_row row = {.tokens = tokens->ids, .mask = tokens->mask, .n = (int32_t)tokens->n};
  uint64_t n_trained = 0;
  row.hash = token_row_hash(row.tokens, row.mask, row.n);
  for (size_t i = 0; i < tokens->n; i++) n_trained += tokens->mask[i];
  if (!set_insert(&p->seen, row.hash)) {
    intake_drop(&p->intake, "duplicate of an earlier row");
    return EAGLET_OK;
  }
  bool validation = is_validation(p, row.hash);
  TRY(token_writer_add(p->writer, &row, source, validation, err));
  TRY(count_source(p, source, tokens->n, n_trained, err));
  p->n_kept++;
  p->n_validation += validation;
  p->n_tokens += tokens->n;
  p->n_trained += n_trained;
  return EAGLET_OK;
}

static enum eaglet_status add_tokens(struct preparation *p, struct row_tokens *row, const char *source,
                                     struct eaglet_error *err) {
  bool clipped = clip(row, (size_t)p->params.tokens_max);
  if (row->n > 0 && memchr(row->mask, 1, row->n)) {
    p->n_clipped += clipped;
    return keep_row(p, row, source, err);
  }
  char reason[96];
  snprintf(reason, sizeof reason, "no supervised tokens after truncation (max %d)", p->params.tokens_max);
  intake_drop(&p->intake, clipped ? reason : "no supervised tokens: every reply is empty");
  return EAGLET_OK;
}

static void count_replies(struct preparation *p, const struct reply_list *replies) {
  p->n_replies += replies->n;
  for (size_t i = 0; i < replies->n; i++) {
    p->n_reply_tokens += (uint64_t)replies->replies[i].n;
    p->n_unended += !replies->replies[i].ended;
  }
}

/* A row that is token ids already, as it is. That the target's tokenizer made them cannot be checked, only that it could have. */
static enum eaglet_status add_given_tokens(struct preparation *p, const struct conversation *conversation, struct eaglet_error *err) {
  struct row_tokens row = {.ids = conversation->ids, .mask = conversation->mask, .n = conversation->n_ids};
  for (size_t i = 0; i < row.n; i++) {
    if (row.ids[i] >= p->facts.n_vocab)
      FAIL(err, EAGLET_E_INPUT, "%s:%llu: token id %d at %zu: expected ids below %d, the target's vocabulary", conversation->path,
           (unsigned long long)conversation->line, row.ids[i], i, p->facts.n_vocab);
  }
  count_up(p->intake.notes, "token ids as given: that they are this tokenizer's was not checked", 1);
  return add_tokens(p, &row, conversation->source, err);
}

/* replies: NULL without regeneration. */
static enum eaglet_status add_conversation(struct preparation *p, const struct conversation *conversation,
                                           const struct reply_list *replies, struct eaglet_error *err) {
  struct chat_tokens tokens = {0};
  struct row_tokens spliced = {0};
  struct eaglet_error refused = {0};
  if (conversation->ids) return add_given_tokens(p, conversation, err);
  enum eaglet_status status = renderer_row(&p->renderer, conversation, &tokens, &refused);
  if (status == EAGLET_E_INPUT) {
    intake_refused(&p->intake, conversation, &refused);
    return EAGLET_OK;
  }
  if (status != EAGLET_OK) {
    if (err) *err = refused;
    return status;
  }
  struct row_tokens row = {.ids = tokens.ids, .mask = tokens.mask, .n = tokens.n};
  const char *reason = replies ? NULL : apply_weights(&row, conversation->messages, p->params.last_turn_only);
  if (reason) {
    intake_drop(&p->intake, reason);
    chat_tokens_clear(&tokens);
    return EAGLET_OK;
  }
  p->n_special += (uint64_t)tokens.n_special_in_content;
  if (replies) {
    uint64_t n_changed = 0;
    count_replies(p, replies);
    bool matched = splice_replies(&spliced, &tokens, replies, &p->renderer, &n_changed);
    if (matched) row = spliced;
    p->n_retokenised += matched ? n_changed : 0;
    p->n_unmatched += !matched;
  }
  status = add_tokens(p, &row, conversation->source, err);
  free(spliced.ids);
  free(spliced.mask);
  chat_tokens_clear(&tokens);
  return status;
}

/* ---- the two sources of conversations ---- */

static enum eaglet_status tell(struct preparation *p, uint64_t done, uint64_t total, struct eaglet_error *err) {
  double now = time_now();
  if (now - p->reported < REPORT_SECONDS) return EAGLET_OK;
  p->reported = now;
  if (progress_report(&p->params.progress, "prepare", "rows", done, total, NULL)) return EAGLET_OK;
  FAIL(err, EAGLET_E_INTERRUPTED, "%s: stopped; nothing was written", p->params.out);
}

static enum eaglet_status add_data(struct preparation *p, struct eaglet_error *err) {
  struct dataset_reader *reader = NULL;
  struct conversation conversation = {0};
  bool more = true;
  const struct dataset_params data = dataset_params_of(&p->params);
  TRY(dataset_open(&reader, &data, err));
  enum eaglet_status status = EAGLET_OK;
  while (status == EAGLET_OK && more) {
    status = dataset_next(reader, &conversation, &more, err);
    if (status != EAGLET_OK || !more) break;
    if (intake_admit(&p->intake, &conversation, false)) status = add_conversation(p, &conversation, NULL, err);
    if (status == EAGLET_OK) status = tell(p, p->intake.n_read, 0, err);
  }
  intake_note_reading(&p->intake, reader);
  conversation_clear(&conversation);
  dataset_close(reader);
  return status;
}

static enum eaglet_status add_regenerated(struct preparation *p, struct eaglet_error *err) {
  const struct regeneration_params params = {
      .prepare = &p->params, .renderer = &p->renderer, .facts = &p->facts, .intake = &p->intake};
  struct conversation conversation = {0};
  struct reply_list replies = {0};
  TRY(regeneration_run(&p->regeneration, &params, err));
  size_t n = regeneration_count(p->regeneration);
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < n && status == EAGLET_OK; i++) {
    status = regeneration_row(p->regeneration, i, &conversation, &replies, err);
    if (status == EAGLET_OK && replies.n > 0) status = add_conversation(p, &conversation, &replies, err);
    if (status == EAGLET_OK) status = tell(p, i + 1, n, err);
    reply_list_clear(&replies);
  }
  conversation_clear(&conversation);
  return status;
}

/* ---- manifest and report ---- */

static json_t *integers(const int32_t *values, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++) json_array_append_new(array, json_integer(values[i]));
  return array;
}

static json_t *make_manifest(const struct preparation *p) {
  char tokenizer[HASH_TEXT_BYTES], model[HASH_TEXT_BYTES];
  const struct eaglet_prepare_params *s = &p->params;
  size_t n_special;
  const int32_t *special = tokenizer_special_ids(p->renderer.tokenizer, &n_special);
  hash_text(tokenizer, tokenizer_hash(p->renderer.tokenizer));
  hash_text(model, p->facts.hash);
  json_t *settings = json_pack("{si sf sb sb sI sb}", "tokens_max", s->tokens_max, "validation", s->validation,
                               "last_turn_only", s->last_turn_only, "special_in_content", s->special_in_content, "seed",
                               (json_int_t)s->seed, "regenerate", s->regenerate);
  if (p->renderer.arguments) json_object_set(settings, "template_arguments", p->renderer.arguments);
  if (s->regenerate) {
    json_object_set_new(settings, "temperature", json_real((double)s->temperature));
    json_object_set_new(settings, "reply_tokens_max", json_integer(s->reply_tokens_max));
  }
  return json_pack("{si ss ss ss so so so}", "n_target", p->facts.n_vocab, "model_hash", model, "tokenizer_hash",
                   tokenizer, "tokenizer_kind", tokenizer_kind(p->renderer.tokenizer), "stop_ids",
                   integers(p->facts.stop_ids, (size_t)p->facts.n_stop_ids), "special_ids",
                   integers(special, n_special), "settings", settings);
}

static json_t *make_report(const struct preparation *p) {
  json_t *sources = json_object();
  for (int32_t i = 0; i < p->n_sources; i++) {
    const struct source_count *s = &p->sources[i];
    json_object_set_new(sources, s->name,
                        json_pack("{sI sI sI}", "rows", (json_int_t)s->n_rows, "tokens", (json_int_t)s->n_tokens,
                                  "trained_tokens", (json_int_t)s->n_trained));
  }
  json_t *report =
      json_pack("{sI sI sI sI sI sI sf sI sO sO sO so}", "rows_read", (json_int_t)p->intake.n_read, "rows_kept",
                (json_int_t)p->n_kept, "rows_validation", (json_int_t)p->n_validation, "rows_clipped",
                (json_int_t)p->n_clipped, "tokens", (json_int_t)p->n_tokens, "trained_tokens", (json_int_t)p->n_trained,
                "trained_share", (double)p->n_trained / (double)p->n_tokens, "special_in_content",
                (json_int_t)p->n_special, "dropped", p->intake.dropped, "notes", p->intake.notes,
                "layouts", p->intake.layouts, "sources", sources);
  if (p->intake.reading) json_object_set(report, "reading", p->intake.reading);
  if (*p->intake.first_refused) json_object_set_new(report, "first_refused", json_string(p->intake.first_refused));
  if (p->params.regenerate) {
    json_object_set_new(report, "regenerated",
                        json_pack("{sI sI sI sI sI}", "replies", (json_int_t)p->n_replies, "tokens",
                                  (json_int_t)p->n_reply_tokens, "cut_by_length", (json_int_t)p->n_unended,
                                  "retokenised", (json_int_t)p->n_retokenised, "rows_unmatched",
                                  (json_int_t)p->n_unmatched));
  }
  return report;
}

static enum eaglet_status check_kept(const struct preparation *p, struct eaglet_error *err) {
  if (p->n_kept == 0) {
    char reasons[640];
    intake_describe(&p->intake, reasons, sizeof reasons);
    FAIL(err, EAGLET_E_INPUT, "%s: none of %llu rows can be trained: %s%s%.300s", p->params.data[0],
         (unsigned long long)p->intake.n_read, reasons, *p->intake.first_refused ? ": " : "", p->intake.first_refused);
  }
  ASSERT(p->n_trained > 0); /* a row without a trained token is not kept */
  double share = (double)p->n_trained / (double)p->n_tokens;
  if (share > SHARE_SUSPICIOUS)
    log_warning("%.1f %% of all tokens are trained: unusual for conversations; look at `eaglet render --mask`",
                100 * share);
  if (*p->intake.first_refused)
    log_warning("some conversations were refused by the chat template, the first: %s", p->intake.first_refused);
  return EAGLET_OK;
}

/* ---- the run ---- */

static enum eaglet_status resolve(struct eaglet_prepare_params *s, const struct eaglet_prepare_params *params,
                                  struct eaglet_error *err) {
  *s = *params;
  if (!s->out) FAIL(err, EAGLET_E_USAGE, "prepare: no output directory given");
  if (s->tokens_max <= 0) s->tokens_max = TOKENS_MAX_DEFAULT;
  if (s->validation == 0) s->validation = VALIDATION_DEFAULT; /* below 0: none */
  if (s->validation >= 1) FAIL(err, EAGLET_E_USAGE, "validation: expected a share below 1, found %g", s->validation);
  if (s->reply_tokens_max <= 0) s->reply_tokens_max = REPLY_TOKENS_DEFAULT;
  if (s->concurrency <= 0) s->concurrency = CONCURRENCY_DEFAULT;
  return EAGLET_OK;
}

static enum eaglet_status run_steps(struct preparation *p, struct eaglet_text *text, struct eaglet_error *err) {
  const struct checkpoint_params checkpoint = {.path = p->params.model, .ignore_index = p->params.ignore_index};
  TRY(target_facts_read(&p->facts, &checkpoint, err));
  TRY(renderer_open(&p->renderer, p->params.model, p->facts.n_vocab, err));
  p->renderer.special_in_content = p->params.special_in_content;
  p->renderer.last_turn_only = p->params.last_turn_only;
  TRY(chat_template_arguments(&p->renderer.arguments, p->renderer.chat, p->params.arguments_json, err));
  json_t *manifest = make_manifest(p);
  const struct token_writer_params writer = {.directory = p->params.out, .manifest = manifest};
  enum eaglet_status status = token_writer_open(&p->writer, &writer, err);
  json_decref(manifest);
  TRY(status);
  TRY(p->params.regenerate ? add_regenerated(p, err) : add_data(p, err));
  TRY(check_kept(p, err));
  json_t *report = make_report(p);
  status = token_writer_commit(p->writer, report, err);
  if (status == EAGLET_OK) *text = json_dump(report, 0);
  json_decref(report);
  if (status == EAGLET_OK)
    (void)progress_report(&p->params.progress, "prepare", "rows", p->intake.n_read, p->intake.n_read, NULL);
  return status;
}

enum eaglet_status prepare_run(const struct eaglet_prepare_params *params, struct eaglet_text *report,
                               struct eaglet_error *err) {
  struct preparation *p = memory_alloc(sizeof *p);
  *report = (struct eaglet_text){0};
  intake_init(&p->intake);
  enum eaglet_status status = resolve(&p->params, params, err);
  if (status == EAGLET_OK) status = run_steps(p, report, err);
  regeneration_close(p->regeneration);
  token_writer_free(p->writer);
  renderer_close(&p->renderer);
  intake_release(&p->intake);
  free(p->seen.slots);
  free(p);
  return status;
}
