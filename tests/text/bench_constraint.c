/* bench_constraint.c - what constraints cost with a vocabulary of 128 Ki tokens, as a table on stdout: compiling, the first mask of a state and
 * the next ones, by kind of place in the text. Decides nothing: numbers worth keeping go into docs/CONSTRAINTS.md.
 */
#include "text/constraint_matcher.h"

#include "base/json.h"
#include "base/memory.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS 20

/* An order form as applications write them, a little over 2 KB. */
static const char form[] =
    "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"title\":\"Order\",\"description\":\"An order as the shop's assistant fills it in.\",\"type\":\"object\","
    "\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\",\"description\":\"Number of the order\"},\"placed_at\":{\"type\":\"string\",\"format\":\"date-time\"},"
    "\"customer\":{\"$ref\":\"#/$defs/person\"},\"ship_to\":{\"anyOf\":[{\"$ref\":\"#/$defs/address\"},{\"type\":\"null\"}]},\"bill_to\":{\"$ref\":\"#/$defs/address\"},"
    "\"lines\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":50,\"items\":{\"$ref\":\"#/$defs/line\"}},\"status\":{\"enum\":[\"new\",\"paid\",\"packed\",\"sent\",\"returned\",\"cancelled\"]},"
    "\"notes\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":500},\"maxItems\":10},\"priority\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":5},"
    "\"discount\":{\"type\":\"number\",\"minimum\":0,\"maximum\":0.5},\"gift\":{\"type\":\"boolean\"},\"extra\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}}},"
    "\"required\":[\"id\",\"placed_at\",\"customer\",\"bill_to\",\"lines\",\"status\"],\"additionalProperties\":false,"
    "\"$defs\":{\"person\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":80},\"email\":{\"type\":\"string\",\"format\":\"email\"},"
    "\"phone\":{\"type\":\"string\",\"pattern\":\"^\\\\+[1-9][0-9 ]{6,18}$\"},\"born\":{\"type\":\"string\",\"format\":\"date\"},\"friends\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/person\"}}},"
    "\"required\":[\"name\",\"email\"],\"additionalProperties\":false},"
    "\"address\":{\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\",\"maxLength\":100},\"number\":{\"type\":\"string\",\"pattern\":\"^[0-9]{1,5}[a-z]?$\"},"
    "\"city\":{\"type\":\"string\",\"maxLength\":60},\"zip\":{\"type\":\"string\",\"pattern\":\"^[0-9A-Z -]{3,10}$\"},\"country\":{\"enum\":[\"AT\",\"BE\",\"CH\",\"DE\",\"DK\",\"ES\",\"FR\",\"IT\",\"NL\",\"PL\",\"PT\",\"SE\"]}},"
    "\"required\":[\"street\",\"city\",\"country\"],\"additionalProperties\":false},"
    "\"line\":{\"type\":\"object\",\"properties\":{\"sku\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-[0-9]{4,8}$\"},\"title\":{\"type\":\"string\"},\"count\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":999},"
    "\"price\":{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":100000,\"multipleOf\":0.01},\"options\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":20},\"maxItems\":8}},"
    "\"required\":[\"sku\",\"count\",\"price\"],\"additionalProperties\":false}}}";

static const struct {
  const char *name, *schema, *text;
} places[] = {
    {"order form, after {", form, "{"},
    {"order form, in a uuid", form, "{\"id\": \"12"},
    {"order form, in a name (80 max)", form, "{\"id\": \"123e4567-e89b-12d3-a456-426614174000\", \"placed_at\": \"2024-01-01T00:00:00Z\", \"customer\": {\"name\": \"A"},
    {"free string", "{\"type\":\"string\"}", "\"a"},
    {"string, maxLength 500", "{\"type\":\"string\",\"maxLength\":500}", "\"a"},
    {"string, pattern ^[A-Z].{0,200}$", "{\"type\":\"string\",\"pattern\":\"^[A-Z].{0,200}$\"}", "\"A"},
    {"string, pattern found anywhere", "{\"type\":\"string\",\"pattern\":\"[0-9]{3}-[a-z]\"}", "\"a"},
    {"any value, in a list", "true", "[1, "},
    {"any value, in a key", "true", "{\"k"},
    {"any value, after a number", "true", "[[1"},
    {"integer 1..999", "{\"type\":\"integer\",\"minimum\":1,\"maximum\":999}", ""},
    {"names but 3, in one", "{\"type\":\"object\",\"properties\":{\"abc\":{},\"abd\":{},\"x\":{}},\"additionalProperties\":true}", "{\"a"},
};

static struct constraint *compile(const char *text, struct eaglet_error *err) {
  struct constraint *constraint;
  json_t *schema = json_loads(text, JSON_DECODE_ANY, NULL);
  if (!schema || constraint_compile_schema(&constraint, schema, NULL, err) != EAGLET_OK) return NULL;
  json_decref(schema);
  return constraint;
}

static double time_compile(const char *text) {
  double best = 1e9;
  for (int again = 0; again < REPEATS; again++) {
    struct eaglet_error err;
    double start = time_now();
    constraint_free(compile(text, &err));
    double took = time_now() - start;
    best = took < best ? took : best;
  }
  return best;
}

/* New matcher each time, so that no state is known. Least of the repetitions. */
static bool time_place(const struct constraint_vocabulary *vocabulary, size_t place) {
  struct eaglet_error err;
  struct constraint *constraint = compile(places[place].schema, &err);
  double fresh = 1e9, again = 1e9, create = 1e9, known = 1e9;
  uint32_t n_states = 0;
  for (int i = 0; constraint && i < REPEATS; i++) {
    struct constraint_matcher *m;
    const uint32_t *mask;
    double t0 = time_now();
    if (constraint_matcher_create(&m, &(struct constraint_matcher_params){.constraint = constraint, .vocabulary = vocabulary, .masks_max = 2}, &err) != EAGLET_OK) return false;
    double t1 = time_now();
    uint32_t state = constraint_matcher_start(m), other = state;
    if (!constraint_matcher_advance_bytes(m, &state, places[place].text, strlen(places[place].text))) return false;
    double t2 = time_now();
    if (constraint_matcher_mask(m, state, &mask, &err) != EAGLET_OK) return false;
    double t3 = time_now();
    if (constraint_matcher_mask(m, state, &mask, &err) != EAGLET_OK) return false;
    double t4 = time_now();
    n_states = constraint_matcher_stats(m).n_states;
    for (int k = 0; k < 2; k++) { /* pushes the mask out, not the states */
      if (!constraint_matcher_mask(m, other, &mask, &err)) constraint_matcher_advance_bytes(m, &other, places[place].text, k ? 1 : 0);
    }
    if (constraint_matcher_mask(m, CONSTRAINT_STATE_ENDED, &mask, &err) != EAGLET_OK) return false;
    double t5 = time_now();
    if (constraint_matcher_mask(m, state, &mask, &err) != EAGLET_OK) return false;
    double t6 = time_now();
    create = t1 - t0 < create ? t1 - t0 : create;
    fresh = t3 - t2 < fresh ? t3 - t2 : fresh;
    again = t4 - t3 < again ? t4 - t3 : again;
    known = t6 - t5 < known ? t6 - t5 : known;
    constraint_matcher_free(m);
  }
  if (!constraint) return false;
  printf("  %-34s %8.0f %8zu %8.0f %8.0f %8.0f %8.2f %8u\n", places[place].name, 1e6 * time_compile(places[place].schema), constraint_n_states(constraint), 1e6 * create,
         1e6 * fresh, 1e6 * known, 1e6 * again, n_states);
  constraint_free(constraint);
  return true;
}

int main(int argc, char **argv) {
  const char *root = getenv("EAGLET_TEST_SHARED");
  char *path = argc > 1 ? memory_copy_string(argv[1]) : root ? memory_format("%s/public/tokenizers/llama3", root) : NULL;
  struct eaglet_error err;
  struct tokenizer *tokenizer;
  struct constraint_vocabulary *vocabulary;
  int32_t stop = 128009;
  if (!path || tokenizer_open(&tokenizer, path, &err) != EAGLET_OK) {
    printf("skip: no tokenizer\n");
    return 0;
  }
  free(path);
  int32_t n = tokenizer_n_ids(tokenizer);
  if (stop >= n) stop = n - 1;
  double start = time_now();
  if (constraint_vocabulary_create(&vocabulary, tokenizer, n, &(struct token_list){.ids = &stop, .n = 1}, &err) != EAGLET_OK) return 1;
  printf("vocabulary of %d tokens in %.0f ms; the order form has %zu bytes; us\n", n, 1e3 * (time_now() - start), strlen(form));
  printf("  %-34s %8s %8s %8s %8s %8s %8s %8s\n", "", "compile", "nfa", "create", "fresh", "evicted", "cached", "states");
  bool fine = true;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) fine &= time_place(vocabulary, i);
  constraint_vocabulary_free(vocabulary);
  tokenizer_close(tokenizer);
  return fine ? 0 : 1;
}
