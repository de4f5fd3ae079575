/* jinja_sequence.c - filters on sequences and dictionaries: sizes, ends, order, selection, mapping, joining. */
#include "text/jinja_internal.h"

#include <stdlib.h>
#include <string.h>

#define FILTER(name) \
  static struct jinja_value filter_##name(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args)

static bool flag(struct jinja_interp *interp, struct jinja_value value, bool fallback) {
  return is_absent(value) ? fallback : value_truth(interp, value);
}

static struct jinja_value generator(struct jinja_interp *interp) {
  struct jinja_value list = value_list(interp, 0);
  list.list->is_generator = true;
  return list;
}

struct jinja_value value_path(struct jinja_interp *interp, struct jinja_value value, struct jinja_value path) {
  if (!is_given(path)) return value;
  if (path.type != JINJA_STRING) return value_item(interp, value, path);
  const char *part = path.string->data;
  while (!jinja_failed(interp)) {
    size_t n = strcspn(part, ".");
    bool is_index = n > 0 && strspn(part, "0123456789") >= n;
    value = value_item(interp, value, is_index ? value_int(strtoll(part, NULL, 10)) : value_text(interp, part, n));
    if (!part[n]) break;
    part += n + 1;
  }
  return value;
}

/* ---- sizes and ends ---- */

FILTER(length) { (void)args; return value_int(value_length(interp, self)); }

FILTER(list) {
  (void)args;
  const struct jinja_list *items = value_iterate(interp, self);
  struct jinja_value list = value_list(interp, items->n);
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++) list_append(interp, list.list, items->items[i]);
  return list;
}

FILTER(first) {
  (void)args;
  const struct jinja_list *items = value_iterate(interp, self);
  return items->n ? items->items[0] : value_undefined(interp, "No first item, sequence was empty.");
}

FILTER(last) {
  (void)args;
  const struct jinja_list *items = value_iterate(interp, self);
  return items->n ? items->items[items->n - 1] : value_undefined(interp, "No last item, sequence was empty.");
}

FILTER(reverse) {
  (void)args;
  if (self.type == JINJA_STRING)
    return value_slice(interp, self, (struct jinja_value[3]){value_none(), value_none(), value_int(-1)});
  const struct jinja_list *items = value_iterate(interp, self);
  struct jinja_value list = generator(interp);
  for (size_t i = items->n; i-- > 0 && !jinja_failed(interp);) list_append(interp, list.list, items->items[i]);
  return list;
}

FILTER(items) {
  if (self.type == JINJA_UNDEFINED) return generator(interp);
  if (self.type != JINJA_DICT) return jinja_fail(interp, "Can only get item pairs from a mapping.");
  struct jinja_value list = call_row(interp, method_find(JINJA_DICT, "items", 5), "filter", self, args);
  list.list->is_generator = true;
  return list;
}

FILTER(join) {
  const struct jinja_list *items = value_iterate(interp, self);
  struct jinja_value separator = is_absent(args->values[0]) ? value_literal(interp, "") : value_string(interp, args->values[0]);
  struct jinja_sink sink = {0};
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++) {
    if (i) sink_string(interp, &sink, separator.string);
    sink_value(interp, &sink, value_path(interp, items->items[i], args->values[1]));
  }
  return sink_finish(interp, &sink);
}

FILTER(batch) {
  int64_t size;
  if (!value_is_int(args->values[0], &size) || size < 1) return jinja_fail(interp, "batch: expected a positive size");
  const struct jinja_list *items = value_iterate(interp, self);
  struct jinja_value list = generator(interp), row = value_list(interp, 0);
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++) {
    list_append(interp, row.list, items->items[i]);
    if ((int64_t)row.list->n < size && i + 1 < items->n) continue;
    while ((int64_t)row.list->n < size && is_given(args->values[1]) && !jinja_failed(interp)) list_append(interp, row.list, args->values[1]);
    list_append(interp, list.list, row);
    row = value_list(interp, 0);
  }
  return list;
}

/* ---- order ---- */

struct sort_key {
  struct jinja_value key, item;
};

/* Case-insensitive unless asked: strings are compared in lower case. */
static struct jinja_value fold(struct jinja_interp *interp, struct jinja_value value, bool case_sensitive) {
  return value.type == JINJA_STRING && !case_sensitive ? string_case(interp, value.string, CASE_LOWER) : value;
}

/* Stable merge sort, bottom up; comparisons may fail, which ends it. */
static void sort_keys(struct jinja_interp *interp, struct sort_key *keys, size_t n, bool reverse) {
  struct sort_key *from = keys, *to = pool_take(&interp->pool, (n + 1) * sizeof *to);
  jinja_charge(interp, n * sizeof *to);
  for (size_t width = 1; width < n && !jinja_failed(interp); width *= 2) {
    for (size_t begin = 0; begin < n; begin += 2 * width) {
      size_t middle = begin + width < n ? begin + width : n, end = begin + 2 * width < n ? begin + 2 * width : n;
      size_t i = begin, j = middle;
      for (size_t k = begin; k < end; k++) {
        bool right = i == middle;
        if (i < middle && j < end) {
          bool same = value_equal(interp, from[i].key, from[j].key); /* Python compares lists of keys: equality first */
          int order = same ? 0 : value_compare(interp, from[i].key, from[j].key);
          right = reverse ? order < 0 : order > 0;
        }
        to[k] = right ? from[j++] : from[i++];
      }
    }
    struct sort_key *swap = from;
    from = to;
    to = swap;
  }
  if (from != keys) memcpy(keys, from, n * sizeof *keys);
}

static struct sort_key *keys_of(struct jinja_interp *interp, const struct jinja_list *items, struct jinja_value path, bool case_sensitive) {
  struct sort_key *keys = pool_take(&interp->pool, (items->n + 1) * sizeof *keys);
  jinja_charge(interp, items->n * sizeof *keys);
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++)
    keys[i] = (struct sort_key){fold(interp, value_path(interp, items->items[i], path), case_sensitive), items->items[i]};
  return keys;
}

FILTER(sort) {
  const struct jinja_list *items = value_iterate(interp, self);
  struct sort_key *keys = keys_of(interp, items, args->values[2], flag(interp, args->values[1], false));
  if (!jinja_failed(interp)) sort_keys(interp, keys, items->n, flag(interp, args->values[0], false));
  struct jinja_value list = value_list(interp, items->n);
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++) list_append(interp, list.list, keys[i].item);
  return list;
}

FILTER(dictsort) {
  if (self.type != JINJA_DICT) return jinja_fail(interp, "dictsort: expected a dict, found %s", value_type_name(self));
  struct jinja_value pairs = call_row(interp, method_find(JINJA_DICT, "items", 5), "filter", self, &(struct jinja_args){0});
  bool by_value = args->values[1].type == JINJA_STRING && strcmp(args->values[1].string->data, "value") == 0;
  struct jinja_value values[3] = {args->values[2], args->values[0], value_int(by_value)};
  return filter_sort(interp, pairs, &(struct jinja_args){.values = values, .n = 3});
}

FILTER(unique) {
  const struct jinja_list *items = value_iterate(interp, self);
  struct sort_key *keys = keys_of(interp, items, args->values[1], flag(interp, args->values[0], false));
  struct jinja_value list = generator(interp), seen = value_list(interp, 0);
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++) {
    if (value_contains(interp, seen, keys[i].key)) continue;
    list_append(interp, seen.list, keys[i].key);
    list_append(interp, list.list, items->items[i]);
  }
  return list;
}

static struct jinja_value extreme(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args, int sign) {
  const struct jinja_list *items = value_iterate(interp, self);
  struct sort_key *keys = keys_of(interp, items, args->values[1], flag(interp, args->values[0], false));
  if (items->n == 0) return value_undefined(interp, "No aggregated item, sequence was empty.");
  size_t best = 0;
  for (size_t i = 1; i < items->n && !jinja_failed(interp); i++)
    if (value_compare(interp, keys[i].key, keys[best].key) * sign > 0) best = i;
  return items->items[best];
}

FILTER(min) { return extreme(interp, self, args, -1); }
FILTER(max) { return extreme(interp, self, args, 1); }

FILTER(sum) {
  const struct jinja_list *items = value_iterate(interp, self);
  struct jinja_value total = is_absent(args->values[1]) ? value_int(0) : args->values[1];
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++)
    total = value_binary(interp, OP_ADD, total, value_path(interp, items->items[i], args->values[0]));
  return total;
}

FILTER(groupby) {
  struct jinja_value sort_args[3] = {value_bool(false), value_bool(false), args->values[0]};
  struct jinja_value sorted = filter_sort(interp, self, &(struct jinja_args){.values = sort_args, .n = 3});
  struct jinja_value groups = value_list(interp, 0), previous = value_none(), members = value_none();
  if (jinja_failed(interp)) return groups;
  for (size_t i = 0; i < sorted.list->n && !jinja_failed(interp); i++) {
    struct jinja_value key = fold(interp, value_path(interp, sorted.list->items[i], args->values[0]), false);
    if (i == 0 || !value_equal(interp, key, previous)) {
      members = value_list(interp, 0);
      struct jinja_value pair[2] = {value_path(interp, sorted.list->items[i], args->values[0]), members};
      list_append(interp, groups.list, value_tuple(interp, pair, 2));
    }
    list_append(interp, members.list, sorted.list->items[i]);
    previous = key;
  }
  return groups;
}

/* ---- map and select ---- */

static const struct jinja_value *named(const struct jinja_args *args, const char *name) {
  for (size_t i = 0; i < args->n_named; i++)
    if (strcmp(args->named[i].name->data, name) == 0) return &args->named[i].value;
  return NULL;
}

FILTER(map) {
  const struct jinja_value *attribute = named(args, "attribute"), *fallback = named(args, "default");
  if (!value_truth(interp, self)) return generator(interp); /* None too, as Python's */
  const struct jinja_list *items = value_iterate(interp, self);
  struct jinja_value list = generator(interp);
  const struct jinja_row *row = NULL;
  struct jinja_args rest = *args;
  if (!attribute) {
    if (args->n == 0 || args->values[0].type != JINJA_STRING) return jinja_fail(interp, "map requires a filter argument");
    row = filter_find(args->values[0].string->data, args->values[0].string->length);
    if (!row) return jinja_fail(interp, "No filter named '%.60s'.", args->values[0].string->data);
    rest.values++;
    rest.n--;
  }
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++) {
    struct jinja_value value = row ? call_row(interp, row, "filter", items->items[i], &rest)
                                   : value_path(interp, items->items[i], *attribute);
    if (!row && value.type == JINJA_UNDEFINED && fallback) value = *fallback;
    list_append(interp, list.list, value);
  }
  return list;
}

/* select, reject: by a test of the item (or its truth); selectattr, rejectattr: of an attribute. */
static struct jinja_value select_items(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args, bool wanted,
                                       bool by_attribute) {
  if (!value_truth(interp, self)) return generator(interp);
  const struct jinja_list *items = value_iterate(interp, self);
  struct jinja_value list = generator(interp), path = {.type = JINJA_ABSENT};
  struct jinja_args rest = *args;
  if (by_attribute) {
    if (rest.n == 0) return jinja_fail(interp, "missing parameter 'attribute'");
    path = *rest.values++;
    rest.n--;
  }
  const struct jinja_row *row = NULL;
  if (rest.n) {
    if (rest.values[0].type == JINJA_STRING) row = test_find(rest.values[0].string->data, rest.values[0].string->length);
    if (!row) return jinja_fail(interp, "No test named '%.60s'.", value_string(interp, rest.values[0]).string->data);
    rest.values++;
    rest.n--;
  }
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++) {
    struct jinja_value value = value_path(interp, items->items[i], path);
    if (row) value = call_row(interp, row, "test", value, &rest);
    if (value_truth(interp, value) == wanted) list_append(interp, list.list, items->items[i]);
  }
  return list;
}

FILTER(select) { return select_items(interp, self, args, true, false); }
FILTER(reject) { return select_items(interp, self, args, false, false); }
FILTER(selectattr) { return select_items(interp, self, args, true, true); }
FILTER(rejectattr) { return select_items(interp, self, args, false, true); }

const struct jinja_row jinja_sequence_filters[] = {
    {"length", "", 0, filter_length},
    {"count", "", 0, filter_length},
    {"list", "", 0, filter_list},
    {"first", "", 0, filter_first},
    {"last", "", 0, filter_last},
    {"reverse", "", 0, filter_reverse},
    {"items", "", 0, filter_items},
    {"join", "d attribute", 0, filter_join},
    {"batch", "linecount fill_with", 1, filter_batch},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort},
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
    {"unique", "case_sensitive attribute", 0, filter_unique},
    {"min", "case_sensitive attribute", 0, filter_min},
    {"max", "case_sensitive attribute", 0, filter_max},
    {"sum", "attribute start", 0, filter_sum},
    {"groupby", "attribute", 1, filter_groupby},
    {"map", "*", 0, filter_map},
    {"select", "*", 0, filter_select},
    {"reject", "*", 0, filter_reject},
    {"selectattr", "*", 0, filter_selectattr},
    {"rejectattr", "*", 0, filter_rejectattr},
    {0},
};
