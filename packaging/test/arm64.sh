# The packages for arm64: what they say of themselves, that all hold one binary, and that it handles messages: the
# image, under qemu's emulation of a process, with a Redis of this machine.
. packaging/test/lib.sh
image=$(ls "$DIST"/hostler-"$VERSION"-oci-arm64.tar 2>/dev/null) ||
  skip "no packages for arm64: make dist-binaries DIST_TARGETS=aarch64-unknown-linux-gnu"
has umoci
has redis-server
has unzip
has qemu-aarch64-static qemu-user-static
[ "$(id -u)" = 0 ] || skip "another root directory needs root here"
cd "$work"
mkdir image archive wheel
tar -xf "$image" -C image
umoci unpack --image image:latest bundle >/dev/null
rootfs=$work/bundle/rootfs
tar -xf "$(package "hostler-$VERSION-aarch64-linux.tar.gz")" -C archive --strip-components 1
unzip -q "$(package "hostler-$VERSION-*_aarch64.whl")" -d wheel
deb=$(package "hostler_$VERSION*_arm64.deb")
[ "$(dpkg-deb -f "$deb" Architecture)" = arm64 ] || fail "the Debian package is for $(dpkg-deb -f "$deb" Architecture)"
dpkg-deb -x "$deb" deb
for other in archive/bin/hostler deb/usr/bin/hostler wheel/hostler-*.data/scripts/hostler; do
  cmp "$rootfs/usr/bin/hostler" "$other" || fail "$other is another binary"
done
handler=$root/guest-examples/rust/target/wasm32-wasip2/release/orders_handler.wasm
[ -e "$handler" ] || fail "no handler: make guest LANG=rust"

# hostler starts itself to compile: so the kernel has to know the emulator.
binfmt=/proc/sys/fs/binfmt_misc
[ -e $binfmt/register ] || mount -t binfmt_misc binfmt_misc $binfmt 2>/dev/null || skip "the kernel has no binfmt_misc"
if [ ! -e $binfmt/qemu-aarch64 ]; then
  registered=hostler-test-$$
  magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
  mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
  printf '%s' ":$registered:M::$magic:$mask:$(command -v qemu-aarch64-static):F" > $binfmt/register ||
    skip "no emulator can be registered here"
fi
end() {
  [ -z "${redis:-}" ] || kill "$redis" 2>/dev/null || true
  [ -z "${registered:-}" ] || echo -1 > "$binfmt/$registered" || true
  umount "$rootfs/proc" 2>/dev/null || true
  clean
}
trap end EXIT
mkdir -p "$rootfs/tmp" "$rootfs/proc"
mount -t proc proc "$rootfs/proc"
cp "$handler" "$rootfs/tmp/handler.wasm"
redis-server --port 0 --unixsocket "$rootfs/tmp/redis.sock" --save '' --appendonly no --dir "$work" > redis.log 2>&1 &
redis=$!
cli() { redis-cli -s "$rootfs/tmp/redis.sock" "$@"; }
until cli ping >/dev/null 2>&1; do kill -0 "$redis" || fail "no Redis"; sleep 0.1; done
for number in 1 2 3 4 5 6 7 8 9; do
  cli XADD orders '*' _payload "{\"id\":\"A-$number\",\"amount\":9.5}" >/dev/null
done
cli XADD orders '*' _payload 'no order' >/dev/null
summary=$(timeout 300 chroot "$rootfs" /usr/bin/hostler run --redis unix:///tmp/redis.sock --stream orders \
  --group billing --dead-letter orders:dead --handler /tmp/handler.wasm --until-empty --summary json 2> host.log) ||
  { cat host.log; fail "hostler ended with $?"; }
case $summary in
  *'"acked":9,'*'"dead_lettered":{"dropped":1}'*) ;;
  *) cat host.log; fail "it did something else: $summary" ;;
esac
[ "$(cli XLEN orders:dead)" = 1 ] || fail "the dead letter is not there"
say "$(chroot "$rootfs" /usr/bin/hostler --version | head -1) for arm64: ten messages handled, one of them a dead letter"
