//! The handler's file as a source of versions. Only a change of what it holds is a wish: a file that
//! was away for a while and is what it was (a network file system, a mount that is renewed) undoes
//! no deploy.

use tokio::sync::mpsc;
use tracing::info;

use crate::file_watch::{Change, FileWatch};
use crate::rollout::swap::Wish;
use crate::rollout::verify::Step;
use crate::rollout::versions::Origin;

/// How a file is taken that somebody is told to look at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reload {
    /// As any new version: with a share first, where versions are tried.
    Trial,
    /// Whole, at once: what runs is wanted no more.
    Whole,
}

/// Watch the handler's file until nobody listens. Whenever `reload` says so, what it holds is wished
/// for, whether it has changed or not, and tried with a share first only where that is allowed.
pub async fn watch_file(
    mut watch: FileWatch,
    wishes: mpsc::Sender<Wish>,
    mut reload: mpsc::Receiver<Reload>,
) {
    let origin = Origin::File;
    let unusable = |step, reason| Wish::Unusable {
        origin,
        digest: "".into(),
        step,
        reason,
    };
    let mut trial = true;
    loop {
        let change = tokio::select! {
            change = watch.changed() => change,
            Some(told) = reload.recv() => {
                info!("told to look at the handler's file");
                trial = told == Reload::Trial;
                watch.forget();
                continue;
            }
        };
        let wish = match change {
            Change::Content(bytes) => Wish::Component {
                origin,
                bytes,
                trial: std::mem::replace(&mut trial, true),
            },
            Change::Back => Wish::Readable,
            Change::Unreadable(reason) => unusable(Step::Source, reason),
            Change::TooLarge(reason) => unusable(Step::Size, reason),
        };
        if wishes.send(wish).await.is_err() {
            return;
        }
    }
}
