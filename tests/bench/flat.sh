#!/bin/sh
# Shows whether a stream stays flat: a producer adds messages at a steady rate, one host handles them with a retention. Prints the
# length of the stream and the memory of Redis each second, then the largest of both. Fails if the host falls behind
# retention: if more acknowledged entries are left than of one second, and 30,000.
# flat.sh HOSTLER COMPONENT [RETENTION] [MESSAGES A SECOND] [SECONDS]
set -eu

hostler=$(realpath "$1")
component=$(realpath "$2")
retention=${3:-acked}
rate=${4:-50000}
seconds=${5:-60}
dir=$(mktemp -d)
trap 'stop; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
cd "$dir"

redis=
host=
stop() {
  for pid in $host $redis; do
    kill "$pid" 2> /dev/null || true
    wait "$pid" 2> /dev/null || true
  done
}

redis-server --port 0 --unixsocket "$dir/redis" --save '' > redis.log 2>&1 &
redis=$!
ask() { redis-cli -s "$dir/redis" "$@"; }
while ! ask PING > /dev/null 2>&1; do sleep 0.05; done
ask XGROUP CREATE orders workers 0 MKSTREAM > /dev/null
"$hostler" run --redis "unix://$dir/redis" --stream orders --group workers --handler "$component" --reuse 10000 \
  --retention "$retention" > host.log 2>&1 &
host=$!
while ! grep -q '"ready"' host.log; do
  kill -0 "$host" || { cat host.log; exit 1; }
  sleep 0.05
done

# In twenty parts a second, each by one script: a part that is late is caught up.
add='for _ = 1, ARGV[1] do redis.call("XADD", KEYS[1], "*", "_payload", string.rep("x", 100)) end return redis.call("XLEN", KEYS[1])'
unread() {
  ask XINFO GROUPS orders | awk '{ if (name == "lag" || name == "pending") n += $1; name = $1 } END { print n + 0 }'
}
echo 'second  length  unread or pending  memory, MiB'
began=$(date +%s%N)
part=0
worst=0
while [ "$part" -lt $((seconds * 20)) ]; do
  ask EVAL "$add" 1 orders $((rate / 20)) > /dev/null
  part=$((part + 1))
  if [ $((part % 20)) = 0 ]; then
    open=$(unread)
    length=$(ask XLEN orders)
    memory=$(ask INFO memory | awk -F: '$1 == "used_memory" { print int($2 / 1048576) }')
    echo "$((part / 20))  $length  $open  $memory"
    done=$((length - open))
    [ "$done" -le "$worst" ] || worst=$done
  fi
  left=$((part * 50 - ($(date +%s%N) - began) / 1000000))
  [ "$left" -le 0 ] || sleep "$(printf '0.%03d' "$left")"
done
took=$((($(date +%s%N) - began) / 1000000))
echo "$((part * (rate / 20) * 1000 / took)) messages a second; at most $worst acknowledged entries were left"
[ "$worst" -le $((rate + 30000)) ]
