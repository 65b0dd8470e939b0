//! The files of `hostler new`: the templates with their SDKs, the examples, as they were when hostler was built, what
//! stands in their place with `--with` and `--minimal`, and the projects of other worlds. A test compares the lists with the folders.

/// One of a few choices.
pub trait Choice: Copy + Eq + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// Its word, as the user writes it.
    fn word(self) -> &'static str;

    /// What it is.
    fn about(self) -> &'static str;

    /// The choice with this word.
    fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.word() == word)
    }
}

macro_rules! choices {
    ($(#[$meta:meta])* $name:ident: $($(#[doc = $about:literal])* $one:ident = $word:literal,)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum $name {
            $($(#[doc = $about])* $one,)*
        }

        impl Choice for $name {
            const ALL: &'static [Self] = &[$(Self::$one),*];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$one => $word,)*
                }
            }

            fn about(self) -> &'static str {
                match self {
                    $(Self::$one => concat!($($about),*).trim_start(),)*
                }
            }
        }
    };
}

choices! {
    /// A language to write a handler in.
    Language:
    /// Rust
    Rust = "rust",
    /// JavaScript
    Js = "js",
    /// TypeScript
    Ts = "ts",
    /// Python
    Python = "python",
    /// Go
    Go = "go",
    /// C
    C = "c",
    /// C++
    Cpp = "cpp",
    /// Zig
    Zig = "zig",
}

choices! {
    /// What a handler is made for.
    World:
    /// The interfaces of hostler
    Hostler = "hostler",
    /// A program: the body on stdin, the outcome by the exit code
    Command = "command",
    /// The Redis trigger of Spin
    Spin = "spin",
    /// The messages of wasmCloud
    Wasmcloud = "wasmcloud",
}

choices! {
    /// What runs JavaScript.
    Engine:
    /// It has what people expect: `fetch`, timers, `console`
    StarlingMonkey = "starlingmonkey",
    /// Small and quick to start; without the SDK
    QuickJs = "quickjs",
}

choices! {
    /// Something that a handler does besides answering.
    Part:
    /// Send HTTP requests
    Http = "http",
    /// Keep values between messages
    KeyValue = "key-value",
    /// Publish messages with the acknowledgement
    Publish = "publish",
    /// Read secrets of the operator
    Secrets = "secrets",
}

/// One file, as it is kept.
#[derive(Clone, Copy)]
pub(super) struct File {
    /// Its path in the project.
    pub(super) path: &'static str,
    pub(super) bytes: &'static [u8],
}

macro_rules! files {
    ($folder:literal: $($path:literal)*) => {
        files!($folder in "": $($path)*)
    };
    ($folder:literal in $place:literal: $($path:literal)*) => {
        &[$(File {
            path: concat!($place, $path),
            bytes: include_bytes!(concat!("../../../../guest-examples/", $folder, "/", $path)),
        }),*]
    };
}

/// The SDK for JavaScript and TypeScript, in the folder of a project. The other SDKs are links in their templates.
pub(super) const JS_SDK: &[File] = files!("sdk/js" in "hostler/":
                "build/build.js" "build/cli.js" "build/globals.js" "build/node.js" "build/refused.js" "build/sources.js" "build/wit.js"
                "node/assert.cjs" "node/async_hooks.js" "node/crypto.js" "node/missing.cjs" "node/os.js"
                "node/process.js" "node/querystring.js" "node/stream-promises.js" "node/timers.js" "node/url.js"
                "node/util.cjs" "package.json" "runtime/entry.js" "runtime/error.js" "runtime/promise.js"
                "runtime/quickjs.js" "runtime/random.js" "runtime/starlingmonkey.js" "runtime/text.js"
                "src/config.js" "src/deadline.js" "src/errors.js" "src/handler.js" "src/hold.js" "src/index.d.ts" "src/index.js"
                "src/journal.js" "src/key-value.js" "src/log.js" "src/publish.js" "src/reply.js" "src/secrets.js" "src/values.js" "src/wit.d.ts"
                "wit/hostler.wit" "wit/wasi.wit");

/// The files with `--with` that all languages have. Those that the language also has are added at its end.
pub(super) const COMMON: &[File] = files!("with/common":
    "README.md" "cases.toml" "hostler.toml" "shop-token" "wit/deps/hostler/world.wit" "wit/orders.wit");

impl World {
    /// The files of a whole project of another world; `None` = this language has no such project.
    pub(super) fn project(self, language: Language) -> Option<&'static [File]> {
        Some(match (self, language) {
            (Self::Hostler, _) => language.example(),
            (Self::Command, Language::Rust) => files!("command/rust":
                ".gitignore" "Cargo.toml" "README.md" "cases.toml" "hostler.toml" "src/main.rs"),
            (Self::Command, Language::Go) => files!("command/go":
                ".gitignore" "README.md" "cases.toml" "go.mod" "hostler.toml" "main.go"),
            (Self::Command, Language::C) => files!("command/c":
                ".gitignore" "Makefile" "README.md" "cases.toml" "hostler.toml" "main.c" "toolchains.mk"),
            (Self::Command, Language::Cpp) => files!("command/cpp":
                ".gitignore" "Makefile" "README.md" "cases.toml" "hostler.toml" "main.cpp" "toolchains.mk"),
            (Self::Command, Language::Zig) => files!("command/zig":
                ".gitignore" "Makefile" "README.md" "cases.toml" "hostler.toml" "main.zig" "toolchains.mk"),
            (Self::Spin, Language::Rust) => files!("spin/rust":
                ".gitignore" "Cargo.lock" "Cargo.toml" "README.md" "cases.toml" "hostler.toml" "src/lib.rs"),
            (Self::Wasmcloud, Language::Rust) => files!("wasmcloud/rust":
                ".gitignore" "Cargo.lock" "Cargo.toml" "README.md" "cases.toml" "hostler.toml" "src/lib.rs"),
            _ => return None,
        })
    }
}

impl Language {
    /// The template of a project with the SDK: lines between `@with` and `@end` are chosen. `None` = there is no SDK.
    pub(super) fn template(self) -> Option<&'static [File]> {
        Some(match self {
            Self::Rust => files!("sdk/rust/template":
                ".gitignore" "Cargo.lock" "Cargo.toml" "README.md" "cases.toml" "hostler-handler/Cargo.toml"
                "hostler-handler/macros/Cargo.toml" "hostler-handler/macros/src/lib.rs"
                "hostler-handler/src/error.rs" "hostler-handler/src/host.rs" "hostler-handler/src/lib.rs"
                "hostler-handler/src/message.rs" "hostler-handler/src/run.rs"
                "hostler-handler/wit/deps/hostler/world.wit" "hostler-handler/wit/handler.wit" "hostler.toml"
                "shop-token" "src/lib.rs"),
            Self::Js => files!("sdk/js/template/js":
                ".gitignore" ".npmrc" "README.md" "cases.toml" "hostler.toml" "package.json" "shop-token"
                "src/handler.js"),
            Self::Ts => files!("sdk/js/template/ts":
                ".gitignore" ".npmrc" "README.md" "cases.toml" "hostler.toml" "package.json" "shop-token"
                "src/handler.ts" "tsconfig.json"),
            Self::Python => files!("sdk/python/template":
                ".gitignore" "Makefile" "README.md" "cases.toml" "handler.py" "hostler.toml"
                "hostler_handler/__init__.py" "hostler_handler/_effects.py" "hostler_handler/_files.py"
                "hostler_handler/_handler.py" "hostler_handler/_http.py" "hostler_handler/_loop.py"
                "hostler_handler/_payload.py" "hostler_handler/_pip.py" "hostler_handler/_runtime.py"
                "hostler_handler/_sockets.py" "hostler_handler/_start.py" "hostler_handler/_tls.py"
                "hostler_handler/_world.py" "hostler_handler/build.py" "hostler_handler/wit/hostler.wit"
                "requirements.txt" "shop-token" "test_handler.py" "toolchains.mk"),
            Self::Go => files!("sdk/go/template":
                ".gitignore" "Makefile" "README.md" "cases.toml" "go.mod" "go.sum" "hostler.toml"
                "hostler/_std/roundtrip.go" "hostler/bindings/export_hostler_handler_message_handler/handler.go"
                "hostler/bindings/hostler_handler_delivery/empty.s"
                "hostler/bindings/hostler_handler_delivery/wit_bindings.go"
                "hostler/bindings/hostler_handler_flow/empty.s"
                "hostler/bindings/hostler_handler_flow/wit_bindings.go"
                "hostler/bindings/hostler_handler_http/empty.s"
                "hostler/bindings/hostler_handler_http/wit_bindings.go"
                "hostler/bindings/hostler_handler_journal/empty.s"
                "hostler/bindings/hostler_handler_journal/wit_bindings.go"
                "hostler/bindings/hostler_handler_key_value/empty.s"
                "hostler/bindings/hostler_handler_key_value/wit_bindings.go"
                "hostler/bindings/hostler_handler_message_handler/empty.s"
                "hostler/bindings/hostler_handler_message_handler/wit_bindings.go"
                "hostler/bindings/hostler_handler_publisher/empty.s"
                "hostler/bindings/hostler_handler_publisher/wit_bindings.go"
                "hostler/bindings/hostler_handler_reply/empty.s"
                "hostler/bindings/hostler_handler_reply/wit_bindings.go"
                "hostler/bindings/hostler_handler_secrets/empty.s"
                "hostler/bindings/hostler_handler_secrets/wit_bindings.go"
                "hostler/bindings/hostler_handler_types/empty.s"
                "hostler/bindings/hostler_handler_types/wit_bindings.go"
                "hostler/bindings/wasi_config_store/empty.s" "hostler/bindings/wasi_config_store/wit_bindings.go"
                "hostler/bindings/wit_exports/wit_exports.go" "hostler/elsewhere.go" "hostler/go.mod"
                "hostler/go.sum" "hostler/goroutines_wasip1.go" "hostler/handler.mk" "hostler/host_wasip1.go"
                "hostler/hostler.go" "hostler/kv/kv.go" "hostler/kv/kv_elsewhere.go" "hostler/kv/kv_wasip1.go"
                "hostler/resume_wasip1.go" "hostler/toolchains.mk" "hostler/trap_wasip1.s"
                "hostler/wasi_snapshot_preview1.reactor.wasm" "hostler/wit/deps/hostler/world.wit"
                "hostler/wit/handler.wit" "main.go" "main_test.go" "shop-token"),
            Self::C | Self::Cpp | Self::Zig => return None,
        })
    }

    /// The files with `--minimal` that replace those of the template or the example.
    pub(super) fn minimal(self) -> &'static [File] {
        match self {
            Self::Rust => files!("minimal/rust": "cases.toml" "src/lib.rs"),
            Self::Js => files!("minimal/js": "cases.toml" "src/handler.js"),
            Self::Ts => files!("minimal/ts": "cases.toml" "src/handler.ts"),
            Self::Python => files!("minimal/python": "cases.toml" "handler.py"),
            Self::Go => files!("minimal/go": "cases.toml" "main.go"),
            Self::C => files!("minimal/c": "README.md" "cases.toml" "main.c"),
            Self::Cpp => files!("minimal/cpp": "README.md" "cases.toml" "main.cpp"),
            Self::Zig => files!("minimal/zig": "README.md" "cases.toml" "main.zig"),
        }
    }

    /// The files with `--with` that replace those of the example, or are new.
    pub(super) fn with(self) -> &'static [File] {
        match self {
            Self::Rust => files!("with/rust":
                "README.md" "src/charge.rs" "src/invoice.rs" "src/lib.rs" "src/order.rs"
                "src/shop.rs" "src/total.rs"),
            Self::Go => files!("with/go":
                "README.md" "charge.go" "invoice.go" "main.go" "order/order.go"
                "order/order_test.go" "shop.go" "total.go"),
            Self::C => files!("with/c":
                "README.md" "main.c" "order.c" "order.h" "order_test.c"),
            Self::Cpp => files!("with/cpp":
                "README.md" "main.cpp" "order.cpp" "order.hpp" "order_test.cpp"),
            Self::Zig => files!("with/zig": "README.md" "main.zig" "order.zig"),
            Self::Js => files!("with/js":
                "README.md" "src/charge.js" "src/handler.js" "src/invoice.js" "src/order.js"
                "src/order.test.js" "src/shop.js" "src/total.js" "wit/orders.wit"),
            Self::Ts => files!("with/ts":
                "README.md" "src/charge.ts" "src/effects.d.ts" "src/handler.ts" "src/invoice.ts"
                "src/order.ts" "src/shop.ts" "src/total.ts" "test/order.test.ts" "wit/orders.wit"),
            Self::Python => files!("with/python":
                "README.md" "app.py" "charge.py" "invoice.py" "order.py" "shop.py" "test_order.py"
                "total.py"),
        }
    }

    /// The files of the example in this language.
    pub(super) fn example(self) -> &'static [File] {
        match self {
            Self::Rust => files!("rust":
                ".gitignore" "Cargo.lock" "Cargo.toml" "README.md" "cases.toml" "hostler.toml"
                "src/lib.rs" "src/order.rs" "wit/world.wit"),
            Self::Js => files!("js":
                ".gitignore" "README.md" "cases.toml" "hostler.toml" "package-lock.json"
                "package.json" "runtime/async.js" "runtime/main.js" "runtime/random.js"
                "src/handler.js" "src/log.js" "src/order.js" "src/order.test.js"
                "src/utf8.js" "wit/deps/hostler/world.wit" "wit/orders.wit"),
            Self::Ts => files!("ts":
                ".gitignore" "README.md" "cases.toml" "hostler.toml" "package-lock.json"
                "package.json" "runtime/async.js" "runtime/main.ts" "runtime/random.js"
                "src/handler.ts" "src/hostler.d.ts" "src/log.ts" "src/order.ts"
                "src/utf8.ts" "test/order.test.ts" "test/tsconfig.json" "tsconfig.json"
                "wit/deps/hostler/world.wit" "wit/orders.wit"),
            Self::Python => files!("python":
                ".gitignore" "Makefile" "README.md" "app.py" "cases.toml" "hostler.toml" "order.py"
                "requirements.txt" "test_order.py" "toolchains.mk" "wit/world.wit"),
            Self::Go => files!("go":
                ".gitignore" "Makefile" "README.md"
                "bindings/export_hostler_handler_message_handler/handler.go"
                "bindings/hostler_handler_delivery/empty.s"
                "bindings/hostler_handler_delivery/wit_bindings.go"
                "bindings/hostler_handler_flow/empty.s"
                "bindings/hostler_handler_flow/wit_bindings.go"
                "bindings/hostler_handler_http/empty.s"
                "bindings/hostler_handler_http/wit_bindings.go"
                "bindings/hostler_handler_journal/empty.s"
                "bindings/hostler_handler_journal/wit_bindings.go"
                "bindings/hostler_handler_key_value/empty.s"
                "bindings/hostler_handler_key_value/wit_bindings.go"
                "bindings/hostler_handler_message_handler/empty.s"
                "bindings/hostler_handler_message_handler/wit_bindings.go"
                "bindings/hostler_handler_publisher/empty.s"
                "bindings/hostler_handler_publisher/wit_bindings.go"
                "bindings/hostler_handler_reply/empty.s"
                "bindings/hostler_handler_reply/wit_bindings.go"
                "bindings/hostler_handler_secrets/empty.s"
                "bindings/hostler_handler_secrets/wit_bindings.go"
                "bindings/hostler_handler_types/empty.s"
                "bindings/hostler_handler_types/wit_bindings.go"
                "bindings/wit_exports/wit_exports.go"
                "cases.toml" "go.mod" "go.sum" "hostler.toml" "main.go" "order/order.go"
                "order/order_test.go" "resume_wasip1.go" "resume_wasip1.s" "toolchains.mk"
                "wasi_snapshot_preview1.reactor.wasm"
                "wit/world.wit"),
            Self::C => files!("c":
                ".gitignore" "Makefile" "README.md" "bindings/handler.c" "bindings/handler.h"
                "bindings/handler_component_type.o" "cases.toml" "hostler.toml" "json.c" "json.h"
                "main.c" "order.c" "order.h" "order_test.c" "toolchains.mk"
                "wasi_snapshot_preview1.reactor.wasm" "wit/world.wit"),
            Self::Cpp => files!("cpp":
                ".gitignore" "Makefile" "README.md" "bindings/handler.c" "bindings/handler.h"
                "bindings/handler_component_type.o" "cases.toml" "hostler.toml" "json.c" "json.h"
                "main.cpp" "order.cpp" "order.hpp" "order_test.cpp" "toolchains.mk"
                "wasi_snapshot_preview1.reactor.wasm" "wit/world.wit"),
            Self::Zig => files!("zig":
                ".gitignore" "Makefile" "README.md" "bindings/handler.c" "bindings/handler.h"
                "bindings/handler_component_type.o" "build.zig" "cases.toml" "hostler.toml"
                "main.zig" "order.zig" "toolchains.mk" "wasi_snapshot_preview1.reactor.wasm"
                "wit/world.wit"),
        }
    }

    /// Why a project of this name would not build; `None` = it does.
    pub(super) fn objection(self, name: &str) -> Option<&'static str> {
        // The name is an element of import paths, and this one has a meaning there. The module is below a
        // domain: so it never has the path of a package of the language.
        let is_taken = self == Self::Go && name == "vendor";
        is_taken.then_some("the Go tools keep this name for themselves")
    }

    /// The path of the built handler.
    pub(super) fn handler(self, world: World, name: &str) -> String {
        match (self, world) {
            (Self::Rust, World::Command) => "target/wasm32-wasip1/release/handler.wasm".to_owned(),
            (Self::Rust, _) => {
                let name = name.replace('-', "_");
                format!("target/wasm32-wasip2/release/{name}.wasm")
            }
            _ => "handler.wasm".to_owned(),
        }
    }

    /// The command that runs the unit tests of the example, or only what must come before a build.
    pub(super) fn before_build(self, has_tests: bool) -> Option<&'static str> {
        match (self, has_tests) {
            (Self::Rust, true) => Some("cargo test --release"),
            (Self::Js | Self::Ts, true) => Some("npm install && npm test"),
            (Self::Js | Self::Ts, false) => Some("npm install"),
            (_, true) => Some("make test"),
            (_, false) => None,
        }
    }

    /// The command that builds it.
    pub(super) fn build(self, world: World) -> &'static str {
        match (self, world) {
            (Self::Rust, World::Command) => "cargo build --release --target wasm32-wasip1",
            (Self::Rust, _) => "cargo build --release --target wasm32-wasip2",
            (Self::Js | Self::Ts, _) => "npm run build",
            (Self::Go, World::Command) => "GOOS=wasip1 GOARCH=wasm go build -o handler.wasm",
            _ => "make",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    /// The files of a folder, without those that its `.gitignore` names.
    fn holds(folder: &Path) -> BTreeSet<String> {
        let ignored = std::fs::read_to_string(folder.join(".gitignore")).unwrap_or_default();
        let ignored: Vec<&str> = ignored.lines().map(|l| l.trim_start_matches('/')).collect();
        let mut found = BTreeSet::new();
        let own_test = Path::new("hostler/hostler_test.go");
        let mut open: Vec<PathBuf> = vec![folder.to_owned()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.ends_with(own_test) || ignored.iter().any(|name| path.ends_with(name)) {
                    continue;
                }
                if path.is_dir() {
                    open.push(path);
                } else {
                    let path = path.strip_prefix(folder).unwrap();
                    found.insert(path.to_str().unwrap().to_owned());
                }
            }
        }
        found
    }

    #[test]
    fn a_project_has_every_file_of_its_folders() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-examples");
        let same = |files: &[File], folder: &str| {
            let listed = files.iter().map(|file| file.path.to_owned());
            let found = holds(&examples.join(folder));
            assert_eq!(listed.collect::<BTreeSet<_>>(), found, "{folder}");
        };
        for (language, folder) in [
            (Language::Rust, "rust/template"),
            (Language::Go, "go/template"),
            (Language::Python, "python/template"),
            (Language::Js, "js/template/js"),
            (Language::Ts, "js/template/ts"),
        ] {
            same(language.template().unwrap(), &format!("sdk/{folder}"));
        }
        for language in Language::ALL {
            let folder = language.word();
            same(language.example(), folder);
            same(language.with(), &format!("with/{folder}"));
            same(language.minimal(), &format!("minimal/{folder}"));
            for world in [World::Command, World::Spin, World::Wasmcloud] {
                let name = world.word();
                let files = world.project(*language).unwrap_or_default();
                same(files, &format!("{name}/{folder}"));
            }
        }
        same(COMMON, "with/common");
        let folders = ["build", "node", "runtime", "src", "wit"];
        let found = holds(&examples.join("sdk/js")).into_iter();
        let of_package = |path: &String| {
            path == "package.json" || folders.iter().any(|f| path.starts_with(&format!("{f}/")))
        };
        let found = found
            .filter(of_package)
            .map(|path| format!("hostler/{path}"));
        let listed = JS_SDK.iter().map(|file| file.path.to_owned());
        assert_eq!(listed.collect::<BTreeSet<_>>(), found.collect());
    }
}
