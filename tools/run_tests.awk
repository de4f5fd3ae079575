# run_tests.awk - sums TAP results over Meson's test logs for tools/run_tests: failures are told with what the program printed.

function finish_program(    i, lost, foreign) {
  if (program == "") return
  foreign = planned == 0
  if (foreign) { # not a cmocka program, or one that died before its first test
    planned = 1
    if (result == "exit status 0") ok = 1
    else if (result == "exit status 77") skipped = 1
  }
  lost = planned - ok - skipped - failed_here
  if (lost > 0) failed_here += lost
  if (result != "exit status 0" && result != "exit status 77" && failed_here == 0) failed_here = 1
  if (failed_here > 0) {
    printf "FAILED: %s (%s)\n", program, result
    for (i = 0; i < n_notes; i++) print "  " notes[i]
    if (foreign) for (i = 0; i < n_stdout; i++) print "  " stdout_lines[i]
    if (lost > 0) {
      if (!foreign) printf "  %d of %d tests gave no result\n", lost, planned
      for (i = n_stderr > 60 ? n_stderr - 60 : 0; i < n_stderr; i++) print "  " stderr_lines[i]
    }
  }
  for (i = 0; i < n_skips; i++) print skips[i]
  all_ok += ok; all_failed += failed_here; all_skipped += skipped
  program = ""
}

/^test:  / { finish_program(); program = $0; sub(/^test: */, "", program)
  planned = ok = skipped = failed_here = n_notes = n_stdout = n_stderr = n_skips = 0; result = "no result"; section = ""; bad = 0; next }
/^result:  / && section == "" { result = $0; sub(/^result: */, "", result); next }
/^-+ stdout -+$/ { section = "stdout"; next }
/^-+ stderr -+$/ { section = "stderr"; next }
/^=+$/ { section = ""; next }
section == "stderr" { stderr_lines[n_stderr++] = $0; next }
section != "stdout" { next }
planned == 0 { stdout_lines[n_stdout++] = $0 }
/^1\.\.[0-9]+$/ { planned += substr($0, 4); next }
/skip: / && n_skips < 5 { skips[n_skips++] = program ": " $0 }
/not ok [0-9]+ # SKIP/ { skipped++; next }
/not ok [0-9]+ - / { failed_here++; bad = 1; notes[n_notes++] = $0; next }
/ok [0-9]+ - / { ok++; bad = 0; next }
bad && /^#/ { notes[n_notes++] = $0 }

END {
  finish_program()
  printf "%d passed, %d failed, %d skipped\n", all_ok, all_failed, all_skipped
  exit all_failed > 0 || all_ok == 0
}
