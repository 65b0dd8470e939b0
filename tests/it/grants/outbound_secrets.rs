//! Secrets whose file does not answer: a read takes one thread, other messages go on, and the host ends.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::eventually;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::grants::outbound_names::status;
use crate::runtime::e2e_scene::Scene;

/// The file of the secret `slow`.
fn file(scene: &Scene) -> PathBuf {
    scene.server.dir().join("slow")
}

/// A host whose handler may read the secret. It has a value at the start, which no message has read.
fn options(scene: &Scene, flags: &str) -> HostOptions {
    let (config, file) = (scene.server.dir().join("orders.toml"), file(scene));
    fs::write(&file, "one\n").unwrap();
    let toml = format!(
        "[[grant.http]]\nhost = \"a.test\"\n\
         [grant.secret]\nneeded = {{ variable = \"NEEDED\", expose = true }}\n\
         slow = {{ file = \"{}\", expose = true }}\n",
        file.display()
    );
    fs::write(&config, toml).unwrap();
    scene
        .host()
        .cap(1)
        .flag("handler", &guest("outbound").display().to_string())
        .flag("config", &config.display().to_string())
        .flags(flags)
        .variable("NEEDED", "needed")
        .admin()
}

/// Put a pipe in the place of the file. Nothing writes to it, so a thread that opens it waits.
fn hang(scene: &Scene) {
    let pipe = file(scene).with_extension("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    fs::rename(pipe, file(scene)).unwrap();
}

#[tokio::test]
async fn messages_go_on_beside_a_secret_that_is_never_read_and_sigterm_ends_the_host() {
    let mut scene = Scene::new().await;
    let options = options(&scene, "concurrency=8 timeout=10m drain-timeout=1s");
    let host = options.ready().await;
    hang(&scene);
    let mut waiting = scene.publish_all("secret:slow", 6).await;
    host.starts(6).await;
    scene.publish_all("ack", 200).await;
    eventually("only those that read the secret are left", async || {
        let look = scene.look().await;
        look.unread.is_empty() && look.pending.len() == waiting.len()
    })
    .await;
    let look = scene.look().await;
    let mut held: Vec<String> = look.pending.into_iter().map(|held| held.id).collect();
    held.sort();
    waiting.sort();
    assert_eq!(held, waiting);
    assert!(look.dead.is_empty());
    assert_eq!(host.get("/live").0, 200);

    let ended = host.drain().await;
    ended.expect_code(75);
    assert_eq!(ended.json()["acked"], 200);
}

#[tokio::test]
async fn attempts_whose_secret_is_never_read_take_one_thread_until_it_is() {
    let mut scene = Scene::new().await;
    let options = options(&scene, "concurrency=8 timeout=200ms");
    let host = options.ready().await;
    scene.publish_all("ack", 50).await;
    scene.emptied().await;
    let threads = status(&host, "Threads:");
    hang(&scene);
    // Each ends long before its thread, which nothing can end. The others show that the handler is well.
    for _ in 0..60 {
        scene.publish("secret:slow").await;
        scene.publish("ack").await;
    }
    scene.emptied().await;
    let dead = scene.look().await.dead;
    let details = dead
        .iter()
        .map(|it| it.header("x-dead-letter-detail").unwrap_or(""));
    let details: Vec<&str> = details.collect();
    // Under load an `ack` may be late as well.
    assert!(details.len() >= 60, "{details:?}");
    assert!(
        details.iter().all(|it| it.contains("wall-timeout")),
        "{details:?}"
    );
    let found = status(&host, "Threads:").saturating_sub(threads);
    println!("{found} threads more after 60 attempts");
    // The runtime may start a few threads of its own meanwhile.
    assert!(found <= 1 + 4, "{found} threads more");

    // The thread gets its answer at last, and the others find the value.
    let pipe = file(&scene).with_extension("pipe");
    fs::rename(file(&scene), &pipe).unwrap();
    fs::write(file(&scene), "two\n").unwrap();
    let mut writer = File::options().write(true).open(pipe).unwrap();
    writer.write_all(b"two\n").unwrap();
    drop(writer);
    eventually("the secret is read", async || {
        scene.publish("secret:slow").await;
        scene.emptied().await;
        let dead = scene.look().await.dead;
        let detail = dead
            .last()
            .and_then(|letter| letter.header("x-dead-letter-detail"));
        detail == Some(r#"Ok("two")"#)
    })
    .await;
    host.drained().await;
}
