//! The log of a host.

use std::process::Child;

use hostler_tests::host::{HostOptions, Line};
use hostler_tests::redis::eventually;
use nix::pty::openpty;

use crate::runtime::e2e_scene::Scene;

#[tokio::test]
async fn lines_about_single_messages_are_limited_and_the_rest_is_counted() {
    const MESSAGES: usize = 3_000;
    let mut scene = Scene::new().await;
    scene.publish_all("drop", MESSAGES).await;
    let begun = std::time::Instant::now();
    let ended = scene.host().dead_letter().until_empty().finish().await;
    let seconds = begun.elapsed().as_secs() + 2;
    let about = |line: &&Line| line.message() == "dead-lettered";
    let lines: Vec<_> = ended.log.iter().filter(about).collect();
    let most = 100 * usize::try_from(seconds).unwrap();
    assert!(lines.len() <= most, "{} lines in {seconds} s", lines.len());
    let suppressed: u64 = lines
        .iter()
        .filter_map(|line| line.number("suppressed"))
        .sum();
    let told = lines.len() + usize::try_from(suppressed).unwrap();
    // The last ones are counted by the next line, which never comes.
    assert!(told <= MESSAGES, "{told} told");
    assert_eq!(scene.look().await.dead.len(), MESSAGES);
}

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

/// A host whose log no process reads handles all its messages.
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
