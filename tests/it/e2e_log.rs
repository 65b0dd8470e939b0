//! The log of a host.

use std::process::Child;

use hostler_tests::host::HostOptions;
use hostler_tests::redis::eventually;
use nix::pty::openpty;

use crate::e2e_scene::Scene;

#[tokio::test]
async fn a_log_without_a_reader_does_not_stop_the_host() {
    ends_unread(HostOptions::start_unread).await;
}

#[tokio::test]
async fn a_terminal_that_draws_nothing_does_not_stop_the_host() {
    let pair = openpty(None, None).unwrap();
    ends_unread(|host| host.start_into(pair.slave.try_clone().unwrap())).await;
    drop(pair);
}

/// A host whose log nobody reads handles all its messages.
async fn ends_unread(start: impl FnOnce(&HostOptions) -> Child) {
    const MESSAGES: usize = 400;
    let mut scene = Scene::new().await;
    // Twelve times as much as a pipe holds: 400 lines of 2 KiB.
    let body = format!("text:{}+ack", "x".repeat(2_000));
    scene.publish_all(&body, MESSAGES).await;
    let mut host = start(&scene.host().until_empty());
    let mut status = None;
    eventually("the host ends", async || {
        status = host.try_wait().expect("it can be waited for");
        status.is_some()
    })
    .await;
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    assert!(scene.look().await.is_empty());
}
