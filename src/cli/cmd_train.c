/* cmd_train.c - `eaglet train`. */
#include "cli/cli.h"

#include <stdio.h>

static void print_trained(const json_t *document) {
  printf("%.0f steps, loss %.4f, %.0f tok/s, %.1f GFLOP/s\n", cli_number(document, "steps"), cli_number(document, "loss"), cli_number(document, "tok_s"),
         cli_number(document, "gflop_s"));
}

int cmd_train(struct cli *cli, int argc, char **argv) {
  struct eaglet_train_params params = {.hub_cache = cli->env.hub_cache};
  const struct option own[] = {
      {.kind = OPTION_STRING, .name = "data", .value = &params.data, .argument = "DIR", .help = "directory written by prepare", .required = true},
      {.kind = OPTION_STRING, .name = "out", .letter = 'o', .value = &params.out, .argument = "DIR", .help = "head, metrics and state go here", .required = true},
      {.kind = OPTION_STRING, .name = "features", .value = &params.features, .argument = "DIR", .help = "directory written by extract (default: the target runs live)"},
      {.kind = OPTION_STRING, .name = "vocab", .value = &params.vocab, .argument = "FILE", .help = "draft vocabulary written by vocab (default: the whole vocabulary)"},
      {.kind = OPTION_FLAG, .name = "vocab-of-other-data", .value = &params.vocab_of_other_data, .help = "take a --vocab that was made from other data than --data"},
      {.kind = OPTION_STRING, .name = "init", .value = &params.init, .argument = "DIR", .help = "start from this head; keeps its d2t and its layout"},
      {.kind = OPTION_STRING, .name = "head-config", .value = &params.head_config, .argument = "FILE", .help = "layout of the head: a head's config.json (default: the standard head)"},
      {.kind = OPTION_STRING, .name = "states", .value = &params.states, .argument = "auto|2,30,58", .help = "states that feed the head (default auto)"},
      {.kind = OPTION_FLAG, .name = "resume", .value = &params.resume, .help = "continue from the state saved in DIR"},
      {.kind = OPTION_INT, .name = "steps", .value = &params.steps, .argument = "N", .help = "optimizer steps (default: from --epochs)", .min = 1, .max = 1e9},
      {.kind = OPTION_INT, .name = "epochs", .value = &params.epochs, .argument = "N", .help = "passes over the data (default 1)", .min = 1, .max = 1e6},
      {.kind = OPTION_INT, .name = "batch", .value = &params.batch, .argument = "N", .help = "conversations per step (default 64)", .min = 1, .max = 1e6},
      {.kind = OPTION_INT, .name = "micro-tokens", .value = &params.micro_tokens, .argument = "N", .help = "token slots per forward and backward (default 4096)", .min = 64, .max = 1 << 22},
      {.kind = OPTION_INT, .name = "unroll", .value = &params.unroll, .argument = "N", .help = "unrolled draft steps (default 7)", .min = 1, .max = 15},
      {.kind = OPTION_FLAG, .name = "recompute", .value = &params.recompute, .help = "less memory for activations, a forward more, the same bits"},
      {.kind = OPTION_DOUBLE, .name = "decay", .value = &params.decay, .argument = "X", .help = "step k weighs X^k (default 0.8)", .min = 0.01, .max = 1},
      {.kind = OPTION_DOUBLE, .name = "lr", .value = &params.lr, .argument = "X", .help = "peak learning rate (default 1e-3)", .min = 1e-9, .max = 1},
      {.kind = OPTION_INT, .name = "warmup", .value = &params.warmup, .argument = "N", .help = "warm-up steps (default 50)", .min = 1, .max = 1e9},
      {.kind = OPTION_DOUBLE, .name = "beta1", .value = &params.beta1, .argument = "X", .help = "AdamW (default 0.9)", .min = 0.01, .max = 0.9999},
      {.kind = OPTION_DOUBLE, .name = "beta2", .value = &params.beta2, .argument = "X", .help = "AdamW (default 0.95)", .min = 0.01, .max = 0.99999},
      {.kind = OPTION_DOUBLE, .name = "weight-decay", .value = &params.weight_decay, .argument = "X", .help = "AdamW (default 0)", .min = 0, .max = 10},
      {.kind = OPTION_DOUBLE, .name = "clip", .value = &params.clip, .argument = "X", .help = "global gradient norm (default 0.5)", .min = 1e-6, .max = 1e6},
      {.kind = OPTION_INT, .name = "heads", .value = &params.heads, .argument = "N", .help = "attention heads of the head (default: the target's)", .min = 1, .max = 1024},
      {.kind = OPTION_INT, .name = "kv-heads", .value = &params.kv_heads, .argument = "N", .help = "its key/value heads", .min = 1, .max = 1024},
      {.kind = OPTION_INT, .name = "head-dim", .value = &params.head_dim, .argument = "N", .help = "its head dimension", .min = 2, .max = 1024},
      {.kind = OPTION_INT, .name = "intermediate", .value = &params.intermediate, .argument = "N", .help = "its FFN width", .min = 1, .max = 1 << 20},
      {.kind = OPTION_DOUBLE, .name = "rope-theta", .value = &params.rope_theta, .argument = "X", .help = "rotary base (default 10000)", .min = 1, .max = 1e12},
      {.kind = OPTION_UINT64, .name = "seed", .value = &params.seed, .argument = "S", .help = "of initialisation and order (default 0)"},
      {.kind = OPTION_STRING, .name = "eval-prompts", .value = &params.eval_prompts, .argument = "FILE", .help = "JSONL; acceptance is measured on it by the real engine"},
      {.kind = OPTION_INT, .name = "eval-every", .value = &params.eval_every, .argument = "N", .help = "steps between evaluations (default: only at the end)", .min = 1, .max = 1e9},
      {.kind = OPTION_INT, .name = "eval-max", .value = &params.eval_prompts_max, .argument = "N", .help = "prompts per source of an evaluation (default 60)", .min = 1, .max = 1e9},
      {.kind = OPTION_INT, .name = "save-every", .value = &params.save_every, .argument = "N", .help = "steps between saved states (default 100)", .min = 1, .max = 1e9},
      {.kind = OPTION_INT, .name = "stop-after", .value = &params.stop_after, .argument = "N", .help = "save and stop after N steps of this run; continue with --resume", .min = 1, .max = 1e9},
      OPTION_END,
  };
  const struct option *tables[] = {own, cli->common, NULL};
  const struct options_spec spec = {
      .command = "train", .usage = "MODEL --data DIR --out DIR [--features DIR] [--vocab FILE] [--resume]", .summary = "train an EAGLE-3 head",
      .description = "The head is trained as it will be used: unrolled over its own features (training-time test). DIR receives the head in the\n"
                     "layout SGLang and vLLM load, metrics.jsonl, run.ini with every resolved setting, and the state that --resume continues\n"
                     "to the bit. Ctrl-C saves. --config FILE reads the same options from an ini file.\n"
                     "\n  eaglet train models/nano-kimi --data run/data --vocab run/vocab.safetensors --out run/head --epochs 3\n",
      .tables = tables, .n_positional_min = 1, .n_positional_max = 1};
  struct options_result result = {0};
  int code = cli_parse(cli, &spec, argc, argv, &result);
  if (code != CLI_GO) return code;
  params.model = result.positional[0];
  params.ignore_index = cli->ignore_index;
  params.threads = cli->threads;
  params.progress = progress_callbacks(&cli->progress);
  struct eaglet_text report = {0};
  struct eaglet_error err = {0};
  enum eaglet_status status = eaglet_train(&params, &report, &err);
  return cli_finish_json(cli, status, &err, &report, print_trained);
}
