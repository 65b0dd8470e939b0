//! The bounded buffer of messages that were received and not fetched, and the state of the subscription.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use redis::{PushInfo, PushKind};
use tokio::sync::Notify;

use super::{Buffer, OnOverflow};
use crate::queue::Contact;
use crate::queue::at_most_once::Value;
use crate::redis::ServerTime;
use crate::redis::error::Error;

/// The bytes of a message beyond its text.
const OVERHEAD: usize = 64;

/// Between the subscription, which puts in, and fetches, which take out.
#[derive(Debug)]
pub(super) struct Inbox {
    buffer: Buffer,
    time: Arc<ServerTime>,
    state: Mutex<State>,
    /// A message came, or the state changed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    values: VecDeque<Value>,
    bytes: usize,
    /// The channel of the last message: most messages come from few channels.
    channel: Arc<str>,
    subscription: Subscribed,
    contact: Contact,
    interrupted: bool,
}

/// Whether there is a subscription.
#[derive(Debug, Default)]
enum Subscribed {
    #[default]
    Up,
    Down {
        since: Instant,
        error: Error,
    },
    /// The host drains.
    Stopped,
}

impl Inbox {
    /// An empty one, with a subscription. Messages arrive by this clock.
    pub(super) fn new(buffer: Buffer, time: Arc<ServerTime>) -> Self {
        Self {
            buffer,
            time,
            state: Mutex::new(State {
                contact: Contact {
                    connections_opened: 1,
                    ..Contact::default()
                },
                ..State::default()
            }),
            changed: Notify::new(),
        }
    }

    /// Take a push of the server. Returns whether it ends the subscription.
    pub(super) fn pushed(&self, push: PushInfo) -> bool {
        let mut data = push.data.into_iter();
        match push.kind {
            PushKind::Message | PushKind::SMessage => {}
            // The pattern comes first.
            PushKind::PMessage => drop(data.next()),
            // The server unsubscribes when a slot moves.
            PushKind::Disconnection | PushKind::Unsubscribe | PushKind::PUnsubscribe => {
                return true;
            }
            PushKind::SUnsubscribe => return true,
            _ => return false,
        }
        if let (Some(channel), Some(value)) = (data.next(), data.next())
            && let (redis::Value::BulkString(channel), redis::Value::BulkString(value)) =
                (channel, value)
        {
            self.put(&channel, value.into());
        }
        false
    }

    fn put(&self, channel: &[u8], bytes: Bytes) {
        // A message arrives when it is published.
        let enqueued_ms = self.time.now_ms();
        let mut state = self.state.lock();
        if matches!(state.subscription, Subscribed::Stopped) {
            return;
        }
        if state.channel.as_bytes() != channel {
            state.channel = String::from_utf8_lossy(channel).into();
        }
        let value = Value {
            queue: Arc::clone(&state.channel),
            bytes,
            enqueued_ms,
        };
        let size = size(&value);
        while state.values.len() >= self.buffer.messages || state.bytes + size > self.buffer.bytes {
            state.contact.buffer_dropped += 1;
            // It can never fit: both rules drop it.
            let is_hopeless = size > self.buffer.bytes || self.buffer.messages == 0;
            if self.buffer.on_overflow == OnOverflow::DropNewest || is_hopeless {
                return;
            }
            if let Some(oldest) = state.values.pop_front() {
                state.bytes -= self::size(&oldest);
            }
        }
        state.bytes += size;
        state.values.push_back(value);
        drop(state);
        self.changed.notify_one();
    }

    /// Wait up to `wait` for values, and take at most `want`.
    pub(super) async fn take(&self, want: usize, wait: Duration) -> Result<Vec<Value>, Error> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let changed = self.changed.notified();
            if let Some(values) = self.look(want)? {
                return Ok(values);
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    /// The values that are there, or none if waiting is useless; `None` = no values yet.
    ///
    /// # Errors
    /// The subscription has ended, and no value is left.
    fn look(&self, want: usize) -> Result<Option<Vec<Value>>, Error> {
        let mut state = self.state.lock();
        let interrupted = std::mem::take(&mut state.interrupted);
        if !state.values.is_empty() {
            let count = want.min(state.values.len());
            let values: Vec<Value> = state.values.drain(..count).collect();
            state.bytes -= values.iter().map(size).sum::<usize>();
            return Ok(Some(values));
        }
        // A burst is over: its room is given back.
        state.values.shrink_to(1024);
        match &state.subscription {
            Subscribed::Up => Ok(interrupted.then(Vec::new)),
            Subscribed::Down { error, .. } => Err(error.clone()),
            Subscribed::Stopped => Ok(Some(Vec::new())),
        }
    }

    /// Make a waiting fetch return, or the next one not wait.
    pub(super) fn interrupt(&self) {
        self.state.lock().interrupted = true;
        self.changed.notify_one();
    }

    /// There is a subscription again.
    pub(super) fn up(&self) {
        let mut state = self.state.lock();
        state.contact.connections_opened += 1;
        if let Subscribed::Down { since, .. } = state.subscription {
            state.contact.gaps += 1;
            state.contact.gap += since.elapsed();
            state.subscription = Subscribed::Up;
        }
    }

    /// The subscription ended, for this reason.
    pub(super) fn down(&self, error: Error) {
        let mut state = self.state.lock();
        let since = match state.subscription {
            Subscribed::Up => Instant::now(),
            Subscribed::Down { since, .. } => since,
            Subscribed::Stopped => return,
        };
        state.subscription = Subscribed::Down { since, error };
        drop(state);
        self.changed.notify_one();
    }

    /// Take no more messages.
    pub(super) fn stop(&self) {
        self.state.lock().subscription = Subscribed::Stopped;
        self.changed.notify_one();
    }

    /// How many values wait.
    pub(super) fn len(&self) -> usize {
        self.state.lock().values.len()
    }

    /// Why there is no subscription.
    pub(super) fn error(&self) -> Option<Error> {
        match &self.state.lock().subscription {
            Subscribed::Down { error, .. } => Some(error.clone()),
            Subscribed::Up | Subscribed::Stopped => None,
        }
    }

    pub(super) fn contact(&self) -> Contact {
        self.state.lock().contact
    }
}

/// The size of a value in the buffer.
fn size(value: &Value) -> usize {
    value.bytes.len() + value.queue.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(messages: usize, bytes: usize, on_overflow: OnOverflow) -> Inbox {
        let buffer = Buffer {
            messages,
            bytes,
            on_overflow,
        };
        Inbox::new(buffer, Arc::default())
    }

    fn message(kind: PushKind, words: &[&str]) -> PushInfo {
        let word = |word: &&str| redis::Value::BulkString(word.as_bytes().to_vec());
        PushInfo {
            kind,
            data: words.iter().map(word).collect(),
        }
    }

    fn taken(inbox: &Inbox) -> Vec<(String, String)> {
        let values = inbox.look(100).unwrap().expect("values");
        let text = |bytes: Bytes| String::from_utf8(bytes.into()).unwrap();
        let pairs = values
            .into_iter()
            .map(|v| (v.queue.to_string(), text(v.bytes)));
        pairs.collect()
    }

    fn bodies(inbox: &Inbox) -> String {
        taken(inbox).into_iter().map(|(_, body)| body).collect()
    }

    #[test]
    fn a_full_buffer_drops_by_its_rule_and_counts() {
        for (rule, left) in [
            (OnOverflow::DropNewest, "abc"),
            (OnOverflow::DropOldest, "cde"),
        ] {
            let inbox = inbox(3, 1 << 20, rule);
            for body in ["a", "b", "c", "d", "e"] {
                inbox.put(b"news", Bytes::copy_from_slice(body.as_bytes()));
            }
            assert_eq!(inbox.contact().buffer_dropped, 2);
            assert_eq!(bodies(&inbox), left);
            // There is room again.
            inbox.put(b"news", Bytes::from_static(b"f"));
            assert_eq!(bodies(&inbox), "f");
        }
    }

    #[test]
    fn bytes_are_bounded_as_well() {
        for rule in [OnOverflow::DropNewest, OnOverflow::DropOldest] {
            let one = 100 + "news".len() + OVERHEAD;
            let inbox = inbox(1000, 2 * one, rule);
            for _ in 0..3 {
                inbox.put(b"news", vec![0; 100].into());
            }
            assert_eq!((inbox.len(), inbox.contact().buffer_dropped), (2, 1));
            // Larger than the buffer: it drops nothing but itself.
            inbox.put(b"news", vec![0; 2 * one].into());
            assert_eq!((inbox.len(), inbox.contact().buffer_dropped), (2, 2));
            assert_eq!(taken(&inbox).len(), 2);
            assert_eq!(inbox.state.lock().bytes, 0);
        }
    }

    #[test]
    fn a_buffer_without_room_drops_everything_and_counts() {
        for rule in [OnOverflow::DropNewest, OnOverflow::DropOldest] {
            for (messages, bytes) in [(0, 1 << 20), (3, 0), (0, 0)] {
                let inbox = inbox(messages, bytes, rule);
                for dropped in 1..4 {
                    inbox.put(b"news", Bytes::from_static(b"a"));
                    assert_eq!((inbox.len(), inbox.contact().buffer_dropped), (0, dropped));
                }
            }
        }
    }

    #[test]
    fn pushes_of_every_kind_name_their_channel() {
        let inbox = inbox(10, 1 << 20, OnOverflow::DropNewest);
        let came = |kind, words| assert!(!inbox.pushed(message(kind, words)));
        came(PushKind::Subscribe, &["a"]);
        came(PushKind::Message, &["a", "1"]);
        came(PushKind::PMessage, &["b*", "bc", "2"]);
        came(PushKind::SMessage, &["d", "3"]);
        let expected = [("a", "1"), ("bc", "2"), ("d", "3")];
        assert_eq!(taken(&inbox), expected.map(|(c, b)| (c.into(), b.into())));
        for gone in [PushKind::Disconnection, PushKind::SUnsubscribe] {
            assert!(inbox.pushed(message(gone, &[])));
        }
    }

    #[tokio::test]
    async fn a_gap_fails_fetches_and_is_counted_when_it_is_over() {
        let inbox = inbox(10, 1 << 20, OnOverflow::DropNewest);
        let error = Error::Deadline {
            target: "here".to_owned(),
            command: "PING",
            after: Duration::ZERO,
        };
        inbox.put(b"news", Bytes::from_static(b"a"));
        inbox.down(error.clone());
        inbox.down(error);
        // Earlier messages come first.
        assert_eq!(
            inbox.take(9, Duration::from_secs(60)).await.unwrap().len(),
            1
        );
        inbox.take(9, Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(inbox.contact().gaps, 0);
        inbox.up();
        assert_eq!(inbox.contact().gaps, 1);
        assert!(inbox.error().is_none());
        inbox.interrupt();
        assert!(
            inbox
                .take(9, Duration::from_secs(60))
                .await
                .unwrap()
                .is_empty()
        );
        inbox.put(b"news", Bytes::from_static(b"b"));
        inbox.stop();
        inbox.put(b"news", Bytes::from_static(b"c"));
        assert_eq!(bodies(&inbox), "b");
        assert!(
            inbox
                .take(9, Duration::from_secs(60))
                .await
                .unwrap()
                .is_empty()
        );
    }
}
