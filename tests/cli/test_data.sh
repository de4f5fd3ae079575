#!/bin/sh
# test_data.sh EAGLET ROOT - `prepare` over the ways in which people have data: packed, through a pipe, in a folder, as a pattern, under other names,
# with bad rows; what it prints of what it met (bug case C01), and the exit codes of what it refuses.
. "$(dirname "$0")/common.sh"
prepare() { "$eaglet" prepare "$root/models/nano-kimi" --out "$dir/out" --quiet "$@" >"$dir/stdout" 2>"$dir/err"; }
says() { # WORDS OPTIONS...
  words=$1
  shift
  prepare "$@" || fail "$*: $(cat "$dir/err")"
  grep -qF -- "$words" "$dir/stdout" || fail "$*: expected '$words', found $(cat "$dir/stdout")"
}
refuses() { # CODE WORDS OPTIONS...
  code=$1 words=$2
  shift 2
  found=0
  prepare "$@" || found=$?
  [ "$found" -eq "$code" ] || fail "$*: expected exit code $code, found $found: $(cat "$dir/err")"
  grep -qF -- "$words" "$dir/err" || fail "$*: expected '$words', found $(cat "$dir/err")"
}
mkdir "$dir/data"
for i in 1 2 3; do
  echo "{\"id\":$i,\"conversations\":[{\"from\":\"human\",\"value\":\"question $i\"},{\"from\":\"gpt\",\"value\":\"answer $i\"}]}"
done >"$dir/data/a.jsonl"
sed 's/question/another/' "$dir/data/a.jsonl" | gzip >"$dir/data/b.jsonl.gz"
echo text >"$dir/data/notes.txt"
says '3 conversations read, 3 kept' --data "$dir/data/a.jsonl"
grep -qF 'fields used: conversations' "$dir/stdout" || fail "fields: $(cat "$dir/stdout")"
grep -qF 'fields ignored: id' "$dir/stdout" || fail "fields: $(cat "$dir/stdout")"
grep -qF 'roles: human = user, gpt = assistant' "$dir/stdout" || fail "roles: $(cat "$dir/stdout")"
says '6 conversations read, 6 kept' --data "$dir/data"
grep -qF "files not read: $dir/data/notes.txt" "$dir/stdout" || fail "files: $(cat "$dir/stdout")"
says '6 conversations read, 6 kept' --data "$dir/data/*.jsonl*"
says '3 conversations read, 3 kept' --data - <"$dir/data/b.jsonl.gz"
(
  printf '['
  paste -sd, "$dir/data/a.jsonl"
  printf ']'
) | says '3 conversations read, 3 kept' --data -
refuses 3 'no file matches this pattern' --data "$dir/data/*.csv"
refuses 3 'expected data files in this folder' --data "$dir/out/../data/../"

sed 's/conversations/dialog/; s/from/speaker/g; s/gpt/bot/; s/human/client/' "$dir/data/a.jsonl" >"$dir/named.jsonl"
refuses 3 'named.jsonl:1: expected conversations or messages' --data "$dir/named.jsonl"
says 'roles: client = user, bot = assistant' --data "$dir/named.jsonl" --map messages=dialog,role=speaker,content=value,user=client,assistant=bot
refuses 2 '--map: expected NAME=FIELD' --data "$dir/named.jsonl" --map dialogs=dialog

{
  cat "$dir/data/a.jsonl"
  echo '{"broken'
} >"$dir/bad.jsonl"
refuses 3 'bad.jsonl:4: row: line 4' --data "$dir/bad.jsonl"
says 'passed over 1 bad rows: not JSON' --data "$dir/bad.jsonl" --max-bad 25
grep -qF 'bad.jsonl:4: row: line 4' "$dir/err" || fail "warning: $(cat "$dir/err")"
refuses 3 '1 of 4 rows are bad, more than 24 % (--max-bad): not JSON (1)' --data "$dir/bad.jsonl" --max-bad 24
sed '2s/gpt/narrator/' "$dir/data/a.jsonl" >"$dir/role.jsonl"
says "dropped 1: unknown role 'narrator'" --data "$dir/role.jsonl"
refuses 3 "role.jsonl:2: message 1: role: expected human, user" --data "$dir/role.jsonl" --strict
head -c 40 "$dir/data/b.jsonl.gz" >"$dir/cut.gz"
refuses 3 'cut.gz: the packed data ends in the middle (cut short?)' --data "$dir/cut.gz" --max-bad 100

# Ids that stand twice are told (C10); the rows are kept, being different.
sed 's/"id":3/"id":1/' "$dir/data/a.jsonl" >"$dir/twice.jsonl"
says "1 rows have an id that an earlier row has, the first: $dir/twice.jsonl:3: id 1" --data "$dir/twice.jsonl"
says '3 conversations read, 3 kept' --data "$dir/twice.jsonl" --force
