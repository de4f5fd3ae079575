/* constraint_trie_internal.h - the trie as the matcher walks it. Private to the constraint files. */
#ifndef EAGLET_TEXT_CONSTRAINT_TRIE_INTERNAL_H
#define EAGLET_TEXT_CONSTRAINT_TRIE_INTERNAL_H

#include "text/constraint_vocabulary.h"

struct vocabulary_node {
  uint32_t skip;  /* index of the next node that is no descendant */
  int32_t token;  /* an id that ends here; none: the bit behind a mask's words */
  uint16_t depth; /* bytes down to here: 1 for the first byte */
  uint8_t byte;
  bool twins;     /* more ids have the same bytes: constraint_vocabulary's next_twin */
};

struct constraint_vocabulary {
  int32_t n_vocab;
  struct vocabulary_node *nodes;
  size_t n_nodes, nodes_capacity;
  size_t depth_max;
  char *blob;
  uint32_t *at;       /* [n_vocab + 1] bytes of each id */
  int32_t *next_twin; /* [n_vocab] another id with the same bytes, -1 */
  struct token_list stops; /* sorted */
  bool spells[256];   /* the byte is a token of its own */
};

#endif
