#!/bin/sh
# test_render.sh EAGLET ROOT - `render` from the command line: the generation prompt, system turns as the template has them (B19), arguments
# for the template, and those that it does not know (B14).
. "$(dirname "$0")/common.sh"
cp "$root/models/nano-kimi/tiktoken.model" "$root/models/nano-kimi/tokenizer_config.json" "$dir/"
cat >"$dir/chat_template.jinja" <<'JINJA'
{%- if messages[0].role != 'system' %}<|im_system|>default<|im_end|>{% endif -%}
{%- for m in messages %}{% if m.role == 'system' and loop.index0 > 0 %}{{ raise_exception('a late system turn') }}{% endif %}[{{ m.role }}]{{ m.content }}<|im_end|>{% endfor -%}
{%- if add_generation_prompt %}[assistant]{% if thinking is defined and not thinking %}<think></think>{% endif %}{% endif -%}
JINJA
check() { # EXPECTED MESSAGES OPTIONS...
  expected=$1
  echo "$2" >"$dir/messages.json"
  shift 2
  found=$("$eaglet" render "$dir" --messages "$dir/messages.json" "$@" 2>"$dir/err") || fail "$(cat "$dir/err")"
  [ "$found" = "$expected" ] || fail "expected $expected, found $found"
}
refuse() { # WORDS MESSAGES OPTIONS...
  words=$1
  echo "$2" >"$dir/messages.json"
  shift 2
  "$eaglet" render "$dir" --messages "$dir/messages.json" "$@" >"$dir/out" 2>"$dir/err" && fail "accepted: $*"
  grep -q "$words" "$dir/err" || fail "expected '$words', found $(cat "$dir/err")"
}
user='{"role":"user","content":"hi"}'
check '<|im_system|>default<|im_end|>[user]hi<|im_end|>' "[$user]"
check '[system]<|im_end|>[user]hi<|im_end|>' "[{\"role\":\"system\",\"content\":\"\"},$user]"
check '[system]<|im_end|>[user]hi<|im_end|>' "[{\"role\":\"system\",\"content\":null},$user]"
check '[system]a<|im_end|>[user]hi<|im_end|>' "[{\"role\":\"system\",\"content\":\"a\"},$user]"
refuse 'a late system turn' "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"b\"},$user]"
refuse 'a late system turn' "[$user,{\"role\":\"system\",\"content\":\"b\"}]"
check '<|im_system|>default<|im_end|>[user]hi<|im_end|>[assistant]' "[$user]" --add-generation-prompt
check '<|im_system|>default<|im_end|>[user]hi<|im_end|>[assistant]<think></think>' "[$user]" --add-generation-prompt --template-arg thinking=false
check '<|im_system|>default<|im_end|>[user]hi<|im_end|>[assistant]' "[$user]" --add-generation-prompt --template-arg thinking=true
refuse 'template argument foo: the model' "[$user]" --template-arg foo=1
refuse 'expected KEY=VALUE' "[$user]" --template-arg thinking

# prepare renders the same way, says so in its manifest, and refuses what the template does not know.
cp "$root/models/nano-kimi/config.json" "$root/models/nano-kimi"/*.safetensors* "$dir/"
echo "{\"messages\":[$user,{\"role\":\"assistant\",\"content\":\"yes indeed\"}]}" >"$dir/rows.jsonl"
sed -i "s/{%- if add_generation_prompt %}/{% if thinking is defined %}<think><\/think>{% endif %}{%- if add_generation_prompt %}/" "$dir/chat_template.jinja"
"$eaglet" prepare "$dir" --data "$dir/rows.jsonl" --out "$dir/plain" --validation -1 >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
"$eaglet" prepare "$dir" --data "$dir/rows.jsonl" --out "$dir/thinking" --validation -1 --template-arg thinking=true >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
tr -d ' \n' <"$dir/thinking/manifest.json" | grep -q '"template_arguments":{"thinking":true}' || fail "the manifest does not name the arguments"
grep -q template_arguments "$dir/plain/manifest.json" && fail "arguments out of nowhere"
"$eaglet" prepare "$dir" --data "$dir/rows.jsonl" --out "$dir/other" --template-arg thinkng=true >"$dir/out" 2>"$dir/err" && fail "a misspelt argument"
grep -q 'template argument thinkng' "$dir/err" || fail "$(cat "$dir/err")"

# The rows that prepare makes, and their parts, for a template that takes thinking out of old turns.
cat >"$dir/chat_template.jinja" <<'JINJA'
{%- for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor -%}
{%- if add_generation_prompt %}[assistant]{% endif -%}
JINJA
two="[$user,{\"role\":\"assistant\",\"content\":\"<think>a</think>one\"},$user,{\"role\":\"assistant\",\"content\":\"<think>b</think>two\"}]"
check '[user]hi<|im_end|>[assistant]«one<|im_end|>»[user]hi<|im_end|>[assistant]«<think>b</think>two<|im_end|>»' "$two" --mask
grep -qF 'prepare makes 2 rows of this conversation' "$dir/err" || fail "rows: $(cat "$dir/err")"
check '[user]hi<|im_end|>[assistant]«<think>a</think>one<|im_end|>»' "$two" --mask --row 1
check '[user]hi<|im_end|>[assistant]one<|im_end|>[user]hi<|im_end|>[assistant]«<think>b</think>two<|im_end|>»' "$two" --mask --row 2
check '[user]hi<|im_end|>[assistant]<think>a</think>«one<|im_end|>»' "$two" --mask --row 1 --train-on answer
check '[user]hi<|im_end|>[assistant]«<think>a</think>»one<|im_end|>' "$two" --mask --row 1 --train-on thinking
check '[user]hi<|im_end|>[assistant]one<|im_end|>[user]hi<|im_end|>[assistant]«<think>b</think>two<|im_end|>»' "$two" --mask --last-turn
refuse 'row 3: the conversation makes 2' "$two" --mask --row 3
