//! The handler's file as a source of versions.

use tokio::sync::mpsc;
use tracing::info;

use super::Wish;
use crate::runtime::versions::Origin;
use crate::runtime::watch::{Change, FileWatch};
use crate::sandbox::swap::Step;

/// Watch the handler's file, of at most `max` bytes, until nobody listens. Whenever `reload` says so,
/// what it holds is wished for, whether it has changed or not.
pub async fn watch_file(
    mut watch: FileWatch,
    max: u64,
    wishes: mpsc::Sender<Wish>,
    mut reload: mpsc::Receiver<()>,
) {
    let origin = Origin::File;
    let unusable = |step, reason| Wish::Unusable {
        origin,
        digest: "".into(),
        step,
        reason,
    };
    loop {
        let change = tokio::select! {
            change = watch.changed() => change,
            Some(()) = reload.recv() => {
                info!("told to look at the handler's file");
                // Nothing of it is known: what it holds is a change.
                watch = FileWatch::new(watch.path().to_owned(), max);
                continue;
            }
        };
        let wish = match change {
            Change::Content(bytes) => Wish::Component {
                origin,
                bytes,
                trial: true,
            },
            Change::Unreadable(reason) => unusable(Step::Source, reason),
            Change::TooLarge(reason) => unusable(Step::Size, reason),
        };
        if wishes.send(wish).await.is_err() {
            return;
        }
    }
}
