/* main.c - the command table. Does nothing itself: reads the environment once, finds the command, runs it. */
#include "cli/cli.h"

#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct cli_entry cli_commands[] = {
    {"inspect", cmd_inspect, "what a checkpoint is: wrappers, features, layers, quantisation, tokenizer, pairing"},
    {"verify", cmd_verify, "prove that hidden states are captured right, or compare with a reference"},
    {"tokenize", cmd_tokenize, "text to token ids"},
    {"render", cmd_render, "a conversation through the model's own template, with the trained part marked"},
    {"prepare", cmd_prepare, "conversations to token shards with an exact loss mask"},
    {"vocab", cmd_vocab, "choose the draft vocabulary"},
    {"extract", cmd_extract, "hidden states to disk, resumable"},
    {"train", cmd_train, "train an EAGLE-3 head"},
    {"eval", cmd_eval, "acceptance length, identity and speed with and without the head"},
    {"generate", cmd_generate, "text from a prompt, speculatively when a head is given"},
    {"check-pair", cmd_check_pair, "does this head fit this target? names the first mismatch"},
    {"convert", cmd_convert, "a head's files in another project's dialect, the same bits"},
    {"report", cmd_report, "an HTML page from eval and training results"},
    {"help", cmd_help, "help on a command; --man and --completion for packagers"},
    {NULL, NULL, NULL},
};

static void print_overview(FILE *to) {
  fputs("usage: eaglet COMMAND [ARGS]\n\n"
        "From a Hugging Face checkpoint to a trained EAGLE-3 draft head, and speculative decoding with it.\n\n",
        to);
  for (const struct cli_entry *e = cli_commands; e->name; e++) fprintf(to, "  %-11s %s\n", e->name, e->summary);
  fputs("\n`eaglet COMMAND --help` explains a command. Exit codes: 0 done, 1 internal, 2 usage, 3 bad input,\n"
        "4 memory or disk, 5 network, 6 a check failed, 130/143 stopped by a signal with its state saved.\n",
        to);
}

static void common_options(struct cli *cli) {
  const struct option table[] = {
      {.kind = OPTION_INT, .name = "threads", .value = &cli->threads, .argument = "N", .help = "CPU threads (default: all available cores)", .min = 1, .max = 4096, .heading = "common options"},
      {.kind = OPTION_STRING, .name = "device", .value = &cli->device, .argument = "cpu", .help = "where to compute (default: cpu)"},
      {.kind = OPTION_CHOICE, .name = "precision", .value = &cli->precision, .argument = "exact|fast", .help = "exact: F32 activations; fast: the quickest arithmetic for the stored weights (default: exact for verify, extract and train, fast elsewhere)"},
      {.kind = OPTION_FLAG, .name = "ignore-index", .value = &cli->ignore_index, .help = "read every *.safetensors file of the model, whatever its index says"},
      {.kind = OPTION_STRING, .name = "config", .value = &cli->config, .argument = "FILE", .help = "read options from an ini file; the command line wins"},
      {.kind = OPTION_FLAG, .name = "json", .value = &cli->json, .help = "print one JSON document on standard output"},
      {.kind = OPTION_FLAG, .name = "quiet", .letter = 'q', .value = &cli->quiet, .help = "no progress on standard error"},
      OPTION_END,
  };
  memcpy(cli->common, table, sizeof table);
}

int main(int argc, char **argv) {
  env_shorten_spin(argv);
  if (argc < 2) {
    print_overview(stderr);
    return EAGLET_E_USAGE;
  }
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
    print_overview(stdout);
    return 0;
  }
  if (!strcmp(argv[1], "--version")) {
    puts("eaglet " EAGLET_VERSION);
    return 0;
  }
  for (const struct cli_entry *e = cli_commands; e->name; e++) {
    if (strcmp(e->name, argv[1]) != 0) continue;
    struct cli cli = {.device = "cpu"};
    env_read(&cli.env);
    common_options(&cli);
    int code = e->run(&cli, argc - 1, argv + 1);
    options_release(&cli.parsed);
    env_clear(&cli.env);
    return code;
  }
  fprintf(stderr, "eaglet: '%s' is not a command; `eaglet --help` lists them\n", argv[1]);
  return EAGLET_E_USAGE;
}
