/* language.h - which language group a text belongs to, by the script of its letters: enough to see that a draft vocabulary or a data set
 * leaves one out. Languages of one script are not told apart. */
#ifndef EAGLET_TRAIN_LANGUAGE_H
#define EAGLET_TRAIN_LANGUAGE_H

#include "base/json.h"

/* A static name: "Latin", "Chinese", "Japanese", "Korean", "Cyrillic", "Arabic" ... of the script that most letters have ("other" when it is
 * none of the table's, "none" without letters). Kana make Chinese characters Japanese. The first LANGUAGE_BYTES of the text decide. */
#define LANGUAGE_BYTES 4096
const char *language_of(const char *text, size_t length);
/* Of what the assistant says in the conversation; of all messages when it says nothing. */
const char *language_of_messages(const json_t *messages);

#endif
