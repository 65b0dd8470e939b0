//! Guests of the first release, as they were compiled then: they must run in every later release.
//! These files are never built again; a later release adds a folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hostler::delivery::hold::HoldRoom;
use hostler::delivery::outcome::Outcome;
use hostler::delivery::trace::Traced;
use hostler::sandbox::{Call, LogSink, Sandbox, Settings, World};
use hostler_tests::rig::{Rig, message};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus/1.0.0")
        .join(name)
}

fn text(name: &str) -> Vec<u8> {
    wat::parse_file(corpus(name)).expect("a component in text")
}

#[tokio::test]
async fn a_rust_guest_of_the_first_release_still_runs() {
    let sandbox = Sandbox::load(&corpus("ack.wasm"), &Settings::default()).unwrap();
    // The digest of the original file: a new build would be another test.
    assert_eq!(
        &**sandbox.digest(),
        "sha256:2700537dd4d090611a16114e1088a709fbc88bda3bab15fb4364797b1f6b50ac"
    );
    assert_eq!(Rig::of(sandbox).run("anything").await.outcome, Outcome::Ack);
}

#[tokio::test]
async fn a_handler_of_the_first_release_with_every_import_still_runs() {
    let mut rig = Rig::bytes(&text("handler.wat"), &Settings::default());
    let seven = Outcome::NackRequeue(Some(Duration::from_millis(7)));
    assert_eq!(rig.run("anything").await.outcome, seven);
}

#[tokio::test]
async fn a_batch_handler_of_the_first_release_still_runs() {
    let mut rig = Rig::bytes(&text("batch.wat"), &Settings::default());
    assert_eq!(rig.sandbox.describe().world, World::Batch);
    assert_eq!(rig.run("anything").await.outcome, Outcome::Ack);
    let message = message("anything");
    let call = Call {
        message: &message,
        attempt: 1,
        max_attempts: 0,
        cancelled: &rig.cancelled,
        logs: &LogSink::default(),
        trace: Traced::default(),
        began: std::time::Instant::now(),
        journal: None,
        room: HoldRoom::default(),
    };
    let report = rig.sandbox.call_batch(&mut rig.slot, &[call; 100]).await;
    assert_eq!(report.answer.unwrap(), vec![Outcome::Ack; 100]);
}
