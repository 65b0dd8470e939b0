//! The ways in which the sandbox calls a handler, and for each of them a guest that does what the body says, and
//! handlers made of text.

use std::path::PathBuf;

use crate::guests::{HANDLE, component, exporting, guest, guest_module, module};

/// A world that handlers are written for, as the sandbox serves it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Adapter {
    /// hostler's own, for single messages.
    Native,
    /// The Redis trigger of Spin.
    Spin,
    /// The SQS trigger of Spin.
    Sqs,
    /// `wasmcloud:messaging`.
    Wasmcloud,
    /// A program that is a component: `wasi:cli/run`.
    Run,
    /// A program that is a core module of WASIp1.
    Module,
}

/// A core function that gets a message, and how its component exports it.
struct Signature {
    /// The import of the types.
    types: &'static str,
    lifted: &'static str,
    /// The flattened parameters of the core function; it returns the address, or the case, of a `result`.
    params: usize,
    export: &'static str,
}

const SPIN: Signature = Signature {
    types: r#"(import "fermyon:spin/redis-types" (instance $types
            (type $error (enum "success" "error"))
            (export "error" (type (eq $error)))))
        (alias export $types "error" (type $error))"#,
    lifted: r#"(param "message" (list u8)) (result (result (error $error)))"#,
    params: 2,
    export: r#"(instance $handler (export "handle-message" (func $f)))
        (export "fermyon:spin/inbound-redis" (instance $handler))"#,
};

const SQS: Signature = Signature {
    types: r#"(import "fermyon:spin-sqs/sqs-types@2.0.0" (instance $types
            (type $value' (variant (case "str" string) (case "binary" (list u8))))
            (export "message-attribute-value" (type $value (eq $value')))
            (type $attribute' (record (field "name" string)
                (field "data-type" (option string)) (field "value" $value)))
            (export "message-attribute" (type $attribute (eq $attribute')))
            (type $message (record (field "id" (option string))
                (field "message-attributes" (list $attribute)) (field "body" (option string))))
            (export "message" (type (eq $message)))
            (type $error (variant (case "other" string)))
            (export "error" (type (eq $error)))
            (type $action (enum "delete" "leave"))
            (export "message-action" (type (eq $action)))))
        (alias export $types "message" (type $message))
        (alias export $types "error" (type $error))
        (alias export $types "message-action" (type $action))"#,
    lifted: r#"(param "message" $message) (result (result $action (error $error)))"#,
    params: 8,
    export: r#"(export "handle-queue-message" (func $f))"#,
};

const WASMCLOUD: Signature = Signature {
    types: r#"(import "wasmcloud:messaging/types@0.2.0" (instance $types
            (type $message (record (field "subject" string) (field "body" (list u8))
                (field "reply-to" (option string))))
            (export "broker-message" (type (eq $message)))))
        (alias export $types "broker-message" (type $message))"#,
    lifted: r#"(param "msg" $message) (result (result (error string)))"#,
    params: 7,
    export: r#"(instance $handler (export "handle-message" (func $f)))
        (export "wasmcloud:messaging/handler@0.2.0" (instance $handler))"#,
};

const RUN: Signature = Signature {
    types: "",
    lifted: "(result (result))",
    params: 0,
    export: r#"(instance $handler (export "run" (func $f)))
        (export "wasi:cli/run@0.2.0" (instance $handler))"#,
};

impl Adapter {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Native,
        Self::Spin,
        Self::Sqs,
        Self::Wasmcloud,
        Self::Run,
        Self::Module,
    ];

    /// Whether its handlers are programs.
    pub fn is_program(self) -> bool {
        matches!(self, Self::Run | Self::Module)
    }

    /// The guest that does what the body says.
    pub fn guest(self) -> PathBuf {
        match self {
            Self::Native => guest("scripted"),
            Self::Spin => guest("foreign-spin"),
            Self::Sqs => guest("foreign-sqs"),
            Self::Wasmcloud => guest("foreign-wasmcloud"),
            Self::Run => guest("program"),
            Self::Module => guest_module("program"),
        }
    }

    /// The orders example in Rust.
    pub fn orders(self) -> PathBuf {
        match self {
            Self::Native => guest("orders-handler"),
            Self::Spin => guest("orders-spin"),
            Self::Sqs => guest("orders-sqs"),
            Self::Wasmcloud => guest("orders-wasmcloud"),
            Self::Run => guest("orders-program"),
            Self::Module => guest_module("orders_program"),
        }
    }

    /// A handler made of text: it runs this code, which leaves nothing, and is done with its message. `items` are
    /// beside the function in its core module, `beside` is beside that module in the component.
    ///
    /// The memory is one page, unless `items` has another, named `$memory`. At 8 there is the answer: a `result`,
    /// which is done if it is all zeros. A native handler and a program have their answer elsewhere.
    ///
    /// # Panics
    ///
    /// If the text is wrong, or a module has something beside it.
    pub fn text(self, beside: &str, items: &str, code: &str) -> Vec<u8> {
        let signature = match self {
            Self::Native => {
                let core = module(&HANDLE, items, &format!("{code} i32.const 0"));
                return exporting(&HANDLE, "1.0.0", &format!("{core}{beside}"));
            }
            Self::Spin => SPIN,
            Self::Sqs => SQS,
            Self::Wasmcloud => WASMCLOUD,
            Self::Run => RUN,
            Self::Module => {
                assert_eq!(beside, "", "a module is alone");
                let core = core(items, &format!(r#"(func (export "_start") {code})"#));
                return component(&format!("(module {core})"));
            }
        };
        let Signature {
            types,
            lifted,
            params,
            export,
        } = signature;
        let params = "i32 ".repeat(params);
        // That of a program is no address.
        let answer = if self == Self::Run { 0 } else { 8 };
        let function = format!(
            r#"(func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
            (func (export "f") (param {params}) (result i32) {code} i32.const {answer})"#
        );
        let core = core(items, &function);
        component(&format!(
            r#"(component {types} {beside}
                (core module $m {core})
                (core instance $i (instantiate $m))
                (func $f {lifted} (canon lift (core func $i "f") (memory (core memory $i "memory"))
                    (realloc (core func $i "realloc"))))
                {export})"#
        ))
    }
}

/// The inside of a core module with a memory.
fn core(items: &str, function: &str) -> String {
    let memory = match items.contains("(memory $memory ") {
        true => "",
        false => "(memory $memory 1)",
    };
    format!(r#"{memory} (export "memory" (memory $memory)) {items} {function}"#)
}
