#!/bin/sh
# test_convert.sh EAGLET ROOT - `convert` from the command line: the head that ships, there and back again through every dialect,
# ends as the files it began with; exit codes of what cannot be done.
. "$(dirname "$0")/common.sh"
model=$root/models/nano-kimi head=$root/models/nano-kimi-eagle3
expect() { # CODE WORDS ARGUMENTS...
  code=0 wanted=$1 words=$2
  shift 2
  "$eaglet" convert "$@" --threads 1 >"$dir/out" 2>"$dir/err" || code=$?
  [ "$code" = "$wanted" ] || fail "exit code $code, expected $wanted: $* $(cat "$dir/err")"
  grep -qF -- "$words" "$dir/out" "$dir/err" || fail "no '$words': $* $(cat "$dir/err")"
}
expect 0 "the original's bits" "$head" --model "$model" --to speculators --out "$dir/speculators"
grep -q '"Eagle3Speculator"' "$dir/speculators/config.json" || fail "not speculators' class"
expect 0 '"identical": true' "$dir/speculators" --model "$model" --to vllm --out "$dir/vllm" --json
"$eaglet" check-pair "$model" "$dir/vllm" >"$dir/out" 2>&1 || fail "the pair does not fit: $(cat "$dir/out")"
expect 0 "for sglang" "$dir/vllm" --model "$model" --to sglang --out "$dir/sglang"
cmp "$head/config.json" "$dir/sglang/config.json" || fail "another config than at first"
expect 2 "another directory" "$dir/vllm" --model "$model" --to vllm --out "$dir/vllm"
expect 2 "is there already" "$head" --model "$model" --to vllm --out "$dir/vllm"
expect 2 "sglang" "$head" --model "$model" --to tensorrt --out "$dir/none"
expect 2 "--model" "$head" --to vllm --out "$dir/none"
expect 3 "" "$dir/nowhere" --model "$model" --to vllm --out "$dir/none"
[ ! -e "$dir/none" ] || fail "something was written"

# What a dialect does not read is refused by name.
cp -r "$dir/vllm" "$dir/normed"
sed -i 's/"hidden_act"/"norm_before_residual": true, "hidden_act"/' "$dir/normed/config.json"
expect 3 "norm_before_residual cannot be written for sglang" "$dir/normed" --model "$model" --to sglang --out "$dir/none"
expect 0 "for speculators" "$dir/normed" --model "$model" --to speculators --out "$dir/normed2"
echo ok
