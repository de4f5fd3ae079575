/* recipe.c - see recipe.h. */
#include "train/recipe.h"

#include "train/settings.h"

#include <stdio.h>
#include <string.h>

#define VALUES_MAX 4

struct choice {
  const char *name;
  int value;
  const char *values[VALUES_MAX]; /* of 1, 2, ...; the rest NULL */
};
#define CHOICES 7

static void choices_of(struct choice choices[CHOICES], const struct eaglet_train_params *s) {
  const struct choice all[CHOICES] = {
      {"loss", (int)s->loss, {"kl", "ce", "lk-alpha", "lk-lambda"}},
      {"outside", (int)s->outside, {"drop", "residual", "renormalise"}},
      {"teacher", (int)s->teacher, {"soft", "argmax", "data"}},
      {"mask-rule", (int)s->mask_rule, {"ours", "eagle", "specforge", "speculators"}},
      {"optimizer", (int)s->optimizer, {"adamw", "muon"}},
      {"schedule", (int)s->schedule, {"cosine", "wsd", "constant"}},
      {"lm-head", (int)s->lm_head, {"from-target", "random", "frozen"}},
  };
  memcpy(choices, all, sizeof all);
}

struct number {
  const char *name;
  double value, least, most;
};
#define NUMBERS 8

static void numbers_of(struct number numbers[NUMBERS], const struct eaglet_train_params *s) {
  const struct number all[NUMBERS] = {
      {"kl-scale", s->kl_scale, 0, 1},        {"kl-decay", s->kl_decay, 0, 1e3},
      {"muon-lr", s->muon_lr, 0, 1e3},        {"muon-momentum", s->muon_momentum, 0, 0.999999},
      {"min-lr", s->lr_min, 0, s->lr},        {"decay-share", s->decay_share, 0, 1},
      {"ema", s->ema, 0, 0.9999999},          {"noise", s->noise, 0, 1e3},
  };
  memcpy(numbers, all, sizeof all);
}

static enum eaglet_status check_values(const struct eaglet_train_params *s, struct eaglet_error *err) {
  struct choice choices[CHOICES];
  struct number numbers[NUMBERS];
  choices_of(choices, s);
  numbers_of(numbers, s);
  for (int i = 0; i < CHOICES; i++) {
    if (choices[i].value < 1 || choices[i].value > VALUES_MAX || !choices[i].values[choices[i].value - 1])
      FAIL(err, EAGLET_E_USAGE, "--%s: expected one of its values, found number %d", choices[i].name, choices[i].value);
  }
  for (int i = 0; i < NUMBERS; i++) {
    if (!(numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most))
      FAIL(err, EAGLET_E_USAGE, "--%s: expected %g..%g, found %g", numbers[i].name, numbers[i].least, numbers[i].most, numbers[i].value);
  }
  return EAGLET_OK;
}

/* A choice that would change nothing, or that another one contradicts, is a mistake. */
static enum eaglet_status check_pairs(const struct eaglet_train_params *s, struct eaglet_error *err) {
  bool hard = s->teacher != EAGLET_TEACHER_SOFT;
  if (s->loss == EAGLET_LOSS_CE && !hard) FAIL(err, EAGLET_E_USAGE, "--loss ce: expected --teacher argmax or data, found soft: that is --loss kl");
  if (s->loss != EAGLET_LOSS_CE && hard)
    FAIL(err, EAGLET_E_USAGE, "--teacher argmax and data: a certain target is learnt with --loss ce, found another loss");
  if (s->teacher == EAGLET_TEACHER_DATA && s->outside == EAGLET_OUTSIDE_RENORMALISE)
    FAIL(err, EAGLET_E_USAGE, "--outside renormalise: --teacher data has no distribution to renormalise");
  if (s->init && s->lm_head == EAGLET_LM_HEAD_RANDOM) FAIL(err, EAGLET_E_USAGE, "--lm-head random: the head of --init has one, which is kept");
  return EAGLET_OK;
}

enum eaglet_status recipe_resolve(struct eaglet_train_params *s, struct eaglet_error *err) {
  if (!s->loss) s->loss = EAGLET_LOSS_KL;
  if (!s->outside) s->outside = EAGLET_OUTSIDE_DROP;
  if (!s->teacher) s->teacher = s->loss == EAGLET_LOSS_CE ? EAGLET_TEACHER_ARGMAX : EAGLET_TEACHER_SOFT;
  if (!s->mask_rule) s->mask_rule = EAGLET_MASK_OURS;
  if (!s->optimizer) s->optimizer = EAGLET_OPTIMIZER_ADAMW;
  if (!s->schedule) s->schedule = EAGLET_SCHEDULE_COSINE;
  if (!s->lm_head) s->lm_head = EAGLET_LM_HEAD_FROM_TARGET;
  settings_default(&s->kl_scale, 1);
  settings_default(&s->kl_decay, 3);
  settings_default(&s->muon_lr, s->lr);
  settings_default(&s->muon_momentum, 0.95);
  settings_default(&s->decay_share, 0.2);
  TRY(check_values(s, err));
  return check_pairs(s, err);
}

void recipe_identity(json_t *identity, const struct eaglet_train_params *s) {
  struct choice choices[CHOICES];
  struct number numbers[NUMBERS];
  char name[32];
  choices_of(choices, s);
  numbers_of(numbers, s);
  for (int i = 0; i < CHOICES; i++) {
    snprintf(name, sizeof name, "--%s", choices[i].name);
    json_object_set_new(identity, name, json_string(choices[i].values[choices[i].value - 1]));
  }
  for (int i = 0; i < NUMBERS; i++) {
    snprintf(name, sizeof name, "--%s", numbers[i].name);
    json_object_set_new(identity, name, json_real(numbers[i].value));
  }
}

/* Numbers that are 0 mean "off" and stand as comments: the options begin above 0. */
void recipe_write(struct buffer *out, const struct eaglet_train_params *s) {
  struct choice choices[CHOICES];
  struct number numbers[NUMBERS];
  choices_of(choices, s);
  numbers_of(numbers, s);
  for (int i = 0; i < CHOICES; i++) buffer_format(out, "%s = %s\n", choices[i].name, choices[i].values[choices[i].value - 1]);
  for (int i = 0; i < NUMBERS; i++)
    buffer_format(out, numbers[i].value > 0 ? "%s = %.17g\n" : "# %s = %g (off)\n", numbers[i].name, numbers[i].value);
}
