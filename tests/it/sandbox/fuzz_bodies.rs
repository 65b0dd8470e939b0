//! The bodies of the fuzz targets on random bytes. `make fuzz` runs them longer, and guided by coverage.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

#[path = "../../fuzz/src/bodies.rs"]
#[expect(
    unreachable_pub,
    reason = "the targets, which are crates of their own, call them too"
)]
mod bodies;

/// Bytes like those of our layouts: noise mixed with their words, numbers and signs.
fn near() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        &b"\0\0\0\0"[..],
        b"\0\0\0\x01",
        b"\0\0\0\x04",
        b"\xff\xff\xff\xff",
        b"h:",
        b"_payload",
        b"x-death",
        b"x-retry-count",
        b"x-replayed",
        b"{\"headers\":{",
        b"},\"payload\":",
        b"{\"body\":",
        b"{\"base64\":\"aGk=\"}",
        b"\"fields\":[[",
        b"[{\"queue\":\"orders\",\"reason\":\"dropped\",\"count\":",
        b"18446744073709551615",
        b"\"first-time\":",
        b"[255,0,7]",
        b"\"",
        b"\\u0000",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"1",
        b"\x02",
        b"\x08",
        b"\x91",
        b"\xc1",
    ]);
    let piece = prop_oneof![
        3 => words.prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// The inputs of a target that `make fuzz-corpus` kept.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let archive =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/corpus/{target}.tar.gz"));
    let dir = tempfile::tempdir().expect("a directory");
    let unpacked = Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(dir.path())
        .status();
    assert!(
        unpacked.expect("tar runs").success(),
        "{}",
        archive.display()
    );
    let files = std::fs::read_dir(dir.path()).expect("its files");
    files
        .map(|file| std::fs::read(file.expect("a file").path()).expect("its bytes"))
        .collect()
}

#[test]
fn no_kept_input_breaks_a_parser() {
    for (target, body) in bodies::TARGETS {
        let inputs = kept(target);
        assert!(inputs.len() > 50, "{target}: {} inputs", inputs.len());
        for input in inputs {
            body(&input);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_break_a_parser(data in near()) {
        bodies::frame(&data);
        bodies::envelope(&data);
        bodies::stream_fields(&data);
        bodies::death(&data);
        bodies::line(&data);
        bodies::body(&data);
    }
}
