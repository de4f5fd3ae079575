/* language.c - see language.h. The table lists the blocks of the scripts in use; a letter outside is "other". */
#include "train/language.h"

#include "base/buffer.h"
#include "train/intake.h"

#include <string.h>

enum script { LATIN, GREEK, CYRILLIC, HEBREW, ARABIC, INDIC, THAI, KANA, KOREAN, CHINESE, GEORGIAN, ARMENIAN, ETHIOPIC, OTHER, N_SCRIPTS };

static const char *const names[N_SCRIPTS] = {"Latin", "Greek",   "Cyrillic", "Hebrew",   "Arabic",   "Indic",    "Thai",
                                             "Japanese", "Korean", "Chinese", "Georgian", "Armenian", "Ethiopic", "other"};

static const struct {
  uint32_t first, last;
  enum script script;
} blocks[] = {{'A', 'Z', LATIN},          {'a', 'z', LATIN},          {0xc0, 0x24f, LATIN},       {0x370, 0x3ff, GREEK},
              {0x400, 0x52f, CYRILLIC},   {0x531, 0x58f, ARMENIAN},   {0x5d0, 0x5ff, HEBREW},     {0x600, 0x6ff, ARABIC},
              {0x750, 0x77f, ARABIC},     {0x900, 0xdff, INDIC},      {0xe00, 0xe7f, THAI},       {0xe80, 0x109f, OTHER},
              {0x10a0, 0x10ff, GEORGIAN}, {0x1100, 0x11ff, KOREAN},   {0x1200, 0x139f, ETHIOPIC}, {0x13a0, 0x1dff, OTHER},
              {0x1e00, 0x1eff, LATIN},    {0x1f00, 0x1fff, GREEK},    {0x3040, 0x30ff, KANA},     {0x3130, 0x318f, KOREAN},
              {0x3400, 0x9fff, CHINESE},  {0xa000, 0xabff, OTHER},    {0xac00, 0xd7af, KOREAN},   {0xf900, 0xfaff, CHINESE},
              {0xfb1d, 0xfb4f, HEBREW},   {0xfb50, 0xfdff, ARABIC},   {0xfe70, 0xfeff, ARABIC},   {0x20000, 0x3ffff, CHINESE}};

static void count_letters(uint64_t counts[N_SCRIPTS], const char *text, size_t length) {
  uint32_t c;
  for (size_t at = 0, n; at < length && (n = (size_t)utf8_decode(text + at, length - at, &c)) > 0; at += n) {
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks && c >= blocks[i].first; i++) {
      if (c > blocks[i].last || c == 0xd7 || c == 0xf7) continue;
      counts[blocks[i].script] += blocks[i].script == CHINESE || blocks[i].script == KANA || blocks[i].script == KOREAN ? 3 : 1; /* as bytes: a character says more than a letter */
      break;
    }
  }
}

static const char *most(uint64_t counts[N_SCRIPTS]) {
  enum script best = N_SCRIPTS;
  if (10 * counts[KANA] > counts[CHINESE]) {
    counts[KANA] += counts[CHINESE];
    counts[CHINESE] = 0;
  }
  for (int i = 0; i < N_SCRIPTS; i++) {
    if (counts[i] > 0 && (best == N_SCRIPTS || counts[i] > counts[best])) best = (enum script)i;
  }
  return best == N_SCRIPTS ? "none" : names[best];
}

const char *language_of(const char *text, size_t length) {
  uint64_t counts[N_SCRIPTS] = {0};
  count_letters(counts, text, length < LANGUAGE_BYTES ? length : LANGUAGE_BYTES);
  return most(counts);
}

/* Counts at most LANGUAGE_BYTES, over messages of the role (NULL: all). */
static size_t count_messages(uint64_t counts[N_SCRIPTS], const json_t *messages, const char *role) {
  size_t total = 0;
  for (size_t i = 0; i < json_array_size(messages) && total < LANGUAGE_BYTES; i++) {
    const json_t *content = json_object_get(json_array_get(messages, i), "content");
    size_t n = json_string_length(content), room = LANGUAGE_BYTES - total;
    if (!json_is_string(content) || (role && strcmp(message_role(messages, i), role) != 0)) continue;
    n = n < room ? n : room;
    count_letters(counts, json_string_value(content), n);
    total += n;
  }
  return total;
}

const char *language_of_messages(const json_t *messages) {
  uint64_t counts[N_SCRIPTS] = {0};
  if (count_messages(counts, messages, "assistant") == 0) count_messages(counts, messages, NULL);
  return most(counts);
}
