#!/bin/sh
# The main task with some orders: publish them, charge them by HTTP, publish an invoice for each, and check
# that nothing happened twice.
# demo.sh HOSTLER PAYMENT_SERVER HANDLER.wasm
set -eu

hostler=$(realpath "$1")
payment_server=$(realpath "$2")
handler=$(realpath "$3")
demo=$(dirname "$(realpath "$0")")
orders=$demo/orders.jsonl
example=$demo/../../guest-examples/rust-charge

# The private Redis keeps its data under .hostler/ of the working directory. This script uses a new directory.
work=$(mktemp -d)
server=
# The payment server is the only process that this script ends.
end() {
  if [ -n "$server" ]; then kill "$server" || true; fi
  rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM
cd "$work"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
row() { printf '   %-36s %4s\n' "$1" "$2"; }
lines() { wc -l | tr -d ' '; }

say "1. $(lines < "$orders") orders go into the stream \`orders\`; one of them is cut short"
"$hostler" publish --redis embedded --stream orders --lines < "$orders" > ids
printf '   published %s; the first id is %s\n' "$(lines < ids)" "$(head -n 1 ids)"

say "2. A payment server starts. hostler.toml grants it to the handler, and the stream \`invoices\`"
export PAYMENTS_KEY="demo-$$"
"$payment_server" > calls &
server=$!
until [ -s calls ]; do
  kill -0 "$server" || exit 1
  sleep 0.05
done
port=$(sed -n 's/^port //p' calls)
sed "s/8089/$port/" "$example/hostler.toml" > hostler.toml
sed -n '/^\[grant.publish\]/,/^\[dev\]/{ /^\[dev\]/d; s/^/   | /p; }' hostler.toml

say "3. The handler charges each order, with at most 4 attempts, and publishes an invoice for it"
echo "   It drops orders that are unreadable or cancelled, and declined cards. If the server is busy or"
echo "   down, or its answer is lost, the order is tried again, with the same idempotency key."
"$hostler" run --config hostler.toml --handler "$handler" \
  --until-empty --summary json --log-level warn > summary
count() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" summary; }
echo
row "attempts" "$(count attempts)"
row "acked" "$(count acked)"
row "requeued" "$(count requeued)"
row "dead-lettered: dropped" "$(count dropped)"
row "dead-lettered: 4 attempts" "$(count max-deliveries)"

say "4. Each order that was acked has one charge and one invoice; no other order has any"
# Lines of the server: what it did, the order, the idempotency key.
awk '$1 == "Charged" { print $2 }' calls | sort > charged
awk '$1 != "port" { print $3 }' calls | sort -u > keys
"$hostler" dlq export --redis embedded --any-entry invoices > invoices
sed -n 's/.*\\"order\\":\\"\([^\\]*\)\\".*/\1/p' invoices | sort > invoiced
row "calls of the payment server" "$(grep -vc '^port' calls)"
row "  charged" "$(lines < charged)"
row "  repeated: the first answer again" "$(grep -c '^Repeated' calls)"
row "  could not" "$(grep -c '^Unavailable' calls)"
row "  declined" "$(grep -c '^Declined' calls)"
row "different idempotency keys" "$(lines < keys)"
row "invoices" "$(lines < invoices)"
wrong=0
check() {
  if [ "$2" = "$3" ]; then
    printf '   ok     %s\n' "$1"
  else
    printf '   WRONG  %s: %s, not %s\n' "$1" "$2" "$3"
    wrong=1
  fi
}
echo
check "no order is charged twice" "$(uniq -d charged | lines)" 0
check "no order has two invoices" "$(uniq -d invoiced | lines)" 0
check "as many invoices as acked orders" "$(lines < invoices)" "$(count acked)"
check "the orders with an invoice are those with a charge" "$(cmp -s invoiced charged && echo yes)" yes
check "some calls were repeated" "$(grep -q '^Repeated' calls && echo yes)" yes
check "every order is acked or dead-lettered" \
  "$(($(count acked) + $(count dropped) + $(count max-deliveries)))" "$(lines < ids)"

say "5. The dead-letter queue, with a reason for each entry"
"$hostler" dlq peek --redis embedded orders:dead --limit 12

if [ "$wrong" = 1 ]; then exit 1; fi
say "Next: read the README and guest-examples/rust-charge, or try it yourself:"
printf '   %s check %s\n' "$1" "$3"
