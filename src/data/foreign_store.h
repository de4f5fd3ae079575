/* foreign_store.h - a directory of samples that another program wrote, as features by training row and as token data.
 *
 * Files: hs_*.safetensors, *.pt, *.ckpt, *.ckpt.gz in the directory, in its hidden_states/ or in its rows_*; in the order of the numbers in
 * their names. A row of the token data and a sample belong together when their ids are the same; so a store may cover a part of the rows,
 * or be of more. Of samples with the same ids the first counts. A sample is opened when it is needed and closed again.
 */
#ifndef EAGLET_DATA_FOREIGN_STORE_H
#define EAGLET_DATA_FOREIGN_STORE_H

#include "data/feature_store.h"

bool foreign_store_is(const char *directory); /* holds samples and no manifest of ours */
/* Opens every sample once, for its ids and shapes. The states have no names yet. */
enum eaglet_status foreign_store_open(struct feature_store **store, const char *directory, const struct token_store *tokens,
                                      struct eaglet_error *err) MUST_USE;
/* Rows of the samples themselves: ids and masks in memory, nothing on disk. need_mask: a store without loss masks is refused; otherwise
 * they are zeros. */
enum eaglet_status foreign_tokens_open(struct token_store *tokens, const char *directory, bool need_mask, struct eaglet_error *err) MUST_USE;

/* Paths of all samples. */
enum eaglet_status foreign_files_list(struct file_list *paths, const char *directory, struct eaglet_error *err) MUST_USE;

#endif
