//! A merged component does what it did before.

use std::fmt::Write;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use wasmparser::{Parser, Payload};
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, Store, Trap};

use super::merged;
use crate::sandbox::program::component_of;

/// The core modules of a component and of its inner ones.
fn modules(component: &[u8]) -> usize {
    let parts = Parser::new(0).parse_all(component);
    let modules = parts.filter(|part| matches!(part, Ok(Payload::ModuleSection { .. })));
    modules.count()
}

/// What `run` returns, or how it ends, and what the component said to `note` until then.
fn run(component: &[u8]) -> (Result<u32, String>, Vec<u32>) {
    let engine = Engine::new(Config::new().consume_fuel(true)).unwrap();
    let component = Component::new(&engine, component).unwrap();
    let mut store = Store::new(&engine, Vec::new());
    store.set_fuel(100_000).unwrap();
    let mut linker = Linker::new(&engine);
    let note = |mut store: wasmtime::StoreContextMut<'_, Vec<u32>>, (noted,): (u32,)| {
        store.data_mut().push(noted);
        Ok(())
    };
    linker.root().func_wrap("note", note).unwrap();
    let mut call = || {
        let instance = linker.instantiate(&mut store, &component)?;
        let run = instance.get_typed_func::<(), (u32,)>(&mut store, "run")?;
        run.call(&mut store, ())
    };
    let result = match call() {
        Ok((result,)) => Ok(result),
        Err(error) => Err(match error.downcast_ref::<Trap>() {
            Some(trap) => trap.to_string(),
            None => error.to_string(),
        }),
    };
    (result, store.into_data())
}

/// The component does the same when it is merged, and then has so many core modules. Returns what it does.
#[track_caller]
fn same(text: &str, expected: usize) -> (Result<u32, String>, Vec<u32>) {
    let component = wat::parse_str(text).unwrap();
    let done = run(&component);
    let merged = merged(&component).unwrap_or_else(|| component.clone());
    assert_eq!(modules(&merged), expected, "core modules");
    assert_eq!(run(&merged), done);
    done
}

/// A component around its core part: `$note` is a core function, and `run` of the instance `$last` is exported.
fn component(core: &str) -> String {
    format!(
        r#"(component
            (import "note" (func $noted (param "x" u32)))
            (core func $note (canon lower (func $noted)))
            {core}
            (func (export "run") (result u32) (canon lift (core func $last "run"))))"#
    )
}

#[test]
fn libraries_that_share_a_table_and_a_memory_become_one_module() {
    // As tools link libraries: the first module has what is shared, and a last one fills the table through which
    // the others call functions that need the memory.
    let text = component(
        r#"
        (core module $shim
            (table (export "table") 1 1 funcref)
            (func (export "later") (param i32) (i32.const 0) (call_indirect (param i32) (local.get 0))
                (drop (i32.const 0))))
        (core module $env
            (memory (export "memory") 1)
            (table (export "table") 8 funcref)
            (global (export "one-base") i32 (i32.const 1))
            (global (export "two-base") i32 (i32.const 4))
            (global (export "shared") (mut i32) (i32.const 7))
            (data (i32.const 16) "\2a"))
        (core module $one
            (import "env" "memory" (memory 1))
            (import "env" "table" (table 2 funcref))
            (import "env" "base" (global $base i32))
            (import "env" "shared" (global $shared (mut i32)))
            (import "env" "note" (func $note (param i32)))
            (elem (global.get $base) func $load $shared-now)
            (func $load (result i32) (i32.load8_u (i32.const 16)))
            (func $shared-now (result i32) (call $note (global.get $shared)) (global.get $shared))
            (func (export "set") (param i32) (global.set $shared (local.get 0))))
        (core module $two
            (import "env" "memory" (memory 0))
            (import "env" "table" (table 0 funcref))
            (import "env" "base" (global $base i32))
            (import "env" "set" (func $set (param i32)))
            (import "env" "note" (func $note (param i32)))
            (type $get (func (result i32)))
            (elem (global.get $base) func $run)
            (data (i32.const 17) "\01")
            (func $run (export "run") (result i32)
                (call $set (i32.const 100))
                (call $note (i32.load8_u (i32.const 17)))
                (i32.add (call_indirect (type $get) (i32.const 1)) (call_indirect (type $get) (i32.const 2)))))
        (core module $fixup
            (import "shim" "table" (table 1 funcref))
            (import "env" "table" (table 1 funcref))
            (import "" "real" (func $real (param i32)))
            (elem (table 0) (i32.const 0) func $real)
            (elem (table 1) (i32.const 7) func $real))
        (core instance $shim (instantiate $shim))
        (core instance $env (instantiate $env))
        (alias core export $env "memory" (core memory $memory))
        (alias core export $shim "later" (core func $later))
        (core instance $one (instantiate $one (with "env" (instance
            (export "memory" (memory $memory))
            (export "table" (table $env "table"))
            (export "base" (global $env "one-base"))
            (export "shared" (global $env "shared"))
            (export "note" (func $note))))))
        (core instance $last (instantiate $two (with "env" (instance
            (export "memory" (memory $memory))
            (export "table" (table $env "table"))
            (export "base" (global $env "two-base"))
            (export "set" (func $one "set"))
            (export "note" (func $note))))))
        (core func $real (canon lower (func $noted) (memory $memory)))
        (core instance (instantiate $fixup
            (with "shim" (instance $shim))
            (with "env" (instance $env))
            (with "" (instance (export "real" (func $real))))))"#,
    );
    let done = same(&text.replace("(drop (i32.const 0))", ""), 2);
    assert_eq!(done, (Ok(142), vec![1, 100]));
}

#[test]
fn segments_and_globals_keep_their_module() {
    let text = component(
        r#"
        (core module $first
            (memory $memory (export "memory") 1 4)
            (memory $own 1)
            (table $table (export "table") 4 funcref)
            (global (export "two") i32 (i32.const 2))
            (data $passive "\05\06")
            (elem $listed func $five)
            (func $five (result i32) (i32.const 5))
            (func (export "copy")
                (memory.init $own $passive (i32.const 0) (i32.const 0) (i32.const 2))
                (memory.copy $memory $own (i32.const 8) (i32.const 0) (i32.const 2))
                (data.drop $passive)
                (table.init $table $listed (i32.const 0) (i32.const 0) (i32.const 1))
                (elem.drop $listed)))
        (core module $second
            (import "a" "memory" (memory $memory 1))
            (import "a" "two" (global $two i32))
            (import "a" "copy" (func $copy))
            (import "a" "table" (table $theirs 1 funcref))
            (table $own 3 funcref)
            (memory $mine 2)
            (global $same i32 (global.get $two))
            (global $function funcref (ref.func $three))
            (data $passive "\09")
            (elem (table $own) (global.get $two) funcref (ref.func $three))
            (elem $listed funcref (ref.func $three) (ref.null func))
            (func $three (result i32) (i32.const 3))
            (func (export "run") (result i32)
                (call $copy)
                (memory.init $mine $passive (i32.const 65536) (i32.const 0) (i32.const 1))
                (table.init $own $listed (i32.const 0) (i32.const 0) (i32.const 2))
                (table.set $theirs (i32.const 3) (global.get $function))
                (drop (memory.grow $memory (i32.const 1)))
                (i32.load8_u $memory (i32.const 9))
                (i32.load8_u $mine (i32.const 65536))
                (i32.mul (memory.size $memory) (memory.size $mine))
                (call_indirect $theirs (result i32) (i32.const 0))
                (call_indirect $theirs (result i32) (i32.const 3))
                (call_indirect $own (result i32) (global.get $same))
                (i32.add) (i32.add) (i32.add) (i32.add) (i32.add)))
        (core instance $first (instantiate $first))
        (core instance $last (instantiate $second (with "a" (instance $first))))"#,
    );
    assert_eq!(same(&text, 1), (Ok(6 + 9 + 4 + 5 + 3 + 3), vec![]));
}

/// A module that notes, when an instance is made, what is in the memory of another one.
const STARTS: &str = r#"
        (core module $starts
            (import "a" "get" (func $get (result i32)))
            (import "b" "note" (func $note (param i32)))
            (func $start (call $note (call $get)))
            (start $start))"#;

/// Modules whose order can be seen: `between` is between two that write to one memory.
fn around(between: &str) -> String {
    component(&format!(
        r#"
        (core module $first
            (memory (export "memory") 1)
            (func (export "get") (result i32) (i32.load8_u (i32.const 0))))
        (core module $later
            (import "a" "memory" (memory 1))
            (data (i32.const 0) "\07")
            (func (export "run") (result i32) (i32.load8_u (i32.const 0))))
        (core instance $first (instantiate $first))
        {between}
        (core instance $last (instantiate $later (with "a" (instance $first))))"#
    ))
}

#[test]
fn no_module_writes_before_code_that_came_before_it() {
    // This one runs code, so the next one stays behind it.
    let between = r#"
        (core instance (instantiate $starts
            (with "a" (instance $first)) (with "b" (instance (export "note" (func $note))))))"#;
    let text = around(&format!("{STARTS}{between}"));
    assert_eq!(same(&text, 2), (Ok(7), vec![0]));
    // This one needs a function that needs the memory, so it stays as well.
    let between = r#"
        (alias core export $first "memory" (core memory $memory))
        (core func $noted-there (canon lower (func $noted) (memory $memory)))
        (core instance (instantiate $starts
            (with "a" (instance $first)) (with "b" (instance (export "note" (func $noted-there))))))"#;
    let text = around(&format!("{STARTS}{between}"));
    assert_eq!(same(&text, 3), (Ok(7), vec![0]));
    // This one writes to the same place first.
    let between = r#"
        (alias core export $first "memory" (core memory $memory))
        (core func $noted-there (canon lower (func $noted) (memory $memory)))
        (core module $writes
            (import "a" "memory" (memory 1))
            (import "b" "note" (func $note (param i32)))
            (data (i32.const 0) "\09"))
        (core instance (instantiate $writes
            (with "a" (instance $first)) (with "b" (instance (export "note" (func $noted-there))))))"#;
    assert_eq!(same(&around(between), 3), (Ok(7), vec![]));
}

#[test]
fn a_module_with_two_instances_stays() {
    let text = component(
        r#"
        (core module $counter
            (global $count (mut i32) (i32.const 0))
            (func (export "next") (result i32)
                (global.set $count (i32.add (global.get $count) (i32.const 1))) (global.get $count)))
        (core module $main
            (import "a" "next" (func $a (result i32)))
            (import "b" "next" (func $b (result i32)))
            (func (export "run") (result i32)
                (drop (call $a)) (i32.add (i32.mul (call $a) (i32.const 10)) (call $b))))
        (core instance $a (instantiate $counter))
        (core instance $b (instantiate $counter))
        (core instance $last (instantiate $main (with "a" (instance $a)) (with "b" (instance $b))))"#,
    );
    assert_eq!(same(&text, 2), (Ok(21), vec![]));
}

#[test]
fn inner_components_are_merged_too() {
    let pair = r#"
        (core module $one (func (export "get") (result i32) (i32.const 4)))
        (core module $two
            (import "a" "get" (func $get (result i32)))
            (func (export "run") (result i32) (call $get)))
        (core instance $one (instantiate $one))
        (core instance $last (instantiate $two (with "a" (instance $one))))
        (func (export "run") (result u32) (canon lift (core func $last "run")))"#;
    let text = format!(
        r#"(component
            (import "note" (func $noted (param "x" u32)))
            (component $inner {pair})
            (instance $made (instantiate $inner))
            (export "run" (func $made "run")))"#
    );
    assert_eq!(same(&text, 1), (Ok(4), vec![]));
}

#[test]
fn a_program_and_its_adapter_become_one_module() {
    let program = r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0)))))"#;
    let component = component_of(&wat::parse_str(program).unwrap())
        .unwrap()
        .into_owned();
    // The second one fills the table through which the first one calls what needs its memory.
    assert_eq!(merged(&component).map(|merged| modules(&merged)), Some(2));
    assert_eq!(modules(&component), 4);
}

#[test]
fn a_mistake_in_a_module_is_still_found() {
    let text = component(
        r#"
        (core module $one (func (export "get") (result i64) (i64.const 4)))
        (core module $two
            (import "a" "get" (func $get (result i32)))
            (func (export "run") (result i32) (i32.const 1)))
        (core instance $one (instantiate $one))
        (core instance $last (instantiate $two (with "a" (instance $one))))"#,
    );
    let component = wat::parse_str(text).unwrap();
    assert_eq!(merged(&component), None);
    assert_eq!(merged(b"\0asm\x0d\0\x01\0\x01\x02\x03"), None);
}

/// Numbers of a program that is made up.
struct Choices<'a>(std::iter::Copied<std::slice::Iter<'a, u8>>);

impl Choices<'_> {
    fn of(&mut self, count: usize) -> usize {
        usize::from(self.0.next().unwrap_or_default()) % count
    }
}

/// A core module: takes what it imports from those before it, and may run code when it starts.
fn library(choices: &mut Choices<'_>, index: usize) -> String {
    let mut text = format!("(core module $m{index}\n");
    let mut with = String::new();
    let from = |choices: &mut Choices<'_>| (index > 0).then(|| choices.of(index.max(1)));
    // A memory, a table and a global are its own or those of another one, and are exported.
    let shared = [
        (
            "memory",
            "(memory $memory 1)",
            "(memory $memory (export \"memory\") 1)",
            "memory",
        ),
        (
            "table",
            "(table $table 4 funcref)",
            "(table $table (export \"table\") 4 funcref)",
            "table",
        ),
        (
            "base",
            "(global $base i32)",
            "(global $base (export \"base\") i32 (i32.const 1))",
            "global",
        ),
        (
            "count",
            "(global $count (mut i32))",
            "(global $count (export \"count\") (mut i32) (i32.const 5))",
            "global",
        ),
    ];
    let mut own = String::new();
    for (name, import, definition, kind) in shared {
        match from(choices).filter(|_| choices.of(4) > 0) {
            Some(other) => {
                writeln!(
                    text,
                    "(import \"l\" \"{name}\" {import}) (export \"{name}\" ({kind} ${name}))"
                )
                .unwrap();
                write!(with, "(export \"{name}\" ({kind} $i{other} \"{name}\"))").unwrap();
            }
            None => writeln!(own, "{definition}").unwrap(),
        }
    }
    writeln!(text, "(import \"l\" \"note\" (func $note (param i32)))").unwrap();
    with.push_str("(export \"note\" (func $note))");
    let calls = from(choices);
    if let Some(other) = calls {
        writeln!(
            text,
            "(import \"l\" \"f\" (func $other (param i32) (result i32)))"
        )
        .unwrap();
        write!(with, "(export \"f\" (func $i{other} \"f\"))").unwrap();
    }
    text.push_str(&own);
    let at = choices.of(3);
    match choices.of(3) {
        0 => {}
        1 => writeln!(text, "(elem (global.get $base) func $f $g)").unwrap(),
        _ => writeln!(text, "(elem (i32.const {at}) func $g)").unwrap(),
    }
    if choices.of(2) > 0 {
        writeln!(text, "(data (i32.const {at}) \"\\0{index}\\01\")").unwrap();
    }
    let steps: String = (0..choices.of(4) + 1)
        .map(|_| match choices.of(6) {
            0 => "(global.set $count (i32.add (global.get $count) (local.get $x)))".to_owned(),
            1 => format!("(i32.store8 (i32.const {at}) (i32.add (local.get $x) (global.get $count)))"),
            2 => "(local.set $x (i32.add (local.get $x) (i32.load (i32.const 0))))".to_owned(),
            3 => format!("(local.set $x (call_indirect $table (param i32) (result i32) (local.get $x) (i32.const {at})))"),
            4 if calls.is_some() => "(local.set $x (call $other (local.get $x)))".to_owned(),
            _ => "(call $note (local.get $x))".to_owned(),
        })
        .collect();
    writeln!(
        text,
        "(func $f (export \"f\") (param $x i32) (result i32) {steps} (local.get $x))
         (func $g (param $x i32) (result i32) (i32.add (local.get $x) (i32.const {index})))
         (func (export \"run\") (result i32) (call $f (i32.const 3)))"
    )
    .unwrap();
    if choices.of(6) == 0 {
        text.push_str("(func $start (drop (call $f (i32.const 1)))) (start $start)");
    }
    writeln!(
        text,
        ")\n(core instance $i{index} (instantiate $m{index} (with \"l\" (instance {with}))))"
    )
    .unwrap();
    text
}

/// Some libraries, and at times a function that needs the memory of one of them, which keeps others apart.
fn program(bytes: &[u8]) -> String {
    let mut choices = Choices(bytes.iter().copied());
    let count = choices.of(5) + 2;
    let mut core = String::new();
    for index in 0..count {
        let mut library = library(&mut choices, index);
        if index > 0 && choices.of(5) == 0 {
            let of = choices.of(index);
            library = library.replace(
                "(export \"note\" (func $note))",
                "(export \"note\" (func $needs))",
            );
            library = library.replace("$needs", &format!("$needs{index}"));
            library = format!(
                "(core func $needs{index} (canon lower (func $noted) (memory (core memory $i{of} \"memory\"))))\n{library}"
            );
        }
        core.push_str(&library);
    }
    component(&core).replace("$last", &format!("$i{}", count - 1))
}

/// The programs are worth something: many are merged, run code, and end well.
#[test]
fn made_up_programs_are_merged_and_run() {
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let (mut whole, mut apart, mut well) = (0, 0, 0);
    for _ in 0..200 {
        let mut bytes = [0; 100];
        random.fill_bytes(&mut bytes);
        let component = wat::parse_str(program(&bytes)).unwrap();
        let merged = merged(&component).map(|merged| modules(&merged));
        whole += u32::from(merged == Some(1));
        apart += u32::from(merged != Some(1));
        let (result, notes) = run(&component);
        well += u32::from(result.is_ok() && !notes.is_empty());
    }
    println!("{whole} became one module, {apart} did not; {well} ended well");
    assert!(whole > 40 && apart > 40 && well > 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn programs_of_several_libraries_do_the_same_when_they_are_merged(
        bytes in prop::collection::vec(any::<u8>(), 100)
    ) {
        let text = program(&bytes);
        let component = wat::parse_str(&text).unwrap();
        if let Some(merged) = merged(&component) {
            prop_assert!(modules(&merged) < modules(&component));
            let ((result, notes), (expected, noted)) = (run(&merged), run(&component));
            // The starts of several instances take some fuel more than the start of one.
            let is_cut = [&result, &expected].iter().any(|result| {
                matches!(result, Err(trap) if trap.contains("fuel") || trap.contains("stack"))
            });
            if is_cut {
                let seen = notes.len().min(noted.len());
                prop_assert_eq!(&notes[..seen], &noted[..seen], "{}", text);
            } else {
                prop_assert_eq!((result, notes), (expected, noted), "{}", text);
            }
        }
    }
}
