/* jinja_operators.c - what operators do to values, by Python's rules: truth, equality, order, membership, arithmetic,
 * attributes, subscripts, slices, iteration. Integers are 64-bit; leaving that range is an error.
 */
#include "text/jinja_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COMPARE_DEPTH_MAX 200 /* a namespace can hold itself */

const char *value_type_name(struct jinja_value value) {
  switch (value.type) {
  case JINJA_UNDEFINED: return "Undefined";
  case JINJA_NONE: return "NoneType";
  case JINJA_BOOL: return "bool";
  case JINJA_INT: return "int";
  case JINJA_FLOAT: return "float";
  case JINJA_STRING: return "str";
  case JINJA_LIST: return value.list->is_generator ? "generator" : value.list->is_tuple ? "tuple" : "list";
  case JINJA_DICT: return "dict";
  case JINJA_NAMESPACE: return "Namespace";
  case JINJA_FUNCTION: return value.function->macro ? "Macro" : "function";
  case JINJA_LOOP: return "LoopContext";
  case JINJA_ABSENT: break;
  }
  return "absent";
}

bool value_is_int(struct jinja_value value, int64_t *integer) {
  if (value.type == JINJA_INT) *integer = value.integer;
  else if (value.type == JINJA_BOOL) *integer = value.boolean;
  else return false;
  return true;
}

bool value_is_number(struct jinja_value value, double *number) {
  int64_t integer;
  if (value.type == JINJA_FLOAT) *number = value.number;
  else if (value_is_int(value, &integer)) *number = (double)integer;
  else return false;
  return true;
}

bool value_is_callable(struct jinja_value value) { return value.type == JINJA_FUNCTION; }

bool value_truth(struct jinja_interp *interp, struct jinja_value value) {
  (void)interp;
  switch (value.type) {
  case JINJA_BOOL: return value.boolean;
  case JINJA_INT: return value.integer != 0;
  case JINJA_FLOAT: return value.number != 0;
  case JINJA_STRING: return value.string->length > 0;
  case JINJA_LIST: return value.list->is_generator || value.list->n > 0;
  case JINJA_DICT: return value.dict->n > 0;
  case JINJA_NAMESPACE: case JINJA_FUNCTION: case JINJA_LOOP: return true;
  default: return false;
  }
}

/* ---- equality and order ---- */

static int compare_bytes(const struct jinja_string *a, const struct jinja_string *b) {
  size_t n = a->length < b->length ? a->length : b->length;
  int order = n ? memcmp(a->data, b->data, n) : 0; /* UTF-8 sorts by code point */
  return order ? order : (a->length > b->length) - (a->length < b->length);
}

static bool equal(struct jinja_interp *interp, struct jinja_value a, struct jinja_value b, int depth) {
  if (depth > COMPARE_DEPTH_MAX) {
    jinja_fail(interp, "values are nested too deeply to compare");
    return false;
  }
  if (!jinja_step(interp, 1)) return false;
  int64_t i, j;
  double x, y;
  if (value_is_int(a, &i) && value_is_int(b, &j)) return i == j;
  if (value_is_number(a, &x) && value_is_number(b, &y)) return x == y;
  if (a.type != b.type) return false;
  switch (a.type) {
  case JINJA_UNDEFINED: case JINJA_NONE: return true;
  case JINJA_STRING: return jinja_step(interp, a.string->length / 64) && compare_bytes(a.string, b.string) == 0;
  case JINJA_LIST:
    if (a.list == b.list) return true;
    if (a.list->n != b.list->n || a.list->is_tuple != b.list->is_tuple) return false;
    for (size_t k = 0; k < a.list->n; k++)
      if (!equal(interp, a.list->items[k], b.list->items[k], depth + 1)) return false;
    return true;
  case JINJA_DICT:
    if (a.dict == b.dict) return true;
    if (a.dict->n != b.dict->n) return false;
    for (size_t k = 0; k < a.dict->n; k++) {
      struct jinja_value *other = dict_find(interp, b.dict, a.dict->entries[k].key);
      if (!other || !equal(interp, a.dict->entries[k].value, *other, depth + 1)) return false;
    }
    return true;
  case JINJA_NAMESPACE: return a.dict == b.dict;
  case JINJA_FUNCTION: return a.function == b.function;
  case JINJA_LOOP: return a.loop == b.loop;
  default: return false;
  }
}

bool value_equal(struct jinja_interp *interp, struct jinja_value a, struct jinja_value b) { return equal(interp, a, b, 0); }

int value_compare(struct jinja_interp *interp, struct jinja_value a, struct jinja_value b) {
  int64_t i, j;
  double x, y;
  if (!jinja_step(interp, 1)) return 0;
  if (value_is_int(a, &i) && value_is_int(b, &j)) return (i > j) - (i < j);
  if (value_is_number(a, &x) && value_is_number(b, &y)) return (x > y) - (x < y);
  if (a.type == JINJA_STRING && b.type == JINJA_STRING)
    return jinja_step(interp, a.string->length / 64) ? compare_bytes(a.string, b.string) : 0;
  if (a.type == JINJA_LIST && b.type == JINJA_LIST && a.list->is_tuple == b.list->is_tuple) {
    size_t n = a.list->n < b.list->n ? a.list->n : b.list->n;
    for (size_t k = 0; k < n; k++) {
      struct jinja_value p = a.list->items[k], q = b.list->items[k];
      if (value_equal(interp, p, q)) continue;
      if (p.type == JINJA_LIST) return jinja_fail(interp, "nested lists cannot be ordered"), 0;
      return value_compare(interp, p, q);
    }
    return (a.list->n > b.list->n) - (a.list->n < b.list->n);
  }
  if (a.type == JINJA_UNDEFINED || b.type == JINJA_UNDEFINED)
    jinja_fail(interp, "%s", a.type == JINJA_UNDEFINED ? a.why : b.why);
  else
    jinja_fail(interp, "'<' not supported between instances of '%s' and '%s'", value_type_name(a), value_type_name(b));
  return 0;
}

bool value_contains(struct jinja_interp *interp, struct jinja_value container, struct jinja_value item) {
  if (!jinja_step(interp, 1)) return false;
  switch (container.type) {
  case JINJA_STRING:
    if (item.type != JINJA_STRING) {
      jinja_fail(interp, "'in <string>' requires string as left operand, not %s", value_type_name(item));
      return false;
    }
    return jinja_step(interp, container.string->length / 64) &&
           string_find(container.string, item.string->data, item.string->length, 0) != SIZE_MAX;
  case JINJA_DICT: return dict_find(interp, container.dict, item) != NULL;
  default: break;
  }
  const struct jinja_list *list = value_iterate(interp, container);
  for (size_t i = 0; i < list->n && !jinja_failed(interp); i++)
    if (value_equal(interp, list->items[i], item)) return true;
  return false;
}

/* ---- arithmetic ---- */

static struct jinja_value integer_operation(struct jinja_interp *interp, enum jinja_operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0) return jinja_fail(interp, "division by zero");
  if (op == OP_POW && b < 0) return value_float(pow((double)a, (double)b));
  switch (op) {
  case OP_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
  case OP_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
  case OP_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
  case OP_DIV: return value_float((double)a / (double)b);
  case OP_FLOORDIV:
    overflow = a == INT64_MIN && b == -1;
    if (!overflow) result = a / b - (a % b != 0 && (a < 0) != (b < 0));
    break;
  case OP_MOD:
    if (b == -1) break;
    result = a % b;
    if (result && (result < 0) != (b < 0)) result += b;
    break;
  case OP_POW:
    result = 1;
    for (int64_t k = 0; k < b && !overflow && result != 0 && (a != 1 || k == 0) && (a != -1 || k < 2 + b % 2); k++)
      overflow = __builtin_mul_overflow(result, a, &result);
    if (a == 0) result = b == 0;
    break;
  default: return jinja_fail(interp, "bad operator");
  }
  if (overflow) return jinja_fail(interp, "integer out of range");
  return value_int(result);
}

static struct jinja_value float_operation(struct jinja_interp *interp, enum jinja_operator op, double a, double b) {
  if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0) return jinja_fail(interp, "float division by zero");
  switch (op) {
  case OP_ADD: return value_float(a + b);
  case OP_SUB: return value_float(a - b);
  case OP_MUL: return value_float(a * b);
  case OP_DIV: return value_float(a / b);
  case OP_FLOORDIV: return value_float(floor(a / b));
  case OP_MOD: {
    double rest = fmod(a, b);
    return value_float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  }
  case OP_POW: return value_float(pow(a, b));
  default: return jinja_fail(interp, "bad operator");
  }
}

static struct jinja_value repeat(struct jinja_interp *interp, struct jinja_value value, int64_t times) {
  if (value.type == JINJA_STRING) {
    struct jinja_sink sink = {0};
    for (int64_t i = 0; i < times && value.string->length && jinja_step(interp, 1); i++) sink_string(interp, &sink, value.string);
    return sink_finish(interp, &sink);
  }
  struct jinja_value result = value_list(interp, 0);
  result.list->is_tuple = value.list->is_tuple;
  for (int64_t i = 0; i < times && value.list->n && jinja_step(interp, 1); i++)
    for (size_t k = 0; k < value.list->n && !jinja_failed(interp); k++) list_append(interp, result.list, value.list->items[k]);
  return result;
}

static struct jinja_value add_sequences(struct jinja_interp *interp, struct jinja_value a, struct jinja_value b) {
  if (a.type == JINJA_STRING) {
    bool markup = a.string->is_markup || b.string->is_markup;
    if (markup && !a.string->is_markup) a = string_escape(interp, a.string);
    if (markup && !b.string->is_markup) b = string_escape(interp, b.string);
    struct jinja_sink sink = {0};
    sink_string(interp, &sink, a.string);
    sink_string(interp, &sink, b.string);
    struct jinja_value text = sink_finish(interp, &sink);
    text.string->is_markup = markup;
    return text;
  }
  struct jinja_value result = value_list(interp, a.list->n + b.list->n);
  result.list->is_tuple = a.list->is_tuple;
  for (size_t i = 0; i < a.list->n && !jinja_failed(interp); i++) list_append(interp, result.list, a.list->items[i]);
  for (size_t i = 0; i < b.list->n && !jinja_failed(interp); i++) list_append(interp, result.list, b.list->items[i]);
  return result;
}

struct jinja_value value_binary(struct jinja_interp *interp, enum jinja_operator op, struct jinja_value a, struct jinja_value b) {
  static const char *const signs[] = {"", "+", "-", "*", "/", "//", "%", "**"};
  int64_t i, j;
  double x, y;
  if (jinja_failed(interp)) return a;
  if (a.type == JINJA_UNDEFINED) return jinja_fail(interp, "%s", a.why);
  if (b.type == JINJA_UNDEFINED && !(a.type == JINJA_STRING && op == OP_MOD)) return jinja_fail(interp, "%s", b.why);
  if (value_is_int(a, &i) && value_is_int(b, &j)) return integer_operation(interp, op, i, j);
  if (value_is_number(a, &x) && value_is_number(b, &y)) return float_operation(interp, op, x, y);
  bool sequence = a.type == JINJA_STRING || (a.type == JINJA_LIST && !a.list->is_generator);
  if (op == OP_ADD && sequence && a.type == b.type && (a.type == JINJA_STRING || a.list->is_tuple == b.list->is_tuple))
    return add_sequences(interp, a, b);
  if (op == OP_ADD && sequence)
    return jinja_fail(interp, "can only concatenate %s (not \"%s\") to %s", value_type_name(a), value_type_name(b), value_type_name(a));
  if (op == OP_MOD && a.type == JINJA_STRING) return format_percent(interp, a.string, b);
  if (op == OP_MUL && sequence && value_is_int(b, &j)) return repeat(interp, a, j);
  if (op == OP_MUL && value_is_int(a, &i) && (b.type == JINJA_STRING || b.type == JINJA_LIST)) return repeat(interp, b, i);
  return jinja_fail(interp, "unsupported operand type(s) for %s: '%s' and '%s'", signs[op], value_type_name(a), value_type_name(b));
}

struct jinja_value value_negate(struct jinja_interp *interp, struct jinja_value a, bool negative) {
  int64_t i;
  if (value_is_int(a, &i)) return negative ? integer_operation(interp, OP_SUB, 0, i) : value_int(i);
  if (a.type == JINJA_FLOAT) return value_float(negative ? -a.number : a.number);
  if (a.type == JINJA_UNDEFINED) return jinja_fail(interp, "%s", a.why);
  return jinja_fail(interp, "bad operand type for unary %c: '%s'", negative ? '-' : '+', value_type_name(a));
}

/* ---- iteration ---- */

static const struct jinja_list *characters(struct jinja_interp *interp, const struct jinja_string *string) {
  struct jinja_value list = value_list(interp, 0);
  for (size_t at = 0; at < string->length && jinja_step(interp, 1);) {
    uint32_t c;
    size_t n = (size_t)utf8_decode(string->data + at, string->length - at, &c);
    list_append(interp, list.list, value_part(interp, string, at, at + n));
    at += n;
  }
  return list.list;
}

struct jinja_list *value_iterate(struct jinja_interp *interp, struct jinja_value value) {
  struct jinja_value list;
  switch (value.type) {
  case JINJA_LIST: return value.list;
  case JINJA_STRING: return (struct jinja_list *)characters(interp, value.string);
  case JINJA_DICT:
    list = value_list(interp, value.dict->n);
    for (size_t i = 0; i < value.dict->n && !jinja_failed(interp); i++) list_append(interp, list.list, value.dict->entries[i].key);
    return list.list;
  case JINJA_UNDEFINED: break;
  default: jinja_fail(interp, "'%s' object is not iterable", value_type_name(value));
  }
  return value_list(interp, 0).list;
}

int64_t value_length(struct jinja_interp *interp, struct jinja_value value) {
  switch (value.type) {
  case JINJA_STRING: return (int64_t)string_count(value.string);
  case JINJA_LIST:
    if (!value.list->is_generator) return (int64_t)value.list->n;
    break;
  case JINJA_DICT: return (int64_t)value.dict->n;
  case JINJA_UNDEFINED: return 0;
  case JINJA_LOOP: return (int64_t)value.loop->items->n;
  default: break;
  }
  jinja_fail(interp, "object of type '%s' has no len()", value_type_name(value));
  return 0;
}

/* ---- attributes and subscripts ---- */

static struct jinja_value loop_attribute(struct jinja_interp *interp, struct jinja_value object, const struct jinja_string *name) {
  const struct jinja_loop *loop = object.loop;
  int64_t n = (int64_t)loop->items->n, index = (int64_t)loop->index;
  const struct {
    const char *name;
    struct jinja_value value;
  } table[] = {
      {"index", value_int(index + 1)},          {"index0", value_int(index)},        {"first", value_bool(index == 0)},
      {"last", value_bool(index + 1 == n)},     {"length", value_int(n)},            {"revindex", value_int(n - index)},
      {"revindex0", value_int(n - index - 1)},  {"depth", value_int(loop->depth + 1)}, {"depth0", value_int(loop->depth)},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(name->data, table[i].name) == 0) return table[i].value;
  if (strcmp(name->data, "previtem") == 0)
    return index > 0 ? loop->items->items[index - 1] : value_undefined(interp, "there is no previous item");
  if (strcmp(name->data, "nextitem") == 0)
    return index + 1 < n ? loop->items->items[index + 1] : value_undefined(interp, "there is no next item");
  return (struct jinja_value){.type = JINJA_ABSENT};
}

/* Methods and the attributes of loops and namespaces; absent when there is none. */
static struct jinja_value own_attribute(struct jinja_interp *interp, struct jinja_value object, const struct jinja_string *name) {
  static const char *const mutators[] = {"append", "extend", "insert", "pop", "remove", "reverse", "sort", "clear",
                                         "popitem", "setdefault", "update"};
  if (object.type == JINJA_NAMESPACE) {
    struct jinja_value *found = dict_find_text(object.dict, name->data, name->length);
    return found ? *found : (struct jinja_value){.type = JINJA_ABSENT};
  }
  if (object.type == JINJA_LOOP) {
    struct jinja_value value = loop_attribute(interp, object, name);
    if (!is_absent(value)) return value;
  }
  const struct jinja_row *row = method_find(object.type, name->data, name->length);
  if (row) return value_method(interp, row, object);
  /* transformers renders in an immutable sandbox: lists and dictionaries cannot be changed. */
  for (size_t i = 0; i < sizeof mutators / sizeof *mutators; i++)
    if ((object.type == JINJA_LIST || object.type == JINJA_DICT) && strcmp(name->data, mutators[i]) == 0)
      return value_undefined(interp, "access to attribute '%s' of '%s' object is unsafe.", name->data, value_type_name(object));
  return (struct jinja_value){.type = JINJA_ABSENT};
}

static struct jinja_value missing(struct jinja_interp *interp, struct jinja_value object, const char *what) {
  if (object.type == JINJA_NONE) return value_undefined(interp, "'None' has no attribute '%.100s'", what);
  return value_undefined(interp, "'%s object' has no attribute '%.100s'", value_type_name(object), what);
}

struct jinja_value value_attribute(struct jinja_interp *interp, struct jinja_value object, const struct jinja_string *name) {
  if (object.type == JINJA_UNDEFINED) return jinja_fail(interp, "%s", object.why);
  struct jinja_value value = own_attribute(interp, object, name);
  if (!is_absent(value)) return value;
  if (object.type == JINJA_DICT) {
    struct jinja_value *found = dict_find_text(object.dict, name->data, name->length);
    if (found) return *found;
  }
  return missing(interp, object, name->data);
}

static struct jinja_value index_into(struct jinja_interp *interp, struct jinja_value object, int64_t index) {
  int64_t n = value_length(interp, object);
  if (index < 0) index += n;
  if (index < 0 || index >= n) return value_undefined(interp, "%s object has no element %lld", value_type_name(object), (long long)index);
  if (object.type == JINJA_LIST) return object.list->items[index];
  if ((size_t)n < object.string->length && !jinja_step(interp, object.string->length / 64)) return object; /* not ASCII: a scan */
  size_t at = string_offset(object.string, (size_t)index);
  return value_part(interp, object.string, at, string_offset(object.string, (size_t)index + 1));
}

struct jinja_value value_item(struct jinja_interp *interp, struct jinja_value object, struct jinja_value key) {
  int64_t index;
  if (jinja_failed(interp)) return key;
  if (object.type == JINJA_UNDEFINED) return jinja_fail(interp, "%s", object.why);
  if (object.type == JINJA_DICT) {
    bool hashable = !(key.type == JINJA_DICT || (key.type == JINJA_LIST && !key.list->is_tuple));
    struct jinja_value *found = hashable ? dict_find(interp, object.dict, key) : NULL;
    if (found) return *found;
  } else if ((object.type == JINJA_STRING || (object.type == JINJA_LIST && !object.list->is_generator)) && value_is_int(key, &index))
    return index_into(interp, object, index);
  if (key.type == JINJA_STRING) {
    struct jinja_value value = own_attribute(interp, object, key.string);
    return is_absent(value) ? missing(interp, object, key.string->data) : value;
  }
  struct jinja_value text = value_string(interp, key);
  return value_undefined(interp, "%s has no element %.100s", object.type == JINJA_NONE ? "None" : value_type_name(object),
                         text.string->data);
}

/* Python's slice.indices. */
static bool slice_bounds(struct jinja_interp *interp, const struct jinja_value bounds[3], int64_t n, int64_t out[3]) {
  int64_t given[3];
  bool has[3];
  for (int i = 0; i < 3; i++) {
    has[i] = is_given(bounds[i]);
    if (has[i] && !value_is_int(bounds[i], &given[i])) {
      if (bounds[i].type == JINJA_UNDEFINED) jinja_fail(interp, "%s", bounds[i].why);
      else jinja_fail(interp, "slice indices must be integers or None");
      return false;
    }
  }
  int64_t step = has[2] ? given[2] : 1;
  if (step == 0 || step == INT64_MIN) {
    jinja_fail(interp, "slice step cannot be zero");
    return false;
  }
  int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? n - 1 : n;
  for (int i = 0; i < 2; i++) {
    bool at_high = (i == 0) == (step < 0);
    int64_t v = has[i] ? given[i] : at_high ? highest : lowest;
    if (has[i] && v < 0) v = v < -n ? lowest : v + n;
    out[i] = v < lowest ? lowest : v > highest ? highest : v;
  }
  out[2] = step;
  return true;
}

struct jinja_value value_slice(struct jinja_interp *interp, struct jinja_value object, const struct jinja_value bounds[3]) {
  int64_t range[3];
  if (jinja_failed(interp)) return object;
  if (object.type == JINJA_UNDEFINED) return jinja_fail(interp, "%s", object.why);
  if (object.type != JINJA_STRING && (object.type != JINJA_LIST || object.list->is_generator))
    return object.type == JINJA_DICT ? jinja_fail(interp, "unhashable type: 'slice'")
                                     : jinja_fail(interp, "'%s' object is not subscriptable", value_type_name(object));
  int64_t n = value_length(interp, object);
  if (!slice_bounds(interp, bounds, n, range)) return object;
  if (object.type == JINJA_STRING && !jinja_step(interp, object.string->length / 64)) return object;
  if (object.type == JINJA_STRING && range[2] == 1) {
    if (range[1] <= range[0]) return value_literal(interp, "");
    return value_part(interp, object.string, string_offset(object.string, (size_t)range[0]),
                      string_offset(object.string, (size_t)range[1]));
  }
  struct jinja_value result = value_list(interp, 0);
  struct jinja_sink sink = {0};
  const struct jinja_list *list = value_iterate(interp, object);
  if (object.type == JINJA_LIST) result.list->is_tuple = object.list->is_tuple;
  for (int64_t i = range[0]; range[2] > 0 ? i < range[1] : i > range[1]; i += range[2]) {
    if (!jinja_step(interp, 1) || (size_t)i >= list->n) break;
    if (object.type == JINJA_STRING) sink_string(interp, &sink, list->items[i].string);
    else list_append(interp, result.list, list->items[i]);
    if (range[2] > n || range[2] < -n) break; /* one element only; the next index could overflow */
  }
  struct jinja_value text = sink_finish(interp, &sink);
  return object.type == JINJA_STRING ? text : result;
}
