//! Shared by the tests of swaps: a server, the file of a handler, hosts that follow the file, and
//! deploys.

use std::path::PathBuf;

use hostler::rollout::verify;
use hostler_tests::checker::{DeadLetter, Look};
use hostler_tests::command::{self, Ended};
use hostler_tests::guests::{guest, variant};
use hostler_tests::host::{Host, HostOptions, Line};
use hostler_tests::redis::{RedisOptions, eventually, eventually_or};
use serde_json::Value;

/// The flag of a host that compiles each version itself.
pub(crate) const COMPILES: &str = "compile-cache=off";

/// A server, and the file of a handler.
pub(crate) type Scene = crate::scene::Scene<HandlerFile>;

pub(crate) struct HandlerFile {
    /// The handler's file.
    pub(crate) file: PathBuf,
}

impl Scene {
    /// A server, and a file that holds this component.
    pub(crate) async fn new(component: &[u8]) -> Self {
        Self::on(RedisOptions::default(), component).await
    }

    /// The same with another server.
    pub(crate) async fn on(options: RedisOptions, component: &[u8]) -> Self {
        let file = PathBuf::new();
        let mut scene = Self::of(HandlerFile { file }, options).await;
        scene.file = scene.server.dir().join("handler.wasm");
        std::fs::write(&scene.file, component).unwrap();
        scene
    }

    /// A host of the group `workers` of `orders` that runs the file. It finds what it compiles in the cache of all
    /// tests: a test that needs a compilation adds [`COMPILES`].
    pub(crate) fn host(&self) -> HostOptions {
        HostOptions::new(&self.server)
            .flag("handler", &self.file.display().to_string())
            .flag("backoff-first", "5ms")
            .dead_letter()
            .admin()
    }

    /// The same; it accepts deploys.
    pub(crate) fn accepting(&self) -> HostOptions {
        self.host().flag("accept-deploys", "true")
    }

    /// Replace the file like a deployment does: write a new file, then rename it.
    pub(crate) fn put(&self, component: &[u8]) {
        let beside = self.file.with_extension("new");
        std::fs::write(&beside, component).unwrap();
        std::fs::rename(&beside, &self.file).unwrap();
    }

    /// Write a component to a file of its own; returns the path.
    pub(crate) fn written(&self, component: &[u8]) -> String {
        let name = format!("{}.wasm", &digest(component)[7..]);
        let path = self.server.dir().join(name);
        std::fs::write(&path, component).unwrap();
        path.display().to_string()
    }

    /// Run a command of hostler on the queue `orders`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Ended {
        let url = self.url();
        let queue = ["--redis", &url, "--queue-key", "orders"];
        command::run(arguments.iter().chain(&queue))
    }

    /// Deploy a component without a check; returns how the command ended.
    pub(crate) fn try_deploy(&self, component: &[u8]) -> Ended {
        let file = self.written(component);
        self.command(&["deploy", &file, "--unchecked", "--json", "--by", "ann"])
    }

    /// Deploy a component without a check.
    pub(crate) fn deploy(&self, component: &[u8]) {
        self.try_deploy(component).ok();
    }

    /// The stored versions, and the hosts.
    pub(crate) fn listed(&self) -> Value {
        self.command(&["versions", "--json"]).ok().json()
    }

    /// Publish one message for each of these bodies, to `orders`.
    pub(crate) fn publish(&self, bodies: impl IntoIterator<Item = String>) -> usize {
        let lines: Vec<String> = bodies.into_iter().collect();
        let url = self.url();
        let to = ["publish", "--redis", &url, "--stream", "orders", "--lines"];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        command::fed(to, text.as_bytes()).ok();
        lines.len()
    }

    /// Publish [`bodies`] until the host decides about its canary. It must log this decision.
    pub(crate) async fn publish_until(&self, host: &Host, message: &str, at_once: usize) -> usize {
        let mut published = 0;
        while host.count(|line| line.message().starts_with("the canary was ")) == 0 {
            published += self.publish(bodies(at_once));
            self.emptied().await;
            assert!(published < 200_000, "no `{message}` after {published}");
        }
        assert_eq!(said(host, message).len(), 1, "{:?}", host.log().last());
        published
    }

    /// Wait until the group has nothing to do.
    pub(crate) async fn emptied(&self) {
        eventually("the queue is empty", || async {
            Look::at(&self.raw).await.is_empty()
        })
        .await;
    }

    /// The dead letters.
    pub(crate) async fn dead(&self) -> Vec<DeadLetter> {
        DeadLetter::all(&self.raw, "orders:dead").await
    }
}

/// The bytes of a guest of the tests.
pub(crate) fn component_of(name: &str) -> Vec<u8> {
    std::fs::read(guest(name)).unwrap()
}

/// The guest `scripted`, as a version of its own.
pub(crate) fn scripted(tag: &str) -> Vec<u8> {
    variant(&component_of("scripted"), tag)
}

/// The digest of a component.
pub(crate) fn digest(component: &[u8]) -> String {
    verify::digest(component).to_string()
}

/// Wait until the host runs this version.
pub(crate) async fn runs(host: &Host, component: &[u8]) {
    let wanted = digest(component);
    let what = || format!("the host runs {wanted}: {:?}", host.log().last());
    eventually_or(what, async || current(host) == *wanted).await;
}

/// Wait until the host has refused this version; returns the refusal.
pub(crate) async fn refuses(host: &Host, component: &[u8]) -> Value {
    let wanted = digest(component);
    let what = || format!("the host refuses {wanted}");
    let is_refused = async || versions(host)["refused"]["digest"] == *wanted;
    eventually_or(what, is_refused).await;
    versions(host)["refused"].clone()
}

/// The details of `/ready`.
pub(crate) fn versions(host: &Host) -> Value {
    let (_, body) = host.get("/ready");
    let body: Value = serde_json::from_str(&body).unwrap();
    body["handler"].clone()
}

/// The digest of the version that the host runs.
pub(crate) fn current(host: &Host) -> Value {
    versions(host)["current"]["digest"].clone()
}

/// The digest of the version that the host tries with a share of the messages.
pub(crate) fn canary(host: &Host) -> Value {
    versions(host)["canary"]["digest"].clone()
}

/// Wait until the host has begun a canary and shows it: it logs the start before `/ready` has it.
pub(crate) async fn begins_canary(host: &Host) {
    host.logs("a canary begins").await;
    eventually("the host shows its canary", async || {
        !canary(host).is_null()
    })
    .await;
}

/// Wait until the host shows no canary.
pub(crate) async fn ends_canary(host: &Host) {
    eventually("the canary ends", async || canary(host).is_null()).await;
}

/// Wait until `inspect` shows this refusal of the only host.
pub(crate) async fn inspected(scene: &Scene, refused: &Value) {
    let url = scene.url();
    let queue = ["--stream", "orders", "--group", "workers"];
    let inspect = [&["inspect", "--redis", &url, "--json"], &queue[..]].concat();
    let look = || command::run(&inspect).ok().json()["hosts"][0]["handler"]["refused"].clone();
    let what = || format!("inspect shows {refused}: {}", look());
    eventually_or(what, async || look() == *refused).await;
}

/// The lines with this message.
pub(crate) fn said(host: &Host, message: &str) -> Vec<Line> {
    let log = host.log().into_iter();
    log.filter(|line| line.message() == message).collect()
}

/// Stop these hosts; each ends with exit code 0.
pub(crate) async fn drain_all(hosts: impl IntoIterator<Item = Host>) {
    for host in hosts {
        host.drain().await.expect_code(0);
    }
}

/// Bodies whose first bytes go from 0 to 99, again and again, in a mixed order: `n` percent of them
/// are below `n`. No body contains a line break.
pub(crate) fn bodies(count: usize) -> Vec<String> {
    let byte = |i: usize| match u8::try_from(i * 37 % 100).unwrap() {
        // A line break would end the body.
        b'\n' | b'\r' => 99,
        byte => byte,
    };
    (0..count)
        .map(|i| format!("{}-{i}", char::from(byte(i))))
        .collect()
}
