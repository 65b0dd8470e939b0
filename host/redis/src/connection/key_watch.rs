//! Whether keys have changed, without asking all the time: the server says so (`CLIENT TRACKING`).
//!
//! A connection reads the keys once; the server announces the next change of one of them, and the connection
//! reads them again. While it does not, or where the user may not ask for it, nothing counts as unchanged.
//! Source: <https://redis.io/docs/latest/develop/reference/client-side-caching/>.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, PushInfo, PushKind, Value, cmd};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Connector, broken, no_timeouts};
use crate::error::{Class, Error, Redirection};
use crate::reply;
use crate::topology::Node;
use hostler_core::wire::keys;

/// How often the keys are read although nothing was announced: the connection may be dead.
const READ_EVERY: Duration = Duration::from_secs(5);
/// The pause before the next try to watch.
const PAUSE: Duration = Duration::from_secs(1);

/// Watches some keys of one slot, until it is dropped.
#[derive(Debug, Default)]
pub struct KeyWatch {
    changes: Arc<Changes>,
    #[expect(dead_code, reason = "held for its drop")]
    task: JoinSet<()>,
}

/// A moment from which on the server announces changes: nothing has changed since, or something has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mark(u64);

/// A key of the same slot whose changes are told at once, and apart from those of the others.
#[derive(Clone, Debug)]
pub struct Bell {
    /// The key.
    pub key: String,
    /// Woken after a change, and when the watch begins, or begins again.
    pub rung: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Changes {
    /// Changes so far, and losses of the connection.
    count: AtomicU64,
    /// One more than the count for which the server would have announced a change; 0 = never.
    watched: AtomicU64,
}

impl Changes {
    fn changed(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}

impl KeyWatch {
    /// Watch these keys, which are in one slot.
    pub fn begin(connector: &Connector, mut keys: Vec<String>, bell: Bell) -> Self {
        let changes = Arc::<Changes>::default();
        let mut task = JoinSet::new();
        keys.push(bell.key.clone());
        task.spawn(keep(connector.clone(), keys, bell, Arc::clone(&changes)));
        Self { changes, task }
    }

    /// This moment. A value that is read from now on may be kept for as long as [`Self::is_unchanged`]. `None`:
    /// the server does not announce changes now, so a key may change unnoticed.
    pub fn mark(&self) -> Option<Mark> {
        let count = self.changes.count.load(Ordering::Acquire);
        let is_watched = self.changes.watched.load(Ordering::Acquire) == count + 1;
        is_watched.then_some(Mark(count))
    }

    /// Whether no key has changed since then, for certain.
    pub fn is_unchanged(&self, since: Mark) -> bool {
        self.mark() == Some(since)
    }
}

impl Bell {
    /// Whether this says that its key has changed, and no other one.
    fn is_alone_in(&self, push: &PushInfo) -> bool {
        let [Value::Array(keys)] = &push.data[..] else {
            return false;
        };
        let is_key =
            |key: &Value| matches!(key, Value::BulkString(key) if *key == self.key.as_bytes());
        push.kind == PushKind::Invalidate && !keys.is_empty() && keys.iter().all(is_key)
    }
}

async fn keep(connector: Connector, keys: Vec<String>, bell: Bell, changes: Arc<Changes>) {
    loop {
        let lost = watch(&connector, &keys, &bell, &changes).await;
        changes.changed();
        match lost {
            Err(error) if error.class() == Class::Configuration => {
                // The right is missing, or the server does not know it: it would be refused every time.
                tracing::debug!(%error, "changes of keys are not announced: hostler looks for them");
                return;
            }
            Err(error) => tracing::debug!(%error, "changes of keys are not announced for now"),
            Ok(()) => {}
        }
        sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
    }
}

/// Watch until the connection is lost, or the keys have moved to another node.
async fn watch(
    connector: &Connector,
    keys: &[String],
    bell: &Bell,
    changes: &Arc<Changes>,
) -> Result<(), Error> {
    let slot = keys.first().map(|key| keys::slot(key));
    let node = connector.node_of(slot).await?;
    let news = Arc::new(Notify::new());
    let (noted, told) = (Arc::clone(changes), Arc::clone(&news));
    let rung = bell.clone();
    let inbox = move |push: PushInfo| {
        if matches!(push.kind, PushKind::Invalidate | PushKind::Disconnection) {
            match rung.is_alone_in(&push) {
                true => rung.rung.notify_one(),
                false => noted.changed(),
            }
            told.notify_one();
        }
        Ok::<(), ()>(())
    };
    let config = no_timeouts().set_push_sender(inbox);
    let name = format!("{}:changes", connector.name);
    let opening = connector.open_and_log_in(&node, &name, 0, config, true);
    let opened = timeout(connector.deadline, opening).await;
    let (session, _) =
        opened.map_err(|_| connector.late(&node, "CONNECT", connector.deadline))??;
    let ask = async |command: &'static str, cmd: &Cmd| {
        let mut connection = session.connection.clone();
        let asked = connection.send_packed_command(cmd);
        let answer = session.progress.wait_for(connector.deadline, asked).await;
        let answer = answer.ok_or_else(|| connector.late(&node, command, connector.deadline))?;
        let answer = answer.map_err(|error| broken(&node, &error))?;
        if let Some(redirection) = Redirection::of(&answer) {
            connector.redirected(&node, &redirection)?;
        }
        reply::accepted(command, answer)
    };
    let asked = async {
        let tracking = cmd("CLIENT").arg("TRACKING").arg("ON").to_owned();
        ask("CLIENT TRACKING", &tracking).await?;
        let mut read = cmd("EXISTS");
        read.arg(keys);
        ask("EXISTS", &read).await?;
        bell.rung.notify_one();
        loop {
            let before = changes.count.load(Ordering::Acquire);
            ask("EXISTS", &read).await?;
            changes.watched.store(before + 1, Ordering::Release);
            tokio::select! {
                () = news.notified() => {}
                () = sleep(READ_EVERY) => {}
            }
        }
    };
    tokio::select! {
        lost = asked => lost,
        () = Node::left(&node) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_counts_only_while_the_server_announces_changes() {
        let watch = KeyWatch::default();
        let watched = |count: u64| watch.changes.watched.store(count + 1, Ordering::Release);
        assert_eq!(watch.mark(), None, "nothing is watched yet");
        watched(0);
        let mark = watch.mark().unwrap();
        assert!(watch.is_unchanged(mark));
        watch.changes.changed();
        assert!(!watch.is_unchanged(mark));
        // The keys are to be read again: a change before that is not announced.
        assert_eq!(watch.mark(), None);
        watched(1);
        assert!(watch.mark().is_some_and(|mark| watch.is_unchanged(mark)));
        assert!(!watch.is_unchanged(mark));
        // One more change while they were being read.
        watch.changes.changed();
        watch.changes.changed();
        watched(2);
        assert_eq!(watch.mark(), None);
    }
}
