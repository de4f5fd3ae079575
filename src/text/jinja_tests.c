/* jinja_tests.c - the table of tests (x is name). */
#include "text/jinja_internal.h"

#include <string.h>
#include <utf8proc.h>

#define TEST(name) \
  static struct jinja_value test_##name(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args)
#define UNUSED (void)interp, (void)args

TEST(defined) { UNUSED; return value_bool(self.type != JINJA_UNDEFINED); }
TEST(undefined) { UNUSED; return value_bool(self.type == JINJA_UNDEFINED); }
TEST(none) { UNUSED; return value_bool(self.type == JINJA_NONE); }
TEST(string) { UNUSED; return value_bool(self.type == JINJA_STRING); }
TEST(mapping) { UNUSED; return value_bool(self.type == JINJA_DICT); }
TEST(number) { double n; UNUSED; return value_bool(value_is_number(self, &n)); }
TEST(integer) { UNUSED; return value_bool(self.type == JINJA_INT); }
TEST(float) { UNUSED; return value_bool(self.type == JINJA_FLOAT); }
TEST(boolean) { UNUSED; return value_bool(self.type == JINJA_BOOL); }
TEST(true) { UNUSED; return value_bool(self.type == JINJA_BOOL && self.boolean); }
TEST(false) { UNUSED; return value_bool(self.type == JINJA_BOOL && !self.boolean); }
TEST(callable) { UNUSED; return value_bool(value_is_callable(self)); }

TEST(iterable) {
  UNUSED;
  return value_bool(self.type == JINJA_STRING || self.type == JINJA_LIST || self.type == JINJA_DICT || self.type == JINJA_UNDEFINED ||
                    self.type == JINJA_LOOP);
}

TEST(sequence) {
  UNUSED;
  return value_bool(self.type == JINJA_STRING || (self.type == JINJA_LIST && !self.list->is_generator) || self.type == JINJA_DICT ||
                    self.type == JINJA_UNDEFINED);
}

TEST(eq) { return value_bool(value_equal(interp, self, args->values[0])); }
TEST(ne) { return value_bool(!value_equal(interp, self, args->values[0])); }
TEST(lt) { return value_bool(value_compare(interp, self, args->values[0]) < 0); }
TEST(le) { return value_bool(value_compare(interp, self, args->values[0]) <= 0); }
TEST(gt) { return value_bool(value_compare(interp, self, args->values[0]) > 0); }
TEST(ge) { return value_bool(value_compare(interp, self, args->values[0]) >= 0); }
TEST(in) { return value_bool(value_contains(interp, args->values[0], self)); }

TEST(sameas) {
  struct jinja_value other = args->values[0];
  if (self.type != other.type) return value_bool(false);
  if (self.type == JINJA_LIST) return value_bool(self.list == other.list);
  if (self.type == JINJA_DICT) return value_bool(self.dict == other.dict);
  return value_bool(value_equal(interp, self, other));
}

static struct jinja_value remainder_is(struct jinja_interp *interp, struct jinja_value self, int64_t divisor, int64_t rest) {
  struct jinja_value found = value_binary(interp, OP_MOD, self, value_int(divisor));
  return value_bool(value_equal(interp, found, value_int(rest)));
}

TEST(odd) { (void)args; return remainder_is(interp, self, 2, 1); }
TEST(even) { (void)args; return remainder_is(interp, self, 2, 0); }
TEST(divisibleby) {
  int64_t divisor;
  if (!value_is_int(args->values[0], &divisor)) return jinja_fail(interp, "divisibleby needs an integer");
  return remainder_is(interp, self, divisor, 0);
}

/* All cased characters are of one case, and there is one. */
static struct jinja_value is_case(struct jinja_interp *interp, struct jinja_value self, utf8proc_category_t wanted,
                                  utf8proc_category_t refused) {
  struct jinja_value text = value_string(interp, self);
  bool found = false;
  for (size_t at = 0; at < text.string->length;) {
    uint32_t c;
    at += (size_t)utf8_decode(text.string->data + at, text.string->length - at, &c);
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    if (category == refused || category == UTF8PROC_CATEGORY_LT) return value_bool(false);
    found |= category == wanted;
  }
  return value_bool(found);
}

TEST(lower) { (void)args; return is_case(interp, self, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LU); }
TEST(upper) { (void)args; return is_case(interp, self, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL); }

TEST(filter) {
  (void)interp, (void)args;
  return value_bool(self.type == JINJA_STRING && filter_find(self.string->data, self.string->length));
}
TEST(test) {
  (void)interp, (void)args;
  return value_bool(self.type == JINJA_STRING && test_find(self.string->data, self.string->length));
}

static const struct jinja_row tests[] = {
    {"defined", "", 0, test_defined},   {"undefined", "", 0, test_undefined}, {"none", "", 0, test_none},
    {"string", "", 0, test_string},     {"mapping", "", 0, test_mapping},     {"sequence", "", 0, test_sequence},
    {"iterable", "", 0, test_iterable}, {"number", "", 0, test_number},       {"integer", "", 0, test_integer},
    {"float", "", 0, test_float},       {"boolean", "", 0, test_boolean},     {"true", "", 0, test_true},
    {"false", "", 0, test_false},       {"callable", "", 0, test_callable},   {"eq", "other", 1, test_eq},
    {"equalto", "other", 1, test_eq},   {"==", "other", 1, test_eq},          {"ne", "other", 1, test_ne},
    {"!=", "other", 1, test_ne},        {"lt", "other", 1, test_lt},          {"lessthan", "other", 1, test_lt},
    {"<", "other", 1, test_lt},         {"le", "other", 1, test_le},          {"<=", "other", 1, test_le},
    {"gt", "other", 1, test_gt},        {"greaterthan", "other", 1, test_gt}, {">", "other", 1, test_gt},
    {"ge", "other", 1, test_ge},        {">=", "other", 1, test_ge},          {"in", "seq", 1, test_in},
    {"sameas", "other", 1, test_sameas}, {"odd", "", 0, test_odd},            {"even", "", 0, test_even},
    {"divisibleby", "num", 1, test_divisibleby}, {"lower", "", 0, test_lower}, {"upper", "", 0, test_upper},
    {"filter", "", 0, test_filter},     {"test", "", 0, test_test},           {0},
};

const struct jinja_row *row_find(const struct jinja_row *rows, const char *name, size_t length) {
  for (; rows->name; rows++)
    if (strlen(rows->name) == length && memcmp(rows->name, name, length) == 0) return rows;
  return NULL;
}

const struct jinja_row *test_find(const char *name, size_t length) { return row_find(tests, name, length); }
