#!/bin/sh
# test_train.sh EAGLET ROOT - the options of a training recipe from the command line to run.ini and back: a run of that file is the same run to
# the bit, a run that is resumed with another recipe is refused by the option's name, choices that contradict each other too.
. "$(dirname "$0")/common.sh"
model=$root/models/nano-kimi
has() { grep -qF -- "$2" "$1" || fail "$1 lacks '$2': $(head -c 3000 "$1")"; }

head -12 "$root/samples/dialogue.jsonl" >"$dir/rows.jsonl"
"$eaglet" prepare "$model" --data "$dir/rows.jsonl" --out "$dir/data" --max-len 48 --validation -1 --threads 1 -q >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
"$eaglet" vocab --data "$dir/data" --size 300 --out "$dir/vocab.safetensors" -q >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
train() { "$eaglet" train "$model" --threads 1 -q "$@"; }
small="--data $dir/data --vocab $dir/vocab.safetensors --steps 3 --batch 4 --unroll 2 --warmup 1 --heads 2 --kv-heads 1 --head-dim 16 --intermediate 48"
recipe="--loss lk-lambda --outside residual --kl-scale 0.9 --kl-decay 2 --mask-rule eagle --optimizer muon --muon-lr 0.002 --muon-momentum 0.9
  --schedule wsd --min-lr 1e-6 --decay-share 0.5 --ema 0.9 --lm-head frozen --noise 0.01"

# shellcheck disable=SC2086
train $small $recipe --out "$dir/one" >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
for line in "loss = lk-lambda" "outside = residual" "teacher = soft" "mask-rule = eagle" "optimizer = muon" "schedule = wsd" "lm-head = frozen" \
  "kl-decay = 2" "ema = 0.9"; do has "$dir/one/run.ini" "$line"; done
has "$dir/one/metrics.jsonl" '"step_acceptance":['
train --config "$dir/one/run.ini" --out "$dir/two" >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
for run in one two; do sed 's/,"tok_s".*//' "$dir/$run/metrics.jsonl" >"$dir/$run.steps"; done
cmp "$dir/one.steps" "$dir/two.steps" || fail "the run of run.ini is another run"
cmp "$dir/one/model.safetensors" "$dir/two/model.safetensors" || fail "the run of run.ini makes another head"

train --config "$dir/one/run.ini" --resume --loss kl >"$dir/log" 2>&1 && fail "another loss resumes"
has "$dir/log" "--loss was lk-lambda, is now kl"
train --config "$dir/one/run.ini" --resume --ema 0.5 >"$dir/log" 2>&1 && fail "another average resumes"
has "$dir/log" "--ema was 0.9"

# shellcheck disable=SC2086
refuse() { words=$1; shift; train $small --out "$dir/three" "$@" >"$dir/log" 2>&1 && fail "taken: $*"; has "$dir/log" "$words"; }
refuse "--loss ce: expected --teacher argmax or data" --loss ce --teacher soft
refuse "is learnt with --loss ce" --teacher data
refuse "--outside renormalise" --loss ce --teacher data --outside renormalise
refuse "--min-lr: expected 0..0.001" --min-lr 0.01
refuse "kl|ce|lk-alpha|lk-lambda" --loss l2
"$eaglet" train --help >"$dir/log"
for option in loss outside teacher mask-rule optimizer schedule ema lm-head noise; do has "$dir/log" "--$option "; done
