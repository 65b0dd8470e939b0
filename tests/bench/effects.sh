#!/bin/sh
# Measures what effects cost. One host empties the same queue again and again, without the effect and with
# it in turn, in fresh and in reused instances. It writes the table of docs/measurements/performance.md between its marks.
# effects.sh HOSTLER GUESTS [ROUNDS] [EARLIER HOSTLER]
#   GUESTS           where ack.wasm and costs.wasm are
#   EARLIER HOSTLER  a build to compare a handler with that imports nothing
set -eu

hostler=$(realpath "$1")
guests=$(realpath "$2")
rounds=${3:-5}
earlier=${4:+$(realpath "$4")}
doc=$(realpath "$(dirname "$0")/../..")/docs/measurements/performance.md
dir=$(mktemp -d)
redis=
web=
stop() {
  for pid in $redis $web; do
    kill "$pid" 2> /dev/null || true
    wait "$pid" 2> /dev/null || true
  done
  rm -rf "$dir"
}
trap stop EXIT
trap 'exit 1' INT TERM
cd "$dir"

redis-server --port 0 --unixsocket "$dir/redis.sock" --save "" --appendonly no > redis.log &
redis=$!
ask() { redis-cli -s "$dir/redis.sock" "$@"; }
while ! ask ping > /dev/null 2>&1; do sleep 0.05; done

# A server that answers every request with `ok` and keeps its connections.
cat > web.js << 'WEB'
const answer = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';
const server = require('net').createServer(socket => {
  let rest = '';
  socket.setNoDelay(true);
  socket.on('error', () => {});
  socket.on('data', bytes => {
    const requests = (rest + bytes.toString('latin1')).split('\r\n\r\n');
    rest = requests.pop();
    socket.write(answer.repeat(requests.length));
  });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
WEB
node web.js > port &
web=$!
while [ ! -s port ]; do sleep 0.05; done
port=$(cat port)

publish='{"out":"stream:out"}'
grant_keys='{"prefix":"{orders}:kv:"}'
http='[{"host":"127.0.0.1","scheme":"http","port":'$port',"in_flight":1000}]'

recorded='[{"host":"127.0.0.1","scheme":"http","port":'$port',"in_flight":1000,"journal":true}]'

redis_us() { ask info cpu | awk -F: '/^used_cpu_(sys|user):/ { us += $2 * 1000000 } END { printf "%d", us }'; }

# When the host logged this, in nanoseconds.
at() { date -d "$(sed -n 's/.*"timestamp":"\([^"]*\)".*"message":"'"$1"'".*/\1/p' log | head -n 1)" +%s%N; }

# measure HOSTLER MESSAGES BODY FLAG...: print messages a second, and microseconds of Redis for a message.
measure() {
  binary=$1 messages=$2 body=$3
  shift 3
  ask flushall > /dev/null
  yes "$body" | head -n "$messages" | "$hostler" publish --redis "unix://$dir/redis.sock" --stream orders --lines > /dev/null 2>&1
  before=$(redis_us)
  "$binary" run --redis "unix://$dir/redis.sock" --stream orders --group g --dead-letter orders:dead --until-empty \
    --summary json "$@" > summary 2> log || { tail -n 5 log >&2; exit 1; }
  after=$(redis_us)
  grep -q "\"acked\":$messages[,}]" summary || { cat summary >&2; exit 1; }
  echo "$messages $(( $(at draining) - $(at ready) )) $(( after - before ))" |
    awk '{ printf "%.0f %.2f\n", $1 * 1e9 / $2, $3 / $1 }'
}

# pair NAME MESSAGES BODY-WITHOUT BODY-WITH MODE FLAGS-WITHOUT FLAGS-WITH: one row.
pair() {
  name=$1 messages=$2 body0=$3 body1=$4 mode=$5 flags0=$6 flags1=$7 binary0=${8:-$hostler}
  reuse=1
  if [ "$mode" = reuse ]; then reuse=10000; fi
  : > without
  : > with
  round=1
  while [ "$round" -le "$rounds" ]; do
    # The second one finds a warmer machine: so they take turns.
    for turn in "$((round % 2))" "$(((round + 1) % 2))"; do
      if [ "$turn" = 1 ]; then
        (eval "measure '$binary0' $messages '$body0' --reuse $reuse $flags0") >> without
      else
        (eval "measure '$hostler' $messages '$body1' --reuse $reuse $flags1") >> with
      fi
    done
    round=$((round + 1))
  done
  # The ratio of each round, and the medians.
  paste -d ' ' without with | awk -v name="$name" -v mode="$mode" '
    function median(values, n,  i, j, t) {
      for (i = 2; i <= n; i++)
        for (j = i; j > 1 && values[j - 1] > values[j]; j--) { t = values[j]; values[j] = values[j - 1]; values[j - 1] = t }
      return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
    }
    { a[NR] = $1; b[NR] = $3; ra[NR] = $2; rb[NR] = $4; ratio[NR] = $3 / $1 }
    END {
      middle = median(ratio, NR)
      printf "| %s | %s | %.1f k | %.1f k | %.2f (%.2f to %.2f) | %.1f / %.1f |\n", name, mode, median(a, NR) / 1000,
        median(b, NR) / 1000, middle, ratio[1], ratio[NR], median(ra, NR), median(rb, NR)
    }' >> table
  tail -n 1 table >&2
}

q() { printf "'%s'" "$1"; }
ack="--handler $(q "$guests/ack.wasm")"
costs="--handler $(q "$guests/costs.wasm") --grant-publish $(q "$publish") --grant-key-value $(q "$grant_keys") --grant-http $(q "$http")"
recorded="--handler $(q "$guests/costs.wasm") --grant-publish $(q "$publish") --grant-key-value $(q "$grant_keys") --grant-http $(q "$recorded")"
{
  echo '| what | instance | without, msgs/s | with, msgs/s | ratio (rounds) | Redis CPU us per message: without / with |'
  echo '|---|---|---|---|---|---|'
} > table
cat table >&2
for mode in fresh reuse; do
  if [ -n "$earlier" ]; then
    pair "a handler that imports nothing, against the earlier build" 200000 x x "$mode" "$ack" "$ack" "$earlier"
  fi
  pair "a handler that imports nothing, against itself" 200000 x x "$mode" "$ack" "$ack"
  pair "checked acknowledgements: the grant \`publish\`, unused" 200000 x x "$mode" "$ack" "$ack --grant-publish $(q "$publish")"
  pair "1 message published" 100000 x "publish 1" "$mode" "$costs" "$costs"
  pair "5 messages published" 50000 x "publish 5" "$mode" "$costs" "$costs"
  pair "1 key read, 1 key set" 50000 x keys "$mode" "$costs" "$costs"
  pair "1 HTTP request" 20000 x "http http://127.0.0.1:$port/" "$mode" "$costs" "$costs"
  off="--dead-letter-recording off"
  pair "5 messages published, dead letters list calls" 50000 "publish 5" "publish 5" "$mode" "$costs $off" "$costs"
  pair "1 key read, 1 key set, dead letters list calls" 50000 keys keys "$mode" "$costs $off" "$costs"
  pair "1 HTTP request, dead letters list calls" 20000 "http http://127.0.0.1:$port/" "http http://127.0.0.1:$port/" "$mode" "$costs $off" "$costs"
  pair "1 HTTP request, all answers recorded" 20000 "http http://127.0.0.1:$port/" "http http://127.0.0.1:$port/" "$mode" "$costs $off" \
    "$costs --dead-letter-recording full"
  pair "a rule with a journal, no request" 50000 x x "$mode" "$costs" "$recorded"
  pair "1 HTTP request, recorded against not recorded" 20000 "post http://127.0.0.1:$port/" "post http://127.0.0.1:$port/" "$mode" "$costs" "$recorded"
  pair "the same, one message at a time" 5000 "post http://127.0.0.1:$port/" "post http://127.0.0.1:$port/" "$mode" "$costs --concurrency 1" "$recorded --concurrency 1"
done

# timed FLAGS: how long a call takes for a guest that makes one at a time, p50, in microseconds.
timed() {
  (eval "measure '$hostler' 2000 'timed http://127.0.0.1:$port/' --concurrency 1 $1") > /dev/null
  grep -o 'took [0-9]* us' log | awk '{ print $2 }' | sort -n > took
  if [ "$(wc -l < took)" -lt 2000 ]; then echo "some calls were not timed" >&2; exit 1; fi
  sed -n 1000p took
}
{
  echo
  echo '| a call at a time, for the guest: p50 | instance | not recorded | recorded | more (rounds) |'
  echo '|---|---|---|---|---|'
} >> table
for mode in fresh reuse; do
  reuse=1
  if [ "$mode" = reuse ]; then reuse=10000; fi
  round=1
  : > calls
  while [ "$round" -le "$rounds" ]; do
    # In turn, as above. An assignment: so a run that fails ends the script.
    if [ "$((round % 2))" = 1 ]; then without=$(timed "--reuse $reuse $costs"); fi
    with=$(timed "--reuse $reuse $recorded")
    if [ "$((round % 2))" = 0 ]; then without=$(timed "--reuse $reuse $costs"); fi
    echo "$without $with" >> calls
    round=$((round + 1))
  done
  awk '{ print $2 - $1, $1, $2 }' calls | sort -n | awk -v mode="$mode" '
    { more[NR] = $1; a[NR] = $2; b[NR] = $3 }
    END {
      middle = int((NR + 1) / 2)
      printf "| 1 HTTP request | %s | %d us | %d us | %d us (%d to %d) |\n", mode, a[middle], b[middle], more[middle], more[1], more[NR]
    }' >> table
  tail -n 1 table >&2
done

awk -v table="$dir/table" '
  /<!-- effects -->/ { print; while ((getline line < table) > 0) print line; skip = 1; next }
  /<!-- end effects -->/ { skip = 0 }
  !skip { print }' "$doc" > doc
cat doc > "$doc"
