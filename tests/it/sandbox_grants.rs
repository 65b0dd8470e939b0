//! Grants: an import without its grant is refused by name; the operator gives grants.

use std::collections::BTreeMap;

use hostler::sandbox::{Grants, Limits, Need, Sandbox, Settings, Values};
use hostler_tests::command::run;
use hostler_tests::guests::guest;
use hostler_tests::rig::Rig;

fn granted(values: &[(&str, &str)]) -> Settings {
    let values = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings {
        grants: Grants {
            config: Some(Values::new(values.collect::<BTreeMap<_, _>>())),
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
    let base = "redis = \"redis://db\"\nstream = \"o\"\ngroup = \"g\"\nhandler = \"h.wasm\"\n";
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
