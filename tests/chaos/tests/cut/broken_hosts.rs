//! The suite sees a host that breaks a promise.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use hostler_chaos::check::Invariant;
use hostler_chaos::plan::Cell;
use hostler_chaos::run::{Programs, run};
use hostler_tests::guests::guest;
use hostler_tests::host::binary;

/// Run a healthy cell with a host that has another flag than the suite believes. Returns the promises
/// that it breaks.
async fn broken_by(name: &str, value: &str) -> BTreeSet<Invariant> {
    let dir = tempfile::tempdir().unwrap();
    let wrapper = dir.path().join("hostler");
    let script = format!(
        "#!/bin/sh\nfor flag; do\n  shift\n  case $flag in --{name}=*) flag=--{name}={value};; esac\n  \
         set -- \"$@\" \"$flag\"\ndone\nexec '{}' \"$@\"\n",
        binary().display()
    );
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut cell = Cell::named("stream").unwrap();
    cell.load.hosts = 1;
    cell.load.messages = 500;
    cell.load.cap = 4;
    let programs = Programs {
        hostler: Some(wrapper),
        ..Programs::default()
    };
    let outcome = run(&cell.plan(1), &programs).await.unwrap();
    let violations = outcome.judgement.violations.iter();
    violations.map(|wrong| wrong.invariant).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_acknowledges_without_a_verdict_is_caught() {
    // This handler acknowledges everything, and does nothing of what messages say.
    let broken = broken_by("handler", &guest("ack").display().to_string()).await;
    assert_eq!(broken, [Invariant::NoLoss].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_another_cap_is_caught() {
    let broken = broken_by("max-deliveries", "5").await;
    assert!(broken.contains(&Invariant::Cap), "{broken:?}");
    let broken = broken_by("max-deliveries", "3").await;
    assert_eq!(broken, [Invariant::NoInnocent].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_reuses_instances_is_caught() {
    let broken = broken_by("reuse", "100").await;
    assert_eq!(broken, [Invariant::Isolation].into());
}
