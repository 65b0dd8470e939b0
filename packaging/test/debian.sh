# The Debian package in a Debian root under systemd-nspawn: installed, started by systemd, reloaded, upgraded, purged.
. packaging/test/lib.sh
has systemd-analyze systemd
has mmdebstrap
deb=$(package "hostler_${VERSION}_$(dpkg --print-architecture).deb")
dpkg-deb --info "$deb"
dpkg-deb --contents "$deb" > "$work/contents"
for file in ./usr/bin/hostler ./usr/lib/systemd/system/hostler@.service ./usr/lib/sysusers.d/hostler.conf \
  ./usr/share/man/man1/hostler-run.1.gz ./usr/share/bash-completion/completions/hostler; do
  grep -q " $file\$" "$work/contents" || fail "no $file"
done
# The unit, by the tools of systemd.
mkdir "$work/files"
dpkg-deb --extract "$deb" "$work/files"
unit=$work/files/usr/lib/systemd/system/hostler@.service
sed "s|/usr/bin/hostler|$work/files/usr/bin/hostler|; s|^Documentation=.*||" "$unit" > "$work/hostler@.service"
systemd-analyze verify "$work/hostler@orders.service" 2>&1 || systemd-analyze verify "$work/hostler@.service"
systemd-analyze security --offline=true "$work/hostler@.service" > "$work/security" || true
exposure=$(sed -n 's/.*exposure level for [^:]*: \([0-9.]*\) .*/\1/p' "$work/security")
say "exposure $exposure"
awk -v found="$exposure" 'BEGIN { exit !(found != "" && found <= 3.5) }' || fail "exposure $exposure is more than 3.5"
! grep -q '^MemoryDenyWriteExecute=yes' "$unit" || fail "handlers could not be compiled"

has systemd-nspawn systemd-container
[ "$(id -u)" = 0 ] || skip "systemd-nspawn needs root"
image=$TOOLS/debian-root.tar
[ -e "$image" ] || mmdebstrap --quiet --variant=minbase \
  --include=systemd,systemd-sysv,dbus,redis-server,curl,ca-certificates,procps bookworm "$image"
machine=$work/machine
mkdir "$machine"
tar -xf "$image" -C "$machine"
mkdir "$machine/root/get-started"
cp "$deb" "$machine/root/get-started/"
handler=$root/guest-examples/rust/target/wasm32-wasip2/release/orders_handler.wasm
[ -e "$handler" ] || fail "no handler: make guest LANG=rust"
cp "$handler" "$machine/root/get-started/handler.wasm"
blocks debian > "$machine/root/get-started/debian.sh"   # follow debian
blocks systemd > "$machine/root/get-started/systemd.sh" # follow systemd
cp packaging/test/in-debian "$machine/root/get-started/test.sh"
cat > "$machine/etc/systemd/system/test.service" <<'UNIT'
[Unit]
After=multi-user.target redis-server.service
[Service]
Type=oneshot
WorkingDirectory=/root/get-started
ExecStart=/bin/sh -c 'sh -eux test.sh > /root/log 2>&1; echo $? > /root/result'
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=multi-user.target
UNIT
mkdir -p "$machine/etc/systemd/system/multi-user.target.wants"
ln -s /etc/systemd/system/test.service "$machine/etc/systemd/system/multi-user.target.wants/test.service"
timeout 300 systemd-nspawn --quiet --register=no --keep-unit --directory="$machine" --private-network --boot \
  > "$work/boot.log" 2>&1 || true
if [ ! -e "$machine/root/result" ]; then
  tail -n 20 "$work/boot.log"
  skip "systemd does not boot in a container here: $(tail -n 1 "$work/boot.log" | cut -c1-120)"
fi
cat "$machine/root/log"
[ "$(cat "$machine/root/result")" = 0 ] || fail "in the machine: $(tail -n 3 "$machine/root/log")"
# Fresh calls under the limits of the unit: within 5 %. The best of eight runs each: others use this machine, too.
python3 - "$machine/root/get-started/outside.json" "$machine/root/get-started/inside.json" <<'PYTHON'
import json, sys
runs = [[json.loads(line)["fresh"]["p50_us"] for line in open(path)] for path in sys.argv[1:]]
print(f"   all runs: {runs[0]} outside, {runs[1]} in the unit")
outside, inside = map(min, runs)
print(f"   fresh calls: {outside:.2f} us outside, {inside:.2f} us in the unit, ratio {inside / outside:.3f}")
assert inside <= outside * 1.05, "the unit makes fresh calls slower"
PYTHON
