//! `hostler new`: a project in each language is made, tested, built and run as its user would do it.

use std::path::{Path, PathBuf};
use std::process::Command;

use hostler_tests::command::{end, hostler};
use hostler_tests::guests;
use serde_json::Value as Json;

use crate::sandbox::language_table::for_every_language;

for_every_language!(a_project_builds_and_passes_at_once: rust ts c; js python go cpp zig);

mod raw {
    use super::a_project_without_sdk_builds_and_passes;
    use crate::sandbox::language_table::for_every_language;

    for_every_language!(a_project_without_sdk_builds_and_passes: js; rust ts python go);
}

async fn a_project_builds_and_passes_at_once(language: &str) {
    builds_and_passes(language, &[]);
}

async fn a_project_without_sdk_builds_and_passes(language: &str) {
    builds_and_passes(language, &["--raw"]);
}

/// No example has this name.
const NAME: &str = "parcel-desk";

fn builds_and_passes(language: &str, flags: &[&str]) {
    let has_sdk = flags.is_empty() && !["c", "cpp", "zig"].contains(&language);
    let home = tempfile::tempdir().unwrap();
    let mut making = hostler(["new", "--lang", language, NAME]);
    let made = end(making.args(flags).current_dir(home.path())).ok();
    let project = home.path().join(NAME);
    for file in made.stdout.lines() {
        assert!(home.path().join(file).is_file(), "{file}");
    }
    let (handler, test, build) = match language {
        "rust" => (
            "target/wasm32-wasip2/release/parcel_desk.wasm",
            "cargo test --release",
            "cargo build --release --target wasm32-wasip2",
        ),
        "js" | "ts" if has_sdk => ("handler.wasm", "npm install", "npm run build"),
        "js" | "ts" => ("handler.wasm", "npm install && npm test", "npm run build"),
        _ => ("handler.wasm", "make test", "make"),
    };
    let agents = std::fs::read_to_string(project.join("AGENTS.md")).unwrap();
    for command in [test, build, &format!("hostler test {handler} cases.toml")] {
        assert!(made.stderr.contains(command), "{}", made.stderr);
        assert!(agents.contains(&format!("    {command}\n")), "{agents}");
    }
    shell(&project, test);
    shell(&project, build);

    // The table that comes with it, and one message more.
    let handler = match language {
        "rust" => repository().join("guest-examples/rust").join(handler),
        // hostler takes a minute to compile a component in Python: this one has the same sources, and
        // other tests need it, too. `cli_new_with` runs the one of a project.
        "python" if !has_sdk => guests::language(language),
        _ => project.join(handler),
    };
    let test = |arguments: &[&str]| {
        let mut command = hostler(["test", handler.to_str().unwrap(), "cases.toml"]);
        command
            .args([
                "--timeout",
                "50s",
                "--cpu",
                "50s",
                "--limit-compile-time",
                "10m",
            ])
            .args(arguments);
        end(command.current_dir(&project))
    };
    let tested = test(&["--json"]).ok();
    let last = tested.stdout.lines().last().unwrap();
    let sum: Json = serde_json::from_str(last).unwrap();
    assert_eq!(sum["failed"], 0, "{tested:?}");
    let cases = if has_sdk { 2 } else { 8 };
    assert!(sum["passed"].as_u64().unwrap() >= cases, "{tested:?}");
    test(&["--reuse", "1000"]).ok();

    let checking = ["check", "--config", "hostler.toml", "--handler"];
    let mut checking = hostler(checking);
    let checked = end(checking.arg(&handler).current_dir(&project)).ok();
    assert!(checked.stdout.contains(NAME), "{checked:?}");
    // `hostler dev` builds it in the same way.
    let dev = |line: &&str| line.starts_with("dev.build") && line.contains(build);
    assert!(checked.stdout.lines().any(|line| dev(&line)), "{checked:?}");

    if !has_sdk {
        Extended(&project).is_built(language);
    }

    // Nothing is written over.
    let again = end(hostler(["new", "--lang", language, NAME]).current_dir(home.path()));
    assert_eq!(again.code, 64, "{again:?}");
    assert!(again.stderr.contains("is there already"), "{again:?}");
}

/// A project that its user works on.
struct Extended<'a>(&'a Path);

impl Extended<'_> {
    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn edit(&self, file: &str, old: &str, new: &str) {
        let text = std::fs::read_to_string(self.0.join(file)).unwrap();
        assert!(text.contains(old), "{file}: {text}");
        self.write(file, &text.replacen(old, new, 1));
    }

    /// It builds, and its handler logs this line.
    fn says(&self, build: &str, line: &str) {
        shell(self.0, build);
        let mut command = hostler(["invoke", "handler.wasm", "--body", "x"]);
        command.args(["--grant-config", r#"{"region":"eu"}"#]);
        command.args(["--timeout", "50s", "--cpu", "50s"]);
        command.args(["--limit-compile-time", "10m"]);
        let ended = end(command.current_dir(self.0));
        assert!(ended.stdout.contains(line), "{line}: {ended:?}");
    }

    fn is_up_to_date(&self) -> bool {
        prepared(self.0, "make --question")
            .status()
            .unwrap()
            .success()
    }

    /// New files are built, imports of the WIT work, and so does what the docs say.
    fn is_built(&self, language: &str) {
        match language {
            "go" => self.go(),
            "zig" => self.zig(),
            "c" => self.new_header("extra.h"),
            "cpp" => self.new_header("extra.hpp"),
            "python" => self.python(),
            "js" => self.js(),
            "ts" => self.ts(),
            // Cargo looks at every file.
            _ => {}
        }
    }

    fn go(&self) {
        self.write(
            "extra/extra.go",
            "package extra\n\nconst Note = \"first\"\n",
        );
        let test = "package extra\n\nimport \"testing\"\n\n\
                    func TestNote(t *testing.T) { t.Fatal(Note) }\n";
        self.write("extra/extra_test.go", test);
        let import = format!("import (\n\t\"example.com/{NAME}/extra\"\n");
        self.edit("main.go", "import (\n", &import);
        let print = "\tfmt.Println(extra.Note)\n\tverdict :=";
        self.edit("main.go", "\tverdict :=", print);
        self.says("make", "first");
        self.write(
            "extra/extra.go",
            "package extra\n\nconst Note = \"second\"\n",
        );
        self.says("make", "second");
        // The tests of every package.
        let tested = prepared(self.0, "make test").output().unwrap();
        assert!(!tested.status.success(), "{tested:?}");
        assert!(String::from_utf8_lossy(&tested.stdout).contains("TestNote"));
    }

    fn zig(&self) {
        self.write("extra.zig", "pub const note = \"first\";\n");
        let old = "const order = @import(\"order.zig\");";
        let import = format!("{old}\nconst extra = @import(\"extra.zig\");");
        self.edit("main.zig", old, &import);
        let print = "std.log.info(\"{s}\", .{extra.note});\n    const verdict";
        self.edit("main.zig", "const verdict", print);
        self.says("make", "first");
        self.write("extra.zig", "pub const note = \"second\";\n");
        self.says("make", "second");
    }

    fn new_header(&self, file: &str) {
        assert!(self.is_up_to_date());
        self.write(file, "");
        assert!(!self.is_up_to_date(), "{file} was added");
        shell(self.0, "make");
        assert!(self.is_up_to_date());
        std::fs::remove_file(self.0.join(file)).unwrap();
        assert!(!self.is_up_to_date(), "{file} was removed");
    }

    fn python(&self) {
        assert!(self.is_up_to_date());
        self.write("extra/__init__.py", &documented("python"));
        assert!(!self.is_up_to_date(), "a module was added");
        // A package in pure Python, as a registry has it.
        let wheel = "import zipfile\n\
            z = zipfile.ZipFile('greet-1.0-py3-none-any.whl', 'w')\n\
            z.writestr('greet.py', 'HELLO = \"a package says hello\"')\n\
            z.writestr('greet-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: greet\\nVersion: 1.0\\n')\n\
            z.writestr('greet-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
            z.writestr('greet-1.0.dist-info/RECORD', '')\n\
            z.close()\n";
        self.write("wheel.txt", wheel);
        shell(self.0, "python3 wheel.txt");
        self.edit(
            "requirements.txt",
            "# The",
            "./greet-1.0-py3-none-any.whl\n# The",
        );
        shell(
            self.0,
            "mkdir -p wit/deps/hostler && mv wit/world.wit wit/deps/hostler/",
        );
        self.write("wit/orders.wit", &documented("wit"));
        self.edit(
            "app.py",
            "import order\n",
            "import extra\nimport greet\nimport order\n",
        );
        let print = "print(greet.HELLO, extra.region())\n        verdict =";
        self.edit("app.py", "verdict =", print);
        shell(self.0, "make");
        // To compile it again would take the longest part of this test. The component holds what its
        // modules have become while it was built.
        let component = std::fs::read(self.0.join("handler.wasm")).unwrap();
        for text in ["a package says hello", "wasi:config/store@0.2.0-rc.1"] {
            let mut places = component.windows(text.len());
            assert!(places.any(|place| place == text.as_bytes()), "{text}");
        }
    }

    fn js(&self) {
        self.grants_config();
        self.write("src/region.js", &documented("js"));
        let import = "import { log } from \"./log.js\";\nimport { region } from \"./region.js\";\n\
                      import delivery from \"hostler:handler/delivery@1.2.0\";";
        self.edit(
            "src/handler.js",
            "import { log } from \"./log.js\";",
            import,
        );
        self.logs_the_region("src/handler.js");
    }

    fn ts(&self) {
        self.grants_config();
        self.write("src/region.ts", &documented("js"));
        let types = std::fs::read_to_string(self.0.join("src/hostler.d.ts")).unwrap();
        self.write(
            "src/hostler.d.ts",
            &format!("{types}\n{}", documented("ts")),
        );
        let import = "import { log } from \"./log\";\nimport { region } from \"./region\";\n\
                      import delivery from \"hostler:handler/delivery@1.2.0\";";
        self.edit("src/handler.ts", "import { log } from \"./log\";", import);
        self.logs_the_region("src/handler.ts");
        // What QuickJS does not have.
        for name in ["console.log(1)", "Buffer.from([])", "fetch(\"\")"] {
            let broken = format!("{name};\n    const verdict");
            self.edit("src/handler.ts", "const verdict", &broken);
            let built = prepared(self.0, "npx tsc").output().unwrap();
            assert!(!built.status.success(), "{name}: {built:?}");
            self.edit("src/handler.ts", &broken, "const verdict");
        }
    }

    /// The world of the project with `wasi:config`.
    fn grants_config(&self) {
        let import = "  import wasi:cli/stdout@0.2.6;\n";
        let both = format!("{import}  import wasi:config/store@0.2.0-rc.1;\n");
        self.edit("wit/orders.wit", import, &both);
        let world = std::fs::read_to_string(self.0.join("wit/orders.wit")).unwrap();
        let documented = documented("wit");
        let (_, package) = documented.split_once("package wasi:config").unwrap();
        self.write(
            "wit/orders.wit",
            &format!("{world}\npackage wasi:config{package}"),
        );
    }

    fn logs_the_region(&self, file: &str) {
        let print = "log(`${region()} ${delivery.deadlineMs() > 0}`);\n    const verdict";
        self.edit(file, "const verdict", print);
        self.says("npm run build", "eu true");
    }
}

/// The block of code in this language, of the docs about values from the operator.
fn documented(language: &str) -> String {
    let docs = std::fs::read_to_string(repository().join("docs/languages/raw.md")).unwrap();
    let (_, section) = docs.split_once("## Values from the operator").unwrap();
    let (_, block) = section.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

/// Run a line of what `hostler new` says.
pub(crate) fn shell(project: &Path, line: &str) {
    let output = prepared(project, line).output().unwrap();
    assert!(
        output.status.success(),
        "{line}:\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The line, with the tools that the examples were built with.
fn prepared(project: &Path, line: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(project)
        // The dependencies are those of the example: compiled once.
        .env(
            "CARGO_TARGET_DIR",
            repository().join("guest-examples/rust/target"),
        )
        .env_remove("MAKEFLAGS")
        .env_remove("LANG")
        .env("TOOLCHAINS", repository().join(".toolchains"));
    command
}

pub(crate) fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_owned()
}

#[test]
fn a_bad_name_or_language_is_refused() {
    let home = tempfile::tempdir().unwrap();
    for name in ["../escape", "Capital", "-dash"] {
        let ended = end(hostler(["new", "--lang", "c", "--", name]).current_dir(home.path()));
        assert_eq!(ended.code, 64, "{ended:?}");
    }
    let ended =
        end(hostler(["new", "--lang", "c", "a", "--with", "http,mail"]).current_dir(home.path()));
    assert_eq!(ended.code, 64);
    let known = "[possible values: http, key-value, publish, secrets]";
    assert!(ended.stderr.contains(known), "{ended:?}");
    let ended = end(hostler(["new", "--lang", "cobol", "payroll"]).current_dir(home.path()));
    assert_eq!(ended.code, 64);
    assert!(
        ended.stderr.contains("python"),
        "it lists the languages: {ended:?}"
    );
    // The Go tools would not build it.
    let ended = end(hostler(["new", "--lang", "go", "vendor"]).current_dir(home.path()));
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(ended.stderr.contains("such as vendor-handler"), "{ended:?}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}
