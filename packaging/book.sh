# The documentation as a site: sh packaging/book.sh MDBOOK FOLDER
#
# The pages for users and those for contributors have a contents each (docs/SUMMARY.md, docs/SUMMARY.contributors.md):
# two books in one folder, whose links meet. Each page stands beside its HTML as Markdown, and llms.txt lists the pages
# for users (https://llmstxt.org).
set -eu
mdbook=$1 site=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -R docs wit book.toml "$work"
mv "$work/docs/SUMMARY.contributors.md" "$work/docs/SUMMARY.md"
MDBOOK_BOOK__TITLE="hostler, inside" "$mdbook" build --dest-dir "$site" "$work"
# Both have an index, a 404 and a page to print: those of users win.
"$mdbook" build --dest-dir "$work/users" .
cp -R "$work/users/." "$site"

cd docs
find . -name '*.md' ! -name 'SUMMARY*' | while read -r page; do
  # Included files, as mdbook includes them.
  awk -v folder="$(dirname "$page")" '
    /^\{\{#include .*\}\}$/ {
      file = $0; sub(/^\{\{#include /, "", file); sub(/\}\}$/, "", file)
      while ((getline line < (folder "/" file)) > 0) print line
      next
    }
    { print }
  ' "$page" > "$site/$page"
done
cd ..
sh packaging/llms.sh > "$site/llms.txt"
