/* prepare.c - see prepare.h. One pass: conversations -> rows of tokens with their masks, a batch of them at a time on all threads -> clipped,
 * checked for duplicates, in the order of the data -> shards. Owns the rules that decide about a row of tokens; rules about
 * conversations are intake.c's, rows are conversation_rows.c's. */
#include "train/prepare.h"

#include "base/hash_set.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/util.h"
#include "data/token_shard.h"
#include "train/conversation_rows.h"
#include "train/language.h"
#include "train/overlap.h"
#include "train/prepared_before.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX_DEFAULT 2048
#define VALIDATION_DEFAULT 0.05
#define REPLY_TOKENS_DEFAULT 256
#define CONCURRENCY_DEFAULT 16
#define TRAINED_MAX_DEFAULT 0.95 /* trained share above which the mask is more likely wrong than right (B01) */
#define BATCH_MAX 256            /* conversations worked on at once */
#define BATCH_BYTES ((size_t)4 << 20)
#define REPORT_SECONDS 0.25

struct preparation {
  struct eaglet_prepare_params params; /* defaults filled in */
  struct target_facts facts;
  struct renderer renderer;
  struct intake intake;
  struct token_writer *writer;
  struct regeneration *regeneration;
  struct overlap overlap;
  struct hash_set seen;
  uint64_t n_conversations, n_kept, n_validation, n_tokens, n_trained, n_special, n_endless; /* n_conversations: with a row that was kept */
  uint64_t n_clipped, n_replies_cut;                    /* kept rows that were cut; replies that a cut took or shortened */
  uint64_t n_replies, n_reply_tokens, n_unended, n_split; /* of the regeneration */
  uint64_t n_kb; /* of the data, 0: not known */
  double reported;
  json_t *rebuilt; /* why a finished directory is prepared again, or NULL */
};

/* ---- a row of tokens ---- */

/* By the content of a conversation's first row and the seed, so that the same conversation falls on the same side in every order of the data, and
 * all its rows on one. The first conversation is always trained: data of a single row is no error. */
static bool is_validation(const struct preparation *p, const struct row_tokens *first) {
  uint64_t hash = token_row_hash(first->ids, first->mask, (int32_t)first->n);
  return p->n_kept > 0 && random_uniform(p->params.seed, hash, 0) < p->params.validation;
}

static enum eaglet_status keep_row(struct preparation *p, const struct row_tokens *tokens, const struct row_origin *origin,
                                   bool validation, struct eaglet_error *err) {
  struct token_row row = {.tokens = tokens->ids, .mask = tokens->mask, .n = (int32_t)tokens->n};
  uint64_t n_trained = 0;
  row.hash = token_row_hash(row.tokens, row.mask, row.n);
  for (size_t i = 0; i < tokens->n; i++) n_trained += tokens->mask[i];
  if (!hash_set_insert(&p->seen, row.hash)) {
    intake_drop(&p->intake, "duplicate of an earlier row");
    return EAGLET_OK;
  }
  TRY(token_writer_add(p->writer, &row, origin, validation, err));
  p->n_kept++;
  p->n_validation += validation;
  p->n_tokens += tokens->n;
  p->n_trained += n_trained;
  return EAGLET_OK;
}

static enum eaglet_status add_row(struct preparation *p, struct row_tokens *row, const struct row_origin *origin, bool validation,
                                  struct eaglet_error *err) {
  bool reply_cut, clipped = row_clip(row, (size_t)p->params.tokens_max, &reply_cut);
  p->n_replies_cut += reply_cut;
  if (row->n > 0 && memchr(row->mask, 1, row->n)) {
    p->n_clipped += clipped;
    return keep_row(p, row, origin, validation, err);
  }
  char reason[96];
  snprintf(reason, sizeof reason, "no supervised tokens after truncation (max %d)", p->params.tokens_max);
  intake_drop(&p->intake, clipped ? reason : "no supervised tokens: every reply is empty");
  return EAGLET_OK;
}

/* ---- a conversation on its way ---- */

struct item {
  struct conversation conversation;
  struct reply_list replies; /* of the target, when regenerated */
  struct row_list rows;
  const char *language;
  const char *reason; /* why it has no rows */
  enum eaglet_status status;
  struct eaglet_error err;
};

struct batch {
  struct item items[BATCH_MAX];
  size_t n, n_bytes;
};

static void batch_clear(struct batch *batch) {
  for (size_t i = 0; i < batch->n; i++) {
    conversation_clear(&batch->items[i].conversation);
    reply_list_clear(&batch->items[i].replies);
    row_list_clear(&batch->items[i].rows);
  }
  batch->n = batch->n_bytes = 0;
}

static void batch_drop_last(struct batch *batch) {
  struct item *item = &batch->items[--batch->n];
  conversation_clear(&item->conversation);
  reply_list_clear(&item->replies);
}

/* Touches nothing but the item: items are made on all threads at once. */
static void make_rows(const struct preparation *p, struct item *item) {
  item->language = language_of_messages(item->conversation.messages);
  if (item->conversation.ids) {
    rows_from_ids(&item->rows, &item->conversation);
    return;
  }
  item->reason = overlap_found(&p->overlap, item->conversation.messages) ? "overlaps a prompt of --keep-out" : NULL;
  if (item->reason) return;
  item->status = p->params.regenerate
                     ? rows_from_replies(&item->rows, &p->renderer, &item->conversation, &item->replies, &item->err)
                     : rows_from_template(&item->rows, &item->reason, &p->renderer, &item->conversation, &item->err);
}

static void count_replies(struct preparation *p, const struct reply_list *replies) {
  p->n_replies += replies->n;
  for (size_t i = 0; i < replies->n; i++) {
    p->n_reply_tokens += (uint64_t)replies->replies[i].n;
    p->n_unended += !replies->replies[i].ended;
  }
}

/* That the target's tokenizer made the ids of a row that has them already cannot be checked, only that it could have. */
static enum eaglet_status check_given(struct preparation *p, const struct conversation *conversation, struct eaglet_error *err) {
  for (size_t i = 0; i < conversation->n_ids; i++) {
    if (conversation->ids[i] >= p->facts.n_vocab)
      FAIL(err, EAGLET_E_INPUT, "%s:%llu: token id %d at %zu: expected ids below %d, the target's vocabulary", conversation->path,
           (unsigned long long)conversation->line, conversation->ids[i], i, p->facts.n_vocab);
  }
  count_up(p->intake.notes, "token ids as given: that they are this tokenizer's was not checked", 1);
  return EAGLET_OK;
}

static enum eaglet_status add_item(struct preparation *p, struct item *item, struct eaglet_error *err) {
  const struct row_origin origin = {.source = item->conversation.source, .language = item->language};
  uint64_t n_before = p->n_kept;
  if (item->conversation.ids) TRY(check_given(p, &item->conversation, err));
  if (item->status == EAGLET_E_INPUT) {
    intake_refused(&p->intake, &item->conversation, &item->err);
    return EAGLET_OK;
  }
  if (item->status != EAGLET_OK) {
    if (err) *err = item->err;
    return item->status;
  }
  if (item->reason) intake_drop(&p->intake, item->reason);
  if (item->reason || item->rows.n == 0) return EAGLET_OK;
  p->n_special += item->rows.n_special;
  p->n_endless += item->rows.n_endless;
  p->n_split += item->rows.n_split;
  if (p->params.regenerate) count_replies(p, &item->replies);
  bool validation = is_validation(p, &item->rows.rows[0]);
  for (size_t i = 0; i < item->rows.n; i++) TRY(add_row(p, &item->rows.rows[i], &origin, validation, err));
  p->n_conversations += p->n_kept > n_before;
  return EAGLET_OK;
}

static enum eaglet_status batch_finish(struct preparation *p, struct batch *batch, struct eaglet_error *err) {
  enum eaglet_status status = EAGLET_OK;
  int n = (int)batch->n;
#pragma omp parallel for schedule(dynamic, 4) num_threads(p->params.threads)
  for (int i = 0; i < n; i++) make_rows(p, &batch->items[i]);
  for (size_t i = 0; i < batch->n && status == EAGLET_OK; i++) status = add_item(p, &batch->items[i], err);
  batch_clear(batch);
  return status;
}

/* A free place of the batch, which is finished first when it is full. */
static enum eaglet_status batch_next(struct preparation *p, struct batch *batch, struct item **item, struct eaglet_error *err) {
  if (batch->n == BATCH_MAX || batch->n_bytes > BATCH_BYTES) TRY(batch_finish(p, batch, err));
  *item = &batch->items[batch->n];
  **item = (struct item){0};
  return EAGLET_OK;
}

/* ---- the two sources of conversations ---- */

static enum eaglet_status tell(struct preparation *p, const char *unit, uint64_t done, uint64_t total, struct eaglet_error *err) {
  double now = time_now();
  char note[48];
  if (now - p->reported < REPORT_SECONDS) return EAGLET_OK;
  p->reported = now;
  snprintf(note, sizeof note, "%llu rows", (unsigned long long)p->n_kept);
  if (progress_report(&p->params.progress, "prepare", unit, done, total, note)) return EAGLET_OK;
  FAIL(err, EAGLET_E_INTERRUPTED, "%s: stopped; nothing was written", p->params.out);
}

/* By bytes of the data where its length is known, else by conversations. */
static enum eaglet_status tell_reading(struct preparation *p, const struct dataset_reader *reader, struct eaglet_error *err) {
  uint64_t total, done = dataset_position(reader, &total);
  p->n_kb = (total + 999) / 1000;
  return total > 0 ? tell(p, "KB", done / 1000, p->n_kb, err) : tell(p, "conversations", p->intake.n_read, 0, err);
}

static void tell_end(struct preparation *p) {
  uint64_t n = p->n_kb > 0 ? p->n_kb : p->intake.n_read;
  p->reported = 0;
  (void)tell(p, p->n_kb > 0 ? "KB" : "conversations", n, n, NULL);
}

static size_t text_bytes(const json_t *messages) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(messages); i++) n += json_string_length(json_object_get(json_array_get(messages, i), "content"));
  return n;
}

static enum eaglet_status read_data(struct preparation *p, struct dataset_reader *reader, struct batch *batch, struct eaglet_error *err) {
  struct item *item;
  bool more;
  do {
    TRY(batch_next(p, batch, &item, err));
    TRY(dataset_next(reader, &item->conversation, &more, err));
    bool taken = more && intake_admit(&p->intake, &item->conversation, false);
    batch->n++; /* what the reader gave is the batch's to release */
    if (taken) batch->n_bytes += text_bytes(item->conversation.messages);
    else batch_drop_last(batch);
    TRY(tell_reading(p, reader, err));
  } while (more);
  return batch_finish(p, batch, err);
}

static enum eaglet_status add_data(struct preparation *p, struct batch *batch, struct eaglet_error *err) {
  struct dataset_reader *reader = NULL;
  const struct dataset_params data = dataset_params_of(&p->params);
  TRY(dataset_open(&reader, &data, err));
  enum eaglet_status status = read_data(p, reader, batch, err);
  intake_note_reading(&p->intake, reader);
  dataset_close(reader);
  return status;
}

static enum eaglet_status add_regenerated(struct preparation *p, struct batch *batch, struct eaglet_error *err) {
  const struct regeneration_params params = {
      .prepare = &p->params, .renderer = &p->renderer, .facts = &p->facts, .intake = &p->intake};
  TRY(regeneration_run(&p->regeneration, &params, err));
  size_t n = regeneration_count(p->regeneration);
  for (size_t i = 0; i < n; i++) {
    struct item *item;
    TRY(batch_next(p, batch, &item, err));
    batch->n++;
    TRY(regeneration_row(p->regeneration, i, &item->conversation, &item->replies, err));
    if (item->replies.n == 0) batch_drop_last(batch);
    TRY(tell(p, "conversations", i + 1, n, err));
  }
  return batch_finish(p, batch, err);
}

static enum eaglet_status add_rows(struct preparation *p, struct eaglet_error *err) {
  struct batch *batch = memory_alloc(sizeof *batch);
  enum eaglet_status status = p->params.regenerate ? add_regenerated(p, batch, err) : add_data(p, batch, err);
  batch_clear(batch);
  free(batch);
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
  static const char *const parts[] = {"both", "both", "thinking", "answer"}, *const rows[] = {"auto", "auto", "conversation"};
  json_t *settings = json_pack("{si sf sb sb sI sb ss ss}", "tokens_max", s->tokens_max, "validation", s->validation,
                               "last_turn_only", s->last_turn_only, "special_in_content", s->special_in_content, "seed",
                               (json_int_t)s->seed, "regenerate", s->regenerate, "train_on", parts[s->train_on], "rows", rows[s->rows]);
  if (s->map) json_object_set_new(settings, "map", json_string(s->map));
  if (s->bad_percent_max > 0) json_object_set_new(settings, "bad_percent_max", json_real(s->bad_percent_max));
  if (s->strict) json_object_set_new(settings, "strict", json_true());
  if (s->row_mib_max > 0) json_object_set_new(settings, "row_mib_max", json_integer(s->row_mib_max));
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
  json_t *sources = token_writer_sources(p->writer);
  json_t *report =
      json_pack("{sI sI sI sI sI sI sI sI sI sf sI sO sO sO so}", "rows_read", (json_int_t)p->intake.n_read, "rows_kept",
                (json_int_t)p->n_kept, "conversations_kept", (json_int_t)p->n_conversations, "rows_validation", (json_int_t)p->n_validation,
                "rows_clipped", (json_int_t)p->n_clipped, "replies_cut", (json_int_t)p->n_replies_cut, "replies_without_end",
                (json_int_t)p->n_endless, "tokens", (json_int_t)p->n_tokens, "trained_tokens", (json_int_t)p->n_trained,
                "trained_share", (double)p->n_trained / (double)p->n_tokens, "special_in_content",
                (json_int_t)p->n_special, "dropped", p->intake.dropped, "notes", p->intake.notes,
                "layouts", p->intake.layouts, "sources", sources);
  if (p->intake.reading) json_object_set(report, "reading", p->intake.reading);
  if (p->rebuilt) json_object_set(report, "prepared_again", p->rebuilt);
  if (*p->intake.first_refused) json_object_set_new(report, "first_refused", json_string(p->intake.first_refused));
  if (p->params.regenerate) {
    json_object_set_new(report, "regenerated",
                        json_pack("{sI sI sI sI}", "replies", (json_int_t)p->n_replies, "tokens",
                                  (json_int_t)p->n_reply_tokens, "cut_by_length", (json_int_t)p->n_unended,
                                  "rows_of_their_own", (json_int_t)p->n_split));
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
  if (share > p->params.trained_max) {
    FAIL(err, EAGLET_E_INPUT,
         "%.1f %% of all tokens would be trained, more than %g %%: look at `eaglet render --mask`, and raise --max-trained when it is right",
         100 * share, 100 * p->params.trained_max);
  }
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
  if (s->threads <= 0) s->threads = threads_available();
  if (s->trained_max <= 0) s->trained_max = TRAINED_MAX_DEFAULT;
  return EAGLET_OK;
}

/* What the outcome depends on. *known: false when the data cannot be read twice. */
static enum eaglet_status make_inputs(json_t **inputs, bool *known, const struct preparation *p, const json_t *manifest,
                                      struct eaglet_error *err) {
  static const char *const keys[] = {"n_target", "model_hash", "tokenizer_hash", "stop_ids", "settings"};
  struct dataset_reader *reader = NULL;
  char text[HASH_TEXT_BYTES];
  uint64_t hash;
  (void)chat_template_origin(p->renderer.chat, &hash);
  hash_text(text, hash);
  *inputs = json_pack("{si ss}", "version", PREPARED_VERSION, "template", text);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) json_object_set(*inputs, keys[i], json_object_get(manifest, keys[i]));
  json_t *files = json_array();
  const struct dataset_params data = dataset_params_of(&p->params);
  enum eaglet_status status = dataset_open(&reader, &data, err);
  for (size_t i = 0; status == EAGLET_OK && i < dataset_files(reader)->n; i++)
    json_array_append_new(files, json_string(dataset_files(reader)->names[i]));
  for (size_t i = 0; i < p->params.n_keep_out; i++) json_array_append_new(files, json_string(p->params.keep_out[i]));
  dataset_close(reader);
  if (status == EAGLET_OK) status = prepared_add_files(*inputs, known, files, err);
  json_decref(files);
  return status;
}

/* True when the directory holds these very rows already: *text is then its report. */
static bool find_finished(struct preparation *p, struct eaglet_text *text, const json_t *inputs) {
  json_t *report;
  char *difference;
  prepared_find(&report, &difference, p->params.out, inputs);
  bool found = report && !p->params.force;
  if (found) {
    json_object_set_new(report, "reused", json_true());
    *text = json_dump(report, 0);
  }
  if (!p->params.force && difference) p->rebuilt = json_string(difference);
  json_decref(report);
  free(difference);
  return found;
}

static enum eaglet_status open_writer(struct preparation *p, const json_t *manifest, struct eaglet_error *err) {
  const struct token_writer_params writer = {.directory = p->params.out, .manifest = manifest};
  return token_writer_open(&p->writer, &writer, err);
}

/* *finished: the directory holds these rows already; else the writer is open. */
static enum eaglet_status begin(struct preparation *p, struct eaglet_text *text, bool *finished, struct eaglet_error *err) {
  json_t *manifest = make_manifest(p), *inputs = NULL;
  bool known = false;
  enum eaglet_status status = make_inputs(&inputs, &known, p, manifest, err);
  *finished = status == EAGLET_OK && known && find_finished(p, text, inputs);
  if (status == EAGLET_OK && !*finished) {
    if (known) json_object_set(manifest, "inputs", inputs);
    status = open_writer(p, manifest, err);
  }
  json_decref(inputs);
  json_decref(manifest);
  return status;
}

static enum eaglet_status run_steps(struct preparation *p, struct eaglet_text *text, struct eaglet_error *err) {
  const struct checkpoint_params checkpoint = {.path = p->params.model, .ignore_index = p->params.ignore_index};
  TRY(target_facts_read(&p->facts, &checkpoint, err));
  TRY(renderer_open(&p->renderer, p->params.model, p->facts.n_vocab, err));
  p->renderer.special_in_content = p->params.special_in_content;
  p->renderer.last_turn_only = p->params.last_turn_only;
  p->renderer.one_row = p->params.rows == EAGLET_ROWS_CONVERSATION;
  p->renderer.part = p->params.train_on == EAGLET_TRAIN_ON_THINKING ? CHAT_PART_THINKING
                     : p->params.train_on == EAGLET_TRAIN_ON_ANSWER ? CHAT_PART_ANSWER
                                                                    : CHAT_PART_ALL;
  if (p->params.n_keep_out > 0) TRY(overlap_read(&p->overlap, p->params.keep_out, p->params.n_keep_out, err));
  TRY(chat_template_arguments(&p->renderer.arguments, p->renderer.chat, p->params.arguments_json, err));
  bool finished;
  TRY(begin(p, text, &finished, err));
  if (finished) return EAGLET_OK;
  TRY(add_rows(p, err));
  TRY(check_kept(p, err));
  json_t *report = make_report(p);
  enum eaglet_status status = token_writer_commit(p->writer, report, err);
  if (status == EAGLET_OK) *text = json_dump(report, 0);
  json_decref(report);
  if (status == EAGLET_OK) tell_end(p);
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
  hash_set_release(&p->seen);
  overlap_release(&p->overlap);
  json_decref(p->rebuilt);
  free(p);
  return status;
}
