/* test_hub.c - names of models: directories, and the local cache of the Hugging Face hub. Method: made-up caches of the layout that the hub's
 * client leaves behind; every damage of it must be refused with the place that was looked at and the command that mends it. */
#include "support.h"

#include <unistd.h>

#include "checkpoint/hub.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER "0123456fffffffffffffffffffffffffffffffff"
#define REPO "models--Org-X--Model.v1"

static void assert_resolves(const char *model, const char *cache, const char *expected) {
  struct eaglet_error err = {0};
  char *path, *whole = expected[0] == '@' ? memory_format("%s/" REPO "/snapshots/%s", cache, expected + 1) : memory_copy_string(expected);
  if (checkpoint_resolve(&path, model, cache, &err) != EAGLET_OK) fail_msg("%s: %s", model, err.message);
  assert_string_equal(path, whole);
  free(whole);
  free(path);
}

static void assert_unresolved(const char *model, const char *cache, const char *reason) {
  struct eaglet_error err = {0};
  char *path = (char *)&err;
  enum eaglet_status status = checkpoint_resolve(&path, model, cache, &err);
  assert_refusal(status, &err, reason, reason);
  assert_null(path);
}

static void make_folder(const char *parent, const char *name) {
  char *path = file_join(parent, name);
  assert_int_equal(file_make_directory(path, NULL), EAGLET_OK);
  free(path);
}

static void make_link(const char *parent, const char *name, const char *to) {
  char *path = file_join(parent, name);
  assert_int_equal(file_remove(path, NULL), EAGLET_OK);
  assert_int_equal(symlink(to, path), 0);
  free(path);
}

/* One repository, two snapshots of it with the same beginning, a third short one; several refs. Returns the cache. */
static char *hub_create(void **state, const char *name) {
  static const char *const folders[] = {"refs/refs/pr", "refs/feature", "blobs", "snapshots/" COMMIT, "snapshots/" OTHER, "snapshots/feed0"};
  char *cache = file_join(*state, name), *repo = file_join(cache, REPO);
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) make_folder(repo, folders[i]);
  put_text(repo, "refs/main", COMMIT);
  put_text(repo, "refs/v1.0", OTHER "\n");
  put_text(repo, "refs/refs/pr/1", "feed0");
  put_text(repo, "refs/feature/x", OTHER);
  put_text(repo, "blobs/c0", "{}");
  for (size_t i = 3; i < sizeof folders / sizeof *folders; i++) {
    char *snapshot = file_join(repo, folders[i]);
    make_link(snapshot, "config.json", "../../blobs/c0");
    free(snapshot);
  }
  free(repo);
  return cache;
}

static void test_revisions(void **state) {
  char *cache = hub_create(state, "revisions"), *repo = file_join(cache, REPO);
  assert_resolves("Org-X/Model.v1", cache, "@" COMMIT);
  assert_resolves("Org-X/Model.v1@main", cache, "@" COMMIT);
  assert_resolves("Org-X/Model.v1@v1.0", cache, "@" OTHER);
  assert_resolves("Org-X/Model.v1@refs/pr/1", cache, "@feed0");
  assert_resolves("Org-X/Model.v1@feature/x", cache, "@" OTHER);
  assert_resolves("Org-X/Model.v1@" COMMIT, cache, "@" COMMIT);
  assert_resolves("Org-X/Model.v1@01234567", cache, "@" COMMIT);
  assert_resolves("Org-X/Model.v1@0123456F", cache, "@" OTHER); /* commits are not told apart by case */
  assert_resolves("Org-X/Model.v1@feed0", cache, "@feed0");
  assert_resolves("Org-X/Model.v1@feed", cache, "@feed0");
  assert_unresolved("Org-X/Model.v1@0123456", cache, "commit '0123456' is ambiguous: 0123456789ab, 0123456fffff of ");
  assert_unresolved("Org-X/Model.v1@dev", cache, "Org-X/Model.v1: revision 'dev' is not in the hub cache; ");
  assert_unresolved("Org-X/Model.v1@dev", cache, "holds: feature/x, main, refs/pr/1, v1.0; 0123456789ab, 0123456fffff, feed0; nothing is downloaded: get it with "
                                                 "`hf download Org-X/Model.v1 --revision dev`");
  assert_unresolved("Org-X/Model.v1@fee", cache, "revision 'fee' is not"); /* too short to mean a commit */
  put_text(repo, "refs/gone", "beef00");
  assert_unresolved("Org-X/Model.v1@gone", cache, "commit beef00 (refs/gone) is not in the hub cache");
  /* Nothing may resolve to the folder of all snapshots, or leave it. */
  static const char *const bad_refs[] = {"", "../../..", "feed0 and more", "\n", "/etc", "."};
  for (size_t i = 0; i < sizeof bad_refs / sizeof *bad_refs; i++) {
    put_text(repo, "refs/bad", bad_refs[i]);
    assert_unresolved("Org-X/Model.v1@bad", cache, "refs/bad: expected a commit, found '");
  }
  free(repo);
  free(cache);
}

/* Without a revision: main, else the only snapshot, else a question. */
static void test_no_main(void **state) {
  char *cache = hub_create(state, "no-main"), *repo = file_join(cache, REPO);
  remove_file(repo, "refs/main");
  assert_unresolved("Org-X/Model.v1", cache, "no revision given, ");
  assert_unresolved("Org-X/Model.v1", cache, "name one as Org-X/Model.v1@COMMIT: 0123456789ab, 0123456fffff, feed0");
  assert_unresolved("Org-X/Model.v1@main", cache, "revision 'main' is not in the hub cache");
  char *snapshots = file_join(repo, "snapshots"), *one = file_join(snapshots, OTHER), *two = file_join(snapshots, "feed0"), *three = file_join(snapshots, COMMIT);
  tree_remove(one, 3);
  tree_remove(two, 3);
  assert_resolves("Org-X/Model.v1", cache, "@" COMMIT);
  assert_unresolved("Org-X/Model.v1@main", cache, "revision 'main' is not in the hub cache");
  tree_remove(three, 3);
  assert_unresolved("Org-X/Model.v1", cache, "revision 'main' is not in the hub cache; ");
  assert_unresolved("Org-X/Model.v1", cache, "; no snapshot; nothing is downloaded: get it with `hf download Org-X/Model.v1`");
  free(one);
  free(two);
  free(three);
  free(snapshots);
  free(repo);
  free(cache);
}

static void test_names(void **state) {
  char *cache = hub_create(state, "names"), *absent = file_join(*state, "no-cache"), *looked;
  make_folder(cache, "models--gpt2/snapshots/abcd");
  make_folder(cache, "datasets--Org-X--Other");
  char *old = file_join(cache, "models--gpt2/snapshots/abcd");
  put_text(old, "config.json", "{}");
  assert_resolves("gpt2", cache, old); /* the hub's oldest models have no organisation */
  assert_resolves("gpt2@abcd", cache, old);
  looked = memory_format("Org-X/Other: no such directory, and not in the hub cache (looked for %s/models--Org-X--Other); nothing is downloaded: get it with `hf download Org-X/Other`", cache);
  assert_unresolved("Org-X/Other", cache, looked);
  free(looked);
  assert_unresolved("Org-X/Other@v2", cache, "get it with `hf download Org-X/Other --revision v2`");
  assert_unresolved("Orgx/Model.v1", cache, "; near: Org-X/Model.v1; ");
  assert_unresolved("org-x/model.v1", cache, "; near: Org-X/Model.v1; ");
  assert_unresolved("Somebody/Model.v1", cache, "; near: Org-X/Model.v1; ");
  assert_unresolved("Org-X/Model.v1", absent, "there is no such cache");
  assert_unresolved("Org-X/Model.v1", NULL, "no such directory, and there is no hub cache to look in");
  static const char *const not_names[] = {"Org-X/Model.v1@", "Org-X/Model.v1@.", "Org-X/Model.v1@..", "Org-X/Model.v1@/", "Org-X/Model.v1@a/../b", "Org-X/Model.v1@a//b",
                                          "Org-X/Model.v1@a/.git", "Org-X/Model.v1@a b", "Org-X/", "Org-X/@main", "/Model.v1", "a@b/c", "Org-X/Model.v1/snapshots",
                                          "../names", "./Model", "Org-X/..", "Org-X/a..b", ".hidden/x", "a b/c", "", "@", "caf\xc3\xa9/x"};
  for (size_t i = 0; i < sizeof not_names / sizeof *not_names; i++) assert_unresolved(not_names[i], cache, "no such directory");
  char *file = file_join(cache, REPO "/refs/main");
  assert_unresolved(file, cache, "is a file; expected a model directory");
  free(file);
  free(old);
  free(absent);
  free(cache);
}

/* A directory of that name wins, whatever the cache holds. */
static void test_directory_wins(void **state) {
  char *cache = hub_create(state, "wins"), *here = getcwd(NULL, 0);
  assert_resolves(cache, NULL, cache);
  assert_resolves(cache, cache, cache);
  assert_int_equal(chdir(*state), 0);
  make_folder("Org-X", "Model.v1");
  assert_resolves("Org-X/Model.v1", cache, "Org-X/Model.v1");
  assert_resolves("Org-X/Model.v1@main", cache, "@" COMMIT);
  tree_remove("Org-X", 2);
  assert_int_equal(chdir(here), 0);
  free(here);
  free(cache);
}

/* A snapshot as the hub's client leaves it: links into blobs; then every way in which it can be cut short. */
static void test_links(void **state) {
  char *cache = hub_create(state, "links"), *repo = file_join(cache, REPO), *blobs = file_join(repo, "blobs"), *path;
  put_shard(blobs, "b0", "a.w", 5);
  put_shard(blobs, "b1", "b.w", 6);
  assert_int_equal(checkpoint_resolve(&path, "Org-X/Model.v1", cache, NULL), EAGLET_OK);
  make_link(path, "model.safetensors", "../../blobs/b0");
  make_link(path, "picture.png", "../../blobs/never"); /* nothing that we read */
  make_link(path, "pytorch_model.bin", "../../blobs/never");
  assert_resolves("Org-X/Model.v1", cache, path);
  struct checkpoint checkpoint;
  open_folder(&checkpoint, path);
  assert_value(&checkpoint, "a.w", 5, "/model.safetensors");
  checkpoint_close(&checkpoint);
  /* A blob that never arrived; another that is still arriving. */
  remove_file(blobs, "b0");
  assert_unresolved("Org-X/Model.v1", cache, "1 of 2 files are links to nothing (an interrupted download?): model.safetensors; get the rest with `hf download Org-X/Model.v1`");
  put_text(blobs, "b0.incomplete", "half");
  assert_unresolved("Org-X/Model.v1", cache, "; 1 unfinished downloads in ");
  assert_unresolved("Org-X/Model.v1", cache, ": go on with `hf download Org-X/Model.v1`");
  /* Shards that the index names but the client has not linked yet. */
  remove_file(path, "model.safetensors");
  make_link(path, "m1.safetensors", "../../blobs/b1");
  put_text(path, "model.safetensors.index.json", "{\"weight_map\":{\"b.w\":\"m1.safetensors\",\"c.w\":\"m2.safetensors\"}}");
  assert_folder_refused(path, "missing 1 of 2 shards (an interrupted download?): m2.safetensors (1 tensors); 1 unfinished downloads in ");
  remove_file(path, "model.safetensors.index.json");
  remove_file(path, "m1.safetensors");
  remove_file(blobs, "b0.incomplete");
  remove_file(path, "pytorch_model.bin");
  assert_folder_refused(path, "no *.safetensors file; get the rest with `hf download Org-X/Model.v1`");
  remove_file(path, "config.json");
  assert_folder_refused(path, "/config.json: not there; get the rest with `hf download Org-X/Model.v1`");
  assert_unresolved("Org-X/Model.v1", cache, "no file of a model in it (an interrupted download?); get the rest with ");
  free(path);
  free(blobs);
  free(repo);
  free(cache);
}

/* Links may lead to blobs, also when the blobs or the snapshot were moved to another disk, but nowhere else. */
static void test_links_outside(void **state) {
  char *cache = hub_create(state, "outside"), *repo = file_join(cache, REPO), *snapshots = file_join(repo, "snapshots"), *snapshot = file_join(snapshots, COMMIT);
  char *elsewhere = file_join(*state, "elsewhere"), *secret = file_join(elsewhere, "secret");
  make_folder(elsewhere, "moved");
  put_text(elsewhere, "secret", "{}");
  make_link(snapshot, "tokenizer.json", secret);
  assert_unresolved("Org-X/Model.v1", cache, "/elsewhere/secret, out of ");
  make_link(snapshot, "tokenizer.json", "../../../../elsewhere/secret");
  assert_unresolved("Org-X/Model.v1", cache, "/elsewhere/secret, out of ");
  remove_file(snapshot, "tokenizer.json");
  /* The whole blobs folder on another disk. */
  char *blobs = file_join(repo, "blobs"), *moved = file_join(elsewhere, "moved");
  assert_int_equal(remove(moved), 0);
  assert_int_equal(rename(blobs, moved), 0);
  make_link(repo, "blobs", moved);
  assert_resolves("Org-X/Model.v1", cache, "@" COMMIT);
  /* A snapshot that the user linked by hand to plain files. */
  char *plain = file_join(*state, "plain");
  make_folder(*state, "plain");
  put_text(plain, "config.json", "{}");
  make_link(snapshots, "abcdef", plain);
  assert_resolves("Org-X/Model.v1@abcdef", cache, "@abcdef");
  free(plain);
  free(moved);
  free(blobs);
  free(secret);
  free(elsewhere);
  free(snapshot);
  free(snapshots);
  free(repo);
  free(cache);
}

static void test_advice(void **state) {
  (void)state;
  static const struct { const char *directory, *expected; } cases[] = {
      {"/x/model", ""},
      {"models--a--b/snapshots/c", ""},
      {"/hub/models--a--b/snapshots/c", "; get the rest with `hf download a/b`"},
      {"/hub/models--a--b--c/snapshots/c/", "; get the rest with `hf download a/b--c`"},
      {"/models--x--y/snapshots/z/models--a--b/snapshots/c", "; get the rest with `hf download a/b`"},
      {"/hub/models--a--b", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *advice = hub_advice(cases[i].directory);
    assert_string_equal(advice, cases[i].expected);
    free(advice);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_revisions),      cmocka_unit_test(test_no_main), cmocka_unit_test(test_names),
      cmocka_unit_test(test_directory_wins), cmocka_unit_test(test_links),   cmocka_unit_test(test_links_outside),
      cmocka_unit_test(test_advice),
  };
  return cmocka_run_group_tests(tests, scratch_create, tree_teardown);
}
