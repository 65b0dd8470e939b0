//! Grants: an import without its grant is refused by name; the operator gives grants.

use std::collections::BTreeMap;

use hostler::delivery::outcome::Outcome;
use hostler::grants::configuration::rules::Values;
use hostler::grants::{Grants, Need};
use hostler::sandbox::{Limits, Sandbox, Settings};
use hostler_tests::command::run;
use hostler_tests::guests::{HANDLE, exporting, guest};
use hostler_tests::rig::Rig;

use crate::sandbox::sandbox_compile::by_child;

fn granted(values: &[(&str, &str)]) -> Settings {
    let values = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings {
        grants: Grants {
            config: Some(Values::from(values.collect::<BTreeMap<_, _>>())),
            ..Grants::default()
        },
        ..Settings::default()
    }
}

fn rig(settings: &Settings) -> Rig {
    Rig::guest("configured", settings)
}

#[test]
fn a_component_without_its_grant_is_refused() {
    let error = Sandbox::load(&guest("configured"), &Settings::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "imports interfaces that it is not granted: wasi:config/store@0.2.0-rc.1 (needs the grant `config`); \
         write in the file of the queue:\n\n[grant.config]\nname = \"value\"\n"
    );
}

#[tokio::test]
async fn a_guest_reads_the_configured_values() {
    let mut rig = rig(&granted(&[("region", "eu"), ("empty", ""), ("ü", "é")]));
    assert_eq!(rig.reason("config:region").await, "eu");
    assert_eq!(rig.reason("config:empty").await, "");
    assert_eq!(rig.reason("config:ü").await, "é");
    assert_eq!(rig.reason("config:Region").await, "Ok(None)");
    assert_eq!(
        rig.reason("configs").await,
        r#"Ok([("empty", ""), ("region", "eu"), ("ü", "é")])"#
    );
    let mut imports = rig.sandbox.describe().imports.iter();
    let import = imports.find(|import| import.name.starts_with("wasi:config"));
    assert_eq!(import.unwrap().need, Need::Grant("config"));
    // A grant without values.
    let mut empty = self::rig(&granted(&[]));
    assert_eq!(empty.reason("configs").await, "Ok([])");
}

#[tokio::test]
async fn a_handler_may_need_a_configured_value_at_its_start() {
    let items = format!(
        r#"(import "wasi:config/store@0.2.0-rc.1" (instance $config
            (type $failure (variant (case "upstream" string) (case "io" string)))
            (export "error" (type $error (eq $failure)))
            (export "get" (func (param "key" string)
                (result (result (option string) (error $error)))))))
        (core module $base
            (memory (export "memory") 1)
            (data (i32.const 2048) "region")
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024))
        (core instance $base (instantiate $base))
        (alias core export $base "memory" (core memory $memory))
        (alias core export $base "realloc" (core func $realloc))
        (core func $get (canon lower (func $config "get") (memory $memory) (realloc $realloc)))
        (core module $main
            (import "base" "memory" (memory 1))
            (import "host" "get" (func $get (param i32 i32 i32)))
            (start $start)
            (func $start
                (call $get (i32.const 2048) (i32.const 6) (i32.const 64))
                (if (i32.eqz (i32.load8_u (i32.const 68))) (then unreachable)))
            (func (export "handle") {} i32.const 0))
        (core instance $core (instantiate $main
            (with "base" (instance $base))
            (with "host" (instance (export "get" (func $get))))))
        (alias core export $core "handle" (core func $run))"#,
        HANDLE.core
    );
    let bytes = exporting(&HANDLE, "1.0.0", &items);
    // The process that tries it has the values too.
    let tried = |values| Settings {
        compiler: by_child(Limits::default()).compiler,
        ..granted(values)
    };
    let mut rig = Rig::bytes(&bytes, &tried(&[("region", "eu")]));
    assert_eq!(rig.run("").await.outcome, Outcome::Ack);
    let refused = Sandbox::load_bytes(&bytes, &tried(&[])).unwrap_err();
    assert!(refused.to_string().contains("unreachable"), "{refused}");
}

#[tokio::test]
async fn large_values_count_against_the_memory_limit() {
    let large = "x".repeat(20 << 20);
    let mut rig = rig(&Settings {
        limits: Limits {
            memory: 8 << 20,
            ..Limits::default()
        },
        ..granted(&[("large", &large), ("small", "s")])
    });
    let fault = rig.fault("config:large").await;
    assert_eq!(fault.kind.label(), "memory-limit", "{fault}");
    assert_eq!(rig.reason("config:small").await, "s");
}

#[test]
fn debug_output_hides_the_values() {
    let settings = granted(&[("token", "s3cr3t")]);
    let shown = format!("{settings:?}");
    let is_hidden = shown.contains("token") && !shown.contains("s3cr3t");
    assert!(is_hidden, "{shown}");
}

#[test]
fn check_lists_grants_and_hides_their_values() {
    let file = guest("configured").display().to_string();
    let refused = run(["check", &file]);
    assert_eq!(refused.code, 65, "{refused:?}");
    let needs = "needs the grant `config`";
    assert!(refused.stderr.contains(needs), "{refused:?}");
    let toml = "hint: write in the file of the queue:\n\n[grant.config]\nname = \"value\"";
    assert!(refused.stderr.contains(toml), "{refused:?}");
    let flag = r#"--grant-config={"token":"s3cr3t"}"#;
    let text = run(["check", &file, flag]).ok();
    assert!(text.stdout.contains("by the grant `config`"), "{text:?}");
    let json = run(["check", &file, flag, "--json"]).ok();
    let imports = json.json()["imports"].clone();
    let mut imports = imports.as_array().unwrap().iter();
    let import = imports.find(|import| import["grant"] == "config");
    assert_eq!(import.unwrap()["needs"], "grant");
    assert!(!format!("{text:?}{json:?}").contains("s3cr3t"));

    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("orders.toml");
    let base =
        format!("redis = \"redis://db\"\nstream = \"o\"\ngroup = \"g\"\nhandler = \"{file}\"\n");
    let granting = format!("{base}[grant.config]\ntoken = \"s3cr3t\"\n");
    std::fs::write(&config, granting).unwrap();
    let config = config.display().to_string();
    let shown = run(["check", "--config", &config]).ok().stdout;
    let is_hidden = shown.contains("values for token") && !shown.contains("s3cr3t");
    assert!(is_hidden, "{shown}");
    for (wrong, said) in [
        (
            "grant.config = \"s3cr3t\"",
            "is a string, not a table of strings",
        ),
        (
            "[grant.config]\ntoken = [\"s3cr3t\"]",
            "has a array as `token`",
        ),
        ("[grant.http]\nallow = true", "grant.http"),
    ] {
        std::fs::write(&config, format!("{base}{wrong}\n")).unwrap();
        let ended = run(["check", "--config", &config]);
        assert_eq!(ended.code, 64, "{ended:?}");
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
        assert!(!format!("{ended:?}").contains("s3cr3t"), "{ended:?}");
    }
    let ended = run(["check", &file, "--grant-config=s3cr3t"]);
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(!ended.stderr.contains("s3cr3t"), "{ended:?}");
}
