//! Components that are made to keep a compiler busy: each ends at a limit of the child that
//! compiles it, and costs the host almost nothing.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fastrand::Rng;
use hostler::rollout::verify::{Refusal, Step};
use hostler::sandbox::{Allocation, Cache, Limits, LoadError, Sandbox, Settings};
use hostler_tests::command::{hostler, measured};
use hostler_tests::guests::{component, handler, handler_beside};
use hostler_tests::redis::PATIENCE;
use wasm_encoder::{
    BlockType, CodeSection, Component, ComponentImportSection, ComponentTypeRef,
    ComponentTypeSection, ConstExpr, DataSection, Function, FunctionSection, InstanceType,
    MemorySection, MemoryType, Module, ModuleSection, TypeSection, ValType,
};

use crate::sandbox::sandbox_compile::{
    by_child, large_to_compile, module, patient, refusal, slow_to_compile, wrapping,
};

/// Limits that keep the tests short.
fn tight() -> Settings {
    by_child(Limits {
        compile_time: Duration::from_secs(2),
        compile_memory: 512 << 20,
        ..Limits::default()
    })
}

/// One function of nearly the largest size.
fn a_huge_function() -> Vec<u8> {
    let mut function = Function::new([(64, ValType::I32)]);
    let mut code = function.instructions();
    for i in 0..450_000_u32 {
        let local = |step: u32| 1 + i.wrapping_mul(step) % 64;
        // The compiler cannot compute these values in advance.
        code.local_get(0).local_get(local(7)).i32_add();
        code.local_get(local(13)).local_get(0).i32_xor().i32_mul();
        code.local_tee(local(31)).local_set(0);
    }
    code.local_get(5).end();
    wrapping(&module(vec![function]))
}

/// Nearly the largest number of functions.
fn many_functions() -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32], [ValType::I32]);
    let mut indices = FunctionSection::new();
    let mut code = CodeSection::new();
    let mut function = Function::new([]);
    function
        .instructions()
        .local_get(0)
        .i32_clz()
        .local_get(0)
        .i32_mul()
        .end();
    for _ in 0..900_000 {
        indices.function(0);
        code.function(&function);
    }
    let mut module = Module::new();
    module.section(&types).section(&indices).section(&code);
    wrapping(&module)
}

/// Nested blocks, each with a jump out of all of them.
fn deep_nesting() -> Vec<u8> {
    const DEPTH: u32 = 400_000;
    let mut function = Function::new([]);
    let mut code = function.instructions();
    for depth in 0..DEPTH {
        code.block(BlockType::Empty).local_get(0).br_if(depth);
    }
    for _ in 0..DEPTH {
        code.end();
    }
    code.local_get(0).end();
    wrapping(&module(vec![function]))
}

/// Nested loops around nearly the largest number of locals: each local may change in each turn of
/// each loop.
fn many_locals() -> Vec<u8> {
    const LOCALS: u32 = 49_000;
    const LOOPS: u32 = 1_000;
    let mut function = Function::new([(LOCALS, ValType::I32)]);
    let mut code = function.instructions();
    for _ in 0..LOOPS {
        code.loop_(BlockType::Empty);
    }
    for local in 1..LOCALS {
        code.local_get(local)
            .local_get(local + 1)
            .i32_add()
            .local_set(local);
    }
    for local in 0..LOOPS {
        code.local_get(local).br_if(0).end();
    }
    code.local_get(7).end();
    wrapping(&module(vec![function]))
}

/// Jumps with very many targets.
fn jump_tables() -> Vec<u8> {
    large_to_compile(110)
}

#[test]
fn components_that_are_expensive_to_compile_end_at_a_limit() {
    let bombs = [
        ("a huge function", a_huge_function()),
        ("many functions", many_functions()),
        ("deep nesting", deep_nesting()),
        ("many locals", many_locals()),
        ("jump tables", jump_tables()),
    ];
    let mut wrong = Vec::new();
    for (name, bomb) in bombs {
        let began = Instant::now();
        let error = refusal(&bomb, &tight());
        assert!(began.elapsed() < PATIENCE, "{name} does not end");
        println!(
            "{name}, {} bytes: {error}, after {:?}",
            bomb.len(),
            began.elapsed()
        );
        match error {
            LoadError::CompileTime { .. } | LoadError::CompileMemory { .. } => {}
            _ => wrong.push(name),
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Modules whose memories contain two bytes far apart: each compiles to 31 MiB.
fn wide_memories(modules: usize) -> Vec<u8> {
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 512,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut data = DataSection::new();
    for at in [0, 31 << 20] {
        data.active(0, &ConstExpr::i32_const(at), *b"x");
    }
    let mut module = Module::new();
    module.section(&memories).section(&data);
    let mut component = Component::new();
    for _ in 0..modules {
        component.section(&ModuleSection(&module));
    }
    component.finish()
}

#[test]
fn code_that_is_far_larger_than_its_component_is_refused() {
    let settings = by_child(Limits {
        compile_time: Duration::from_secs(600),
        ..patient()
    });
    let bytes = wide_memories(2);
    let obeyed = refusal(&bytes, &settings);
    // It was compiled: the refusal says that it exports no handler.
    assert!(matches!(obeyed, LoadError::NoHandler { .. }), "{obeyed}");
    let bytes = wide_memories(4);
    let violated = refusal(&bytes, &settings);
    let most = (64 << 20) + 16 * bytes.len();
    assert_eq!(
        violated.to_string(),
        format!("compiles to more than {most} bytes of code; make its functions smaller")
    );
}

#[test]
fn exponential_types_are_refused_as_invalid() {
    let mut text = "(type $t0 (tuple u8 u8 u8 u8 u8 u8 u8 u8 u8 u8))".to_owned();
    for level in 1..30 {
        let inner = format!(" $t{}", level - 1).repeat(10);
        text.push_str(&format!("(type $t{level} (tuple{inner}))"));
    }
    let error = refusal(
        &component(&format!("(component {text})")),
        &by_child(patient()),
    );
    assert!(matches!(error, LoadError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("type size"), "{error}");
}

#[test]
fn refusing_an_expensive_component_takes_no_memory_in_the_host() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("handler.wasm");
    let check = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("it can be written");
        let file = file.to_str().expect("a name");
        let mut command = hostler(["check", file, "--compile-cache=off"]);
        command.args(["--limit-compile-time=2s", "--limit-compile-memory=1GiB"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        measured(&mut command).1
    };
    // A good component is compiled, loaded and tried.
    let good = check(&handler("", "i32.const 0"));
    assert!(good > 0);
    let large = [large_to_compile(60), wide_memories(20)];
    let hoards = hoards().into_iter().map(|(_, bytes)| bytes);
    for bomb in large
        .into_iter()
        .chain([slow_to_compile(400)])
        .chain(hoards)
    {
        let most = check(&bomb);
        let bound = good + 2 * bomb.len() as u64 + (50 << 20);
        assert!(most < bound, "{most} bytes, and {good} for a good one");
    }
}

/// Components nested in one another: `outer` components, each with `inner` empty ones.
fn nested(outer: usize, inner: usize) -> String {
    let inner = "(instance (instantiate $empty))".repeat(inner);
    let outer = "(instance (instantiate $crowd))".repeat(outer);
    format!(
        "(component $empty) (component $crowd (alias outer 1 $empty (component $empty)) {inner}) {outer}"
    )
}

/// A module with `elements` elements in passive segments, in `instances` instances.
fn passive(elements: usize, instances: usize) -> String {
    let elements = "$f ".repeat(elements);
    let instances = "(core instance (instantiate $m))".repeat(instances);
    format!("(core module $m (func $f) (elem func {elements})) {instances}")
}

/// Each declares little, and takes much: what no limit of an instance counts.
fn hoards() -> [(&'static str, Vec<u8>); 3] {
    // Memory that is not touched does not hide it.
    let roomy = r#"(core module $r (memory 900)) (core instance (instantiate $r))"#;
    [
        ("nested components", handler_beside(&nested(900, 900))),
        (
            "nested components beside a large memory",
            handler_beside(&format!("{}{roomy}", nested(900, 900))),
        ),
        ("passive segments", handler_beside(&passive(9_000, 250))),
    ]
}

#[test]
fn a_child_measures_what_an_instance_takes_beside_its_memory() {
    let settings = by_child(patient());
    for (name, bytes) in hoards() {
        let refused = refusal(&bytes, &settings);
        println!("{name}, {} bytes: {refused}", bytes.len());
        let is_it = matches!(refused, LoadError::InstanceTooLarge { .. });
        assert!(is_it, "{name}: {refused}");
        let text = refused.to_string();
        assert!(text.contains("bytes of memory beside"), "{name}: {text}");
        assert!(text.ends_with(" the limit is 25690112"), "{name}: {text}");
        assert_eq!(Refusal::from(refused).step(), Step::Limits);
    }
    // The same, but less of it.
    for items in [nested(100, 100), passive(9_000, 50)] {
        let bytes = handler_beside(&items);
        Sandbox::load_bytes(&bytes, &settings).expect("it is within the bounds");
    }
}

#[test]
fn an_instance_within_all_limits_is_accepted_by_the_child() {
    // All memory, touched by the start function; the most memories, with data, and tables; much stack.
    let memories = r#"(memory (data "x"))"#.repeat(31);
    let tables = "(table 1000 funcref)".repeat(64);
    let touches = "(start $touch) (func $touch (memory.fill $memory (i32.const 0) (i32.const 1)
        (i32.const 60000000)))";
    let items = format!("(memory $memory 990) {memories} {tables} {touches}");
    for allocation in [Allocation::Auto, Allocation::OnDemand] {
        let settings = Settings {
            allocation,
            ..by_child(Limits {
                stack: 8 << 20,
                ..patient()
            })
        };
        Sandbox::load_bytes(&handler(&items, "i32.const 0"), &settings)
            .expect("it is within the limits");
    }
}

#[test]
fn code_of_a_refused_component_is_not_cached() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings {
        cache: Some(Cache {
            dir: dir.path().join("cache"),
            max_bytes: 1 << 30,
        }),
        ..by_child(patient())
    };
    let (_, hoard) = &hoards()[0];
    // Code from the cache is not tried again.
    for _ in 0..2 {
        let refused = refusal(hoard, &settings);
        let is_it = matches!(refused, LoadError::InstanceTooLarge { .. });
        assert!(is_it, "{refused}");
    }
    let entries = fs::read_dir(dir.path().join("cache")).expect("it was made");
    assert_eq!(entries.count(), 0);
}

/// An import whose type is an instance in an instance, and so on.
fn deep_instance_types(levels: usize) -> Vec<u8> {
    let mut ty = InstanceType::new();
    for _ in 0..levels {
        let mut outer = InstanceType::new();
        outer.ty().instance(&ty);
        outer.export("a", ComponentTypeRef::Instance(0));
        ty = outer;
    }
    let mut types = ComponentTypeSection::new();
    types.instance(&ty);
    let mut imports = ComponentImportSection::new();
    imports.import("x", ComponentTypeRef::Instance(0));
    let mut component = Component::new();
    component.section(&types).section(&imports);
    component.finish()
}

#[test]
fn a_component_that_makes_the_compiler_panic_gets_a_refusal_of_its_own() {
    let refused = refusal(&deep_instance_types(200), &by_child(patient()));
    let text = refused.to_string();
    assert!(
        matches!(refused, LoadError::CompilerPanicked { .. }),
        "{text}"
    );
    assert!(text.contains("build it without that"), "{text}");
    assert!(!text.contains("report"), "{text}");
    assert_eq!(Refusal::from(refused).step(), Step::Compile);
}

/// Large generated modules: their cost is unknown, but their compilation ends.
#[test]
fn generated_large_modules_end_at_a_limit() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let seconds = std::env::var("HOSTLER_FUZZ_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(3);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut giants = 0;
    while Instant::now() < end || giants == 0 {
        let mut entropy = vec![0; 1 << 20];
        rng.fill(&mut entropy);
        let config = wasm_smith::Config {
            max_instructions: 200_000,
            // Two imports with one name make a component invalid.
            max_imports: 0,
            max_funcs: 1_000,
            min_funcs: 20,
            max_types: 1_000,
            max_elements: 100_000,
            max_element_segments: 1_000,
            max_data_segments: 1_000,
            gc_enabled: false,
            exceptions_enabled: false,
            reference_types_enabled: false,
            threads_enabled: false,
            memory64_enabled: false,
            wide_arithmetic_enabled: false,
            compact_imports_enabled: false,
            ..wasm_smith::Config::default()
        };
        let mut entropy = arbitrary::Unstructured::new(&entropy);
        let Ok(module) = wasm_smith::Module::new(config, &mut entropy) else {
            continue;
        };
        let mut component = Component::new();
        component.section(&wasm_encoder::RawSection {
            id: wasm_encoder::ComponentSectionId::CoreModule as u8,
            data: &module.to_bytes(),
        });
        let began = Instant::now();
        let error = Sandbox::load_bytes(&component.finish(), &tight()).expect_err("no handler");
        assert!(began.elapsed() < PATIENCE, "it does not end");
        assert!(
            matches!(
                error,
                LoadError::CompileTime { .. }
                    | LoadError::CompileMemory { .. }
                    | LoadError::CodeTooLarge { .. }
                    | LoadError::NoHandler { .. }
            ),
            "{error}"
        );
        giants += 1;
    }
    println!("{giants} giants");
}
