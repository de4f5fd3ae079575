/* arch_fields.h - reading config.json through its nesting: aliases, levels, defaults, and where each value came from.
 *
 * The reader is sticky: after the first failure every further read is a no-op and `status` stays, so that features are read as a plain list
 * and checked once. A field that is null counts as absent. Integers must lie in 0 .. 2^31-1.
 */
#ifndef EAGLET_MODEL_ARCH_FIELDS_H
#define EAGLET_MODEL_ARCH_FIELDS_H

#include "model/arch.h"

#define FIELD_LEVELS_MAX 3

struct field_reader {
  struct arch *arch;                     /* provenance and warnings go there */
  const char *what;                      /* path of config.json for messages */
  const json_t *levels[FIELD_LEVELS_MAX]; /* inner first */
  const char *paths[FIELD_LEVELS_MAX];   /* "text_config.", "" */
  int n_levels;
  json_t *asked;                         /* names that were looked for, as keys; owned by arch_resolve */
  enum eaglet_status status;
  struct eaglet_error *err;
};

/* Where a value was found. */
struct field_place {
  const json_t *value; /* NULL: absent everywhere */
  char from[128];      /* "text_config.num_experts" */
};

#define FIELD_REQUIRED (-1)

/* Marks |-separated names as understood without reading them. */
void field_accept(const struct field_reader *reader, const char *names);
/* First non-null value of the |-separated names, inner levels first. */
struct field_place field_find(const struct field_reader *reader, const char *names);
/* The result is recorded as provenance under the first name. fallback FIELD_REQUIRED: absence fails. */
int32_t field_int(struct field_reader *reader, const char *names, int32_t fallback);
double field_double(struct field_reader *reader, const char *names, double fallback); /* fallback < 0: required */
bool field_bool(struct field_reader *reader, const char *names, bool fallback);
const char *field_string(struct field_reader *reader, const char *names, const char *fallback);
/* Reads an integer that a tensor also tells: absent -> the tensor's, different -> failure naming both. tensor_value < 0: no tensor tells. */
int32_t field_int_or_tensor(struct field_reader *reader, const char *names, int32_t fallback, int32_t tensor_value, const char *tensor);
/* Records a value that was not read as such (derived, default). */
void field_note(struct field_reader *reader, const char *name, json_t *value, const char *from);
void field_fail(struct field_reader *reader, const char *format, ...) PRINTF_LIKE(2, 3);
/* Logs a warning and keeps it for inspect; an arch without a list of warnings is silent. */
void arch_warn(struct arch *arch, const char *format, ...) PRINTF_LIKE(2, 3);

/* Fails on the first key of the text model's object that nobody looked for in this resolution, that is not known to leave the
 * arithmetic alone, and is not neutral (null, false, zero, empty). */
void field_check_known(struct field_reader *reader);

/* ---- what tensors say ---- */

/* What the tensors told the wrapper resolution. */
struct tensor_facts {
  const struct checkpoint *checkpoint;
  int32_t n_layers;  /* contiguous layers from 0 */
  bool fingerprinted; /* row chosen from tensors: its family defaults do not apply */
};
/* Length of an axis of layer `layer`'s tensor, or -1 when it is absent. For a weight that is stored packed, axis 0 still holds. */
int32_t tensor_axis(const struct field_reader *reader, const struct tensor_facts *facts, int32_t layer, const char *name, int axis);
/* The same with a module's name and a tail: "mlp.gate_proj", ".weight". -1 when the name is NULL. */
int32_t module_axis(const struct field_reader *reader, const struct tensor_facts *facts, int32_t layer, const char *module, const char *tail,
                    int axis);
/* Family defaults count only when config.json named the family; FIELD_REQUIRED otherwise. */
int32_t row_default(const struct tensor_facts *facts, int32_t value);
/* Is a layer's number in a list of numbers? */
bool list_has_layer(const json_t *list, int32_t layer);
/* Fails unless 1 <= value <= max. */
void field_positive(struct field_reader *reader, const char *name, int32_t value, int32_t max);
/* A flag that a tensor also shows (module + tail in `layer`): absent in the config, the tensor decides. */
struct flag_witness {
  const char *name, *module, *tail;
  int32_t layer;
};
bool flag_or_tensor(struct field_reader *reader, const struct tensor_facts *facts, const struct flag_witness *witness);

#endif
