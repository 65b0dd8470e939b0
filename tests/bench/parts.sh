#!/bin/sh
# Where the CPU time of a host goes that empties a stream, by part, in per cent: with reused instances and with fresh
# ones. perf takes the samples, by the CPU clock. The host needs symbols: cargo build --profile quick -p hostler --locked
# parts.sh HOSTLER COMPONENT [MESSAGES]
set -eu

hostler=$(realpath "$1")
component=$(realpath "$2")
messages=${3:-400000}
dir=$(mktemp -d)
server=
trap 'stop; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
command -v perf > /dev/null || { echo "perf is missing: install the package linux-perf" >&2; exit 1; }

stop() {
  [ -z "$server" ] || kill "$server" 2> /dev/null || true
  wait 2> /dev/null || true
}
redis() { redis-cli -s "$dir/redis.sock" "$@"; }

redis-server --port 0 --unixsocket "$dir/redis.sock" --dir "$dir" --save '' --appendonly no > /dev/null &
server=$!
until redis ping > /dev/null 2>&1; do sleep 0.05; done

# Samples of a run, a line each: a thread, a symbol, and where it stands. Those of the start do not count.
sample() {
  redis flushall > /dev/null
  redis eval "for i = 1, ARGV[1] do redis.call('XADD', 'orders', '*', '_payload', string.rep('x', 100)) end
    redis.call('XGROUP', 'CREATE', 'orders', 'workers', '0')" 0 "$messages" > /dev/null
  perf record --quiet --delay 500 --freq 1999 --output "$dir/samples" \
    "$hostler" run --redis "unix:$dir/redis.sock" --stream orders --group workers --handler "$component" --reuse "$1" \
    --concurrency 16 --until-empty --log-level warn --summary json > /dev/null 2> "$dir/log" || { cat "$dir/log" >&2; exit 1; }
  perf script --input "$dir/samples" --fields comm,ip,sym,dso 2> /dev/null
}

# The first part whose pattern a line has.
by_part() {
  awk '
    function part(line) {
      if (line ~ /kernel|\[k\]|vmlinux/) {
        if (line ~ /pagemap|page|fault|mm_|vma|clear_|copy_|tlb|madvise|walk|memcg|folio|pte|pmd/) return "kernel: memory"
        if (line ~ /futex|schedule|switch|wake|_raw_spin_unlock|enqueue|dequeue|pick_|update_|ttwu|idle|try_to|nanosleep|hrtimer|cpu_/) return "kernel: switches between threads"
        if (line ~ /tcp|sock|unix|skb|epoll|recv|send|vfs|read|write|fd|aa_/) return "kernel: sockets"
        return "kernel: the rest"
      }
      if (line ~ /wasmtime|cranelift|pulley|libcalls|vmtraphandlers/) return "wasmtime"
      if (line ~ /\[unknown\]|\/memfd|\/\/anon|jit/) return "guest code"
      if (line ~ /mem(move|cpy|set|cmp)/) return "copies of memory"
      if (line ~ /malloc|calloc|realloc|_int_free|cfree|unlink_chunk|__libc_free| free/) return "allocator"
      if (line ~ /redis::|hostler::redis|combine::|bytes::/) return "Redis client and replies"
      if (line ~ /delivery::ledger/) return "ledger"
      if (line ~ /hostler::wire/) return "decoding"
      if (line ~ /sandbox/) return "sandbox"
      if (line ~ /ticket|slot_events|executor/) return "hand-over and executor"
      if (line ~ /hostler::/) return "driver, counters, versions"
      if (line ~ /hashbrown|hash_one/) return "maps"
      if (line ~ /tokio|mio::|futures/) return "tokio"
      if (line ~ /vdso|clock_gettime/) return "clocks"
      return "the rest"
    }
    {
      thread = $1 ~ /^hostler-attempt/ ? "slots" : $1 ~ /^epoch/ ? "epochs" : "loop"
      count[thread ": " part($0)]++; of[thread]++; all++
    }
    END {
      for (name in of) printf "%s\t%.1f\n", name, of[name] * 100 / all
      for (name in count) printf "%s\t%.1f\n", name, count[name] * 100 / all
    }' | sort -t "$(printf '\t')" -k 1,1
}

sample 10000 | by_part > "$dir/reuse"
sample 1 | by_part > "$dir/fresh"
echo "| part | reuse | fresh |"
echo "|---|---:|---:|"
join -t "$(printf '\t')" -a 1 -a 2 -e 0.0 -o 0,1.2,2.2 "$dir/reuse" "$dir/fresh" \
  | awk -F '\t' '{ if ($2 >= 0.5 || $3 >= 0.5) printf "| %s | %.0f | %.0f |\n", $1, $2, $3 }'
