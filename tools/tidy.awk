# tidy.awk - the rules of tools/tidy. Understands C as far as the house format goes: what stands at column 0 opens a definition, a body
# closes with } at column 0. Strings and comments are blanked before a line is looked at. Must run on mawk and gawk.

BEGIN {
  LINES_MAX = 1200; FUNCTION_MAX = 80; PARAMETERS_MAX = 6; ALLOW_MAX = 10
  word["TO" "DO"]; word["X" "XX"]; word["FIX" "ME"]
  descriptors = "open openat creat mmap munmap fopen freopen socket fsync ftruncate pread pwrite"
  n = split(descriptors, list, " ")
  for (i = 1; i <= n; i++) descriptor[list[i]]
}

function complain(line, message) { printf "%s:%d: %s\n", FILENAME, line, message; breaches++ }

# An exception is used up by name; what is never used is itself a breach.
function allowed(name,    key) {
  key = FILENAME ":" name
  if (!(key in reason)) return 0
  used[key] = 1
  return 1
}

# ---- ARCHITECTURE.md: rows "| module | cell | ... |" under the header "| may include ... |" ---------------------------------

function read_matrix(    i, cells, n, row) {
  n = split($0, cells, "|")
  for (i = 1; i <= n; i++) gsub(/^ +| +$/, "", cells[i])
  if (cells[2] ~ /^may include/) {
    for (i = 3; i < n; i++) column[i] = cells[i]
    columns = n - 1
    return
  }
  if (!columns || cells[2] ~ /^[-:]*$/) return
  row = cells[2]
  known[row] = 1
  for (i = 3; i <= columns; i++) {
    if (index(cells[i], "•")) may[row, column[i]] = 1
    if (match(cells[i], /through [a-z_]+\.h/)) may[row "/" substr(cells[i], RSTART + 8, RLENGTH - 8), column[i]] = 1
    if (match(cells[i], /[a-z_]+\/[a-z_]+\.h/)) may[row, substr(cells[i], RSTART, RLENGTH)] = 1
  }
}

FILENAME == matrix { if (/^\|/) read_matrix(); else if (columns) columns = 0; next }

FILENAME == allow {
  if (/^ *(#|$)/) next
  if (NF < 2) complain(FNR, "an exception needs a reason: file:function reason")
  reason[$1] = FNR
  if (++exceptions > ALLOW_MAX) complain(FNR, "more than " ALLOW_MAX " exceptions")
  next
}

# ---- text of a line without comments and strings -------------------------------------------------------------------------------

function code_of(line,    out, c, two, i, n) {
  out = ""
  n = length(line)
  for (i = 1; i <= n; i++) {
    c = substr(line, i, 1)
    two = substr(line, i, 2)
    if (in_comment) {
      if (two == "*/") { in_comment = 0; i++ }
    } else if (two == "/*") { in_comment = 1; i++ }
    else if (two == "//") break
    else if (c == "\"" || c == "'") {
      out = out c
      for (i++; i <= n && substr(line, i, 1) != c; i++) if (substr(line, i, 1) == "\\") i++
      out = out c
    } else out = out c
  }
  sub(/[ \t]+$/, "", out)
  return out
}

# ---- includes --------------------------------------------------------------------------------------------------------------------

function check_include(line,    name, target, cuda) {
  if (!match(line, /[<"][^>"]*[>"]/)) return
  cuda = line ~ /[<"](cuda|cublas|curand|cudnn|nvrtc|nvtx|mma\.h|cooperative_groups)/
  if (cuda && FILENAME !~ /^src\/compute\/cuda\//) complain(FNR, "CUDA headers belong to src/compute/cuda")
  name = substr(line, RSTART + 1, RLENGTH - 2)
  if (name ~ /\.c$/) complain(FNR, "a .c file is not included: " name)
  if (module == "" || substr(line, RSTART, 1) == "<") return
  if (name == "eaglet.h") {
    if (!((module, "eaglet.h") in may) && !((module_file, "eaglet.h") in may) && module != "serve")
      complain(FNR, module " may not include eaglet.h (ARCHITECTURE.md)")
    return
  }
  if (name !~ /\//) { complain(FNR, "write the include as \"module/file.h\": " name); return }
  target = name
  sub(/\/.*/, "", target)
  if (target == module) return
  if (name ~ /_internal\.h$/) complain(FNR, name " is internal to " target)
  if (!(module in known) && module != "serve") complain(FNR, "module " module " has no row in the matrix of ARCHITECTURE.md")
  else if (!((module, target) in may) && !((module, name) in may) && !(module == "serve" && target == "base"))
    complain(FNR, module " may not include " target " (ARCHITECTURE.md): " name)
}

# ---- definitions at column 0 ------------------------------------------------------------------------------------------------------

# Number of parameters in the last top-level parentheses of a signature; the name before them goes to `name`.
function count_parameters(signature,    i, c, depth, open, close_at, n, inside) {
  depth = 0; open = 0; close_at = 0
  for (i = 1; i <= length(signature); i++) {
    c = substr(signature, i, 1)
    if (c == "(" && depth++ == 0) open = i
    if (c == ")" && --depth == 0) close_at = i
  }
  name = substr(signature, 1, open - 1)
  sub(/[ \t]+$/, "", name)
  sub(/.*[^A-Za-z0-9_]/, "", name)
  inside = substr(signature, open + 1, close_at - open - 1)
  gsub(/^[ \t]+|[ \t]+$/, "", inside)
  if (inside == "" || inside == "void") return 0
  n = 1; depth = 0
  for (i = 1; i <= length(inside); i++) {
    c = substr(inside, i, 1)
    if (c == "(") depth++
    if (c == ")") depth--
    if (c == "," && depth == 0) n++
  }
  return n
}

function begin_function(    head, n) {
  head = signature
  sub(/[ \t]*\{.*/, "", head)
  n = count_parameters(head)
  function_name = name
  if (n > PARAMETERS_MAX && !allowed(name)) complain(start, name " has " n " parameters, at most " PARAMETERS_MAX)
}

function end_function(    length_lines) {
  length_lines = FNR - start + 1
  if (length_lines > FUNCTION_MAX && !allowed(function_name))
    complain(start, function_name " is " length_lines " lines long, at most " FUNCTION_MAX)
}

# The first parenthesis of a variable that points to a function holds its star: int (*f)(void).
function is_function(head) { return head ~ /\(/ && head !~ /^[^(]*\([ \t]*\*/ }

# A variable at file scope, or a static one inside a function, must be const, through and through. Tests may keep fixtures.
function check_variable(text, line,    declarator, name) {
  if (FILENAME ~ /^tests\//) return
  if (text ~ /^[ \t]*(typedef|extern|_Static_assert|static_assert)/) return
  declarator = text
  while (gsub(/\{[^{}]*\}/, "", declarator)); # members and initialisers on one line
  sub(/[ \t]*=.*/, "", declarator)
  sub(/;.*/, "", declarator)
  if (is_function(declarator)) return
  name = declarator
  sub(/(\[[^]]*\])+$/, "", name)
  sub(/\).*/, "", name)
  sub(/.*[^A-Za-z0-9_]/, "", name)
  if (declarator ~ /\*/) sub(/.*\*/, "", declarator)
  if (declarator ~ /(^|[^A-Za-z0-9_])(const|constexpr|__constant__)([^A-Za-z0-9_]|$)/) return
  if (name != "" && !allowed(name)) complain(line, "mutable global: " name)
}

# Decides what the text collected from column 0 up to { or ; is.
function classify(    head) {
  head = signature
  sub(/[ \t]*=.*/, "", head)
  if (signature ~ /^(struct|union|enum)[^(={]*\{/) { state = "type"; return }
  if (signature ~ /^typedef/) { state = "type"; return }
  if (signature ~ /^extern ""/) { state = "top"; return }
  if (is_function(head) && signature ~ /\{/ && signature !~ /^[^(]*=/) { begin_function(); state = "function"; return }
  if (signature ~ /^static [^=(]*(struct|union)( [a-z_0-9]+)? \{/) { # static const struct { ... } table[] = {
    if (signature !~ /const/) check_variable(signature, start)
    state = "type"
    return
  }
  if (signature ~ /^(struct|union|enum) [A-Za-z_0-9]+;/) { state = "top"; return }
  check_variable(signature, start)
  state = signature ~ /\{[^}]*$/ ? "data" : signature ~ /;/ ? "top" : "data"
}

# Braces opened and not closed by text.
function braces(text,    copy, opened) {
  copy = text
  opened = gsub(/\{/, "", copy)
  return opened - gsub(/\}/, "", copy)
}

function scan(code) {
  if (state == "top") {
    if (code !~ /^[A-Za-z_]/) return
    if (code ~ /^[A-Z_0-9]+(\(.*\))?$/) return # a macro on its own line
    signature = ""; start = FNR; state = "signature"
  }
  if (state == "signature") {
    signature = signature " " code
    sub(/^ /, "", signature)
    if (code !~ /[{;]/) return
    classify()
    if (state == "function" && code ~ /\}$/) { end_function(); state = "top" } # on one line
    depth = braces(signature)
    if (state != "function" && depth == 0 && signature ~ /;/) state = "top"
    return
  }
  if (state == "function" && code ~ /^\}/) { end_function(); state = "top"; return }
  if (state == "function" && code ~ /^[ \t]+static[ \t]/) check_variable(code, FNR)
  if (state == "type" || state == "data") {
    depth += braces(code)
    if (depth == 0 && code ~ /;/) state = "top"
  }
}

# ---- calls and words ---------------------------------------------------------------------------------------------------------------

function check_words(line,    rest, w) {
  rest = line
  while (match(rest, /[A-Za-z_][A-Za-z0-9_]*/)) {
    w = substr(rest, RSTART, RLENGTH)
    rest = substr(rest, RSTART + RLENGTH)
    if (w in word) complain(FNR, w " is not used here; write NEEDSWORK: with the question")
  }
}

function check_calls(code,    rest, w, before, member) {
  rest = code
  while (match(rest, /[A-Za-z_][A-Za-z0-9_]*\(/)) {
    w = substr(rest, RSTART, RLENGTH - 1)
    if ((w == "getenv" || w == "secure_getenv") && FILENAME != "src/base/env.c") complain(FNR, w " belongs to src/base/env.c")
    before = substr(rest, 1, RSTART - 1)
    member = before ~ /(\.|->)$/
    if ((w in descriptor) && !member && module != "base" && module != "serve") complain(FNR, w "() belongs to src/base/file.c")
    rest = substr(rest, RSTART + RLENGTH)
  }
}

# ---- main ----------------------------------------------------------------------------------------------------------------------------

function finish_file() {
  if (current == "") return
  if (last_line > LINES_MAX) { printf "%s:%d: %d lines, at most %d\n", current, last_line, last_line, LINES_MAX; breaches++ }
  if (state != "top") { printf "%s:%d: a definition is not closed by } at column 0\n", current, start; breaches++ }
}

FNR == 1 {
  finish_file()
  current = FILENAME
  files++
  state = "top"; in_comment = 0; continued = 0
  module = ""; module_file = ""
  if (FILENAME ~ /^src\//) {
    module_file = substr(FILENAME, 5)
    module = module_file
    sub(/\/.*/, "", module)
  }
  if ($0 !~ /^\/[*\/]/) complain(1, "opens without a comment (what it owns, its invariant, what it does not do)")
}

{
  last_line = FNR
  check_words($0)
  was_comment = in_comment
  if (!was_comment && /^[ \t]*#[ \t]*include/) check_include($0)
  directive = !was_comment && /^[ \t]*#/
  skip = directive || continued
  code = code_of($0)
  continued = skip && /\\$/
  if (module != "") check_calls(code)
  if (!skip) scan(code)
}

END {
  finish_file()
  FILENAME = allow
  if (all) for (key in reason) if (!(key in used)) complain(reason[key], "this exception is not needed any more: " key)
  if (breaches) { printf "tidy: %d breaches in %d files\n", breaches, files; exit 1 }
  printf "tidy: %d files keep the rules\n", files
}
