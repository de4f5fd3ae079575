/* options.c - parses command lines and --config files by option tables; see options.h. Values go straight into the command's own
 * variables; strings from the command line are borrowed from argv, strings from a config file belong to the result. */
#include "base/options.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/options_internal.h"
#include "base/util.h"

#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OPTIONS_MAX 128
#define NAME_MAX_LENGTH 63
#define CONFIG_BYTES_MAX ((size_t)1 << 20)
#define CONFIG_LINE_MAX 190 /* inih reads lines into 200 bytes and would split a longer one */

struct option_walk options_walk(const struct options_spec *spec) {
  return (struct option_walk){.table = spec->tables, .at = spec->tables[0]};
}

const struct option *options_next(struct option_walk *walk) {
  while (*walk->table && !walk->at->name) walk->at = *++walk->table;
  if (!*walk->table) return NULL;
  ASSERT(walk->index < OPTIONS_MAX);
  walk->index++;
  return walk->at++;
}

const char *options_choice(const struct option *option, int i, size_t *length) {
  const char *word = option->argument;
  for (; i > 0; i--) {
    word = strchr(word, '|');
    if (!word) return NULL;
    word++;
  }
  *length = strcspn(word, "|");
  return word;
}

struct parser {
  const struct options_spec *spec;
  struct options_result *result;
  struct eaglet_error *err;
  int argc, at; /* argv[at] is the next argument */
  char **argv;
  const char *seen[OPTIONS_MAX]; /* text of the value an option was given on the command line */
  /* of the config file */
  const char *config;
  bool config_seen[OPTIONS_MAX];
  enum eaglet_status status;
};

static const struct option *find(const struct options_spec *spec, const char *name, size_t length, size_t *index) {
  struct option_walk walk = options_walk(spec);
  const struct option *option;
  while ((option = options_next(&walk))) {
    *index = walk.index - 1;
    if (strlen(option->name) == length && !memcmp(option->name, name, length)) return option;
  }
  return NULL;
}

static const struct option *find_letter(const struct options_spec *spec, char letter, size_t *index) {
  struct option_walk walk = options_walk(spec);
  const struct option *option;
  while ((option = options_next(&walk))) {
    *index = walk.index - 1;
    if (option->letter == letter) return option;
  }
  return NULL;
}

/* The option that was probably meant, or NULL. A beginning of exactly one name counts as close. */
static const struct option *nearest(const struct options_spec *spec, const char *name, size_t length) {
  struct option_walk walk = options_walk(spec);
  const struct option *option, *best = NULL;
  int best_distance = length < 6 ? 2 : 1 + (int)length / 3;
  while ((option = options_next(&walk))) {
    int edits = length >= 3 && !strncmp(option->name, name, length) ? 0 : text_distance(name, length, option->name, strlen(option->name));
    if (edits <= best_distance && (!best || edits < best_distance)) best = option, best_distance = edits;
  }
  return best;
}

static enum eaglet_status parse_number(const struct option *option, const char *label, const char *text, struct eaglet_error *err) {
  char *end;
  double value;
  bool ranged = option->min < option->max, whole = option->kind == OPTION_INT || option->kind == OPTION_UINT64;
  errno = 0;
  long long integer = 0;
  unsigned long long natural = 0;
  if (option->kind == OPTION_INT) {
    integer = strtoll(text, &end, 10);
    value = (double)integer;
    if (integer < INT32_MIN || integer > INT32_MAX) errno = ERANGE;
  } else if (option->kind == OPTION_UINT64) {
    natural = strtoull(text, &end, 10);
    value = (double)natural;
    if (text[0] == '-') end = (char *)(uintptr_t)text; /* strtoull would wrap it around */
  } else {
    value = strtod(text, &end);
    if (!isfinite(value)) errno = ERANGE;
    else errno = 0; /* an underflow to zero is a fine zero */
  }
  if (end == text || *end || text[strspn(text, " \t\n\v\f\r")] != text[0]) {
    FAIL(err, EAGLET_E_USAGE, "%s: expected a %snumber, found '%s'", label, whole ? "whole " : "", text);
  }
  if (ranged && (errno == ERANGE || value < option->min || value > option->max)) {
    FAIL(err, EAGLET_E_USAGE, "%s: expected a number from %.15g to %.15g, found '%s'", label, option->min, option->max, text);
  }
  if (errno == ERANGE) FAIL(err, EAGLET_E_USAGE, "%s: '%s' is out of range", label, text);
  if (option->kind == OPTION_INT) *(int32_t *)option->value = (int32_t)integer;
  if (option->kind == OPTION_UINT64) *(uint64_t *)option->value = natural;
  if (option->kind == OPTION_DOUBLE) *(double *)option->value = value;
  if (option->kind == OPTION_FLOAT) *(float *)option->value = (float)value;
  return EAGLET_OK;
}

static enum eaglet_status parse_flag(const struct option *option, const char *label, const char *text, struct eaglet_error *err) {
  static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcasecmp(text, words[i]) != 0) continue;
    *(bool *)option->value = i % 2;
    return EAGLET_OK;
  }
  return error_set(err, EAGLET_E_USAGE, "%s: expected true or false, found '%s'", label, text);
}

static enum eaglet_status parse_choice(const struct option *option, const char *label, const char *text, struct eaglet_error *err) {
  size_t length;
  const char *word;
  for (int i = 0; (word = options_choice(option, i, &length)); i++) {
    if (strlen(text) != length || memcmp(word, text, length) != 0) continue;
    *(int *)option->value = i + 1;
    return EAGLET_OK;
  }
  return error_set(err, EAGLET_E_USAGE, "%s: expected one of %s, found '%s'", label, option->argument, text);
}

/* label names the option in messages: "--threads" or "run.ini: threads". text must outlive the result. */
static enum eaglet_status store(const struct option *option, const char *label, const char *text, struct eaglet_error *err) {
  switch (option->kind) {
  case OPTION_FLAG: return parse_flag(option, label, text, err);
  case OPTION_INT:
  case OPTION_UINT64:
  case OPTION_DOUBLE:
  case OPTION_FLOAT: return parse_number(option, label, text, err);
  case OPTION_CHOICE: return parse_choice(option, label, text, err);
  case OPTION_STRING: *(const char **)option->value = text; return EAGLET_OK;
  case OPTION_LIST: {
    struct option_list *list = option->value;
    MEMORY_GROW(list->values, list->capacity, list->n + 1);
    list->values[list->n++] = text;
    return EAGLET_OK;
  }
  }
  return error_set(err, EAGLET_E_INTERNAL, "%s: unknown kind of option", label);
}

static enum eaglet_status give(struct parser *p, const struct option *option, size_t index, const char *text) {
  char label[NAME_MAX_LENGTH + 3];
  snprintf(label, sizeof label, "--%s", option->name);
  const char *earlier = p->seen[index];
  p->seen[index] = text;
  if (option->kind == OPTION_LIST) {
    if (!earlier) ((struct option_list *)option->value)->n = 0; /* replaces the default */
  } else if (earlier && strcmp(earlier, text) != 0) {
    FAIL(p->err, EAGLET_E_USAGE, "%s: given twice, as '%s' and '%s'", label, earlier, text);
  }
  return store(option, label, text, p->err);
}

/* Does this argument begin a known option? "-" is standard input, "-0.5" a number, "-word" may be someone's prompt. */
static bool is_option(const struct parser *p, const char *argument) {
  size_t index;
  if (argument[0] != '-' || argument[1] == '\0') return false;
  if (argument[1] == '-') return true;
  return find_letter(p->spec, argument[1], &index) != NULL;
}

static enum eaglet_status take_values(struct parser *p, const struct option *option, size_t index, const char *attached) {
  if (option->kind == OPTION_FLAG) {
    if (attached) FAIL(p->err, EAGLET_E_USAGE, "--%s: takes no value, found '%s'", option->name, attached);
    return give(p, option, index, "true");
  }
  if (attached) return give(p, option, index, attached);
  if (p->at >= p->argc || is_option(p, p->argv[p->at])) {
    FAIL(p->err, EAGLET_E_USAGE, "--%s: expected %s behind it, found %s", option->name, option->argument ? option->argument : "a value",
         p->at < p->argc ? p->argv[p->at] : "nothing");
  }
  TRY(give(p, option, index, p->argv[p->at++]));
  while (option->kind == OPTION_LIST && p->at < p->argc && !is_option(p, p->argv[p->at])) {
    TRY(give(p, option, index, p->argv[p->at++]));
  }
  return EAGLET_OK;
}

static enum eaglet_status take_long(struct parser *p, const char *argument) {
  const char *name = argument + 2;
  size_t length = strcspn(name, "="), index;
  const struct option *option = find(p->spec, name, length, &index);
  if (option) return take_values(p, option, index, name[length] == '=' ? name + length + 1 : NULL);
  const struct option *close = nearest(p->spec, name, length);
  if (close) FAIL(p->err, EAGLET_E_USAGE, "unknown option --%.*s; did you mean --%s?", (int)length, name, close->name);
  FAIL(p->err, EAGLET_E_USAGE, "unknown option --%.*s", (int)length, name);
}

/* "-q", "-qf FILE", "-fFILE" */
static enum eaglet_status take_letters(struct parser *p, const char *argument) {
  for (const char *letter = argument + 1; *letter; letter++) {
    size_t index;
    if (*letter == 'h' && !find_letter(p->spec, 'h', &index)) {
      p->result->help = true;
      continue;
    }
    const struct option *option = find_letter(p->spec, *letter, &index);
    if (!option) FAIL(p->err, EAGLET_E_USAGE, "unknown option -%c in '%s'", *letter, argument);
    if (option->kind != OPTION_FLAG) return take_values(p, option, index, letter[1] ? letter + 1 : NULL);
    TRY(take_values(p, option, index, NULL));
  }
  return EAGLET_OK;
}

static enum eaglet_status take_positional(struct parser *p, const char *argument) {
  const int room = (int)(sizeof p->result->positional / sizeof *p->result->positional);
  const int most = p->spec->n_positional_max < room ? p->spec->n_positional_max : room;
  if (p->result->n_positional >= most) {
    FAIL(p->err, EAGLET_E_USAGE, "unexpected argument '%s'", argument);
  }
  p->result->positional[p->result->n_positional++] = argument;
  return EAGLET_OK;
}

static enum eaglet_status parse_arguments(struct parser *p) {
  bool only_positional = false;
  while (p->at < p->argc && !p->result->help) {
    const char *argument = p->argv[p->at++];
    if (only_positional || argument[0] != '-' || argument[1] == '\0') {
      TRY(take_positional(p, argument));
    } else if (!strcmp(argument, "--")) {
      only_positional = true;
    } else if (!strcmp(argument, "--help")) {
      p->result->help = true;
    } else if (argument[1] == '-') {
      TRY(take_long(p, argument));
    } else {
      TRY(take_letters(p, argument));
    }
  }
  return EAGLET_OK;
}

static enum eaglet_status config_entry(struct parser *p, const char *section, const char *name, const char *text) {
  size_t index;
  if (*section && strcmp(section, p->spec->command) != 0) {
    FAIL(p->err, EAGLET_E_USAGE, "section [%s], expected [%s] or none", section, p->spec->command);
  }
  const struct option *option = find(p->spec, name, strlen(name), &index);
  if (!option || !strcmp(name, "config")) {
    const struct option *close = nearest(p->spec, name, strlen(name));
    FAIL(p->err, EAGLET_E_USAGE, "unknown key '%s'%s%s%s", name, close ? "; did you mean '" : "", close ? close->name : "",
         close ? "'?" : "");
  }
  if (p->seen[index]) return EAGLET_OK; /* the command line wins */
  if (option->kind == OPTION_LIST) {
    if (!p->config_seen[index]) ((struct option_list *)option->value)->n = 0;
  } else if (p->config_seen[index]) {
    FAIL(p->err, EAGLET_E_USAGE, "%s: given twice", name);
  }
  p->config_seen[index] = true;
  struct options_result *result = p->result;
  MEMORY_GROW(result->owned, result->owned_capacity, result->n_owned + 1);
  result->owned[result->n_owned] = memory_copy_string(text);
  return store(option, name, result->owned[result->n_owned++], p->err);
}

/* inih's callback: 0 is a failure, and its line becomes the result of ini_parse_string. Only the first failure is kept. */
static int on_entry(void *context, const char *section, const char *name, const char *text) {
  struct parser *p = context;
  if (p->status == EAGLET_OK) p->status = config_entry(p, section, name, text);
  return p->status == EAGLET_OK;
}

static enum eaglet_status parse_config_text(struct parser *p, const struct eaglet_text *text) {
  if (strlen(text->data) != text->length) FAIL(p->err, EAGLET_E_USAGE, "%s: expected text, found a NUL byte", p->config);
  int number = 1;
  for (const char *line = text->data; *line; number++) {
    size_t length = strcspn(line, "\n");
    if (length > CONFIG_LINE_MAX) {
      FAIL(p->err, EAGLET_E_USAGE, "%s: line %d: expected at most %d characters, found %zu", p->config, number, CONFIG_LINE_MAX, length);
    }
    line += length + (line[length] == '\n');
  }
  int bad_line = ini_parse_string(text->data, on_entry, p);
  if (p->status != EAGLET_OK) {
    error_prefix(p->err, "%s: line %d", p->config, bad_line);
    return p->status;
  }
  if (bad_line != 0) FAIL(p->err, EAGLET_E_USAGE, "%s: line %d: expected 'key = value'", p->config, bad_line);
  return EAGLET_OK;
}

static enum eaglet_status parse_config(struct parser *p) {
  size_t index;
  const struct option *option = find(p->spec, "config", strlen("config"), &index);
  if (!option || !p->seen[index]) return EAGLET_OK;
  p->config = p->seen[index];
  struct eaglet_text text = {0};
  TRY(file_read(&text, p->config, CONFIG_BYTES_MAX, p->err));
  enum eaglet_status status = parse_config_text(p, &text);
  free(text.data);
  return status;
}

static enum eaglet_status check_complete(struct parser *p) {
  struct option_walk walk = options_walk(p->spec);
  const struct option *option, *greedy = NULL;
  while ((option = options_next(&walk))) {
    bool given = p->seen[walk.index - 1] || p->config_seen[walk.index - 1];
    if (option->required && !given) FAIL(p->err, EAGLET_E_USAGE, "--%s is required", option->name);
    if (option->kind == OPTION_LIST && p->seen[walk.index - 1] && ((struct option_list *)option->value)->n > 1) greedy = option;
  }
  if (p->result->n_positional >= p->spec->n_positional_min) return EAGLET_OK;
  FAIL(p->err, EAGLET_E_USAGE, "expected %d argument%s (%s), found %d%s%s%s", p->spec->n_positional_min,
       p->spec->n_positional_min == 1 ? "" : "s", p->spec->usage, p->result->n_positional,
       greedy ? "; what stands behind --" : "", greedy ? greedy->name : "", greedy ? " belongs to it" : "");
}

enum eaglet_status options_parse(const struct options_spec *spec, int argc, char **argv, struct options_result *result,
                                 struct eaglet_error *err) {
  *result = (struct options_result){0};
  struct parser p = {.spec = spec, .result = result, .err = err, .argc = argc, .at = 1, .argv = argv};
  enum eaglet_status status = parse_arguments(&p);
  if (status == EAGLET_OK && !result->help) status = parse_config(&p);
  if (status == EAGLET_OK && !result->help) status = check_complete(&p);
  return status;
}

void options_release(struct options_result *result) {
  for (size_t i = 0; i < result->n_owned; i++) free(result->owned[i]);
  free(result->owned);
  *result = (struct options_result){0};
}

void options_list_clear(struct option_list *list) {
  free(list->values);
  *list = (struct option_list){0};
}
