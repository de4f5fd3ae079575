/* test_linear.c - binding of quantised linears. Oracle: weights packed by an independent script, whose meaning it hashed
 * bit for bit. Products must be those of the dequantised matrix, bit for bit where weights lie along the row (the others
 * add in another order), whatever rows or threads share them; and a quantised model must give the logits of its
 * dequantised twin. */
#include "quantized_fixture.h"

#include "compute/cpu/cpu.h"

static uint64_t fnv(const void *data, size_t n) {
  const uint8_t *bytes = data;
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < n; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

static void check_values(const struct weight *w, const json_t *module, const char *directory) {
  const char *name = json_string_value(json_object_get(module, "name"));
  const json_t *first = json_object_get(module, "first");
  char text[64], hash[32];
  float *rows = weight_floats(w);
  weight_describe(w, text);
  if (strcmp(text, json_string_value(json_object_get(module, "format"))) != 0)
    fail_msg("%s: %s: expected %s, found %s", directory, name, json_string_value(json_object_get(module, "format")),
             text);
  for (size_t i = 0; i < json_array_size(first); i++) {
    double value = json_number_value(json_array_get(first, i));
    if (value != (double)rows[i])
      fail_msg("%s: %s[0][%zu]: expected %.9g, found %.9g", directory, name, i, value, (double)rows[i]);
  }
  snprintf(hash, sizeof hash, "%016llx",
           (unsigned long long)fnv(rows, sizeof(float) * (size_t)w->n_out * (size_t)w->n_in));
  if (strcmp(hash, json_string_value(json_object_get(module, "fnv"))) != 0)
    fail_msg("%s: %s: the first values agree, later ones do not", directory, name);
  free(rows);
}

static void each_module(void (*check)(const struct weight *w, const json_t *module, const char *directory)) {
  for (size_t i = 0; i < COUNT(quantized_models) + COUNT(quantized_units); i++) {
    const char *name =
        i < COUNT(quantized_models) ? quantized_models[i] : quantized_units[i - COUNT(quantized_models)];
    struct quantized q;
    size_t k;
    json_t *module;
    quantized_open(&q, name);
    json_array_foreach(json_object_get(q.expected, "modules"), k, module) {
      struct weight w;
      struct eaglet_error err = {0};
      if (quantized_bind(&q, module, &w, &err) != EAGLET_OK) fail_msg("%s: %s", name, err.message);
      check(&w, module, name);
    }
    quantized_close(&q);
  }
}

static void test_values(void **state) {
  (void)state;
  each_module(check_values);
}

/* ---- products ---- */

#define ROWS 20

/* Every row against sums in double. */
static void check_sums(const float *out, const float *values, const float *x, const struct weight *w, const char *name) {
  for (int32_t i = 0; i < ROWS * w->n_out; i++) {
    double sum = 0, size = 0;
    for (int32_t k = 0; k < w->n_in; k++) {
      double term = (double)values[i % w->n_out * w->n_in + k] * (double)x[i / w->n_out * w->n_in + k];
      sum += term;
      size += fabs(term);
    }
    if (fabs((double)out[i] - sum) > 1e-6 * size + 1e-30)
      fail_msg("%s: row %d, output %d: expected %.9g, found %.9g", name, i / w->n_out, i % w->n_out, sum,
               (double)out[i]);
  }
}

static void check_product(const struct weight *w, const json_t *module, const char *directory) {
  static const char *const isas[] = {"scalar", "avx2", "avx512"};
  const char *name = json_string_value(json_object_get(module, "name"));
  bool in_major = strstr(json_string_value(json_object_get(module, "format")), "in-major") != NULL;
  float *values = weight_floats(w), *x = memory_alloc(sizeof(float) * ROWS * (size_t)w->n_in);
  float *out = memory_alloc(sizeof(float) * ROWS * (size_t)w->n_out),
        *same = memory_alloc(sizeof(float) * ROWS * (size_t)w->n_out);
  const struct weight plain = {.format = WEIGHT_F32, .n_out = w->n_out, .n_in = w->n_in, .data = values};
  for (int32_t i = 0; i < ROWS * w->n_in; i++) x[i] = (float)((i * 7919 + 31) % 2003) / 1000.0f - 1.0f;
  for (size_t isa = 0; isa < COUNT(isas); isa++) {
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
      struct compute *c;
      const struct cpu_open_params params = {
          .isa = isas[isa], .n_threads = n_threads, .precision = EAGLET_PRECISION_EXACT};
      if (cpu_open(&c, &params, NULL) != EAGLET_OK) continue;
      c->matmul(c, same, x, in_major ? w : &plain, ROWS, 0, 0);
      check_sums(same, values, x, w, name);
      for (int32_t n = 1; n <= ROWS; n += n < 4 ? 1 : 5) {
        c->matmul(c, out, x + (ROWS - n) * w->n_in, w, n, 0, 0);
        if (memcmp(out, same + (ROWS - n) * w->n_out, sizeof(float) * (size_t)n * (size_t)w->n_out) != 0)
          fail_msg("%s: %s: %s: %d rows differ from the expected product", directory, name, isas[isa], n);
      }
      compute_close(c);
    }
  }
  free(values);
  free(x);
  free(out);
  free(same);
}

static void test_products(void **state) {
  (void)state;
  each_module(check_product);
}

/* ---- slices: fused matrices are cut by rows, interleaved ones by every second row ---- */

static void check_slices(const struct weight *w, const json_t *module, const char *directory) {
  float *all = weight_floats(w), *x = memory_alloc(sizeof(float) * (size_t)w->n_in);
  float *whole = memory_alloc(sizeof(float) * (size_t)w->n_out), *cut = memory_alloc(sizeof(float) * (size_t)w->n_out);
  struct weight part = weight_rows(w, 1, w->n_out - 1), half = weight_rows_every(&part, 1, 2, (w->n_out - 1) / 2);
  struct compute *c;
  for (int32_t k = 0; k < w->n_in; k++) x[k] = (float)((k * 37 + 5) % 101) / 50.0f - 1.0f;
  assert_int_equal(compute_open_cpu(&c, 1, EAGLET_PRECISION_EXACT, NULL), EAGLET_OK);
  c->matmul(c, whole, x, w, 1, 0, 0);
  c->matmul(c, cut, x, &half, 1, 0, 0);
  for (int32_t o = 0; o < half.n_out; o++) {
    float row[512];
    assert_true(w->n_in <= 512);
    weight_row_to_f32(&half, o, row);
    assert_memory_equal(row, all + (2 * o + 2) * w->n_in, sizeof(float) * (size_t)w->n_in);
    if (cut[o] != whole[2 * o + 2])
      fail_msg("%s: %s: output %d differs in a slice", directory,
               json_string_value(json_object_get(module, "name")), 2 * o + 2);
  }
  compute_close(c);
  free(all);
  free(x);
  free(whole);
  free(cut);
}

static void test_slices(void **state) {
  (void)state;
  each_module(check_slices);
}

/* ---- whole models ---- */

/* A checkpoint of the same model with plain F32 linears. */
static void write_twin(struct variant *v, struct quantized *q) {
  size_t k;
  json_t *module;
  variant_open(v, q->directory);
  json_object_del(v->config, "quantization_config");
  json_array_foreach(json_object_get(q->expected, "modules"), k, module) {
    struct weight w;
    char name[256];
    assert_int_equal(quantized_bind(q, module, &w, NULL), EAGLET_OK);
    snprintf(name, sizeof name, "%s.weight", json_string_value(json_object_get(module, "name")));
    struct tensor_entry entry = {.dtype = DTYPE_F32, .rank = 2, .shape = {w.n_out, w.n_in}};
    entry.data = variant_own(v, weight_floats(&w));
    variant_add(v, name, &entry);
  }
  for (size_t i = 0; i < v->source.n_tensors; i++) {
    const struct tensor_entry *tensor = v->source.tensors[i];
    if (strstr(tensor->name, "norm.weight")) variant_add(v, tensor->name, tensor);
  }
  variant_write(v);
}

static void test_models(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(quantized_models); i++) {
    struct quantized q;
    struct variant twin;
    struct fixture f;
    struct eaglet_error err = {0};
    quantized_open(&q, quantized_models[i]);
    write_twin(&twin, &q);
    size_t bytes;
    float *expected = directory_logits(twin.directory, &bytes);
    if (fixture_open(&f, q.directory, 64, &err) != EAGLET_OK) fail_msg("%s", err.message);
    float *found = fixture_logits(&f);
    bool in_major = strcmp(quantized_models[i], "awq") == 0 || strcmp(quantized_models[i], "gptq") == 0;
    if (in_major ? max_rel(found, expected, bytes / sizeof *found) > 1e-5 : memcmp(found, expected, bytes) != 0)
      fail_msg("%s: logits differ from the twin's", quantized_models[i]);
    /* Kept as stored: no more bytes than the file, but for padding of the norms, which are F32 here. */
    double stored = (double)f.model->checkpoint.n_bytes, resident = (double)f.model->resident_bytes;
    if (resident > stored + 4096 || resident < 0.9 * stored)
      fail_msg("%s: %.0f bytes resident, %.0f stored", quantized_models[i], resident, stored);
    fixture_close(&f);
    variant_close(&twin);
    quantized_close(&q);
    free(expected);
    free(found);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_products),
      cmocka_unit_test(test_slices),
      cmocka_unit_test(test_models),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
