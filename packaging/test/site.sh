# The site builds, and no link in it is broken.
. packaging/test/lib.sh
mdbook build --dest-dir "$work/book" "$root"
[ -s "$work/book/index.html" ] || fail "no index"
pages=$(find "$work/book" -name '*.html' | wc -l)
say "$pages pages"
lychee --offline --no-progress --include-fragments --root-dir "$work/book" "$work/book/**/*.html"
lychee --offline --no-progress README.md CONTRIBUTING.md CHANGELOG.md
# It does find one.
echo '<a href="nowhere.html">x</a>' > "$work/book/broken.html"
! lychee --offline --no-progress --root-dir "$work/book" "$work/book/broken.html" || fail "a broken link was not found"
