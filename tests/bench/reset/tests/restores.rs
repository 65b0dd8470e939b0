//! A reset restores whatever a call has written, and the check finds each mark that is missing.

use reset::check::{Found, bodies, check};
use reset::instrument::{MARKS, NOT_RESTORED, OPERATORS, Options, PROPOSALS, STORES, instrumented};
use wasmtime::Result;

const GUEST: &str = include_str!("../guests/stores.wat");

/// A handler with this code, and these changes.
fn guest(code: &str, changes: &[(&str, &str)]) -> Vec<u8> {
    let (begin, rest) = GUEST.split_once(";; BEGIN").expect("the code begins");
    let (_, end) = rest.split_once(";; END").expect("the code ends");
    let mut text = format!("{begin}{code}{end}");
    for (mark, with) in changes {
        let mark = format!(";; {mark}");
        assert!(text.contains(&mark), "{mark}");
        text = text.replacen(&mark, with, 1);
    }
    wat::parse_str(text).expect("a component")
}

fn without(mark: &'static str) -> Options {
    Options {
        without: Some(mark),
        ..Options::default()
    }
}

fn try_check(component: &[u8], options: Options) -> Result<Found> {
    let component = instrumented(component, options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(check(&component, &bodies(br#"{"id":"o-1"}"#)))
}

fn checked(component: &[u8], options: Options) -> Found {
    try_check(component, options).expect("no call fails")
}

/// The component is restored, and without this mark it is not.
fn needs(component: &[u8], mark: &'static str) {
    let found = checked(component, Options::default());
    assert_eq!((found.different, found.ended), (0, 0), "{mark}");
    assert!(found.restored > 0, "{mark}");
    let found = checked(component, without(mark));
    assert!(found.different > 0, "nobody misses {mark}");
}

#[test]
fn each_form_of_store_is_marked() {
    // The last byte of a block: what is wider writes to the next one, too.
    for name in STORES {
        let (kind, value) = match &name[..3] {
            "I32" => ("i32", "(i32.const -1)"),
            "I64" => ("i64", "(i64.const -1)"),
            "F32" => ("f32", "(f32.const -1.5)"),
            "F64" => ("f64", "(f64.const -1.5)"),
            _ => ("v128", "(v128.const i64x2 -1 -1)"),
        };
        let width = name.split_once("Store").expect("a store").1;
        let instruction = match width.strip_suffix("Lane") {
            Some(width) => format!("v128.store{width}_lane"),
            None => format!("{kind}.store{width}"),
        };
        let lane = if width.ends_with("Lane") { " 1" } else { "" };
        for (offset, address) in [("", 12287), ("offset=4095", 8192)] {
            let code = format!("({instruction} {offset}{lane} (i32.const {address}) {value})");
            needs(&guest(&code, &[]), name);
        }
    }
}

#[test]
fn all_stores_are_known() {
    for (proposal, name) in OPERATORS {
        if PROPOSALS.contains(proposal) && name.contains("Store") {
            assert!(STORES.contains(name), "{name}");
        }
    }
    for name in NOT_RESTORED {
        assert!(OPERATORS.iter().any(|(_, known)| known == name), "{name}");
    }
}

#[test]
fn bulk_writes_are_marked() {
    let fill = "(memory.fill (i32.const 8000) (i32.const 7) (i32.const 9000))";
    needs(&guest(fill, &[]), "memory.fill");
    let copy = "(memory.copy (i32.const 40000) (i32.const 1024) (i32.const 20))";
    needs(&guest(copy, &[]), "memory.copy");
    let init = "(memory.init $later (i32.const 4090) (i32.const 0) (i32.const 12))";
    let data = [("ITEMS", r#"(data $later "later, later")"#)];
    needs(&guest(init, &data), "memory.init");
}

#[test]
fn what_the_host_writes_is_marked() {
    let nothing = guest("", &[]);
    needs(&nothing, "realloc");
    needs(&nothing, "globals");
    needs(&clock(), "result");
}

/// A handler that asks for the time. The host writes it to memory; the import is in a table.
fn clock() -> Vec<u8> {
    guest(
        "(call_indirect $imports (type $asks) (i32.const 20480) (i32.const 0))",
        &[
            (
                "IMPORTS",
                r#"(import "wasi:clocks/wall-clock@0.2.0" (instance $clock
                     (type $time (record (field "seconds" u64) (field "nanoseconds" u32)))
                     (export "datetime" (type $named (eq $time)))
                     (export "now" (func (result $named)))))"#,
            ),
            (
                "ITEMS",
                r#"(type $asks (func (param i32)))
                   (table $imports (export "imports") 1 1 funcref)"#,
            ),
            (
                "BEHIND",
                r#"(alias core export $i "memory" (core memory $memory))
                   (core func $now (canon lower (func $clock "now") (memory $memory)))
                   (core module $fill
                     (type $asks (func (param i32)))
                     (import "" "now" (func $now (type $asks)))
                     (import "" "imports" (table 1 1 funcref))
                     (elem (i32.const 0) func $now))
                   (alias core export $i "imports" (core table $imports))
                   (core instance (instantiate $fill (with "" (instance
                     (export "now" (func $now))
                     (export "imports" (table $imports))))))"#,
            ),
        ],
    )
}

/// A handler that opens a stream, and does not close it.
fn opens() -> Vec<u8> {
    guest(
        "(drop (call $open))",
        &[
            (
                "IMPORTS",
                r#"(import "wasi:io/streams@0.2.0" (instance $streams
                     (export "output-stream" (type (sub resource)))))
                   (alias export $streams "output-stream" (type $stream))
                   (import "wasi:cli/stdout@0.2.0" (instance $stdout
                     (alias outer 1 $stream (type $outer))
                     (export "output-stream" (type $named (eq $outer)))
                     (export "get-stdout" (func (result (own $named))))))
                   (core func $open (canon lower (func $stdout "get-stdout")))
                   (core func $drop (canon resource.drop $stream))"#,
            ),
            (
                "ITEMS",
                r#"(import "" "open" (func $open (result i32)))
                   (import "" "drop" (func $drop (param i32)))"#,
            ),
            (
                "INSTANCE\n  (core instance $i (instantiate $guest))",
                r#"(core instance $i (instantiate $guest (with "" (instance
                     (export "open" (func $open)) (export "drop" (func $drop))))))"#,
            ),
        ],
    )
}

#[test]
fn handles_that_are_left_open_are_dropped() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    // An instance may have 1000.
    let bodies = vec![Vec::new(); 1100];
    let all = instrumented(&opens(), Options::default()).expect("it can be reset");
    let found = runtime
        .block_on(check(&all, &bodies))
        .expect("none is missing");
    assert_eq!(found.restored, bodies.len());
    let leaks = instrumented(&opens(), without("handles")).expect("it can be reset");
    assert!(runtime.block_on(check(&leaks, &bodies)).is_err());
}

#[test]
fn growth_is_forgotten() {
    let code = "(if (i32.ne (memory.size) (i32.const 16)) (then unreachable))
        (if (i32.ne (memory.grow (i32.const 2)) (i32.const 16)) (then unreachable))
        (if (i32.load (i32.const 0x100000)) (then unreachable))
        (i32.store (i32.const 0x100000) (i32.const 5))";
    let found = checked(&guest(code, &[]), Options::default());
    assert_eq!((found.different, found.ended), (0, 0));
    let drops = Options {
        keeps_growth: false,
        ..Options::default()
    };
    let found = checked(&guest(code, &[]), drops);
    assert_eq!((found.different, found.restored), (0, 0));
}

#[test]
fn what_the_start_has_written_stays() {
    let start = [(
        "ITEMS",
        "(func $start (i32.store (i32.const 5000) (i32.const 77)) (global.set $calls (i64.const 9)))
         (start $start)",
    )];
    let code = "(if (i32.ne (i32.load (i32.const 5000)) (i32.const 77)) (then unreachable))
        (if (i64.ne (global.get $calls) (i64.const 9)) (then unreachable))
        (i32.store (i32.const 5000) (i32.const 78))";
    let guest = guest(code, &start);
    let found = checked(&guest, Options::default());
    assert_eq!((found.different, found.ended), (0, 0));
    // Without the mark, the image lacks it.
    assert!(try_check(&guest, without("I32Store")).is_err());
}

#[test]
fn what_cannot_be_restored_is_refused() {
    let table = [("ITEMS", "(table $t 1 funcref)")];
    let data = [("ITEMS", r#"(data $later "later")"#)];
    let global = [("ITEMS", "(global $r (mut externref) (ref.null extern))")];
    for (code, items) in [
        ("(table.set $t (i32.const 0) (ref.null func))", &table),
        ("(data.drop $later)", &data),
        ("", &global),
    ] {
        let refused = instrumented(&guest(code, items), Options::default());
        assert!(refused.is_err(), "{code}");
    }
}

#[test]
fn every_mark_has_a_test() {
    // A mark that is added needs a test above.
    assert_eq!(MARKS.len(), 7);
    assert_eq!(STORES.len(), 14);
}

#[test]
fn all_sizes_of_blocks_restore() {
    for block_bits in [8, 10, 12, 14] {
        let options = Options {
            block_bits,
            ..Options::default()
        };
        let code = "(memory.fill (i32.const 4000) (i32.const 7) (i32.const 5000))
            (i64.store (i32.const 0x1ffff) (i64.const -1))";
        let found = checked(&guest(code, &[]), options);
        assert_eq!((found.different, found.ended), (0, 0), "{block_bits}");
    }
}
