/* jinja_globals.c - functions that exist without being passed: range, namespace, dict, raise_exception, strftime_now. */
#include "text/jinja_internal.h"

#include <string.h>
#include <time.h>

#define RANGE_MAX 100000 /* Jinja's sandbox */

static struct jinja_value global_range(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args) {
  (void)self;
  int64_t v[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; i++) {
    if (is_absent(args->values[i])) break;
    if (!value_is_int(args->values[i], &v[i]))
      return args->values[i].type == JINJA_UNDEFINED
                 ? jinja_fail(interp, "%s", args->values[i].why)
                 : jinja_fail(interp, "'%s' object cannot be interpreted as an integer", value_type_name(args->values[i]));
  }
  int64_t begin = v[0], end = v[1], step = v[2];
  if (is_absent(args->values[1])) {
    begin = 0;
    end = v[0];
  }
  if (step == 0) return jinja_fail(interp, "range() arg 3 must not be zero");
  struct jinja_value list = value_list(interp, 0);
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (list.list->n >= RANGE_MAX)
      return jinja_fail(interp, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", RANGE_MAX);
    list_append(interp, list.list, value_int(i));
    if (jinja_failed(interp) || __builtin_add_overflow(i, step, &i)) break;
  }
  return list;
}

static struct jinja_value make_dict(struct jinja_interp *interp, const struct jinja_args *args, enum jinja_type type) {
  struct jinja_value dict = value_dict(interp);
  if (args->n > 1) return jinja_fail(interp, "dict expected at most 1 argument, got %zu", args->n);
  if (args->n == 1) {
    struct jinja_value from = args->values[0];
    const struct jinja_list *pairs = from.type == JINJA_DICT ? NULL : value_iterate(interp, from);
    for (size_t i = 0; !pairs && i < from.dict->n; i++) dict_set(interp, dict.dict, from.dict->entries[i].key, from.dict->entries[i].value);
    for (size_t i = 0; pairs && i < pairs->n && !jinja_failed(interp); i++) {
      const struct jinja_list *pair = value_iterate(interp, pairs->items[i]);
      if (pair->n != 2) return jinja_fail(interp, "dictionary update sequence element #%zu has length %zu; 2 is required", i, pair->n);
      dict_set(interp, dict.dict, pair->items[0], pair->items[1]);
    }
  }
  for (size_t i = 0; i < args->n_named && !jinja_failed(interp); i++)
    dict_set(interp, dict.dict, value_text(interp, args->named[i].name->data, args->named[i].name->length), args->named[i].value);
  dict.type = type;
  return dict;
}

static struct jinja_value global_dict(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args) {
  (void)self;
  return make_dict(interp, args, JINJA_DICT);
}

static struct jinja_value global_namespace(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args) {
  (void)self;
  return make_dict(interp, args, JINJA_NAMESPACE);
}

static struct jinja_value global_raise(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args) {
  (void)self;
  struct jinja_value text = value_string(interp, args->values[0]);
  return jinja_fail(interp, "%s", text.string->data);
}

static struct jinja_value global_strftime(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args) {
  (void)self;
  struct tm now;
  char text[512];
  if (args->values[0].type != JINJA_STRING || args->values[0].string->length > 100)
    return jinja_fail(interp, "strftime_now() needs a format of at most 100 bytes");
  if (interp->limits.now) now = *interp->limits.now;
  else {
    time_t seconds = time(NULL);
    if (!localtime_r(&seconds, &now)) return jinja_fail(interp, "strftime_now(): the clock cannot be read");
  }
  size_t n = strftime(text, sizeof text, args->values[0].string->data, &now);
  return value_text(interp, text, n);
}

static const struct jinja_row globals[] = {
    {"range", "start stop step", 1, global_range},     {"dict", "*", 0, global_dict},
    {"namespace", "*", 0, global_namespace},           {"raise_exception", "message", 1, global_raise},
    {"strftime_now", "format", 1, global_strftime},    {0},
};

const struct jinja_row *global_find(const char *name, size_t length) { return row_find(globals, name, length); }
