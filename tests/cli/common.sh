# common.sh - how every test of the command line begins (sourced with EAGLET ROOT): a directory of its own, and a way to fail.
set -eu
eaglet=$(realpath "$1") root=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
