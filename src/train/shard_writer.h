/* shard_writer.h - writes blocks of features on a thread of its own, while the next block is being captured: one block at a time, so that
 * two buffers are all there is. It touches no device and no model. Used by one thread.
 */
#ifndef EAGLET_TRAIN_SHARD_WRITER_H
#define EAGLET_TRAIN_SHARD_WRITER_H

#include "data/feature_sink.h"

struct shard_writer;
struct shard_job {
  struct feature_block block;
  const int32_t *states; /* [n_taps] numbers of what stands in a position, for messages */
  int32_t n_taps;
  const char *data;      /* the token data, for messages */
};
enum eaglet_status shard_writer_create(struct shard_writer **writer, const struct feature_sink *sink, struct eaglet_error *err) MUST_USE;
/* Waits until the job before is done, and takes this one; everything it points to stays as it is until the next call returns. Numbers
 * that are not finite, and states of zeros, are refused. A failure is told by the call after it; nothing is written any more. */
enum eaglet_status shard_writer_put(struct shard_writer *writer, const struct shard_job *job, struct eaglet_error *err) MUST_USE;
enum eaglet_status shard_writer_wait(struct shard_writer *writer, struct eaglet_error *err) MUST_USE;
size_t shard_writer_done(struct shard_writer *writer); /* blocks that are on disk */
void shard_writer_free(struct shard_writer *writer);   /* waits */

#endif
