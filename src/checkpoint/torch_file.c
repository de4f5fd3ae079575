/* torch_file.c - see torch_file.h. Owns a small stack machine over the opcodes of such files. Values are nodes of one growing list
 * and refer to each other by number; entries of all dicts stand in one list, so that nothing recurses. Each opcode makes at most one
 * node and moves what it takes off the stack, which bounds everything by the length of the pickle. */
#include "checkpoint/torch_file.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "checkpoint/zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PICKLE_BYTES_MAX (64u << 20)
#define NAME_BYTES_MAX 512

#define UNPACKED_BYTES_MAX ((size_t)8 << 30) /* of a compressed file */
#define DEPTH_MAX 8    /* of nested values */
#define ENTRIES_MAX 4096 /* values of a nested file, wherever they stand */
#define NOTHING UINT32_MAX

enum kind { KIND_MARK, KIND_NONE, KIND_BOOL, KIND_INT, KIND_FLOAT, KIND_TEXT, KIND_CALL, KIND_TYPE, KIND_TUPLE, KIND_DICT, KIND_LIST, KIND_STORAGE, KIND_TENSOR };
static const char *const kind_names[] = {"a mark", "None", "a bool", "an integer", "a number", "text", "a callable", "a storage type", "a tuple", "a dict", "a list", "a storage", "a tensor"};

enum call { CALL_ORDERED_DICT, CALL_TENSOR, CALL_PARAMETER };

/* What a pickle may name. */
static const struct {
  const char *name; /* module and name, as in the file with a space between */
  enum kind kind;
  int value; /* enum call or enum dtype */
} globals[] = {{"collections OrderedDict", KIND_CALL, CALL_ORDERED_DICT},
               {"torch._utils _rebuild_tensor_v2", KIND_CALL, CALL_TENSOR},
               {"torch._utils _rebuild_parameter", KIND_CALL, CALL_PARAMETER},
               {"torch FloatStorage", KIND_TYPE, DTYPE_F32},
               {"torch BFloat16Storage", KIND_TYPE, DTYPE_BF16},
               {"torch HalfStorage", KIND_TYPE, DTYPE_F16},
               {"torch DoubleStorage", KIND_TYPE, DTYPE_F64},
               {"torch LongStorage", KIND_TYPE, DTYPE_I64},
               {"torch IntStorage", KIND_TYPE, DTYPE_I32},
               {"torch ShortStorage", KIND_TYPE, DTYPE_I16},
               {"torch CharStorage", KIND_TYPE, DTYPE_I8},
               {"torch ByteStorage", KIND_TYPE, DTYPE_U8},
               {"torch BoolStorage", KIND_TYPE, DTYPE_BOOL}};

struct node {
  enum kind kind;
  int64_t number;       /* bool, integer, call, type; float: its bits; storage: elements; tensor: index into tensors */
  const uint8_t *bytes; /* text, storage */
  size_t length;        /* text: bytes; tuple: items */
  size_t first;         /* tuple: into items */
  enum dtype dtype;     /* storage */
};

struct pair { /* of a dict, or an item of a list, whose key is NOTHING */
  uint32_t dict, key, value; /* nodes */
  uint32_t order;            /* of pairs: they were added in it */
};

struct unpickler {
  const char *path;
  const struct zip *zip;
  char prefix[NAME_BYTES_MAX]; /* of the archive's records, with its slash */
  struct cursor in;
  struct node *nodes;
  uint32_t *stack, *items, *memo; /* nodes */
  struct pair *pairs;
  struct tensor_entry *tensors; /* without names */
  size_t n_nodes, n_stack, n_items, n_memo, n_pairs, n_tensors;
  size_t capacity[6];
  struct eaglet_error *err;
};

static enum eaglet_status broken(const struct unpickler *u, const char *what) {
  return error_set(u->err, EAGLET_E_INPUT, "%s: data.pkl is broken before byte %zu: %s", u->path, u->in.at, what);
}

/* ---- the stack ---- */

static void push(struct unpickler *u, uint32_t node) {
  MEMORY_GROW(u->stack, u->capacity[1], u->n_stack + 1);
  u->stack[u->n_stack++] = node;
}

static struct node *push_new(struct unpickler *u, enum kind kind) {
  MEMORY_GROW(u->nodes, u->capacity[0], u->n_nodes + 1);
  struct node *node = &u->nodes[u->n_nodes];
  *node = (struct node){.kind = kind};
  push(u, (uint32_t)u->n_nodes++);
  return node;
}

static void push_int(struct unpickler *u, int64_t value) { push_new(u, KIND_INT)->number = value; }

/* Takes the top off the stack: a value, never a mark. */
static enum eaglet_status take(struct unpickler *u, uint32_t *node) {
  *node = 0;
  if (u->n_stack == 0 || u->nodes[u->stack[u->n_stack - 1]].kind == KIND_MARK) return broken(u, "the stack is empty");
  *node = u->stack[--u->n_stack];
  return EAGLET_OK;
}

/* Stack places above the last mark; the mark stays. What is passed over is taken by the caller, so the search costs nothing more. */
static enum eaglet_status count_marked(struct unpickler *u, size_t *n) {
  for (*n = 0; *n < u->n_stack; ++*n) {
    if (u->nodes[u->stack[u->n_stack - 1 - *n]].kind == KIND_MARK) return EAGLET_OK;
  }
  return broken(u, "there is no mark");
}

/* The top n as a tuple; drop: the mark below goes too. */
static enum eaglet_status make_tuple(struct unpickler *u, size_t n, bool drop) {
  size_t first = u->n_items;
  if (u->n_stack < n + drop) return broken(u, "the stack is empty");
  MEMORY_GROW(u->items, u->capacity[2], u->n_items + n + 1);
  for (size_t i = 0; i < n; i++) {
    uint32_t node = u->stack[u->n_stack - n + i];
    if (u->nodes[node].kind == KIND_MARK) return broken(u, "a mark in a tuple");
    u->items[u->n_items++] = node;
  }
  u->n_stack -= n + drop;
  struct node *tuple = push_new(u, KIND_TUPLE);
  tuple->first = first;
  tuple->length = n;
  return EAGLET_OK;
}

static const struct node *item(const struct unpickler *u, const struct node *tuple, size_t i) { return &u->nodes[u->items[tuple->first + i]]; }

/* Entries above the last mark go into the dict below it. */
static enum eaglet_status set_items(struct unpickler *u, size_t n, bool drop) {
  if (n % 2 != 0) return broken(u, "a key without a value");
  if (u->n_stack < n + drop + 1) return broken(u, "the stack is empty");
  size_t at = u->n_stack - n;
  uint32_t dict = u->stack[at - drop - 1];
  if (u->nodes[dict].kind != KIND_DICT) return broken(u, "entries of what is no dict");
  MEMORY_GROW(u->pairs, u->capacity[4], u->n_pairs + n / 2);
  for (size_t i = 0; i < n; i += 2) {
    struct pair pair = {.dict = dict, .key = u->stack[at + i], .value = u->stack[at + i + 1], .order = (uint32_t)u->n_pairs};
    if (u->nodes[pair.key].kind == KIND_MARK || u->nodes[pair.value].kind == KIND_MARK) return broken(u, "a mark in a dict");
    u->pairs[u->n_pairs++] = pair;
  }
  u->n_stack = at - drop;
  return EAGLET_OK;
}

/* The top n go into the list below them; drop: a mark stands between. */
static enum eaglet_status append_items(struct unpickler *u, size_t n, bool drop) {
  if (u->n_stack < n + drop + 1) return broken(u, "the stack is empty");
  size_t at = u->n_stack - n;
  uint32_t list = u->stack[at - drop - 1];
  if (u->nodes[list].kind != KIND_LIST) return broken(u, "items of what is no list");
  MEMORY_GROW(u->pairs, u->capacity[4], u->n_pairs + n + 1);
  for (size_t i = 0; i < n; i++) {
    struct pair pair = {.dict = list, .key = NOTHING, .value = u->stack[at + i], .order = (uint32_t)u->n_pairs};
    if (u->nodes[pair.value].kind == KIND_MARK) return broken(u, "a mark in a list");
    u->pairs[u->n_pairs++] = pair;
  }
  u->n_stack = at - drop;
  return EAGLET_OK;
}

/* ---- the memo ---- */

/* Picklers number what they remember in order. */
static enum eaglet_status remember(struct unpickler *u, uint32_t at) {
  uint32_t node;
  TRY(take(u, &node));
  push(u, node);
  if (at > u->n_memo) return broken(u, "memo numbers out of order");
  if (at == u->n_memo) {
    MEMORY_GROW(u->memo, u->capacity[3], u->n_memo + 1);
    u->n_memo++;
  }
  u->memo[at] = node;
  return EAGLET_OK;
}

static enum eaglet_status recall(struct unpickler *u, uint32_t at) {
  if (at >= u->n_memo) return broken(u, "a memo number that was never given");
  push(u, u->memo[at]);
  return EAGLET_OK;
}

/* ---- names ---- */

static bool is_printable(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if ((uint8_t)text[i] < ' ' || text[i] == 0x7f) return false;
  }
  return true;
}

static bool is_plain(const uint8_t *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (text[i] <= ' ' || text[i] >= 0x7f) return false;
  }
  return true;
}

/* A line of the pickle, without its end. */
static enum eaglet_status read_line(struct unpickler *u, const uint8_t **line, size_t *length) {
  const uint8_t *from = u->in.data + u->in.at, *end = memchr(from, '\n', u->in.length - u->in.at);
  if (!end || end - from > 200 || !is_plain(from, (size_t)(end - from))) return broken(u, "expected a name");
  *line = from;
  *length = (size_t)(end - from);
  u->in.at += *length + 1;
  return EAGLET_OK;
}

static enum eaglet_status push_global(struct unpickler *u) {
  const uint8_t *module, *name;
  size_t n_module, n_name;
  char text[512];
  TRY(read_line(u, &module, &n_module));
  TRY(read_line(u, &name, &n_name));
  snprintf(text, sizeof text, "%.*s %.*s", (int)n_module, (const char *)module, (int)n_name, (const char *)name);
  for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
    if (strcmp(text, globals[i].name) != 0) continue;
    push_new(u, globals[i].kind)->number = globals[i].value;
    return EAGLET_OK;
  }
  FAIL(u->err, EAGLET_E_INPUT, "%s: names %.*s.%.*s: only tensors are read from pickled files, nothing is ever run; convert it to safetensors",
       u->path, (int)n_module, (const char *)module, (int)n_name, (const char *)name);
}

static enum eaglet_status push_text(struct unpickler *u) {
  uint32_t length = cursor_u32(&u->in);
  const uint8_t *bytes = cursor_bytes(&u->in, length);
  if (!bytes) return broken(u, "text ends early");
  struct node *node = push_new(u, KIND_TEXT);
  node->bytes = bytes;
  node->length = length;
  return EAGLET_OK;
}

static enum eaglet_status push_long(struct unpickler *u) {
  uint8_t n = cursor_u8(&u->in);
  const uint8_t *bytes = cursor_bytes(&u->in, n);
  uint64_t value = 0;
  if (!bytes || n > 8) return broken(u, "an integer of more than 8 bytes");
  for (int i = 0; i < n; i++) value |= (uint64_t)bytes[i] << (8 * i);
  if (n > 0 && n < 8 && bytes[n - 1] >= 0x80) value |= ~(uint64_t)0 << (8 * n);
  push_int(u, (int64_t)value);
  return EAGLET_OK;
}

/* Eight bytes, the highest first. */
static enum eaglet_status push_float(struct unpickler *u) {
  uint64_t bits = __builtin_bswap64(cursor_u64(&u->in));
  push_new(u, KIND_FLOAT)->number = (int64_t)bits;
  return EAGLET_OK;
}

/* ---- storages and tensors ---- */

static bool says(const struct node *node, const char *text) {
  return node->kind == KIND_TEXT && node->length == strlen(text) && memcmp(node->bytes, text, node->length) == 0;
}

/* ("storage", type, key, place, elements) becomes the bytes of record data/key. */
static enum eaglet_status push_storage(struct unpickler *u) {
  uint32_t at;
  const uint8_t *bytes;
  char name[NAME_BYTES_MAX + 64];
  TRY(take(u, &at));
  const struct node *id = &u->nodes[at];
  bool sound = id->kind == KIND_TUPLE && id->length == 5 && says(item(u, id, 0), "storage") && item(u, id, 1)->kind == KIND_TYPE &&
               item(u, id, 2)->kind == KIND_TEXT && item(u, id, 4)->kind == KIND_INT;
  if (!sound) return broken(u, "expected a storage's id");
  const struct node *key = item(u, id, 2);
  enum dtype dtype = (enum dtype)item(u, id, 1)->number;
  int64_t n = item(u, id, 4)->number;
  if (key->length > 32 || !is_plain(key->bytes, key->length)) return broken(u, "a storage's key");
  snprintf(name, sizeof name, "%sdata/%.*s", u->prefix, (int)key->length, (const char *)key->bytes);
  const struct zip_record *record = zip_find(u->zip, name);
  if (!record) FAIL(u->err, EAGLET_E_INPUT, "%s: %s: is not in the archive", u->path, name);
  TRY(zip_bytes(u->zip, &bytes, record, u->err));
  uint64_t size = (uint64_t)dtype_bits(dtype) / 8;
  if (n < 0 || record->n_bytes % size != 0 || record->n_bytes / size != (uint64_t)n)
    FAIL(u->err, EAGLET_E_INPUT, "%s: %s: expected %lld elements of %s, found %llu bytes", u->path, name, (long long)n, dtype_name(dtype),
         (unsigned long long)record->n_bytes);
  struct node *storage = push_new(u, KIND_STORAGE);
  storage->bytes = bytes;
  storage->number = n;
  storage->dtype = dtype;
  return EAGLET_OK;
}

/* shape from sizes; strides must be those of rows one behind another. */
static enum eaglet_status read_shape(const struct unpickler *u, struct tensor_entry *t, const struct node *sizes, const struct node *strides) {
  uint64_t n = 1;
  if (sizes->kind != KIND_TUPLE || strides->kind != KIND_TUPLE || sizes->length != strides->length || sizes->length > TENSOR_RANK_MAX)
    return broken(u, "a tensor's sizes and strides");
  t->rank = (int)sizes->length;
  for (int i = 0; i < t->rank; i++) {
    const struct node *size = item(u, sizes, (size_t)i);
    if (size->kind != KIND_INT || size->number < 0 || size->number > (int64_t)1 << 48 || item(u, strides, (size_t)i)->kind != KIND_INT)
      return broken(u, "a tensor's sizes and strides");
    t->shape[i] = size->number;
    if (__builtin_mul_overflow(n, (uint64_t)size->number, &n)) return broken(u, "a tensor of too many elements");
  }
  uint64_t step = 1;
  for (int i = t->rank - 1; i >= 0 && n > 0; i--) {
    if (t->shape[i] > 1 && item(u, strides, (size_t)i)->number != (int64_t)step)
      FAIL(u->err, EAGLET_E_INPUT, "%s: a tensor of %d axes is not contiguous: expected stride %llu of axis %d, found %lld", u->path, t->rank,
           (unsigned long long)step, i, (long long)item(u, strides, (size_t)i)->number);
    step *= (uint64_t)t->shape[i];
  }
  t->n_bytes = n; /* elements, for the caller */
  return EAGLET_OK;
}

/* _rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks[, metadata]) */
static enum eaglet_status push_tensor(struct unpickler *u, const struct node *args) {
  struct tensor_entry tensor = {.path = u->path};
  if (args->length < 6 || args->length > 7 || item(u, args, 0)->kind != KIND_STORAGE || item(u, args, 1)->kind != KIND_INT)
    return broken(u, "a tensor's parts");
  const struct node *storage = item(u, args, 0);
  int64_t offset = item(u, args, 1)->number;
  TRY(read_shape(u, &tensor, item(u, args, 2), item(u, args, 3)));
  if (offset < 0 || offset > storage->number || tensor.n_bytes > (uint64_t)(storage->number - offset))
    FAIL(u->err, EAGLET_E_INPUT, "%s: a tensor of %llu elements at %lld of a storage of %lld", u->path, (unsigned long long)tensor.n_bytes,
         (long long)offset, (long long)storage->number);
  uint64_t size = (uint64_t)dtype_bits(storage->dtype) / 8;
  tensor.dtype = storage->dtype;
  tensor.data = storage->bytes + (uint64_t)offset * size;
  tensor.n_bytes *= size;
  MEMORY_GROW(u->tensors, u->capacity[5], u->n_tensors + 1);
  u->tensors[u->n_tensors] = tensor;
  push_new(u, KIND_TENSOR)->number = (int64_t)u->n_tensors++;
  return EAGLET_OK;
}

static enum eaglet_status reduce(struct unpickler *u) {
  uint32_t args_at, call_at;
  TRY(take(u, &args_at));
  TRY(take(u, &call_at));
  const struct node *args = &u->nodes[args_at], *call = &u->nodes[call_at];
  if (args->kind != KIND_TUPLE || call->kind != KIND_CALL) return broken(u, "expected a callable and its arguments");
  switch ((enum call)call->number) {
  case CALL_ORDERED_DICT:
    if (args->length != 0) return broken(u, "an OrderedDict with arguments");
    push_new(u, KIND_DICT);
    return EAGLET_OK;
  case CALL_TENSOR:
    return push_tensor(u, args);
  case CALL_PARAMETER:
    if (args->length != 3 || item(u, args, 0)->kind != KIND_TENSOR) return broken(u, "a parameter's parts");
    push(u, u->items[args->first]);
    return EAGLET_OK;
  }
  return broken(u, "an unknown callable");
}

/* Attributes of a dict (torch notes versions of modules there) say nothing about tensors. */
static enum eaglet_status drop_attributes(struct unpickler *u) {
  uint32_t state, object;
  TRY(take(u, &state));
  TRY(take(u, &object));
  if (u->nodes[object].kind != KIND_DICT || u->nodes[state].kind != KIND_DICT) return broken(u, "attributes of what is no dict");
  push(u, object);
  return EAGLET_OK;
}

/* ---- opcodes ---- */

/* Those that look at no value. false: another one. */
static bool push_constant(struct unpickler *u, uint8_t opcode) {
  switch (opcode) {
  case '(': push_new(u, KIND_MARK); return true;
  case ')': push_new(u, KIND_TUPLE); return true;
  case '}': push_new(u, KIND_DICT); return true;
  case ']': push_new(u, KIND_LIST); return true;
  case 'N': push_new(u, KIND_NONE); return true;
  case 0x88: push_new(u, KIND_BOOL)->number = 1; return true;
  case 0x89: push_new(u, KIND_BOOL); return true;
  case 'K': push_int(u, cursor_u8(&u->in)); return true;
  case 'M': {
    uint8_t low = cursor_u8(&u->in);
    push_int(u, low | cursor_u8(&u->in) << 8);
    return true;
  }
  case 'J': push_int(u, (int32_t)cursor_u32(&u->in)); return true;
  default: return false;
  }
}

static enum eaglet_status run_opcode(struct unpickler *u, uint8_t opcode) {
  size_t n;
  if (push_constant(u, opcode)) return EAGLET_OK;
  switch (opcode) {
  case 'c': return push_global(u);
  case 'X': return push_text(u);
  case 0x8a: return push_long(u);
  case 0x85:
  case 0x86:
  case 0x87: return make_tuple(u, opcode - 0x84u, false);
  case 't':
    TRY(count_marked(u, &n));
    return make_tuple(u, n, true);
  case 's': return set_items(u, 2, false);
  case 'u':
    TRY(count_marked(u, &n));
    return set_items(u, n, true);
  case 'a': return append_items(u, 1, false);
  case 'e':
    TRY(count_marked(u, &n));
    return append_items(u, n, true);
  case 'G': return push_float(u);
  case 'q': return remember(u, cursor_u8(&u->in));
  case 'r': return remember(u, cursor_u32(&u->in));
  case 'h': return recall(u, cursor_u8(&u->in));
  case 'j': return recall(u, cursor_u32(&u->in));
  case 'Q': return push_storage(u);
  case 'R': return reduce(u);
  case 'b': return drop_attributes(u);
  default:
    FAIL(u->err, EAGLET_E_INPUT, "%s: data.pkl: opcode 0x%02x at byte %zu: a file of tensors has no such thing, and nothing else is read; convert it to safetensors",
         u->path, opcode, u->in.at - 1);
  }
}

static enum eaglet_status run_pickle(struct unpickler *u) {
  uint8_t proto = cursor_u8(&u->in), version = cursor_u8(&u->in);
  if (u->in.failed || proto != 0x80) return broken(u, "it does not begin as a pickle");
  if (version != 2) FAIL(u->err, EAGLET_E_INPUT, "%s: data.pkl: pickle protocol %d: expected 2, as torch.save writes", u->path, version);
  for (;;) {
    uint8_t opcode = cursor_u8(&u->in);
    if (u->in.failed) return broken(u, "it ends early");
    if (opcode == '.') break;
    TRY(run_opcode(u, opcode));
    if (u->in.failed) return broken(u, "it ends early");
  }
  if (u->in.at != u->in.length) return broken(u, "bytes behind its end");
  if (u->n_stack != 1) return broken(u, "more than one value");
  return EAGLET_OK;
}

/* ---- the dict as a file of tensors ---- */

static int by_name(const void *a, const void *b) { return strcmp(((const struct tensor_entry *)a)->name, ((const struct tensor_entry *)b)->name); }

static enum eaglet_status check_pair(const struct unpickler *u, const struct pair *pair) {
  const struct node *key = &u->nodes[pair->key], *value = &u->nodes[pair->value];
  bool sound = key->kind == KIND_TEXT && key->length > 0 && key->length < NAME_BYTES_MAX && is_plain(key->bytes, key->length);
  if (!sound) FAIL(u->err, EAGLET_E_INPUT, "%s: expected names of tensors as keys, found %s", u->path, kind_names[key->kind]);
  if (value->kind != KIND_TENSOR)
    FAIL(u->err, EAGLET_E_INPUT, "%s: %.*s: expected a tensor, found %s", u->path, (int)key->length, (const char *)key->bytes, kind_names[value->kind]);
  return EAGLET_OK;
}

static enum eaglet_status sort_tensors(struct safetensors *file, const struct unpickler *u) {
  qsort(file->tensors, file->n, sizeof *file->tensors, by_name);
  for (size_t i = 1; i < file->n; i++) {
    if (strcmp(file->tensors[i - 1].name, file->tensors[i].name) == 0) FAIL(u->err, EAGLET_E_INPUT, "%s: %s: stands twice", u->path, file->tensors[i].name);
  }
  return EAGLET_OK;
}

static enum eaglet_status collect(struct safetensors *file, const struct unpickler *u) {
  uint32_t top = u->stack[0];
  size_t n = 0, n_names = 0;
  if (u->nodes[top].kind != KIND_DICT) FAIL(u->err, EAGLET_E_INPUT, "%s: expected a state dict, found %s", u->path, kind_names[u->nodes[top].kind]);
  for (size_t i = 0; i < u->n_pairs; i++) {
    if (u->pairs[i].dict != top) continue;
    TRY(check_pair(u, &u->pairs[i]));
    n_names += u->nodes[u->pairs[i].key].length + 1;
    n++;
  }
  if (n == 0) FAIL(u->err, EAGLET_E_INPUT, "%s: expected a state dict, found an empty one", u->path);
  file->tensors = memory_alloc(n * sizeof *file->tensors);
  file->names = memory_alloc(n_names);
  char *name = file->names;
  for (size_t i = 0; i < u->n_pairs; i++) {
    const struct node *key = &u->nodes[u->pairs[i].key];
    if (u->pairs[i].dict != top) continue;
    memcpy(name, key->bytes, key->length);
    file->tensors[file->n] = u->tensors[u->nodes[u->pairs[i].value].number];
    file->tensors[file->n++].name = name;
    name += key->length + 1;
  }
  return sort_tensors(file, u);
}

/* ---- nested values as a file of tensors ---- */

/* A value on the way down: its path is written up to n_path. */
struct place {
  uint32_t node;
  size_t next, end; /* of a dict's or list's pairs, of a tuple's items */
  size_t index;     /* of the next item */
  size_t n_path;
};
struct walk {
  struct unpickler *u;
  struct safetensors *file;
  json_t *metadata;
  struct place places[DEPTH_MAX];
  int depth;
  char path[NAME_BYTES_MAX];
  size_t n_path;
  size_t *name_at; /* [n tensors] in names */
  size_t capacity, name_at_capacity, tensors_capacity;
  size_t n_names, n_seen;
};

static int by_dict(const void *a, const void *b) {
  const struct pair *x = a, *y = b;
  if (x->dict != y->dict) return x->dict < y->dict ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

static enum eaglet_status enter(struct walk *w, uint32_t node) {
  const struct unpickler *u = w->u;
  const struct node *n = &u->nodes[node];
  struct place place = {.node = node, .n_path = w->n_path};
  if (w->depth == DEPTH_MAX) FAIL(u->err, EAGLET_E_INPUT, "%s: %s: more than %d values inside each other", u->path, w->path, DEPTH_MAX);
  if (n->kind == KIND_TUPLE) {
    place.next = n->first;
    place.end = n->first + n->length;
  } else { /* the first of its pairs, by bisection */
    size_t low = 0, high = u->n_pairs;
    while (low < high) {
      size_t middle = low + (high - low) / 2;
      if (u->pairs[middle].dict < node) low = middle + 1;
      else high = middle;
    }
    place.next = place.end = low;
    while (place.end < u->n_pairs && u->pairs[place.end].dict == node) place.end++;
  }
  if (place.end - place.next > ENTRIES_MAX)
    FAIL(u->err, EAGLET_E_INPUT, "%s: %s: expected at most %d values, found %zu", u->path, w->path, ENTRIES_MAX, place.end - place.next);
  w->places[w->depth++] = place;
  return EAGLET_OK;
}

static enum eaglet_status append_name(struct walk *w, const char *text, size_t length) {
  size_t dot = w->n_path > 0;
  if (length == 0 || !is_plain((const uint8_t *)text, length) || w->n_path + dot + length >= sizeof w->path)
    FAIL(w->u->err, EAGLET_E_INPUT, "%s: %s: expected a short plain name as a key", w->u->path, w->path);
  if (dot) w->path[w->n_path++] = '.';
  memcpy(w->path + w->n_path, text, length);
  w->n_path += length;
  w->path[w->n_path] = '\0';
  return EAGLET_OK;
}

static void add_tensor(struct walk *w, const struct tensor_entry *tensor) {
  struct safetensors *file = w->file;
  MEMORY_GROW(file->names, w->capacity, w->n_names + w->n_path + 1);
  MEMORY_GROW(w->name_at, w->name_at_capacity, file->n + 1);
  MEMORY_GROW(file->tensors, w->tensors_capacity, file->n + 1);
  memcpy(file->names + w->n_names, w->path, w->n_path + 1);
  w->name_at[file->n] = w->n_names;
  file->tensors[file->n++] = *tensor;
  w->n_names += w->n_path + 1;
}

static enum eaglet_status add_value(struct walk *w, const struct node *node) {
  json_t *text = NULL;
  char digits[40];
  double number;
  switch (node->kind) {
  case KIND_TENSOR: add_tensor(w, &w->u->tensors[node->number]); return EAGLET_OK;
  case KIND_NONE: return EAGLET_OK;
  case KIND_BOOL: text = json_string(node->number ? "true" : "false"); break;
  case KIND_TEXT: text = json_stringn((const char *)node->bytes, node->length); break;
  case KIND_INT: snprintf(digits, sizeof digits, "%lld", (long long)node->number); text = json_string(digits); break;
  case KIND_FLOAT:
    memcpy(&number, &node->number, sizeof number);
    snprintf(digits, sizeof digits, "%.17g", number);
    text = json_string(digits);
    break;
  default: FAIL(w->u->err, EAGLET_E_INPUT, "%s: %s: expected a tensor, a number or text, found %s", w->u->path, w->path, kind_names[node->kind]);
  }
  if (!text) FAIL(w->u->err, EAGLET_E_INPUT, "%s: %s: text that is not UTF-8", w->u->path, w->path);
  json_object_set_new(w->metadata, w->path, text);
  return EAGLET_OK;
}

/* The next value of the innermost container, its name appended to the path. */
static enum eaglet_status next_value(struct walk *w, struct place *place, uint32_t *value) {
  const struct unpickler *u = w->u;
  char index[24];
  w->n_path = place->n_path;
  w->path[w->n_path] = '\0';
  int n_index = snprintf(index, sizeof index, "%zu", place->index++);
  if (u->nodes[place->node].kind == KIND_TUPLE) {
    *value = u->items[place->next++];
    return append_name(w, index, (size_t)n_index);
  }
  const struct pair *pair = &u->pairs[place->next++];
  *value = pair->value;
  if (pair->key == NOTHING) return append_name(w, index, (size_t)n_index);
  const struct node *key = &u->nodes[pair->key];
  if (key->kind == KIND_INT) return append_name(w, index, (size_t)snprintf(index, sizeof index, "%lld", (long long)key->number));
  if (key->kind != KIND_TEXT) FAIL(u->err, EAGLET_E_INPUT, "%s: %s: expected a name as a key, found %s", u->path, w->path, kind_names[key->kind]);
  return append_name(w, (const char *)key->bytes, key->length);
}

static enum eaglet_status walk_all(struct walk *w) {
  while (w->depth > 0) {
    struct place *place = &w->places[w->depth - 1];
    uint32_t value;
    if (place->next == place->end) {
      w->depth--;
      continue;
    }
    if (++w->n_seen > ENTRIES_MAX) FAIL(w->u->err, EAGLET_E_INPUT, "%s: more than %d values", w->u->path, ENTRIES_MAX);
    TRY(next_value(w, place, &value));
    enum kind kind = w->u->nodes[value].kind;
    if (kind == KIND_DICT || kind == KIND_LIST || kind == KIND_TUPLE) TRY(enter(w, value));
    else TRY(add_value(w, &w->u->nodes[value]));
  }
  return EAGLET_OK;
}

static enum eaglet_status collect_nested(struct safetensors *file, struct unpickler *u) {
  struct walk w = {.u = u, .file = file, .metadata = json_object()};
  uint32_t top = u->stack[0];
  enum eaglet_status status;
  file->header = json_object();
  json_object_set_new(file->header, "__metadata__", w.metadata);
  if (u->nodes[top].kind != KIND_DICT) FAIL(u->err, EAGLET_E_INPUT, "%s: expected a dict, found %s", u->path, kind_names[u->nodes[top].kind]);
  if (u->n_pairs > 1) qsort(u->pairs, u->n_pairs, sizeof *u->pairs, by_dict);
  status = enter(&w, top);
  if (status == EAGLET_OK) status = walk_all(&w);
  for (size_t i = 0; i < file->n; i++) file->tensors[i].name = file->names + w.name_at[i];
  free(w.name_at);
  TRY(status);
  if (file->n == 0) FAIL(u->err, EAGLET_E_INPUT, "%s: holds no tensor", u->path);
  return sort_tensors(file, u);
}

/* ---- the archive ---- */

static enum eaglet_status check_kind(const struct file_map *map, const char *path, struct eaglet_error *err) {
  static const uint8_t old[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46};
  if (map->length >= 4 && memcmp(map->data, "PK\3\4", 4) == 0) return EAGLET_OK;
  if (map->length >= sizeof old && memcmp(map->data, old, sizeof old) == 0)
    FAIL(err, EAGLET_E_INPUT, "%s: written in the format of torch before 1.6: convert it to safetensors", path);
  if (map->length >= 23 && memcmp(map->data, "version https://git-lfs", 23) == 0)
    FAIL(err, EAGLET_E_INPUT, "%s: is a Git LFS pointer, not weights: fetch the file with `git lfs pull`", path);
  FAIL(err, EAGLET_E_INPUT, "%s: expected a zip archive of torch.save", path);
}

/* "archive/data.pkl"; its folder is that of all records. */
static enum eaglet_status find_pickle(struct unpickler *u) {
  static const char tail[] = "/data.pkl";
  const struct zip_record *found = NULL;
  const uint8_t *bytes;
  for (size_t i = 0; i < u->zip->n; i++) {
    const struct zip_record *r = &u->zip->records[i];
    size_t n = sizeof tail - 1;
    if (r->n_name <= n || r->n_name > 256 || memcmp(r->name + r->n_name - n, tail, n) != 0 || memchr(r->name, '/', r->n_name - n)) continue;
    if (found) FAIL(u->err, EAGLET_E_INPUT, "%s: more than one data.pkl", u->path);
    found = r;
  }
  if (!found) FAIL(u->err, EAGLET_E_INPUT, "%s: a zip archive without a data.pkl: not of torch.save", u->path);
  snprintf(u->prefix, sizeof u->prefix, "%.*s", (int)(found->n_name - sizeof tail + 2), found->name);
  if (!is_printable(found->name, found->n_name)) FAIL(u->err, EAGLET_E_INPUT, "%s: a record's name is broken", u->path);
  if (found->n_bytes > PICKLE_BYTES_MAX) FAIL(u->err, EAGLET_E_INPUT, "%s: data.pkl of more than %u bytes", u->path, PICKLE_BYTES_MAX);
  TRY(zip_bytes(u->zip, &bytes, found, u->err));
  u->in = (struct cursor){.data = bytes, .length = (size_t)found->n_bytes};
  return EAGLET_OK;
}

static enum eaglet_status check_order(const struct unpickler *u) {
  char name[NAME_BYTES_MAX + 16];
  const uint8_t *bytes;
  snprintf(name, sizeof name, "%sbyteorder", u->prefix);
  const struct zip_record *record = zip_find(u->zip, name);
  if (!record) return EAGLET_OK; /* torch before 2.1 */
  TRY(zip_bytes(u->zip, &bytes, record, u->err));
  if (record->n_bytes != 6 || memcmp(bytes, "little", 6) != 0) FAIL(u->err, EAGLET_E_INPUT, "%s: byteorder: expected little", u->path);
  return EAGLET_OK;
}

static enum eaglet_status read_archive(struct safetensors *file, struct unpickler *u, bool nested) {
  TRY(find_pickle(u));
  TRY(check_order(u));
  TRY(run_pickle(u));
  return nested ? collect_nested(file, u) : collect(file, u);
}

/* Of a file that is mapped. */
static enum eaglet_status open_mapped(struct safetensors *file, const char *path, bool nested, struct eaglet_error *err) {
  struct zip zip = {0};
  file->path = memory_copy_string(path);
  struct unpickler u = {.path = file->path, .zip = &zip, .err = err};
  enum eaglet_status status = check_kind(&file->map, path, err);
  if (status == EAGLET_OK) status = zip_open(&zip, file->map.data, file->map.length, file->path, err);
  if (status == EAGLET_OK) status = read_archive(file, &u, nested);
  free(u.nodes);
  free(u.stack);
  free(u.items);
  free(u.memo);
  free(u.pairs);
  free(u.tensors);
  zip_close(&zip);
  if (status != EAGLET_OK) safetensors_close(file);
  return status;
}

enum eaglet_status torch_file_open(struct safetensors *file, const char *path, struct eaglet_error *err) {
  *file = (struct safetensors){0};
  TRY(file_map_open(&file->map, path, err));
  return open_mapped(file, path, false, err);
}

enum eaglet_status torch_file_open_nested(struct safetensors *file, const char *path, struct eaglet_error *err) {
  *file = (struct safetensors){0};
  TRY(file_map_open(&file->map, path, err));
  if (file->map.length > 2 && file->map.data[0] == 0x1f && file->map.data[1] == 0x8b) {
    file_map_close(&file->map);
    TRY(file_map_open_unpacked(&file->map, path, UNPACKED_BYTES_MAX, err));
  }
  return open_mapped(file, path, true, err);
}
