/* head_init.c - see head_init.h. */
#include "train/head_init.h"

#include "base/memory.h"
#include "base/util.h"
#include "draft/head_convert.h"

#include <math.h>
#include <stdlib.h>

enum eaglet_status head_states_parse(int32_t *states, int32_t *n_states, const char *text, const struct features *f,
                                     struct eaglet_error *err) {
  *n_states = 0;
  if (!text || strcmp(text, "auto") == 0) {
    *n_states = model_default_states(f, states);
    return EAGLET_OK;
  }
  for (const char *at = text;;) {
    char *end;
    long state = strtol(at, &end, 10);
    if (end == at || (*end && *end != ','))
      FAIL(err, EAGLET_E_USAGE, "states '%s': expected numbers like 2,4,5, found '%s'", text, at);
    if (state < 0 || state > f->n_layers)
      FAIL(err, EAGLET_E_USAGE, "states '%s': expected 0..%d, found %ld", text, f->n_layers, state);
    if (*n_states > 0 && state <= states[*n_states - 1])
      FAIL(err, EAGLET_E_USAGE, "states '%s': expected ascending numbers, found %ld after %d", text, state,
           states[*n_states - 1]);
    if (*n_states == TAPS_MAX - 1)
      FAIL(err, EAGLET_E_USAGE, "states '%s': expected at most %d numbers", text, TAPS_MAX - 1);
    states[(*n_states)++] = (int32_t)state;
    if (!*end) return EAGLET_OK;
    at = end + 1;
  }
}

enum eaglet_status head_config_new(struct head_config *c, const struct eaglet_train_params *p,
                                   const struct model *target, int32_t n_draft, struct eaglet_error *err) {
  const struct features *f = &target->arch.features;
  bool latent = f->attention == ATTENTION_MLA;
  *c = (struct head_config){.hidden = f->hidden,
                            .target_hidden = f->hidden,
                            .n_target = f->n_vocab,
                            .n_draft = n_draft,
                            .norm_eps = f->norm_eps,
                            .positions_max = f->positions_max};
  TRY(head_states_parse(c->states, &c->n_states, p->states, f, err));
  c->n_heads = or_default(p->heads, f->n_heads);
  int32_t kv_heads = latent || p->heads > 0 ? (c->n_heads % 2 == 0 ? c->n_heads / 2 : c->n_heads) : f->n_kv_heads;
  c->n_kv_heads = or_default(p->kv_heads, kv_heads);
  int32_t even = f->hidden / c->n_heads / 2 * 2;
  c->head_dim = or_default(p->head_dim, latent || p->heads > 0 ? (even > 0 ? even : 2) : f->head_dim);
  c->intermediate = or_default(p->intermediate, f->intermediate);
  if (c->n_heads % c->n_kv_heads != 0)
    FAIL(err, EAGLET_E_USAGE, "head: expected heads divisible by key/value heads, found %d and %d", c->n_heads,
         c->n_kv_heads);
  if (c->head_dim % 2 != 0)
    FAIL(err, EAGLET_E_USAGE, "head: head dimension: expected an even number, found %d", c->head_dim);
  c->rope = (struct rope_features){
      .scaling = ROPE_SCALING_NONE, .style = ROPE_HALF, .dim = c->head_dim, .theta = p->rope_theta};
  return EAGLET_OK;
}

enum eaglet_status head_config_check(const struct head_config *c, const struct eaglet_train_params *p, const char *from,
                                     struct eaglet_error *err) {
  const struct {
    const char *name;
    int32_t asked, own;
  } sizes[] = {{"heads", p->heads, c->n_heads},
               {"kv-heads", p->kv_heads, c->n_kv_heads},
               {"head-dim", p->head_dim, c->head_dim},
               {"intermediate", p->intermediate, c->intermediate}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    if (sizes[i].asked && sizes[i].asked != sizes[i].own)
      FAIL(err, EAGLET_E_USAGE, "--%s: %s has %d, found %d", sizes[i].name, from, sizes[i].own, sizes[i].asked);
  }
  if (p->rope_theta != 0 && p->rope_theta != c->rope.theta)
    FAIL(err, EAGLET_E_USAGE, "--rope-theta: %s has %g, found %g", from, c->rope.theta, p->rope_theta);
  return EAGLET_OK;
}

enum eaglet_status head_config_serve(const struct head_config *c, const char *from, struct eaglet_error *err) {
  const char *unread = head_unread(c, c->own_embed, c->dialect);
  if (c->embed_trained && c->dialect == HEAD_DIALECT_SGLANG && c->hidden == c->target_hidden)
    FAIL(err, EAGLET_E_INPUT,
         "%s: embed_requires_grad: SGLang's loader replaces a head's embedding by the target's, so one that learns would be lost; "
         "use another dialect (docs/HEADS.md)",
         from);
  if (unread) log_warning("%s: %s is trained, but the loader of its dialect does not read that; eaglet does", from, unread);
  return EAGLET_OK;
}

static enum eaglet_status check_states(const struct head_config *c, const struct eaglet_train_params *p, const struct features *f,
                                       struct eaglet_error *err) {
  int32_t states[TAPS_MAX], n;
  if (!p->states || strcmp(p->states, "auto") == 0) return EAGLET_OK;
  TRY(head_states_parse(states, &n, p->states, f, err));
  if (n == c->n_states && memcmp(states, c->states, sizeof *states * (size_t)n) == 0) return EAGLET_OK;
  FAIL(err, EAGLET_E_USAGE, "--states %s: %s has others; leave one of the two out", p->states, p->head_config);
}

enum eaglet_status head_config_from_file(struct head_config *c, const struct eaglet_train_params *p, const struct model *target,
                                         int32_t n_draft, struct eaglet_error *err) {
  const struct features *f = &target->arch.features;
  json_t *json;
  TRY(json_parse_file(&json, p->head_config, err));
  enum eaglet_status status = head_config_read(c, json, f, p->head_config, err);
  if (status == EAGLET_OK) status = head_config_complete(c, json, p->head_config, err);
  if (status == EAGLET_OK) head_config_remark(c, json, f, p->head_config);
  bool says = json_object_get(json, "draft_vocab_size") != NULL;
  json_decref(json);
  TRY(status);
  if (says && c->n_draft != n_draft)
    FAIL(err, EAGLET_E_INPUT, "%s: draft_vocab_size: the draft vocabulary (--vocab) has %d, found %d", p->head_config, n_draft, c->n_draft);
  c->n_draft = n_draft;
  if (c->tied && n_draft != c->n_target)
    FAIL(err, EAGLET_E_INPUT, "%s: tie_word_embeddings: a draft vocabulary of %d has no rows of an embedding of %d", p->head_config, n_draft,
         c->n_target);
  TRY(head_config_check(c, p, "--head-config", err));
  TRY(check_states(c, p, f, err));
  return EAGLET_OK;
}

static void fill_uniform(float *to, const int64_t shape[2], uint64_t seed, uint64_t stream) {
  double bound = 1.0 / sqrt((double)shape[1]);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < shape[0] * shape[1]; i++)
    to[i] = (float)((2.0 * random_uniform(seed, stream, (uint64_t)i) - 1.0) * bound);
}

/* Rows of a table of the target's, those of the draft vocabulary or all. */
static void copy_rows(float *to, const struct weight *table, const int32_t *ids, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) weight_row_to_f32(table, ids ? ids[i] : (int32_t)i, to + i * table->n_in);
}

void head_parameters_init(float *parameters, const struct head_config *c, const struct model *target,
                          const struct vocab_map *map, uint64_t seed) {
  struct head_parameters *list = memory_alloc(sizeof *list);
  head_parameters_list(list, c);
  memset(parameters, 0, sizeof(float) * (size_t)list->total);
  for (int32_t i = 0; i < list->n; i++) {
    const struct head_parameter *p = &list->list[i];
    float *to = parameters + p->offset;
    bool same_width = p->columns == target->embed.n_in;
    if (p->part == HEAD_EMBED && same_width)
      copy_rows(to, &target->embed, NULL, p->rows);
    else if (p->part == HEAD_LM_HEAD && same_width)
      copy_rows(to, p->borrowed ? &target->embed : &target->head, map->target, p->rows);
    else if (head_part_is_norm(p->part))
      for (int64_t k = 0; k < p->rows; k++) to[k] = 1.0f;
    else if (!head_part_is_bias(p->part))
      fill_uniform(to, (const int64_t[]){p->rows, p->columns}, seed, 0x68656164u + (uint64_t)i);
  }
  free(list);
}
