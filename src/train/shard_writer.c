/* shard_writer.c - see shard_writer.h. Owns the thread; the one job there is belongs to the side that `busy` says. */
#include "train/shard_writer.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>

struct shard_writer {
  const struct feature_sink *sink;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct shard_job job;
  bool busy, stop; /* the thread has a job; no more come */
  size_t n_done;
  struct eaglet_error error; /* of the first job that failed */
};

static enum eaglet_status run_job(const struct shard_writer *w, struct eaglet_error *err) {
  const struct shard_job *job = &w->job;
  const struct feature_shard *shard = &job->block.shard;
  for (size_t r = 0; r < shard->n_rows; r++) {
    struct feature_fault fault = {0};
    const struct feature_numbers numbers = {.values = shard->states[r], .states = job->states, .n_tokens = shard->rows[r].n,
                                            .n_slots = job->n_taps, .hidden = shard->layout->hidden};
    if (feature_fault_find(&fault, &numbers)) return feature_fault_fail(&fault, job->data, job->block.first_row + r, err);
  }
  return w->sink->write(&job->block, err);
}

static void *run(void *context) {
  struct shard_writer *w = context;
  pthread_mutex_lock(&w->lock);
  for (;;) {
    while (!w->busy && !w->stop) pthread_cond_wait(&w->changed, &w->lock);
    if (!w->busy) break;
    struct eaglet_error error = {0};
    bool failed = w->error.status != EAGLET_OK;
    pthread_mutex_unlock(&w->lock);
    enum eaglet_status status = failed ? EAGLET_OK : run_job(w, &error);
    pthread_mutex_lock(&w->lock);
    if (status != EAGLET_OK) w->error = error;
    else if (!failed) w->n_done++;
    w->busy = false;
    pthread_cond_signal(&w->changed);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

enum eaglet_status shard_writer_create(struct shard_writer **writer, const struct feature_sink *sink, struct eaglet_error *err) {
  struct shard_writer *w = memory_alloc(sizeof *w);
  *writer = NULL;
  w->sink = sink;
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->changed, NULL);
  if (pthread_create(&w->thread, NULL, run, w) != 0) {
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    FAIL(err, EAGLET_E_RESOURCE, "cannot start a thread to write with");
  }
  *writer = w;
  return EAGLET_OK;
}

/* The lock is held, the thread idle. */
static enum eaglet_status wait_idle(struct shard_writer *w, struct eaglet_error *err) {
  while (w->busy) pthread_cond_wait(&w->changed, &w->lock);
  if (w->error.status != EAGLET_OK && err) *err = w->error;
  return w->error.status;
}

enum eaglet_status shard_writer_put(struct shard_writer *w, const struct shard_job *job, struct eaglet_error *err) {
  pthread_mutex_lock(&w->lock);
  enum eaglet_status status = wait_idle(w, err);
  if (status == EAGLET_OK) {
    w->job = *job;
    w->busy = true;
    pthread_cond_signal(&w->changed);
  }
  pthread_mutex_unlock(&w->lock);
  return status;
}

enum eaglet_status shard_writer_wait(struct shard_writer *w, struct eaglet_error *err) {
  pthread_mutex_lock(&w->lock);
  enum eaglet_status status = wait_idle(w, err);
  pthread_mutex_unlock(&w->lock);
  return status;
}

size_t shard_writer_done(struct shard_writer *w) {
  pthread_mutex_lock(&w->lock);
  size_t n = w->n_done;
  pthread_mutex_unlock(&w->lock);
  return n;
}

void shard_writer_free(struct shard_writer *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->stop = true;
  pthread_cond_signal(&w->changed);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  free(w);
}
