#!/bin/sh
# demo.sh - the whole job on nano-kimi: inspect, verify, prepare with regeneration, vocab, extract, train, eval, report.
# Everything is made in DEMO_DIR (default build/demo) and nothing is downloaded. Run again: finished steps are kept.
set -eu
cd "$(dirname "$0")/.."
eaglet=${EAGLET:-build/eaglet}
dir=${DEMO_DIR:-build/demo}
steps=${DEMO_STEPS:-400}
model=models/nano-kimi
mkdir -p "$dir"
say() { printf '\n== %s\n' "$*"; }
started=$(date +%s)

say "1. what is it? (inspect) and are its hidden states captured right? (verify)"
"$eaglet" inspect "$model" --json > "$dir/inspect.json"
"$eaglet" verify "$model"

say "2. conversations answered by the target itself, with an exact loss mask (prepare --regenerate)"
"$eaglet" prepare "$model" --data samples/dialogue.jsonl samples/arithmetic.jsonl samples/open.jsonl \
  --regenerate --max-tokens 96 --concurrency 32 --out "$dir/data" --json > "$dir/prepare.json.tmp"
mv "$dir/prepare.json.tmp" "$dir/prepare.json"

say "3. the draft vocabulary (vocab)"
"$eaglet" vocab --data "$dir/data" --size 2048 --out "$dir/vocab.safetensors"

say "4. hidden states to disk (extract)"
"$eaglet" extract "$model" --data "$dir/data" --out "$dir/features"

say "5. train an EAGLE-3 head ($steps steps)"
resume=
[ ! -d "$dir/head/state" ] || resume=--resume
"$eaglet" train "$model" --data "$dir/data" --features "$dir/features" --vocab "$dir/vocab.safetensors" --out "$dir/head" \
  --steps "$steps" --batch 32 --warmup 30 --heads 8 --kv-heads 4 --head-dim 40 --intermediate 768 $resume

say "6. does it help? (eval: acceptance, identity, speed with and without)"
"$eaglet" check-pair "$model" "$dir/head"
"$eaglet" eval "$model" --draft "$dir/head" --prompts samples/eval.jsonl --json > "$dir/eval.json"
"$eaglet" eval "$model" --draft models/nano-kimi-eagle3 --prompts samples/eval.jsonl --json > "$dir/eval-shipped.json"
"$eaglet" report --title "nano-kimi: a head trained in this demo" --eval "$dir/eval.json" --metrics "$dir/head/metrics.jsonl" \
  --prepare "$dir/prepare.json" --out "$dir/report.html"

say "result (tokens per round; speed with head / without)"
for name in eval eval-shipped; do
  awk -v name="$name" '{
    if (match($0, /"overall":\{[^}]*"acceptance_length":[0-9.]+/)) { s = substr($0, RSTART, RLENGTH); sub(/.*:/, "", s); a = s }
    if (match($0, /"plain_tok_s":[0-9.]+/)) p = substr($0, RSTART + 14, RLENGTH - 14)
    if (match($0, /"draft_tok_s":[0-9.]+/)) d = substr($0, RSTART + 14, RLENGTH - 14)
    i = ($0 ~ /"identical":true/) ? "identical" : "DIFFERENT"
    printf "  %-28s acceptance %.2f   plain %5.0f tok/s   with head %5.0f tok/s   %.2fx   output %s\n",
      (name == "eval" ? "head trained just now" : "head shipped (nano-kimi-eagle3)"), a, p, d, d / p, i
  }' "$dir/$name.json"
done
printf '\nreport: %s   (%d s in all)\n' "$dir/report.html" "$(($(date +%s) - started))"
