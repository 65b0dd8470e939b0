//! The guests of the tests: where their components are, and components made of text.

use std::path::{Path, PathBuf};

/// The component of a guest in Rust: one of `tests/guests`, such as `scripted`, or an example, such as
/// `orders-handler`.
///
/// # Panics
///
/// If it has not been built.
pub fn guest(name: &str) -> PathBuf {
    built("wasm32-wasip2/release", &name.replace('-', "_"))
}

/// The component of the guest `priced`, with the lines of its source.
///
/// # Panics
///
/// If it has not been built.
pub fn guest_with_lines() -> PathBuf {
    built("wasm32-wasip2/lines", "priced")
}

/// The same as a module of WASIp1; only the guests `program` and `orders_program` are built so.
///
/// # Panics
///
/// If it has not been built.
pub fn guest_module(name: &str) -> PathBuf {
    built("wasm32-wasip1/release", name)
}

fn built(folder: &str, name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../guest-examples/rust/target/{folder}"))
        .join(format!("{name}.wasm"));
    assert!(
        path.is_file(),
        "the guest `{name}` is not built ({} is missing): run `make guests-test guest-rust-charge`",
        path.display(),
    );
    path
}

/// The example handler in a language, named as in `make guest LANG=...`.
///
/// # Panics
///
/// If it has not been built.
pub fn language(name: &str) -> PathBuf {
    match name {
        "rust" => return guest("orders-handler"),
        "rust-batch" => return guest("orders-batch-handler"),
        _ => {}
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../guest-examples")
        .join(name)
        .join("handler.wasm");
    assert!(
        path.is_file(),
        "the example in `{name}` is not built ({} is missing): run `make guest LANG={name}`",
        path.display(),
    );
    path
}

/// The program of `guest-examples/programs` in a language.
///
/// # Panics
///
/// If it has not been built.
pub fn program(language: &str) -> PathBuf {
    made("../guest-examples/programs", language)
}

/// The orders example of a language as a program.
///
/// # Panics
///
/// If it has not been built.
pub fn orders_program(language: &str) -> PathBuf {
    made("guests-programs", language)
}

fn made(folder: &str, language: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let path = folder.join(format!("{language}.wasm"));
    assert!(
        path.is_file(),
        "the program in `{language}` is not built ({} is missing): run `make programs`",
        path.display(),
    );
    path
}

/// A component of this text.
///
/// # Panics
///
/// If the text is wrong.
pub fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is a component")
}

/// A handler made of text: the body of its function, and whatever else its core module holds.
///
/// The body gets the message in eleven flattened values and leaves the address of an outcome; 0 is
/// the address of an `ack`. The memory is one page, unless `items` has another, named `$memory`. The
/// import `delivery.is-cancelled` is `$is-cancelled`.
///
/// # Panics
///
/// If the text is wrong.
pub fn handler(items: &str, body: &str) -> Vec<u8> {
    handler_version("1.0.0", items, body)
}

/// A handler that acknowledges, in a component that has these items beside its core module.
///
/// # Panics
///
/// If the text is wrong.
pub fn handler_beside(items: &str) -> Vec<u8> {
    let module = module(&HANDLE, "", "i32.const 0");
    exporting(&HANDLE, "1.0.0", &format!("{module}{items}"))
}

/// As [`handler`], for another version of the interface.
///
/// # Panics
///
/// If the text is wrong.
pub fn handler_version(version: &str, items: &str, body: &str) -> Vec<u8> {
    exporting(&HANDLE, version, &module(&HANDLE, items, body))
}

/// As [`handler`], of batches: the body gets where the messages are, and how many, and leaves the
/// address of where its outcomes are, and how many. Those are 24 bytes each; an `ack` is all zeros.
///
/// # Panics
///
/// If the text is wrong.
pub fn batch_handler(items: &str, body: &str) -> Vec<u8> {
    exporting(&HANDLE_BATCH, "1.0.0", &module(&HANDLE_BATCH, items, body))
}

/// A handler of batches that acknowledges nothing, in a component that has these items beside its core
/// module.
///
/// # Panics
///
/// If the text is wrong.
pub fn batch_handler_beside(items: &str) -> Vec<u8> {
    let module = module(&HANDLE_BATCH, "", "i32.const 0");
    exporting(&HANDLE_BATCH, "1.0.0", &format!("{module}{items}"))
}

/// A function that the host calls.
#[derive(Debug)]
pub struct Export {
    interface: &'static str,
    /// Its name.
    pub function: &'static str,
    /// Its type as a core function.
    pub core: &'static str,
    /// Its type.
    lifted: &'static str,
}

/// `message-handler.handle`.
pub const HANDLE: Export = Export {
    interface: "message-handler",
    function: "handle",
    core: "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)",
    lifted: r#"(param "message" $message) (result $outcome)"#,
};

/// `batch-handler.handle-batch`.
pub const HANDLE_BATCH: Export = Export {
    interface: "batch-handler",
    function: "handle-batch",
    core: "(param i32 i32) (result i32)",
    lifted: r#"(param "messages" (list $message)) (result (list $outcome))"#,
};

/// The items of a component with one core module, for [`exporting`].
pub(crate) fn module(export: &Export, items: &str, body: &str) -> String {
    let memory = if items.contains("(memory $memory ") {
        ""
    } else {
        "(memory $memory 1)"
    };
    let Export { function, core, .. } = export;
    format!(
        r#"(import "hostler:handler/delivery@1.0.0" (instance $delivery
                (export "is-cancelled" (func (result bool)))))
            (core func $is-cancelled (canon lower (func $delivery "is-cancelled")))
            (core module $module
                (import "host" "is-cancelled" (func $is-cancelled (result i32)))
                {memory}
                (export "memory" (memory $memory))
                (global $top (mut i32) (i32.const 1024))
                (func (export "realloc") (param i32 i32 i32 i32) (result i32)
                    global.get $top
                    global.get $top
                    local.get 3
                    i32.add
                    i32.const 7
                    i32.add
                    i32.const -8
                    i32.and
                    global.set $top)
                {items}
                (func (export "{function}") {core}
                    {body}))
            (core instance $core (instantiate $module
                (with "host" (instance (export "is-cancelled" (func $is-cancelled))))))
            (alias core export $core "{function}" (core func $run))
            (alias core export $core "memory" (core memory $memory))
            (alias core export $core "realloc" (core func $realloc))"#
    )
}

/// A component with these items, which exports one function of a handler: the core function `$run`,
/// called with the core memory `$memory` and the core function `$realloc`.
///
/// # Panics
///
/// If the text is wrong.
pub fn exporting(export: &Export, version: &str, items: &str) -> Vec<u8> {
    let Export {
        interface,
        function,
        lifted,
        ..
    } = export;
    component(&format!(
        r#"(component
            (import "hostler:handler/types@{version}" (instance $types
                (type $headers (list (tuple string string)))
                (type $body (list u8))
                (type $message (record
                    (field "id" string)
                    (field "queue" string)
                    (field "body" $body)
                    (field "headers" $headers)
                    (field "attempt" u32)
                    (field "max-attempts" u32)
                    (field "enqueued-ms" u64)))
                (type $delay (option u64))
                (type $reason (option string))
                (type $outcome (variant
                    (case "ack") (case "nack-requeue" $delay) (case "drop" $reason)))
                (export "message" (type (eq $message)))
                (export "outcome" (type (eq $outcome)))))
            (alias export $types "message" (type $message))
            (alias export $types "outcome" (type $outcome))
            {items}
            (func $handle {lifted}
                (canon lift (core func $run) (memory $memory) (realloc $realloc)))
            (instance $handler (export "{function}" (func $handle)))
            (export "hostler:handler/{interface}@{version}" (instance $handler)))"#
    ))
}

/// The same component as another version: with a custom section behind it that says `tag`, so that
/// its digest is another one.
pub fn variant(component: &[u8], tag: &str) -> Vec<u8> {
    let section = wasm_encoder::CustomSection {
        name: "version".into(),
        data: tag.as_bytes().into(),
    };
    let mut bytes = component.to_vec();
    wasm_encoder::ComponentSection::append_to_component(&section, &mut bytes);
    bytes
}

/// What the scripted guests say when they are asked for their version.
const MARK: &[u8] = b"hostler-version-";

/// A scripted guest that says this number when its action `version` asks.
///
/// # Panics
///
/// If the component has no such mark.
pub fn marked(component: &[u8], number: usize) -> Vec<u8> {
    let mut bytes = component.to_vec();
    let place = bytes.windows(MARK.len()).position(|window| window == MARK);
    let place = place.expect("the guest has a mark") + MARK.len();
    let digits = format!("{number:010}");
    bytes[place..place + digits.len()].copy_from_slice(digits.as_bytes());
    bytes
}

/// A guest as a handler of the first release: the name of its interface says 1.0.0. It must use nothing newer, and
/// then it is the same, because records and variants never change.
#[must_use]
pub fn of_the_first_release(component: &[u8]) -> Vec<u8> {
    const NEW: &[u8] = b"@1.2.0";
    let mut bytes = component.to_vec();
    for place in 0..bytes.len().saturating_sub(NEW.len()) {
        if bytes[place..].starts_with(NEW) {
            bytes[place..place + NEW.len()].copy_from_slice(b"@1.0.0");
        }
    }
    bytes
}
