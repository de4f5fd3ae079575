/* linear_internal.h - between linear.c, which finds the tensors of a module, and linear_formats.c, which knows what they mean.
 */
#ifndef EAGLET_MODEL_LINEAR_INTERNAL_H
#define EAGLET_MODEL_LINEAR_INTERNAL_H

#include "model/linear.h"

#define NAME_MAX_LENGTH 320

enum linear_role { ROLE_DATA, ROLE_SCALE, ROLE_ZERO, ROLE_SHAPE, ROLE_INDEX, ROLE_GLOBAL, ROLE_COUNT };

/* A tensor of the module, or one expert's slice of it; name NULL: there is none. */
struct linear_part {
  struct tensor_entry tensor;
  const char *tail; /* spelling of its name after the module's */
};

/* One module while it is bound. */
struct linear_reader {
  const struct linear_source *source;
  const char *module;
  int32_t n_out, n_in;
  bool transposed;            /* the stored matrix is [n_in, n_out] */
  struct linear_part parts[ROLE_COUNT];
  size_t first, n;            /* tensors whose names begin with the module's: neighbours, since they are sorted */
  char name[NAME_MAX_LENGTH]; /* of the tensor in a message */
  struct eaglet_error *err;
};

static inline const struct tensor_entry *linear_part(const struct linear_reader *r, enum linear_role role) {
  return r->parts[role].tensor.name ? &r->parts[role].tensor : NULL;
}
enum eaglet_status linear_expect_matrix(struct linear_reader *r, const struct tensor_entry *tensor, int64_t rows, int64_t columns);

/* From parts to a weight, by dtype and name of the data. */
enum eaglet_status linear_read(struct linear_reader *r, struct weight *weight) MUST_USE;

#endif
