#!/bin/sh
# compare.sh RUNS FILE [1]: compares the instructions that callgrind has counted in the folder RUNS with those of FILE.
# With 1 it writes FILE anew instead, and keeps its tolerances.
set -eu
runs=$1
file=$2

# What else changes the counts: the compiler, the libraries, and the processor that valgrind shows to a program.
machine() {
  echo "# $(rustc --version | cut -d ' ' -f 1-2), glibc $(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2), $(valgrind --version), $(
    uname -m)$(grep -qw avx2 /proc/cpuinfo && echo ' with AVX2')"
}

# A benchmark has a file for each of its threads.
counts() {
  for folder in "$runs"/*/*/; do
    cat "$folder"callgrind.*.out | awk -v name="$(basename "$folder")" '/^totals:/ { sum += $2 } END { print name, sum }'
  done
}

if [ "${3:-}" = 1 ]; then
  counts | awk 'FNR == NR { tolerance[$1] = $3; next } { print $1, $2, ($1 in tolerance ? tolerance[$1] : 3) }' \
    "$file" - > "$file.new"
  {
    machine
    echo "# benchmark, instructions, tolerance in per cent"
    cat "$file.new"
  } > "$file"
  rm "$file.new"
  cat "$file"
  exit
fi

counts | awk '
  /^#/ { next }
  FNR == NR { old[$1] = $2; tolerance[$1] = $3; next }
  {
    seen[$1] = 1
    if (!($1 in old) || !$2) {
      printf "%-22s %31.0f  FAILED: not in the file, or not counted\n", $1, $2
      failed = 1
      next
    }
    change = ($2 / old[$1] - 1) * 100
    bad = change > tolerance[$1] || change < -tolerance[$1]
    printf "%-22s %15.0f %15.0f %+7.2f %%%s\n", $1, old[$1], $2, change,
      bad ? "  FAILED: more than " tolerance[$1] " %" : ""
    failed = failed || bad
  }
  END {
    for (name in old) if (!(name in seen)) { printf "%-22s FAILED: it did not run\n", name; failed = 1 }
    exit failed
  }' "$file" - || {
  echo "Make it cheaper, or say why it costs what it costs: \`make bench-quick UPDATE=1\` writes $file anew." >&2
  [ "$(head -n 1 "$file")" = "$(machine)" ] || {
    echo "The counts of the file are of another machine:" >&2
    head -n 1 "$file" >&2
    machine >&2
  }
  exit 1
}
