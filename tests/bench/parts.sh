#!/bin/sh
# Where the CPU time of a host goes that empties a stream, by part, in per cent: with reused instances and with fresh
# ones; then the time of the slots with fresh ones, by the functions that called each other. perf takes the samples, by the CPU
# clock. The host needs symbols: cargo build --profile quick -p hostler --locked
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

# Take samples of a run: how often an instance is reused, how many messages, options of perf. Those of the start do not count.
run() {
  reuse=$1 count=$2
  shift 2
  redis flushall > /dev/null
  redis eval "for i = 1, ARGV[1] do redis.call('XADD', 'orders', '*', '_payload', string.rep('x', 100)) end
    redis.call('XGROUP', 'CREATE', 'orders', 'workers', '0')" 0 "$count" > /dev/null
  perf record --quiet --delay 500 --freq 1999 "$@" --output "$dir/samples" \
    "$hostler" run --redis "unix:$dir/redis.sock" --stream orders --group workers --handler "$component" --reuse "$reuse" \
    --concurrency 16 --until-empty --log-level warn --summary json > /dev/null 2> "$dir/log" || { cat "$dir/log" >&2; exit 1; }
}

# Samples of a run, a line each: a thread, a symbol, and where it stands.
sample() {
  run "$1" "$messages"
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

# The first part whose pattern a function has that was running, of samples with a line for each function.
by_caller() {
  awk '
    function part(calls) {
      if (calls ~ /do_pagemap_scan|rustix::ioctl/) return "drop: the kernel looks for written pages"
      if (calls ~ /free_many|deallocate_many/) return "drop: places return to the lists of the pool"
      if (calls ~ /clear_and_remain_ready|deallocate_table|deallocate_fiber_stack|flush_fiber/) return "drop: pages, tables and stacks are cleared"
      if (calls ~ /trampoline_ptrs/) return "make: addresses of imported functions"
      if (calls ~ /typecheck|_typed/) return "make: type of the handler"
      if (calls ~ /get_func_ref|initialize_and_return_funcref|lookup_vmdef/) return "make: exports are looked up"
      if (calls ~ /allocate_memory|allocate_table|Instance::new|OwnedInstance<T>::new/) return "make: memory, tables, core instances"
      if (calls ~ /ModuleRegistry/) return "make: modules are registered"
      if (calls ~ /linear_lower_to_flat|TypedFunc<Params,Return>::call_impl|call_raw/) return "call: arguments, guest, result"
      if (calls ~ /build_imports|Instantiator|HostFunc::lowering|instantiate_async|OwnedImports|[pP]rimary_?[mM]ap/) return "make: imports, the rest"
      if (calls ~ /sandbox::host::store|StoreData::new/) return "make: store"
      if (calls ~ /Store<T> as core::ops::drop|drop_in_place<hostler::sandbox::instance::Live>/) return "drop: the rest"
      if (calls ~ /fiber/) return "call: switches of stacks"
      if (calls ~ /hostler::sandbox/) return "hostler: sandbox"
      if (calls ~ /hostler/) return "hostler: tickets, events, executor"
      return "the rest"
    }
    BEGIN { RS = "" }
    { count[part($0)]++; all++ }
    END { for (name in count) printf "| %s | %.1f |\n", name, count[name] * 100 / all }' | sort
}

sample 10000 | by_part > "$dir/reuse"
sample 1 | by_part > "$dir/fresh"
echo "| part | reuse | fresh |"
echo "|---|---:|---:|"
join -t "$(printf '\t')" -a 1 -a 2 -e 0.0 -o 0,1.2,2.2 "$dir/reuse" "$dir/fresh" \
  | awk -F '\t' '{ if ($2 >= 0.5 || $3 >= 0.5) printf "| %s | %.0f | %.0f |\n", $1, $2, $3 }'

# A sample with its callers is large: fewer messages.
run 1 "$((messages / 4))" --call-graph dwarf,4096 --mmap-pages 16M
echo
echo "| slots, fresh | per cent |"
echo "|---|---:|"
perf script --no-inline --input "$dir/samples" --comm hostler-attempt --fields comm,ip,sym 2> /dev/null | by_caller
