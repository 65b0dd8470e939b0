//! The handler's file as a source of versions. Only a change of its content is a request. A file that
//! was missing and comes back unchanged (a network file system, a renewed mount) does not undo a
//! deploy.

use tokio::sync::mpsc;
use tracing::info;

use crate::file_watch::{Change, FileWatch};
use crate::rollout::request::{Reload, VersionRequest};
use crate::rollout::verify::Step;
use crate::rollout::versions::Origin;

/// Watch the handler's file until the receiver of the requests is gone. A `reload` requests the version
/// in the file even if it has not changed. If it `is_watched` not, only a reload reads it.
pub async fn watch_file(
    mut watch: FileWatch,
    is_watched: bool,
    requests: mpsc::Sender<VersionRequest>,
    mut reload: mpsc::Receiver<Reload>,
) {
    let origin = Origin::File;
    let unusable = |step, reason| VersionRequest::Unusable {
        origin,
        digest: "".into(),
        step,
        reason,
    };
    let mut trial = true;
    let mut is_asked = false;
    loop {
        let change = tokio::select! {
            change = watch.changed(), if is_watched || is_asked => change,
            Some(reload) = reload.recv() => {
                info!("reloading the handler's file");
                trial = reload == Reload::Trial;
                is_asked = true;
                watch.forget();
                continue;
            }
        };
        is_asked = false;
        let request = match change {
            Change::Content(bytes) => VersionRequest::Component {
                origin,
                bytes,
                trial: std::mem::replace(&mut trial, true),
            },
            Change::Restored => VersionRequest::Readable,
            Change::Unreadable(reason) => unusable(Step::Source, reason),
            Change::TooLarge(reason) => unusable(Step::Size, reason),
        };
        if requests.send(request).await.is_err() {
            return;
        }
    }
}
