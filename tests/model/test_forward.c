/* test_forward.c - the layer loop against the F32 oracle: every state, norm and logits of nano-kimi. The laws of rows
 * are in test_rows.c. */
#include "model_fixture.h"

static void test_reference(void **state) {
  (void)state;
  char *directory = shared_path("own/nano-kimi"), *file = shared_path("own/oracle/nano_kimi_reference.safetensors");
  if (!directory || !file) skip();
  struct fixture f;
  struct safetensors reference;
  struct eaglet_error err = {0};
  enum eaglet_status status = fixture_open(&f, directory, 64, &err);
  if (status != EAGLET_OK) print_error("%s\n", err.message);
  assert_int_equal(status, EAGLET_OK);
  assert_int_equal(safetensors_open(&reference, file, &err), EAGLET_OK);
  static const char *const prefixes[] = {"p0.", "p1.", "p2."};
  for (int i = 0; i < 3; i++) {
    double worst = fixture_compare(&f, &reference, prefixes[i]);
    printf("nano-kimi %s max_rel %.3e\n", prefixes[i], worst);
    assert_true(worst < 1e-4);
  }
  safetensors_close(&reference);
  fixture_close(&f);
  free(directory);
  free(file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reference),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
