/* test_stream.c - streams of bytes: plain and packed files give the same text in reads of any size; members and frames that follow each other are
 * one text; damage is an error that names the file. Pieces of a file; patterns. The packers here are zlib's and libzstd's own. */
#include "support.h"

#include "base/buffer.h"
#include "base/unpack.h"

#include <zlib.h>
#include <zstd.h>

#define TEXT_BYTES ((size_t)700000) /* more than any window of the reader */

static void fill_text(char *text) {
  uint32_t x = 1;
  for (size_t i = 0; i < TEXT_BYTES; i++) {
    x = x * 1664525 + 1013904223;
    text[i] = (char)('a' + (i / 1000 % 2 ? x >> 28 : 3)); /* runs and noise */
  }
}

static void add_gzip(struct buffer *out, const char *text, size_t length) {
  z_stream z = {0};
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  size_t bound = deflateBound(&z, length) + 64;
  Bytef *packed = memory_alloc(bound);
  z.next_in = (Bytef *)(uintptr_t)text;
  z.avail_in = (uInt)length;
  z.next_out = packed;
  z.avail_out = (uInt)bound;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  buffer_append(out, packed, bound - z.avail_out);
  deflateEnd(&z);
  free(packed);
}

static void add_zstd(struct buffer *out, const char *text, size_t length) {
  size_t bound = ZSTD_compressBound(length);
  char *packed = memory_alloc(bound);
  size_t n = ZSTD_compress(packed, bound, text, length, 3);
  assert_false(ZSTD_isError(n));
  buffer_append(out, packed, n);
  free(packed);
}

/* Everything in reads of `step` bytes. */
static enum eaglet_status read_stream(struct buffer *out, const char *path, size_t step, struct eaglet_error *err) {
  struct file_stream *stream;
  char *piece = memory_alloc(step);
  size_t n = 1;
  enum eaglet_status status = file_stream_open(&stream, path, err);
  while (status == EAGLET_OK && n > 0) {
    status = file_stream_read(stream, piece, step, &n, err);
    assert_true(n <= step);
    buffer_append(out, piece, n);
  }
  if (status == EAGLET_OK) { /* the end stays the end */
    assert_int_equal(file_stream_read(stream, piece, step, &n, err), EAGLET_OK);
    assert_int_equal(n, 0);
  }
  file_stream_close(stream);
  free(piece);
  return status;
}

static void assert_gives(const struct buffer *bytes, const char *path, const char *text, size_t length) {
  static const size_t steps[] = {7, 4096, 300000};
  assert_int_equal(file_write(path, bytes->data, bytes->length, NULL), EAGLET_OK);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    struct buffer out;
    struct eaglet_error err = {0};
    buffer_init(&out);
    if (read_stream(&out, path, steps[i], &err) != EAGLET_OK) fail_msg("%s", err.message);
    assert_int_equal(out.length, length);
    if (length > 0) assert_memory_equal(out.data, text, length);
    buffer_clear(&out);
  }
}

static void assert_refused(const void *bytes, size_t length, const char *path, const char *words) {
  struct buffer out;
  struct eaglet_error err = {0};
  buffer_init(&out);
  assert_int_equal(file_write(path, bytes, length, NULL), EAGLET_OK);
  assert_int_equal(read_stream(&out, path, 5000, &err), EAGLET_E_INPUT);
  if (!strstr(err.message, words) || !strstr(err.message, path)) fail_msg("expected '%s', found %s", words, err.message);
  buffer_clear(&out);
}

static void test_packed_text_is_the_text(void **state) {
  char *path = file_join(*state, "packed"), *text = memory_alloc(TEXT_BYTES);
  struct buffer bytes;
  buffer_init(&bytes);
  fill_text(text);
  buffer_append(&bytes, "", 0);
  assert_gives(&bytes, path, "", 0);
  buffer_append(&bytes, "abc", 3); /* fewer bytes than a magic number has */
  assert_gives(&bytes, path, "abc", 3);
  buffer_reset(&bytes);
  buffer_append(&bytes, text, TEXT_BYTES);
  assert_gives(&bytes, path, text, TEXT_BYTES);
  void (*const adds[])(struct buffer *, const char *, size_t) = {add_gzip, add_zstd};
  for (int kind = 0; kind < 2; kind++) {
    buffer_reset(&bytes);
    adds[kind](&bytes, text, TEXT_BYTES);
    assert_gives(&bytes, path, text, TEXT_BYTES);
    buffer_reset(&bytes); /* three members, one of them empty */
    adds[kind](&bytes, text, 1000);
    adds[kind](&bytes, "", 0);
    adds[kind](&bytes, text + 1000, TEXT_BYTES - 1000);
    assert_gives(&bytes, path, text, TEXT_BYTES);
  }
  buffer_reset(&bytes);
  add_gzip(&bytes, text, 2000);
  for (int i = 0; i < 600; i++) buffer_append_char(&bytes, '\0'); /* padding behind gzip */
  assert_gives(&bytes, path, text, 2000);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  buffer_clear(&bytes);
  free(text);
  free(path);
}

static void test_damage_is_named(void **state) {
  char *path = file_join(*state, "packed"), *text = memory_alloc(TEXT_BYTES);
  struct buffer bytes;
  fill_text(text);
  buffer_init(&bytes);
  add_gzip(&bytes, text, TEXT_BYTES);
  assert_refused(bytes.data, bytes.length / 2, path, "the packed data ends in the middle (cut short?)");
  assert_refused(bytes.data, bytes.length - 1, path, "the packed data ends in the middle (cut short?)");
  assert_refused(bytes.data, 2, path, "the packed data ends in the middle (cut short?)");
  bytes.data[bytes.length - 6] = (char)~bytes.data[bytes.length - 6]; /* of the checksum */
  assert_refused(bytes.data, bytes.length, path, "the gzip data is corrupt: incorrect data check");
  bytes.data[bytes.length - 6] = (char)~bytes.data[bytes.length - 6];
  buffer_append(&bytes, "tail", 4);
  assert_refused(bytes.data, bytes.length, path, "bytes behind the gzip data that are none");
  buffer_reset(&bytes);
  add_zstd(&bytes, text, TEXT_BYTES);
  assert_refused(bytes.data, bytes.length / 2, path, "the packed data ends in the middle (cut short?)");
  assert_refused(bytes.data, bytes.length - 1, path, "the packed data ends in the middle (cut short?)");
  buffer_append(&bytes, "tail", 4);
  assert_refused(bytes.data, bytes.length, path, "the zstd data is corrupt: ");
  struct eaglet_error err = {0};
  struct file_stream *stream;
  assert_int_equal(file_stream_open(&stream, *state, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "expected a file, found a directory"));
  assert_null(stream);
  file_stream_close(NULL);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  buffer_clear(&bytes);
  free(text);
  free(path);
}

static void test_pieces(void **state) {
  char *path = file_join(*state, "pieces"), bytes[8] = "";
  struct file_pieces pieces;
  struct eaglet_error err = {0};
  assert_int_equal(file_pieces_open(&pieces, path, &err), EAGLET_E_INPUT);
  file_pieces_close(&pieces);
  assert_int_equal(file_pieces_open(&pieces, *state, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "expected a regular file"));
  assert_int_equal(file_write(path, "0123456789", 10, NULL), EAGLET_OK);
  assert_int_equal(file_pieces_open(&pieces, path, &err), EAGLET_OK);
  assert_int_equal(pieces.length, 10);
  assert_int_equal(file_pieces_read(&pieces, 7, bytes, 3, &err), EAGLET_OK);
  assert_string_equal(bytes, "789");
  assert_int_equal(file_pieces_read(&pieces, 10, bytes, 0, &err), EAGLET_OK);
  assert_int_equal(file_pieces_read(&pieces, 8, bytes, 3, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "3 bytes at 8 are behind the end of the file (10 bytes"));
  assert_int_equal(file_pieces_read(&pieces, UINT64_MAX, bytes, 3, &err), EAGLET_E_INPUT);
  file_pieces_close(&pieces);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  free(path);
}

static void test_glob(void **state) {
  static const char *const names[] = {"b.json", "a.json", "c.txt"};
  for (int i = 0; i < 3; i++) {
    char *path = file_join(*state, names[i]);
    assert_int_equal(file_write(path, "x", 1, NULL), EAGLET_OK);
    free(path);
  }
  char *pattern = file_join(*state, "*.json"), *none = file_join(*state, "*.csv");
  struct file_list list;
  assert_int_equal(file_glob(&list, pattern, NULL), EAGLET_OK);
  assert_int_equal(list.n, 2);
  assert_non_null(strstr(list.names[0], "/a.json"));
  assert_non_null(strstr(list.names[1], "/b.json"));
  file_list_clear(&list);
  assert_int_equal(file_glob(&list, none, NULL), EAGLET_OK);
  assert_int_equal(list.n, 0);
  file_list_clear(&list);
  for (int i = 0; i < 3; i++) {
    char *path = file_join(*state, names[i]);
    assert_int_equal(file_remove(path, NULL), EAGLET_OK);
    free(path);
  }
  free(pattern);
  free(none);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_packed_text_is_the_text),
      cmocka_unit_test(test_damage_is_named),
      cmocka_unit_test(test_pieces),
      cmocka_unit_test(test_glob),
  };
  return cmocka_run_group_tests_name("stream", tests, scratch_create, scratch_remove);
}
