//! A merged component does what it did before.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use wasmparser::{Parser, Payload};
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, OptLevel, RegallocAlgorithm, Store, StoreLimitsBuilder, Trap};

use super::merged;
use super::programs::{Program, program};
use crate::program::component_of;
use crate::snapshot::{self, Snapshot, WithoutSnapshot};

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

/// The component does the same when it is merged, and then has `expected` core modules. Returns what it does.
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

/// A module whose instances pass a memory on. It has two, so it stays.
const PASSES: &str = r#"
        (core module $passes (import "a" "memory" (memory 1)) (export "memory" (memory 0)))"#;

/// A memory of an instance that stays.
const MEMORY: &str = r#"
        (core module $memory
            (memory (export "memory") 1)
            (func (export "get") (result i32) (i32.load8_u (i32.const 0))))
        (core instance $memory (instantiate $memory))
        (core instance (instantiate $memory))"#;

#[test]
fn no_module_writes_later_than_code_that_came_after_it() {
    // The last module needs a function of the one between, so the merged one would come after it.
    let between = |what: &str| {
        component(&format!(
            r#"{MEMORY}{STARTS}
            (core module $first (import "a" "memory" (memory 1)) (data (i32.const 0) "\07"))
            (core module $later (import "b" "needed" (func $needed (result i32)))
                (func (export "run") (result i32) (call $needed)))
            (core instance $first (instantiate $first (with "a" (instance $memory))))
            {what}
            (core instance $last (instantiate $later (with "b" (instance $between))))"#
        ))
    };
    let starts = STARTS.replace(
        "(start $start)",
        r#"(start $start) (func (export "needed") (result i32) (call $get))"#,
    );
    let text = between(&format!(
        r#"{}
        (core instance $between (instantiate $starts-here
            (with "a" (instance $memory)) (with "b" (instance (export "note" (func $note))))))
        (core instance (instantiate $starts-here
            (with "a" (instance $memory)) (with "b" (instance (export "note" (func $note))))))"#,
        starts.replace("$starts", "$starts-here")
    ));
    assert_eq!(same(&text, 5), (Ok(7), vec![7, 7]));
}

#[test]
fn a_start_of_a_component_comes_before_what_came_after_it() {
    let text = component(
        r#"
        (core module $first (func (export "f") (result i32) (i32.const 4)))
        (component $inner
            (import "note" (func $noted (param "x" u32)))
            (core func $note (canon lower (func $noted)))
            (core module $starts
                (import "b" "note" (func $note (param i32)))
                (func $start (call $note (i32.const 1)))
                (start $start))
            (core instance (instantiate $starts (with "b" (instance (export "note" (func $note)))))))
        (core module $later
            (import "a" "f" (func $f (result i32)))
            (import "b" "note" (func $note (param i32)))
            (func $start (call $note (i32.const 2)))
            (start $start)
            (func (export "run") (result i32) (call $f)))
        (core instance $first (instantiate $first))
        (instance (instantiate $inner (with "note" (func $noted))))
        (core instance $last (instantiate $later
            (with "a" (instance $first)) (with "b" (instance (export "note" (func $note))))))"#,
    );
    assert_eq!(same(&text, 3), (Ok(4), vec![1, 2]));
}

#[test]
fn a_memory_that_is_passed_on_is_the_same_memory() {
    // The one between writes to the memory of the first one, which it has from another instance.
    let between = format!(
        r#"{PASSES}
        (core instance $passed (instantiate $passes (with "a" (instance $first))))
        (core instance (instantiate $passes (with "a" (instance $first))))
        (alias core export $first "memory" (core memory $memory))
        (core func $noted-there (canon lower (func $noted) (memory $memory)))
        (core module $writes
            (import "a" "memory" (memory 1))
            (import "b" "note" (func $note (param i32)))
            (data (i32.const 0) "\09"))
        (core instance (instantiate $writes
            (with "a" (instance $passed)) (with "b" (instance (export "note" (func $noted-there))))))"#
    );
    assert_eq!(same(&around(&between), 4), (Ok(7), vec![]));
    // One that needs what is passed on needs the first one only.
    let text = around(&format!(
        r#"{PASSES}
        (core instance $passed (instantiate $passes (with "a" (instance $first))))
        (core instance (instantiate $passes (with "a" (instance $first))))"#
    ));
    let text = text.replace(
        r#"$later (with "a" (instance $first))"#,
        r#"$later (with "a" (instance $passed))"#,
    );
    assert_eq!(same(&text, 2), (Ok(7), vec![]));
}

#[test]
fn a_module_whose_start_fails_stays() {
    // The note of the one between comes before the failure.
    let between = r#"
        (alias core export $first "memory" (core memory $memory))
        (core func $noted-there (canon lower (func $noted) (memory $memory)))
        (core instance (instantiate $starts
            (with "a" (instance $first)) (with "b" (instance (export "note" (func $noted-there))))))"#;
    let text = around(&format!("{STARTS}{between}"));
    let text = text.replace(
        r#"(import "a" "memory" (memory 1))
            (data (i32.const 0) "\07")"#,
        r#"(memory 1) (data (i32.const 65536) "\07")"#,
    );
    let failure = "wasm trap: out of bounds memory access".to_owned();
    assert_eq!(same(&text, 3), (Err(failure.clone()), vec![0]));
    // One module writes all elements before all bytes.
    let text = around("")
        .replace(
            r#"(memory (export "memory") 1)"#,
            r#"(memory (export "memory") 1) (data (i32.const 65536) "\07")"#,
        )
        .replace(
            r#"(data (i32.const 0) "\07")"#,
            "(table 1 funcref) (elem (i32.const 1) func $run) (func $run)",
        );
    assert_eq!(same(&text, 2), (Err(failure), vec![]));
}

#[test]
fn a_library_joins_past_one_that_writes_elsewhere() {
    // As in Python: the second last one fills in functions of the host, and the last one fills the table of all.
    let text = component(
        r#"
        (core module $shim
            (table (export "table") 1 1 funcref)
            (func (export "later") (param i32) (call_indirect (param i32) (local.get 0) (i32.const 0))))
        (core module $env
            (memory (export "memory") 1)
            (table (export "table") 8 funcref)
            (global (export "base") i32 (i32.const 3))
            (func (export "run") (result i32)
                (call_indirect (param i32) (i32.const 9) (i32.const 4)) (i32.load8_u (i32.const 8))))
        (core module $init
            (import "env" "memory" (memory 0))
            (import "env" "table" (table 0 funcref))
            (import "env" "base" (global $base i32))
            (import "shim" "later" (func $later (param i32)))
            (elem (i32.add (global.get $base) (i32.const 1)) func $later)
            (data (i32.const 8) "\05"))
        (core module $fixup
            (import "shim" "table" (table 1 funcref))
            (import "" "real" (func $real (param i32)))
            (elem (i32.const 0) func $real))
        (core instance $shim (instantiate $shim))
        (core instance $last (instantiate $env))
        (core func $real (canon lower (func $noted) (memory (core memory $last "memory"))))
        (core instance (instantiate $fixup
            (with "shim" (instance $shim)) (with "" (instance (export "real" (func $real))))))
        (core instance (instantiate $init (with "env" (instance $last)) (with "shim" (instance $shim))))"#,
    );
    assert_eq!(same(&text, 2), (Ok(5), vec![9]));
}

#[test]
fn nothing_is_merged_past_a_module_that_cannot_be_read() {
    // The engine runs no exceptions, so it is only merged here.
    let text = |tag: &str| {
        component(&format!(
            r#"
            (core module $first (func (export "f") (result i32) (i32.const 4)))
            (core module $between {tag} (func (export "g")))
            (core module $later
                (import "a" "f" (func $f (result i32))) (import "b" "g" (func $g))
                (func (export "run") (result i32) (call $f)))
            (core instance $first (instantiate $first))
            (core instance $between (instantiate $between))
            (core instance $last (instantiate $later (with "a" (instance $first)) (with "b" (instance $between))))"#
        ))
    };
    let merged = |text: &str| merged(&wat::parse_str(text).unwrap()).map(|merged| modules(&merged));
    assert_eq!(merged(&text("")), Some(1));
    assert_eq!(merged(&text("(tag)")), None);
}

#[test]
fn a_destructor_stays_the_function_that_it_was() {
    let text = component(
        r#"
        (core module $first
            (import "b" "note" (func $note (param i32)))
            (func (export "unused") (param i32))
            (func (export "ends") (param i32) (call $note (local.get 0)))
            (func (export "other") (param i32) (call $note (i32.const 1))))
        (core instance $first (instantiate $first (with "b" (instance (export "note" (func $note))))))
        (alias core export $first "unused" (core func $unused))
        (alias core export $first "ends" (core func $ends))
        (type $resource (resource (rep i32) (dtor (core func $ends))))
        (core func $new (canon resource.new $resource))
        (core func $drop (canon resource.drop $resource))
        (core module $later
            (import "a" "other" (func $other (param i32)))
            (import "c" "new" (func $new (param i32) (result i32)))
            (import "c" "drop" (func $drop (param i32)))
            (func (export "run") (result i32) (call $drop (call $new (i32.const 8))) (i32.const 3)))
        (core instance $last (instantiate $later
            (with "a" (instance $first))
            (with "c" (instance (export "new" (func $new)) (export "drop" (func $drop))))))"#,
    );
    assert_eq!(same(&text, 2), (Ok(3), vec![8]));
}

#[test]
fn constants_that_double_with_each_module_are_not_written_out() {
    let mut core = r#"(core module $one (global (export "g") i32 (i32.const 1)))
        (core instance $i0 (instantiate $one))"#
        .to_owned();
    for index in 1..60 {
        let before = index - 1;
        core += &format!(
            r#"(core module $m{index} (import "a" "g" (global $g i32))
                (global (export "g") i32 (i32.add (global.get $g) (global.get $g)))
                (func (export "run") (result i32) (global.get $g)))
            (core instance $i{index} (instantiate $m{index} (with "a" (instance $i{before}))))"#
        );
    }
    let text = component(&core).replace("$last", "$i59");
    assert_eq!(same(&text, 60), (Ok(0), vec![]));
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

/// What a program does: what it says and what its functions return, in order, and how it ends if it fails.
type Done = (Vec<(char, u32)>, Result<(), String>);

/// Make an instance of a program that is made up, and call all its functions.
fn played(component: &[u8]) -> Done {
    let component = Component::new(engine(), component).unwrap();
    let mut store = Store::new(engine(), Vec::new());
    let mut linker = Linker::new(engine());
    let mut root = linker.root();
    root.func_wrap("note", |mut store: Said<'_>, (noted,): (u32,)| {
        store.data_mut().push(('n', noted));
        Ok(())
    })
    .unwrap();
    root.func_wrap("f", |mut store: Said<'_>, (x, d): (u32, u32)| {
        store.data_mut().push(('f', x ^ (d << 28)));
        Ok((x.wrapping_mul(3).wrapping_add(1),))
    })
    .unwrap();
    let ty = component.component_type();
    let names: Vec<_> = ty.exports(engine()).map(|(name, _)| name).collect();
    let call = || {
        let instance = linker.instantiate(&mut store, &component)?;
        store.data_mut().push(('s', 0));
        for name in names {
            let function = instance.get_typed_func::<(u32, u32), (u32,)>(&mut store, name)?;
            let (result,) = function.call(&mut store, (3, 4))?;
            store.data_mut().push(('r', result));
        }
        Ok(())
    };
    let ended = call().map_err(
        |error: wasmtime::Error| match error.downcast_ref::<Trap>() {
            Some(trap) => trap.to_string(),
            None => error.to_string(),
        },
    );
    (store.into_data(), ended)
}

type Said<'a> = wasmtime::StoreContextMut<'a, Vec<(char, u32)>>;

/// An engine for very many programs: it compiles fast, and takes little address space.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config
            .cranelift_opt_level(OptLevel::None)
            .cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass)
            .parallel_compilation(false)
            .generate_address_map(false)
            .native_unwind_info(false)
            .wasm_backtrace_max_frames(None)
            .memory_init_cow(false)
            .memory_reservation(1 << 20)
            .memory_reservation_for_growth(1 << 20)
            .memory_guard_size(1 << 16);
        Engine::new(&config).unwrap()
    })
}

/// How many programs had what.
#[derive(Debug, Default)]
struct Counts(BTreeMap<&'static str, u32>);

impl Counts {
    fn add(&mut self, counted: &[(&'static str, bool)]) {
        for (name, is) in counted {
            *self.0.entry(name).or_default() += u32::from(*is);
        }
    }
}

/// A snapshot, as an engine takes it that has no 64-bit memories and maps memory for each instance.
fn taken(component: &[u8]) -> Result<Snapshot, WithoutSnapshot> {
    const MEMORY: u64 = 64 << 20;
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .wasm_memory64(false)
        .memory_reservation(MEMORY)
        .memory_reservation_for_growth(0)
        .memory_guard_size(64 << 10);
    let limiter = StoreLimitsBuilder::new()
        .memory_size(MEMORY as usize)
        .build();
    snapshot::take(component, config, limiter, |_, _| Ok(()))
}

/// Run a program as it is and in each way that hostler may run it. Returns the ways in which it did something else.
fn differences(seed: u64, counts: &mut Counts) -> Vec<&'static str> {
    let Program { text, has } = program(seed);
    let component = wat::parse_str(&text).unwrap_or_else(|error| panic!("{seed}: {error}\n{text}"));
    let done = played(&component);
    let merged_one = merged(&component);
    // The others are refused when they say something: it is enough to see that of some.
    let is_asked = snapshot::has_start(&component) && (has.quiet || seed.is_multiple_of(8));
    // As in its process: wizer panics about what it does not know.
    let taken = is_asked.then(|| catch_unwind(AssertUnwindSafe(|| taken(&component))).ok());
    let snapshot = taken
        .flatten()
        .and_then(Result::ok)
        .map(|snapshot| snapshot.component);
    let merged_snapshot = snapshot.as_deref().and_then(merged);
    let ways = [
        ("merged", &merged_one),
        ("from a snapshot", &snapshot),
        ("from a snapshot, merged", &merged_snapshot),
    ];
    let differing = ways.into_iter().filter(|(_, component)| {
        component
            .as_ref()
            .is_some_and(|component| played(component) != done)
    });
    let differing = differing.map(|(way, _)| way).collect();

    let starts = done.0.iter().any(|(what, _)| *what == 's');
    let is_merged = merged_one.is_some();
    counts.add(&[
        ("programs", true),
        ("with inner components", has.inner),
        ("with two instances of a component", has.inner_twice),
        ("with two instances of a module", has.twice),
        ("with components that pass on", has.shim),
        ("with 64-bit memories", has.wide),
        ("with unread modules", has.unread),
        ("with starts", has.starts),
        ("with segments outside", has.outside),
        ("fail at the start", !starts),
        ("fail in a call", starts && done.1.is_err()),
        ("end well", done.1.is_ok()),
        ("merged", is_merged),
        (
            "merged: to one module",
            merged_one.as_deref().is_some_and(|it| modules(it) == 1),
        ),
        ("merged: with inner components", is_merged && has.inner),
        (
            "merged: with two instances of a component",
            is_merged && has.inner_twice,
        ),
        (
            "merged: with two instances of a module",
            is_merged && has.twice,
        ),
        (
            "merged: with components that pass on",
            is_merged && has.shim,
        ),
        ("merged: with 64-bit memories", is_merged && has.wide),
        ("merged: with unread modules", is_merged && has.unread),
        ("merged: with starts", is_merged && has.starts),
        ("merged: that fail at the start", is_merged && !starts),
        ("from a snapshot", snapshot.is_some()),
        ("from a snapshot, merged", merged_snapshot.is_some()),
        (
            "from a snapshot, merged: with components that pass on",
            merged_snapshot.is_some() && has.shim,
        ),
    ]);
    differing
}

/// The programs of a run of all tests.
const RUNS: u64 = 300;

/// `HOSTLER_MERGE_RUNS` has the number of programs, and `HOSTLER_MERGE_SEED` the first of them.
#[test]
fn made_up_programs_do_the_same_when_they_are_merged_and_begin_from_snapshots() {
    let number = |variable: &str| std::env::var(variable).ok()?.parse::<u64>().ok();
    let runs = number("HOSTLER_MERGE_RUNS").unwrap_or(RUNS);
    let first = number("HOSTLER_MERGE_SEED").unwrap_or(0);
    let (mut counts, mut differing) = (Counts::default(), Vec::new());
    for seed in first..first + runs {
        let ways = differences(seed, &mut counts);
        if !ways.is_empty() {
            println!("{seed}: {ways:?}");
            differing.push(seed);
        }
    }
    println!("{counts:#?}");
    // A generator whose programs are never merged would prove nothing.
    let never = counts.0.iter().find(|(_, count)| **count == 0);
    assert!(runs < RUNS || never.is_none(), "{never:?}");
    if let Some(seed) = differing.first() {
        println!("{}", program(*seed).text);
    }
    assert!(
        differing.is_empty(),
        "{} of {runs}: {differing:?}",
        differing.len()
    );
}
