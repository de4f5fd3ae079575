/* error.h - how failures travel.
 *
 * Three kinds, three mechanisms: a programmer's mistake is an ASSERT (abort, always on); an operating error is a returned
 * enum eaglet_status with the words in *err; a user's mistake becomes an exit code only in src/cli. Status and struct
 * eaglet_error come from the public header, so the library has one error vocabulary from the mapped file to the exit code.
 *
 * Every fallible function takes `struct eaglet_error *err` last. err may be NULL when the caller does not want the words.
 * Who may use it: everyone.
 */
#ifndef EAGLET_BASE_ERROR_H
#define EAGLET_BASE_ERROR_H

#include "eaglet.h"

#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* Fills *err (truncating) and returns status, so that `return error_set(...)` is the whole failure path. */
enum eaglet_status error_set(struct eaglet_error *err, enum eaglet_status status, const char *format, ...) PRINTF_LIKE(3, 4);

/* Puts "prefix: " before the message already in *err, for context that only the caller knows (file name, row). Returns the status
 * in *err; with a NULL err that is unknown (EAGLET_E_INTERNAL), so keep the status you have and return that. */
enum eaglet_status error_prefix(struct eaglet_error *err, const char *format, ...) PRINTF_LIKE(2, 3);

_Noreturn void assert_failed(const char *file, int line, const char *expression);

/* FAIL(err, EAGLET_E_INPUT, "%s: expected %d rows, found %d", ...) */
#define FAIL(err, status, ...) return error_set((err), (status), __VA_ARGS__)
/* Forwards a failure. Use the goto form (TRY_GOTO) where something must be released. */
#define TRY(expression)                                       \
  do {                                                        \
    enum eaglet_status try_status_ = (expression);            \
    if (try_status_ != EAGLET_OK) return try_status_;         \
  } while (0)
/* Stores the failure in the caller's local `status` and jumps. */
#define TRY_GOTO(expression, label)                           \
  do {                                                        \
    status = (expression);                                    \
    if (status != EAGLET_OK) goto label;                      \
  } while (0)
#define ASSERT(expression) ((expression) ? (void)0 : assert_failed(__FILE__, __LINE__, #expression))

#endif
