# Parts of the scripts that measure handlers with `hostler bench --in-process`: they set `hostler` and `dir`, and
# write a table into a document between its marks.

printf '%s' '{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid","items":["espresso beans 1 kg"],"gift":false}' > "$dir/order.json"

# Measure a handler: `json` is its report.
measure() {
  # Standard error has only the guest's log, cut at its limits. Show it if the bench fails.
  json=$("$hostler" bench --in-process "$1" --body-file "$dir/order.json" --json 2> "$dir/log") || {
    cat "$dir/log" >&2; exit 1; }
}

# `field` and `top` read a number of the one line of JSON; `field` reads it from a section. Both are empty if it has
# no such number.
field() { printf '%s' "$json" | sed -n "s/.*\"$1\":{[^}]*\"$2\":\([0-9.]*\).*/\1/p"; }
top() { printf '%s' "$json" | sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }

# A row of these cells: `us:TIME` is a time in microseconds, and `bytes:SIZE` a size.
row() {
  for cell in "$@"; do printf '%s\n' "$cell"; done | awk '
    function time(us) {
      if (us == "") return ""
      us += 0
      if (us >= 1000000) return sprintf("%.1f s", us / 1000000)
      if (us >= 1000) return sprintf("%.1f ms", us / 1000)
      return sprintf("%.1f us", us)
    }
    function size(bytes) { return bytes + 0 >= 1048576 ? sprintf("%.1f MiB", bytes / 1048576) : sprintf("%.0f KiB", bytes / 1024) }
    /^us:/ { $0 = time(substr($0, 4)) }
    /^bytes:/ { $0 = size(substr($0, 7)) }
    { printf "| %s ", $0 }
    END { print "|" }' >> "$dir/table"
  tail -n 1 "$dir/table" >&2
}

# What the report says of a handler, in microseconds: compiled, loaded from the cache, fresh, reused.
costs() {
  awk -v compile="$(top compile_ms)" -v cached="$(top cached_start_ms)" 'BEGIN { print "us:" compile * 1000, "us:" cached * 1000 }'
  echo "us:$(field fresh p50_us) us:$(field reuse p50_us)"
}

# Put the table into this document, at this mark.
into() {
  awk -v table="$dir/table" -v mark="<!-- ${2:-measured} -->" '
    $0 == mark { print; while ((getline line < table) > 0) print line; skip = 1; next }
    /<!-- end -->/ { skip = 0 }
    !skip { print }' "$1" > "$dir/doc"
  cat "$dir/doc" > "$1"
}
