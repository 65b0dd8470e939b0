# What the tests of packages share. They run in the root of the repository; DIST has the packages, VERSION their
# version, TOOLS the tools, KEDA the schemas of KEDA.
set -eu
root=$(pwd)
work=$(mktemp -d)
clean() { rm -rf "$work"; }
trap clean EXIT

say() { printf '   %s\n' "$*"; }
skip() { printf 'skipped: %s\n' "$*"; exit 77; }
fail() { printf 'failed: %s\n' "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null || skip "$1 is not installed (apt-get install ${2:-$1})"; }
package() {
  for found in "$DIST"/$1; do
    [ -e "$found" ] || fail "no $1 in $DIST: run make dist"
    echo "$found"
    return
  done
}

# The blocks of one run of the pages of Get started, as one script.
blocks() {
  for page in install first-handler your-redis production; do
    awk -v run="$1" '
      /^<!-- run: / { runs = $0; sub(/^<!-- run: /, " ", runs); sub(/ -->$/, " ", runs); next }
      /^```sh/ { is_open = index(runs, " " run " ") > 0; inside = 1; runs = ""; next }
      /^```$/ { inside = 0; is_open = 0; next }
      inside && is_open { print }
    ' "$root/docs/start/$page.md"
  done
}

# Run the blocks of one run here, to the letter.
follow() {
  blocks "$1" > "$work/follow-$1.sh"
  [ -s "$work/follow-$1.sh" ] || fail "Get started has no block for $1"
  sh -eux "$work/follow-$1.sh"
}
