//! Builds the handler again and again: from the sources by the build command to the handler's file, and
//! from there into the sandbox.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::build_command::{BuildResult, build};
use super::sources::{Snapshot, SourceFolder};
use super::{Event, Show};
use crate::config::Config;
use crate::host::component;
use crate::rollout::versions::{Origin, Version, Versions};
use crate::sandbox::Sandbox;

/// How often the sources are scanned.
const EVERY: Duration = Duration::from_millis(200);
/// After this many builds in a row that only the build before had caused, the files that builds write
/// are no longer watched.
const ROUNDS: u32 = 4;

/// Makes versions of the handler.
pub(super) struct DevBuilder<'a> {
    config: &'a Config,
    show: Show,
    sources: SourceFolder,
    /// The sources at the beginning of the last build.
    seen: Arc<Snapshot>,
    /// The files that changed during the last build.
    during: BTreeSet<PathBuf>,
    /// How many builds in a row were caused only by files that changed during the build before.
    rounds: u32,
    /// The digest of the last version.
    last: Option<Arc<str>>,
}

impl<'a> DevBuilder<'a> {
    pub(super) fn new(config: &'a Config, show: Show) -> Self {
        let file = &config.handler.file;
        let development = &config.development;
        let sources = match &development.build {
            Some(_) => SourceFolder::new(&development.watch, file),
            // Without a build command, only the handler's file is watched.
            None => SourceFolder::file(file),
        };
        Self {
            config,
            show,
            sources,
            seen: Arc::default(),
            during: BTreeSet::new(),
            rounds: 0,
            last: None,
        }
    }

    fn say(&self, text: &str) {
        (self.show)(Event::Note(text));
    }

    /// Build until there is a new version.
    pub(super) async fn next(&mut self) -> Sandbox {
        loop {
            if let Some(sandbox) = self.make().await {
                return sandbox;
            }
            let place = self.sources.root().display();
            self.say(&format!(
                "nothing runs yet; waiting for a change in {place}"
            ));
            self.changed().await;
        }
    }

    /// Switch to a new version whenever there is one.
    pub(super) async fn follow(&mut self, versions: &Versions) -> Infallible {
        loop {
            self.changed().await;
            if let Some(sandbox) = self.make().await {
                let digest = Arc::clone(sandbox.digest());
                let origin = Origin::File;
                versions.switch(Version::new(sandbox, origin));
                self.say(&format!("swapped, {digest} runs from now on"));
            } else {
                self.say(&format!("{} runs on", versions.digest()));
            }
        }
    }

    /// Wait until the sources differ from the last build, and two scans in a row find the same.
    async fn changed(&mut self) {
        loop {
            sleep(EVERY).await;
            let now = self.scan(&self.seen).await;
            if now.changed_since(&self.seen).is_empty() {
                self.seen = now;
                continue;
            }
            sleep(EVERY).await;
            if self.scan(&now).await == now {
                return;
            }
        }
    }

    async fn scan(&self, earlier: &Arc<Snapshot>) -> Arc<Snapshot> {
        let (sources, earlier) = (self.sources.clone(), Arc::clone(earlier));
        let scanned = spawn_blocking(move || sources.scan(&earlier)).await;
        Arc::new(scanned.unwrap_or_default())
    }

    /// Build and load once. Errors are reported.
    async fn make(&mut self) -> Option<Sandbox> {
        let before = self.scan(&self.seen).await;
        let touched = before.changed_since(&self.seen);
        self.seen = before;
        let by_last_build = !touched.is_empty() && touched == self.during;
        self.rounds = if by_last_build { self.rounds + 1 } else { 0 };
        if let Some(command) = &self.config.development.build {
            self.say(&format!("building: {command}"));
            let built = build(command).await;
            self.exclude_build_output().await;
            match built {
                BuildResult::Built(time) => self.say(&format!("built in {time:.1?}")),
                BuildResult::Failed(how, output) => {
                    (self.show)(Event::Output(&output));
                    self.say(&format!("the build failed ({how})"));
                    return None;
                }
            }
        }
        self.load().await
    }

    /// A file that changed during the build is a reason to build again. But a file that every build
    /// writes is not a source, or the builds would never end.
    async fn exclude_build_output(&mut self) {
        let during = self.scan(&self.seen).await.changed_since(&self.seen);
        if self.rounds >= ROUNDS && during == self.during {
            let names: Vec<_> = during.iter().map(|path| path.to_string_lossy()).collect();
            self.say(&format!(
                "no longer watched, as every build writes it: {}",
                names.join(", ")
            ));
            // Not another scan: it would take a change of this moment for one that was built.
            self.seen = Arc::new(self.seen.without(&during));
            self.sources.exclude(during);
            self.during.clear();
        } else {
            self.during = during;
        }
    }

    async fn load(&mut self) -> Option<Sandbox> {
        let file = self.config.handler.file.clone();
        let settings = self.config.sandbox.clone();
        let loading = spawn_blocking(move || component::load(&file, &settings));
        match loading.await {
            Ok(Ok(sandbox)) if self.last.as_ref() == Some(sandbox.digest()) => {
                self.say("the same component as before");
                None
            }
            Ok(Ok(sandbox)) => {
                self.last = Some(Arc::clone(sandbox.digest()));
                Some(sandbox)
            }
            Ok(Err(error)) => {
                (self.show)(Event::Failed(error));
                None
            }
            Err(error) => {
                self.say(&format!("the component was not loaded: {error}"));
                None
            }
        }
    }
}
