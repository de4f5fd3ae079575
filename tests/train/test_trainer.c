/* test_trainer.c - whole training runs of a small head on nano-kimi: it learns, resumes to the bit whatever happened in
 * between, does not depend on the micro-batches, keeps the vocabulary of a warm start, and refuses by name. */
#include "../data/support.h"

#include "data/feature_shard.h"
#include "draft/head_file.h"
#include "train/extract.h"
#include "text/tokenizer.h"
#include "train/head_init.h"
#include "train/metrics.h"
#include "train/trainer.h"

#include "base/util.h"

#include <math.h>

enum { ROWS = 10, LENGTH = 24 };

static char *model_path(void) {
  const char *root = getenv("EAGLET_TEST_ROOT");
  return file_join(root ? root : ".", "models/nano-kimi");
}

static void add_row(struct token_writer *writer, int32_t row, uint64_t seed, bool with_reply) {
  int32_t tokens[LENGTH], n = LENGTH - row % 5;
  uint8_t mask[LENGTH];
  struct eaglet_error err = {0};
  for (int32_t t = 0; t < n; t++) {
    tokens[t] = 100 + (int32_t)(random_u64(seed, (uint64_t)row, (uint64_t)t) % 40);
    mask[t] = with_reply && t >= 8 && t < n - 1 && t != 14; /* two replies */
  }
  const struct token_row r = {.tokens = tokens, .mask = mask, .n = n};
  assert_ok(token_writer_add(writer, &r, &(struct row_origin){.source = "test"}, false, &err), &err);
}

/* kept: rows with a reply, the rest have none. */
static char *make_data(const char *directory, const char *name, uint64_t seed, int32_t kept) {
  char *path = file_join(directory, name);
  struct eaglet_error err = {0};
  struct token_writer *writer;
  json_t *manifest = json_pack("{si}", "n_target", 4096);
  assert_ok(token_writer_open(&writer, &(struct token_writer_params){.directory = path, .manifest = manifest}, &err),
            &err);
  for (int32_t row = 0; row < ROWS; row++) add_row(writer, row, seed, row < kept);
  assert_ok(token_writer_commit(writer, NULL, &err), &err);
  token_writer_free(writer);
  json_decref(manifest);
  return path;
}

/* A file as `vocab` writes it, with the hashes that are given (NULL: none, as of another program). */
static char *make_vocabulary_of(const char *directory, const char *name, const int32_t first_count[2], const char *const hashes[2]) {
  int32_t ids[512], first = first_count[0], n = first_count[1];
  void *storage = NULL;
  struct vocab_map map;
  struct eaglet_error err = {0};
  char *path = file_join(directory, name);
  for (int32_t i = 0; i < n; i++) ids[i] = first + i;
  assert_ok(vocab_map_init(&map, ids, n, 4096, name, &err), &err);
  struct safetensors_writer *writer = safetensors_writer_create();
  if (hashes[0]) safetensors_writer_metadata(writer, "tokenizer_hash", hashes[0]);
  if (hashes[1]) safetensors_writer_metadata(writer, "token_hash", hashes[1]);
  vocab_map_write(&map, writer, &storage);
  assert_ok(safetensors_writer_commit(writer, path, &err), &err);
  safetensors_writer_free(writer);
  free(storage);
  vocab_map_release(&map);
  return path;
}

static char *make_vocabulary(const char *directory, const char *name, const int32_t first_count[2]) {
  return make_vocabulary_of(directory, name, first_count, (const char *const[2]){NULL, NULL});
}

struct run {
  char *model, *data, *out, *vocab;
  struct eaglet_train_params params;
  struct eaglet_text report;
  struct eaglet_error err;
};

static void run_init(struct run *r, const char *scratch, const char *out) {
  *r = (struct run){.model = model_path(), .data = file_join(scratch, "data"), .out = file_join(scratch, out)};
  if (!file_is_directory(r->data)) free(make_data(scratch, "data", 1, ROWS - 2));
  r->vocab = make_vocabulary(r->data, "vocab.safetensors", (const int32_t[]){0, 400});
  r->params = (struct eaglet_train_params){.model = r->model,
                                           .data = r->data,
                                           .out = r->out,
                                           .vocab = r->vocab,
                                           .steps = 6,
                                           .batch = 3,
                                           .unroll = 3,
                                           .warmup = 2,
                                           .heads = 2,
                                           .kv_heads = 1,
                                           .head_dim = 16,
                                           .intermediate = 48,
                                           .seed = 9,
                                           .threads = 2};
}

static enum eaglet_status run_go(struct run *r) {
  free(r->report.data);
  r->report.data = NULL;
  return train_run(&r->params, &r->report, &r->err);
}

static void run_clear(struct run *r) {
  free(r->model), free(r->data), free(r->out), free(r->vocab), free(r->report.data);
}

static void assert_same_file(const char *a, const char *b, const char *name) {
  struct eaglet_text left = scratch_read(a, name), right = scratch_read(b, name);
  assert_int_equal(left.length, right.length);
  assert_memory_equal(left.data, right.data, left.length);
  free(left.data), free(right.data);
}

/* Parameters and moments of two states are equal bit for bit; metadata differs (places in the metrics). */
static void assert_same_state(const char *a, const char *b) {
  static const char *const names[] = {"parameters", "m", "v"};
  struct safetensors left, right;
  struct eaglet_error err = {0};
  char *path_a = file_join(a, "state/state.safetensors"), *path_b = file_join(b, "state/state.safetensors");
  assert_ok(safetensors_open(&left, path_a, &err), &err);
  assert_ok(safetensors_open(&right, path_b, &err), &err);
  for (int i = 0; i < 3; i++) {
    const struct tensor_entry *x = safetensors_find(&left, names[i]), *y = safetensors_find(&right, names[i]);
    assert_int_equal(x->n_bytes, y->n_bytes);
    assert_memory_equal(x->data, y->data, x->n_bytes);
  }
  safetensors_close(&left), safetensors_close(&right);
  free(path_a), free(path_b);
}

/* The losses of metrics.jsonl in order; its steps must be 1, 2, 3 ... */
static size_t losses_of(const char *out, double *losses, size_t most) {
  struct file_lines *lines;
  struct eaglet_error err = {0};
  char *path = metrics_path(out);
  size_t n = 0;
  assert_ok(file_lines_open(&lines, path, &err), &err);
  for (;;) {
    const char *text;
    size_t length;
    json_t *line;
    assert_ok(file_lines_next(lines, &text, &length, &err), &err);
    if (!text) break;
    assert_ok(json_parse(&line, text, length, path, &err), &err);
    assert_true(n < most);
    losses[n++] = json_real_value(json_object_get(line, "loss"));
    assert_int_equal(json_integer_value(json_object_get(line, "step")), n);
    json_decref(line);
  }
  file_lines_close(lines);
  free(path);
  return n;
}

static void test_learns(void **state) {
  struct run r;
  double losses[64];
  run_init(&r, *state, "out");
  char *vocab = make_vocabulary(*state, "vocab.safetensors", (const int32_t[]){0, 300});
  r.params.steps = 40, r.params.lr = 5e-3;
  r.params.vocab = vocab;
  assert_ok(run_go(&r), &r.err);
  assert_int_equal(losses_of(r.out, losses, 64), 40);
  assert_true(losses[39] < 0.7 * losses[0]);
  json_t *report = NULL;
  assert_ok(json_parse(&report, r.report.data, r.report.length, "report", &r.err), &r.err);
  assert_true(json_is_true(json_object_get(report, "finished")));
  assert_int_equal(json_integer_value(json_object_get(report, "rows_without_loss")), 2);
  json_decref(report);
  free(vocab);
  run_clear(&r);
}

static void test_resume_is_exact(void **state) {
  struct run straight, parts;
  double a[16], b[16];
  run_init(&straight, *state, "straight");
  run_init(&parts, *state, "parts");
  assert_ok(run_go(&straight), &straight.err);
  parts.params.stop_after = 2;
  parts.params.resume = true; /* nothing there yet: starts */
  for (int i = 0; i < 3; i++) {
    assert_ok(run_go(&parts), &parts.err);
    /* As if killed after more steps than were saved: lines that the state does not know. */
    char *path = metrics_path(parts.out);
    if (i < 2) assert_ok(file_append_line(path, "{\"step\":99,\"loss\":1}", 20, &parts.err), &parts.err);
    free(path);
  }
  assert_same_state(straight.out, parts.out);
  assert_same_file(straight.out, parts.out, "model.safetensors");
  assert_int_equal(losses_of(straight.out, a, 16), 6);
  assert_int_equal(losses_of(parts.out, b, 16), 6);
  assert_memory_equal(a, b, sizeof(double) * 6);
  run_clear(&straight), run_clear(&parts);
}

static bool stop_at_third(void *context, const char *stage, const char *unit, uint64_t done, uint64_t total,
                          const char *note) {
  (void)context, (void)stage, (void)unit, (void)total, (void)note;
  return done < 3;
}

static void test_interruption_saves(void **state) {
  struct run straight, parts;
  run_init(&straight, *state, "straight");
  run_init(&parts, *state, "parts");
  assert_ok(run_go(&straight), &straight.err);
  parts.params.progress.report = stop_at_third;
  assert_int_equal(run_go(&parts), EAGLET_E_INTERRUPTED);
  assert_non_null(strstr(parts.err.message, "step 3"));
  parts.params.progress.report = NULL;
  parts.params.resume = true;
  assert_ok(run_go(&parts), &parts.err);
  assert_same_state(straight.out, parts.out);
  run_clear(&straight), run_clear(&parts);
}

static void test_refusals(void **state) {
  struct run r;
  run_init(&r, *state, "out");
  r.params.steps = 2;
  assert_ok(run_go(&r), &r.err);
  assert_failed_with(run_go(&r), EAGLET_E_USAGE, &r.err, "--resume");
  r.params.resume = true;
  r.params.batch = 4;
  assert_failed_with(run_go(&r), EAGLET_E_USAGE, &r.err, "--batch was 3, is now 4");
  r.params.batch = 3;
  char *other = make_data(*state, "other", 2, ROWS);
  r.params.data = other;
  assert_failed_with(run_go(&r), EAGLET_E_USAGE, &r.err, "data was ");
  r.params.resume = false;
  char *nothing = make_data(*state, "nothing", 3, 0);
  r.params.data = nothing;
  assert_failed_with(run_go(&r), EAGLET_E_INPUT, &r.err, "nothing to learn");
  r.params.data = r.data;
  r.params.states = "2,9";
  assert_failed_with(run_go(&r), EAGLET_E_USAGE, &r.err, "expected 0..8, found 9");
  r.params.states = "4,2";
  assert_failed_with(run_go(&r), EAGLET_E_USAGE, &r.err, "ascending");
  free(other), free(nothing);
  run_clear(&r);
}

/* F11: the same rows in one micro-batch or one row at a time. */
static void test_micro_batches_do_not_matter(void **state) {
  struct run one, many;
  double a[8], b[8];
  run_init(&one, *state, "one");
  run_init(&many, *state, "many");
  one.params.steps = many.params.steps = 3;
  many.params.micro_tokens = 1;
  assert_ok(run_go(&one), &one.err);
  assert_ok(run_go(&many), &many.err);
  assert_int_equal(losses_of(one.out, a, 8), 3);
  assert_int_equal(losses_of(many.out, b, 8), 3);
  for (int i = 0; i < 3; i++) assert_true(fabs(a[i] - b[i]) < 2e-5 * a[i]);
  run_clear(&one), run_clear(&many);
}

/* F12: targets that all lie outside the draft vocabulary. Special ids: nano-kimi never prefers them inside such rows.
 */
static void test_nothing_in_vocabulary(void **state) {
  struct run r;
  struct safetensors file;
  run_init(&r, *state, "out");
  char *vocab = make_vocabulary(*state, "far.safetensors", (const int32_t[]){4066, 30}),
       *path = file_join(r.out, "state/state.safetensors");
  r.params.vocab = vocab;
  r.params.steps = 2;
  assert_ok(run_go(&r), &r.err);
  assert_ok(safetensors_open(&file, path, &r.err), &r.err);
  const struct tensor_entry *moment = safetensors_find(&file, "m");
  for (uint64_t i = 0; i < moment->n_bytes; i++) assert_int_equal(moment->data[i], 0);
  safetensors_close(&file);
  free(vocab), free(path);
  run_clear(&r);
}

/* Stored features of full precision are the live ones. */
static void test_stored_equals_live(void **state) {
  struct run live, stored;
  double a[8], b[8];
  run_init(&live, *state, "live");
  run_init(&stored, *state, "stored");
  char *features = file_join(*state, "features");
  struct eaglet_text report = {0};
  const struct eaglet_extract_params extract = {
      .model = live.model, .data = live.data, .out = features, .float32 = true, .threads = 2};
  assert_ok(extract_run(&extract, &report, &live.err), &live.err);
  free(report.data);
  live.params.steps = stored.params.steps = 3;
  stored.params.features = features;
  assert_ok(run_go(&live), &live.err);
  assert_ok(run_go(&stored), &stored.err);
  assert_int_equal(losses_of(live.out, a, 8), 3);
  assert_int_equal(losses_of(stored.out, b, 8), 3);
  assert_memory_equal(a, b, sizeof(double) * 3);
  stored.params.states = "1,4,5";
  stored.params.out = features; /* fails before anything is written */
  assert_failed_with(run_go(&stored), EAGLET_E_INPUT, &stored.err, "expected state 1, found state 2");
  free(features);
  run_clear(&live), run_clear(&stored);
}

/* E07: a warm start continues the head it was given, with its vocabulary and sizes. */
static void test_warm_start(void **state) {
  struct run first, second;
  double a[16], b[16];
  run_init(&first, *state, "first");
  run_init(&second, *state, "second");
  char *vocab = make_vocabulary(*state, "vocab.safetensors", (const int32_t[]){50, 300}),
       *other = make_vocabulary(*state, "other.safetensors", (const int32_t[]){51, 300});
  first.params.vocab = vocab, first.params.steps = 12, first.params.lr = 5e-3;
  assert_ok(run_go(&first), &first.err);
  second.params.init = first.out;
  second.params.steps = 1;
  second.params.vocab = other;
  assert_failed_with(run_go(&second), EAGLET_E_USAGE, &second.err, "--vocab");
  second.params.vocab = NULL;
  second.params.heads = 4;
  assert_failed_with(run_go(&second), EAGLET_E_USAGE, &second.err, "--heads");
  second.params.heads = 0;
  second.params.rope_theta = 20000;
  assert_failed_with(run_go(&second), EAGLET_E_USAGE, &second.err, "--rope-theta");
  second.params.rope_theta = 0;
  assert_ok(run_go(&second), &second.err);
  losses_of(first.out, a, 16);
  losses_of(second.out, b, 16);
  assert_true(b[0] < 0.5 * (a[0] + a[11])); /* the first step of the second run stands where the first run ended */
  char *left = file_join(first.out, "model.safetensors"), *right = file_join(second.out, "model.safetensors");
  struct safetensors x, y;
  assert_ok(safetensors_open(&x, left, &first.err), &first.err);
  assert_ok(safetensors_open(&y, right, &first.err), &first.err);
  const struct tensor_entry *d2t = safetensors_find(&x, "d2t"), *again = safetensors_find(&y, "d2t");
  assert_memory_equal(d2t->data, again->data, d2t->n_bytes);
  safetensors_close(&x), safetensors_close(&y);
  free(left), free(right), free(vocab), free(other);
  run_clear(&first), run_clear(&second);
}

/* E08: a vocabulary of another tokenizer is refused, one of other data unless it is asked for; none is taken unasked. C12: so is data of
 * another tokenizer. */
static void test_stale_vocabulary(void **state) {
  static const int32_t ids[] = {0, 200};
  struct run r;
  run_init(&r, *state, "out");
  char tokens[HASH_TEXT_BYTES], tokenizer[HASH_TEXT_BYTES];
  struct token_store store;
  struct tokenizer *opened;
  assert_ok(token_store_open(&store, r.data, false, &r.err), &r.err);
  hash_text(tokens, store.hash);
  token_store_close(&store);
  assert_ok(tokenizer_open(&opened, r.model, &r.err), &r.err);
  hash_text(tokenizer, tokenizer_hash(opened));
  tokenizer_close(opened);
  const struct {
    const char *tokenizer, *tokens, *words; /* words NULL: taken */
  } cases[] = {{tokenizer, tokens, NULL},
               {NULL, NULL, NULL},
               {"0123456789abcdef", tokens, "tokenizer_hash: made for tokenizer 0123456789abcdef, "},
               {tokenizer, "0123456789abcdef", "token_hash: made from the data 0123456789abcdef, "}};
  /* The data says which tokenizer made it. */
  char *manifest = file_join(r.data, "manifest.json");
  json_t *json = NULL;
  assert_ok(json_parse_file(&json, manifest, &r.err), &r.err);
  for (int wrong = 0; wrong < 2; wrong++) {
    json_object_set_new(json, "tokenizer_hash", json_string(wrong ? "0123456789abcdef" : tokenizer));
    struct eaglet_text text = json_dump(json, 0);
    assert_ok(file_write(manifest, text.data, text.length, &r.err), &r.err);
    free(text.data);
    for (size_t i = 0; i < (wrong ? 0 : sizeof cases / sizeof *cases); i++) {
      char *vocab = make_vocabulary_of(*state, "stale.safetensors", ids, (const char *const[2]){cases[i].tokenizer, cases[i].tokens}),
           *out = memory_format("%s/out-%zu", (char *)*state, i);
      r.params.vocab = vocab, r.params.out = out, r.params.steps = 1, r.params.vocab_of_other_data = false;
      if (cases[i].words) assert_failed_with(run_go(&r), EAGLET_E_INPUT, &r.err, cases[i].words);
      else assert_ok(run_go(&r), &r.err);
      r.params.vocab_of_other_data = true;
      r.params.resume = true;
      if (cases[i].words && cases[i].tokenizer == tokenizer) assert_ok(run_go(&r), &r.err);
      if (i == 2) assert_failed_with(run_go(&r), EAGLET_E_INPUT, &r.err, "its ids mean other tokens");
      r.params.resume = false;
      free(vocab), free(out);
    }
  }
  r.params.vocab = NULL;
  assert_failed_with(run_go(&r), EAGLET_E_INPUT, &r.err, "prepared with tokenizer 0123456789abcdef, the target ");
  json_object_del(json, "tokenizer_hash");
  struct eaglet_text text = json_dump(json, 0);
  assert_ok(file_write(manifest, text.data, text.length, &r.err), &r.err);
  free(text.data);
  char *whole = file_join(*state, "whole"); /* vocab.safetensors lies beside the data, and nobody asked for it */
  r.params.out = whole;
  assert_ok(run_go(&r), &r.err);
  json_t *report = NULL;
  assert_ok(json_parse(&report, r.report.data, r.report.length, "report", &r.err), &r.err);
  assert_int_equal(json_integer_value(json_object_get(report, "draft_vocabulary")), 4096);
  json_decref(report);
  json_decref(json);
  free(whole), free(manifest);
  run_clear(&r);
}

/* A run that meets not-a-number stops, tells the step, and leaves no state with it. */
static void test_not_a_number(void **state) {
  struct run r;
  struct compute *compute;
  struct model *model;
  struct vocab_map map;
  struct head_config config;
  run_init(&r, *state, "out");
  char *broken = file_join(*state, "broken"), *path = file_join(r.out, "state/state.safetensors");
  assert_ok(compute_open_cpu(&compute, 1, EAGLET_PRECISION_EXACT, &r.err), &r.err);
  assert_ok(model_open(&model, &(struct model_params){.path = r.model, .compute = compute}, &r.err), &r.err);
  assert_ok(vocab_map_identity(&map, 4096, &r.err), &r.err);
  r.params.vocab = NULL;
  r.params.rope_theta = 10000;
  assert_ok(head_config_new(&config, &r.params, model, 4096, &r.err), &r.err);
  float *parameters = calloc((size_t)head_parameters_total(&config), sizeof(float));
  head_parameters_init(parameters, &config, model, &map, 1);
  struct head_parameters *list = memory_alloc(sizeof *list);
  head_parameters_list(list, &config);
  parameters[head_parameter_find(list, HEAD_DOWN, 0)->offset + 5] = NAN;
  free(list);
  assert_ok(
      head_export(broken,
                  &(struct head_export){
                      .config = &config, .map = &map, .parameters = parameters, .dtype = DTYPE_F32, .target = model},
                  &r.err),
      &r.err);
  free(parameters);
  vocab_map_release(&map);
  model_close(model);
  compute_close(compute);
  r.params.init = broken;
  assert_failed_with(run_go(&r), EAGLET_E_CHECK, &r.err, "step 1: loss");
  assert_false(file_exists(path));
  free(broken), free(path);
  run_clear(&r);
}

/* Heads that config.json describes: latent attention, two layers with a window, everything that speculators' format says. */
static const struct {
  const char *config, *tensor; /* a tensor whose name only this dialect has */
  bool learns_embedding;
} layouts[] = {
    {"{\"model_type\": \"deepseek_v3\", \"hidden_size\": 320, \"intermediate_size\": 48, \"num_attention_heads\": 2, \"q_lora_rank\": 24, "
     "\"kv_lora_rank\": 16, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 8, \"v_head_dim\": 16, \"rms_norm_eps\": 1e-6, "
     "\"rope_theta\": 10000, \"fc_norm\": true, \"norm_output\": true}",
     "midlayer.self_attn.kv_b_proj.weight", false},
    {"{\"model_type\": \"llama\", \"hidden_size\": 320, \"intermediate_size\": 48, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
     "\"head_dim\": 16, \"num_hidden_layers\": 2, \"sliding_window\": 6, \"layer_types\": [\"sliding_attention\", \"full_attention\"], "
     "\"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, \"eagle_aux_hidden_state_layer_ids\": [2, 4, 5]}",
     "layers.1.input_layernorm.weight", false},
    {"{\"speculators_model_type\": \"eagle3\", \"norm_before_residual\": true, \"norm_before_fc\": true, \"norm_output\": true, "
     "\"embed_requires_grad\": true, \"draft_vocab_size\": 400, \"transformer_layer_config\": {\"model_type\": \"qwen3\", "
     "\"hidden_size\": 320, \"intermediate_size\": 48, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 16, "
     "\"num_hidden_layers\": 1, \"attention_bias\": true, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000}}",
     "layers.0.self_attn.q_norm.weight", true}};

static void layout_of(struct run *r, const char *path) {
  r->params.head_config = path;
  r->params.heads = r->params.kv_heads = r->params.head_dim = r->params.intermediate = 0;
}

static bool has_tensor(const char *out, const char *name) {
  struct safetensors file;
  struct eaglet_error err = {0};
  char *path = file_join(out, "model.safetensors");
  assert_ok(safetensors_open(&file, path, &err), &err);
  bool has = safetensors_find(&file, name) != NULL;
  safetensors_close(&file);
  free(path);
  return has;
}

/* They learn, resume to the bit, are written in their dialect, and go on from there with the layout that they have. */
static void test_layouts(void **state) {
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    struct run whole, parts, warm;
    double losses[32], after[4];
    char name[3][32];
    static const char *const kinds[] = {"whole", "parts", "warm"};
    for (int k = 0; k < 3; k++) snprintf(name[k], sizeof name[k], "%s%zu", kinds[k], i);
    run_init(&whole, *state, name[0]), run_init(&parts, *state, name[1]), run_init(&warm, *state, name[2]);
    free(scratch_write(*state, "head.json", layouts[i].config));
    char *path = file_join(*state, "head.json");
    layout_of(&whole, path), layout_of(&parts, path), layout_of(&warm, NULL);
    whole.params.steps = parts.params.steps = 12;
    whole.params.lr = parts.params.lr = 5e-3;
    assert_ok(run_go(&whole), &whole.err);
    parts.params.resume = true, parts.params.stop_after = 7;
    for (int k = 0; k < 2; k++) assert_ok(run_go(&parts), &parts.err);
    assert_same_state(whole.out, parts.out);
    assert_same_file(whole.out, parts.out, "model.safetensors");
    assert_int_equal(losses_of(whole.out, losses, 32), 12);
    assert_true(losses[11] < 0.9 * losses[0]);
    assert_true(has_tensor(whole.out, layouts[i].tensor));
    assert_int_equal(has_tensor(whole.out, "embed_tokens.weight"), layouts[i].learns_embedding);
    warm.params.init = whole.out, warm.params.steps = 1, warm.params.vocab = NULL;
    assert_ok(run_go(&warm), &warm.err);
    losses_of(warm.out, after, 4);
    assert_true(after[0] < 0.5 * (losses[0] + losses[11]));
    assert_true(has_tensor(warm.out, layouts[i].tensor));
    free(path);
    run_clear(&whole), run_clear(&parts), run_clear(&warm);
  }
}

#define LAYOUT(more) "{\"hidden_size\": 320, \"num_attention_heads\": 2, \"intermediate_size\": 48, \"rope_theta\": 10000" more "}"

static void test_layout_refusals(void **state) {
  static const struct {
    const char *config, *words;
    int32_t heads;
    enum eaglet_status status;
  } cases[] = {
      {LAYOUT(", \"attention_sinks\": true"), "attention_sinks", 0, EAGLET_E_INPUT},
      {LAYOUT(", \"parallel_draft_step\": 2"), "parallel_draft_step", 0, EAGLET_E_INPUT},
      {LAYOUT(", \"num_hidden_layers\": 9"), "num_hidden_layers", 0, EAGLET_E_INPUT},
      {"{\"hidden_size\": 320, \"num_attention_heads\": 65536, \"num_key_value_heads\": 1, \"head_dim\": 65536, \"intermediate_size\": 48}",
       "65536 heads of 65536", 0, EAGLET_E_INPUT},
      {LAYOUT(", \"vocab_size\": 5000"), "vocab_size", 0, EAGLET_E_INPUT},
      {LAYOUT(", \"draft_vocab_size\": 401"), "draft_vocab_size", 0, EAGLET_E_INPUT},
      {LAYOUT(", \"tie_word_embeddings\": true"), "tie_word_embeddings", 0, EAGLET_E_INPUT},
      {LAYOUT(", \"embed_requires_grad\": true"), "SGLang's loader replaces", 0, EAGLET_E_INPUT}, /* F22 */
      {"{\"hidden_size\": 64, \"target_hidden_size\": 320, \"num_attention_heads\": 2, \"intermediate_size\": 48}",
       "embed_requires_grad: expected true", 0, EAGLET_E_INPUT},
      {LAYOUT(""), "--heads: --head-config has 2, found 4", 4, EAGLET_E_USAGE},
      {"[1]", "expected an object", 0, EAGLET_E_INPUT},
      {"{", "head.json", 0, EAGLET_E_INPUT}};
  struct run r;
  char *path = file_join(*state, "head.json");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    run_init(&r, *state, "out");
    layout_of(&r, path);
    r.params.heads = cases[i].heads;
    free(scratch_write(*state, "head.json", cases[i].config));
    assert_failed_with(run_go(&r), cases[i].status, &r.err, cases[i].words);
    run_clear(&r);
  }
  run_init(&r, *state, "out");
  layout_of(&r, path);
  free(scratch_write(*state, "head.json", LAYOUT(", \"eagle_aux_hidden_state_layer_ids\": [2, 4, 5]")));
  r.params.states = "2,4,6";
  assert_failed_with(run_go(&r), EAGLET_E_USAGE, &r.err, "--states");
  r.params.states = NULL;
  r.params.rope_theta = 20000;
  assert_failed_with(run_go(&r), EAGLET_E_USAGE, &r.err, "--rope-theta: --head-config has 10000, found 20000"); /* F05 */
  r.params.init = r.out;
  assert_failed_with(run_go(&r), EAGLET_E_USAGE, &r.err, "--head-config");
  free(path);
  run_clear(&r);
}

int main(void) {
#define RUN(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_remove)
  const struct CMUnitTest tests[] = {RUN(test_learns),
                                     RUN(test_resume_is_exact),
                                     RUN(test_interruption_saves),
                                     RUN(test_refusals),
                                     RUN(test_micro_batches_do_not_matter),
                                     RUN(test_nothing_in_vocabulary),
                                     RUN(test_stored_equals_live),
                                     RUN(test_warm_start),
                                     RUN(test_stale_vocabulary),
                                     RUN(test_not_a_number),
                                     RUN(test_layouts),
                                     RUN(test_layout_refusals)};
  return cmocka_run_group_tests_name("trainer", tests, NULL, NULL);
}
