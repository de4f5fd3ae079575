/* eaglet.h - the one public header of libeaglet.
 *
 * Two nouns: an engine (a target model, optionally paired with a drafter: an EAGLE-3 head, a small model, ...) and a sequence (one token stream
 * with its KV cache); one verb: eaglet_step, which advances every live sequence by one speculative round. Beside them
 * stand the pipeline verbs (prepare, vocab, extract, train, eval) and the questions (inspect, verify, check_pair), each
 * one function that takes a parameter struct. Parameter structs are filled with designated initialisers; zero means default.
 *
 * Every fallible function returns enum eaglet_status and describes a failure in *err (one line, no newline); err is
 * the only out-of-band channel. An engine and its sequences belong to one thread at a time; different engines may live on
 * different threads. The library reads no environment variables and has no mutable globals.
 *
 * src/base/error.h includes this file for the status and error vocabulary, and modules take the parameter structs
 * directly; only src/eaglet.c and src/cli define or call the functions.
 */
#ifndef EAGLET_H
#define EAGLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(EAGLET_BUILDING)
#define EAGLET_API __attribute__((visibility("default")))
#else
#define EAGLET_API
#endif
#define EAGLET_MUST_USE __attribute__((warn_unused_result))

#define EAGLET_VERSION "0.1.0"

/* ---- status and errors ------------------------------------------------------------------------------------------ */

/* The numbers are the exit codes of the command line (docs: CLI contract). */
enum eaglet_status {
  EAGLET_OK = 0,
  EAGLET_E_INTERNAL = 1,  /* a defect of eaglet itself */
  EAGLET_E_USAGE = 2,     /* the caller asked for something that makes no sense */
  EAGLET_E_INPUT = 3,     /* a file or a value in it is bad, missing or contradicts another */
  EAGLET_E_RESOURCE = 4,  /* memory, disk space */
  EAGLET_E_NETWORK = 5,   /* a port or a connection */
  EAGLET_E_CHECK = 6,     /* a verification ran and failed */
  EAGLET_E_DEVICE = 7,    /* an accelerator failed; the engine is poisoned from then on (exit code 1) */
  EAGLET_E_INTERRUPTED = 130 /* stopped by request; state saved */
};

#define EAGLET_ERROR_MAX 1024
struct eaglet_error {
  enum eaglet_status status;
  char message[EAGLET_ERROR_MAX]; /* one line: file, thing, expected, found */
};

/* ---- progress and interruption ------------------------------------------------------------------------------------ */

/* Long work calls report() at most a few times a second; unit is a plural noun ("tokens", "replies", "steps"); total 0
 * means unknown. note is a short free text ("loss 2.31 accept 1.92") or NULL. Return false to stop: the work saves its
 * state and returns EAGLET_E_INTERRUPTED. */
struct eaglet_progress {
  bool (*report)(void *context, const char *stage, const char *unit, uint64_t done, uint64_t total, const char *note);
  void *context;
};

/* ---- text results -------------------------------------------------------------------------------------------------- */

/* A heap string owned by the caller; release with eaglet_text_clear. */
struct eaglet_text {
  char *data; /* NUL-terminated, also after failure (possibly NULL) */
  size_t length;
};
EAGLET_API void eaglet_text_clear(struct eaglet_text *text);

/* ---- engine ---------------------------------------------------------------------------------------------------------- */

enum eaglet_precision { EAGLET_PRECISION_DEFAULT, EAGLET_PRECISION_EXACT, EAGLET_PRECISION_FAST };

/* Who proposes tokens. AUTO: a head or a model, by what `draft` is; nobody without one. */
enum eaglet_drafter {
  EAGLET_DRAFTER_AUTO,
  EAGLET_DRAFTER_NONE,
  EAGLET_DRAFTER_HEAD,  /* EAGLE-3 head (draft) */
  EAGLET_DRAFTER_MODEL, /* independent model of the same vocabulary (draft) */
  EAGLET_DRAFTER_MTP,   /* the checkpoint's own multi-token-prediction layers */
  EAGLET_DRAFTER_NGRAM  /* what followed the last occurrence of the text's last tokens */
};

struct eaglet_engine_params {
  const char *model;              /* directory, or org/name[@rev] in the local hub cache */
  const char *draft;              /* EAGLE-3 head or a small model, named as model is, or NULL */
  const char *hub_cache;          /* hub cache directory; NULL: no hub lookup */
  const char *device;             /* "cpu" (default) */
  enum eaglet_precision precision; /* default fast */
  int32_t threads;                /* default: cores of the cgroup */
  int32_t sequences_max;          /* sequences that run at once, default 1; more may wait */
  int32_t context_max;            /* tokens per sequence, default: the model's, capped at 4096 */
  int32_t rows_max;               /* rows of one forward call, default 512 */
  enum eaglet_drafter drafter;    /* who drafts */
  int32_t draft_len_max;          /* levels of drafts per round, default 7 */
  int32_t draft_width_max;        /* drafted tokens per level: 1 (default) a chain, more a dynamic tree (EAGLE-2), at most 10 */
  int32_t draft_tokens_max;       /* drafted tokens per round, default: a chain's levels; a tree's: 24, at most 63 */
  bool adaptive;                  /* measure what rounds cost and what drafts bring, and draft only what pays; the maxima stay maxima */
  int32_t kv_memory_mib;          /* for all sequences; default: what sequences_max whole contexts need. With less, sequences wait, and
                                     the last admitted are preempted (recomputed later, same output) when memory runs out */
  bool no_prefix_cache;           /* compute shared beginnings of prompts anew */
  bool ignore_index;      /* read every *.safetensors file of the model, whatever its index says; default: exactly what the index names */
};

struct eaglet_engine;

/* Opens the checkpoint, binds and validates every weight, plans all memory. On failure *engine is NULL. */
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_engine_open(struct eaglet_engine **engine,
                                                                 const struct eaglet_engine_params *params,
                                                                 struct eaglet_error *err);
EAGLET_API void eaglet_engine_close(struct eaglet_engine *engine); /* frees its sequences too; NULL is fine */

/* ---- sequence -------------------------------------------------------------------------------------------------------- */

struct eaglet_sequence;

/* Why a sequence ended: a stop token (the last entry of its output); a stop string; its constraint allows nothing more; output_max; the
 * context is full; cancelled. */
enum eaglet_stop {
  EAGLET_STOP_NONE,
  EAGLET_STOP_TOKEN,
  EAGLET_STOP_STRING,
  EAGLET_STOP_CONSTRAINT,
  EAGLET_STOP_LENGTH,
  EAGLET_STOP_CONTEXT,
  EAGLET_STOP_CANCELLED
};

struct eaglet_tokenizer;
struct eaglet_constraint;

struct eaglet_logit_bias {
  int32_t token;
  float bias; /* added to its logit; -inf: never */
};
/* What one emitted token, or one that could have been, was worth to the target. */
struct eaglet_token_logprob {
  int32_t token;
  float logprob; /* log-softmax of the target's own logits: before temperature, bias, penalties and constraint */
  int32_t rank;  /* 1: the likeliest */
};
#define EAGLET_LOGPROBS_MAX 20

struct eaglet_sequence_params {
  const int32_t *prompt;  /* borrowed during the call */
  int32_t n_prompt;       /* >= 1 */
  int32_t output_max;     /* default 256 */
  int32_t output_min;     /* no stop token before so many */
  int32_t draft_len;      /* levels of drafts per round; default the engine's; -1 = none */
  int32_t draft_width, draft_tokens; /* as in the engine's parameters; default the engine's */
  bool draft_fixed;       /* draft up to the limits in every round, even when the engine is adaptive */
  float temperature;      /* 0 = greedy */
  int32_t top_k;          /* 0 = all */
  float top_p;            /* 0 = 1.0 */
  float min_p;            /* tokens below min_p times the likeliest one's probability are left out */
  float repetition_penalty; /* 0 = 1.0; of tokens in prompt and output */
  float frequency_penalty, presence_penalty; /* of output tokens */
  const struct eaglet_logit_bias *bias; /* [n_bias] borrowed during the call */
  int32_t n_bias;
  uint64_t seed;          /* says the same again with the same limits of drafts; in an adaptive engine a chain's drawn drafts depend on
                             time, and only the law of the text stays */
  bool ignore_stop;       /* the model's stop tokens are tokens like others */
  const int32_t *stop_ids; /* [n_stop_ids] more stop tokens, borrowed during the call */
  int32_t n_stop_ids;
  const struct eaglet_tokenizer *tokenizer; /* for the output's text (eaglet_sequence_text); must outlive the sequence; NULL: ids only */
  bool continues_prompt;  /* the text goes on where the prompt's ends; default: it is a text of its own, as a reply is */
  const char *const *stops; /* [n_stops] stop strings (at most 64 of 1 KiB), copied; wherever tokens cut them. Needs the tokenizer */
  size_t n_stops;
  bool keep_stop;         /* the stop string stays part of the text */
  const struct eaglet_constraint *constraint; /* what the text must be; must outlive the sequence. Needs its tokenizer */
  int32_t n_logprobs;     /* with each output token its logprob and so many of the likeliest; -1: only its own; 0: none */
  int32_t n_prompt_logprobs; /* same for the prompt's tokens */
};

struct eaglet_sequence_stats {
  int32_t prompt_tokens, output_tokens;
  int32_t rounds;          /* verification rounds: target forwards that produced output */
  int32_t drafted, accepted; /* drafted tokens verified; of those accepted */
  int32_t rounds_cut;      /* rounds that ended with an accepted draft that ended the sequence: they have no token of the target's own.
                              output_tokens = 1 (the prompt's own) + accepted + rounds - rounds_cut */
  int32_t drafted_at[16], accepted_at[16]; /* by draft position: rounds that drafted so deep; of those accepted so deep */
  int32_t cached_tokens;   /* of the prompt, found in the prefix cache */
  int32_t preemptions;
  double prefill_s, decode_s;
};

EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_sequence_create(struct eaglet_sequence **sequence,
                                                                     struct eaglet_engine *engine,
                                                                     const struct eaglet_sequence_params *params,
                                                                     struct eaglet_error *err);
EAGLET_API void eaglet_sequence_free(struct eaglet_sequence *sequence);
EAGLET_API enum eaglet_stop eaglet_sequence_stop(const struct eaglet_sequence *sequence); /* NONE while live */
EAGLET_API void eaglet_sequence_cancel(struct eaglet_sequence *sequence);
/* Output so far; *tokens stays valid until the next step or free. A stop token, when produced, is the last entry. */
EAGLET_API int32_t eaglet_sequence_output(const struct eaglet_sequence *sequence, const int32_t **tokens);
EAGLET_API const struct eaglet_sequence_stats *eaglet_sequence_stats(const struct eaglet_sequence *sequence);
/* Origin of output token i: true when it was drafted and accepted, false when the target chose it. */
EAGLET_API bool eaglet_sequence_was_drafted(const struct eaglet_sequence *sequence, int32_t i);

/* The output's text so far, without what may still become a stop string, half a character, the stop string and special tokens; all of it
 * once the sequence has ended. NUL-terminated, valid until the next step or free; "" without a tokenizer. */
EAGLET_API const char *eaglet_sequence_text(struct eaglet_sequence *sequence, size_t *length);

/* Logprobs of output token i: its own, then the likeliest, by logprob. Returns how many, 0 without. */
EAGLET_API int32_t eaglet_sequence_logprobs(const struct eaglet_sequence *sequence, int32_t i,
                                            const struct eaglet_token_logprob **entries);
/* Same of prompt token i > 0, given those before it; 0 while it is not computed. */
EAGLET_API int32_t eaglet_sequence_prompt_logprobs(const struct eaglet_sequence *sequence, int32_t i,
                                                   const struct eaglet_token_logprob **entries);

/* What the engine did so far, and holds now. */
struct eaglet_engine_stats {
  int32_t n_waiting, n_running;
  int32_t kv_pages, kv_pages_free; /* of the target, 32 tokens each; free: not held by a running sequence */
  int64_t steps, preemptions;
  int64_t prompt_tokens, cached_tokens; /* of admitted prompts; of those found in the prefix cache */
  int64_t rounds, drafted, accepted;
  int64_t rounds_off;              /* rounds in which drafting was left out because it did not pay */
  const char *drafter;             /* "none", "head", "mtp", "model", "ngram" */
  char speculation[256];           /* what adaptive drafting does now, and why */
};
EAGLET_API void eaglet_engine_stats_get(const struct eaglet_engine *engine, struct eaglet_engine_stats *stats);

/* Advances every running sequence by one round (propose, verify, accept, commit) or one prefill chunk; admits those that wait while
 * there is room. *n_live gets the number still live, waiting ones included. After an error the engine is unchanged or poisoned; the message says which. */
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_step(struct eaglet_engine *engine, int32_t *n_live,
                                                          struct eaglet_error *err);

/* ---- constraints: what an output's text must be (docs/CONSTRAINTS.md) -------------------------------------------------- */

/* One of the four. Drafts respect it too: what is not allowed is never drafted. */
struct eaglet_constraint_params {
  struct eaglet_tokenizer *tokenizer; /* must outlive the constraint */
  const char *regex;       /* the whole text matches */
  const char *json_schema; /* JSON text of the schema: the text is a value that it accepts */
  bool json_object;        /* the text is a JSON object */
  const char *const *choices; /* [n_choices] the text is one of these */
  size_t n_choices;
  int32_t whitespace_max;  /* of JSON: 0: one space may follow ',' and ':'; N: up to N blanks wherever JSON allows them */
  int32_t nesting_max;     /* of recursive parts of JSON, default 64 */
};
/* For sequences of this engine. Immutable afterwards; what it does not understand it refuses by name. */
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_constraint_create(struct eaglet_constraint **constraint,
                                                                       const struct eaglet_engine *engine,
                                                                       const struct eaglet_constraint_params *params,
                                                                       struct eaglet_error *err);
EAGLET_API void eaglet_constraint_free(struct eaglet_constraint *constraint);

/* ---- text of a model ------------------------------------------------------------------------------------------------- */

/* Text of special tokens becomes their ids, or is ordinary text, or becomes their ids with BOS and EOS added as the checkpoint
 * does for a raw prompt. */
enum eaglet_special { EAGLET_SPECIAL_ALLOW, EAGLET_SPECIAL_AS_TEXT, EAGLET_SPECIAL_ADD };

/* struct eaglet_tokenizer: tokenizer, special tokens, chat template and stop ids of one checkpoint; threads may share it. */

EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_tokenizer_open(struct eaglet_tokenizer **tokenizer, const char *model,
                                                                    const char *hub_cache, struct eaglet_error *err);
EAGLET_API void eaglet_tokenizer_close(struct eaglet_tokenizer *tokenizer);
/* *ids is malloc'ed, freed by the caller with free(). text need not end in NUL; it must be valid UTF-8. */
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_tokenize(const struct eaglet_tokenizer *tokenizer, const char *text,
                                                              size_t length, enum eaglet_special special, int32_t **ids,
                                                              size_t *n_ids, struct eaglet_error *err);
/* Invalid UTF-8 decodes to U+FFFD; special tokens are spelled out. */
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_detokenize(const struct eaglet_tokenizer *tokenizer, const int32_t *ids,
                                                                size_t n_ids, struct eaglet_text *text,
                                                                struct eaglet_error *err);
/* Streaming decoder: emits only whole characters. finish() flushes what is left as U+FFFD. */
struct eaglet_detokenizer;
EAGLET_API struct eaglet_detokenizer *eaglet_detokenizer_create(const struct eaglet_tokenizer *tokenizer);
EAGLET_API void eaglet_detokenizer_free(struct eaglet_detokenizer *detokenizer);
/* Leave special tokens out of the text (default: they are shown). */
EAGLET_API void eaglet_detokenizer_skip_special(struct eaglet_detokenizer *detokenizer, bool skip);
/* What comes next continues the text of these ids (a prompt): the space that a text starts with is not dropped again, a character that
 * they leave unfinished is finished. Special tokens among them are no text. */
EAGLET_API void eaglet_detokenizer_follow(struct eaglet_detokenizer *detokenizer, const int32_t *ids, size_t n_ids);
/* Returns the new text (NUL-terminated, possibly empty), valid until the next call on this detokenizer. */
EAGLET_API const char *eaglet_detokenizer_push(struct eaglet_detokenizer *detokenizer, int32_t id);
EAGLET_API const char *eaglet_detokenizer_finish(struct eaglet_detokenizer *detokenizer);

enum eaglet_train_on { EAGLET_TRAIN_ON_BOTH = 1, EAGLET_TRAIN_ON_THINKING, EAGLET_TRAIN_ON_ANSWER }; /* of replies; 0: both */
struct eaglet_render_params {
  const char *messages_json;   /* JSON: array of messages, or one dataset row {"conversations"|"messages": [...]} */
  size_t length;
  bool add_generation_prompt;
  bool special_in_content;     /* recognise special-token text inside message content; default: it stays text */
  bool last_turn_only;
  enum eaglet_train_on train_on;
  size_t row;                  /* 0: the conversation as one row; k: the k-th row that prepare makes of it */
  const char *arguments_json;  /* JSON object: more variables for the template, {"enable_thinking": false}; NULL: none. One that the
                                  template never mentions is an error */
};
struct eaglet_rendered {
  struct eaglet_text text; /* by the checkpoint's own template */
  int32_t *ids;            /* [n_ids] */
  uint8_t *mask;           /* [n_ids] 1 = trained (the assistant's replies with their end-of-turn token) */
  size_t n_ids;
  size_t n_rows;           /* that prepare makes of it */
};
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_render(const struct eaglet_tokenizer *tokenizer,
                                                            const struct eaglet_render_params *params,
                                                            struct eaglet_rendered *rendered, struct eaglet_error *err);
EAGLET_API void eaglet_rendered_clear(struct eaglet_rendered *rendered);

/* ---- questions: each answers with one JSON document ------------------------------------------------------------------- */

struct eaglet_inspect_params {
  const char *model, *draft, *hub_cache;
  bool ignore_index;      /* read every *.safetensors file of the model, whatever its index says; default: exactly what the index names */
};
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_inspect(const struct eaglet_inspect_params *params,
                                                             struct eaglet_text *json, struct eaglet_error *err);

struct eaglet_verify_params {
  const char *model, *hub_cache;
  const char *reference; /* safetensors; NULL: prove the captures */
  enum eaglet_precision precision; /* default exact */
  double tolerance;      /* max_rel, default 2e-3 */
  int32_t threads;
  bool ignore_index;      /* read every *.safetensors file of the model, whatever its index says; default: exactly what the index names */
};
/* Returns EAGLET_E_CHECK (with *json filled) when a value is above tolerance. */
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_verify(const struct eaglet_verify_params *params, struct eaglet_text *json,
                                                            struct eaglet_error *err);

struct eaglet_check_pair_params {
  const char *model, *draft, *hub_cache;
  int32_t threads;
  bool ignore_index;      /* read every *.safetensors file of the model, whatever its index says; default: exactly what the index names */
};
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_check_pair(const struct eaglet_check_pair_params *params,
                                                                struct eaglet_text *json, struct eaglet_error *err);

/* Whose files a head is written as. */
enum eaglet_dialect { EAGLET_DIALECT_SPECULATORS, EAGLET_DIALECT_SGLANG, EAGLET_DIALECT_VLLM };
struct eaglet_convert_params {
  const char *model, *draft, *hub_cache;
  const char *out;        /* a new directory */
  enum eaglet_dialect to;
  int32_t threads;
  bool ignore_index;      /* of the model, as above */
};
/* The same weights under another project's names and config. What its loader would not read is refused by name; EAGLET_E_CHECK, with
 * nothing left at out, when the copy does not compute the same bits. */
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_convert(const struct eaglet_convert_params *params, struct eaglet_text *json,
                                                             struct eaglet_error *err);

/* ---- pipeline: each writes its artefacts atomically and reports one JSON document ------------------------------------ */

#define EAGLET_SOURCES_MAX 64

/* How replies are put into rows; 0: auto. A reply that the template writes differently once others follow (old thinking taken out, another
 * closing token) gets a row of its own, as the model saw it; or every conversation is one row. */
enum eaglet_rows { EAGLET_ROWS_AUTO = 1, EAGLET_ROWS_CONVERSATION };

struct eaglet_prepare_params {
  const char *model, *hub_cache, *out;
  const char *const *data; /* [n_data] files of conversations: JSON lines or a JSON array (src/data/dataset.h) */
  size_t n_data;
  int32_t tokens_max;      /* rows are cut to this many tokens, default 2048; a reply cut whole drops the row */
  double validation;       /* share of conversations kept for validation, default 0.05 */
  bool last_turn_only;     /* train only the last assistant turn */
  enum eaglet_train_on train_on;
  enum eaglet_rows rows;
  double trained_max;      /* share of trained tokens above which the mask is taken for wrong; 0: 0.95 */
  const char *const *keep_out; /* [n_keep_out] files of prompts: conversations that hold one of them are dropped */
  size_t n_keep_out;
  bool special_in_content;
  const char *arguments_json; /* variables for the template, as in struct eaglet_render_params */
  bool regenerate;         /* replace each assistant turn by the target's own answer */
  float temperature;       /* of the regeneration */
  int32_t reply_tokens_max; /* of the regeneration, default 256 */
  int32_t concurrency;     /* sequences at once, default 16 */
  uint64_t seed;
  int32_t threads;
  struct eaglet_progress progress;
  bool ignore_index;      /* read every *.safetensors file of the model, whatever its index says; default: exactly what the index names */
};
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_prepare(const struct eaglet_prepare_params *params,
                                                             struct eaglet_text *report, struct eaglet_error *err);

struct eaglet_vocab_params {
  const char *data; /* directory written by prepare */
  const char *out;  /* safetensors file */
  int32_t size;     /* draft vocabulary; 0 = the target's whole vocabulary */
};
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_vocab(const struct eaglet_vocab_params *params, struct eaglet_text *report,
                                                           struct eaglet_error *err);

struct eaglet_extract_params {
  const char *model, *hub_cache, *data, *out;
  const char *states; /* "auto" (default) or "2,4,5": numbers of ARCHITECTURE decision 4 */
  bool float32;       /* store F32, default BF16 */
  bool dry_run;       /* announce the disk need and stop */
  bool replace;       /* discard features of other settings in out */
  int32_t memory_mib; /* states of one shard held at a time, default 256; a row at least */
  int32_t threads;
  struct eaglet_progress progress;
  bool ignore_index;      /* read every *.safetensors file of the model, whatever its index says; default: exactly what the index names */
};
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_extract(const struct eaglet_extract_params *params,
                                                             struct eaglet_text *report, struct eaglet_error *err);

struct eaglet_train_params {
  const char *model, *hub_cache, *data, *out;
  const char *features;   /* directory written by extract; NULL: the target runs live */
  const char *vocab;      /* file written by vocab; NULL: the whole vocabulary */
  bool vocab_of_other_data; /* take a vocabulary that was made from other data (same tokenizer) */
  const char *init;       /* warm start from an existing head, named as model is (keeps its d2t and its layout) */
  const char *head_config; /* config.json of the head to make, in any dialect that is read; NULL: the standard head */
  const char *states;     /* as extract */
  bool resume;            /* continue from out's saved state */
  int32_t steps;          /* optimizer steps; 0: epochs decides */
  int32_t epochs;         /* default 1 */
  int32_t batch;          /* conversations per step, default 64 */
  int32_t micro_tokens;   /* token slots per forward/backward, default 4096 */
  int32_t unroll;         /* unrolled draft steps (training-time test), default 7 */
  bool recompute;         /* keep the activations of one unrolled step and compute the others again: less memory, the same bits */
  double decay;           /* weight of step k is decay^k, default 0.8 */
  double lr;              /* default 1e-3 for small heads; peers use 5e-5..1e-4 at 8B and above */
  int32_t warmup;         /* steps, default 50 */
  double beta1, beta2, weight_decay, clip; /* defaults 0.9 0.95 0 0.5 */
  int32_t heads, kv_heads, head_dim, intermediate; /* of the head; defaults from the target */
  double rope_theta;      /* default 10000, or that of init or head_config */
  uint64_t seed;
  int32_t eval_every;     /* steps between evaluations with the real speculative engine, default 0 = at the end only */
  const char *eval_prompts; /* JSONL; NULL: no acceptance evaluation */
  int32_t eval_prompts_max; /* default 60 */
  int32_t save_every;     /* steps between saved states, default 100 */
  int32_t stop_after;     /* stop (state saved) after this many steps of this run; 0 = none */
  int32_t threads;
  struct eaglet_progress progress;
  bool ignore_index;      /* read every *.safetensors file of the model, whatever its index says; default: exactly what the index names */
};
/* Writes out/{config.json,model.safetensors} (the head), out/state (resume), out/metrics.jsonl, out/run.ini. */
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_train(const struct eaglet_train_params *params, struct eaglet_text *report,
                                                           struct eaglet_error *err);

struct eaglet_eval_params {
  const char *model, *draft, *hub_cache;
  const char *const *prompts; /* [n_prompts] JSONL files */
  size_t n_prompts;
  int32_t prompts_max;     /* per source, 0 = all */
  int32_t tokens_max;      /* per prompt, default 96 */
  enum eaglet_drafter drafter;
  int32_t draft_len;       /* default 7 */
  int32_t draft_width, draft_tokens; /* as in the engine's parameters */
  float temperature;
  uint64_t seed;
  int32_t concurrency;     /* default 1 */
  int32_t repeats;         /* runs of every prompt in each arm, default 1: the fastest counts, so that a busy machine disturbs less */
  bool no_plain;           /* only draft in every round: acceptance, no speed, no identity */
  bool no_adaptive;        /* skip adaptive drafting: speed is that of drafting in every round */
  enum eaglet_precision precision;
  int32_t threads;
  struct eaglet_progress progress;
  bool ignore_index;      /* read every *.safetensors file of the model, whatever its index says; default: exactly what the index names */
};
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_eval(const struct eaglet_eval_params *params, struct eaglet_text *json,
                                                          struct eaglet_error *err);

/* Turns JSON results into a self-contained HTML page (no network): eval reports with tables, training curves of
 * metrics.jsonl lines. Either may be NULL. */
struct eaglet_report_params {
  const char *title;
  const char *eval_json;
  const char *metrics_jsonl;
  const char *prepare_json;
};
EAGLET_API EAGLET_MUST_USE enum eaglet_status eaglet_report_html(const struct eaglet_report_params *params,
                                                                 struct eaglet_text *html, struct eaglet_error *err);

#ifdef __cplusplus
}
#endif
#endif
