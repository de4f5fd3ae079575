/* settings.c - see settings.h. */
#include "train/settings.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "train/recipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void int_default(int32_t *value, int32_t fallback) {
  if (*value == 0) *value = fallback;
}

static enum eaglet_status check(const struct eaglet_train_params *s, struct eaglet_error *err) {
  const struct {
    const char *name;
    int32_t value, least, most;
  } ints[] = {{"steps", s->steps, 0, INT32_MAX},
              {"epochs", s->epochs, 1, INT32_MAX},
              {"batch", s->batch, 1, INT32_MAX},
              {"micro-tokens", s->micro_tokens, 1, 1 << 24},
              {"unroll", s->unroll, 1, UNROLL_MAX},
              {"warmup", s->warmup, 1, INT32_MAX},
              {"save-every", s->save_every, 1, INT32_MAX},
              {"stop-after", s->stop_after, 0, INT32_MAX},
              {"eval-every", s->eval_every, 0, INT32_MAX},
              {"eval-max", s->eval_prompts_max, 1, INT32_MAX},
              {"heads", s->heads, 0, 1 << 16},
              {"kv-heads", s->kv_heads, 0, 1 << 16},
              {"head-dim", s->head_dim, 0, 1 << 16},
              {"intermediate", s->intermediate, 0, 1 << 24}};
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
    if (ints[i].value < ints[i].least || ints[i].value > ints[i].most) {
      FAIL(err, EAGLET_E_USAGE, "--%s: expected %d..%d, found %d", ints[i].name, ints[i].least, ints[i].most,
           ints[i].value);
    }
  }
  const struct {
    const char *name;
    double value, least, most;
  } doubles[] = {{"decay", s->decay, 0, 1},
                 {"lr", s->lr, 0, 1e3},
                 {"beta1", s->beta1, 0, 0.999999},
                 {"beta2", s->beta2, 0, 0.9999999},
                 {"weight-decay", s->weight_decay, 0, 1e3},
                 {"clip", s->clip, 0, INFINITY},
                 {"rope-theta", s->rope_theta, s->init || s->head_config ? 0 : 1, 1e15}};
  for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
    if (!(doubles[i].value >= doubles[i].least && doubles[i].value <= doubles[i].most)) {
      FAIL(err, EAGLET_E_USAGE, "--%s: expected %g..%g, found %g", doubles[i].name, doubles[i].least, doubles[i].most,
           doubles[i].value);
    }
  }
  return EAGLET_OK;
}

enum eaglet_status settings_resolve(struct eaglet_train_params *s, const struct eaglet_train_params *params,
                                    struct eaglet_error *err) {
  *s = *params;
  int_default(&s->epochs, 1);
  int_default(&s->batch, 64);
  int_default(&s->micro_tokens, 4096);
  int_default(&s->unroll, 7);
  int_default(&s->warmup, 50);
  int_default(&s->save_every, 100);
  int_default(&s->eval_prompts_max, 60);
  settings_default(&s->decay, 0.8);
  settings_default(&s->lr, 1e-3);
  settings_default(&s->beta1, 0.9);
  settings_default(&s->beta2, 0.95);
  settings_default(&s->clip, 0.5);
  if (!s->init && !s->head_config) settings_default(&s->rope_theta, 10000); /* else it is the layout's */
  if (!s->data) FAIL(err, EAGLET_E_USAGE, "--data: expected a directory written by prepare, found nothing");
  if (!s->out) FAIL(err, EAGLET_E_USAGE, "--out: expected a directory, found nothing");
  TRY(check(s, err));
  return recipe_resolve(s, err);
}

static void states_text(char *text, size_t size, const struct head_config *config) {
  size_t length = 0;
  text[0] = 0;
  for (int32_t i = 0; i < config->n_states && length < size; i++) {
    length += (size_t)snprintf(text + length, size - length, "%s%d", i ? "," : "", config->states[i]);
  }
}

json_t *settings_identity(const struct eaglet_train_params *s, const struct head_config *c) {
  char states[128];
  states_text(states, sizeof states, c);
  json_t *identity = json_object();
  const struct {
    const char *name;
    int64_t value;
  } ints[] = {{"--steps", s->steps},       {"--epochs", s->steps ? 0 : s->epochs},
              {"--batch", s->batch},       {"--micro-tokens", s->micro_tokens},
              {"--unroll", s->unroll},     {"--warmup", s->warmup},
              {"--heads", c->n_heads},     {"--kv-heads", c->n_kv_heads},
              {"--head-dim", c->head_dim}, {"--intermediate", c->intermediate}};
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
    json_object_set_new(identity, ints[i].name, json_integer(ints[i].value));
  const struct {
    const char *name;
    double value;
  } doubles[] = {{"--decay", s->decay},
                 {"--lr", s->lr},
                 {"--beta1", s->beta1},
                 {"--beta2", s->beta2},
                 {"--weight-decay", s->weight_decay},
                 {"--clip", s->clip},
                 {"--rope-theta", c->rope.theta}};
  for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
    json_object_set_new(identity, doubles[i].name, json_real(doubles[i].value));
  recipe_identity(identity, s);
  char seed[24];
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)s->seed);
  json_object_set_new(identity, "--seed", json_string(seed));
  json_object_set_new(identity, "--states", json_string(states));
  return identity;
}

static void add_string(struct buffer *out, const char *name, const char *value) {
  if (value)
    buffer_format(out, "%s = %s\n", name, value);
  else
    buffer_format(out, "# %s = (none)\n", name);
}

static void add_count(struct buffer *out, const char *name, int32_t value) {
  buffer_format(out, value ? "%s = %d\n" : "# %s = %d (off)\n", name, value);
}

enum eaglet_status settings_write_ini(const struct eaglet_train_params *s, const struct head_config *c,
                                      struct eaglet_error *err) {
  char states[128];
  states_text(states, sizeof states, c);
  struct buffer out;
  buffer_init(&out);
  buffer_format(&out, "# resolved settings; model %s\n[train]\n", s->model);
  add_string(&out, "data", s->data);
  add_string(&out, "out", s->out);
  add_string(&out, "features", s->features);
  if (s->features_partial) buffer_append_string(&out, "features-partial = true\n");
  add_string(&out, "vocab", s->vocab);
  add_string(&out, "init", s->init);
  add_string(&out, "head-config", s->head_config);
  if (s->recompute) buffer_format(&out, "recompute = true\n");
  add_string(&out, "states", states);
  add_count(&out, "steps", s->steps);
  buffer_format(&out, "epochs = %d\nbatch = %d\nmicro-tokens = %d\nunroll = %d\ndecay = %.17g\n", s->epochs, s->batch,
                s->micro_tokens, s->unroll, s->decay);
  buffer_format(&out, "lr = %.17g\nwarmup = %d\nbeta1 = %.17g\nbeta2 = %.17g\nweight-decay = %.17g\nclip = %.17g\n",
                s->lr, s->warmup, s->beta1, s->beta2, s->weight_decay, s->clip);
  recipe_write(&out, s);
  buffer_format(&out, "heads = %d\nkv-heads = %d\nhead-dim = %d\nintermediate = %d\nrope-theta = %.17g\n", c->n_heads,
                c->n_kv_heads, c->head_dim, c->intermediate, c->rope.theta);
  buffer_format(&out, "seed = %llu\n", (unsigned long long)s->seed);
  add_string(&out, "eval-prompts", s->eval_prompts);
  add_count(&out, "eval-every", s->eval_every);
  buffer_format(&out, "eval-max = %d\nsave-every = %d\n", s->eval_prompts_max, s->save_every);
  char *path = file_join(s->out, "run.ini");
  enum eaglet_status status = file_write(path, out.data, out.length, err);
  free(path);
  buffer_clear(&out);
  return status;
}
