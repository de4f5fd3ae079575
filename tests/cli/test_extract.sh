#!/bin/sh
# test_extract.sh EAGLET ROOT - extract on the command line: the table of --dry-run, ranks from flags and from launchers, --check and its exit
# code, training from what was written for other programs.
. "$(dirname "$0")/common.sh"
model=$root/models/nano-kimi
expect() { # CODE WORDS COMMAND...: the exit code, and words on standard error
  code=0 wanted=$1 words=$2
  shift 2
  "$@" >"$dir/out" 2>"$dir/err" || code=$?
  [ "$code" = "$wanted" ] || fail "exit code $code, expected $wanted: $* ($(cat "$dir/err"))"
  [ -z "$words" ] || grep -qF -- "$words" "$dir/err" || fail "no '$words': $* ($(cat "$dir/err"))"
}
rows() { sed -n 's/.*"shards_of_rank":\([0-9]*\).*/\1/p' "$dir/out"; }

i=0
while [ $i -lt 70 ]; do
  printf '{"messages":[{"role":"user","content":"number %d"},{"role":"assistant","content":"it is %d"}]}\n' $i $i
  i=$((i + 1))
done >"$dir/rows.jsonl"
expect 0 "" "$eaglet" prepare "$model" --data "$dir/rows.jsonl" --out "$dir/data" --validation -1 --quiet
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE SLURM_PROCID SLURM_NTASKS

# The announcement.
expect 0 "" "$eaglet" extract "$model" --data "$dir/data" --out "$dir/features" --dry-run --threads 1 --quiet
for word in bf16 f32 fp8 aux "fits, chosen" "free: "; do grep -qF "$word" "$dir/out" || fail "no '$word' in the table"; done
[ ! -e "$dir/features" ] || fail "--dry-run made a directory"
expect 2 "expected --data DIR and --out DIR" "$eaglet" extract "$model" --out "$dir/features"
expect 2 "expected MODEL" "$eaglet" extract --data "$dir/data" --out "$dir/features"
expect 2 "--store" "$eaglet" extract "$model" --data "$dir/data" --out "$dir/features" --store int4

# Two shards over two ranks: one by a launcher's environment, one by flags that win over it. Until then one is missing.
SLURM_PROCID=1 SLURM_NTASKS=2 expect 0 "" "$eaglet" extract "$model" --data "$dir/data" --out "$dir/features" --threads 1 --quiet
grep -q "rank 1 of 2: 1 of 2 shards are its own" "$dir/out" || fail "SLURM's rank"
[ ! -e "$dir/features/rows-00000.safetensors" ] && [ -e "$dir/features/rows-00001.safetensors" ] || fail "the wrong shard"
expect 6 "1 of its shards are missing" "$eaglet" extract --check "$dir/features" --data "$dir/data" --quiet
grep -q "rows-00000.safetensors: not there" "$dir/out" || fail "no name of what is missing"
expect 2 "expected --world with it" "$eaglet" extract "$model" --data "$dir/data" --out "$dir/features" --rank 0
PMI_RANK=1 PMI_SIZE=2 OMPI_COMM_WORLD_RANK=1 expect 0 "" "$eaglet" extract "$model" --data "$dir/data" --out "$dir/features" --rank 0 --world 2 --threads 1 --quiet --json
[ "$(rows)" = 1 ] || fail "flags against the environment"
expect 0 "" "$eaglet" extract "$model" --check "$dir/features" --data "$dir/data" --quiet --threads 1
grep -q "slot 3: state 8" "$dir/out" || fail "no measured states"
OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=2 expect 0 "" "$eaglet" extract "$model" --data "$dir/data" --out "$dir/features" --threads 1 --quiet --json
[ "$(rows)" = 2 ] || fail "a rank outside its world is none"

# Damage: exit code 6, and which file.
printf x | dd of="$dir/features/rows-00001.safetensors" bs=1 seek=4000 conv=notrunc 2>/dev/null
expect 6 "rows-00001.safetensors" "$eaglet" extract --check "$dir/features" --quiet
expect 3 "manifest.json" "$eaglet" extract --check "$dir" --quiet

# What others read, read by us.
expect 0 "" "$eaglet" extract "$model" --data "$dir/data" --out "$dir/theirs" --format speculators --threads 1 --quiet
expect 0 "" "$eaglet" extract --check "$dir/theirs" --data "$dir/data" --quiet
expect 0 "" "$eaglet" train "$model" --data "$dir/data" --features "$dir/theirs" --out "$dir/head" --steps 1 --batch 2 --unroll 1 --threads 1 --quiet
grep -q "slot 3 of the features: state 8 (error 0.00" "$dir/out" || fail "no table of states"
rm "$dir/theirs/hs_3.safetensors"
expect 3 "has states of 69 of 70 rows" "$eaglet" train "$model" --data "$dir/data" --features "$dir/theirs" --out "$dir/head2" --steps 1 --threads 1 --quiet
expect 0 "" "$eaglet" train "$model" --data "$dir/data" --features "$dir/theirs" --features-partial --out "$dir/head2" --steps 1 --batch 2 --unroll 1 --threads 1 --quiet

# Samples that hold ids and masks are data themselves, but no vocabulary.
mkdir "$dir/samples"
cp "$root/tests/data/torch/sample.pt" "$dir/samples/data_0.pt"
expect 0 "" "$eaglet" extract --check "$dir/samples" --quiet
grep -q "speculators 0.3: 1 files, 1 rows, 6 tokens; 0 wrong" "$dir/out" || fail "the check of a sample"
expect 3 "do not say how large the vocabulary is" "$eaglet" vocab --data "$dir/samples" --out "$dir/vocab.safetensors"
expect 3 "hidden size: expected 320 (the target's), found 3" "$eaglet" train "$model" --data "$dir/samples" --features "$dir/samples" --out "$dir/head3" --steps 1 --quiet
expect 6 "hidden size: expected 320" "$eaglet" extract "$model" --check "$dir/samples" --quiet
echo ok
