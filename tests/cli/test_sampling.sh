#!/bin/sh
# test_sampling.sh EAGLET ROOT - the options of `generate` that say how a text is drawn, where it ends, what it must be and who drafts:
# texts and streams, the keys of the JSON document, and refusals that name the option and come before any model is opened.
. "$(dirname "$0")/common.sh"
model=$root/models/nano-kimi draft=$root/models/nano-kimi-eagle3

generate() { "$eaglet" generate "$model" --prompt "The sea is" -q "$@"; }
# refused CODE WORDS OPTIONS... - one line on standard error (a second tells the usage) that has the words, nothing on standard output
refused() {
  code=$1 words=$2
  shift 2
  set +e
  generate "$@" >"$dir/out" 2>"$dir/err"
  found=$?
  set -e
  [ "$found" = "$code" ] || fail "$*: exit code $found, expected $code: $(cat "$dir/err")"
  head -1 "$dir/err" | grep -qF -- "$words" || fail "$*: expected '$words', found: $(cat "$dir/err")"
  [ "$(grep -vc '^usage: ' "$dir/err")" = 1 ] || fail "$*: more than one line: $(cat "$dir/err")"
  [ ! -s "$dir/out" ] || fail "$*: output: $(cat "$dir/out")"
}
# says TEXT OPTIONS... - the stream and the document's text, with and without drafts
says() {
  expected=$1
  shift
  for who in "" "--draft $draft" "--draft $draft --draft-len 5 --draft-width 3" "--drafter ngram"; do
    # shellcheck disable=SC2086
    generate $who "$@" >"$dir/out" 2>"$dir/err" || fail "$who $*: $(cat "$dir/err")"
    printf '%s\n' "$expected" >"$dir/expected"
    cmp -s "$dir/out" "$dir/expected" || fail "$who $*: expected '$expected', found '$(cat "$dir/out")'"
    # shellcheck disable=SC2086
    generate $who "$@" --json >"$dir/out" 2>"$dir/err" || fail "$who $* --json: $(cat "$dir/err")"
    grep -qF "\"text\":\"$expected\"" "$dir/out" || fail "$who $* --json: expected '$expected', found $(cat "$dir/out")"
  done
}

# ---- where the text ends ----
whole=$(generate --max-tokens 40)
case $whole in " a beautiful and beautiful"*) ;; *) fail "the model says something else: '$whole'" ;; esac
says " a beautiful and beautiful place." --max-tokens 40
grep -q '"stop":"token"' "$dir/out" || fail "stop: $(cat "$dir/out")"
says " a beauti" --stop "ful and"
grep -q '"stop":"string"' "$dir/out" || fail "stop: $(cat "$dir/out")"
says " a beautiful and" --stop "ful and" --keep-stop
says " a beautiful and beauti" --stop "ful and" "ful place"  --min-tokens 6
says "" --stop " a"
says " a beautiful" --stop zzz " and" "and beautiful"
says " a beautiful and" --max-tokens 5
grep -q '"stop":"length"' "$dir/out" || fail "stop: $(cat "$dir/out")"
id=$(generate --json --max-tokens 3 | sed 's/.*"output_ids":\[[0-9]*,\([0-9]*\),.*/\1/')
generate --json --stop-id "$id" >"$dir/out"
grep -q "\"output_ids\":\[[0-9]*,$id\],.*\"text\":\" a\",\"stop\":\"token\"" "$dir/out" || fail "--stop-id $id: $(cat "$dir/out")"
generate --json --ignore-eos --max-tokens 30 | grep -q '"output_tokens":30' || fail "--ignore-eos"

# ---- what the text must be ----
says "Rome" --choice Rome Paris --logit-bias 82=100
says "12" --regex 12
grep -q '"stop":"constraint"' "$dir/out" || fail "stop: $(cat "$dir/out")"
schema='{"type":"object","properties":{"n":{"type":"integer","minimum":3,"maximum":3}},"required":["n"],"additionalProperties":false}'
printf '%s' "$schema" >"$dir/schema.json"
generate --json-schema "$dir/schema.json" >"$dir/file" || fail "--json-schema FILE"
generate --json-schema " $schema" --draft "$draft" >"$dir/inline" || fail "--json-schema inline"
grep -Eq '^\{"n": ?3\}$' "$dir/file" || fail "schema: $(cat "$dir/file")"
cmp -s "$dir/file" "$dir/inline" || fail "schema: $(cat "$dir/file"), inline $(cat "$dir/inline")"
generate --json-schema - <"$dir/schema.json" | cmp -s - "$dir/file" || fail "schema from standard input"
case $(generate --json-object --max-tokens 20) in "{"*) ;; *) fail "--json-object" ;; esac

# ---- what is told about it ----
generate --json --max-tokens 8 --logprobs 3 --prompt-logprobs 2 --draft "$draft" >"$dir/drafts.json"
generate --json --max-tokens 8 --logprobs 3 --prompt-logprobs 2 >"$dir/plain.json"
if command -v python3 >/dev/null; then
  python3 - "$dir/plain.json" "$dir/drafts.json" <<'PYTHON'
import json, sys
plain, drafts = (json.load(open(path)) for path in sys.argv[1:])
for key in ("prompt_ids", "output_ids", "text", "stop", "logprobs", "prompt_logprobs"):
    assert plain[key] == drafts[key], (key, plain[key], drafts[key])
assert plain["stop"] == "length" and drafts["stats"]["accepted"] > 0
assert len(plain["logprobs"]) == len(plain["output_ids"]) == 8 and len(plain["prompt_logprobs"]) == len(plain["prompt_ids"])
assert plain["prompt_logprobs"][0] is None
for ids, entries, n in (("output_ids", plain["logprobs"], 3), ("prompt_ids", plain["prompt_logprobs"], 2)):
    for id, entry in list(zip(plain[ids], entries))[entries[0] is None:]:
        assert entry["id"] == id and entry["logprob"] <= 0 and entry["rank"] >= 1 and len(entry["top"]) == n, entry
        assert [e["logprob"] for e in entry["top"]] == sorted((e["logprob"] for e in entry["top"]), reverse=True), entry
assert all(e["rank"] == 1 and e["top"][0]["id"] == e["id"] for e in plain["logprobs"])
PYTHON
fi
generate --json --max-tokens 4 | grep -q logprobs && fail "logprobs that nobody asked for"

# ---- sampling ----
generate --temperature 1 --seed 3 >"$dir/a"
generate --temperature 1 --seed 3 >"$dir/b"
generate --temperature 1 --seed 4 >"$dir/c"
cmp -s "$dir/a" "$dir/b" || fail "a seed draws two texts"
cmp -s "$dir/a" "$dir/c" && fail "two seeds draw one text"
[ "$(generate --temperature 1 --min-p 1)" = "$whole" ] || fail "--min-p 1 is not greedy"
first=$(generate --json --max-tokens 1 | sed 's/.*"output_ids":\[\([0-9]*\)\].*/\1/')
generate --json --logit-bias "$first=-inf" | grep -q "\"output_ids\":.*[[,]$first[],].*\"text\"" && fail "a token that must not come came"

# ---- refusals ----
refused 2 "--logit-bias 5: expected ID=NUMBER" --logit-bias 5
refused 2 "--logit-bias x=1: expected ID=NUMBER" --logit-bias x=1
refused 2 "--logit-bias 5=1x: expected ID=NUMBER" --logit-bias 5=1x
refused 2 "logit bias of token 5: expected a finite number or -inf, found inf" --logit-bias 5=inf
refused 2 "logit bias of token 99999: the vocabulary has 4096 ids" --logit-bias 99999=1
refused 2 "--stop-id x: expected a token id" --stop-id x
refused 2 "--stop-id -1: expected a token id" --stop-id=-1
refused 2 "stop token 99999: the vocabulary has 4096 ids" --stop-id 99999
refused 2 "stop string 0 is empty" --stop ""
refused 2 "--keep-stop: there is no --stop" --keep-stop
refused 2 "--min-tokens 20: more than --max-tokens 10" --min-tokens 20 --max-tokens 10
refused 2 "--regex and --choice: the text can follow one of them" --regex a --choice b
refused 2 "--json-schema and --json-object" --json-object --json-schema "$schema"
refused 2 "--json-whitespace: goes with" --json-whitespace 2
refused 3 "$dir/none.json: cannot open" --json-schema "$dir/none.json"
printf '{"type":' >"$dir/cut.json"
refused 3 "$dir/cut.json: line 1 column 8" --json-schema "$dir/cut.json"
refused 3 "schema: line 1 column 8" --json-schema '{"type":'
refused 3 "a group is not closed" --regex "(a"
refused 2 "--logprobs: shown in the document of --json only" --logprobs 3
refused 2 "--logprobs: expected a number from 1 to 20, found '21'" --json --logprobs 21
refused 2 "--draft-len: expected a number from 1 to 15, found '16'" --draft "$draft" --draft-len 16
refused 2 "--draft-len: nobody drafts" --draft-len 3
refused 2 "--adaptive: nobody drafts" --adaptive
refused 2 "--drafter head: expected its directory as --draft" --drafter head
refused 2 "--drafter ngram takes none" --drafter ngram --draft "$draft"
refused 2 "--drafter: expected one of auto|none|head|model|mtp|ngram, found 'eagle'" --drafter eagle
refused 3 "no prediction layer" --drafter mtp
refused 2 "--min-p: expected a number from 0 to 1, found '2'" --min-p 2

# what is wrong with the options is said before the model is read
"$eaglet" generate "$dir/no-model" --prompt x --stop-id x 2>&1 | grep -q "stop-id" || fail "the model was opened first"

"$eaglet" generate --help >"$dir/help"
[ "$(grep -c ':$' "$dir/help")" -ge 6 ] || fail "the help is not grouped"
awk 'length > 132 { exit 1 }' "$dir/help" || fail "long lines in the help"
