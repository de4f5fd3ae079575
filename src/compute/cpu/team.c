/* team.c - threads that share jobs; see team.h.
 *
 * `turn` is the whole protocol: the job's number, the next part and how many there are, in one word that changes by
 * compare-and-swap. A helper reads the turn, reads the job, and swaps: success means that the turn did not change, so
 * the job it read belongs to it, because the owner writes a new job only when every part of the old one is done. */
#include "compute/cpu/team.h"

#include "base/memory.h"
#include "base/util.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SPIN_SECONDS 50e-6
#define SPINS 64 /* between two looks at the clock */

#define PART_BITS 16
#define PART_MASK 0xffffu

struct helper {
  struct team *team;
  int index;
  pthread_t thread;
};

struct team {
  int n_threads, n_helpers; /* n_helpers: started */
  bool started;             /* or tried to */
  struct helper *helpers;   /* [n_threads - 1] */
  pthread_mutex_t lock;
  pthread_cond_t wake;
  /* What spinning threads look at, away from the rest: the turn and the job share a line, what ends it has its own. */
  _Alignas(64) _Atomic uint64_t turn; /* number << 32 | next part << 16 | parts */
  _Atomic(team_body *) body;
  _Atomic(const void *) args;
  _Atomic int64_t n;
  _Atomic bool closing;
  _Alignas(64) _Atomic int32_t pending; /* parts that are not done */
  _Alignas(64) _Atomic bool sleeping;   /* someone may be asleep */
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

static bool turn_open(uint64_t turn) {
  return (turn >> PART_BITS & PART_MASK) < (turn & PART_MASK);
}

/* Takes parts of the current job while there are some. */
static void take_parts(struct team *t, int thread) {
  int32_t done = 0;
  uint64_t turn = atomic_load_explicit(&t->turn, memory_order_acquire);
  while (turn_open(turn)) {
    team_body *body = atomic_load_explicit(&t->body, memory_order_relaxed);
    const void *args = atomic_load_explicit(&t->args, memory_order_relaxed);
    int64_t n = atomic_load_explicit(&t->n, memory_order_relaxed);
    int64_t part = (int64_t)(turn >> PART_BITS & PART_MASK), n_parts = (int64_t)(turn & PART_MASK);
    if (!atomic_compare_exchange_weak_explicit(&t->turn, &turn, turn + (1u << PART_BITS), memory_order_acq_rel,
                                               memory_order_acquire))
      continue;
    body(args, n * part / n_parts, n * (part + 1) / n_parts, thread);
    done++;
    turn = atomic_load_explicit(&t->turn, memory_order_acquire);
  }
  if (done > 0) atomic_fetch_sub_explicit(&t->pending, done, memory_order_release);
}

/* Waits for parts to take: spins for a while, then sleeps. */
static void await_turn(struct team *t) {
  double since = time_now();
  do {
    for (int i = 0; i < SPINS; i++) {
      if (turn_open(atomic_load_explicit(&t->turn, memory_order_relaxed))) return;
      relax();
    }
  } while (time_now() - since < SPIN_SECONDS);
  pthread_mutex_lock(&t->lock);
  atomic_store(&t->sleeping, true); /* before the look at the turn; the owner does the two in the other order */
  if (!turn_open(atomic_load(&t->turn)) && !atomic_load(&t->closing)) pthread_cond_wait(&t->wake, &t->lock);
  pthread_mutex_unlock(&t->lock);
}

static void *help(void *helper) {
  const struct helper *h = helper;
  while (!atomic_load(&h->team->closing)) {
    await_turn(h->team);
    take_parts(h->team, h->index);
  }
  return NULL;
}

static void wake_helpers(struct team *t) {
  if (!atomic_load(&t->sleeping)) return;
  pthread_mutex_lock(&t->lock);
  atomic_store(&t->sleeping, false);
  pthread_cond_broadcast(&t->wake);
  pthread_mutex_unlock(&t->lock);
}

static void start_helpers(struct team *t) {
  t->started = true;
  for (int i = 0; i < t->n_threads - 1; i++) {
    struct helper *h = &t->helpers[t->n_helpers];
    *h = (struct helper){.team = t, .index = t->n_helpers + 1};
    t->n_helpers += pthread_create(&h->thread, NULL, help, h) == 0;
  }
}

struct team *team_create(int n_threads) {
  struct team *t = memory_try(sizeof *t);
  if (!t) return NULL;
  t->n_threads = n_threads;
  t->helpers = memory_alloc(sizeof *t->helpers * (size_t)n_threads);
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->wake, NULL);
  return t;
}

void team_free(struct team *t) {
  if (!t) return;
  atomic_store(&t->closing, true);
  wake_helpers(t);
  for (int i = 0; i < t->n_helpers; i++) pthread_join(t->helpers[i].thread, NULL);
  pthread_cond_destroy(&t->wake);
  pthread_mutex_destroy(&t->lock);
  free(t->helpers);
  memory_try_free(t);
}

/* Parts that helpers hold; long ones deserve the core that this thread would spin on. */
static void await_pending(struct team *t) {
  double since = time_now();
  for (;;) {
    for (int i = 0; i < SPINS; i++) {
      if (atomic_load_explicit(&t->pending, memory_order_acquire) == 0) return;
      relax();
    }
    if (time_now() - since > SPIN_SECONDS) sched_yield();
  }
}

void team_run(struct team *t, const struct team_job *job) {
  int64_t n_parts = job->n_parts < job->n ? job->n_parts : job->n;
  ASSERT(n_parts <= TEAM_PARTS_MAX);
  if (n_parts > 1 && !t->started) start_helpers(t);
  if (n_parts <= 1 || t->n_helpers == 0) {
    job->body(job->args, 0, job->n, 0);
    return;
  }
  uint64_t number = (atomic_load_explicit(&t->turn, memory_order_relaxed) >> 32) + 1;
  atomic_store_explicit(&t->body, job->body, memory_order_relaxed);
  atomic_store_explicit(&t->args, job->args, memory_order_relaxed);
  atomic_store_explicit(&t->n, job->n, memory_order_relaxed);
  atomic_store_explicit(&t->pending, (int32_t)n_parts, memory_order_relaxed);
  atomic_store(&t->turn, number << 32 | (uint64_t)n_parts);
  wake_helpers(t);
  take_parts(t, 0);
  await_pending(t);
}
