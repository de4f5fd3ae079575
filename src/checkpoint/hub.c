/* hub.c - finds a model in the local cache of the Hugging Face hub; see checkpoint.h. Owns the grammar of names and the layout
 * models--ORG--NAME/{refs/REV, snapshots/COMMIT/FILE -> blobs/ETAG}. Never touches the network, never writes. Invariant: what is
 * returned is a directory directly under snapshots/, and no file that a model is read from leads out of the repository's folder. */
#include "checkpoint/hub.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/util.h"
#include "checkpoint/checkpoint.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LISTED_MAX 4      /* names that one message lists */
#define COMMIT_LENGTH 40
#define COMMIT_PREFIX_MIN 4
#define COMMIT_SHOWN 12   /* characters of a commit in messages */
#define REFS_DEPTH 4      /* refs/refs/pr/1 */

struct hub_name {
  char *id;       /* "org/name", or "name" for the hub's oldest models */
  char *revision; /* NULL: not given */
  char *folder;   /* in the cache */
};

/* ---- names ---- */

static bool is_name(const char *text, size_t length) {
  if (length == 0 || text[0] == '.') return false;
  for (size_t i = 0; i < length; i++) {
    if (!isalnum((unsigned char)text[i]) && !strchr("._-", text[i])) return false;
    if (i > 0 && text[i] == '.' && text[i - 1] == '.') return false;
  }
  return true;
}

/* A branch, a tag, refs/pr/N or a commit: a relative path without steps up, of characters that Git allows. */
static bool is_revision(const char *text) {
  if (!*text || *text == '/' || text[strlen(text) - 1] == '/' || strstr(text, "..") || strstr(text, "//")) return false;
  for (const char *at = text; at; at = strchr(at, '/')) {
    at += *at == '/';
    if (*at == '.') return false;
  }
  return text[strcspn(text, " ~^:?*[\\\t\r\n")] == '\0';
}

/* [org/]name[@rev]. False for what cannot be one, so that no part can lead out of its folder. */
static bool name_parse(struct hub_name *hub, const char *model, const char *hub_cache) {
  size_t n = strcspn(model, "@");
  const char *slash = memchr(model, '/', n);
  size_t n_organisation = slash ? (size_t)(slash - model) : 0, at = slash ? n_organisation + 1 : 0;
  *hub = (struct hub_name){0};
  if ((slash && !is_name(model, n_organisation)) || !is_name(model + at, n - at)) return false;
  if (model[n] == '@' && !is_revision(model + n + 1)) return false;
  hub->id = memory_copy_span(model, n);
  if (model[n] == '@') hub->revision = memory_copy_string(model + n + 1);
  hub->folder = memory_format("%s/models--%.*s%s%s", hub_cache, (int)n_organisation, model, slash ? "--" : "", hub->id + at);
  return true;
}

static void name_clear(struct hub_name *hub) {
  free(hub->id);
  free(hub->revision);
  free(hub->folder);
}

/* The command line that gets the model; for messages. Heap. */
static char *download_line(const struct hub_name *hub) {
  return memory_format("hf download %s%s%s", hub->id, hub->revision ? " --revision " : "", hub->revision ? hub->revision : "");
}

static char *lower(const char *text) {
  char *copy = memory_copy_string(text);
  for (char *c = copy; *c; c++) *c = (char)tolower((unsigned char)*c);
  return copy;
}

/* "models--org--name" of a cache's listing as "org/name"; NULL for anything else. Heap. */
static char *id_of_folder(const char *folder) {
  static const char start[] = "models--";
  if (strncmp(folder, start, sizeof start - 1) != 0) return NULL;
  const char *organisation = folder + sizeof start - 1, *split = strstr(organisation, "--");
  return split ? memory_format("%.*s/%s", (int)(split - organisation), organisation, split + 2) : memory_copy_string(organisation);
}

/* Same name in another organisation, other case, or a few slips of the pen. */
static bool is_near(const char *wanted, const char *found) {
  const char *name_a = strchr(wanted, '/'), *name_b = strchr(found, '/');
  if (!strcasecmp(name_a ? name_a + 1 : wanted, name_b ? name_b + 1 : found)) return true;
  char *a = lower(wanted), *b = lower(found);
  size_t n = strlen(a);
  bool near = text_distance(a, n, b, strlen(b)) <= 1 + (int)n / 6;
  free(a);
  free(b);
  return near;
}

static enum eaglet_status not_cached(const struct hub_name *hub, const char *hub_cache, struct eaglet_error *err) {
  struct file_list list = {0};
  struct buffer near;
  size_t n_near = 0;
  char *line = download_line(hub);
  buffer_init(&near);
  buffer_append(&near, "", 0);
  bool cache = file_list_directory(&list, hub_cache, NULL) == EAGLET_OK;
  for (size_t i = 0; cache && i < list.n; i++) {
    char *id = id_of_folder(list.names[i]);
    if (id && is_near(hub->id, id) && n_near++ < LISTED_MAX) buffer_format(&near, "%s%s", n_near == 1 ? "; near: " : ", ", id);
    free(id);
  }
  error_set(err, EAGLET_E_INPUT, "%s: no such directory, and not in the hub cache (looked for %s%s)%.300s; nothing is downloaded: get it with `%s`", hub->id,
            hub->folder, cache ? "" : "; there is no such cache", near.data ? near.data : "", line);
  file_list_clear(&list);
  buffer_clear(&near);
  free(line);
  return EAGLET_E_INPUT;
}

/* ---- revisions ---- */

static bool is_hex(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (!isxdigit((unsigned char)text[i])) return false;
  }
  return length > 0;
}

/* The commit that a file of refs/ names. *commit is NULL when there is no such file. */
static enum eaglet_status ref_read(char **commit, const char *ref, struct eaglet_error *err) {
  struct eaglet_text text = {0};
  *commit = NULL;
  if (!file_exists(ref) || file_is_directory(ref)) return EAGLET_OK;
  TRY(file_read(&text, ref, 4096, err));
  size_t length = strcspn(text.data, " \t\r\n");
  bool whole = is_hex(text.data, length) && text.data[length + strspn(text.data + length, " \t\r\n")] == '\0';
  if (whole) *commit = memory_copy_span(text.data, length);
  else error_set(err, EAGLET_E_INPUT, "%s: expected a commit, found '%.40s'", ref, text.data);
  free(text.data);
  return whole ? EAGLET_OK : EAGLET_E_INPUT;
}

/* Names of the directories in snapshots/ that start with `prefix`. */
static void list_snapshots(struct file_list *found, const struct hub_name *hub, const char *prefix) {
  struct file_list all = {0};
  char *directory = file_join(hub->folder, "snapshots");
  *found = (struct file_list){0};
  if (file_list_directory(&all, directory, NULL) != EAGLET_OK) all = (struct file_list){0};
  for (size_t i = 0; i < all.n; i++) {
    char *path = file_join(directory, all.names[i]);
    if (all.names[i][0] != '.' && !strncasecmp(all.names[i], prefix, strlen(prefix)) && file_is_directory(path)) {
      MEMORY_GROW(found->names, found->capacity, found->n + 1);
      found->names[found->n++] = memory_copy_string(all.names[i]);
    }
    free(path);
  }
  file_list_clear(&all);
  free(directory);
}

/* "main, refs/pr/1": every file below refs/, in order; the walk keeps its own list of folders. */
static void describe_refs(struct buffer *out, const struct hub_name *hub) {
  struct file_list folders[REFS_DEPTH] = {{0}};
  size_t at[REFS_DEPTH] = {0}, n_listed = 0;
  char *paths[REFS_DEPTH] = {file_join(hub->folder, "refs")};
  int depth = file_list_directory(&folders[0], paths[0], NULL) == EAGLET_OK ? 0 : -1;
  while (depth >= 0) {
    if (at[depth] == folders[depth].n) {
      file_list_clear(&folders[depth]);
      if (depth > 0) free(paths[depth]);
      depth--;
      continue;
    }
    char *path = file_join(paths[depth], folders[depth].names[at[depth]++]);
    if (file_is_directory(path) && depth + 1 < REFS_DEPTH && file_list_directory(&folders[depth + 1], path, NULL) == EAGLET_OK) {
      paths[++depth] = path;
      at[depth] = 0;
      continue;
    }
    if (!file_is_directory(path) && n_listed++ < LISTED_MAX) buffer_format(out, "%s%s", n_listed > 1 ? ", " : "", path + strlen(paths[0]) + 1);
    free(path);
  }
  if (n_listed > LISTED_MAX) buffer_format(out, " and %zu more", n_listed - LISTED_MAX);
  if (n_listed == 0) buffer_append_string(out, "no named revision");
  free(paths[0]);
}

static void describe_snapshots(struct buffer *out, const struct file_list *snapshots) {
  for (size_t i = 0; i < snapshots->n && i < LISTED_MAX; i++) buffer_format(out, "%s%.*s", i ? ", " : "", COMMIT_SHOWN, snapshots->names[i]);
  if (snapshots->n > LISTED_MAX) buffer_format(out, " and %zu more", snapshots->n - LISTED_MAX);
  if (snapshots->n == 0) buffer_append_string(out, "no snapshot");
}

/* What is there instead of the revision that was asked for. */
static enum eaglet_status unknown_revision(const struct hub_name *hub, const char *what, struct eaglet_error *err) {
  struct file_list snapshots;
  struct buffer there;
  char *line = download_line(hub);
  buffer_init(&there);
  describe_refs(&there, hub);
  buffer_append_string(&there, "; ");
  list_snapshots(&snapshots, hub, "");
  describe_snapshots(&there, &snapshots);
  error_set(err, EAGLET_E_INPUT, "%s: %s is not in the hub cache; %s holds: %.300s; nothing is downloaded: get it with `%s`", hub->id, what, hub->folder,
            there.data, line);
  file_list_clear(&snapshots);
  buffer_clear(&there);
  free(line);
  return EAGLET_E_INPUT;
}

/* One snapshot whose name starts with `prefix`; *commit is NULL when there is none. */
static enum eaglet_status snapshot_by_prefix(char **commit, const struct hub_name *hub, const char *prefix, struct eaglet_error *err) {
  struct file_list found;
  list_snapshots(&found, hub, prefix);
  *commit = NULL;
  enum eaglet_status status = EAGLET_OK;
  if (found.n == 1) {
    *commit = memory_copy_string(found.names[0]);
  } else if (found.n > 1) {
    struct buffer names;
    buffer_init(&names);
    describe_snapshots(&names, &found);
    status = *prefix ? error_set(err, EAGLET_E_INPUT, "%s: commit '%s' is ambiguous: %s of %s begin so; give more of it", hub->id, prefix, names.data, hub->folder)
                     : error_set(err, EAGLET_E_INPUT, "%s: no revision given, %s has no refs/main, and there are several snapshots: name one as %s@COMMIT: %s",
                                 hub->id, hub->folder, hub->id, names.data);
    buffer_clear(&names);
  }
  file_list_clear(&found);
  return status;
}

/* refs/REV, or a commit or the beginning of one. Without a revision main; without a main the only snapshot there is. */
static enum eaglet_status find_commit(char **commit, const struct hub_name *hub, struct eaglet_error *err) {
  const char *revision = hub->revision ? hub->revision : "main";
  size_t length = strlen(revision);
  char *ref = memory_format("%s/refs/%s", hub->folder, revision), *exact = memory_format("%s/snapshots/%s", hub->folder, revision);
  bool is_snapshot = file_is_directory(exact) && !strchr(revision, '/');
  *commit = NULL;
  enum eaglet_status status = EAGLET_OK;
  if (length == COMMIT_LENGTH && is_snapshot) *commit = memory_copy_string(revision);
  else status = ref_read(commit, ref, err);
  bool named = *commit && !is_snapshot;
  if (status == EAGLET_OK && !*commit && is_snapshot) *commit = memory_copy_string(revision);
  if (status == EAGLET_OK && !*commit && length >= COMMIT_PREFIX_MIN && is_hex(revision, length)) {
    status = snapshot_by_prefix(commit, hub, revision, err);
  }
  if (status == EAGLET_OK && !*commit && !hub->revision) {
    status = snapshot_by_prefix(commit, hub, "", err);
    if (*commit) log_warning("%s: %s has no refs/main; using its only snapshot %s", hub->id, hub->folder, *commit);
  }
  if (status == EAGLET_OK && !*commit) {
    char *what = memory_format("revision '%s'", revision);
    status = unknown_revision(hub, what, err);
    free(what);
  } else if (status == EAGLET_OK && named) {
    char *snapshot = memory_format("%s/snapshots/%s", hub->folder, *commit), *what = memory_format("commit %s (refs/%s)", *commit, revision);
    if (!file_is_directory(snapshot)) status = unknown_revision(hub, what, err);
    free(snapshot);
    free(what);
  }
  free(ref);
  free(exact);
  return status;
}

/* ---- the files of a snapshot ---- */

/* Configs, weights, tokenizers, templates. Pictures and pickles may be missing. */
static bool is_read(const char *name) {
  static const char *const ends[] = {".json", ".safetensors", ".jinja", ".model", ".txt", ".tiktoken"};
  size_t n = strlen(name);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i])) return name[0] != '.';
  }
  return false;
}

static bool lies_in(const char *real, const char *directory) {
  char *root = file_real_path(directory);
  size_t n = root ? strlen(root) : 0;
  bool inside = root && strncmp(real, root, n) == 0 && (real[n] == '/' || n == 1);
  free(root);
  return inside;
}

/* The repository's folder, its blobs and the snapshot may themselves be links that the user made (to a larger disk). */
static enum eaglet_status check_place(const struct hub_name *hub, const char *snapshot, const char *path, struct eaglet_error *err) {
  char *real = file_real_path(path), *blobs = file_join(hub->folder, "blobs");
  bool inside = !real || lies_in(real, hub->folder) || lies_in(real, blobs) || lies_in(real, snapshot);
  if (!inside) error_set(err, EAGLET_E_INPUT, "%s: %s leads to %s, out of %s: refused", hub->id, path, real, hub->folder);
  free(real);
  free(blobs);
  return inside ? EAGLET_OK : EAGLET_E_INPUT;
}

static enum eaglet_status check_snapshot(const struct hub_name *hub, const char *snapshot, struct eaglet_error *err) {
  struct file_list list;
  struct buffer missing;
  size_t n_missing = 0, n_read = 0;
  TRY(file_list_directory(&list, snapshot, err));
  buffer_init(&missing);
  enum eaglet_status status = EAGLET_OK;
  for (size_t i = 0; i < list.n && status == EAGLET_OK; i++) {
    char *path = file_join(snapshot, list.names[i]);
    if (is_read(list.names[i])) {
      n_read++;
      if (!file_exists(path)) {
        if (n_missing++ < LISTED_MAX) buffer_format(&missing, "%s%s", n_missing > 1 ? ", " : "", list.names[i]);
      } else {
        status = check_place(hub, snapshot, path, err);
      }
    }
    free(path);
  }
  char *advice = hub_advice(snapshot);
  if (status == EAGLET_OK && n_missing > 0) {
    if (n_missing > LISTED_MAX) buffer_format(&missing, " and %zu more", n_missing - LISTED_MAX);
    status = error_set(err, EAGLET_E_INPUT, "%s: incomplete snapshot %s: %zu of %zu files are links to nothing (an interrupted download?): %.300s%s", hub->id,
                       snapshot, n_missing, n_read, missing.data, advice);
  } else if (status == EAGLET_OK && n_read == 0) {
    status = error_set(err, EAGLET_E_INPUT, "%s: incomplete snapshot %s: no file of a model in it (an interrupted download?)%s", hub->id, snapshot, advice);
  }
  free(advice);
  buffer_clear(&missing);
  file_list_clear(&list);
  return status;
}

char *hub_advice(const char *directory) {
  const char *at = strstr(directory, "/models--"), *snapshots = at ? strstr(at, "/snapshots/") : NULL;
  for (const char *next = at; next; next = strstr(next + 1, "/models--")) at = next; /* the last one: a cache may lie below another */
  snapshots = at ? strstr(at, "/snapshots/") : NULL;
  if (!snapshots) return memory_copy_string("");
  char *folder = memory_copy_span(directory, (size_t)(snapshots - directory)), *blobs = file_join(folder, "blobs"), *id = id_of_folder(folder + (at - directory) + 1);
  struct file_list list = {0};
  size_t n_open = 0;
  if (file_list_directory(&list, blobs, NULL) != EAGLET_OK) list = (struct file_list){0};
  for (size_t i = 0; i < list.n; i++) {
    size_t n = strlen(list.names[i]);
    n_open += n > 11 && !strcmp(list.names[i] + n - 11, ".incomplete");
  }
  char *advice = n_open ? memory_format("; %zu unfinished downloads in %s: go on with `hf download %s`", n_open, blobs, id)
                        : memory_format("; get the rest with `hf download %s`", id);
  file_list_clear(&list);
  free(folder);
  free(blobs);
  free(id);
  return advice;
}

/* ---- ---- */

static enum eaglet_status resolve_in_hub(char **path, const struct hub_name *hub, const char *hub_cache, struct eaglet_error *err) {
  char *commit = NULL;
  if (!file_is_directory(hub->folder)) return not_cached(hub, hub_cache, err);
  enum eaglet_status status = find_commit(&commit, hub, err);
  if (status == EAGLET_OK) {
    char *snapshot = memory_format("%s/snapshots/%s", hub->folder, commit);
    status = check_snapshot(hub, snapshot, err);
    if (status == EAGLET_OK) *path = snapshot;
    else free(snapshot);
  }
  free(commit);
  return status;
}

enum eaglet_status checkpoint_resolve(char **path, const char *model, const char *hub_cache, struct eaglet_error *err) {
  struct hub_name hub;
  *path = NULL;
  if (file_is_directory(model)) {
    *path = memory_copy_string(model);
    return EAGLET_OK;
  }
  if (file_exists(model)) FAIL(err, EAGLET_E_INPUT, "%s: is a file; expected a model directory", model);
  if (!hub_cache) FAIL(err, EAGLET_E_INPUT, "%s: no such directory, and there is no hub cache to look in (HF_HUB_CACHE, HF_HOME, HOME)", model);
  if (!name_parse(&hub, model, hub_cache)) FAIL(err, EAGLET_E_INPUT, "%s: no such directory, nor a name of the hub (org/name[@revision])", model);
  enum eaglet_status status = resolve_in_hub(path, &hub, hub_cache, err);
  name_clear(&hub);
  return status;
}
