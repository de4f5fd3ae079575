/* test_parquet.c - the Parquet reader. Methods: the decoders on the format description's own examples; rows written by the tests' writer in every
 * encoding, codec, page version, nesting and group size must come back as they were; files that other libraries wrote, against their rows; damage
 * (every prefix, every byte flipped) must be refused with words or read, never crash (bug cases C07, C09). */
#define _GNU_SOURCE /* memmem */
#include "data/parquet.h"

#include "data/parquet_internal.h"
#include "parquet_writer.h"

#define ROW_BYTES_MAX ((size_t)64 << 20)

/* Without the fsync of file_write: some tests write thousands of files. */
static void overwrite(const char *path, const void *bytes, size_t n) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, n, file), n);
  assert_int_equal(fclose(file), 0);
}

/* All rows of the file as an array; top-level columns not named in `only` (comma-separated, NULL: all) are left out. */
static enum eaglet_status read_rows(json_t *rows, const char *path, const char *only, struct eaglet_error *err) {
  struct parquet_file *file;
  bool wanted[16] = {false};
  json_t *row;
  TRY(parquet_open(&file, path, err));
  for (size_t i = 0; i < parquet_n_columns(file) && i < 16; i++) wanted[i] = !only || strstr(only, parquet_column_name(file, i));
  enum eaglet_status status = parquet_n_columns(file) <= 16 ? parquet_select(file, wanted, ROW_BYTES_MAX, err)
                                                            : error_set(err, EAGLET_E_INPUT, "%s: many columns", path);
  while (status == EAGLET_OK) {
    status = parquet_next(file, &row, err);
    if (status != EAGLET_OK || !row) break;
    json_array_append_new(rows, row);
    if (json_array_size(rows) > 5000) break; /* of a damaged file */
  }
  parquet_close(file);
  return status;
}

static void assert_rows(const char *path, const json_t *expected, const char *what) {
  json_t *rows = json_array();
  struct eaglet_error err = {0};
  if (read_rows(rows, path, NULL, &err) != EAGLET_OK) fail_msg("%s: %s", what, err.message);
  assert_int_equal(json_array_size(rows), json_array_size(expected));
  for (size_t i = 0; i < json_array_size(expected); i++) {
    if (!json_equal(json_array_get(rows, i), json_array_get(expected, i)))
      fail_msg("%s: row %zu: expected %s, found %s", what, i, json_dumps(json_array_get(expected, i), 0), json_dumps(json_array_get(rows, i), 0));
  }
  json_decref(rows);
}

static char *write_rows(const char *directory, const struct pw_node *nodes, json_t *rows, const struct pw_options *options) {
  struct buffer bytes;
  buffer_init(&bytes);
  parquet_write(&bytes, nodes, rows, options);
  char *path = file_join(directory, "rows.parquet");
  overwrite(path, bytes.data, bytes.length);
  buffer_clear(&bytes);
  return path;
}

/* ---- the format's own examples ---- */

static void test_small_numbers(void **state) {
  (void)state;
  struct hybrid h;
  uint32_t value;
  hybrid_init(&h, (struct cursor){.data = (const uint8_t *)"\x03\x88\xc6\xfa\x06\x05", .length = 6}, 3);
  for (uint32_t i = 0; i < 8 + 3; i++) { /* a packed group, then a run of three fives */
    assert_true(hybrid_next(&h, &value));
    assert_int_equal(value, i < 8 ? i : 5);
  }
  assert_false(hybrid_next(&h, &value));
  hybrid_init_legacy(&h, (struct cursor){.data = (const uint8_t *)"\x05\x39\x77", .length = 3}, 3);
  for (uint32_t i = 0; i < 8; i++) {
    assert_true(hybrid_next(&h, &value));
    assert_int_equal(value, i);
  }
  assert_false(hybrid_next(&h, &value));
  hybrid_init(&h, (struct cursor){.data = (const uint8_t *)"\x06\x0d", .length = 2}, 3); /* a run of what three bits cannot hold */
  assert_false(hybrid_next(&h, &value));
}

static void test_deltas(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t n, n_values;
    int64_t values[8];
  } cases[] = {{"\x80\x01\x04\x05\x02\x02\0\0\0\0#", 11, 5, {1, 2, 3, 4, 5}},
               {"\x80\x01\x04\x08\x0e\x03\x02\0\0\0\xc0\x3f\0\0\0\0\0\0#", 19, 8, {7, 5, 3, 1, 2, 3, 4, 5}},
               {"\x80\x01\x04\x01\x05#", 6, 1, {-3}},
               {"\x80\x01\x04\x00\x00#", 6, 0, {0}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct delta d;
    struct cursor rest;
    int64_t value;
    assert_true(delta_init(&d, (struct cursor){.data = (const uint8_t *)cases[i].bytes, .length = cases[i].n}));
    assert_true(delta_skip(&d, &rest));
    assert_int_equal(rest.length, 1);
    assert_int_equal(*rest.data, '#');
    for (size_t k = 0; k < cases[i].n_values; k++) {
      assert_true(delta_next(&d, &value));
      assert_int_equal(value, cases[i].values[k]);
    }
    assert_false(delta_next(&d, &value));
  }
  struct delta d;
  static const char *const broken[] = {"\x80\x01\x00\x05\x02", "\x81\x01\x04\x05\x02", "\x04\x04\x05\x02", "\x80\x01\x04"};
  for (size_t i = 0; i < 4; i++) assert_false(delta_init(&d, (struct cursor){.data = (const uint8_t *)broken[i], .length = i == 3 ? 3 : 5}));
}

/* ---- every encoding of every type ---- */

static const struct pw_node flat[] = {{"root", -1, 0, 16, PW_NONE, 0, 0},
                                      {"flag", PW_BOOLEAN, PW_REQUIRED, 0, PW_NONE, 0, 0},
                                      {"flag_or", PW_BOOLEAN, PW_OPTIONAL, 0, PW_NONE, 0, 0},
                                      {"small", PW_INT32, PW_REQUIRED, 0, PW_NONE, 0, 0},
                                      {"small_or", PW_INT32, PW_OPTIONAL, 0, PW_NONE, 0, 0},
                                      {"wide", PW_INT64, PW_REQUIRED, 0, PW_NONE, 0, 0},
                                      {"wide_or", PW_INT64, PW_OPTIONAL, 0, PW_NONE, 0, 0},
                                      {"narrow", PW_FLOAT, PW_REQUIRED, 0, PW_NONE, 0, 0},
                                      {"narrow_or", PW_FLOAT, PW_OPTIONAL, 0, PW_NONE, 0, 0},
                                      {"real", PW_DOUBLE, PW_REQUIRED, 0, PW_NONE, 0, 0},
                                      {"real_or", PW_DOUBLE, PW_OPTIONAL, 0, PW_NONE, 0, 0},
                                      {"text", PW_BYTES, PW_REQUIRED, 0, PW_TEXT, 0, 0},
                                      {"text_or", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
                                      {"fixed", PW_FIXED, PW_REQUIRED, 0, PW_NONE, 5, 0},
                                      {"fixed_or", PW_FIXED, PW_OPTIONAL, 0, PW_NONE, 5, 0},
                                      {"bare", PW_INT32, PW_REPEATED, 0, PW_NONE, 0, 0},
                                      {"never", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0}};

static uint64_t draw(uint64_t *x) { return (*x = *x * 6364136223846793005u + 1442695040888963407u) >> 20; }

static json_t *draw_value(const struct pw_node *node, uint64_t *x) {
  char text[64];
  static const int64_t edges[] = {0, -1, INT32_MAX, INT32_MIN, 1, 7};
  int64_t integer = draw(x) % 3 ? (int64_t)(draw(x) % 1000) - 500 : edges[draw(x) % 6];
  if (node->type == PW_INT64 && draw(x) % 4 == 0) integer = draw(x) % 2 ? INT64_MAX : INT64_MIN;
  switch (node->type) {
  case PW_BOOLEAN: return json_boolean(draw(x) % 20 < 3);
  case PW_INT32:
  case PW_INT64: return json_integer(integer);
  case PW_FLOAT: return json_real((double)(integer % 4096) / 8);
  case PW_DOUBLE: return json_real((double)integer / 8);
  case PW_FIXED: snprintf(text, sizeof text, "f%04u", (unsigned)(draw(x) % 300)); break;
  default: snprintf(text, sizeof text, "%.*s%u", (int)(draw(x) % 24), "a common beginning \xc3\xa4\xc3\xb6\xc3\xbc", (unsigned)(draw(x) % 300));
  }
  if (node->type == PW_BYTES) text[utf8_valid(text, strlen(text))] = '\0';
  return json_string(text);
}

static json_t *draw_flat(size_t n) {
  json_t *rows = json_array();
  uint64_t x = 5;
  for (size_t i = 0; i < n; i++) {
    json_t *row = json_object();
    for (size_t k = 1; k <= 16; k++) {
      bool null = flat[k].repetition == PW_OPTIONAL && (k == 16 || draw(&x) % 3 == 0);
      json_t *value = null ? json_null() : flat[k].repetition == PW_REPEATED ? json_array() : draw_value(&flat[k], &x);
      for (size_t m = json_is_array(value) ? draw(&x) % 4 : 0; m > 0; m--) json_array_append_new(value, draw_value(&flat[k], &x));
      json_object_set_new(row, flat[k].name, value);
    }
    json_array_append_new(rows, row);
  }
  return rows;
}

static void test_encodings(void **state) {
  json_t *rows = draw_flat(1111);
  static const size_t shapes[][2] = {{0, 0}, {1000, 100}, {300, 7}}; /* rows a group, entries a page */
  for (int version = 1; version <= 2; version++) {
    for (int style = 0; style < PW_N_STYLES; style++) {
      for (int codec = 0; codec < 4; codec++) {
        const size_t *shape = shapes[(style + codec) % 3];
        struct pw_options options = {.version = version, .codec = codec, .style = (enum pw_style)style, .group_rows = shape[0], .page_entries = shape[1]};
        char what[80], *path = write_rows(*state, flat, rows, &options);
        snprintf(what, sizeof what, "version %d, style %d, codec %d, %zu rows a group", version, style, codec, shape[0]);
        assert_rows(path, rows, what);
        free(path);
      }
    }
  }
  struct pw_options legacy = {.version = 1, .legacy_levels = true};
  char *path = write_rows(*state, flat, rows, &legacy);
  assert_rows(path, rows, "levels in the old packing");
  free(path);
  json_decref(rows);
}

/* ---- every nesting ---- */

static const struct pw_node nested[] = {
    {"root", -1, 0, 8, PW_NONE, 0, 0},
    {"messages", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0}, /* three levels */
    {"list", -1, PW_REPEATED, 1, PW_NONE, 0, 0},
    {"element", -1, PW_OPTIONAL, 3, PW_NONE, 0, 0},
    {"role", PW_BYTES, PW_REQUIRED, 0, PW_TEXT, 0, 0},
    {"content", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"tool_calls", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0},
    {"list", -1, PW_REPEATED, 1, PW_NONE, 0, 0},
    {"element", -1, PW_REQUIRED, 2, PW_NONE, 0, 0},
    {"name", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0},
    {"arguments", -1, PW_OPTIONAL, 1, PW_MAP, 0, 0},
    {"key_value", -1, PW_REPEATED, 2, PW_NONE, 0, 0},
    {"key", PW_BYTES, PW_REQUIRED, 0, PW_TEXT, 0, 0},
    {"value", PW_INT64, PW_OPTIONAL, 0, PW_NONE, 0, 0},
    {"enable_thinking", PW_BOOLEAN, PW_OPTIONAL, 0, PW_NONE, 0, 0},
    {"two_leaf", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0}, /* two levels: the repeated leaf is the element */
    {"item", PW_INT32, PW_REPEATED, 0, PW_NONE, 0, 0},
    {"two_tuple", -1, PW_REQUIRED, 1, PW_LIST, 0, 0}, /* a group of one field, by its name */
    {"two_tuple_tuple", -1, PW_REPEATED, 1, PW_NONE, 0, 0},
    {"a", PW_INT32, PW_OPTIONAL, 0, PW_NONE, 0, 0},
    {"two_pair", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0}, /* a group of two fields */
    {"bag", -1, PW_REPEATED, 2, PW_NONE, 0, 0},
    {"a", PW_INT32, PW_OPTIONAL, 0, PW_NONE, 0, 0},
    {"b", PW_BYTES, PW_REQUIRED, 0, PW_TEXT, 0, 0},
    {"bare", -1, PW_REPEATED, 1, PW_NONE, 0, 0}, /* a repeated group without annotation, of repeated leaves */
    {"inner", PW_INT32, PW_REPEATED, 0, PW_NONE, 0, 0},
    {"grid", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0}, /* lists of lists */
    {"list", -1, PW_REPEATED, 1, PW_NONE, 0, 0},
    {"element", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0},
    {"list", -1, PW_REPEATED, 1, PW_NONE, 0, 0},
    {"element", PW_DOUBLE, PW_OPTIONAL, 0, PW_NONE, 0, 0},
    {"deep", -1, PW_OPTIONAL, 1, PW_NONE, 0, 0},
    {"er", -1, PW_OPTIONAL, 1, PW_NONE, 0, 0},
    {"est", PW_INT64, PW_OPTIONAL, 0, PW_NONE, 0, 0},
};

static json_t *draw_content(size_t i, uint64_t *x);

static json_t *draw_field(size_t i, uint64_t *x) {
  if (nested[i].repetition == PW_OPTIONAL && draw(x) % 3 == 0) return json_null();
  if (nested[i].repetition != PW_REPEATED) return draw_content(i, x);
  json_t *array = json_array();
  for (size_t n = draw(x) % 4; n > 0; n--) json_array_append_new(array, draw_content(i, x));
  return array;
}

static json_t *draw_content(size_t i, uint64_t *x) {
  if (nested[i].n_children == 0) return draw_value(&nested[i], x);
  if (nested[i].converted == PW_LIST) {
    bool old = nested[i + 1].n_children != 1 || strstr(nested[i + 1].name, "_tuple");
    json_t *array = json_array();
    for (size_t n = draw(x) % 5; n > 0; n--) json_array_append_new(array, old ? draw_content(i + 1, x) : draw_field(i + 2, x));
    return array;
  }
  json_t *object = json_object();
  if (nested[i].converted == PW_MAP) {
    for (size_t n = draw(x) % 3; n > 0; n--) {
      json_t *key = draw_content(i + 2, x);
      json_object_set_new(object, json_string_value(key), draw_field(i + 3, x));
      json_decref(key);
    }
    return object;
  }
  for (size_t c = i + 1; c < pw_end(nested, i); c = pw_end(nested, c)) json_object_set_new(object, nested[c].name, draw_field(c, x));
  return object;
}

static void test_nesting(void **state) {
  json_t *rows = json_array();
  uint64_t x = 11;
  for (int i = 0; i < 700; i++) json_array_append_new(rows, draw_content(0, &x));
  static const size_t groups[] = {0, 1, 250};
  static const size_t pages[] = {0, 1, 13};
  for (int i = 0; i < 27; i++) {
    struct pw_options options = {.version = 1 + i % 2, .codec = i % 4, .style = (enum pw_style)(i % PW_N_STYLES), .group_rows = groups[i % 3], .page_entries = pages[i / 3 % 3]};
    char what[60], *path = write_rows(*state, nested, rows, &options);
    snprintf(what, sizeof what, "%zu rows a group, %zu entries a page", options.group_rows, options.page_entries);
    assert_rows(path, rows, what);
    free(path);
  }
  json_t *none = json_array();
  char *path = write_rows(*state, nested, none, &(struct pw_options){.version = 1});
  assert_rows(path, none, "no rows");
  free(path);
  json_decref(none);
  json_decref(rows);
}

/* What annotations make of numbers; a number that JSON has not. */
static void test_meanings(void **state) {
  static const struct pw_node nodes[] = {{"root", -1, 0, 5, PW_NONE, 0, 0},        {"u", PW_INT32, PW_REQUIRED, 0, PW_UINT32, 0, 0},
                                         {"v", PW_INT64, PW_REQUIRED, 0, PW_UINT64, 0, 0}, {"d", PW_INT32, PW_REQUIRED, 0, PW_DECIMAL, 0, 2},
                                         {"day", PW_INT32, PW_REQUIRED, 0, 6, 0, 0}, {"r", PW_DOUBLE, PW_REQUIRED, 0, PW_NONE, 0, 0}};
  json_t *rows = json_loads("[{\"u\":-1,\"v\":-1,\"d\":-1234,\"day\":7,\"r\":0.5}]", 0, NULL);
  json_t *expected = json_loads("[{\"u\":4294967295,\"v\":18446744073709551616.0,\"d\":-12.34,\"day\":7,\"r\":0.5}]", 0, NULL);
  char *path = write_rows(*state, nodes, rows, &(struct pw_options){.version = 1});
  assert_rows(path, expected, "meanings");
  json_decref(expected);
  struct eaglet_text bytes = scratch_read(*state, "rows.parquet");
  char *half = memmem(bytes.data, bytes.length, "\0\0\0\0\0\0\xe0\x3f", 8);
  assert_non_null(half);
  memcpy(half, "\0\0\0\0\0\0\xf8\x7f", 8); /* not a number */
  free(path);
  path = scratch_write_bytes(*state, "rows.parquet", bytes.data, bytes.length);
  expected = json_loads("[{\"u\":4294967295,\"v\":18446744073709551616.0,\"d\":-12.34,\"day\":7,\"r\":null}]", 0, NULL);
  assert_rows(path, expected, "not a number");
  free(bytes.data);
  free(path);
  json_decref(rows);
  json_decref(expected);
}

/* ---- what cannot be read ---- */

static const struct pw_node pair[] = {{"root", -1, 0, 2, PW_NONE, 0, 0}, {"text", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0}, {"other", PW_BYTES, PW_OPTIONAL, 0, PW_TEXT, 0, 0}};

static void assert_refused(const char *path, const char *only, const char *words) {
  json_t *rows = json_array();
  struct eaglet_error err = {0};
  assert_failed_with(read_rows(rows, path, only, &err), EAGLET_E_INPUT, &err, words);
  assert_non_null(strstr(err.message, path));
  assert_int_equal(json_array_size(rows), 0); /* before any work starts */
  json_decref(rows);
}

static void test_refusals(void **state) {
  json_t *rows = json_loads("[{\"text\":\"a\",\"other\":\"b\"}]", 0, NULL);
  static const struct {
    int codec;
    const char *words;
  } codecs[] = {{3, "column text: compression LZO cannot be read"}, {4, "compression brotli cannot be read: write the file with snappy, gzip, zstd or none"},
                {5, "compression LZ4 cannot be read"}, {7, "compression LZ4_RAW cannot be read"}, {99, "compression 99 is not known"}};
  for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
    char *path = write_rows(*state, pair, rows, &(struct pw_options){.version = 1, .codec_said = codecs[i].codec});
    assert_refused(path, NULL, codecs[i].words);
    free(path);
  }
  static const struct pw_node stamp[] = {{"root", -1, 0, 1, PW_NONE, 0, 0}, {"when", PW_INT96, PW_REQUIRED, 0, PW_NONE, 0, 0}};
  static const struct pw_node money[] = {{"root", -1, 0, 1, PW_NONE, 0, 0}, {"price", PW_BYTES, PW_REQUIRED, 0, PW_DECIMAL, 0, 2}};
  static const struct pw_node torn[] = {{"root", -1, 0, 1, PW_NONE, 0, 0}, {"l", -1, PW_OPTIONAL, 1, PW_LIST, 0, 0}, {"x", PW_INT32, PW_OPTIONAL, 0, PW_NONE, 0, 0}};
  json_t *values = json_loads("[{\"when\":\"a\",\"price\":\"b\",\"l\":null}]", 0, NULL);
  char *path = write_rows(*state, stamp, values, &(struct pw_options){.version = 1});
  assert_refused(path, NULL, "column when: INT96 cannot be read");
  free(path);
  path = write_rows(*state, money, values, &(struct pw_options){.version = 1});
  assert_refused(path, NULL, "column price: decimals stored as BYTE_ARRAY");
  free(path);
  path = write_rows(*state, torn, values, &(struct pw_options){.version = 1});
  assert_refused(path, NULL, "schema: l: expected one repeated field in a list or map");
  free(path);
  json_decref(values);
  static const struct {
    const char *bytes, *words;
    size_t n;
  } files[] = {{"PAR1", "is a Parquet file of 4 bytes: cut short", 4},
               {"PAR1........", "does not end as one (PAR1 is missing; cut short?)", 12},
               {"PAR1\x40\0\0\0PAR1", "whose footer should have 64 (cut short?)", 12},
               {"PAR1\0\0\0\0PAR1", "the footer is damaged", 12},
               {"PARE\0\0\0\0PARE", "is an encrypted Parquet file", 12}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    path = scratch_write_bytes(*state, "bad.parquet", files[i].bytes, files[i].n);
    assert_true(parquet_is(path));
    assert_refused(path, NULL, files[i].words);
    free(path);
  }
  path = scratch_write(*state, "rows.jsonl", "{}");
  assert_false(parquet_is(path));
  free(path);
  json_decref(rows);
}

/* Text must be UTF-8 and free of NUL, as in JSON. */
static void test_text(void **state) {
  json_t *rows = json_loads("[{\"text\":\"good\",\"other\":\"x\"},{\"text\":\"evil\",\"other\":\"y\"}]", 0, NULL), *found = json_array();
  char *path = write_rows(*state, pair, rows, &(struct pw_options){.version = 1});
  struct eaglet_text bytes = scratch_read(*state, "rows.parquet");
  static const char bad[] = {'\xff', '\0'};
  for (int i = 0; i < 2; i++) {
    struct eaglet_error err = {0};
    ((char *)memmem(bytes.data, bytes.length, i ? "\xffvil" : "evil", 4))[0] = bad[i];
    overwrite(path, bytes.data, bytes.length);
    json_array_clear(found);
    assert_failed_with(read_rows(found, path, NULL, &err), EAGLET_E_INPUT, &err, "rows.parquet: row 2: column text: expected UTF-8 text without NUL");
    assert_int_equal(json_array_size(found), 1);
  }
  free(bytes.data);
  free(path);
  json_decref(rows);
  json_decref(found);
}

/* Columns that nobody wants are not looked at: their bytes may be anything. */
static void test_projection(void **state) {
  json_t *rows = json_array(), *found = json_array();
  for (int i = 0; i < 50; i++) json_array_append_new(rows, json_pack("{sssi}", "text", "kept", "other", 1));
  json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) json_object_set_new(row, "other", json_string("dropped text"));
  char *path = write_rows(*state, pair, rows, &(struct pw_options){.version = 1});
  struct eaglet_text bytes = scratch_read(*state, "rows.parquet");
  for (char *at; (at = memmem(bytes.data, bytes.length, "dropped text", 12));) memset(at - 4, 0xff, 16);
  overwrite(path, bytes.data, bytes.length);
  struct eaglet_error err = {0};
  assert_ok(read_rows(found, path, "text", &err), &err);
  assert_int_equal(json_array_size(found), 50);
  assert_int_equal(json_object_size(json_array_get(found, 0)), 1);
  assert_int_not_equal(read_rows(found, path, "other", &err), EAGLET_OK);
  free(bytes.data);
  free(path);
  json_decref(rows);
  json_decref(found);
}

/* A row past the limit is refused; many entries count, not only text. */
static void test_row_limit(void **state) {
  static const struct pw_node ids[] = {{"root", -1, 0, 1, PW_NONE, 0, 0}, {"ids", PW_INT32, PW_REPEATED, 0, PW_NONE, 0, 0}};
  json_t *rows = json_loads("[{\"ids\":[1]}]", 0, NULL), *list = json_object_get(json_array_get(rows, 0), "ids"), *row;
  for (int i = 0; i < 2000; i++) json_array_append_new(list, json_integer(7));
  char *path = write_rows(*state, ids, rows, &(struct pw_options){.version = 1, .style = PW_DICTIONARY});
  struct parquet_file *file;
  struct eaglet_error err = {0};
  for (int i = 0; i < 2; i++) {
    assert_ok(parquet_open(&file, path, &err), &err);
    assert_ok(parquet_select(file, (bool[]){true}, i ? 1 << 20 : 50000, &err), &err);
    enum eaglet_status status = parquet_next(file, &row, &err);
    if (i) assert_ok(status, &err);
    else assert_failed_with(status, EAGLET_E_INPUT, &err, "row 1: column ids: this row has ");
    json_decref(row);
    parquet_close(file);
  }
  free(path);
  json_decref(rows);
}

/* ---- damage ---- */

static void test_damage(void **state) {
  json_t *rows = json_array(), *found = json_array();
  uint64_t x = 3;
  for (int i = 0; i < 6; i++) json_array_append_new(rows, draw_content(0, &x));
  for (int style = 0; style < PW_N_STYLES; style++) {
    struct pw_options options = {.version = 1 + style % 2, .codec = style, .style = (enum pw_style)style, .group_rows = 4};
    char *path = write_rows(*state, nested, rows, &options);
    struct eaglet_text bytes = scratch_read(*state, "rows.parquet");
    struct eaglet_error err = {0};
    for (size_t n = 4; n < bytes.length; n += 1 + n % 3) {
      overwrite(path, bytes.data, n);
      json_array_clear(found);
      assert_int_equal(read_rows(found, path, NULL, &err), EAGLET_E_INPUT);
      assert_non_null(strstr(err.message, "rows.parquet"));
    }
    for (size_t at = 4; at < bytes.length; at++) {
      static const uint8_t flips[] = {0xff, 0x01, 0x80};
      uint8_t before = (uint8_t)bytes.data[at];
      bytes.data[at] = (char)(before ^ flips[at % 3]);
      overwrite(path, bytes.data, bytes.length);
      json_array_clear(found);
      if (read_rows(found, path, NULL, &err) != EAGLET_OK && !strstr(err.message, "rows.parquet")) fail_msg("byte %zu: %s", at, err.message);
      bytes.data[at] = (char)before;
    }
    free(bytes.data);
    free(path);
  }
  json_decref(rows);
  json_decref(found);
}

/* ---- other people's files ---- */

static json_t *read_lines(const char *path) {
  struct file_lines *lines;
  struct eaglet_error err = {0};
  json_t *rows = json_array();
  assert_ok(file_lines_open(&lines, path, &err), &err);
  for (;;) {
    const char *line;
    size_t length;
    assert_ok(file_lines_next(lines, &line, &length, &err), &err);
    if (!line) break;
    json_array_append_new(rows, json_loadb(line, length, 0, NULL));
  }
  file_lines_close(lines);
  return rows;
}

/* pyarrow's, made by tests/reference/make_parquet.py. */
static void test_reference_files(void **state) {
  (void)state;
  const char *root = getenv("EAGLET_TEST_ROOT");
  char *directory = file_join(root ? root : ".", "tests/data/parquet");
  struct file_list list = {0};
  if (!file_is_directory(directory) || file_list_directory(&list, directory, NULL) != EAGLET_OK) printf("skip: tests/data/parquet is not there\n");
  for (size_t i = 0; i < list.n; i++) {
    char *path = file_join(directory, list.names[i]), *ending = strstr(path, ".parquet");
    if (ending && strstr(list.names[i], "refused_")) {
      char *word = memory_copy_string(strstr(path, "refused_") + 8);
      *strchr(word, '_') = '\0';
      assert_refused(path, NULL, word);
      free(word);
    } else if (ending) {
      char *lines_path = memory_format("%.*s.jsonl", (int)(ending - path), path);
      json_t *expected = read_lines(lines_path);
      assert_rows(path, expected, list.names[i]);
      json_decref(expected);
      free(lines_path);
    }
    free(path);
  }
  file_list_clear(&list);
  free(directory);
}

static void test_foreign_files(void **state) {
  (void)state;
  static const struct {
    const char *file, *expected;
  } cases[] = {{"sgd400_uncompressed", "sgd400"}, {"sgd400_gzip", "sgd400"},      {"sgd400_snappy", "sgd400"},
               {"sgd400_snappy_v2", "sgd400"},    {"sgd400_zstd", "sgd400"}, {"messages150_nulls_snappy", "messages150_nulls"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[80];
    snprintf(name, sizeof name, "public/parquet/%s.parquet", cases[i].file);
    char *path = shared_path(name);
    if (!path) return;
    snprintf(name, sizeof name, "public/parquet/%s.expected.jsonl", cases[i].expected);
    char *lines_path = shared_path(name);
    json_t *expected = read_lines(lines_path);
    assert_true(json_array_size(expected) >= 150);
    assert_rows(path, expected, cases[i].file);
    json_decref(expected);
    free(path);
    free(lines_path);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small_numbers),
      cmocka_unit_test(test_deltas),
      cmocka_unit_test_setup_teardown(test_encodings, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_nesting, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_meanings, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_refusals, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_text, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_projection, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_row_limit, scratch_create, scratch_remove),
      cmocka_unit_test_setup_teardown(test_damage, scratch_create, scratch_remove),
      cmocka_unit_test(test_reference_files),
      cmocka_unit_test(test_foreign_files),
  };
  return cmocka_run_group_tests_name("parquet", tests, NULL, NULL);
}
