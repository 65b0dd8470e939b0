//! Following the versions of the handler: what changes there is told, and counted.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;

use super::Driver;
use crate::runtime::versions::Versions;

/// The changes of the versions, one after the other; none, ever, where nothing can be swapped.
pub(super) struct Swaps(Option<watch::Receiver<u64>>);

impl Swaps {
    pub(super) fn of(versions: Option<&Arc<Versions>>) -> Self {
        Self(versions.map(|versions| versions.changes()))
    }

    /// Wait for the next one. Several at once are one.
    pub(super) async fn next(&mut self) {
        if let Some(changes) = &mut self.0
            && changes.changed().await.is_ok()
        {
            return;
        }
        pending().await
    }
}

impl Driver {
    /// Another version runs, or is tried out.
    pub(super) fn swapped(&mut self) {
        if let Some(versions) = &self.versions {
            let lineup = versions.lineup();
            self.metrics.handler(Arc::clone(lineup.current.digest()));
            let counted = self.metrics.swaps.get();
            self.metrics
                .swaps
                .inc_by(lineup.swaps.saturating_sub(counted));
        }
    }
}
