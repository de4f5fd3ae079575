/* jinja_eval.c - walks the tree: expressions give values, statements write to the current sink. Scopes follow Jinja: a loop
 * body, a macro, a set block and a with block have their own; an if has none.
 */
#include "text/jinja_internal.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

#define STEPS_DEFAULT 50000000u
#define OUTPUT_DEFAULT ((size_t)64 << 20)
#define DEPTH_DEFAULT 100
#define BYTES_PER_OUTPUT 8   /* all text and values of a render together, times output_max */
#define EVAL_PER_CALL 20     /* nested evaluations allowed per level of macro calls */

static void run(struct jinja_interp *interp, const struct jinja_node *node);

/* ---- scopes ---- */

static struct jinja_scope *scope_push(struct jinja_interp *interp, struct jinja_scope *parent) {
  struct jinja_scope *outer = interp->scope;
  jinja_charge(interp, sizeof *outer);
  interp->scope = pool_take(&interp->pool, sizeof *interp->scope);
  interp->scope->parent = parent;
  return outer;
}

static void assign(struct jinja_interp *interp, const struct jinja_string *name, struct jinja_value value) {
  for (struct jinja_variable *variable = interp->scope->variables; variable; variable = variable->next)
    if (variable->name == name) {
      variable->value = value;
      return;
    }
  if (!jinja_charge(interp, sizeof(struct jinja_variable))) return;
  struct jinja_variable *variable = pool_take(&interp->pool, sizeof *variable);
  *variable = (struct jinja_variable){.name = name, .value = value, .next = interp->scope->variables};
  interp->scope->variables = variable;
}

static struct jinja_value lookup(struct jinja_interp *interp, const struct jinja_string *name) {
  for (const struct jinja_scope *scope = interp->scope; scope; scope = scope->parent)
    for (const struct jinja_variable *variable = scope->variables; variable; variable = variable->next)
      if (variable->name == name) return variable->value;
  const struct jinja_row *row = global_find(name->data, name->length);
  if (row) return value_method(interp, row, value_none());
  return value_undefined(interp, "'%.100s' is undefined", name->data);
}

static void assign_target(struct jinja_interp *interp, const struct jinja_node *target, struct jinja_value value) {
  if (jinja_failed(interp)) return;
  if (target->kind == NODE_NAME) {
    assign(interp, target->name, value);
    return;
  }
  if (target->kind == NODE_ATTRIBUTE) {
    struct jinja_value object = eval(interp, target->a);
    if (object.type != JINJA_NAMESPACE) {
      jinja_fail(interp, "cannot assign attribute on non-namespace object");
      return;
    }
    dict_set(interp, object.dict, value_text(interp, target->name->data, target->name->length), value);
    return;
  }
  const struct jinja_list *items = value_iterate(interp, value);
  if (jinja_failed(interp)) return;
  if (items->n != target->n_list) {
    jinja_fail(interp, "expected %u values to unpack, found %zu", target->n_list, items->n);
    return;
  }
  for (uint32_t i = 0; i < target->n_list; i++) assign_target(interp, target->list[i], items->items[i]);
}

/* ---- calls ---- */

static struct jinja_args eval_args(struct jinja_interp *interp, const struct jinja_node *node, uint32_t n_spare) {
  struct jinja_value star = node->b ? eval(interp, node->b) : value_none(), stars = node->c ? eval(interp, node->c) : value_none();
  const struct jinja_list *more = node->b ? value_iterate(interp, star) : NULL;
  if (node->c && stars.type != JINJA_DICT) jinja_fail(interp, "argument after ** must be a mapping, not %s", value_type_name(stars));
  struct jinja_args args = {0};
  if (jinja_failed(interp)) return args;
  size_t n = node->n_list + (more ? more->n : 0), n_named = node->n_named + n_spare + (node->c ? stars.dict->n : 0);
  if (!jinja_charge(interp, n * sizeof *args.values + n_named * sizeof *args.named)) return args;
  args.values = pool_take(&interp->pool, (n + 1) * sizeof *args.values);
  args.named = pool_take(&interp->pool, (n_named + 1) * sizeof *args.named);
  for (uint32_t i = 0; i < node->n_list && !jinja_failed(interp); i++) args.values[args.n++] = eval(interp, node->list[i]);
  for (size_t i = 0; more && i < more->n; i++) args.values[args.n++] = more->items[i];
  for (uint32_t i = 0; i < node->n_named && !jinja_failed(interp); i++)
    args.named[args.n_named++] = (struct jinja_named){.name = node->names[i], .value = eval(interp, node->named[i])};
  for (size_t i = 0; node->c && i < stars.dict->n && !jinja_failed(interp); i++) {
    struct jinja_value key = stars.dict->entries[i].key;
    const struct jinja_string *name = key.type == JINJA_STRING ? program_find(interp->program, key.string->data, key.string->length) : NULL;
    if (key.type != JINJA_STRING) jinja_fail(interp, "keywords must be strings");
    else args.named[args.n_named++] = (struct jinja_named){.name = name ? name : key.string, .value = stars.dict->entries[i].value};
  }
  return args;
}

static size_t word_length(const char *words) { return strcspn(words, " "); }

/* Binds positional and named arguments to the row's parameters. */
static bool bind_args(struct jinja_interp *interp, const struct jinja_row *row, const char *what, const struct jinja_args *args,
                      struct jinja_args *bound) {
  size_t n = 0;
  for (const char *p = row->parameters; *p; p += word_length(p), p += *p == ' ') n++;
  bound->values = pool_take(&interp->pool, (n + 1) * sizeof *bound->values);
  bound->n = n;
  if (args->n > n) {
    jinja_fail(interp, "%s %s() takes at most %zu arguments (%zu given)", what, row->name, n, args->n);
    return false;
  }
  for (size_t i = 0; i < n; i++)
    bound->values[i] = i < args->n ? args->values[i] : (struct jinja_value){.type = JINJA_ABSENT};
  for (size_t k = 0; k < args->n_named; k++) {
    const struct jinja_string *name = args->named[k].name;
    size_t i = 0;
    const char *p = row->parameters;
    for (; *p; p += word_length(p), p += *p == ' ', i++)
      if (word_length(p) == name->length && memcmp(p, name->data, name->length) == 0) break;
    if (!*p || i < args->n) {
      jinja_fail(interp, "%s %s() got an unexpected keyword argument '%.60s'", what, row->name, name->data);
      return false;
    }
    bound->values[i] = args->named[k].value;
  }
  for (int i = 0; i < row->n_required; i++)
    if (is_absent(bound->values[i])) {
      jinja_fail(interp, "%s %s() is missing an argument", what, row->name);
      return false;
    }
  return true;
}

struct jinja_value call_row(struct jinja_interp *interp, const struct jinja_row *row, const char *what, struct jinja_value self,
                            const struct jinja_args *args) {
  struct jinja_args bound = {0};
  /* Whatever the function does to a string costs its length; those that build text are charged for that as well. */
  if (!jinja_step(interp, self.type == JINJA_STRING ? 1 + self.string->length / 64 : 1)) return value_none();
  if (strcmp(row->parameters, "*") == 0) return row->call(interp, self, args);
  if (!bind_args(interp, row, what, args, &bound)) return value_none();
  return row->call(interp, self, &bound);
}

/* Binds a macro's parameters in the current (its own) scope. */
static void bind_macro(struct jinja_interp *interp, const struct jinja_node *macro, const struct jinja_args *args) {
  const struct jinja_string *caller = program_find(interp->program, "caller", 6);
  if (args->n > macro->n_list) {
    jinja_fail(interp, "macro '%s' takes not more than %u argument(s)", macro->name->data, macro->n_list);
    return;
  }
  for (size_t k = 0; k < args->n_named; k++) {
    bool known = args->named[k].name == caller;
    for (uint32_t i = 0; i < macro->n_list && !known; i++) known = i >= args->n && macro->names[i] == args->named[k].name;
    if (!known) {
      jinja_fail(interp, "macro '%s' takes no keyword argument '%s'", macro->name->data, args->named[k].name->data);
      return;
    }
    if (args->named[k].name == caller) assign(interp, caller, args->named[k].value);
  }
  for (uint32_t i = 0; i < macro->n_list && !jinja_failed(interp); i++) {
    struct jinja_value value = {.type = JINJA_ABSENT};
    if (i < args->n) value = args->values[i];
    for (size_t k = 0; k < args->n_named; k++)
      if (args->named[k].name == macro->names[i]) value = args->named[k].value;
    if (is_absent(value))
      value = macro->list[i] ? eval(interp, macro->list[i])
                             : value_undefined(interp, "parameter '%.100s' was not provided", macro->names[i]->data);
    assign(interp, macro->names[i], value);
  }
}

/* Runs body into a sink of its own and gives the text. */
static struct jinja_value capture(struct jinja_interp *interp, const struct jinja_node *body) {
  struct jinja_sink sink = {0}, *outer = interp->sink;
  interp->sink = &sink;
  run(interp, body);
  interp->sink = outer;
  return sink_finish(interp, &sink);
}

static struct jinja_value call_macro(struct jinja_interp *interp, const struct jinja_function *function, const struct jinja_args *args) {
  if (++interp->call_depth > interp->limits.depth_max) return jinja_fail(interp, "macros are nested more than %d deep", interp->limits.depth_max);
  struct jinja_scope *outer = scope_push(interp, function->closure);
  bind_macro(interp, function->macro, args);
  struct jinja_value text = capture(interp, function->macro->a);
  interp->scope = outer;
  interp->call_depth--;
  return text;
}

struct jinja_value call_value(struct jinja_interp *interp, struct jinja_value callee, const struct jinja_args *args) {
  if (jinja_failed(interp)) return callee;
  if (callee.type == JINJA_UNDEFINED) return jinja_fail(interp, "%s", callee.why);
  if (callee.type != JINJA_FUNCTION) return jinja_fail(interp, "'%s' object is not callable", value_type_name(callee));
  if (callee.function->macro) return call_macro(interp, callee.function, args);
  return call_row(interp, callee.function->row, "function", callee.function->self, args);
}

static struct jinja_value eval_filter(struct jinja_interp *interp, const struct jinja_node *node, struct jinja_value input) {
  if (!node->row) return jinja_fail(interp, "No filter named '%.60s' found.", node->name->data);
  struct jinja_args args = eval_args(interp, node, 0);
  interp->line = node->line;
  return call_row(interp, node->row, "filter", input, &args);
}

/* A filter block's chain: the innermost filter has no input of its own. */
static struct jinja_value apply_chain(struct jinja_interp *interp, const struct jinja_node *chain, struct jinja_value input) {
  if (chain->a) input = apply_chain(interp, chain->a, input); /* as deep as the parser let it be */
  return eval_filter(interp, chain, input);
}

/* ---- expressions ---- */

static struct jinja_value eval_compare(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_value left = eval(interp, node->a);
  for (uint32_t i = 0; i < node->n_list && !jinja_failed(interp); i++) {
    struct jinja_value right = eval(interp, node->list[i]);
    if (jinja_failed(interp)) break;
    bool holds = false;
    switch (node->ops[i]) {
    case OP_EQ: holds = value_equal(interp, left, right); break;
    case OP_NE: holds = !value_equal(interp, left, right); break;
    case OP_LT: holds = value_compare(interp, left, right) < 0; break;
    case OP_LE: holds = value_compare(interp, left, right) <= 0; break;
    case OP_GT: holds = value_compare(interp, left, right) > 0; break;
    case OP_GE: holds = value_compare(interp, left, right) >= 0; break;
    case OP_IN: holds = value_contains(interp, right, left); break;
    default: holds = !value_contains(interp, right, left); break;
    }
    if (!holds) return value_bool(false);
    left = right;
  }
  return value_bool(true);
}

static struct jinja_value eval_sequence(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_value list = value_list(interp, node->n_list);
  list.list->is_tuple = node->kind == NODE_TUPLE;
  for (uint32_t i = 0; i < node->n_list && !jinja_failed(interp); i++) list_append(interp, list.list, eval(interp, node->list[i]));
  return list;
}

static struct jinja_value eval_dict(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_value dict = value_dict(interp);
  for (uint32_t i = 0; i + 1 < node->n_list && !jinja_failed(interp); i += 2) {
    struct jinja_value key = eval(interp, node->list[i]);
    dict_set(interp, dict.dict, key, eval(interp, node->list[i + 1]));
  }
  return dict;
}

static struct jinja_value eval_concat(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_sink sink = {0};
  for (uint32_t i = 0; i < node->n_list && !jinja_failed(interp); i++) sink_value(interp, &sink, eval(interp, node->list[i]));
  return sink_finish(interp, &sink);
}

static struct jinja_value eval_slice(struct jinja_interp *interp, const struct jinja_node *node) {
  const struct jinja_node *parts[3] = {node->b, node->c, node->list[0]};
  struct jinja_value object = eval(interp, node->a), bounds[3];
  for (int i = 0; i < 3; i++) bounds[i] = parts[i] ? eval(interp, parts[i]) : value_none();
  interp->line = node->line;
  return value_slice(interp, object, bounds);
}

static struct jinja_value eval_test(struct jinja_interp *interp, const struct jinja_node *node) {
  if (!node->row) return jinja_fail(interp, "No test named '%.60s' found.", node->name->data);
  struct jinja_value input = eval(interp, node->a);
  struct jinja_args args = eval_args(interp, node, 0);
  interp->line = node->line;
  return call_row(interp, node->row, "test", input, &args);
}

static struct jinja_value eval_logic(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_value left = eval(interp, node->a);
  if (jinja_failed(interp) || value_truth(interp, left) == (node->kind == NODE_OR)) return left;
  return eval(interp, node->b);
}

static struct jinja_value eval_condition(struct jinja_interp *interp, const struct jinja_node *node) {
  if (value_truth(interp, eval(interp, node->b))) return eval(interp, node->a);
  return node->c ? eval(interp, node->c)
                 : value_undefined(interp, "the inline if-expression on line %u evaluated to false and no else section was defined.",
                                   node->line);
}

static struct jinja_value eval_node(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_value a, b;
  switch (node->kind) {
  case NODE_CONSTANT: return node->value;
  case NODE_NAME: return lookup(interp, node->name);
  case NODE_LIST: case NODE_TUPLE: return eval_sequence(interp, node);
  case NODE_DICT: return eval_dict(interp, node);
  case NODE_ATTRIBUTE: a = eval(interp, node->a); interp->line = node->line; return value_attribute(interp, a, node->name);
  case NODE_ITEM:
    a = eval(interp, node->a);
    b = eval(interp, node->b);
    interp->line = node->line;
    return value_item(interp, a, b);
  case NODE_SLICE: return eval_slice(interp, node);
  case NODE_CALL: {
    a = eval(interp, node->a);
    struct jinja_args args = eval_args(interp, node, 0);
    interp->line = node->line;
    return call_value(interp, a, &args);
  }
  case NODE_FILTER: return eval_filter(interp, node, eval(interp, node->a));
  case NODE_TEST: return eval_test(interp, node);
  case NODE_NOT: return value_bool(!value_truth(interp, eval(interp, node->a)));
  case NODE_NEGATE: return value_negate(interp, eval(interp, node->a), true);
  case NODE_POSITIVE: return value_negate(interp, eval(interp, node->a), false);
  case NODE_AND: case NODE_OR: return eval_logic(interp, node);
  case NODE_BINARY:
    a = eval(interp, node->a);
    b = eval(interp, node->b);
    interp->line = node->line;
    return value_binary(interp, node->op, a, b);
  case NODE_CONCAT: return eval_concat(interp, node);
  case NODE_COMPARE: return eval_compare(interp, node);
  case NODE_CONDITION: return eval_condition(interp, node);
  default: return jinja_fail(interp, "statement where an expression was expected");
  }
}

static bool enter(struct jinja_interp *interp, const struct jinja_node *node) {
  interp->line = node->line;
  if (++interp->depth > interp->limits.depth_max * EVAL_PER_CALL) jinja_fail(interp, "evaluation is nested too deeply");
  return jinja_step(interp, 1);
}

struct jinja_value eval(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_value value = {.type = JINJA_UNDEFINED, .why = "undefined"};
  if (enter(interp, node)) value = eval_node(interp, node);
  interp->depth--;
  return value;
}

/* ---- statements ---- */

/* The items a loop runs over: all, or those that pass its filter. */
static struct jinja_list *loop_items(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_list *items = value_iterate(interp, eval(interp, node->b));
  if (!node->c || jinja_failed(interp)) return items;
  struct jinja_value kept = value_list(interp, 0);
  for (size_t i = 0; i < items->n && !jinja_failed(interp); i++) {
    struct jinja_scope *outer = scope_push(interp, interp->scope);
    assign_target(interp, node->a, items->items[i]);
    if (value_truth(interp, eval(interp, node->c))) list_append(interp, kept.list, items->items[i]);
    interp->scope = outer;
  }
  return kept.list;
}

static void run_for(struct jinja_interp *interp, const struct jinja_node *node) {
  const struct jinja_string *loop_name = program_find(interp->program, "loop", 4);
  struct jinja_list *items = loop_items(interp, node);
  if (jinja_failed(interp)) return;
  if (items->n == 0 && node->list[1]) {
    struct jinja_scope *outer = scope_push(interp, interp->scope);
    run(interp, node->list[1]);
    interp->scope = outer;
  }
  struct jinja_loop *loop = pool_take(&interp->pool, sizeof *loop);
  *loop = (struct jinja_loop){.items = items, .changed = {.type = JINJA_ABSENT}};
  for (size_t i = 0; i < items->n && jinja_step(interp, 1); i++) {
    struct jinja_scope *outer = scope_push(interp, interp->scope);
    loop->index = i;
    assign_target(interp, node->a, items->items[i]);
    if (loop_name) assign(interp, loop_name, (struct jinja_value){.type = JINJA_LOOP, .loop = loop});
    run(interp, node->list[0]);
    interp->scope = outer;
    enum jinja_flow flow = interp->flow;
    interp->flow = FLOW_NORMAL;
    if (flow == FLOW_BREAK) break;
  }
}

static void run_call_block(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_function *function = pool_take(&interp->pool, sizeof *function);
  *function = (struct jinja_function){.macro = node->b, .closure = interp->scope};
  struct jinja_value callee = eval(interp, node->a->a);
  struct jinja_args args = eval_args(interp, node->a, 1);
  if (jinja_failed(interp)) return;
  args.named[args.n_named++] =
      (struct jinja_named){.name = node->b->name, .value = {.type = JINJA_FUNCTION, .function = function}};
  sink_value(interp, interp->sink, call_value(interp, callee, &args));
}

static void run_generation(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_output *output = interp->output;
  size_t begin = interp->sink->text.length;
  struct jinja_scope *outer = scope_push(interp, interp->scope);
  run(interp, node->a);
  interp->scope = outer;
  if (jinja_failed(interp)) return;
  if (interp->sink != interp->output_sink) { /* inside a macro or a capture: its place in the output is not known */
    output->generations_lost = true;
    return;
  }
  MEMORY_GROW(output->generations, output->generations_capacity, output->n_generations + 1);
  output->generations[output->n_generations++] = (struct text_generation){begin, interp->sink->text.length};
}

static void run_scoped(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_value *values = NULL;
  if (node->kind == NODE_WITH) { /* values are computed outside the new scope */
    values = pool_take(&interp->pool, (node->n_list + 1u) * sizeof *values);
    for (uint32_t i = 0; i + 1 < node->n_list; i += 2) values[i] = eval(interp, node->list[i + 1]);
  }
  struct jinja_scope *outer = scope_push(interp, interp->scope);
  struct jinja_value text;
  switch (node->kind) {
  case NODE_WITH:
    for (uint32_t i = 0; i + 1 < node->n_list; i += 2) assign_target(interp, node->list[i], values[i]);
    run(interp, node->a);
    interp->scope = outer;
    break;
  case NODE_FILTER_BLOCK:
    text = capture(interp, node->b);
    interp->scope = outer;
    sink_value(interp, interp->sink, apply_chain(interp, node->a, text));
    break;
  default:
    text = capture(interp, node->b);
    interp->scope = outer;
    assign_target(interp, node->a, node->c ? apply_chain(interp, node->c, text) : text);
    break;
  }
}

static void run_if(struct jinja_interp *interp, const struct jinja_node *node) {
  while (node && node->kind == NODE_IF && !jinja_failed(interp)) {
    if (value_truth(interp, eval(interp, node->a))) {
      run(interp, node->b);
      return;
    }
    node = node->c;
  }
  if (node && !jinja_failed(interp)) run(interp, node);
}

static void run_node(struct jinja_interp *interp, const struct jinja_node *node) {
  struct jinja_function *function;
  switch (node->kind) {
  case NODE_BLOCK:
    for (uint32_t i = 0; i < node->n_list && !jinja_failed(interp) && interp->flow == FLOW_NORMAL; i++) run(interp, node->list[i]);
    return;
  case NODE_TEXT: sink_string(interp, interp->sink, node->value.string); return;
  case NODE_OUTPUT: sink_value(interp, interp->sink, eval(interp, node->a)); return;
  case NODE_IF: run_if(interp, node); return;
  case NODE_FOR: run_for(interp, node); return;
  case NODE_SET: assign_target(interp, node->a, eval(interp, node->b)); return;
  case NODE_MACRO:
    function = pool_take(&interp->pool, sizeof *function);
    *function = (struct jinja_function){.macro = node, .closure = interp->scope};
    assign(interp, node->name, (struct jinja_value){.type = JINJA_FUNCTION, .function = function});
    return;
  case NODE_CALL_BLOCK: run_call_block(interp, node); return;
  case NODE_SET_BLOCK: case NODE_FILTER_BLOCK: case NODE_WITH: run_scoped(interp, node); return;
  case NODE_GENERATION: run_generation(interp, node); return;
  case NODE_BREAK: interp->flow = FLOW_BREAK; return;
  case NODE_CONTINUE: interp->flow = FLOW_CONTINUE; return;
  default: jinja_fail(interp, "expression where a statement was expected");
  }
}

static void run(struct jinja_interp *interp, const struct jinja_node *node) {
  if (enter(interp, node)) run_node(interp, node);
  interp->depth--;
}

/* ---- render ---- */

static void bind_context(struct jinja_interp *interp, const json_t *context) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)context, key, value) {
    const struct jinja_string *name = program_find(interp->program, key, strlen(key));
    if (name) assign(interp, name, value_from_json(interp, value)); /* other names cannot be reached */
  }
}

static void take_output(struct jinja_sink *sink, struct jinja_output *output) {
  output->text = sink->text;
  buffer_append(&output->text, "", 0); /* NUL-terminated even when nothing was written */
  for (size_t i = 0; i < sink->n_origins; i++) {
    const struct jinja_origin *span = &sink->origins[i];
    MEMORY_GROW(output->spans, output->spans_capacity, output->n_spans + 1);
    output->spans[output->n_spans++] = (struct jinja_span){span->begin, span->end, span->origin, span->origin_begin};
  }
  sink->text = (struct buffer){0};
}

enum eaglet_status jinja_render(const struct jinja_program *program, const json_t *context, const struct jinja_limits *limits,
                                struct jinja_output *output, struct eaglet_error *err) {
  struct jinja_sink sink = {0};
  struct jinja_interp interp = {.program = program, .sink = &sink, .output_sink = &sink, .output = output, .err = err};
  *output = (struct jinja_output){0};
  if (limits) interp.limits = *limits;
  if (!interp.limits.steps_max) interp.limits.steps_max = STEPS_DEFAULT;
  if (!interp.limits.output_max) interp.limits.output_max = OUTPUT_DEFAULT;
  if (!interp.limits.depth_max) interp.limits.depth_max = DEPTH_DEFAULT;
  interp.bytes_max = interp.limits.output_max * BYTES_PER_OUTPUT + ((size_t)1 << 20);
  scope_push(&interp, NULL);
  bind_context(&interp, context);
  if (!jinja_failed(&interp)) run(&interp, program->root);
  if (!jinja_failed(&interp)) take_output(&sink, output);
  else jinja_output_clear(output);
  buffer_clear(&sink.text);
  free(sink.origins);
  pool_release(&interp.pool);
  return interp.status;
}

void jinja_output_clear(struct jinja_output *output) {
  buffer_clear(&output->text);
  free(output->spans);
  free(output->generations);
  *output = (struct jinja_output){0};
}
