/* arch_layers.c - what differs between the layers of one decoder: windows, chunks, rope; see arch_features.h. A layer_types list
 * decides where there is one; the families' older rules (patterns, intervals, thresholds) stand behind it. */
#include "model/arch_features.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* What a layer attends to. */
enum reach { REACH_ALL, REACH_WINDOW, REACH_CHUNK };

/* The windows of a decoder before they are given to layers. */
struct window_facts {
  int32_t window, chunk;       /* 0: none */
  int32_t pattern;             /* every pattern-th layer sees everything; 0: none does */
  const char *letters;         /* "LLLG": L window, G everything; or NULL */
  int32_t from_layer;          /* layers below see everything */
  struct field_place field;    /* sliding_window */
  bool given;                  /* the config has a value that is not null */
};

static int32_t read_window_size(struct field_reader *reader, const struct tensor_facts *facts, struct window_facts *w) {
  const struct arch_row *row = reader->arch->row;
  w->field = field_find(reader, "sliding_window");
  /* Class default: a config that leaves the field out means it; a null is "none" and json_object_get tells them apart. */
  bool silent = !json_object_get(reader->levels[0], "sliding_window");
  w->given = w->field.value || (silent && !facts->fingerprinted && row->window_default > 0);
  if (w->field.value && json_is_integer(w->field.value) && json_integer_value(w->field.value) < 0) return 0;
  if (w->field.value) return field_int(reader, "sliding_window", 0);
  return silent && !facts->fingerprinted ? row->window_default : 0;
}

static void read_flagged(struct field_reader *reader, struct window_facts *w) {
  const struct arch_row *row = reader->arch->row;
  bool use = field_bool(reader, "use_sliding_window", false);
  w->from_layer = field_int(reader, "max_window_layers", row->window_layers);
  if (!use) w->window = 0;
  if (use && row->moe != MOE_NONE && row->window_layers > 0 && !field_find(reader, "layer_types").value)
    field_fail(reader, "use_sliding_window: without layer_types not supported for %s", reader->arch->features.row);
}

static void read_pattern(struct field_reader *reader, struct window_facts *w) {
  struct field_place place = field_find(reader, "sliding_window_pattern|_sliding_window_pattern");
  w->pattern = reader->arch->row->window_pattern;
  if (place.value && json_is_string(place.value))
    w->letters = json_string_value(place.value);
  else if (place.value)
    w->pattern = field_int(reader, "sliding_window_pattern|_sliding_window_pattern", w->pattern);
  if (w->letters && strspn(w->letters, "LG") != strlen(w->letters))
    field_fail(reader, "%s: expected letters L and G, found \"%s\"", place.from, w->letters);
  if (w->letters && !w->letters[0]) w->letters = NULL;
}

static struct window_facts read_windows(struct field_reader *reader, const struct tensor_facts *facts) {
  const struct arch_row *row = reader->arch->row;
  struct window_facts w = {.window = 0};
  w.window = read_window_size(reader, facts, &w);
  switch (row->window) {
  case WINDOW_NONE:
    if (w.window > 0 && w.field.value && !field_find(reader, "layer_types").value)
      field_fail(reader, "%s: a sliding window is not supported for %s", w.field.from, reader->arch->features.row);
    break;
  case WINDOW_FIELD:
    break;
  case WINDOW_FLAGGED:
    read_flagged(reader, &w);
    break;
  case WINDOW_AFTER:
    w.from_layer = field_int(reader, "max_window_layers", row->window_layers);
    break;
  case WINDOW_PATTERN:
    read_pattern(reader, &w);
    break;
  case WINDOW_UNROTATED:
    if (!field_bool(reader, "use_sliding_window", false)) w.window = 0;
    break;
  case WINDOW_CHUNKED:
    w.chunk = field_int(reader, "attention_chunk_size", 8192);
    break;
  }
  /* Written by every version of the reference library, whether the family uses them or not. */
  field_accept(reader, "use_sliding_window|max_window_layers|attention_chunk_size");
  return w;
}

/* The family's rule for one layer. */
static enum reach rule_reach(const struct arch_row *row, const struct window_facts *w, int32_t layer, bool rotated) {
  switch (row->window) {
  case WINDOW_NONE:
    return REACH_ALL;
  case WINDOW_FIELD:
    return REACH_WINDOW;
  case WINDOW_FLAGGED:
  case WINDOW_AFTER:
    return layer >= w->from_layer ? REACH_WINDOW : REACH_ALL;
  case WINDOW_PATTERN:
    if (w->letters) return w->letters[(size_t)layer % strlen(w->letters)] == 'L' ? REACH_WINDOW : REACH_ALL;
    return w->pattern > 0 && (layer + 1) % w->pattern == 0 ? REACH_ALL : REACH_WINDOW;
  case WINDOW_UNROTATED:
    return rotated ? REACH_ALL : REACH_WINDOW;
  case WINDOW_CHUNKED:
    return rotated ? REACH_CHUNK : REACH_ALL;
  }
  return REACH_ALL;
}

static enum reach listed_reach(struct field_reader *reader, const struct field_place *types, int32_t layer) {
  const char *text = json_string_value(json_array_get(types->value, (size_t)layer));
  if (!text) text = "?";
  if (strcmp(text, "sliding_attention") == 0) return REACH_WINDOW;
  if (strcmp(text, "chunked_attention") == 0) return REACH_CHUNK;
  if (strcmp(text, "full_attention") == 0 ||
      (strcmp(text, "deepseek_sparse_attention") == 0 && reader->arch->row->index_topk))
    return REACH_ALL;
  field_fail(reader, "%s[%d]: attention type \"%s\" is not supported", types->from, layer, text);
  return REACH_ALL;
}

/* no_rope_layers: 1 rotates, 0 does not. */
static bool is_rotated(struct field_reader *reader, const struct field_place *list, int32_t interval, int32_t layer) {
  if (reader->arch->row->rope != ROPE_LISTED) return true;
  if (!list->value || json_array_size(list->value) == 0) return interval <= 0 || (layer + 1) % interval != 0;
  const json_t *value = json_array_get(list->value, (size_t)layer);
  if (!json_is_integer(value) && !json_is_boolean(value))
    field_fail(reader, "%s: expected 0 or 1 for each of %d layers", list->from, reader->arch->features.n_layers);
  return json_is_true(value) || json_integer_value(value) != 0;
}

static void set_reach(struct field_reader *reader, struct layer_features *layer, enum reach reach,
                      const struct window_facts *w) {
  if (reach == REACH_WINDOW) layer->window = w->window;
  if (reach == REACH_CHUNK) layer->chunk = w->chunk;
  if (reach == REACH_CHUNK && reader->arch->row->window != WINDOW_CHUNKED)
    field_fail(reader, "layer_types: chunked_attention is not supported for %s", reader->arch->features.row);
}

static void set_rope(const struct features *f, const struct arch_row *row, struct layer_features *layer, bool rotated,
                     bool windowed, bool any_window) {
  layer->rope = f->n_ropes > 1 && windowed ? 1 : 0;
  if (!rotated || row->rope == ROPE_LEARNED) layer->rope = -1;
  if (row->rope == ROPE_WINDOWED && !(windowed && any_window)) layer->rope = -1;
  if (row->rope == ROPE_WINDOWED_IF_ANY && any_window && !windowed) layer->rope = -1;
  layer->scale_queries = f->query_scale.beta != 0 && (row->rope != ROPE_LISTED || !rotated);
}

/* "4 of 6 layers" for inspect. */
static void note_windows(struct field_reader *reader, const struct window_facts *w) {
  const struct features *f = &reader->arch->features;
  int32_t windowed = 0, chunked = 0, unrotated = 0;
  for (int32_t i = 0; i < f->n_layers; i++) {
    windowed += f->layers[i].window > 0;
    chunked += f->layers[i].chunk > 0;
    unrotated += f->layers[i].rope < 0;
  }
  char text[96];
  snprintf(text, sizeof text, "on %d of %d layers", windowed, f->n_layers);
  field_note(reader, "window", json_integer(windowed > 0 ? w->window : 0), w->field.value ? text : "default");
  snprintf(text, sizeof text, "on %d of %d layers", chunked, f->n_layers);
  if (chunked > 0) field_note(reader, "chunk", json_integer(w->chunk), text);
  if (unrotated > 0 && f->n_ropes > 0) field_note(reader, "layers_without_rope", json_integer(unrotated), "derived");
}

void arch_read_layers(struct field_reader *reader, const struct tensor_facts *facts) {
  struct features *f = &reader->arch->features;
  const struct arch_row *row = reader->arch->row;
  const struct window_facts w = read_windows(reader, facts);
  struct field_place types = field_find(reader, "layer_types"), list = field_find(reader, "no_rope_layers"),
                     cross = field_find(reader, "cross_attention_layers");
  int32_t interval = row->rope == ROPE_LISTED ? field_int(reader, "no_rope_layer_interval", 4) : 0;
  if (reader->status != EAGLET_OK) return;
  if (types.value && (!json_is_array(types.value) || json_array_size(types.value) < (size_t)f->n_layers)) {
    field_fail(reader, "%s: expected %d entries, found %zu", types.from, f->n_layers, json_array_size(types.value));
    return;
  }
  f->layers = memory_alloc((size_t)f->n_layers * sizeof *f->layers);
  for (int32_t i = 0; i < f->n_layers && reader->status == EAGLET_OK; i++) {
    struct layer_features *layer = &f->layers[i];
    bool rotated = is_rotated(reader, &list, interval, i);
    layer->skip = list_has_layer(cross.value, i);
    enum reach reach = types.value ? listed_reach(reader, &types, i) : rule_reach(row, &w, i, rotated);
    bool asks = reach == REACH_WINDOW && types.value && w.window <= 0 && row->window != WINDOW_FLAGGED &&
                row->window != WINDOW_UNROTATED;
    if (asks) field_fail(reader, "%s: asks for sliding attention, but there is no sliding_window", types.from);
    set_reach(reader, layer, reach, &w);
    set_rope(f, row, layer, rotated, reach == REACH_WINDOW, w.given);
  }
  if (reader->status == EAGLET_OK) note_windows(reader, &w);
}
