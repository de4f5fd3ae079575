#!/bin/sh
# test_generate.sh EAGLET ROOT - `generate` from the command line: continuations of raw prompts join the prompt's text (the golden texts of
# stories260k, a trained model that is not ours), ids in and ids out without a
# tokenizer, a word about a head that drafts in vain.
. "$(dirname "$0")/common.sh"

# ids alone: the tiny checkpoints have no tokenizer
echo '[5, 6, 7]' >"$dir/ids.json"
"$eaglet" generate "$root/tests/data/arch/gpt2" --tokens "$dir/ids.json" -n 4 --ignore-eos >"$dir/out" 2>"$dir/err" || fail "ids: $(cat "$dir/err")"
[ "$(wc -w <"$dir/out")" = 4 ] || fail "expected four ids, found $(cat "$dir/out")"
grep -q 'ids are printed as ids' "$dir/err" || fail "no word about the missing tokenizer"
"$eaglet" generate "$root/tests/data/arch/gpt2" --tokens "$dir/ids.json" -n 4 --json 2>/dev/null | grep -q '"text":null' || fail "text of no tokenizer"
"$eaglet" generate "$root/tests/data/arch/gpt2" --tokens "$dir/ids.json" -n 4 --json --logprobs 2 --prompt-logprobs 1 >"$dir/out" 2>"$dir/err" || fail "logprobs: $(cat "$dir/err")"
grep -q '"prompt_logprobs":\[null,' "$dir/out" || fail "expected a first prompt token without a logprob, found $(cat "$dir/out")"
"$eaglet" generate "$root/tests/data/arch/gpt2" --prompt hello -n 4 >/dev/null 2>&1 && fail "a prompt without a tokenizer"

# A head that does not belong to the target (A26: here its view of the target is turned upside down) drafts in vain: that is said.
if command -v python3 >/dev/null; then
  mkdir "$dir/head"
  cp "$root/models/nano-kimi-eagle3/config.json" "$dir/head/"
  python3 - "$root/models/nano-kimi-eagle3/model.safetensors" "$dir/head/model.safetensors" <<'PYTHON'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8 : 8 + length])
for name in ("midlayer.hidden_norm.weight", "midlayer.input_layernorm.weight", "norm.weight"):
    begin, end = header[name]["data_offsets"]
    for at in range(8 + length + begin + 1, 8 + length + end, 2):
        data[at] ^= 0x80  # the sign of a BF16
open(sys.argv[2], "wb").write(data)
PYTHON
  "$eaglet" generate "$root/models/nano-kimi" --prompt "The sea is" -n 100 --ignore-eos --draft "$dir/head" >"$dir/other" 2>"$dir/err" || fail "$(cat "$dir/err")"
  grep -q 'was it trained for this target' "$dir/err" || fail "no word about drafts in vain: $(cat "$dir/err")"
  "$eaglet" generate "$root/models/nano-kimi" --prompt "The sea is" -n 100 --ignore-eos --draft "$root/models/nano-kimi-eagle3" >"$dir/out" 2>"$dir/err"
  grep -q 'was it trained' "$dir/err" && fail "a word about a head that fits"
  cmp -s "$dir/out" "$dir/other" || fail "a head changed the text"
fi

stories=${EAGLET_TEST_SHARED:-}/public/stories260k
if [ ! -f "$stories/golden.json" ] || ! command -v python3 >/dev/null; then
  echo "skip: no golden texts or no python3"
  exit 0
fi
"$eaglet" verify "$stories" --reference "$stories/reference.safetensors" >"$dir/out" 2>&1 || fail "$(tail -1 "$dir/out")"
python3 - "$eaglet" "$stories" <<'PYTHON'
import json, subprocess, sys
eaglet, stories = sys.argv[1:]
golden = json.load(open(stories + "/golden.json"))
assert len(golden) >= 4
for case in golden:
    command = [eaglet, "generate", stories, "--prompt", case["text"], "-n", str(len(case["output_ids"])), "--precision", "exact", "--threads", "1", "-q"]
    out = json.loads(subprocess.run(command + ["--json"], capture_output=True, check=True).stdout)
    assert out["prompt_ids"] == case["prompt_ids"], (case["text"], out["prompt_ids"], case["prompt_ids"])
    assert out["output_ids"] == case["output_ids"], case["text"]
    assert case["text"] + out["text"] == case["output_text"], (case["text"], out["text"][:60], case["output_text"][:60])
    streamed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert streamed == out["text"] + "\n", (streamed[-60:], out["text"][-60:])
PYTHON
