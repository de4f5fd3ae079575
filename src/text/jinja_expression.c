/* jinja_expression.c - expressions by precedence, as Jinja's parser orders them: condition, or, and, not, comparison, + -, ~,
 * * / // %, **, unary minus, then primary with attributes, subscripts, calls, filters and tests.
 */
#include "text/jinja_internal.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

static void append(struct node_list *list, struct jinja_node *node) {
  MEMORY_GROW(list->items, list->capacity, list->n + 1);
  list->items[list->n++] = node;
}

static void skip_token(struct jinja_parser *parser) {
  if (parser_token(parser)->kind != TOKEN_END) parser->at++;
}

static struct jinja_node *parse_unary(struct jinja_parser *parser, bool with_filter);

static struct jinja_node *constant(struct jinja_parser *parser, struct jinja_value value) {
  struct jinja_node *node = parser_node(parser, NODE_CONSTANT);
  node->value = value;
  return node;
}

/* ---- primary ---- */

/* Adjacent literals join: 'a' 'b'. */
static struct jinja_node *parse_string(struct jinja_parser *parser) {
  struct jinja_node *node = parser_node(parser, NODE_CONSTANT);
  struct buffer text;
  buffer_init(&text);
  while (parser_token(parser)->kind == TOKEN_STRING) {
    buffer_append(&text, parser_token(parser)->text, parser_token(parser)->length);
    skip_token(parser);
  }
  struct jinja_pool *pool = &parser->program->pool;
  struct jinja_string *string = pool_take(pool, sizeof *string);
  *string = (struct jinja_string){
      .data = pool_copy(pool, text.data, text.length), .length = text.length, .n_codepoints = SIZE_MAX};
  buffer_clear(&text);
  (void)string_count(string); /* now: renders on several threads share the program and must not write to it */
  node->value = (struct jinja_value){.type = JINJA_STRING, .string = string};
  return node;
}

/* Items up to the closing bracket; dictionaries have key: value pairs. */
static struct jinja_node *parse_literal(struct jinja_parser *parser, enum jinja_node_kind kind, const char *close) {
  struct jinja_node *node = parser_node(parser, kind);
  struct node_list list = {0};
  while (!parser_is_operator(parser, close) && parser->status == EAGLET_OK) {
    if (list.n && !parser_expect_operator(parser, ",")) break;
    if (parser_is_operator(parser, close)) break;
    append(&list, parse_expression(parser));
    if (kind != NODE_DICT) continue;
    if (!parser_expect_operator(parser, ":")) break;
    append(&list, parse_expression(parser));
  }
  parser_expect_operator(parser, close);
  parser_take_list(parser, node, &list);
  return node;
}

static struct jinja_node *parse_name(struct jinja_parser *parser) {
  static const struct {
    const char *name;
    enum jinja_type type;
    bool boolean;
  } constants[] = {{"true", JINJA_BOOL, true}, {"True", JINJA_BOOL, true},  {"false", JINJA_BOOL, false},
                   {"False", JINJA_BOOL, false}, {"none", JINJA_NONE, false}, {"None", JINJA_NONE, false}};
  for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
    if (parser_skip_name(parser, constants[i].name))
      return constant(parser, (struct jinja_value){.type = constants[i].type, .boolean = constants[i].boolean});
  struct jinja_node *node = parser_node(parser, NODE_NAME);
  node->name = parser_expect_name(parser);
  return node;
}

static struct jinja_node *parse_parentheses(struct jinja_parser *parser) {
  if (parser_skip_operator(parser, ")")) return parser_node(parser, NODE_TUPLE);
  struct jinja_node *node = parse_tuple(parser, true);
  parser_expect_operator(parser, ")");
  return node;
}

static struct jinja_node *parse_primary(struct jinja_parser *parser) {
  const struct jinja_token *token = parser_token(parser);
  switch (token->kind) {
  case TOKEN_NAME: return parse_name(parser);
  case TOKEN_STRING: return parse_string(parser);
  case TOKEN_INTEGER: skip_token(parser); return constant(parser, value_int(token->integer));
  case TOKEN_FLOAT: skip_token(parser); return constant(parser, value_float(token->number));
  default: break;
  }
  if (parser_skip_operator(parser, "(")) return parse_parentheses(parser);
  if (parser_skip_operator(parser, "[")) return parse_literal(parser, NODE_LIST, "]");
  if (parser_skip_operator(parser, "{")) return parse_literal(parser, NODE_DICT, "}");
  if (token->kind == TOKEN_OPERATOR) return parser_fail(parser, "unexpected '%s'", token->text);
  return parser_fail(parser, "expected an expression");
}

/* ---- after a primary ---- */

/* After "(": positional and named arguments into node, and ")". */
static void parse_arguments(struct jinja_parser *parser, struct jinja_node *node) {
  struct node_list list = {0}, named = {0};
  const struct jinja_string *names[64];
  bool first = true;
  while (!parser_is_operator(parser, ")") && parser->status == EAGLET_OK) {
    if (!first && !parser_expect_operator(parser, ",")) break;
    first = false;
    if (parser_is_operator(parser, ")")) break;
    bool star = parser_skip_operator(parser, "*"), stars = !star && parser_skip_operator(parser, "**");
    if (star || stars) {
      struct jinja_node **slot = star ? &node->b : &node->c;
      if (*slot) parser_fail(parser, "more than one unpacked argument of a sort");
      *slot = parse_expression(parser);
      continue;
    }
    const struct jinja_token *token = parser_token(parser);
    bool is_named = token->kind == TOKEN_NAME && token[1].kind == TOKEN_OPERATOR && token[1].length == 1 && token[1].text[0] == '=';
    if (is_named && named.n < sizeof names / sizeof *names) {
      names[named.n] = parser_expect_name(parser);
      skip_token(parser);
      append(&named, parse_expression(parser));
    } else if (is_named || named.n)
      parser_fail(parser, "%s", is_named ? "too many named arguments" : "positional argument after a named one");
    else
      append(&list, parse_expression(parser));
  }
  parser_expect_operator(parser, ")");
  parser_take_list(parser, node, &list);
  node->n_named = (uint32_t)named.n;
  node->named = pool_take(&parser->program->pool, (named.n + 1) * sizeof *node->named);
  node->names = pool_take(&parser->program->pool, (named.n + 1) * sizeof *node->names);
  if (named.n) {
    memcpy(node->named, named.items, named.n * sizeof *node->named);
    memcpy(node->names, names, named.n * sizeof *node->names);
  }
  free(named.items);
}

static bool at_slice_end(const struct jinja_parser *parser) {
  return parser_is_operator(parser, "]") || parser_is_operator(parser, ":");
}

/* After "[": item or slice, and "]". */
static struct jinja_node *parse_subscript(struct jinja_parser *parser, struct jinja_node *object) {
  struct jinja_node *node = parser_node(parser, NODE_ITEM);
  node->a = object;
  struct jinja_node *first = at_slice_end(parser) ? NULL : parse_tuple(parser, true);
  if (parser_skip_operator(parser, ":")) {
    struct node_list step = {0};
    node->kind = NODE_SLICE;
    node->b = first;
    if (!at_slice_end(parser)) node->c = parse_expression(parser);
    append(&step, parser_skip_operator(parser, ":") && !at_slice_end(parser) ? parse_expression(parser) : NULL);
    parser_take_list(parser, node, &step);
  } else if (!first)
    return parser_fail(parser, "empty subscript");
  else
    node->b = first;
  parser_expect_operator(parser, "]");
  return node;
}

static struct jinja_node *parse_postfix(struct jinja_parser *parser, struct jinja_node *node) {
  while (parser->status == EAGLET_OK) {
    struct jinja_node *outer;
    if (parser_skip_operator(parser, ".")) {
      outer = parser_node(parser, NODE_ATTRIBUTE);
      const struct jinja_token *token = parser_token(parser);
      if (token->kind == TOKEN_INTEGER) {
        outer->kind = NODE_ITEM;
        outer->b = constant(parser, value_int(token->integer));
        skip_token(parser);
      } else
        outer->name = parser_expect_name(parser);
      outer->a = node;
    } else if (parser_skip_operator(parser, "["))
      outer = parse_subscript(parser, node);
    else if (parser_is_operator(parser, "(")) {
      outer = parser_node(parser, NODE_CALL);
      skip_token(parser);
      outer->a = node;
      parse_arguments(parser, outer);
    } else
      break;
    node = outer;
    if (!parser_enter(parser)) return NULL; /* a chain is as deep as it is long */
  }
  return node;
}

/* An unknown name is an error only when it is reached, as in Jinja inside a condition. */
static struct jinja_node *parse_filter(struct jinja_parser *parser, struct jinja_node *input) {
  struct jinja_node *node = parser_node(parser, NODE_FILTER);
  node->a = input;
  node->name = parser_expect_name(parser);
  if (!node->name) return NULL;
  node->row = filter_find(node->name->data, node->name->length);
  if (parser_skip_operator(parser, "(")) parse_arguments(parser, node);
  return node;
}

struct jinja_node *parse_filters(struct jinja_parser *parser, struct jinja_node *input, bool leading_name) {
  struct jinja_node *node = input;
  while (parser->status == EAGLET_OK && (leading_name || parser_skip_operator(parser, "|"))) {
    leading_name = false;
    node = parse_filter(parser, node);
    if (!parser_enter(parser)) return NULL;
  }
  return node;
}

/* After "is": the test; an argument may follow without parentheses. */
static struct jinja_node *parse_test(struct jinja_parser *parser, struct jinja_node *input) {
  struct jinja_node *node = parser_node(parser, NODE_TEST);
  bool negated = parser_skip_name(parser, "not");
  node->a = input;
  node->name = parser_expect_name(parser);
  if (!node->name) return NULL;
  node->row = test_find(node->name->data, node->name->length);
  const struct jinja_token *token = parser_token(parser);
  bool is_value = token->kind == TOKEN_NAME || token->kind == TOKEN_STRING || token->kind == TOKEN_INTEGER ||
                  token->kind == TOKEN_FLOAT || parser_is_operator(parser, "[") || parser_is_operator(parser, "{");
  bool is_word = parser_is_name(parser, "else") || parser_is_name(parser, "or") || parser_is_name(parser, "and") ||
                 parser_is_name(parser, "if") || parser_is_name(parser, "is") || parser_is_name(parser, "in") ||
                 parser_is_name(parser, "not");
  if (parser_skip_operator(parser, "("))
    parse_arguments(parser, node);
  else if (is_value && !is_word) {
    struct node_list list = {0};
    append(&list, parse_postfix(parser, parse_primary(parser)));
    parser_take_list(parser, node, &list);
  }
  if (!negated) return node;
  struct jinja_node *outer = parser_node(parser, NODE_NOT);
  outer->a = node;
  return outer;
}

static struct jinja_node *parse_unary_inner(struct jinja_parser *parser, bool with_filter) {
  struct jinja_node *node;
  if (parser_is_operator(parser, "-") || parser_is_operator(parser, "+")) {
    node = parser_node(parser, parser_is_operator(parser, "-") ? NODE_NEGATE : NODE_POSITIVE);
    skip_token(parser);
    node->a = parse_unary(parser, false);
  } else
    node = parse_primary(parser);
  node = parse_postfix(parser, node);
  while (with_filter && parser->status == EAGLET_OK) {
    if (parser_is_operator(parser, "|"))
      node = parse_filters(parser, node, false);
    else if (parser_skip_name(parser, "is"))
      node = parse_test(parser, node);
    else if (parser_is_operator(parser, "("))
      node = parse_postfix(parser, node);
    else
      break;
  }
  return node;
}

static struct jinja_node *parse_unary(struct jinja_parser *parser, bool with_filter) {
  int depth = parser->depth;
  if (!parser_enter(parser)) return NULL;
  struct jinja_node *node = parse_unary_inner(parser, with_filter);
  parser->depth = depth; /* chains counted their length: back to where this expression began */
  return node;
}

struct jinja_node *parse_postfix_expression(struct jinja_parser *parser) { return parse_unary(parser, true); }

/* ---- operators ---- */

static struct jinja_node *binary(struct jinja_parser *parser, enum jinja_operator op, struct jinja_node *a, struct jinja_node *b) {
  struct jinja_node *node = parser_node(parser, NODE_BINARY);
  node->op = op;
  node->a = a;
  node->b = b;
  return node;
}

static struct jinja_node *parse_power(struct jinja_parser *parser) {
  struct jinja_node *left = parse_unary(parser, true);
  while (parser_skip_operator(parser, "**")) left = binary(parser, OP_POW, left, parse_unary(parser, true));
  return left;
}

static struct jinja_node *parse_product(struct jinja_parser *parser) {
  struct jinja_node *left = parse_power(parser);
  for (int n = 0;; n++) {
    enum jinja_operator op = parser_skip_operator(parser, "*")    ? OP_MUL
                             : parser_skip_operator(parser, "/")  ? OP_DIV
                             : parser_skip_operator(parser, "//") ? OP_FLOORDIV
                             : parser_skip_operator(parser, "%")  ? OP_MOD
                                                                  : OP_NONE;
    if (op == OP_NONE) return left;
    if (n > 200) return parser_fail(parser, "too many operators in a row");
    left = binary(parser, op, left, parse_power(parser));
  }
}

static struct jinja_node *parse_concat(struct jinja_parser *parser) {
  struct jinja_node *first = parse_product(parser);
  if (!parser_is_operator(parser, "~")) return first;
  struct jinja_node *node = parser_node(parser, NODE_CONCAT);
  struct node_list list = {0};
  append(&list, first);
  while (parser_skip_operator(parser, "~")) append(&list, parse_product(parser));
  parser_take_list(parser, node, &list);
  return node;
}

static struct jinja_node *parse_sum(struct jinja_parser *parser) {
  struct jinja_node *left = parse_concat(parser);
  for (int n = 0;; n++) {
    enum jinja_operator op = parser_skip_operator(parser, "+") ? OP_ADD : parser_skip_operator(parser, "-") ? OP_SUB : OP_NONE;
    if (op == OP_NONE) return left;
    if (n > 200) return parser_fail(parser, "too many operators in a row");
    left = binary(parser, op, left, parse_concat(parser));
  }
}

static enum jinja_operator comparison(struct jinja_parser *parser) {
  static const struct {
    const char *text;
    enum jinja_operator op;
  } table[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {">=", OP_GE}, {"<", OP_LT}, {">", OP_GT}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (parser_skip_operator(parser, table[i].text)) return table[i].op;
  if (parser_skip_name(parser, "in")) return OP_IN;
  const struct jinja_token *token = parser_token(parser);
  if (parser_is_name(parser, "not") && token[1].kind == TOKEN_NAME && token[1].length == 2 && memcmp(token[1].text, "in", 2) == 0) {
    skip_token(parser);
    skip_token(parser);
    return OP_NOT_IN;
  }
  return OP_NONE;
}

static struct jinja_node *parse_compare(struct jinja_parser *parser) {
  struct jinja_node *first = parse_sum(parser);
  enum jinja_operator ops[32], op;
  struct node_list list = {0};
  while ((op = comparison(parser)) != OP_NONE) {
    if (list.n == sizeof ops / sizeof *ops) {
      parser_fail(parser, "too many comparisons in a row");
      break;
    }
    ops[list.n] = op;
    append(&list, parse_sum(parser));
  }
  if (list.n == 0) return first;
  struct jinja_node *node = parser_node(parser, NODE_COMPARE);
  node->a = first;
  node->ops = pool_take(&parser->program->pool, list.n * sizeof *ops);
  memcpy(node->ops, ops, list.n * sizeof *ops);
  parser_take_list(parser, node, &list);
  return node;
}

static struct jinja_node *parse_not(struct jinja_parser *parser) {
  int n = 0;
  while (parser_skip_name(parser, "not")) n++;
  struct jinja_node *node = parse_compare(parser);
  if (n == 0) return node;
  for (int i = 0; i < (n % 2 ? 1 : 2); i++) { /* pairs cancel but still give a bool */
    struct jinja_node *outer = parser_node(parser, NODE_NOT);
    outer->a = node;
    node = outer;
  }
  return node;
}

static struct jinja_node *parse_logic(struct jinja_parser *parser, bool is_or) {
  struct jinja_node *left = is_or ? parse_logic(parser, false) : parse_not(parser);
  for (int n = 0; parser_skip_name(parser, is_or ? "or" : "and"); n++) {
    if (n > 200) return parser_fail(parser, "too many operators in a row");
    struct jinja_node *node = parser_node(parser, is_or ? NODE_OR : NODE_AND);
    node->a = left;
    node->b = is_or ? parse_logic(parser, false) : parse_not(parser);
    left = node;
  }
  return left;
}

struct jinja_node *parse_expression_no_condition(struct jinja_parser *parser) {
  if (!parser_enter(parser)) return NULL;
  struct jinja_node *node = parse_logic(parser, true);
  parser->depth--;
  return node;
}

struct jinja_node *parse_expression(struct jinja_parser *parser) {
  if (!parser_enter(parser)) return NULL;
  struct jinja_node *node = parse_logic(parser, true);
  for (int n = 0; parser_skip_name(parser, "if"); n++) {
    struct jinja_node *outer = parser_node(parser, NODE_CONDITION);
    if (n > 100) return parser_fail(parser, "too many conditions in a row");
    outer->a = node;
    outer->b = parse_logic(parser, true);
    if (parser_skip_name(parser, "else")) outer->c = parse_expression(parser);
    node = outer;
  }
  parser->depth--;
  return node;
}

static bool at_tuple_end(const struct jinja_parser *parser) {
  enum jinja_token_kind kind = parser_token(parser)->kind;
  return kind == TOKEN_VARIABLE_END || kind == TOKEN_BLOCK_END || kind == TOKEN_END || parser_is_operator(parser, ")") ||
         parser_is_operator(parser, "]");
}

struct jinja_node *parse_tuple(struct jinja_parser *parser, bool with_condition) {
  struct jinja_node *first = with_condition ? parse_expression(parser) : parse_expression_no_condition(parser);
  if (!parser_is_operator(parser, ",")) return first;
  struct jinja_node *node = parser_node(parser, NODE_TUPLE);
  struct node_list list = {0};
  append(&list, first);
  while (parser_skip_operator(parser, ",") && !at_tuple_end(parser))
    append(&list, with_condition ? parse_expression(parser) : parse_expression_no_condition(parser));
  parser_take_list(parser, node, &list);
  return node;
}

/* Names to assign to: a, (a, b), or namespace.attribute in set. */
struct jinja_node *parse_target(struct jinja_parser *parser, bool with_attribute) {
  struct node_list list = {0};
  struct jinja_node *tuple = parser_node(parser, NODE_TUPLE);
  bool parentheses = parser_skip_operator(parser, "("), comma = false;
  do {
    struct jinja_node *name = parser_node(parser, NODE_NAME);
    name->name = parser_expect_name(parser);
    if (with_attribute && !comma && !parentheses && parser_skip_operator(parser, ".")) {
      struct jinja_node *attribute = parser_node(parser, NODE_ATTRIBUTE);
      attribute->a = name;
      attribute->name = parser_expect_name(parser);
      return attribute;
    }
    append(&list, name);
    if (!parser_skip_operator(parser, ",")) break;
    comma = true;
  } while (parser_token(parser)->kind == TOKEN_NAME && !parser_is_name(parser, "in"));
  if (parentheses) parser_expect_operator(parser, ")");
  if (!comma) {
    struct jinja_node *single = list.items[0];
    free(list.items);
    return single;
  }
  parser_take_list(parser, tuple, &list);
  return tuple;
}
