#!/bin/sh
# test_names.sh EAGLET ROOT - names of models through the command line: a made-up hub cache in the places that the environment names, every
# command that takes a model or a head, exit codes of what is not there; --ignore-index. Method: the models that ship, linked as the
# hub's client links them.
. "$(dirname "$0")/common.sh"
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME
commit=0123456789abcdef0123456789abcdef01234567

cache() { # CACHE NAME SOURCE: a repository of one snapshot
  repo=$1/models--acme--$2
  mkdir -p "$repo/refs" "$repo/blobs" "$repo/snapshots/$commit"
  printf %s "$commit" >"$repo/refs/main"
  for file in "$3"/*; do
    name=$(basename "$file")
    cp "$file" "$repo/blobs/$2-$name"
    ln -s "../../blobs/$2-$name" "$repo/snapshots/$commit/$name"
  done
}
fail() {
  echo "FAILED: $*" >&2
  cat "$dir/err" >&2
  exit 1
}
expect() { # CODE WORDS COMMAND...: the exit code, and words on standard error
  code=0 wanted=$1 words=$2
  shift 2
  "$@" >"$dir/out" 2>"$dir/err" || code=$?
  [ "$code" = "$wanted" ] || fail "exit code $code, expected $wanted: $*"
  [ -z "$words" ] || grep -qF -- "$words" "$dir/err" || fail "no '$words': $*"
}

cache "$dir/home/.cache/huggingface/hub" nano "$root/models/nano-kimi"
cache "$dir/home/.cache/huggingface/hub" head "$root/models/nano-kimi-eagle3"
hub=$dir/home/.cache/huggingface/hub
printf '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b c d"}]}\n' >"$dir/rows.jsonl"
printf '[{"role":"user","content":"a"}]' >"$dir/messages.json"

# Where the cache is.
HOME=$dir/home expect 0 "" "$eaglet" tokenize acme/nano --text hello
HOME=/nowhere HF_HOME=$dir/home/.cache/huggingface expect 0 "" "$eaglet" tokenize acme/nano --text hello
HOME=/nowhere XDG_CACHE_HOME=$dir/home/.cache expect 0 "" "$eaglet" tokenize acme/nano --text hello
HF_HOME=/nowhere HUGGINGFACE_HUB_CACHE=$hub expect 0 "" "$eaglet" tokenize acme/nano --text hello
HF_HUB_CACHE=/nowhere HUGGINGFACE_HUB_CACHE=$hub expect 3 "there is no such cache" "$eaglet" tokenize acme/nano --text hello
export HF_HUB_CACHE=$hub

# Every command that takes a model or a head.
expect 0 "" "$eaglet" inspect acme/nano@main --draft acme/head --json
expect 0 "" "$eaglet" render "acme/nano@${commit%????????}" --messages "$dir/messages.json"
expect 0 "" "$eaglet" generate acme/nano --draft "acme/head@$commit" --prompt hello --max-tokens 4 --threads 1
expect 0 "" "$eaglet" prepare acme/nano --data "$dir/rows.jsonl" --out "$dir/data" --validation -1
expect 0 "" "$eaglet" extract acme/nano --data "$dir/data" --out "$dir/features" --threads 1
expect 0 "" "$eaglet" train acme/nano --init acme/head --data "$dir/data" --out "$dir/trained" --steps 1 --unroll 1 --threads 1 --quiet
expect 0 "" "$eaglet" eval acme/nano --draft acme/head --prompts "$dir/rows.jsonl" --max-tokens 4 --threads 1 --quiet

# What is not there, and what it says.
expect 3 "near: acme/nano" "$eaglet" inspect acme/nana
expect 3 "get it with \`hf download acme/nano --revision v2\`" "$eaglet" inspect acme/nano@v2
expect 3 "not in the hub cache" "$eaglet" generate acme/nano --draft acme/none --prompt hello
rm "$hub/models--acme--nano/blobs/nano-config.json"
expect 3 "links to nothing" "$eaglet" inspect acme/nano

# A directory of that name wins.
mkdir -p "$dir/here/acme"
ln -s "$root/models/nano-kimi" "$dir/here/acme/nano"
cd "$dir/here"
expect 0 "" "$eaglet" tokenize acme/nano --text hello

# A stale index (A09): refused, unless the files themselves are asked for.
mkdir "$dir/stale"
cp "$root"/models/nano-kimi/* "$dir/stale/"
sed -i 's/model-00001-of-000002/model-00002-of-000002/' "$dir/stale/model.safetensors.index.json"
expect 3 "--ignore-index" "$eaglet" inspect "$dir/stale"
expect 0 "" "$eaglet" inspect "$dir/stale" --ignore-index
expect 0 "" "$eaglet" generate "$dir/stale" --ignore-index --prompt hello --max-tokens 2 --threads 1
echo ok
