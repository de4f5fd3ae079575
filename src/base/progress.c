/* progress.c - bar or lines on stderr, and polite stopping; see progress.h. The one mutable global of the project is here: a signal
 * handler has nothing else to write to. */
#include "base/progress.h"

#include "base/buffer.h"
#include "base/util.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_CELLS 24
#define BAR_INTERVAL_S 0.1
#define LINE_INTERVAL_S 10.0

static volatile sig_atomic_t signal_received;

struct report { /* what one call of the callback says */
  const char *unit, *note;
  uint64_t done, total;
  double now;
};

/* The first signal asks; the second of either kind does what the system does by default. */
static void on_signal(int number) {
  signal_received = number;
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
}

int progress_signal(void) { return signal_received; }

void progress_init(struct progress *progress, bool quiet, bool color) {
  *progress = (struct progress){.quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1, .color = color};
  signal(SIGXFSZ, SIG_IGN); /* a file-size limit is then an error of write, told like a full disk */
}

/* "1:23:45" or "2:05" */
static void format_duration(char *text, size_t size, double seconds) {
  if (seconds > 360000) seconds = 360000;
  unsigned s = (unsigned)(seconds + 0.5), hours = s / 3600, minutes = s / 60 % 60;
  if (hours > 0) {
    snprintf(text, size, "%u:%02u:%02u", hours, minutes, s % 60);
  } else {
    snprintf(text, size, "%u:%02u", minutes, s % 60);
  }
}

static int terminal_columns(void) {
  struct winsize window;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col >= 20 ? window.ws_col : 80;
}

/* One line of text without bar: "12/345 tokens, 6.7 tokens/s, ETA 0:49, note". */
static void format_line(struct buffer *line, const struct progress *progress, const struct report *r) {
  char duration[32];
  double elapsed = r->now - progress->started;
  double rate = elapsed > 0.05 && r->done > progress->done_first ? (double)(r->done - progress->done_first) / elapsed : 0;
  buffer_format(line, "%llu", (unsigned long long)r->done);
  if (r->total > 0) buffer_format(line, "/%llu", (unsigned long long)r->total);
  buffer_format(line, " %s, %.*f %s/s", r->unit, rate < 100 ? 1 : 0, rate, r->unit);
  if (r->total > r->done && rate > 0) {
    format_duration(duration, sizeof duration, (double)(r->total - r->done) / rate);
    buffer_format(line, ", ETA %s", duration);
  } else if (r->total > 0 && r->done >= r->total) {
    format_duration(duration, sizeof duration, elapsed);
    buffer_format(line, ", took %s", duration);
  }
  if (r->note) buffer_format(line, ", %s", r->note);
}

static void print_bar(const struct progress *progress, const struct report *r, const char *line) {
  char bar[BAR_CELLS + 4] = "";
  if (r->total > 0) {
    int full = (int)((double)BAR_CELLS * (double)(r->done < r->total ? r->done : r->total) / (double)r->total);
    bar[0] = '[';
    memset(bar + 1, '.', BAR_CELLS);
    memset(bar + 1, '#', (size_t)full);
    memcpy(bar + 1 + BAR_CELLS, "] ", 3);
  }
  const char *bold = progress->color ? "\033[1m" : "", *plain = progress->color ? "\033[0m" : "";
  int room = terminal_columns() - 2 - (int)(strlen(progress->stage) + strlen(bar));
  fprintf(stderr, "\r\033[K%s%s%s %s%.*s", bold, progress->stage, plain, bar, room > 0 ? room : 0, line);
  fflush(stderr);
}

static bool report(void *context, const char *stage, const char *unit, uint64_t done, uint64_t total, const char *note) {
  struct progress *progress = context;
  double now = time_now();
  if (strncmp(progress->stage, stage, sizeof progress->stage - 1) != 0) {
    progress_finish(progress);
    snprintf(progress->stage, sizeof progress->stage, "%s", stage);
    progress->started = now;
    progress->done_first = done; /* what a resumed run had done before says nothing about its speed */
    progress->printed = progress->terminal ? 0 : now;
    progress->complete = false;
  }
  bool complete = total > 0 && done >= total && !progress->complete;
  double interval = progress->terminal ? BAR_INTERVAL_S : LINE_INTERVAL_S;
  if (complete) progress->complete = true;
  if (!progress->quiet && (complete || now - progress->printed >= interval)) {
    const struct report r = {.unit = unit, .note = note, .done = done, .total = total, .now = now};
    struct buffer line;
    buffer_init(&line);
    format_line(&line, progress, &r);
    if (progress->terminal) {
      print_bar(progress, &r, line.data);
    } else {
      fprintf(stderr, "%s: %s\n", progress->stage, line.data);
    }
    buffer_clear(&line);
    progress->printed = now;
  }
  return progress_signal() == 0;
}

struct eaglet_progress progress_callbacks(struct progress *progress) {
  /* Only now: a command without long work should die of the first Ctrl-C. */
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  return (struct eaglet_progress){.report = report, .context = progress};
}

void progress_finish(struct progress *progress) {
  if (progress->stage[0] && progress->terminal && !progress->quiet) fputc('\n', stderr);
  progress->stage[0] = '\0';
}
