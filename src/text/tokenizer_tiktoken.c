/* tokenizer_tiktoken.c - the tiktoken kind: tiktoken.model (base64 SPACE rank), Kimi's split pattern and pre-chunking.
 *
 * The pattern belongs to the kind: checkpoint directories carry it in Python code only. Rust's class intersections
 * [A&&[^\p{Han}]] are written as one negated class of the complement (general categories partition all characters), which
 * needs no look-ahead per character: a look-ahead would push a backtrack frame for each letter of a long run.
 * \s is spelled \p{White_Space}, because PCRE2's \s adds U+180E; \p{Han} is spelled \p{sc:Han}, because PCRE2's bare name adds
 * punctuation that the script shares with others.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer_kind.h"
#include "text/tokenizer_split.h"

#include "base/file.h"
#include "base/memory.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX (1u << 24)
#define N_RESERVED 256
#define CHUNK_CODEPOINTS_MAX 400000
#define RUN_CODEPOINTS_MAX 25000
#define MATCH_LIMIT 20000000u
#define HEAP_LIMIT_KIB (64u * 1024)
#define JIT_STACK_MAX (1024u * 1024)

#define NOT_UPPER_OR_OTHER "\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}"       /* complement of Lu Lt Lm Lo M */
#define NOT_LOWER_OR_OTHER "\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" /* complement of Ll Lm Lo M */
#define UPPER "[^" NOT_UPPER_OR_OTHER "\\p{sc:Han}]"
#define LOWER "[^" NOT_LOWER_OR_OTHER "\\p{sc:Han}]"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define SPACE "\\p{White_Space}"

static const char kimi_pattern[] = "[\\p{sc:Han}]+"
                                   "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTION
                                   "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" CONTRACTION
                                   "|\\p{N}{1,3}"
                                   "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"
                                   "|" SPACE "*[\\r\\n]+"
                                   "|" SPACE "+(?![^" SPACE "])"
                                   "|" SPACE "+";

struct tiktoken_model {
  struct bpe_ranks ranks;
  char *reserved; /* text of unnamed reserved ids */
  pcre2_code *pattern;
  pcre2_match_context *match_context;
};

/* ---- tiktoken.model ---- */

static int base64_value(unsigned char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes strict base64 (padded, canonical) into out; returns the number of bytes, -1 when malformed. */
static int64_t base64_decode(const char *text, size_t length, char *out) {
  if (length == 0 || length % 4) return -1;
  int64_t n = 0;
  for (size_t i = 0; i < length; i += 4) {
    uint32_t bits = 0;
    int n_padding = 0;
    for (size_t j = 0; j < 4; j++) {
      char c = text[i + j];
      int value = c == '=' && i + 4 == length && j >= 2 ? 0 : base64_value((unsigned char)c);
      if (value < 0 || (n_padding && c != '=')) return -1;
      n_padding += c == '=';
      bits = bits << 6 | (uint32_t)value;
    }
    if (n_padding && (bits & ((1u << (8 * n_padding)) - 1))) return -1;
    for (int j = 0; j < 3 - n_padding; j++) out[n++] = (char)(bits >> (16 - 8 * j));
  }
  return n;
}

struct rank_line {
  uint32_t at, length; /* in bytes: 0 length = rank not seen */
};

struct ranks_reader {
  const char *path, *text;
  size_t length, at;
  uint64_t line;
  char *bytes; /* decoded tokens in file order */
  size_t n_bytes;
  struct rank_line *lines; /* by rank */
  size_t lines_capacity;
  uint32_t n_ranks, n_lines;
};

static enum eaglet_status read_rank_line(struct ranks_reader *reader, struct eaglet_error *err) {
  const char *line = reader->text + reader->at, *end = memchr(line, '\n', reader->length - reader->at);
  if (!end) end = reader->text + reader->length;
  reader->at = (size_t)(end - reader->text) + (end < reader->text + reader->length);
  reader->line++;
  if (end > line && end[-1] == '\r') end--;
  if (end == line) return EAGLET_OK;
  const char *space = memchr(line, ' ', (size_t)(end - line));
  if (!space || space + 1 == end || end - space > 9)
    FAIL(err, EAGLET_E_INPUT, "%s line %llu: expected base64, space and rank", reader->path, (unsigned long long)reader->line);
  int64_t n = base64_decode(line, (size_t)(space - line), reader->bytes + reader->n_bytes);
  if (n <= 0) FAIL(err, EAGLET_E_INPUT, "%s line %llu: token is not valid base64", reader->path, (unsigned long long)reader->line);
  uint32_t rank = 0;
  for (const char *p = space + 1; p < end; p++) {
    if (*p < '0' || *p > '9')
      FAIL(err, EAGLET_E_INPUT, "%s line %llu: rank is not a number", reader->path, (unsigned long long)reader->line);
    rank = rank * 10 + (uint32_t)(*p - '0');
  }
  if (rank >= RANKS_MAX)
    FAIL(err, EAGLET_E_INPUT, "%s line %llu: rank %u is above the limit %u", reader->path, (unsigned long long)reader->line, rank,
         RANKS_MAX);
  size_t before = reader->lines_capacity;
  MEMORY_GROW(reader->lines, reader->lines_capacity, (size_t)rank + 1);
  if (reader->lines_capacity > before)
    memset(reader->lines + before, 0, (reader->lines_capacity - before) * sizeof *reader->lines);
  if (reader->lines[rank].length)
    FAIL(err, EAGLET_E_INPUT, "%s line %llu: rank %u appears twice", reader->path, (unsigned long long)reader->line, rank);
  reader->lines[rank] = (struct rank_line){(uint32_t)reader->n_bytes, (uint32_t)n};
  reader->n_bytes += (size_t)n;
  reader->n_lines++;
  if (rank >= reader->n_ranks) reader->n_ranks = rank + 1;
  return EAGLET_OK;
}

/* Orders the bytes by rank into tokenizer->blob and ->at. */
static enum eaglet_status order_ranks(struct tokenizer *tokenizer, const struct ranks_reader *reader, struct eaglet_error *err) {
  tokenizer->n_base = reader->n_ranks;
  tokenizer->blob = memory_alloc(reader->n_bytes + 1);
  tokenizer->at = memory_alloc(((size_t)reader->n_ranks + 1) * sizeof *tokenizer->at);
  uint32_t at = 0;
  for (uint32_t rank = 0; rank < reader->n_ranks; rank++) {
    const struct rank_line *line = &reader->lines[rank];
    if (line->length == 0) FAIL(err, EAGLET_E_INPUT, "%s: rank %u is missing (%u ranks up to %u)", reader->path, rank,
                                reader->n_lines, reader->n_ranks - 1);
    memcpy(tokenizer->blob + at, reader->bytes + line->at, line->length);
    tokenizer->at[rank] = at;
    at += line->length;
  }
  tokenizer->at[reader->n_ranks] = at;
  return EAGLET_OK;
}

static enum eaglet_status read_ranks(struct tokenizer *tokenizer, struct tiktoken_model *model, const char *path,
                                     struct eaglet_error *err) {
  struct file_map map;
  TRY(file_map_open(&map, path, err));
  enum eaglet_status status = EAGLET_OK;
  struct ranks_reader reader = {.path = path, .text = (const char *)map.data, .length = map.length};
  if (map.length == 0 || map.length > UINT32_MAX / 2) {
    status = error_set(err, EAGLET_E_INPUT, "%s: expected a list of ranks, found %zu bytes", path, map.length);
    goto done;
  }
  reader.bytes = memory_alloc(map.length);
  tokenizer->hash = file_hash(map.data, map.length, 0);
  while (reader.at < reader.length) TRY_GOTO(read_rank_line(&reader, err), done);
  TRY_GOTO(order_ranks(tokenizer, &reader, err), done);
  status = bpe_ranks_init(&model->ranks, tokenizer->blob, tokenizer->at, tokenizer->n_base, err);
  if (status != EAGLET_OK) {
    (void)error_prefix(err, "%s", path);
    goto done;
  }
  for (int byte = 0; byte < 256; byte++) {
    char c = (char)byte;
    if (bpe_ranks_find(&model->ranks, &c, 1) != BPE_NONE) continue;
    status = error_set(err, EAGLET_E_INPUT, "%s: no rank for the single byte 0x%02X", path, (unsigned)byte);
    goto done;
  }
done:
  free(reader.bytes);
  free(reader.lines);
  file_map_close(&map);
  return status;
}

/* ---- splitting ---- */

static enum eaglet_status compile_pattern(struct tiktoken_model *model, struct eaglet_error *err) {
  int code;
  PCRE2_SIZE at;
  model->pattern = pcre2_compile((PCRE2_SPTR)kimi_pattern, PCRE2_ZERO_TERMINATED,
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &at, NULL);
  if (!model->pattern) {
    char message[128] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
    FAIL(err, EAGLET_E_INTERNAL, "split pattern at %zu: %s", (size_t)at, message);
  }
  (void)pcre2_jit_compile(model->pattern, PCRE2_JIT_COMPLETE); /* without JIT the interpreter does the same, slower */
  model->match_context = pcre2_match_context_create(NULL);
  ASSERT(model->match_context);
  pcre2_set_match_limit(model->match_context, MATCH_LIMIT);
  pcre2_set_heap_limit(model->match_context, HEAP_LIMIT_KIB);
  return EAGLET_OK;
}

struct tiktoken_scratch {
  struct bpe_scratch bpe;
  pcre2_match_context *context; /* a copy: it points at this call's JIT stack */
  pcre2_match_data *match;
  pcre2_jit_stack *stack;
};

static struct tiktoken_scratch *scratch_create(const struct tiktoken_model *model) {
  struct tiktoken_scratch *scratch = memory_alloc(sizeof *scratch);
  scratch->context = pcre2_match_context_copy(model->match_context);
  scratch->match = pcre2_match_data_create(1, NULL);
  scratch->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_MAX, NULL); /* NULL: JIT is not built in */
  ASSERT(scratch->context && scratch->match);
  if (scratch->stack) pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
  return scratch;
}

static void tiktoken_scratch_free(void *scratch_) {
  struct tiktoken_scratch *scratch = scratch_;
  if (!scratch) return;
  bpe_scratch_release(&scratch->bpe);
  pcre2_match_data_free(scratch->match);
  pcre2_match_context_free(scratch->context);
  if (scratch->stack) pcre2_jit_stack_free(scratch->stack);
  free(scratch);
}

static enum eaglet_status tiktoken_encode(const struct tokenizer *tokenizer, void **scratch_, const struct text_span *part,
                                          const struct encode_request *request, const struct bpe_sink *sink,
                                          struct eaglet_error *err) {
  const struct tiktoken_model *model = tokenizer->model;
  if (!*scratch_) *scratch_ = scratch_create(model);
  struct tiktoken_scratch *scratch = *scratch_;
  const char *subject = request->text + part->begin; /* a special token ends the text for look-ahead */
  size_t length = part->end - part->begin, at = 0;
  while (at < length) {
    size_t end = split_scan(SPLIT_KIMI, subject, length, at); /* the Han alternatives make no difference in ASCII */
    if (end) {
      bpe_encode(&model->ranks, &scratch->bpe, subject + at, end - at, part->begin + at, sink);
      at = end;
      continue;
    }
    int rc = pcre2_match(model->pattern, (PCRE2_SPTR)subject, length, at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, scratch->match,
                         scratch->context);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(scratch->match);
    if (rc < 0 || span[0] != at) /* every character starts some alternative, so no match is a limit or a defect */
      FAIL(err, rc == PCRE2_ERROR_NOMATCH || rc >= 0 ? EAGLET_E_INTERNAL : EAGLET_E_RESOURCE,
           "text at byte %zu: the split pattern gave up (PCRE2 code %d)", part->begin + at, rc);
    bpe_encode(&model->ranks, &scratch->bpe, subject + at, span[1] - at, part->begin + at, sink);
    at = span[1];
  }
  return EAGLET_OK;
}

static bool is_python_space(uint32_t c) { /* str.isspace */
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Cuts after every 400,000 characters and, within those, before the character that would make a run of whitespace or of
 * non-whitespace longer than 25,000: what Kimi's Python does to spare tiktoken's engine, visible in the ids. */
static void tiktoken_cut(const char *text, size_t length, struct offset_list *ends) {
  size_t n_chunk = 0, n_run = 0;
  bool run_is_space = false;
  for (size_t at = 0; at < length && length > RUN_CODEPOINTS_MAX;) {
    uint32_t c = (uint8_t)text[at];
    size_t n = c < 0x80 ? 1 : (size_t)utf8_decode(text + at, length - at, &c);
    bool is_space = is_python_space(c), cut = n_chunk == CHUNK_CODEPOINTS_MAX;
    if (cut) n_chunk = n_run = 0;
    if (n_run == 0 || is_space != run_is_space) {
      n_run = 1;
      run_is_space = is_space;
    } else if (++n_run > RUN_CODEPOINTS_MAX) {
      cut = true;
      n_run = 1;
    }
    if (cut) offset_list_append(ends, at);
    n_chunk++;
    at += n;
  }
  offset_list_append(ends, length);
}

/* ---- special tokens ---- */

static enum eaglet_status read_added_token(struct tokenizer *tokenizer, const char *key, const json_t *value, struct eaglet_error *err) {
  struct added_token token = {0};
  const char *path = tokenizer->config_path;
  TRY(added_parse_id(&token.id, key, path, err));
  if ((uint32_t)token.id < tokenizer->n_base)
    FAIL(err, EAGLET_E_INPUT, "%s: added token id %d collides with the vocabulary's ids 0..%u", path, token.id, tokenizer->n_base - 1);
  enum eaglet_status status = added_parse(&token, value, path, err);
  if (status != EAGLET_OK) {
    (void)error_prefix(err, "added token %d", token.id);
    return status;
  }
  token.guarded = true; /* Kimi's tool tokens are structure although "special" is false; tiktoken knows no other flags */
  token.normalized = token.lstrip = token.rstrip = token.single_word = false;
  added_append(tokenizer, &token);
  return EAGLET_OK;
}

/* A vocabulary smaller than the reserved range (small test models) is stated by config.json; ids beyond it do not exist. */
static enum eaglet_status apply_vocab_size(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  char *path = file_join(directory, "config.json");
  json_t *config = NULL;
  enum eaglet_status status = EAGLET_OK;
  if (!file_exists(path)) goto done;
  TRY_GOTO(json_parse_file(&config, path, err), done);
  const json_t *text_config = json_object_get(config, "text_config");
  const json_t *size = json_object_get(text_config ? text_config : config, "vocab_size");
  if (!json_is_integer(size)) goto done;
  int64_t n = json_integer_value(size);
  uint32_t n_named = tokenizer->n_base;
  for (size_t i = 0; i < tokenizer->n_added; i++)
    if ((uint32_t)tokenizer->added[i].id >= n_named) n_named = (uint32_t)tokenizer->added[i].id + 1;
  if (n >= n_named && n < tokenizer->n_ids) tokenizer->n_ids = (uint32_t)n;
done:
  json_decref(config);
  free(path);
  return status;
}

/* Gives every id between the vocabulary and n_ids that has no name the text <|reserved_token_ID|>. */
static void add_reserved(struct tokenizer *tokenizer, struct tiktoken_model *model) {
  size_t n_free = tokenizer->n_ids - tokenizer->n_base;
  bool *named = memory_alloc(n_free + 1);
  for (size_t i = 0; i < tokenizer->n_added; i++) named[(uint32_t)tokenizer->added[i].id - tokenizer->n_base] = true;
  char *text = model->reserved = memory_alloc(n_free * 32 + 1);
  for (size_t i = 0; i < n_free; i++) {
    if (named[i]) continue;
    int32_t id = (int32_t)(tokenizer->n_base + i);
    int length = snprintf(text, 32, "<|reserved_token_%d|>", id);
    added_append(tokenizer, &(struct added_token){.text = text, .length = (uint32_t)length, .id = id, .special = true, .guarded = true});
    text += length + 1;
  }
  free(named);
}

static enum eaglet_status read_added(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  const char *path = tokenizer->config_path;
  if (!tokenizer->config) FAIL(err, EAGLET_E_INPUT, "%s: file is missing: special tokens are unknown without it", path);
  json_t *decoder = json_object_get(tokenizer->config, "added_tokens_decoder"), *value;
  if (decoder && !json_is_object(decoder)) FAIL(err, EAGLET_E_INPUT, "%s: added_tokens_decoder: expected an object", path);
  const char *key;
  json_object_foreach(decoder, key, value) TRY(read_added_token(tokenizer, key, value, err));
  TRY(apply_vocab_size(tokenizer, directory, err));
  add_reserved(tokenizer, tokenizer->model);
  return added_finish(tokenizer, path, err);
}

/* ---- open and close ---- */

static void tiktoken_close(struct tokenizer *tokenizer) {
  struct tiktoken_model *model = tokenizer->model;
  if (!model) return;
  bpe_ranks_release(&model->ranks);
  pcre2_code_free(model->pattern);
  pcre2_match_context_free(model->match_context);
  free(model->reserved);
  free(model);
  tokenizer->model = NULL;
}

static enum eaglet_status tiktoken_open(struct tokenizer *tokenizer, const char *directory, struct eaglet_error *err) {
  struct tiktoken_model *model = tokenizer->model = memory_alloc(sizeof *model);
  char *path = file_join(directory, "tiktoken.model");
  enum eaglet_status status = read_ranks(tokenizer, model, path, err);
  free(path);
  TRY(status);
  tokenizer->n_ids = tokenizer->n_base + N_RESERVED;
  TRY(compile_pattern(model, err));
  return read_added(tokenizer, directory, err);
}

const struct tokenizer_kind tokenizer_kind_tiktoken = {
    .name = "tiktoken",
    .files = {"tiktoken.model"},
    .open = tiktoken_open,
    .cut = tiktoken_cut,
    .encode = tiktoken_encode,
    .scratch_free = tiktoken_scratch_free,
    .close = tiktoken_close,
};
