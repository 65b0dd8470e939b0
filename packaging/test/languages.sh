# The first handler in each language, with the binary of the archive, as the page says. It prints the minutes and
# megabytes of each, from nothing but the tools that the page asks for.
. packaging/test/lib.sh
has redis-server
tar -xzf "$(package "hostler-$VERSION-$(uname -m)-linux.tar.gz")" -C "$work"
export PATH="$work/hostler-$VERSION-$(uname -m)-linux/bin:$PATH" XDG_CACHE_HOME="$work/cache"
first() {
  mkdir "$work/$1"
  cd "$work/$1"
  begun=$(date +%s)
  follow "$1" > "$work/$1.out" 2> "$work/$1.err" || { tail -n 40 "$work/$1.err"; fail "the first handler in $1"; }
  grep -q '"acked":1' "$work/$1.out" || fail "$1: no ack"
  grep -q '"dead_lettered":{"dropped":1}' "$work/$1.out" || fail "$1: nothing was dropped"
  say "$1: $(($(date +%s) - begun)) s, $(du -sm "$work/$1" | cut -f1) MB"
}
# Rust, by `follow rust`; the others by `follow ts`, `follow python` and `follow go`.
for language in ${LANGUAGES:-rust ts python go}; do
  (first "$language")
done
