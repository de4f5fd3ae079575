#!/bin/sh
# test_eval.sh EAGLET ROOT - what `eval` prints, its document and its page say the same by the same names (case G26); `report` makes that
# page again; options that contradict each other are refused.
. "$(dirname "$0")/common.sh"
model=$root/models/nano-kimi draft=$root/models/nano-kimi-eagle3
has() { grep -qF -- "$2" "$1" || fail "$1 lacks '$2': $(head -c 3000 "$1")"; }

head -2 "$root/samples/eval.jsonl" >"$dir/prompts.jsonl"
evaluate() { "$eaglet" eval "$model" --prompts "$dir/prompts.jsonl" --max-tokens 12 --threads 1 -q "$@"; }
evaluate --draft "$draft" --json --html "$dir/page.html" >"$dir/eval.json" 2>"$dir/err" || fail "$(cat "$dir/err")"
evaluate --draft "$draft" >"$dir/text" 2>"$dir/err" || fail "$(cat "$dir/err")"
for name in acceptance_length accepted_per_round per_position conditional output_tokens shape draft_len draft_width draft_tokens prompts template temperature \
  max_tokens concurrency plain_tok_s draft_tok_s speedup; do
  has "$dir/eval.json" "\"$name\":"
  case $name in shape) has "$dir/text" "chain" ;; *) has "$dir/text" "$name" ;; esac
done
for words in '"shape":"chain"' '"draft_len":7' '"temperature":0.0' '"template":{"file":"chat_template.jinja","xxh3":"' '"identical":true' '"prompts":2'; do
  has "$dir/eval.json" "$words"
done
has "$dir/text" "the bonus token included"
has "$dir/text" "prompts 2 of $dir/prompts.jsonl"
has "$dir/text" "greedy output identical"
# the whole comes before the sources
case $(cat "$dir/eval.json") in *'"plain_tok_s"'*'"sources":{'*'"plain_tok_s"'*) ;; *) fail "sources before the whole" ;; esac

evaluate --drafter ngram --draft-width 4 --json >"$dir/ngram.json" 2>"$dir/err" || fail "$(cat "$dir/err")"
has "$dir/ngram.json" '"drafter":"ngram","shape":"chain"' # it cannot draft a tree, and that is said
evaluate --draft "$draft" --draft-len 3 --draft-width 2 --no-plain --json >"$dir/tree.json" 2>"$dir/err" || fail "$(cat "$dir/err")"
has "$dir/tree.json" '"shape":"tree","draft_len":3,"draft_width":2,"draft_tokens":24'
grep -q speedup "$dir/tree.json" && fail "a speed without plain runs"

"$eaglet" report --title "eaglet eval" --eval "$dir/eval.json" --out "$dir/again.html"
cmp "$dir/page.html" "$dir/again.html" || fail "report makes another page"
for words in "<caption>" "adaptive drafting" "drafts in every round" "conditional" "chat_template.jinja"; do has "$dir/page.html" "$words"; done

evaluate 2>"$dir/err" >&2 && fail "no drafter"
has "$dir/err" "no draft"
evaluate --draft-len 3 2>"$dir/err" >&2 && fail "a length of no drafts"
has "$dir/err" "--draft-len: nobody drafts"
evaluate --draft "$draft" --drafter ngram 2>"$dir/err" >&2 && fail "two drafters"
has "$dir/err" "--drafter ngram takes none"
