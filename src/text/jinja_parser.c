/* jinja_parser.c - statements: tokens to tree, interned names, program lifetime. Expressions are in jinja_expression.c.
 *
 * Nesting is limited (DEPTH_MAX), so neither parsing nor walking the tree can exhaust the stack. Constructs that chat templates
 * do not use (include, import, extends, block, recursive loops, autoescape) are refused by name when compiling.
 */
#include "text/jinja_internal.h"

#include "base/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 150

/* ---- names ---- */

static size_t name_slot(const struct jinja_program *program, const char *name, size_t length) {
  uint64_t hash = 1469598103934665603u;
  for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)name[i]) * 1099511628211u;
  size_t slot = hash & (program->names_capacity - 1);
  while (program->names[slot] &&
         (program->names[slot]->length != length || memcmp(program->names[slot]->data, name, length) != 0))
    slot = (slot + 1) & (program->names_capacity - 1);
  return slot;
}

const struct jinja_string *program_find(const struct jinja_program *program, const char *name, size_t length) {
  return program->names_capacity ? program->names[name_slot(program, name, length)] : NULL;
}

bool jinja_mentions(const struct jinja_program *program, const char *name) {
  return program_find(program, name, strlen(name)) != NULL;
}

const struct jinja_string *program_intern(struct jinja_program *program, const char *name, size_t length) {
  if (program->n_names * 2 >= program->names_capacity) {
    struct jinja_program grown = *program;
    grown.names_capacity = program->names_capacity ? program->names_capacity * 2 : 64;
    grown.names = memory_alloc(grown.names_capacity * sizeof *grown.names);
    for (size_t i = 0; i < program->names_capacity; i++)
      if (program->names[i])
        grown.names[name_slot(&grown, program->names[i]->data, program->names[i]->length)] = program->names[i];
    free(program->names);
    *program = grown;
  }
  size_t slot = name_slot(program, name, length);
  if (!program->names[slot]) {
    struct jinja_string *string = pool_take(&program->pool, sizeof *string);
    *string = (struct jinja_string){
        .data = pool_copy(&program->pool, name, length), .length = length, .n_codepoints = SIZE_MAX};
    program->names[slot] = string;
    program->n_names++;
  }
  return program->names[slot];
}

/* ---- token stream ---- */

struct jinja_node *parser_fail(struct jinja_parser *parser, const char *format, ...) {
  if (parser->status != EAGLET_OK) return NULL;
  char message[512];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  parser->status = error_set(parser->err, EAGLET_E_INPUT, "template line %u: %s", parser_token(parser)->line, message);
  while (parser->tokens[parser->at].kind != TOKEN_END) parser->at++; /* so that every loop over tokens ends */
  return NULL;
}

const struct jinja_token *parser_token(const struct jinja_parser *parser) { return &parser->tokens[parser->at]; }

static void next(struct jinja_parser *parser) {
  if (parser_token(parser)->kind != TOKEN_END) parser->at++;
}

static bool is_text(const struct jinja_parser *parser, enum jinja_token_kind kind, const char *text) {
  const struct jinja_token *token = parser_token(parser);
  return token->kind == kind && token->length == strlen(text) && memcmp(token->text, text, token->length) == 0;
}

bool parser_is_operator(const struct jinja_parser *parser, const char *text) { return is_text(parser, TOKEN_OPERATOR, text); }
bool parser_is_name(const struct jinja_parser *parser, const char *text) { return is_text(parser, TOKEN_NAME, text); }

bool parser_skip_operator(struct jinja_parser *parser, const char *text) {
  bool is = parser_is_operator(parser, text);
  if (is) next(parser);
  return is;
}

bool parser_skip_name(struct jinja_parser *parser, const char *text) {
  bool is = parser_is_name(parser, text);
  if (is) next(parser);
  return is;
}

static struct jinja_node *fail_expected(struct jinja_parser *parser, const char *expected) {
  const struct jinja_token *token = parser_token(parser);
  static const char *const kinds[] = {"end of template", "text", "{{", "}}", "{%", "%}"};
  if (token->kind <= TOKEN_BLOCK_END) return parser_fail(parser, "expected %s, found %s", expected, kinds[token->kind]);
  return parser_fail(parser, "expected %s, found '%.*s'", expected, (int)(token->length > 60 ? 60 : token->length), token->text);
}

bool parser_expect_operator(struct jinja_parser *parser, const char *text) {
  if (parser_skip_operator(parser, text)) return true;
  char expected[8];
  snprintf(expected, sizeof expected, "'%s'", text);
  fail_expected(parser, expected);
  return false;
}

const struct jinja_string *parser_expect_name(struct jinja_parser *parser) {
  const struct jinja_token *token = parser_token(parser);
  if (token->kind != TOKEN_NAME) {
    fail_expected(parser, "a name");
    return NULL;
  }
  next(parser);
  return program_intern(parser->program, token->text, token->length);
}

static void expect_block_end(struct jinja_parser *parser) {
  if (parser_token(parser)->kind == TOKEN_BLOCK_END) next(parser);
  else fail_expected(parser, "%}");
}

bool parser_enter(struct jinja_parser *parser) {
  if (++parser->depth > DEPTH_MAX) parser_fail(parser, "nested more than %d deep", DEPTH_MAX);
  return parser->status == EAGLET_OK;
}

/* ---- nodes ---- */

struct jinja_node *parser_node(struct jinja_parser *parser, enum jinja_node_kind kind) {
  struct jinja_node *node = pool_take(&parser->program->pool, sizeof *node);
  node->kind = kind;
  node->line = parser_token(parser)->line;
  return node;
}

void parser_take_list(struct jinja_parser *parser, struct jinja_node *node, struct node_list *list) {
  node->n_list = (uint32_t)list->n;
  if (list->n) {
    node->list = pool_take(&parser->program->pool, list->n * sizeof *node->list);
    memcpy(node->list, list->items, list->n * sizeof *node->list);
  }
  free(list->items);
  *list = (struct node_list){0};
}

static void append(struct node_list *list, struct jinja_node *node) {
  MEMORY_GROW(list->items, list->capacity, list->n + 1);
  list->items[list->n++] = node;
}

/* ---- statements ---- */

static struct jinja_node *parse_statement(struct jinja_parser *parser);

static struct jinja_node *text_node(struct jinja_parser *parser) {
  struct jinja_node *node = parser_node(parser, NODE_TEXT);
  const struct jinja_token *token = parser_token(parser);
  struct jinja_string *string = pool_take(&parser->program->pool, sizeof *string);
  *string = (struct jinja_string){.data = token->text, .length = token->length, .n_codepoints = SIZE_MAX};
  (void)string_count(string); /* now: renders on several threads share the program and must not write to it */
  node->value = (struct jinja_value){.type = JINJA_STRING, .string = string};
  next(parser);
  return node;
}

static bool at_name_of(const struct jinja_parser *parser, const char *const *names) {
  for (; *names; names++)
    if (parser_is_name(parser, *names)) return true;
  return false;
}

/* Statements up to a tag whose name is one of `ends` (NULL: end of template); that name is the current token. */
static struct jinja_node *parse_body(struct jinja_parser *parser, const char *const *ends) {
  struct jinja_node *block = parser_node(parser, NODE_BLOCK);
  struct node_list list = {0};
  if (!parser_enter(parser)) return NULL;
  for (;;) {
    enum jinja_token_kind kind = parser_token(parser)->kind;
    if (kind == TOKEN_END) {
      if (ends) parser_fail(parser, "expected {%% %s %%}, found end of template", ends[0]);
      break;
    }
    if (kind == TOKEN_TEXT) {
      append(&list, text_node(parser));
      continue;
    }
    next(parser);
    if (kind == TOKEN_VARIABLE_BEGIN) {
      struct jinja_node *output = parser_node(parser, NODE_OUTPUT);
      output->a = parse_tuple(parser, true);
      append(&list, output);
      if (parser_token(parser)->kind != TOKEN_VARIABLE_END) fail_expected(parser, "}}");
      else next(parser);
      continue;
    }
    if (ends && at_name_of(parser, ends)) break;
    struct jinja_node *statement = parse_statement(parser);
    if (statement) append(&list, statement);
  }
  parser->depth--;
  parser_take_list(parser, block, &list);
  return block;
}

/* Body, then the end tag's name and its %}. */
static struct jinja_node *parse_body_to(struct jinja_parser *parser, const char *end) {
  const char *ends[] = {end, NULL};
  expect_block_end(parser);
  struct jinja_node *body = parse_body(parser, ends);
  next(parser);
  return body;
}

static struct jinja_node *parse_if(struct jinja_parser *parser) {
  static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif", NULL};
  struct jinja_node *first = parser_node(parser, NODE_IF), *node = first;
  for (;;) {
    node->a = parse_tuple(parser, false);
    expect_block_end(parser);
    node->b = parse_body(parser, ends);
    if (!parser_skip_name(parser, "elif")) break;
    node->c = parser_node(parser, NODE_IF); /* a chain, walked in a loop: its length is not nesting */
    node = node->c;
  }
  if (parser_skip_name(parser, "else")) {
    expect_block_end(parser);
    node->c = parse_body(parser, end);
  }
  next(parser);
  return first;
}

static struct jinja_node *parse_for(struct jinja_parser *parser) {
  static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
  struct jinja_node *node = parser_node(parser, NODE_FOR);
  struct node_list bodies = {0};
  node->a = parse_target(parser, false);
  if (!parser_skip_name(parser, "in")) fail_expected(parser, "'in'");
  node->b = parse_tuple(parser, false);
  if (parser_skip_name(parser, "if")) node->c = parse_expression(parser);
  if (parser_is_name(parser, "recursive")) return parser_fail(parser, "recursive loops are not supported");
  expect_block_end(parser);
  parser->loop_depth++;
  append(&bodies, parse_body(parser, ends));
  parser->loop_depth--;
  struct jinja_node *otherwise = NULL;
  if (parser_skip_name(parser, "else")) {
    expect_block_end(parser);
    otherwise = parse_body(parser, end);
  }
  append(&bodies, otherwise);
  next(parser);
  parser_take_list(parser, node, &bodies);
  return node;
}

static struct jinja_node *parse_set(struct jinja_parser *parser) {
  struct jinja_node *node = parser_node(parser, NODE_SET);
  node->a = parse_target(parser, true);
  if (parser_skip_operator(parser, "=")) {
    node->b = parse_tuple(parser, true);
    return node;
  }
  node->kind = NODE_SET_BLOCK;
  if (parser_is_operator(parser, "|")) node->c = parse_filters(parser, NULL, false);
  node->b = parse_body_to(parser, "endset");
  return node;
}

/* (a, b=1): names and defaults (NULL where none) into node. */
static void parse_signature(struct jinja_parser *parser, struct jinja_node *node) {
  struct node_list defaults = {0};
  const struct jinja_string *names[64];
  while (!parser_is_operator(parser, ")") && parser->status == EAGLET_OK) {
    if (defaults.n && !parser_expect_operator(parser, ",")) break;
    if (defaults.n == sizeof names / sizeof *names) {
      parser_fail(parser, "more than 64 parameters");
      break;
    }
    names[defaults.n] = parser_expect_name(parser);
    append(&defaults, parser_skip_operator(parser, "=") ? parse_expression(parser) : NULL);
  }
  parser_expect_operator(parser, ")");
  node->names = pool_take(&parser->program->pool, (defaults.n + 1) * sizeof *node->names);
  memcpy(node->names, names, defaults.n * sizeof *node->names);
  parser_take_list(parser, node, &defaults);
}

static struct jinja_node *parse_macro(struct jinja_parser *parser) {
  struct jinja_node *node = parser_node(parser, NODE_MACRO);
  node->name = parser_expect_name(parser);
  if (!parser_expect_operator(parser, "(")) return NULL;
  parse_signature(parser, node);
  int loop_depth = parser->loop_depth;
  parser->loop_depth = 0;
  node->a = parse_body_to(parser, "endmacro");
  parser->loop_depth = loop_depth;
  return node;
}

static struct jinja_node *parse_call_block(struct jinja_parser *parser) {
  struct jinja_node *node = parser_node(parser, NODE_CALL_BLOCK), *caller = parser_node(parser, NODE_MACRO);
  caller->name = program_intern(parser->program, "caller", 6);
  if (parser_skip_operator(parser, "(")) parse_signature(parser, caller);
  node->a = parse_postfix_expression(parser);
  if (node->a && node->a->kind != NODE_CALL) return parser_fail(parser, "expected a call in {%% call %%}");
  int loop_depth = parser->loop_depth;
  parser->loop_depth = 0;
  caller->a = parse_body_to(parser, "endcall");
  parser->loop_depth = loop_depth;
  node->b = caller;
  return node;
}

static struct jinja_node *parse_with(struct jinja_parser *parser) {
  struct jinja_node *node = parser_node(parser, NODE_WITH);
  struct node_list list = {0};
  while (parser_token(parser)->kind != TOKEN_BLOCK_END && parser->status == EAGLET_OK) {
    if (list.n && !parser_expect_operator(parser, ",")) break;
    append(&list, parse_target(parser, false));
    if (!parser_expect_operator(parser, "=")) break;
    append(&list, parse_expression(parser));
  }
  parser_take_list(parser, node, &list);
  node->a = parse_body_to(parser, "endwith");
  return node;
}

static struct jinja_node *parse_jump(struct jinja_parser *parser, enum jinja_node_kind kind) {
  if (parser->loop_depth == 0) return parser_fail(parser, "break or continue outside a loop");
  return parser_node(parser, kind);
}

/* After {%: the statement and its %}. */
static struct jinja_node *parse_statement(struct jinja_parser *parser) {
  struct jinja_node *node = NULL;
  if (parser_skip_name(parser, "if")) node = parse_if(parser);
  else if (parser_skip_name(parser, "for")) node = parse_for(parser);
  else if (parser_skip_name(parser, "set")) node = parse_set(parser);
  else if (parser_skip_name(parser, "macro")) node = parse_macro(parser);
  else if (parser_skip_name(parser, "call")) node = parse_call_block(parser);
  else if (parser_skip_name(parser, "with")) node = parse_with(parser);
  else if (parser_skip_name(parser, "break")) node = parse_jump(parser, NODE_BREAK);
  else if (parser_skip_name(parser, "continue")) node = parse_jump(parser, NODE_CONTINUE);
  else if (parser_skip_name(parser, "generation")) {
    node = parser_node(parser, NODE_GENERATION);
    node->a = parse_body_to(parser, "endgeneration");
  } else if (parser_skip_name(parser, "filter")) {
    node = parser_node(parser, NODE_FILTER_BLOCK);
    node->a = parse_filters(parser, NULL, true);
    node->b = parse_body_to(parser, "endfilter");
  } else if (parser_skip_name(parser, "print")) {
    node = parser_node(parser, NODE_OUTPUT);
    node->a = parse_tuple(parser, true);
  } else if (parser_token(parser)->kind == TOKEN_NAME)
    return parser_fail(parser, "unknown or unsupported statement '%.*s'", (int)(parser_token(parser)->length > 60 ? 60 : parser_token(parser)->length),
                       parser_token(parser)->text);
  else
    return fail_expected(parser, "a statement");
  expect_block_end(parser);
  return node;
}

/* ---- program ---- */

enum eaglet_status jinja_compile(struct jinja_program **program, const char *source, size_t length, struct eaglet_error *err) {
  *program = NULL;
  struct jinja_program *p = memory_alloc(sizeof *p);
  struct jinja_tokens tokens = {0};
  enum eaglet_status status = jinja_lex(&tokens, &p->pool, source, length, err);
  if (status == EAGLET_OK) {
    struct jinja_parser parser = {.program = p, .tokens = tokens.items, .err = err};
    p->root = parse_body(&parser, NULL);
    status = parser.status;
  }
  free(tokens.items);
  if (status == EAGLET_OK) *program = p;
  else jinja_free(p);
  return status;
}

void jinja_free(struct jinja_program *program) {
  if (!program) return;
  pool_release(&program->pool);
  free(program->names);
  free(program);
}
