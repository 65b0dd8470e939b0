#!/bin/sh
# The main task with some orders: publish them, handle them, look at the results.
# demo.sh HOSTLER HANDLER.wasm
set -eu

hostler=$(realpath "$1")
handler=$(realpath "$2")
orders=$(dirname "$(realpath "$0")")/orders.jsonl

# The private Redis keeps its data under .hostler/ of the working directory. This script uses a new directory.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
cd "$work"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say "1. $(wc -l < "$orders" | tr -d ' ') orders go into the stream \`orders\`; one of them is cut short"
"$hostler" publish --redis embedded --stream orders --lines < "$orders" > ids
printf '   published %s; the first id is %s\n' "$(wc -l < ids | tr -d ' ')" "$(head -n 1 ids)"

say "2. The handler charges them, with at most 4 attempts each"
echo "   The handler acks good orders and requeues payments that time out."
echo "   It drops cancelled and unreadable orders. A bug in the handler is a failed attempt."
"$hostler" run --redis embedded --stream orders --group billing --handler "$handler" \
  --dead-letter orders:dead --max-deliveries 4 --until-empty --summary json --log-level warn > summary
count() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" summary; }
row() { printf '   %-26s %4s\n' "$1" "$2"; }
echo
row "attempts" "$(count attempts)"
row "acked" "$(count acked)"
row "requeued" "$(count requeued)"
row "dead-lettered: dropped" "$(count dropped)"
row "dead-lettered: 4 attempts" "$(count max-deliveries)"
row "faults: trap" "$(count trap)"

say "3. The dead-letter queue, with a reason for each entry"
"$hostler" dlq peek --redis embedded orders:dead --limit 12

say "Next: read the README, or try it yourself:"
printf '   %s invoke %s --body %s\n' "$1" "$2" "'{\"id\":\"A-1\",\"amount\":9.5}'"
