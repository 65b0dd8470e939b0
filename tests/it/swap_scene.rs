//! What the tests of swaps share: a server, a handler's file, and hosts that follow it.

use std::path::PathBuf;

use hostler::rollout::verify;
use hostler_tests::checker::DeadLetter;
use hostler_tests::command;
use hostler_tests::host::{Host, HostOptions, Line, eventually_or};
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, eventually};
use serde_json::Value;

/// A server, and the file of a handler.
pub(crate) struct Scene {
    pub(crate) server: RedisServer,
    pub(crate) raw: RawRedis,
    /// The handler's file.
    pub(crate) file: PathBuf,
}

impl Scene {
    /// With this in the file.
    pub(crate) async fn new(component: &[u8]) -> Self {
        Self::on(RedisOptions::default(), component).await
    }

    /// The same, on such a server.
    pub(crate) async fn on(options: RedisOptions, component: &[u8]) -> Self {
        let server = options.start();
        let raw = server.raw().await;
        let file = server.dir().join("handler.wasm");
        std::fs::write(&file, component).unwrap();
        Self { server, raw, file }
    }

    /// A host of the group `workers` of `orders` that runs the file.
    pub(crate) fn host(&self) -> HostOptions {
        HostOptions::new(&self.server)
            .flag("handler", &self.file.display().to_string())
            .flag("compile-cache", "off")
            .flag("backoff-first", "5ms")
            .dead_letter()
            .admin()
    }

    /// Put this in the file's place, as deployments do: beside it, then renamed.
    pub(crate) fn put(&self, component: &[u8]) {
        let beside = self.file.with_extension("new");
        std::fs::write(&beside, component).unwrap();
        std::fs::rename(&beside, &self.file).unwrap();
    }

    /// Publish one message for each of these bodies, to `orders`.
    pub(crate) fn publish(&self, bodies: impl IntoIterator<Item = String>) -> usize {
        let lines: Vec<String> = bodies.into_iter().collect();
        let url = self.server.url();
        let to = ["publish", "--redis", &url, "--stream", "orders", "--lines"];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        command::fed(to, text.as_bytes()).ok();
        lines.len()
    }

    /// Wait until the group has nothing to do.
    pub(crate) async fn emptied(&self) {
        eventually("the queue is empty", || async {
            let look = hostler_tests::checker::Look::at(&self.raw).await;
            look.is_empty()
        })
        .await;
    }

    /// The dead letters.
    pub(crate) async fn dead(&self) -> Vec<DeadLetter> {
        DeadLetter::all(&self.raw, "orders:dead").await
    }
}

/// The digest of a component.
pub(crate) fn digest(component: &[u8]) -> String {
    swap::digest(component).to_string()
}

/// Wait until it runs this version.
pub(crate) async fn runs(host: &Host, component: &[u8]) {
    let wanted = digest(component);
    let what = || format!("it runs {wanted}: {:?}", host.log().last());
    eventually_or(what, async || {
        versions(host)["current"]["digest"] == *wanted
    })
    .await;
}

/// Wait until it has refused this version, and say why.
pub(crate) async fn refuses(host: &Host, component: &[u8]) -> Value {
    let wanted = digest(component);
    let what = || format!("it refuses {wanted}");
    eventually_or(what, async || {
        versions(host)["refused"]["digest"] == *wanted
    })
    .await;
    versions(host)["refused"].clone()
}

/// The details of `/ready`.
pub(crate) fn versions(host: &Host) -> Value {
    let (_, body) = host.get("/ready");
    let body: Value = serde_json::from_str(&body).unwrap();
    body["handler"].clone()
}

/// What `inspect` says of the versions of the one host there is, once it says this of the one that
/// was refused last.
pub(crate) async fn inspected(scene: &Scene, refused: &Value) {
    let url = scene.server.url();
    let inspect = [
        "inspect", "--redis", &url, "--stream", "orders", "--group", "workers", "--json",
    ];
    let look = || command::run(inspect).ok().json()["hosts"][0]["handler"]["refused"].clone();
    let what = || format!("inspect shows {refused}: {}", look());
    eventually_or(what, async || look() == *refused).await;
}

/// The lines with this message.
pub(crate) fn said(host: &Host, message: &str) -> Vec<Line> {
    let log = host.log().into_iter();
    log.filter(|line| line.message() == message).collect()
}

/// Bodies whose first bytes go from 0 to 99, over and over, in an order that looks like none:
/// those below `n` are `n` percent of them. None holds a line's end.
pub(crate) fn bodies(count: usize) -> Vec<String> {
    let byte = |i: usize| match u8::try_from(i * 37 % 100).unwrap() {
        // The end of a line would be the end of the body: its place is taken by another one.
        b'\n' | b'\r' => 99,
        byte => byte,
    };
    (0..count)
        .map(|i| format!("{}-{i}", char::from(byte(i))))
        .collect()
}
