# `cargo install --path host`, as the page says. This compiles everything once more: only when it is asked for.
. packaging/test/lib.sh
[ -n "${SOURCE:-}" ] || skip "it compiles everything: make dist-test ONLY=source SOURCE=1"
export CARGO_INSTALL_ROOT="$work" PATH="$work/bin:$PATH"
follow source
