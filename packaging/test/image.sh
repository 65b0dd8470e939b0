# The image, from its layout: run by crun or runc as its user, with a read-only root, a network of its own and a
# Redis in it; health by /ready.
. packaging/test/lib.sh
has umoci
has redis-server
has curl
# crun refuses a machine that has both versions of control groups.
runtime=$(command -v runc || command -v crun || true)
[ -n "$runtime" ] || skip "neither runc nor crun is installed"
[ "$(id -u)" = 0 ] || skip "containers need root here"
cd "$work"
cp "$(package "hostler-$VERSION-oci-$(dpkg --print-architecture).tar")" .
follow image
say "the image: $(du -m hostler-*.tar | cut -f1) MB, unpacked $(du -sm bundle/rootfs | cut -f1) MB"
[ ! -e bundle/rootfs/bin/sh ] && [ ! -e bundle/rootfs/usr/bin/sh ] || fail "the image has a shell"
handler=$root/guest-examples/rust/target/wasm32-wasip2/release/orders_handler.wasm
[ -e "$handler" ] || fail "no handler: make guest LANG=rust"
name=hostler-test-$$
ip netns add "$name" || skip "no network namespace can be made here"
end() {
  "$runtime" --root "$work/run" delete --force "$name" >/dev/null 2>&1 || true
  [ -z "${redis:-}" ] || kill "$redis" 2>/dev/null || true
  ip netns delete "$name" || true
  clean
}
trap end EXIT
ip -n "$name" link set lo up
ip netns exec "$name" redis-server --port 6379 --bind 127.0.0.1 --save '' --appendonly no --dir "$work" > redis.log 2>&1 &
redis=$!
inside() { ip netns exec "$name" "$@"; }
until inside redis-cli ping >/dev/null 2>&1; do kill -0 "$redis" || fail "no Redis"; sleep 0.1; done
inside redis-cli XADD orders '*' _payload '{"id":"A-1","amount":9.5}' >/dev/null
mkdir config
cp "$handler" config/handler.wasm
cat > config/hostler.toml <<'TOML'
redis = "redis://127.0.0.1:6379"
stream = "orders"
group = "billing"
handler = "/etc/hostler/handler.wasm"
TOML
# The configuration of the image, with a read-only root, the network of the test and a writable cache.
python3 - bundle/config.json "$work/config" "/run/netns/$name" <<'PYTHON'
import json, sys
path, config, netns = sys.argv[1:]
spec = json.load(open(path))
process = spec["process"]
assert process["args"] == ["/usr/bin/hostler", "run", "--config", "/etc/hostler/hostler.toml"], process["args"]
assert process["user"]["uid"] == 65532, process["user"]
process["terminal"] = False
process["capabilities"] = {}
process["noNewPrivileges"] = True
spec["root"]["readonly"] = True
spec["mounts"] += [
    {"destination": "/etc/hostler", "type": "bind", "source": config, "options": ["rbind", "ro"]},
    {"destination": "/var/cache", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777", "size=256m"]},
]
linux = spec["linux"]
linux["namespaces"] = [n for n in linux["namespaces"] if n["type"] not in ("network", "cgroup", "user")]
linux["namespaces"].append({"type": "network", "path": netns})
for key in ("resources", "cgroupsPath", "uidMappings", "gidMappings"):
    linux.pop(key, None)
json.dump(spec, open(path, "w"))
PYTHON
"$runtime" --root "$work/run" run --bundle bundle "$name" > container.log 2>&1 &
container=$!
for _ in $(seq 300); do
  if inside curl --silent --fail http://127.0.0.1:9400/ready > ready.json; then break; fi
  kill -0 "$container" 2>/dev/null || { cat container.log; fail "the container ended"; }
  sleep 0.2
done
inside curl --silent --show-error --fail http://127.0.0.1:9400/ready || { cat container.log; fail "it is not ready"; }
for _ in $(seq 100); do
  acked=$(inside curl --silent http://127.0.0.1:9400/metrics | sed -n 's/^hostler_attempts_total{.*outcome="ack".*} //p')
  [ "${acked:-0}" = 1 ] && break
  sleep 0.1
done
[ "$acked" = 1 ] || { cat container.log; fail "the message was not handled"; }
"$runtime" --root "$work/run" kill "$name" TERM
wait "$container" || fail "it did not drain: $?"
say "ready, one message handled, drained"
