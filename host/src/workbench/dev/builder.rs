//! Builds the handler again and again: from the sources, by the build command, to the handler's file.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::build_command::{BuildResult, build};
use super::sources::{Snapshot, SourceFolder};
use super::{Event, Show};
use crate::config::Config;
use crate::host::component;
use crate::sandbox::Sandbox;

/// How often the sources are scanned.
const EVERY: Duration = Duration::from_millis(200);
/// After this many builds in a row that only the build before had caused, the files that builds write
/// are no longer watched.
const ROUNDS: u32 = 4;

/// Makes versions of the handler.
pub(super) struct DevBuilder {
    config: Config,
    show: Show,
    sources: SourceFolder,
    /// The sources at the beginning of the last build.
    seen: Arc<Snapshot>,
    /// The files that changed during the last build.
    during: BTreeSet<PathBuf>,
    /// How many builds in a row were caused only by files that changed during the build before.
    rounds: u32,
}

impl DevBuilder {
    pub(super) fn new(config: &Config, show: Show) -> Self {
        let file = &config.handler.file;
        let development = &config.development;
        let sources = match &development.build {
            Some(_) => SourceFolder::new(&development.watch, file),
            // Without a build command, only the handler's file is watched.
            None => SourceFolder::file(file),
        };
        Self {
            config: config.clone(),
            show,
            sources,
            seen: Arc::default(),
            during: BTreeSet::new(),
            rounds: 0,
        }
    }

    fn say(&self, text: &str) {
        (self.show)(Event::Note(text));
    }

    /// Build until there is a handler that can be loaded.
    pub(super) async fn first(&mut self) -> (Sandbox, Vec<u8>) {
        loop {
            if self.build().await {
                let config = self.config.clone();
                let loading = spawn_blocking(move || component::load_handler(&config));
                match loading.await {
                    Ok(Ok(handler)) => return handler,
                    Ok(Err(error)) => (self.show)(Event::Failed(error)),
                    Err(error) => self.say(&format!("the component was not loaded: {error}")),
                }
            }
            let place = self.sources.root().display();
            self.say(&format!(
                "nothing runs yet; waiting for a change in {place}"
            ));
            self.changed().await;
        }
    }

    /// Build after every change of a source, and notify the host of each build that succeeds.
    pub(super) async fn follow(&mut self, built: &Notify) -> Infallible {
        if self.config.development.build.is_none() {
            // The host watches the file.
            return pending().await;
        }
        loop {
            self.changed().await;
            match self.build().await {
                true => built.notify_one(),
                false => self.say("the last version runs on"),
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

    /// Build once. Returns whether it succeeded; a failure is reported.
    async fn build(&mut self) -> bool {
        let before = self.scan(&self.seen).await;
        let touched = before.changed_since(&self.seen);
        self.seen = before;
        let by_last_build = !touched.is_empty() && touched == self.during;
        self.rounds = if by_last_build { self.rounds + 1 } else { 0 };
        let Some(command) = &self.config.development.build else {
            return true;
        };
        self.say(&format!("building: {command}"));
        let built = build(command, &self.config.development.folder).await;
        self.exclude_build_output().await;
        match built {
            BuildResult::Built(time) => {
                self.say(&format!("built in {time:.1?}"));
                true
            }
            BuildResult::Failed(how, output) => {
                (self.show)(Event::Output(&output));
                self.say(&format!("the build failed ({how})"));
                false
            }
        }
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
}
