//! Grants: denied by default, refused by name, given by the operator.

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
        },
        ..Settings::default()
    }
}

fn rig(settings: &Settings) -> Rig {
    Rig::of(Sandbox::load(&guest("configured"), settings).expect("the guest loads"))
}

#[test]
fn denied_by_default() {
    let error = Sandbox::load(&guest("configured"), &Settings::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "imports what it is not granted: wasi:config/store@0.2.0-rc.1 (needs the grant `config`)"
    );
}

#[tokio::test]
async fn values_of_the_operator() {
    let mut rig = rig(&granted(&[("region", "eu"), ("empty", ""), ("ü", "é")]));
    assert_eq!(rig.reason("config:region").await, "eu");
    assert_eq!(rig.reason("config:empty").await, "");
    assert_eq!(rig.reason("config:ü").await, "é");
    assert_eq!(rig.reason("config:Region").await, "Ok(None)");
    assert_eq!(
        rig.reason("configs").await,
        r#"Ok([("empty", ""), ("region", "eu"), ("ü", "é")])"#
    );
    let description = rig.sandbox.describe();
    let import = description
        .imports
        .iter()
        .find(|import| import.name.starts_with("wasi:config"))
        .unwrap();
    assert_eq!(import.need, Need::Grant("config"));
    // Granted, and nothing there.
    let mut empty = self::rig(&granted(&[]));
    assert_eq!(empty.reason("configs").await, "Ok([])");
}

#[tokio::test]
async fn values_are_no_way_out_of_the_limits() {
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
fn values_are_not_shown() {
    let settings = granted(&[("token", "s3cr3t")]);
    let shown = format!("{settings:?}");
    assert!(
        shown.contains("token") && !shown.contains("s3cr3t"),
        "{shown}"
    );
}

#[test]
fn check_lists_grants() {
    let file = guest("configured").display().to_string();
    let refused = run(["check", &file]);
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(
        refused.stderr.contains("needs the grant `config`"),
        "{refused:?}"
    );
    let flag = r#"--grant-config={"token":"s3cr3t"}"#;
    let text = run(["check", &file, flag]).ok();
    assert!(text.stdout.contains("by the grant `config`"), "{text:?}");
    let json = run(["check", &file, flag, "--json"]).ok();
    let imports = json.json()["imports"].clone();
    let import = imports
        .as_array()
        .unwrap()
        .iter()
        .find(|import| import["grant"] == "config")
        .unwrap();
    assert_eq!(import["needs"], "grant");
    assert!(!format!("{text:?}{json:?}").contains("s3cr3t"));

    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("orders.toml");
    let base = "redis = \"redis://db\"\nstream = \"o\"\ngroup = \"g\"\nhandler = \"h.wasm\"\n";
    std::fs::write(
        &config,
        format!("{base}[grant.config]\ntoken = \"s3cr3t\"\n"),
    )
    .unwrap();
    let config = config.display().to_string();
    let shown = run(["check", "--config", &config]).ok().stdout;
    assert!(
        shown.contains("values for token") && !shown.contains("s3cr3t"),
        "{shown}"
    );
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
