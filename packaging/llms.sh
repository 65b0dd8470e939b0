# Prints llms.txt (https://llmstxt.org): the pages of docs/SUMMARY.md as Markdown, each with its first sentence.
set -eu
awk '
# The first paragraph of a page, as one line.
function paragraph(page,    line, text, is_code) {
  text = ""; is_code = 0
  while ((getline line < ("docs/" page)) > 0) {
    if (line ~ /^ *```/) is_code = !is_code
    if (line == "" && text != "") break
    if (is_code || line == "" || line ~ /^([#|<!]|    |```)/) continue
    text = text (text == "" ? "" : " ") line
  }
  close("docs/" page)
  gsub(/\*\*/, "", text)
  while (match(text, /\[[^]]*\]\([^)]*\)/)) {
    link = substr(text, RSTART + 1, index(substr(text, RSTART), "]") - 2)
    text = substr(text, 1, RSTART - 1) link substr(text, RSTART + RLENGTH)
  }
  return text
}
function sentence(text) {
  sub(/:$/, ".", text)
  return match(text, /\. /) ? substr(text, 1, RSTART) : text
}
/^# Summary/ { next }
/^# / { printf "\n## %s\n\n", substr($0, 3); next }
match($0, /\[.*\]\(/) {
  title = substr($0, RSTART + 1, RLENGTH - 3)
  page = substr($0, RSTART + RLENGTH); sub(/\).*/, "", page)
  if (!has_begun++) { printf "# %s\n\n> %s\n", title, paragraph(page); next }
  printf "- [%s](%s): %s\n", title, page, sentence(paragraph(page))
}
' docs/SUMMARY.md
