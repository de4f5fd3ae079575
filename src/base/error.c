/* error.c - fills struct eaglet_error; see error.h. Owns the one-line form of messages: control characters (which can come from
 * file contents quoted in a message) become '?', an overlong message ends in "..." on a whole UTF-8 character. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cuts a message that did not fit and makes it one line. wanted is what vsnprintf would have written. */
static void finish_message(char *message, int wanted) {
  if (wanted < 0) message[0] = '\0';
  if (wanted >= EAGLET_ERROR_MAX) {
    size_t end = EAGLET_ERROR_MAX - 4;
    while (end > 0 && ((unsigned char)message[end] & 0xc0u) == 0x80u) end--;
    strcpy(message + end, "...");
  }
  for (char *c = message; *c; c++) {
    if ((unsigned char)*c < 0x20u || *c == 0x7f) *c = '?';
  }
}

enum eaglet_status error_set(struct eaglet_error *err, enum eaglet_status status, const char *format, ...) {
  if (!err) return status;
  va_list arguments;
  va_start(arguments, format);
  /* By way of a copy, so that the old message may be one of the arguments. */
  char message[EAGLET_ERROR_MAX];
  int wanted = vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  finish_message(message, wanted);
  err->status = status;
  memcpy(err->message, message, sizeof message);
  return status;
}

enum eaglet_status error_prefix(struct eaglet_error *err, const char *format, ...) {
  if (!err) return EAGLET_E_INTERNAL;
  char prefix[EAGLET_ERROR_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(prefix, sizeof prefix, format, arguments);
  va_end(arguments);
  return error_set(err, err->status, "%s: %s", prefix, err->message);
}

_Noreturn void assert_failed(const char *file, int line, const char *expression) {
  fprintf(stderr, "eaglet: %s:%d: assertion failed: %s\n", file, line, expression);
  abort();
}
