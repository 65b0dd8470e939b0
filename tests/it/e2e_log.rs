//! The log of a host.

use hostler_tests::redis::eventually;

use crate::e2e_scene::Scene;

#[tokio::test]
async fn a_log_without_a_reader_does_not_stop_the_host() {
    const MESSAGES: usize = 400;
    let mut scene = Scene::new().await;
    // Twelve times as much as a pipe holds: 400 lines of 2 KiB.
    let body = format!("text:{}+ack", "x".repeat(2_000));
    scene.publish_all(&body, MESSAGES).await;
    let mut host = scene.host().until_empty().start_unread();
    let mut status = None;
    eventually("the host ends", async || {
        status = host.try_wait().expect("it can be waited for");
        status.is_some()
    })
    .await;
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    assert!(scene.look().await.is_empty());
}
