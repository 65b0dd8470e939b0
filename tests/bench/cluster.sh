#!/bin/sh
# Measures what a message costs on one server, on a cluster of one node and on one of three, and what
# `durability = "replica"` costs: CPU of the host and of the servers, in microseconds for each message, the median
# of alternating rounds: ROUNDS, an odd number.
# cluster.sh HOSTLER GUESTS
set -eu

hostler=$(realpath "$1")
guests=$(realpath "$2")
messages=${MESSAGES:-100000}
rounds=${ROUNDS:-3}
dir=$(mktemp -d)
ports=

stop() {
  for port in $ports; do redis-cli -p "$port" shutdown nosave > /dev/null 2>&1 || true; done
  rm -rf "$dir"
}
trap stop EXIT
trap 'exit 1' INT TERM

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
serve() { # PORT OPTION...
  port=$1
  shift
  redis-server --port "$port" --bind 127.0.0.1 --save "" --daemonize yes --dir "$dir" --dbfilename "$port.rdb" "$@" > /dev/null
  ports="$ports $port"
  until redis-cli -p "$port" ping > /dev/null 2>&1; do sleep 0.05; done
}
node() { serve "$1" --cluster-enabled yes --cluster-config-file "$1.conf" --cluster-port "$(free_port)"; }

alone=$(free_port); serve "$alone"
replica=$(free_port); serve "$replica" --replicaof 127.0.0.1 "$alone" --repl-diskless-sync-delay 0
one=$(free_port); node "$one"
a=$(free_port); node "$a"
b=$(free_port); node "$b"
c=$(free_port); node "$c"
redis-cli -p "$one" cluster addslotsrange 0 16383 > /dev/null
redis-cli -p "$a" cluster addslotsrange 0 5460 > /dev/null
redis-cli -p "$b" cluster addslotsrange 5461 10922 > /dev/null
redis-cli -p "$c" cluster addslotsrange 10923 16383 > /dev/null
for other in "$b" "$c"; do
  bus=$(redis-cli -p "$other" config get cluster-port | tail -n 1)
  redis-cli -p "$a" cluster meet 127.0.0.1 "$other" "$bus" > /dev/null
done
for port in "$one" "$a" "$b" "$c"; do
  until redis-cli -p "$port" cluster info | grep -q cluster_state:ok; do sleep 0.05; done
done

# CPU time of the servers on these ports, in milliseconds.
cpu() {
  sum=0
  for port in "$@"; do
    pid=$(redis-cli -p "$port" info server | tr -d '\r' | sed -n 's/^process_id://p')
    sum=$((sum + $(awk '{ print ($14 + $15) * 10 }' "/proc/$pid/stat")))
  done
  echo $sum
}

measure() { # NAME URL "PORT..." BODY FLAG...
  name=$1 url=$2 of=$3 body=$4
  shift 4
  seq "$messages" | awk -v body="$body" '{ print body }' \
    | "$hostler" publish --redis "$url" --stream orders --lines > /dev/null
  before=$(cpu $of)
  /usr/bin/env time -o "$dir/time" -f '%U %S' "$hostler" run --redis "$url" --stream orders --group "g$(date +%N)" \
    --until-empty "$@" > /dev/null 2> "$dir/log" || { cat "$dir/log" >&2; exit 1; }
  after=$(cpu $of)
  awk -v n="$messages" -v server=$((after - before)) \
    '{ printf "%.1f %.1f\n", ($1 + $2) * 1e6 / n, server * 1000 / n }' "$dir/time" >> "$dir/$name"
  for key in orders '{orders}:invoices'; do redis-cli -c -p "${of%% *}" del "$key" > /dev/null; done
}
median() { sort -n | sed -n "$(((rounds + 1) / 2))p"; }

ack="--handler $guests/ack.wasm"
publishing="--handler $guests/publishing.wasm --grant-publish {\"invoices\":\"stream:{orders}:invoices\"}"
nodes="redis+cluster://127.0.0.1:$a,127.0.0.1:$b,127.0.0.1:$c"
for round in $(seq "$rounds"); do
  measure one-server "redis://127.0.0.1:$alone" "$alone" x $ack
  measure cluster-of-one "redis+cluster://127.0.0.1:$one" "$one" x $ack
  measure cluster-of-three "$nodes" "$a $b $c" x $ack
  measure durability-primary "redis://127.0.0.1:$alone" "$alone $replica" publish:invoices:x $publishing
  measure durability-replica "redis://127.0.0.1:$alone" "$alone $replica" publish:invoices:x $publishing --durability replica
done
echo '| servers | host, us | servers, us |'
echo '|---|---:|---:|'
for name in one-server cluster-of-one cluster-of-three durability-primary durability-replica; do
  host=$(cut -d' ' -f1 "$dir/$name" | median)
  server=$(cut -d' ' -f2 "$dir/$name" | median)
  echo "| $name | $host | $server |"
done
