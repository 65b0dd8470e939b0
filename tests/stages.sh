#!/bin/sh
# stages.sh MAKE TARGET...: makes one target after the other, and prints the seconds that each of them took.
make=$1
shift
table=
total=0
for target in "$@"; do
  begun=$(date +%s)
  eval "$make $target"
  status=$?
  took=$(($(date +%s) - begun))
  total=$((total + took))
  table="$table$(printf '%6d s  %s' "$took" "$target")
"
  [ "$status" = 0 ] || break
done
printf '%s%6d s  in all\n' "$table" "$total"
exit "$status"
