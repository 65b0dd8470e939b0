# The site builds, and no link in it is broken. Each page is there as Markdown, and llms.txt names pages that are there.
. packaging/test/lib.sh
sh packaging/book.sh mdbook "$work/book"
[ -s "$work/book/index.html" ] || fail "no index"
pages=$(find "$work/book" -name '*.html' | wc -l)
say "$pages pages"
for page in $(find docs -name '*.md' ! -name 'SUMMARY*' | sed 's,^docs/,,; s,\.md$,,'); do
  [ -s "$work/book/$page.html" ] && [ -s "$work/book/$page.md" ] || fail "$page has no HTML, or no Markdown"
done
grep -q '{{#include' -r "$work/book" --include='*.md' && fail "an include is left in a page"
for page in $(sed -n 's/^- \[.*\](\([^)]*\)): ..*/\1/p' "$work/book/llms.txt"); do
  [ -s "$work/book/$page" ] || fail "llms.txt names $page"
done
lychee --offline --no-progress --include-fragments --root-dir "$work/book" "$work/book/**/*.html"
lychee --offline --no-progress README.md CONTRIBUTING.md CHANGELOG.md
# It does find one.
echo '<a href="nowhere.html">x</a>' > "$work/book/broken.html"
! lychee --offline --no-progress --root-dir "$work/book" "$work/book/broken.html" || fail "a broken link was not found"
