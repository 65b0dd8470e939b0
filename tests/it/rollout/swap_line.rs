//! Versions that arrive faster than they compile. A gate stops each compiler, so that the tests do
//! not depend on the speed of a compilation.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use hostler::rollout::request::VersionRequest;
use hostler::rollout::swap::{Settings, Swapper};
use hostler::rollout::verify::{Step, Terms};
use hostler::rollout::versions::{Origin, Version, Versions};
use hostler::sandbox::{self, Cache, Compiler, Limits, Sandbox};
use hostler::telemetry::health::Health;
use hostler::telemetry::metrics::Metrics;
use hostler::telemetry::versions::VersionsSeen;
use hostler_tests::host::binary;
use hostler_tests::redis::eventually;
use hostler_tests::versions::good;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};

use crate::rollout::swap_scene::digest;

/// Compilers wait here until the test lets them pass, one by one, or until the gate is dropped.
struct Gate(TempDir);

impl Gate {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let script = format!(
            "#!/bin/sh\n\
             # What tries the compiled code measures memory, and passes.\n\
             [ -n \"$MALLOC_TRIM_THRESHOLD_\" ] && exec {program} \"$@\"\n\
             : > {at}/begun.$$\n\
             until rm {at}/pass 2>/dev/null; do [ -d {at} ] || exit 1; sleep 0.01; done\n\
             exec {program} \"$@\"\n",
            program = binary().display()
        );
        let program = dir.path().join("compiler");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
        Self(dir)
    }

    fn compiler(&self) -> Compiler {
        Compiler::Child {
            program: self.0.path().join("compiler"),
        }
    }

    /// The number of compilers that have arrived.
    fn begun(&self) -> usize {
        let names = fs::read_dir(self.0.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("begun."))
            .count()
    }

    /// Wait until this many compilers have arrived.
    async fn begins(&self, times: usize) {
        eventually("a compiler begins", async || self.begun() >= times).await;
        assert_eq!(self.begun(), times, "one at a time");
    }

    /// Let one compiler pass.
    fn pass(&self) {
        fs::write(self.0.path().join("pass"), "").unwrap();
    }
}

/// A task that swaps versions, and the gate of its compilers.
struct Scene {
    gate: Gate,
    versions: Arc<Versions>,
    requests: mpsc::Sender<VersionRequest>,
    seen: watch::Receiver<VersionsSeen>,
}

impl Scene {
    /// The first version is `good("first")`.
    fn new(cache: Option<Cache>) -> Self {
        let gate = Gate::new();
        let plain = sandbox::Settings {
            concurrency: 1,
            ..sandbox::Settings::default()
        };
        let first = Sandbox::load_bytes(&good("first"), &plain).unwrap();
        let versions = Arc::new(Versions::new(first, Origin::File));
        let settings = Settings {
            sandbox: sandbox::Settings {
                compiler: gate.compiler(),
                cache,
                limits: Limits {
                    // The gate may be closed for a long time.
                    compile_time: Duration::from_secs(600),
                    ..Limits::default()
                },
                ..plain
            },
            terms: Terms::default(),
            canary: None,
        };
        let metrics = Arc::<Metrics>::default();
        let swapper = Swapper::new(Arc::clone(&versions), settings, metrics, Health::default());
        let seen = swapper.seen();
        let (requests, inbox) = mpsc::channel(4);
        tokio::spawn(swapper.run(inbox));
        Self {
            gate,
            versions,
            requests,
            seen,
        }
    }

    async fn request(&self, request: VersionRequest) {
        self.requests.send(request).await.unwrap();
    }

    /// Deploy a version of this name.
    async fn deploy(&self, name: &str) {
        self.found(name, true).await;
    }

    async fn found(&self, name: &str, trial: bool) {
        let origin = Origin::Deploy(1);
        let bytes = good(name);
        self.request(VersionRequest::Component {
            origin,
            bytes,
            trial,
        })
        .await;
    }

    /// Wait until all requests so far were received: a request that is refused marks the end.
    async fn received(&self, mark: &str) {
        self.request(VersionRequest::Unusable {
            origin: Origin::File,
            digest: mark.into(),
            step: Step::Source,
            reason: "a mark".to_owned(),
        })
        .await;
        eventually("a mark is refused", async || self.refused() == mark).await;
    }

    fn refused(&self) -> String {
        let seen = self.seen.borrow().clone();
        seen.refused.map_or(String::new(), |refused| refused.digest)
    }

    /// Wait until this version runs, after this many swaps.
    async fn runs(&self, name: &str, swaps: u64) {
        let wanted = digest(&good(name));
        eventually(&format!("`{name}` runs"), async || {
            *self.versions.digest() == *wanted
        })
        .await;
        assert_eq!(self.versions.active().swaps, swaps);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_a_flood_of_versions_each_compiled_one_is_taken_and_the_last_one_wins() {
    let scene = Scene::new(None);
    let mut next = "v0".to_owned();
    scene.deploy(&next).await;
    for round in 1..=5_usize {
        scene.gate.begins(round).await;
        // In each round, three versions arrive while one is compiled.
        for number in 1..=3 {
            scene.deploy(&format!("v{round}.{number}")).await;
        }
        scene.received(&format!("mark {round}")).await;
        scene.gate.pass();
        // The compiled version is taken; the newest of the waiting versions is next.
        scene.runs(&next, round as u64).await;
        next = format!("v{round}.3");
    }
    // The last refusal is newer than the requests of the versions that were taken since.
    assert_eq!(scene.refused(), "mark 5");
    scene.gate.begins(6).await;
    scene.gate.pass();
    scene.runs("v5.3", 6).await;
    // No version waits any more: the next version is compiled at once.
    scene.deploy("calm").await;
    scene.gate.begins(7).await;
    scene.gate.pass();
    scene.runs("calm", 7).await;
    eventually("the refusal is cleared", async || {
        scene.refused().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_version_is_compiled_once() {
    let scene = Scene::new(None);
    scene.deploy("one").await;
    scene.gate.begins(1).await;
    // Another version, and then again the version that is being compiled: the last request wins.
    scene.deploy("two").await;
    scene.deploy("one").await;
    scene.received("mark").await;
    scene.gate.pass();
    scene.runs("one", 1).await;
    scene.deploy("three").await;
    scene.gate.begins(2).await;
    scene.gate.pass();
    scene.runs("three", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_discards_the_waiting_versions() {
    let scene = Scene::new(None);
    scene.deploy("one").await;
    scene.gate.begins(1).await;
    scene.gate.pass();
    scene.runs("one", 1).await;
    scene.deploy("two").await;
    scene.gate.begins(2).await;
    // A rollback takes effect at once, although a version is being compiled.
    scene.request(VersionRequest::Withdraw).await;
    scene.runs("first", 2).await;
    scene.gate.pass();
    scene.deploy("three").await;
    scene.gate.begins(3).await;
    assert_eq!(scene.versions.active().swaps, 2, "`two` was not taken");
    // A rollback to a version that must be compiled: `three` is not taken either.
    scene.found("four", false).await;
    scene.received("mark").await;
    scene.gate.pass();
    scene.gate.begins(4).await;
    assert_eq!(scene.versions.active().swaps, 2, "`three` was not taken");
    scene.gate.pass();
    scene.runs("four", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_with_cached_code_does_not_wait_for_the_compiler() {
    let place = tempfile::tempdir().unwrap();
    let cache = Cache {
        dir: place.path().join("cache"),
        max_bytes: 64 << 20,
    };
    let keeping = sandbox::Settings {
        cache: Some(cache.clone()),
        ..sandbox::Settings::default()
    };
    Sandbox::load_bytes(&good("kept"), &keeping).unwrap();
    let scene = Scene::new(Some(cache));
    scene.deploy("one").await;
    scene.gate.begins(1).await;
    scene.deploy("kept").await;
    scene.runs("kept", 1).await;
    // The only compiler still compiles `one`, although `one` is not requested any more.
    scene.deploy("two").await;
    scene.received("mark").await;
    assert_eq!(scene.gate.begun(), 1);
    scene.gate.pass();
    scene.gate.begins(2).await;
    scene.gate.pass();
    scene.runs("two", 2).await;
    // The code of `one` is in the cache now.
    scene.deploy("three").await;
    scene.gate.begins(3).await;
    scene.deploy("one").await;
    scene.runs("one", 3).await;
    scene.gate.pass();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_was_loaded_when_requested_is_taken() {
    let scene = Scene::new(None);
    let sandbox = Sandbox::load_bytes(&good("one"), &sandbox::Settings::default()).unwrap();
    let origin = Origin::Deploy(3);
    assert!(scene.versions.loaded(sandbox.digest()).is_none());
    let version = Version::new(sandbox, origin);
    let trial = false;
    scene
        .request(VersionRequest::Loaded { version, trial })
        .await;
    scene.runs("one", 1).await;
    assert_eq!(scene.gate.begun(), 0);
}
