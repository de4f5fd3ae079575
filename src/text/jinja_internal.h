/* jinja_internal.h - what the files of the Jinja interpreter share. Private to src/text/jinja_*.c.
 *
 * Reading order: values and their memory (jinja_value.c), tokens (jinja_lexer.c), tree (jinja_parser.c, jinja_expression.c),
 * evaluation (jinja_eval.c, jinja_operators.c), tables of functions (jinja_filters.c, jinja_sequence.c, jinja_tests.c,
 * jinja_methods.c, jinja_globals.c), text (jinja_format.c, jinja_unicode.c).
 *
 * Failure is sticky: the first jinja_fail fills the error and every function returns at once from then on, with a harmless
 * value. So expressions can be evaluated without checking each operand; loops check jinja_failed.
 * Memory: a render's values live in one pool that is dropped at the end; nothing is freed singly.
 */
#ifndef EAGLET_TEXT_JINJA_INTERNAL_H
#define EAGLET_TEXT_JINJA_INTERNAL_H

#include "text/jinja.h"

/* ---- memory ---- */

struct jinja_pool {
  struct jinja_chunk *chunk;
  size_t bytes;
};
void *pool_take(struct jinja_pool *pool, size_t bytes); /* zeroed, aligned to 16 */
char *pool_copy(struct jinja_pool *pool, const char *text, size_t length); /* NUL-terminated */
void pool_release(struct jinja_pool *pool);

/* ---- values ---- */

enum jinja_type {
  JINJA_UNDEFINED, JINJA_NONE, JINJA_BOOL, JINJA_INT, JINJA_FLOAT, JINJA_STRING, JINJA_LIST, JINJA_DICT, JINJA_NAMESPACE,
  JINJA_FUNCTION, JINJA_LOOP,
  JINJA_ABSENT /* an argument that was not given; never a value of the language */
};

/* Bytes [begin, end) of a string are bytes [origin_begin, ..) of the context's string `origin`. For keys of context objects
 * `origin` is the object itself. */
struct jinja_origin {
  size_t begin, end, origin_begin;
  const json_t *origin;
};
struct jinja_string {
  const char *data; /* NUL-terminated UTF-8 */
  size_t length;
  size_t n_codepoints; /* SIZE_MAX: not counted yet */
  const struct jinja_origin *origins; /* sorted, disjoint */
  size_t n_origins;
  bool is_markup; /* result of |safe or |escape: what is added to it with + gets HTML-escaped, as Python's Markup does */
};
struct jinja_value {
  enum jinja_type type;
  union {
    bool boolean;
    int64_t integer;
    double number;
    struct jinja_string *string;
    struct jinja_list *list;
    struct jinja_dict *dict; /* JINJA_DICT, JINJA_NAMESPACE */
    struct jinja_function *function;
    struct jinja_loop *loop;
    const char *why; /* JINJA_UNDEFINED: the words of the error that using it raises */
  };
};
struct jinja_list {
  struct jinja_value *items;
  size_t n, capacity;
  bool is_tuple;
  bool is_generator; /* made lazily by Python: prints and measures differently */
};
struct jinja_entry {
  struct jinja_value key, value;
};
struct jinja_dict {
  struct jinja_entry *entries; /* insertion order */
  size_t n, capacity;
};
struct jinja_named {
  const struct jinja_string *name;
  struct jinja_value value;
};
struct jinja_args {
  struct jinja_value *values;
  size_t n;
  struct jinja_named *named;
  size_t n_named;
};
struct jinja_interp;
typedef struct jinja_value (*jinja_callback)(struct jinja_interp *interp, struct jinja_value self, const struct jinja_args *args);
/* A row of a function table. parameters: names separated by spaces; the callback then sees exactly that many values, missing
 * ones JINJA_ABSENT. "*": the arguments as they were written. The first n_required must be given. */
struct jinja_row {
  const char *name, *parameters;
  int n_required;
  jinja_callback call;
};
struct jinja_function {
  const struct jinja_row *row; /* built in; self is bound for methods */
  struct jinja_value self;
  const struct jinja_node *macro; /* or a macro with the scope it was defined in */
  struct jinja_scope *closure;
};
struct jinja_loop {
  struct jinja_list *items;
  size_t index;
  int depth;
  struct jinja_value changed; /* last argument of loop.changed() */
};

/* ---- tree ---- */

enum jinja_node_kind {
  /* expressions */
  NODE_CONSTANT,    /* value */
  NODE_NAME,        /* name */
  NODE_LIST,        /* list */
  NODE_TUPLE,       /* list */
  NODE_DICT,        /* list: key, value, key, value */
  NODE_ATTRIBUTE,   /* a.name */
  NODE_ITEM,        /* a[b] */
  NODE_SLICE,       /* a[b:c:list[0]], each may be NULL; list has one slot */
  NODE_CALL,        /* a(list, *b, names[i] = named[i], **c); b and c may be NULL */
  NODE_FILTER,      /* a | name(arguments as of a call); a is NULL in a filter block */
  NODE_TEST,        /* a is name(arguments as of a call) */
  NODE_NOT,         /* not a */
  NODE_NEGATE,      /* -a */
  NODE_POSITIVE,    /* +a */
  NODE_AND, NODE_OR, /* a, b */
  NODE_BINARY,      /* a op b */
  NODE_CONCAT,      /* list joined by ~ */
  NODE_COMPARE,     /* a, then ops[i] list[i] */
  NODE_CONDITION,   /* a if b else c; c may be NULL */
  /* statements */
  NODE_TEXT,        /* value */
  NODE_OUTPUT,      /* a */
  NODE_BLOCK,       /* list of statements */
  NODE_IF,          /* a condition, b block, c else block or NULL */
  NODE_FOR,         /* a target, b iterable, c filter or NULL, list[0] body, list[1] else or NULL */
  NODE_SET,         /* a target, b value */
  NODE_SET_BLOCK,   /* a target, b body, c filter chain or NULL */
  NODE_MACRO,       /* name, names[n_list] parameters with defaults list[i] (NULL: none), a body */
  NODE_CALL_BLOCK,  /* a call; b NODE_MACRO of the caller */
  NODE_FILTER_BLOCK, /* a filter chain, b body */
  NODE_WITH,        /* list: target, value, ...; a body */
  NODE_GENERATION,  /* a body */
  NODE_BREAK, NODE_CONTINUE,
};
enum jinja_operator {
  OP_NONE, OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW, OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOT_IN
};
struct jinja_node {
  enum jinja_node_kind kind;
  uint32_t line;
  struct jinja_node *a, *b, *c;
  struct jinja_node **list;
  const struct jinja_string **names; /* of parameters or named arguments: interned */
  struct jinja_node **named;
  enum jinja_operator *ops;
  uint32_t n_list, n_named;
  enum jinja_operator op;
  const struct jinja_string *name; /* interned: equal names are equal pointers */
  struct jinja_value value;
  const struct jinja_row *row; /* of NODE_FILTER and NODE_TEST; NULL: unknown, an error when reached */
};

/* ---- tokens ---- */

enum jinja_token_kind {
  TOKEN_END, TOKEN_TEXT, TOKEN_VARIABLE_BEGIN, TOKEN_VARIABLE_END, TOKEN_BLOCK_BEGIN, TOKEN_BLOCK_END, TOKEN_NAME, TOKEN_STRING,
  TOKEN_INTEGER, TOKEN_FLOAT, TOKEN_OPERATOR
};
struct jinja_token {
  enum jinja_token_kind kind;
  uint32_t line;
  const char *text; /* in the pool; for strings the decoded content, for text what is left after whitespace control */
  size_t length;
  int64_t integer;
  double number;
};
struct jinja_tokens {
  struct jinja_token *items; /* the last is TOKEN_END */
  size_t n, capacity;
};
enum eaglet_status jinja_lex(struct jinja_tokens *tokens, struct jinja_pool *pool, const char *source, size_t length,
                             struct eaglet_error *err) MUST_USE;

/* ---- program ---- */

struct jinja_program {
  struct jinja_pool pool;
  struct jinja_node *root;
  const struct jinja_string **names; /* interned, open addressing */
  size_t n_names, names_capacity;
};
const struct jinja_string *program_intern(struct jinja_program *program, const char *name, size_t length);
const struct jinja_string *program_find(const struct jinja_program *program, const char *name, size_t length); /* NULL: not used */

/* The parser: statements in jinja_parser.c, expressions in jinja_expression.c. Failure is sticky here too: after one, the
 * current token is the end. */
struct jinja_parser {
  struct jinja_program *program;
  struct jinja_token *tokens;
  size_t at;
  int depth, loop_depth;
  enum eaglet_status status;
  struct eaglet_error *err;
};
struct node_list {
  struct jinja_node **items;
  size_t n, capacity;
};
struct jinja_node *parser_fail(struct jinja_parser *parser, const char *format, ...) PRINTF_LIKE(2, 3); /* NULL */
struct jinja_node *parser_node(struct jinja_parser *parser, enum jinja_node_kind kind);
bool parser_is_operator(const struct jinja_parser *parser, const char *text);
bool parser_is_name(const struct jinja_parser *parser, const char *text);
bool parser_skip_operator(struct jinja_parser *parser, const char *text);
bool parser_skip_name(struct jinja_parser *parser, const char *text);
bool parser_expect_operator(struct jinja_parser *parser, const char *text);
const struct jinja_string *parser_expect_name(struct jinja_parser *parser);
const struct jinja_token *parser_token(const struct jinja_parser *parser);
bool parser_enter(struct jinja_parser *parser); /* counts nesting; false when too deep (failed) */
void parser_take_list(struct jinja_parser *parser, struct jinja_node *node, struct node_list *list);
struct jinja_node *parse_expression(struct jinja_parser *parser);
struct jinja_node *parse_expression_no_condition(struct jinja_parser *parser);
struct jinja_node *parse_tuple(struct jinja_parser *parser, bool with_condition); /* a, b or a single expression */
struct jinja_node *parse_target(struct jinja_parser *parser, bool with_attribute);
struct jinja_node *parse_filters(struct jinja_parser *parser, struct jinja_node *input, bool leading_name); /* a|b|c */
struct jinja_node *parse_postfix_expression(struct jinja_parser *parser); /* primary with calls, attributes, filters */

/* ---- evaluation ---- */

struct jinja_variable {
  const struct jinja_string *name;
  struct jinja_value value;
  struct jinja_variable *next;
};
struct jinja_scope {
  struct jinja_scope *parent;
  struct jinja_variable *variables;
};
/* Where text goes: the output, or a capture (macro, set block). Carries origins. */
struct jinja_sink {
  struct buffer text;
  struct jinja_origin *origins;
  size_t n_origins, origins_capacity;
};
enum jinja_flow { FLOW_NORMAL, FLOW_BREAK, FLOW_CONTINUE };
struct jinja_interp {
  const struct jinja_program *program;
  struct jinja_pool pool;
  struct jinja_limits limits;
  uint64_t steps;
  size_t bytes, bytes_max;
  int depth, call_depth;
  uint32_t line; /* of the node being evaluated, for messages */
  enum eaglet_status status;
  struct eaglet_error *err;
  struct jinja_scope *scope;
  struct jinja_sink *sink;
  struct jinja_sink *output_sink; /* the outermost */
  struct jinja_output *output;
  enum jinja_flow flow;
};

static inline bool jinja_failed(const struct jinja_interp *interp) { return interp->status != EAGLET_OK; }
struct jinja_value jinja_fail(struct jinja_interp *interp, const char *format, ...) PRINTF_LIKE(2, 3); /* undefined */
bool jinja_step(struct jinja_interp *interp, size_t n);      /* charges n steps; false when failed */
bool jinja_charge(struct jinja_interp *interp, size_t bytes); /* charges memory and the time to fill it */

/* jinja_value.c */
struct jinja_value value_none(void);
struct jinja_value value_bool(bool boolean);
struct jinja_value value_int(int64_t integer);
struct jinja_value value_float(double number);
struct jinja_value value_undefined(struct jinja_interp *interp, const char *format, ...) PRINTF_LIKE(2, 3);
struct jinja_value value_text(struct jinja_interp *interp, const char *text, size_t length); /* copies */
struct jinja_value value_literal(struct jinja_interp *interp, const char *text);
struct jinja_value value_part(struct jinja_interp *interp, const struct jinja_string *string, size_t begin, size_t end);
struct jinja_value value_list(struct jinja_interp *interp, size_t capacity);
struct jinja_value value_tuple(struct jinja_interp *interp, const struct jinja_value *items, size_t n);
struct jinja_value value_dict(struct jinja_interp *interp);
struct jinja_value value_from_json(struct jinja_interp *interp, const json_t *json);
struct jinja_value value_method(struct jinja_interp *interp, const struct jinja_row *row, struct jinja_value self);
void list_append(struct jinja_interp *interp, struct jinja_list *list, struct jinja_value value);
struct jinja_value *dict_find(struct jinja_interp *interp, const struct jinja_dict *dict, struct jinja_value key);
struct jinja_value *dict_find_text(const struct jinja_dict *dict, const char *key, size_t length);
void dict_set(struct jinja_interp *interp, struct jinja_dict *dict, struct jinja_value key, struct jinja_value value);
void sink_bytes(struct jinja_interp *interp, struct jinja_sink *sink, const char *bytes, size_t length);
void sink_part(struct jinja_interp *interp, struct jinja_sink *sink, const struct jinja_string *string, size_t begin, size_t end);
void sink_string(struct jinja_interp *interp, struct jinja_sink *sink, const struct jinja_string *string);
struct jinja_value sink_finish(struct jinja_interp *interp, struct jinja_sink *sink); /* a string; the sink is released */

/* jinja_operators.c */
const char *value_type_name(struct jinja_value value); /* Python's: "str", "NoneType" */
bool value_truth(struct jinja_interp *interp, struct jinja_value value);
bool value_equal(struct jinja_interp *interp, struct jinja_value a, struct jinja_value b);
int value_compare(struct jinja_interp *interp, struct jinja_value a, struct jinja_value b); /* fails when not ordered */
bool value_contains(struct jinja_interp *interp, struct jinja_value container, struct jinja_value item);
struct jinja_value value_binary(struct jinja_interp *interp, enum jinja_operator op, struct jinja_value a, struct jinja_value b);
struct jinja_value value_negate(struct jinja_interp *interp, struct jinja_value a, bool negative);
struct jinja_value value_attribute(struct jinja_interp *interp, struct jinja_value object, const struct jinja_string *name);
struct jinja_value value_item(struct jinja_interp *interp, struct jinja_value object, struct jinja_value key);
struct jinja_value value_slice(struct jinja_interp *interp, struct jinja_value object, const struct jinja_value bounds[3]);
struct jinja_list *value_iterate(struct jinja_interp *interp, struct jinja_value value); /* items; empty list when failed */
int64_t value_length(struct jinja_interp *interp, struct jinja_value value);
bool value_is_number(struct jinja_value value, double *number); /* int, float, bool */
bool value_is_int(struct jinja_value value, int64_t *integer);  /* int, bool */

/* jinja_eval.c */
struct jinja_value eval(struct jinja_interp *interp, const struct jinja_node *node);
struct jinja_value call_value(struct jinja_interp *interp, struct jinja_value callee, const struct jinja_args *args);
struct jinja_value call_row(struct jinja_interp *interp, const struct jinja_row *row, const char *what, struct jinja_value self,
                            const struct jinja_args *args);

/* jinja_format.c */
struct jinja_value value_string(struct jinja_interp *interp, struct jinja_value value); /* Python's str() */
void sink_value(struct jinja_interp *interp, struct jinja_sink *sink, struct jinja_value value);
void sink_repr(struct jinja_interp *interp, struct jinja_sink *sink, struct jinja_value value, int depth);
struct json_style {
  bool ensure_ascii, sort_keys, compact;
  int indent; /* -1: one line */
  const struct jinja_string *item_separator, *key_separator; /* NULL: default */
};
struct jinja_value value_to_json(struct jinja_interp *interp, struct jinja_value value, const struct json_style *style);
struct jinja_value format_percent(struct jinja_interp *interp, const struct jinja_string *format, struct jinja_value arguments);
void format_float(char text[40], double number); /* Python's repr */

/* jinja_unicode.c: characters of strings */
struct jinja_value string_escape(struct jinja_interp *interp, const struct jinja_string *string); /* HTML; a markup string */
bool unicode_is_space(uint32_t codepoint); /* str.isspace */
size_t string_count(struct jinja_string *string);
size_t string_offset(struct jinja_string *string, size_t codepoint); /* byte offset of a character index */
struct jinja_value string_strip(struct jinja_interp *interp, const struct jinja_string *string, const struct jinja_string *chars,
                                bool left, bool right);
enum unicode_case { CASE_LOWER, CASE_UPPER, CASE_CAPITALIZE, CASE_TITLE, CASE_TITLE_WORDS, CASE_SWAP };
struct jinja_value string_case(struct jinja_interp *interp, struct jinja_string *string, enum unicode_case how);
size_t string_find(const struct jinja_string *string, const char *needle, size_t length, size_t from); /* SIZE_MAX: none */

/* tables */
const struct jinja_row *filter_find(const char *name, size_t length);
const struct jinja_row *test_find(const char *name, size_t length);
const struct jinja_row *global_find(const char *name, size_t length);
const struct jinja_row *method_find(enum jinja_type type, const char *name, size_t length);
const struct jinja_row *row_find(const struct jinja_row *rows, const char *name, size_t length); /* rows end with a NULL name */
extern const struct jinja_row jinja_sequence_filters[], jinja_text_filters[]; /* the two halves of the filter table */
/* Attribute path "a.b.0" of filters like map(attribute=...). */
struct jinja_value value_path(struct jinja_interp *interp, struct jinja_value value, struct jinja_value path);
bool value_is_callable(struct jinja_value value);
static inline bool is_absent(struct jinja_value value) { return value.type == JINJA_ABSENT; }
static inline bool is_given(struct jinja_value value) { return value.type != JINJA_ABSENT && value.type != JINJA_NONE; }

#endif
