#!/bin/sh
# run.sh [NAME...]: runs the tests of this folder, one after the other, and prints what passed, failed and was skipped.
cd "$(dirname "$0")/../.." || exit 1
names=${*:-$(cd packaging/test && ls *.sh | sed 's/\.sh$//' | grep -v -x -e run -e lib)}
passed=0 failed=0 skipped=0 table=
logs=target/dist-test
mkdir -p "$logs"
for name in $names; do
  begun=$(date +%s)
  sh "packaging/test/$name.sh" > "$logs/$name.log" 2>&1
  case $? in
    0) how=passed passed=$((passed + 1)) why= ;;
    77) how=skipped skipped=$((skipped + 1)) why=$(sed -n 's/^skipped: //p' "$logs/$name.log" | tail -n 1) ;;
    *) how=FAILED failed=$((failed + 1)) why="$logs/$name.log"; tail -n 30 "$logs/$name.log" >&2 ;;
  esac
  line=$(printf '%-12s %-8s %5d s  %s' "$name" "$how" "$(($(date +%s) - begun))" "$why")
  printf '%s\n' "$line"
  table="$table$line
"
done
printf '\n%s' "$table"
echo "packages: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
