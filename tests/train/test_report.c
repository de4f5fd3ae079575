/* test_report.c - the HTML page of results: well formed (tags are closed in order), every table with caption and headings, nothing from
 * elsewhere, nothing from outside unescaped, every number of the document in it, and any document taken, also a foreign or empty one.
 */
#include "../base/support.h"

#include "base/buffer.h"
#include "base/json.h"
#include "train/report.h"

#define SPEED "\"plain_run\":{\"tok_s\":100},\"fixed_run\":{\"tok_s\":150},\"draft_run\":{\"tok_s\":181},\"plain_tok_s\":100,\"draft_tok_s\":181," \
              "\"speedup\":1.81,\"speedup_total\":1.63,\"fixed_speedup\":1.52"
#define COUNTS "\"prompts\":4,\"output_tokens\":444,\"rounds\":222,\"acceptance_length\":2.345,\"accepted_per_round\":1.357," \
               "\"per_position\":[0.71,0.53,0.12],\"conditional\":[0.71,0.74,0.23],\"by_context\":[{\"from\":0,\"rounds\":201," \
               "\"acceptance_length\":2.41},{\"from\":128,\"rounds\":21,\"acceptance_length\":1.98}]"
static const char document[] =
    "{\"sources\":{\"a<b>&\\\"c\":{" COUNTS "," SPEED "},\"short\":{\"prompts\":1,\"by_context\":[]}},\"overall\":{" COUNTS "}," SPEED
    ",\"identical\":true,\"speculation\":\"adaptive: drafts in 40 % of the steps\",\"drafter\":\"head\",\"shape\":\"chain\",\"draft_len\":3,"
    "\"temperature\":0,\"prompts\":5,\"prompt_files\":[\"x.jsonl\",\"<y>\"],\"template\":{\"file\":\"t.jinja\",\"xxh3\":\"00ff\"},"
    "\"definitions\":{\"acceptance_length\":\"tokens per round\"}}";

static char *page_of(const struct eaglet_report_params *params) {
  struct eaglet_text html = {0};
  struct eaglet_error err = {0};
  if (report_html(params, &html, &err) != EAGLET_OK) fail_msg("%s", err.message);
  assert_int_equal(strlen(html.data), html.length);
  return html.data;
}

/* ---- form ---- */

static bool is_void(const char *name, size_t n) {
  return (n == 4 && memcmp(name, "meta", 4) == 0) || (n == 8 && memcmp(name, "!doctype", 8) == 0);
}

/* Every tag that is opened is closed, in order. */
static void check_nesting(const char *html) {
  struct {
    const char *name;
    size_t n;
  } open[64];
  size_t depth = 0;
  for (const char *at = strchr(html, '<'); at; at = strchr(at, '<')) {
    const char *end = strchr(at, '>'), *name = at + 1 + (at[1] == '/');
    size_t n = strcspn(name, " />");
    assert_non_null(end);
    if (at[1] == '/') {
      assert_true(depth > 0);
      depth--;
      if (open[depth].n != n || memcmp(open[depth].name, name, n) != 0) fail_msg("%.*s closes %.*s", (int)n, name, (int)open[depth].n, open[depth].name);
    } else if (!is_void(name, n) && end[-1] != '/') {
      assert_true(depth < 64);
      open[depth].name = name;
      open[depth++].n = n;
    }
    at = end;
  }
  assert_int_equal(depth, 0);
}

static int count(const char *text, const char *word) {
  int n = 0;
  for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) n++;
  return n;
}

static void check_page(const char *html) {
  static const char *const foreign[] = {"http:", "https:", "<script", "<link", "@import", "url(", " src="};
  check_nesting(html);
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (strstr(html, foreign[i])) fail_msg("the page has %s", foreign[i]);
  assert_int_equal(count(html, "<table>"), count(html, "<caption>"));
  assert_int_equal(count(html, "<th"), count(html, "<thead") + count(html, "<th scope=\"col\">") + count(html, "<th scope=\"row\">"));
  assert_int_equal(count(html, "<tr>"), count(html, "<table>") + count(html, "<th scope=\"row\">"));
  assert_int_equal(count(html, "<svg"), count(html, "role=\"img\" aria-label=\""));
  assert_int_equal(count(html, "class=\"bar\""), count(html, "class=\"bar\" aria-hidden=\"true\""));
  assert_int_equal(count(html, "<h1>"), 1);
  assert_true(strstr(html, "<html lang=\"en\">") && strstr(html, "<title>"));
  assert_true(!strstr(html, "nan") && !strstr(html, "inf<"));
}

/* ---- content ---- */

static void test_evaluation(void **state) {
  (void)state;
  static const char *const words[] = {"1.81&times; as fast", "181 tok/s", "<b>identical</b>", ">100<", ">150<", "1.52&times;", "1.63&times;",
                                      "adaptive: drafts in 40 % of the steps", ">2.345<", "<td>1.357</td>", ">0.53<", ">0.74<", "width:53%",
                                      "from 128 tokens", "2.41 <small>201 rounds</small>", "a&lt;b&gt;&amp;&quot;c", "x.jsonl, &lt;y&gt;",
                                      "t.jinja", "00ff", "tokens per round", "chain", "conditional", "<title>x &lt; y</title>", "&ndash;"};
  char *html = page_of(&(struct eaglet_report_params){.title = "x < y", .eval_json = document});
  check_page(html);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strstr(html, words[i])) fail_msg("the page lacks %s:\n%s", words[i], html);
  free(html);
}

/* Without plain runs there is no speed to show; sampled texts are not compared; a difference is told. */
static void test_other_runs(void **state) {
  (void)state;
  char *html = page_of(&(struct eaglet_report_params){.eval_json = "{\"overall\":{" COUNTS "},\"sources\":{}}"});
  check_page(html);
  assert_null(strstr(html, "plain decoding"));
  assert_non_null(strstr(html, "Acceptance length 2.35"));
  free(html);
  html = page_of(&(struct eaglet_report_params){.eval_json = "{\"overall\":{},\"identical\":null," SPEED "}"});
  check_page(html);
  assert_non_null(strstr(html, "agrees with plain decoding in law"));
  assert_null(strstr(html, "adaptive"));
  free(html);
  html = page_of(&(struct eaglet_report_params){.eval_json = "{\"overall\":{},\"identical\":false,\"difference\":\"a.jsonl:3 <token>\"," SPEED "}"});
  check_page(html);
  assert_true(strstr(html, "<b>different</b>") && strstr(html, "a.jsonl:3 &lt;token&gt;"));
  free(html);
}

static void test_training(void **state) {
  (void)state;
  char *html = page_of(&(struct eaglet_report_params){
      .metrics_jsonl = "{\"step\":1,\"loss\":5.5}\n{\"step\":10,\"loss\":2.25,\"acceptance_length\":1.5}\n\n{\"step\":20,\"loss\":3}\n",
      .prepare_json = "{\"rows_read\":10,\"rows_kept\":9,\"tokens\":100,\"trained_tokens\":40,\"sources\":{\"<s>\":{\"rows\":9}}}"});
  check_page(html);
  assert_non_null(strstr(html, "from 5.5 at step 1 to 3 at step 20; least 2.25, most 5.5"));
  assert_int_equal(count(html, "<svg"), 1); /* one point makes no curve */
  assert_non_null(strstr(html, "&lt;s&gt;"));
  free(html);
}

/* Documents that are not ours make a page all the same, or are refused as no JSON. */
static void test_foreign(void **state) {
  (void)state;
  static const char *const documents[] = {"{}", "[]", "[1,[2]]", "{\"overall\":7,\"sources\":[]}", "{\"speedup\":\"x\",\"sources\":{\"a\":null}}",
                                          "{\"overall\":{\"per_position\":[null,\"a\",{}],\"by_context\":[1,{}]},\"template\":3,\"prompt_files\":{}}"};
  for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
    char *html = page_of(&(struct eaglet_report_params){.eval_json = documents[i], .prepare_json = documents[i]});
    check_page(html);
    free(html);
  }
  struct eaglet_text html = {0};
  struct eaglet_error err = {0};
  assert_int_equal(report_html(&(struct eaglet_report_params){.eval_json = "{"}, &html, &err), EAGLET_E_INPUT);
  assert_true(strstr(err.message, "eval result") && !html.data);
  assert_int_equal(report_html(&(struct eaglet_report_params){.metrics_jsonl = "{}\nx\n"}, &html, &err), EAGLET_E_INPUT);
  assert_non_null(strstr(err.message, "line 2"));
  assert_null(html.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_evaluation),
      cmocka_unit_test(test_other_runs),
      cmocka_unit_test(test_training),
      cmocka_unit_test(test_foreign),
  };
  return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
