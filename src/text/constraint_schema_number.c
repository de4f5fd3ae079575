/* constraint_schema_number.c - numbers between bounds as digits.
 *
 * Free integers have at most 18 digits, so that they fit in 64 bits; free numbers at most 18 digits before the point, 17 after it
 * and an exponent of two, so that they fit in a double. Between bounds numbers have no exponent. Bounds are compared digit by
 * digit: after a digit that differs from a bound's, that bound is decided.
 */
#include "text/constraint_schema_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_MAX 999999999999999999ll /* 18 nines */
#define FRACTION_MAX 17
#define EXACT_DIGITS 15 /* decimals of so many digits stay apart as doubles */

/* ---- whole numbers ---- */

static const struct expression *digit_range(struct constraint_builder *b, int low, int high) {
  if (low > high) return expression_never(b);
  return expression_range(b, (uint32_t)('0' + low), (uint32_t)('0' + high));
}

static const struct expression *any_digits(struct constraint_builder *b, int32_t min, int32_t max) {
  return expression_repeat(b, digit_range(b, 0, 9), min, max);
}

static bool all_are(const char *digits, size_t n, char digit) {
  for (size_t i = 0; i < n; i++)
    if (digits[i] != digit) return false;
  return true;
}

/* Texts of n digits from low to high, both of n digits. */
static const struct expression *between(struct constraint_builder *b, const char *low, const char *high, size_t n) {
  static const char nines[] = "999999999999999999", zeros[] = "000000000000000000";
  if (n == 0) return expression_bytes(b, "", 0);
  int from = low[0] - '0', to = high[0] - '0';
  if (from == to) return expression_pair(b, digit_range(b, from, to), between(b, low + 1, high + 1, n - 1));
  const struct expression *parts[3] = {expression_never(b), expression_never(b), expression_never(b)};
  if (!all_are(low + 1, n - 1, '0')) {
    parts[0] = expression_pair(b, digit_range(b, from, from), between(b, low + 1, nines, n - 1));
    from++;
  }
  if (!all_are(high + 1, n - 1, '9')) {
    parts[2] = expression_pair(b, digit_range(b, to, to), between(b, zeros, high + 1, n - 1));
    to--;
  }
  parts[1] = expression_pair(b, digit_range(b, from, to), any_digits(b, (int32_t)n - 1, (int32_t)n - 1));
  return expression_choice(b, parts, 3);
}

/* Without leading zeros. */
static const struct expression *whole_between(struct constraint_builder *b, int64_t low, int64_t high) {
  const struct expression *all = expression_never(b);
  int64_t to = 0;
  for (size_t n = 1; n <= 18; n++) {
    int64_t from = n == 1 ? 0 : to + 1;
    to = to * 10 + 9;
    int64_t l = low > from ? low : from, h = high < to ? high : to;
    if (l > h) continue;
    char low_text[24], high_text[24];
    snprintf(low_text, sizeof low_text, "%lld", (long long)l);
    snprintf(high_text, sizeof high_text, "%lld", (long long)h);
    all = expression_either(b, all, between(b, low_text, high_text, n));
  }
  return all;
}

static const struct expression *integer_between(struct constraint_builder *b, int64_t low, int64_t high) {
  const struct expression *negative = expression_never(b), *rest = expression_never(b);
  if (low < 0) negative = expression_pair(b, expression_text(b, "-"), whole_between(b, high < 0 ? -high : 1, -low));
  if (high >= 0) rest = whole_between(b, low > 0 ? low : 0, high);
  return expression_either(b, rest, negative);
}

/* ---- bounds ---- */

struct decimal { /* sign and digits as written; zero is not negative */
  bool negative;
  int64_t whole;
  char fraction[40];
  size_t n_fraction; /* without trailing zeros */
  bool beyond;       /* its magnitude is more than WHOLE_MAX, which stands for it */
};

struct bound {
  bool active, strict;
  struct decimal value;
};

static void drop_zeros(struct decimal *value) {
  while (value->n_fraction && value->fraction[value->n_fraction - 1] == '0') value->n_fraction--;
  if (value->whole == 0 && value->n_fraction == 0) value->negative = false;
}

static enum eaglet_status read_decimal(const struct schema_compiler *c, const char *key, const json_t *json, struct decimal *value) {
  *value = (struct decimal){0};
  if (json_is_integer(json)) {
    long long integer = json_integer_value(json);
    value->negative = integer < 0;
    value->beyond = integer > WHOLE_MAX || integer < -WHOLE_MAX;
    value->whole = value->beyond ? WHOLE_MAX : integer < 0 ? -integer : integer;
    return EAGLET_OK;
  }
  if (!json_is_real(json)) return schema_refuse(c, "%s: expected a number", key);
  double real = json_real_value(json);
  value->negative = real < 0;
  if (fabs(real) >= (double)WHOLE_MAX) {
    value->beyond = true;
    value->whole = WHOLE_MAX;
    return EAGLET_OK;
  }
  struct eaglet_text text = json_dump(json, 0);
  const char *at = text.data + (text.data[0] == '-');
  char *point;
  value->whole = strtoll(at, &point, 10);
  size_t n = *point == '.' ? strspn(point + 1, "0123456789") : 0;
  bool plain = point > at && n < sizeof value->fraction && point[*point == '.' ? 1 + n : 0] == '\0';
  if (plain) memcpy(value->fraction, point + 1, n);
  value->n_fraction = plain ? n : 0;
  if (!plain && real == floor(real)) { /* 1e+15 */
    value->whole = (int64_t)fabs(real);
    plain = true;
  }
  free(text.data);
  if (!plain) return schema_refuse(c, "%s: bounds that are written with an exponent are not supported", key);
  if (value->n_fraction > FRACTION_MAX) return schema_refuse(c, "%s: more than %d digits after the point", key, FRACTION_MAX);
  drop_zeros(value);
  return EAGLET_OK;
}

/* The stronger of the inclusive and the exclusive keyword. upper: of two values the smaller is stronger. */
static enum eaglet_status read_bound(const struct schema_compiler *c, const json_t *schema, bool upper, struct bound *bound) {
  const char *keys[] = {upper ? "maximum" : "minimum", upper ? "exclusiveMaximum" : "exclusiveMinimum"};
  double known = 0;
  *bound = (struct bound){0};
  for (int i = 0; i < 2; i++) {
    const json_t *json = json_object_get(schema, keys[i]);
    if (!json) continue;
    if (!json_is_number(json)) return schema_refuse(c, "%s: expected a number", keys[i]);
    double value = json_number_value(json);
    bool weaker = bound->active && (upper ? value > known : value < known);
    if (weaker) continue;
    TRY(read_decimal(c, keys[i], json, &bound->value));
    if (bound->value.beyond && bound->value.negative == upper) return schema_refuse(c, "%s: numbers of more than 18 digits are not written", keys[i]);
    bound->active = true;
    bound->strict = i == 1 && !bound->value.beyond;
    known = value;
  }
  return EAGLET_OK;
}

static int64_t signed_whole(const struct decimal *value) { return value->negative ? -value->whole : value->whole; }

/* ---- integers ---- */

static enum eaglet_status check_multiple(const struct schema_compiler *c, const json_t *schema, bool integer, int32_t *n_fraction) {
  const json_t *json = json_object_get(schema, "multipleOf");
  *n_fraction = -1;
  if (!json) return EAGLET_OK;
  double step = json_number_value(json), power = 1;
  for (int32_t n = 0; n <= FRACTION_MAX && step > 0; n++, power /= 10) {
    if (fabs(step - power) > power * 1e-9) continue;
    *n_fraction = integer ? 0 : n;
    return EAGLET_OK;
  }
  return schema_refuse(c, "multipleOf: only 1, 0.1, 0.01 and so on are supported");
}

enum eaglet_status schema_compile_integer(struct schema_compiler *c, const json_t *schema, const struct expression **out) {
  struct bound low, high;
  int32_t n_fraction;
  TRY(read_bound(c, schema, false, &low));
  TRY(read_bound(c, schema, true, &high));
  TRY(check_multiple(c, schema, true, &n_fraction));
  int64_t from = -WHOLE_MAX, to = WHOLE_MAX;
  if (low.active) { /* up to the next integer */
    from = signed_whole(&low.value);
    bool whole = low.value.n_fraction == 0;
    if (whole ? low.strict : !low.value.negative) from++;
  }
  if (high.active) {
    to = signed_whole(&high.value);
    bool whole = high.value.n_fraction == 0;
    if (whole ? high.strict : high.value.negative) to--;
  }
  *out = from <= to ? integer_between(c->builder, from, to) : expression_never(c->builder);
  return EAGLET_OK;
}

/* ---- fractions ---- */

struct fraction_bound { /* of the digits that are still to come */
  const char *digits;
  size_t n;
  bool active, strict;
};

static struct fraction_bound after_digit(struct fraction_bound bound, int digit, bool upper, bool *possible) {
  int own = bound.n ? bound.digits[0] - '0' : 0;
  if (!bound.active) return bound;
  if (digit == own) {
    if (bound.n) {
      bound.digits++;
      bound.n--;
    }
    return bound;
  }
  if (upper ? digit > own : digit < own) *possible = false;
  bound.active = false;
  return bound;
}

/* May the digits end here, which means zeros from here on? */
static bool may_end(const struct fraction_bound *low, const struct fraction_bound *high) {
  return (!low->active || (low->n == 0 && !low->strict)) && (!high->active || high->n > 0 || !high->strict);
}

/* One digit or more, at most n_max. */
static const struct expression *fraction(struct constraint_builder *b, struct fraction_bound low, struct fraction_bound high, int32_t n_max) {
  if (n_max <= 0) return expression_never(b);
  if (!low.active && !high.active) return any_digits(b, 1, n_max);
  const struct expression *all = expression_never(b);
  for (int digit = 0, last; digit <= 9; digit = last + 1) {
    bool possible = true;
    struct fraction_bound l = after_digit(low, digit, false, &possible), h = after_digit(high, digit, true, &possible);
    last = digit;
    if (!possible) continue;
    while (!l.active && !h.active && last < 9) { /* digits strictly inside behave alike */
      bool same = true;
      struct fraction_bound next_l = after_digit(low, last + 1, false, &same), next_h = after_digit(high, last + 1, true, &same);
      if (!same || next_l.active || next_h.active) break;
      last++;
    }
    const struct expression *rest = fraction(b, l, h, n_max - 1);
    if (may_end(&l, &h)) rest = expression_either(b, expression_bytes(b, "", 0), rest);
    all = expression_either(b, all, expression_pair(b, digit_range(b, digit, last), rest));
  }
  return all;
}

/* What may follow the whole part: nothing, or a point and digits. */
static const struct expression *point_and_fraction(struct constraint_builder *b, const struct bound *low, const struct bound *high, int32_t n_max) {
  struct fraction_bound l = {0}, h = {0};
  if (low) l = (struct fraction_bound){low->value.fraction, low->value.n_fraction, low->active, low->strict};
  if (high) h = (struct fraction_bound){high->value.fraction, high->value.n_fraction, high->active, high->strict};
  const struct expression *digits = expression_pair(b, expression_text(b, "."), fraction(b, l, h, n_max));
  return may_end(&l, &h) ? expression_either(b, expression_bytes(b, "", 0), digits) : digits;
}

/* Numbers from low to high, neither of them negative; an inactive low is 0. */
static const struct expression *magnitude_between(struct constraint_builder *b, const struct bound *low, const struct bound *high, int32_t n_max) {
  int64_t from = low->active ? low->value.whole : 0, to = high->active ? high->value.whole : WHOLE_MAX;
  if (from > to) return expression_never(b);
  if (from == to) return expression_pair(b, whole_between(b, from, to), point_and_fraction(b, low, high, n_max));
  const struct expression *parts[] = {
      expression_pair(b, whole_between(b, from, from), point_and_fraction(b, low, NULL, n_max)),
      expression_pair(b, whole_between(b, from + 1, to - 1), point_and_fraction(b, NULL, NULL, n_max)),
      expression_pair(b, whole_between(b, to, to), point_and_fraction(b, NULL, high, n_max)),
  };
  return expression_choice(b, parts, 3);
}

/* ---- numbers ---- */

/* Readers round to doubles, which must not carry a number onto a strict bound. */
static enum eaglet_status limit_fraction(const struct schema_compiler *c, const struct bound *bound, int32_t *n_fraction) {
  if (!bound->active || !bound->strict) return EAGLET_OK;
  int32_t n = EXACT_DIGITS;
  for (int64_t whole = bound->value.whole; whole; whole /= 10) n--;
  if (n < 0) return schema_refuse(c, "exclusive bounds of numbers have at most %d digits before the point", EXACT_DIGITS);
  if (n < *n_fraction) *n_fraction = n ? n : 1;
  return EAGLET_OK;
}

const struct expression *schema_any_number(struct constraint_builder *b) {
  static const struct char_range e[] = {{'E', 'E'}, {'e', 'e'}}, sign[] = {{'+', '+'}, {'-', '-'}};
  const struct expression *empty = expression_bytes(b, "", 0);
  const struct expression *exponent[] = {expression_set(b, e, 2, false), expression_either(b, empty, expression_set(b, sign, 2, false)),
                                         any_digits(b, 1, 2)};
  const struct expression *parts[] = {expression_either(b, empty, expression_text(b, "-")), whole_between(b, 0, WHOLE_MAX),
                                      point_and_fraction(b, NULL, NULL, FRACTION_MAX),
                                      expression_either(b, empty, expression_sequence(b, exponent, 3))};
  return expression_sequence(b, parts, 4);
}

enum eaglet_status schema_compile_number(struct schema_compiler *c, const json_t *schema, const struct expression **out) {
  struct constraint_builder *b = c->builder;
  struct bound low, high;
  int32_t n_fraction;
  TRY(read_bound(c, schema, false, &low));
  TRY(read_bound(c, schema, true, &high));
  TRY(check_multiple(c, schema, false, &n_fraction));
  if (!low.active && !high.active && n_fraction < 0) {
    *out = schema_any_number(b);
    return EAGLET_OK;
  }
  if (n_fraction < 0) n_fraction = FRACTION_MAX;
  TRY(limit_fraction(c, &low, &n_fraction));
  TRY(limit_fraction(c, &high, &n_fraction));
  const struct bound none = {0};
  struct bound above_zero = {.active = true, .strict = true}; /* -0.0 is not below zero */
  const struct expression *negative = expression_never(b), *rest = expression_never(b);
  bool low_is_negative = !low.active || low.value.negative, high_is_negative = high.active && high.value.negative;
  bool below_zero = high.active && high.strict && high.value.whole == 0 && high.value.n_fraction == 0;
  if (low_is_negative) { /* magnitudes: the bounds change places */
    struct bound least = high_is_negative ? high : below_zero ? above_zero : none;
    negative = expression_pair(b, expression_text(b, "-"), magnitude_between(b, &least, low.active ? &low : &none, n_fraction));
  }
  if (!high_is_negative && !below_zero) rest = magnitude_between(b, low_is_negative ? &none : &low, &high, n_fraction);
  *out = expression_either(b, rest, negative);
  return EAGLET_OK;
}
